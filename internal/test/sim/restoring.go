package sim

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/evenkeel/evenkeel/internal/door"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
)

// restoresEach is the number of restores that are tried after one run of clients. Clients work again after the last
// restore.
const restoresEach = 10

// RunRestores simulates a store in two data centres that is put back to snapshots, repaired as docs/backup.md says, and
// used again. Each partition is in snapshots of different moments, in each data centre. Meanwhile clients put, delete,
// and delete ranges of keys and old rows, and ranges move. The run checks that what was acknowledged before the first
// snapshot exists after the repair, that what was deleted before does not, and that both data centres list the same.
// RunRestores must be called within a testing/synctest bubble.
func RunRestores(c Config) Report {
	c.Keys, c.Rounds = 2+2*c.Keys, c.Rounds+2
	e := newEra(c)
	if err := e.create(context.Background(), func(c *listing.Client) error {
		return c.CreateBucket(context.Background(), "b")
	}); err != nil {
		return Report{Err: err}
	}
	begin := e.j.now()
	e.live("client", c.Ops)
	rep := e.report()
	if rep.Err != nil {
		return rep
	}
	r := rand.New(rand.NewPCG(c.Seed, 60))
	for i := range restoresEach {
		m := e.draw(r, begin)
		if m == nil {
			continue
		}
		time.Sleep(2 * time.Second) // clocks are past what was removed then
		later := e.restored(m, r, uint64(i+1))
		if i == restoresEach-1 && !later.s.failed() {
			later.live("later", c.Ops/2)
			later.ends()
		}
		rep.add(later.report())
		if rep.Err != nil {
			rep.Err = fmt.Errorf("restore %d, %s: %w", i, m, rep.Err)
			break
		}
		rep.Restores++
	}
	return rep
}

// add adds the violations and counts of another run to the report.
func (r *Report) add(o Report) {
	r.Err = errors.Join(r.Err, o.Err)
	r.Steps, r.Swaps = r.Steps+o.Steps, r.Swaps+o.Swaps
	r.Acked, r.Unknown, r.Shown, r.Absent = r.Acked+o.Acked, r.Unknown+o.Unknown, r.Shown+o.Shown, r.Absent+o.Absent
	r.Outages, r.Later, r.Refused = r.Outages+o.Outages, r.Later+o.Later, r.Refused+o.Refused
}

// era is the simulation of a store from its creation, or from a restore of snapshots, to its end.
type era struct {
	*stage
	j    *journal
	h    *proof
	keys []string

	mu           sync.Mutex
	begun, acked []dated
}

// dated is a write with a moment of the journal: when its timestamp was drawn first, or when it was acknowledged.
type dated struct {
	*write
	at int
}

func newEra(c Config) *era {
	e := &era{stage: newStage(c), j: &journal{}}
	for i := range c.Keys {
		e.keys = append(e.keys, fmt.Sprintf("k%02d", i))
	}
	e.h = newProof(e.keys)
	e.h.certain = func() bool { return !e.centres.everCut() }
	e.centres.Store, e.centres.journal = recorder{e.mem, e.j}, e.j
	e.drawn = func(w *write) {
		e.h.begin(w)
		e.mu.Lock()
		defer e.mu.Unlock()
		if !slices.ContainsFunc(e.begun, func(d dated) bool { return d.write == w }) {
			e.begun = append(e.begun, dated{w, e.j.now()})
		}
	}
	return e
}

