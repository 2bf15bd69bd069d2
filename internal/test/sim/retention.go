package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/evenkeel/evenkeel/internal/door"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/rebalance/balancer"
	"github.com/evenkeel/evenkeel/internal/rebalance/engine"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/retention"
	"github.com/evenkeel/evenkeel/store"
)

const (
	retentionKeep  = 2 * time.Hour
	retentionEvery = 10 * time.Minute
	timeInKey      = "20060102T150405"
)

// retentionRules returns the rules of a run: keys below w/ are old by the time of their put, and keys below d/ by the
// time in the key.
func retentionRules() []retention.Rule {
	return []retention.Rule{
		{Bucket: "b", Prefix: []byte("w/"), Keep: retentionKeep, Time: retention.Written},
		{Bucket: "b", Prefix: []byte("d/"), Keep: retentionKeep, Time: timeInKey},
	}
}

// ages records the writes to a bucket with rules of retention, and which entries retention has deleted. Answers are
// checked against ages.
type ages struct {
	mu sync.Mutex
	by map[string][]*write // by key, in order of their beginnings
	// least is, by data centre and key, the lowest timestamp that a reader may be shown: that of an entry which was
	// acknowledged in the data centre, or one above the entries that retention has deleted there.
	least [2]map[string]store.Timestamp
	drops map[string]bool // that were taken note of
	// The numbers of acknowledged writes, of writes of unknown outcome, of keys that answers showed or did not show,
	// and of entries that retention deleted.
	acked, unknown, shown, absent, dropped int
}

func (a *ages) view(centre int, rs []*engine.Rebalancer) map[string]store.Timestamp {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, r := range rs {
		for _, d := range r.Retention().Status().Drops {
			if name := fmt.Sprint(i, d.Rule, d.Began); d.Error == "" && !d.Ended.IsZero() && !a.drops[name] {
				a.drops[name] = true
				a.drop(i, d)
			}
		}
	}
	v := map[string]store.Timestamp{}
	for k, ts := range a.least[centre] {
		v[k] = ts
	}
	return v
}

// ripens returns the time until the last put of a key is old enough for retention to delete it. The result is 0 if it
// already is.
func (a *ages) ripens(key string) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, w := range slices.Backward(a.by[key]) {
		if w.acked && !w.deletes && strings.HasPrefix(key, "w/") {
			return max(0, retentionKeep-time.Since(time.UnixMicro(int64(w.ts))))
		}
	}
	return 0
}

// drop records that retention has deleted the entries in d in a data centre. An entry that was acknowledged in any data
// centre before the deletion began is gone there, even if it arrives later.
func (a *ages) drop(centre int, d engine.Drop) {
	for key, all := range a.by {
		if key < string(d.From) || len(d.To) > 0 && key >= string(d.To) {
			continue
		}
		for _, w := range all {
			if !w.acked || !w.ended.Before(d.Began) || !d.PutBefore.IsZero() && int64(w.ts) > d.PutBefore.UnixMicro() {
				continue
			}
			if a.least[centre][key] <= w.ts {
				a.dropped++
				a.least[centre][key] = w.ts + 1
			}
		}
	}
}

// old reports whether the entry of a write is old enough for retention to have deleted the entry.
func old(w *write) bool {
	if strings.HasPrefix(w.key, "w/") {
		return time.Since(time.UnixMicro(int64(w.ts))) >= retentionKeep
	}
	t, err := time.Parse(timeInKey, w.key[2:])
	return err == nil && time.Since(t) >= retentionKeep
}

// read checks one key of an answer. before is, by key, the lowest timestamp that could be shown when the operation
// began. shown says whether the answer has the key, and value is the value that the answer shows.
func (a *ages) read(before map[string]store.Timestamp, key string, shown bool, value string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	least := before[key]
	if shown {
		a.shown++
		for _, w := range a.by[key] {
			switch {
			case w.value != value || w.deletes:
			case w.ts < least:
				return fmt.Errorf("key %q shows %q of timestamp %d, but below %d all is overwritten, deleted or dropped", key,
					value, w.ts, least)
			default:
				return nil
			}
		}
		return fmt.Errorf("key %q shows %q, which no client wrote", key, value)
	}
	a.absent++
	if least == 0 {
		return nil
	}
	for _, w := range a.by[key] {
		if w.ts >= least && w.deletes || w.ts >= least-1 && old(w) {
			return nil
		}
	}
	return fmt.Errorf("key %q is absent, but timestamp %d was acknowledged, and it is not old", key, least)
}

