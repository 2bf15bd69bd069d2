package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// Centres configures a second data centre. Clients and movers are in either, by turns. What a client writes is in its
// own data centre at once, and comes to the other one later; what a client reads is what its own one has.
type Centres struct {
	// Delay is the longest that a write takes to the other data centre.
	Delay time.Duration
	// Lose is the probability that a write does not get there by itself: a repair brings it when the next cut is over, or
	// when the run ends.
	Lose float64
	// Cut is how many times a second, on average, the link between the two is cut, each time for at most Outage.
	Cut    float64
	Outage time.Duration
	// Late is the longest time until a write gets there unless the link is cut just then, whatever was lost and however
	// often the link was cut; 0: there is no bound.
	Late time.Duration
}

// centres are the rows of two data centres, as package cassandrastore reads and writes them: at LOCAL_QUORUM, or at
// EACH_QUORUM for callers of store.Everywhere. Registers and nodes are those of the store, which also has the rows of
// both, merged: that is what a read at EACH_QUORUM finds, and what a caller sees that is no actor. Such a read also
// writes what it meets to the data centre that lacks it, as the table's blocking read repair does, tombstones included.
type centres struct {
	store.Store
	o Centres
	m Mistakes

	mu    sync.Mutex
	r     *rand.Rand
	local [2]*memstore.Store
	// journal gets what is done to the rows of each data centre; nil: nobody asks.
	journal *journal
	// under are the writes that are on their way from one data centre to the other, the next of them due at the time due;
	// lost are those that a repair must bring.
	under, lost []delivery
	due         time.Time
	// until is when the present cut ends, or the last one has ended. cuts counts them.
	until time.Time
	cuts  int
	// looked is when weather was last asked.
	looked time.Time
	// refused counts calls at each quorum that failed, and late the deliveries.
	refused, late int
	// fuse is how many more calls are made before the link is cut for an hour; 0: it is not cut so.
	fuse int
	// minority is the data centre that no quorum of registers is with during a cut.
	minority int
}

// delivery is a write on its way to a data centre.
type delivery struct {
	to   int
	at   time.Time
	sent time.Time
	*written
}

// written is a write to the rows of one partition.
type written struct {
	in store.Partition
	of []store.Bounds // the keys that it writes
	do func(store.Rows) error
	// purges is the timestamp of a client's removal of a range of keys; 0: the write is something else.
	purges store.Timestamp
}

// place says from which data centre a call comes, and whether it is made at each quorum.
type place struct {
	centre int
	wide   bool
}

// placeOf returns the place of an actor's call; false: no actor calls.
func placeOf(ctx context.Context) (p place, ok bool) {
	a, _ := ctx.Value(actorKey{}).(*actor)
	if a == nil {
		return p, false
	}
	wide, _ := ctx.Value(wideKey{}).(bool)
	return place{a.centre, wide}, true
}

type wideKey struct{}

// wide are rows at each quorum.
type wide struct{ store.Rows }

func widely(ctx context.Context) context.Context { return context.WithValue(ctx, wideKey{}, true) }

func (w wide) Put(ctx context.Context, p store.Partition, rows ...store.Row) error {
	return w.Rows.Put(widely(ctx), p, rows...)
}

func (w wide) Delete(ctx context.Context, p store.Partition, key []byte, ts store.Timestamp) error {
	return w.Rows.Delete(widely(ctx), p, key, ts)
}

func (w wide) Get(ctx context.Context, p store.Partition, key []byte) (store.Row, bool, error) {
	return w.Rows.Get(widely(ctx), p, key)
}

func (w wide) Slice(
	ctx context.Context, p store.Partition, b store.Bounds, o store.SliceOptions,
) (store.Page, error) {
	return w.Rows.Slice(widely(ctx), p, b, o)
}

func (w wide) Remove(ctx context.Context, p store.Partition, b store.Bounds, ts store.Timestamp) error {
	return w.Rows.Remove(widely(ctx), p, b, ts)
}

// several is a store of several data centres.
type several struct{ store.Store }

// EachQuorum implements store.EachQuorum.
func (s several) EachQuorum() store.Rows { return wide{s.Store} }

// nearRows make the mistakes NearConfirm and NearPurge: single rows, or pages, are read in one data centre.
type nearRows struct {
	wide
	m Mistakes
}