// live lets clients and a mover work until they end. who is the beginning of the clients' names, and ops the number of
// operations of each client.
func (e *era) live(who string, ops int) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for i := range e.c.Clients {
		x := &user{era: e, r: rand.New(rand.NewPCG(e.c.Seed, uint64(100+i)))}
		x.a = &actor{name: fmt.Sprintf("%s%d", who, i), client: true, centre: i % 2}
		c, err := e.client(several{e.gated}, 1+i%3)
		if err != nil {
			e.s.fail("%v", err)
			return
		}
		x.b = c.Bucket("b")
		e.begin(ctx, x.a, func(ctx context.Context) { x.run(ctx, ops) })
	}
	e.begin(ctx, &actor{name: "mover", centre: int(e.c.Seed % 2)}, func(ctx context.Context) {
		e.moves(ctx, func(r *rand.Rand) []byte { return []byte(e.keys[r.IntN(len(e.keys))]) })
	})
	e.run(func() bool { return true })
	cancel()
	e.s.stop()
	e.actors.Wait()
}

func (e *era) report() Report {
	r := e.stage.report()
	r.Acked, r.Unknown, r.Shown, r.Absent = e.h.acked, e.h.unknown, e.h.shown, e.h.absent
	return r
}

// user is a client that puts, deletes and reads entries.
type user struct {
	*era
	a *actor
	r *rand.Rand
	b *listing.Bucket
	n int
}

func (x *user) run(ctx context.Context, ops int) {
	for range ops {
		if ctx.Err() != nil || x.s.failed() {
			return
		}
		time.Sleep(time.Duration(x.r.Int64N(int64(10 * time.Minute))))
		key := x.keys[x.r.IntN(len(x.keys))]
		if x.r.IntN(100) >= x.c.Writes {
			x.look(ctx, key)
			continue
		}
		switch d := x.r.IntN(20); {
		case d < 11:
			x.n++
			w := &write{key: key, value: fmt.Sprintf("%s.%d", x.a.name, x.n), centre: x.a.centre}
			x.change(ctx, w, func(ctx context.Context) error { return x.b.Put(ctx, []byte(key), []byte(w.value)) })
		case d < 16:
			w := &write{key: key, deletes: true, centre: x.a.centre}
			x.change(ctx, w, func(ctx context.Context) error { return x.b.Delete(ctx, []byte(key)) })
		case d < 17:
			x.purge(ctx, x.r.IntN(len(x.keys)), 0)
		case d < 19:
			x.purge(ctx, 0, 0)
		default:
			x.purge(ctx, 0, time.Duration(1+x.r.Int64N(int64(time.Hour))))
		}
	}
}

// purge deletes all entries from the key number `from` on, or only those older than age if age is not 0.
func (x *user) purge(ctx context.Context, from int, age time.Duration) {
	w := &write{before: x.h.view(anywhere), centre: x.a.centre, aged: age > 0}
	w.clears(x.keys[from:])
	first := []byte(x.keys[from])
	if from == 0 {
		first = nil
	}
	if !w.aged {
		x.change(ctx, w, func(ctx context.Context) error { return x.b.DeleteRange(ctx, first, nil) })
		return
	}
	w.ts = store.Timestamp(time.Now().Add(-age).UnixMicro())
	x.drawn(w)
	x.change(ctx, w, func(ctx context.Context) error {
		_, err := door.Bucket(x.b).DeleteOlderUntil(ctx, first, nil, w.ts, time.Time{})
		return err
	})
}

// change makes the write w by the function do, and records the outcome.
func (x *user) change(ctx context.Context, w *write, do func(context.Context) error) {
	if err := do(withOp(ctx, op{write: w})); err != nil {
		x.h.doubt(w)
		x.tolerate("change", err)
		return
	}
	x.mu.Lock()
	x.acked = append(x.acked, dated{w, x.j.now()})
	x.mu.Unlock()
	if err := x.h.acknowledge(w); err != nil {
		x.s.fail("%s: %v", x.a.name, err)
	}
}