// RunRetention simulates rules of retention, which delete old entries, in two data centres. A process in each data
// centre applies the rules, while clients put, delete and read, ranges move, and the link is cut. The run checks that
// no entry is deleted before its time, that a deleted entry stays away from the data centre, wherever it was put, and
// that at the end all entries are gone. RunRetention must be called within a testing/synctest bubble.
func RunRetention(c Config) Report {
	g := newStage(c)
	a := &ages{by: map[string][]*write{}, drops: map[string]bool{}}
	a.least = [2]map[string]store.Timestamp{{}, {}}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if err := g.create(ctx, func(c *listing.Client) error { return c.CreateBucket(ctx, "b") }); err != nil {
		return Report{Err: err}
	}
	var rs []*engine.Rebalancer
	var rows store.Store = several{g.gated}
	switch {
	case c.Mistakes.NearPurge:
		rows = nearSighted{g.gated, c.Mistakes}
	case c.Mistakes.PurgeByCall:
		rows = several{recent{g.gated, g}}
	}
	for i := range 2 {
		client, err := g.client(rows, 3)
		if err != nil {
			return Report{Err: err}
		}
		r := engine.New(engine.Options{
			Store: rows, Buckets: client, Balance: &balancer.Options{}, Retention: retentionRules(),
			RetentionEvery: retentionEvery,
		})
		rs = append(rs, r)
		g.actors.Go(func() {
			r.Retention().Run(withActor(ctx, &actor{name: fmt.Sprintf("retention%d", i), centre: i}))
		})
	}
	for i := range c.Clients {
		x := &ageing{stage: g, a: a, rs: rs, r: rand.New(rand.NewPCG(c.Seed, uint64(100+i)))}
		x.actor = &actor{name: fmt.Sprintf("client%d", i), client: true, centre: i % 2}
		var err error
		if x.c, err = g.client(several{g.gated}, 1+i%3); err != nil {
			return Report{Err: err}
		}
		g.begin(ctx, x.actor, x.run)
	}
	g.begin(ctx, &actor{name: "mover", centre: int(c.Seed % 2)}, func(ctx context.Context) {
		g.moves(ctx, func(r *rand.Rand) []byte { return []byte([]string{"d/", "e", "w/1", "w/2"}[r.IntN(4)]) })
	})
	g.run(func() bool { return true })
	if !g.s.failed() {
		g.quiet()
		// Two more runs of each process, which read nothing from before the last cut.
		end := time.Now().Add(2*retentionKeep + 3*retentionEvery)
		g.s.run(func() bool { return time.Now().After(end) }, g.s.steps+100_000)
	}
	cancel()
	g.s.stop()
	g.actors.Wait()
	if !g.s.failed() {
		g.centres.heal()
		g.empty()
	}
	r := g.report()
	r.Acked, r.Unknown, r.Shown, r.Absent, r.Dropped = a.acked, a.unknown, a.shown, a.absent, a.dropped
	return r
}

// create makes a bucket by calling the function make, and keeps the bucket's id. The store has no faults meanwhile.
func (g *stage) create(ctx context.Context, make func(*listing.Client) error) error {
	g.faults.Enable(false)
	defer g.faults.Enable(true)
	maps := mapclientOf(g)
	c, err := listing.New(mapclient.With(g.centres, maps), listing.Options{Timestamps: &stageStamps{g}})
	if err != nil {
		return err
	}
	if err := make(c); err != nil {
		return err
	}
	info, err := door.Client(c).Owner(ctx, "b")
	g.bucket = info.ID
	return err
}