func (n nearRows) Get(ctx context.Context, p store.Partition, key []byte) (store.Row, bool, error) {
	if n.m.NearConfirm {
		return n.Rows.Get(ctx, p, key)
	}
	return n.wide.Get(ctx, p, key)
}

func (n nearRows) Slice(
	ctx context.Context, p store.Partition, b store.Bounds, o store.SliceOptions,
) (store.Page, error) {
	if n.m.NearPurge {
		return n.Rows.Slice(ctx, p, b, o)
	}
	return n.wide.Slice(ctx, p, b, o)
}

// nearSighted is a store of several data centres, with the mistakes of nearRows.
type nearSighted struct {
	store.Store
	m Mistakes
}

// EachQuorum implements store.EachQuorum.
func (s nearSighted) EachQuorum() store.Rows { return nearRows{wide{s.Store}, s.m} }

func newCentres(inner store.Store, c Config) *centres {
	return &centres{
		Store: inner, o: *c.Centres, m: c.Mistakes, r: rand.New(rand.NewPCG(c.Seed, 14)),
		local: [2]*memstore.Store{memstore.New(), memstore.New()}, looked: time.Now(),
	}
}

// errAway is the answer of calls that need both data centres during a cut. A write has an unknown outcome.
func errAway(k store.Kind) error { return store.Errorf(k, "the other data centre does not answer") }

func (c *centres) away() bool { return time.Now().Before(c.until) }

// cut reports whether the link is cut.
func (c *centres) cut() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.away()
}

// decides reports whether an actor reaches a quorum of all data centres, which registers need.
func (c *centres) decides(ctx context.Context) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	p, ok := placeOf(ctx)
	return !ok || !c.away() || p.centre != c.minority
}

// everCut reports whether the link was ever cut.
func (c *centres) everCut() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cuts > 0
}

// weather sometimes cuts the link.
func (c *centres) weather(trace func(string, ...any)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	passed := time.Since(c.looked).Seconds()
	c.looked = time.Now()
	if c.away() || c.r.Float64() >= c.o.Cut*passed {
		return
	}
	c.arrive()
	d := time.Duration(c.r.Int64N(int64(c.o.Outage)))
	c.until = time.Now().Add(d)
	c.cuts++
	c.minority = c.r.IntN(2)
	all := append(c.under, c.lost...) // hints come afterwards, and a repair brings what was lost
	c.under, c.lost = nil, nil
	for _, d := range all {
		d.at = c.until.Add(c.delay())
		if c.o.Late > 0 && d.at.Sub(d.sent) > c.o.Late {
			d.at = d.sent.Add(c.o.Late)
		}
		c.send(d)
	}
	trace("the link between the data centres is cut for %v", d)
}

func (c *centres) delay() time.Duration { return time.Duration(c.r.Int64N(int64(c.o.Delay))) }

// send begins a delivery.
func (c *centres) send(d delivery) {
	if len(c.under) == 0 || d.at.Before(c.due) {
		c.due = d.at
	}
	c.under = append(c.under, d)
}

// arrive delivers what is due, at the beginning of a call.
func (c *centres) arrive() {
	if c.fuse > 0 {
		if c.fuse--; c.fuse == 0 {
			c.until = time.Now().Add(time.Hour)
		}
	}
	now := time.Now()
	if len(c.under) == 0 || now.Before(c.due) || c.away() {
		return
	}
	all := c.under
	c.under = all[:0]
	for _, d := range all {
		if now.Before(d.at) {
			c.send(d)
		} else {
			c.deliver(d)
		}
	}
	clear(all[len(c.under):])
}

// repair delivers what a read at each quorum has met: writes of keys within bounds, with all that came in one batch.
func (c *centres) repair(p store.Partition, b store.Bounds) {
	c.mu.Lock()
	defer c.mu.Unlock()
	met := func(d delivery) bool {
		if d.in != p || !slices.ContainsFunc(d.of, func(o store.Bounds) bool {
			return overlap(o.Start, o.End, b.Start, b.End)
		}) {
			return false
		}
		c.deliver(d)
		return true
	}
	c.under, c.lost = slices.DeleteFunc(c.under, met), slices.DeleteFunc(c.lost, met)
}

func (c *centres) deliver(d delivery) {
	c.late++
	if err := c.apply(d.to, d.written); err != nil {
		panic(fmt.Sprintf("sim: a write that the other data centre has taken: %v", err))
	}
}