func (x *user) look(ctx context.Context, key string) {
	before := x.h.view(x.a.centre)
	if x.r.IntN(2) == 0 {
		found := map[string]string{}
		page, err := x.b.List(ctx, listing.Query{Limit: 1000})
		if err != nil || page.Next != "" {
			x.tolerate("list", err)
			return
		}
		for _, item := range page.Items {
			found[string(item.Key)] = string(item.Value)
		}
		for _, k := range x.keys {
			v, shown := found[k]
			if err := x.h.read(x.a.centre, before, k, shown, v); err != nil {
				x.s.fail("%s: list: %v", x.a.name, err)
			}
		}
		return
	}
	e, err := x.b.Get(ctx, []byte(key))
	if err != nil && !errors.Is(err, listing.ErrNotFound) {
		x.tolerate("get", err)
		return
	}
	if err := x.h.read(x.a.centre, before, key, err == nil, string(e.Value)); err != nil {
		x.s.fail("%s: get: %v", x.a.name, err)
	}
}

func (x *user) tolerate(what string, err error) {
	if !excused(err) {
		x.s.fail("%s: %s: %v", x.a.name, what, err)
	}
}

// restored returns the store after a restore of the snapshots m and a repair. n is the number of the restore.
func (e *era) restored(m *moments, r *rand.Rand, n uint64) *era {
	c := e.c
	c.Seed += n << 32 // no partition has an ID for the second time
	x := newEra(c)
	x.bucket = e.bucket
	fail := func(err error) *era {
		x.s.fail("%v", err)
		return x
	}
	if err := m.put(e.j, x.stage); err != nil {
		return fail(err)
	}
	if m.healed {
		x.centres.heal()
	}
	if c.Trace != nil {
		c.Trace(m.String())
	}
	if r.IntN(3) == 0 {
		x.centres.fuse = 1 + r.IntN(200)
	}
	err := x.mend(m.adopt, m.forge(e.j))
	x.centres.fuse = 0
	if err != nil {
		return fail(err)
	}
	got, err := x.listed()
	if err != nil {
		return fail(err)
	}
	h := e.proven(m)
	before := h.view(anywhere)
	for _, k := range x.keys {
		v, shown := got[k]
		if err := h.read(anywhere, before, k, shown, v); err != nil {
			return fail(err)
		}
		// From now on it is as if that had been written in both data centres.
		w := &write{key: k, value: v, deletes: !shown, ts: store.Timestamp(time.Now().UnixMicro())}
		if shown {
			w.ts = h.keys[k].byValue[v].ts
		}
		x.h.begin(w)
		_ = x.h.acknowledge(w)
		x.h.keys[k].prove(1, w.ts)
	}
	return x
}

// listed returns the entries of the bucket. It returns an error if the two data centres list different entries.
func (e *era) listed() (map[string]string, error) {
	var all []map[string]string
	for _, rows := range []store.Rows{e.mem, e.centres.local[0], e.centres.local[1]} {
		c, err := listing.New(mapclient.With(mixed{e.mem, rows}, mapclientOf(e.stage)), listing.Options{})
		if err != nil {
			return nil, err
		}
		got, last := map[string]string{}, ""
		for entry, err := range c.Bucket("b").All(context.Background(), listing.Query{}) {
			if err != nil {
				return nil, err
			}
			if string(entry.Key) <= last {
				return nil, fmt.Errorf("%q is listed after %q", entry.Key, last)
			}
			last = string(entry.Key)
			got[last] = string(entry.Value)
		}
		all = append(all, got)
	}
	for i, got := range all[1:] {
		if !maps.Equal(got, all[0]) {
			return nil, fmt.Errorf("data centre %d lists %v, both together have %v", i, got, all[0])
		}
	}
	return all[0], nil
}

// ends checks the entries in both data centres after all writes have arrived in both.
func (e *era) ends() {
	if e.s.failed() {
		return
	}
	e.quiet()
	got, err := e.listed()
	if err != nil {
		e.s.fail("last listing: %v", err)
		return
	}
	for _, k := range e.keys {
		v, shown := got[k]
		if err := e.h.read(anywhere, e.h.view(anywhere), k, shown, v); err != nil {
			e.s.fail("last listing: %v", err)
		}
	}
}