// empty checks, at the end of a run of RunRetention, that the bucket has no entry in any data centre. A remaining entry
// fails the run.
func (g *stage) empty() {
	for i, local := range g.centres.local {
		c, err := listing.New(mapclient.With(mixed{g.mem, local}, mapclientOf(g)), listing.Options{})
		if err != nil {
			g.s.fail("last listing: %v", err)
			return
		}
		for e, err := range c.Bucket("b").All(context.Background(), listing.Query{}) {
			g.s.fail("last listing: data centre %d still has %q: %v", i, e.Key, err)
			return
		}
	}
}

// ageing is a client that puts, deletes and reads entries which retention deletes when they are old.
type ageing struct {
	*stage
	a     *ages
	rs    []*engine.Rebalancer
	r     *rand.Rand
	actor *actor
	c     *listing.Client
	n     int
}

func (x *ageing) run(ctx context.Context) {
	b := x.c.Bucket("b")
	for range x.stage.c.Ops {
		if ctx.Err() != nil || x.s.failed() {
			return
		}
		time.Sleep(time.Duration(x.r.Int64N(int64(20 * time.Minute))))
		key := fmt.Sprintf("w/%d", x.r.IntN(x.stage.c.Keys))
		if x.r.IntN(2) == 0 {
			t := time.Now().Add(-time.Duration(x.r.Int64N(int64(retentionKeep + retentionKeep/4))))
			key = "d/" + t.UTC().Truncate(20*time.Minute).Format(timeInKey)
		}
		switch {
		case x.r.IntN(100) < x.stage.c.Writes:
			if x.r.IntN(2) == 0 { // while retention deletes what was there
				time.Sleep(x.a.ripens(key) + time.Duration(x.r.Int64N(int64(retentionEvery))))
			}
			x.change(ctx, b, key)
		case x.r.IntN(2) == 0:
			before := x.a.view(x.actor.centre, x.rs)
			e, err := b.Get(ctx, []byte(key))
			if err != nil && !errors.Is(err, listing.ErrNotFound) {
				x.tolerate("get", err)
				continue
			}
			x.check(x.a.read(before, key, err == nil, string(e.Value)))
		default:
			before, found := x.a.view(x.actor.centre, x.rs), map[string]string{}
			page, err := b.List(ctx, listing.Query{Limit: 1000})
			if err != nil || page.Next != "" {
				x.tolerate("list", err)
				continue
			}
			for _, item := range page.Items {
				found[string(item.Key)] = string(item.Value)
				x.check(x.a.read(before, string(item.Key), true, string(item.Value)))
			}
			for key := range before {
				if _, shown := found[key]; !shown {
					x.check(x.a.read(before, key, false, ""))
				}
			}
		}
	}
}

func (x *ageing) change(ctx context.Context, b *listing.Bucket, key string) {
	x.n++
	w := &write{key: key, value: fmt.Sprintf("%s.%d", x.actor.name, x.n), deletes: x.r.IntN(4) == 0,
		centre: x.actor.centre}
	x.a.mu.Lock()
	x.a.by[key] = append(x.a.by[key], w)
	x.a.mu.Unlock()
	var err error
	if ctx = withOp(ctx, op{write: w}); w.deletes {
		err = b.Delete(ctx, []byte(key))
	} else {
		err = b.Put(ctx, []byte(key), []byte(w.value))
	}
	x.a.mu.Lock()
	defer x.a.mu.Unlock()
	if err != nil {
		x.a.unknown++
		x.tolerate("change", err)
		return
	}
	x.a.acked++
	w.acked, w.ended = true, time.Now()
	least := x.a.least[x.actor.centre]
	least[key] = max(least[key], w.ts)
}

func (x *ageing) tolerate(what string, err error) {
	if err != nil && !excused(err) {
		x.s.fail("%s: %s: %v", x.actor.name, what, err)
	}
}

func (x *ageing) check(err error) {
	if err != nil {
		x.s.fail("%s: %v", x.actor.name, err)
	}
}