// apply does a write in a data centre.
func (c *centres) apply(centre int, w *written) error {
	err := w.do(c.local[centre])
	if err == nil && c.journal != nil {
		c.journal.add(entry{w: w, centre: centre})
	}
	return err
}

// heal delivers everything.
func (c *centres) heal() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.until = time.Now()
	for _, d := range append(c.under, c.lost...) {
		c.deliver(d)
	}
	c.under, c.lost = nil, nil
}

// write applies a write to the data centre of its sender, and to the other one at once, later, or once it is back.
func (c *centres) write(ctx context.Context, w *written) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.arrive()
	if err := w.do(c.Store); err != nil {
		return err
	}
	p, ok := placeOf(ctx)
	if err := c.apply(p.centre, w); err != nil {
		return err
	}
	other := 1 - p.centre
	switch {
	case !ok, p.wide && !c.away():
		return c.apply(other, w)
	case p.wide:
		c.refused++
		c.send(delivery{other, c.until.Add(c.delay()), time.Now(), w})
		return errAway(store.Timeout)
	case c.away():
		c.send(delivery{other, c.until.Add(c.delay()), time.Now(), w})
	default:
		d := delivery{other, time.Now().Add(c.delay()), time.Now(), w}
		switch lost := c.r.Float64() < c.o.Lose; {
		case lost && c.o.Late > 0:
			d.at = time.Now().Add(c.o.Late)
			c.send(d)
		case lost:
			c.lost = append(c.lost, d)
		default:
			c.send(d)
		}
	}
	return nil
}

// rows returns what a caller reads; repairs: the read repairs what it meets.
func (c *centres) rows(ctx context.Context) (rows store.Rows, repairs bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.arrive()
	p, ok := placeOf(ctx)
	switch {
	case !ok:
		return c.Store, false, nil
	case !p.wide:
		return c.local[p.centre], false, nil
	case c.away():
		c.refused++
		return nil, true, errAway(store.Unavailable)
	}
	return c.Store, !c.m.NoReadRepair, nil
}

func (c *centres) Put(ctx context.Context, p store.Partition, rows ...store.Row) error {
	var of []store.Bounds
	for _, r := range rows {
		of = append(of, store.Bounds{Start: r.Key, End: next(r.Key)})
	}
	rows = slices.Clone(rows)
	return c.write(ctx, &written{in: p, of: of, do: func(s store.Rows) error {
		return s.Put(context.WithoutCancel(ctx), p, rows...)
	}})
}

func (c *centres) Delete(ctx context.Context, p store.Partition, key []byte, ts store.Timestamp) error {
	of := []store.Bounds{{Start: key, End: next(key)}}
	return c.write(ctx, &written{in: p, of: of, do: func(s store.Rows) error {
		return s.Delete(context.WithoutCancel(ctx), p, key, ts)
	}})
}

func (c *centres) Remove(ctx context.Context, p store.Partition, b store.Bounds, ts store.Timestamp) error {
	w := &written{in: p, of: []store.Bounds{b}, do: func(s store.Rows) error {
		return s.Remove(context.WithoutCancel(ctx), p, b, ts)
	}}
	if actorOf(ctx).client {
		w.purges = ts
	}
	return c.write(ctx, w)
}

func (c *centres) Get(ctx context.Context, p store.Partition, key []byte) (store.Row, bool, error) {
	rows, repairs, err := c.rows(ctx)
	if err != nil {
		return store.Row{}, false, err
	}
	if repairs {
		c.repair(p, store.Bounds{Start: key, End: next(key)})
	}
	return rows.Get(ctx, p, key)
}

func (c *centres) Slice(
	ctx context.Context, p store.Partition, b store.Bounds, o store.SliceOptions,
) (store.Page, error) {
	rows, repairs, err := c.rows(ctx)
	if err != nil {
		return store.Page{}, err
	}
	page, err := rows.Slice(ctx, p, b, o)
	if err != nil || !repairs {
		return page, err
	}
	met := b
	if page.More && len(page.Rows) > 0 {
		if last := page.Rows[len(page.Rows)-1].Key; o.Reverse {
			met.Start = last
		} else {
			met.End = next(last)
		}
	}
	c.repair(p, met)
	return page, nil
}
