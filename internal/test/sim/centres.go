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

// Centres configures two data centres. Clients and movers are in one or the other by turns. What a client writes is in
// the client's data centre at once, and arrives in the other one later. A client reads what its own data centre has.
type Centres struct {
	// Delay is the longest time that a write takes to the other data centre.
	Delay time.Duration
	// Lose is the probability that a write does not arrive in the other data centre by itself. A repair delivers the
	// write after the next cut of the link, or at the end of the run.
	Lose float64
	// Cut is the average number of cuts of the link between the data centres per second. A cut lasts at most Outage.
	Cut    float64
	Outage time.Duration
	// Late is the longest time until a write arrives, even if it was lost or the link was cut, except while the link is
	// cut. 0 stands for no bound.
	Late time.Duration
}

// centres is a store with the rows of two data centres, as package cassandrastore reads and writes them: at
// LOCAL_QUORUM, or at EACH_QUORUM for callers of storekit.Everywhere. The embedded store has the registers and nodes,
// and also the rows of both data centres, merged. A read at EACH_QUORUM, or by a caller that is no actor, finds the
// merged rows. A read at EACH_QUORUM also writes the rows that it finds to a data centre that lacks them, tombstones
// included, like Cassandra's blocking read repair.
type centres struct {
	store.Store
	o Centres
	m Mistakes

	mu    sync.Mutex
	r     *rand.Rand
	local [2]memstore.Store
	// journal records all writes to the rows of each data centre. It is nil if nothing is recorded.
	journal *journal
	// under are the writes that are on their way to the other data centre. The next of them arrives at the time due.
	// lost are the writes that a repair must deliver.
	under, lost []delivery
	due         time.Time
	// until is the end of the current or last cut of the link. cuts is the number of cuts.
	until time.Time
	cuts  int
	// looked is the time of the last call of the method weather.
	looked time.Time
	// refused is the number of calls at EACH_QUORUM that failed. late is the number of delivered writes.
	refused, late int
	// fuse is the number of further calls until the link is cut for an hour. If fuse is 0, no such cut comes.
	fuse int
	// minority is the data centre that cannot reach a quorum for registers during a cut.
	minority int
}

// delivery is a write that is on its way to a data centre, with the time at which the write arrives.
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
	// purges is the timestamp if the write is a client's removal of a range of keys, and 0 for other writes.
	purges store.Timestamp
}

// place is the data centre from which a call comes, and whether the call is at EACH_QUORUM (wide is true).
type place struct {
	centre int
	wide   bool
}

// placeOf returns the data centre from which the call with the context ctx comes. The result ok is false if no actor
// makes the call.
func placeOf(ctx context.Context) (p place, ok bool) {
	a, _ := ctx.Value(actorKey{}).(*actor)
	if a == nil {
		return p, false
	}
	wide, _ := ctx.Value(wideKey{}).(bool)
	return place{a.centre, wide}, true
}

type wideKey struct{}

// wide reads and writes rows at EACH_QUORUM.
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

// several is a store of several data centres, which offers reads and writes at EACH_QUORUM.
type several struct{ store.Store }

// EachQuorum returns the rows of the store at EACH_QUORUM.
func (s several) EachQuorum() store.Rows { return wide{s.Store} }

// nearRows makes the mistakes NearConfirm and NearPurge: it reads single rows, or pages, in one data centre instead of
// all.
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

// nearSighted is a store of several data centres that makes the mistakes of nearRows.
type nearSighted struct {
	store.Store
	m Mistakes
}

// EachQuorum returns rows that are read in one data centre, by mistake.
func (s nearSighted) EachQuorum() store.Rows { return nearRows{wide{s.Store}, s.m} }

func newCentres(inner store.Store, c Config) *centres {
	return &centres{
		Store: inner, o: *c.Centres, m: c.Mistakes, r: rand.New(rand.NewPCG(c.Seed, 14)),
		local: [2]memstore.Store{memstore.New(), memstore.New()}, looked: time.Now(),
	}
}

// errAway returns the error of a call that needs both data centres while the link is cut. k is Timeout for a write,
// whose outcome is unknown, or Unavailable.
func errAway(k store.Kind) error { return store.Errorf(k, "the other data centre does not answer") }

func (c *centres) away() bool { return time.Now().Before(c.until) }

// cut reports whether the link between the data centres is cut now.
func (c *centres) cut() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.away()
}

// decides reports whether the caller reaches a quorum of the replicas in all data centres, as registers need.
func (c *centres) decides(ctx context.Context) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	p, ok := placeOf(ctx)
	return !ok || !c.away() || p.centre != c.minority
}

// everCut reports whether the link between the data centres was cut at any time of the run.
func (c *centres) everCut() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cuts > 0
}

// weather cuts the link between the data centres at random times, and delays the writes that are on their way.
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

// send puts a write on its way to the other data centre.
func (c *centres) send(d delivery) {
	if len(c.under) == 0 || d.at.Before(c.due) {
		c.due = d.at
	}
	c.under = append(c.under, d)
}

// arrive delivers the writes that are due. It is called at the beginning of each call of the store.
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

// repair delivers the writes that a read at EACH_QUORUM has found: those to the partition p with keys within b, with
// all other rows of the same batch.
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

// apply does the write w in one data centre, and records the write in the journal.
func (c *centres) apply(centre int, w *written) error {
	err := w.do(c.local[centre])
	if err == nil && c.journal != nil {
		c.journal.add(entry{w: w, centre: centre})
	}
	return err
}

// heal ends a cut of the link, and delivers all writes to the other data centre.
func (c *centres) heal() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.until = time.Now()
	for _, d := range append(c.under, c.lost...) {
		c.deliver(d)
	}
	c.under, c.lost = nil, nil
}

// write applies the write w in the data centre of the caller. The other data centre gets w at once, after a delay, or
// after the link is back.
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

// rows returns the rows that the caller of ctx reads. The result repairs is true if the read also repairs what it
// finds.
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
