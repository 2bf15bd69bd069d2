package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/rebalance/executor"
	"github.com/evenkeel/evenkeel/internal/rebalance/move"
	"github.com/evenkeel/evenkeel/internal/test/faultstore"
	"github.com/evenkeel/evenkeel/internal/timestamps"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// stage is the simulated environment, with two data centres, for code that uses listing clients: retention, and the
// cleaning of objects. Hours pass in a run, and a cut of the link takes up to an hour. All processes share a map
// client, so leases are not simulated, but ranges do move between partitions.
type stage struct {
	c       Config
	s       *scheduler
	mem     memstore.Store
	centres *centres
	faults  *faultstore.Faults
	gated   *gated
	maps    *mapclient.Client
	stamps  *timestamps.Source
	bucket  store.BucketID
	drawn   func(*write) // gets the writes of clients with their timestamps; nil: nobody asks

	actors sync.WaitGroup
	left   atomic.Int64 // actors that must end by themselves
	swaps  atomic.Int64
	ids    *rand.Rand // guarded by idMu
	idMu   sync.Mutex
}

// RandomStage draws the configuration of a run of RunRetention or RunObjects from a seed.
func RandomStage(seed uint64) Config {
	r := rand.New(rand.NewPCG(seed, 21))
	c := Config{
		Seed: seed, Clients: 2 + r.IntN(3), Ops: 20 + r.IntN(40), Keys: 1 + r.IntN(4), Rounds: r.IntN(4),
		Writes: []int{40, 60, 80}[r.IntN(3)], LateCalls: []int{20, 200}[r.IntN(2)],
		Centres: &Centres{
			Delay: []time.Duration{time.Second, time.Minute, 20 * time.Minute}[r.IntN(3)],
			Lose:  []float64{0, 0.05, 0.3}[r.IntN(3)],
			Cut:   []float64{0, 0.0003, 0.001}[r.IntN(3)], Outage: time.Hour,
		},
	}
	if r.IntN(2) == 0 {
		c.Faults = faultstore.Rates{Refuse: 0.01, Lose: 0.02, Late: 0.03, Repeat: 0.05, Short: 0.2}
	}
	return c
}

// stageNap is the longest step by which virtual time advances at once.
const stageNap = 2 * time.Minute

func newStage(c Config) *stage {
	g := &stage{c: c, mem: memstore.New(), stamps: timestamps.New(time.Now), ids: rand.New(rand.NewPCG(c.Seed, 2))}
	g.s = &scheduler{
		r: rand.New(rand.NewPCG(c.Seed, 3)), trace: c.Trace, nap: 0.1, longest: stageNap, rest: 10 * time.Second,
		always: func() {},
	}
	g.centres = newCentres(g.mem, c)
	faulty, faults := faultstore.New(g.centres, faultstore.Options{Seed: c.Seed, Rates: c.Faults, MaxLate: c.LateCalls})
	g.faults = faults
	g.gated = &gated{s: g.s, inner: faulty, centres: g.centres, r: rand.New(rand.NewPCG(c.Seed, 4))}
	g.s.weather = func() {
		g.centres.weather(func(format string, args ...any) {
			if c.Trace != nil {
				c.Trace(fmt.Sprintf(format, args...))
			}
		})
	}
	g.maps = mapclient.NewEmbedded(g.gated, mapclient.Options{NewID: g.newID})
	return g
}

func (g *stage) newID() uuid.UUID {
	g.idMu.Lock()
	defer g.idMu.Unlock()
	var id uuid.UUID
	for i := range id {
		id[i] = byte(g.ids.Uint32())
	}
	return id
}

// client returns a listing client for the actors of one process. attempts is the number of attempts of each write.
func (g *stage) client(rows store.Store, attempts int) (*listing.Client, error) {
	return listing.New(mapclient.With(rows, g.maps), listing.Options{Timestamps: &stageStamps{g}, WriteAttempts: attempts,
		MaxParallel: 1})
}

// recent is a store that makes the mistake PurgeByCall: deletions have the timestamp of the call.
type recent struct {
	store.Store
	g *stage
}

func (x recent) Put(ctx context.Context, p store.Partition, rows ...store.Row) error {
	rows = slices.Clone(rows)
	for i := range rows {
		rows[i].Timestamp = x.stamp(ctx, p, rows[i].Timestamp)
	}
	return x.Store.Put(ctx, p, rows...)
}

func (x recent) Delete(ctx context.Context, p store.Partition, key []byte, ts store.Timestamp) error {
	return x.Store.Delete(ctx, p, key, x.stamp(ctx, p, ts))
}

func (x recent) Remove(ctx context.Context, p store.Partition, b store.Bounds, ts store.Timestamp) error {
	return x.Store.Remove(ctx, p, b, x.stamp(ctx, p, ts))
}

func (x recent) stamp(ctx context.Context, p store.Partition, ts store.Timestamp) store.Timestamp {
	if now, err := x.g.stamps.Next(ctx, 1); err == nil && p.Bucket == x.g.bucket {
		return now
	}
	return ts
}

// stageStamps draws timestamps of the common time. A client's call waits for its turn before the draw.
type stageStamps struct{ *stage }

func (x *stageStamps) Next(ctx context.Context, n int) (store.Timestamp, error) {
	if actorOf(ctx).client && !x.s.gate(ctx, "draw a timestamp") {
		return 0, store.Errorf(store.Unavailable, "draw: %w", errStopped)
	}
	ts, err := x.stamps.Next(ctx, n)
	if w := opOf(ctx).write; w != nil && err == nil && !w.aged {
		if w.ts = ts; x.drawn != nil {
			x.drawn(w)
		}
	}
	return ts, err
}

// Passed returns nil at once, as timestamps of the common time have always passed.
func (x *stageStamps) Passed(context.Context, store.Timestamp) error { return nil }

// Seen does nothing, as all timestamps come from one source.
func (x *stageStamps) Seen(store.Timestamp) {}

// begin starts the function f as the actor a. The run waits until f has ended.
func (g *stage) begin(ctx context.Context, a *actor, f func(ctx context.Context)) {
	g.left.Add(1)
	g.actors.Go(func() {
		defer g.left.Add(-1)
		f(withActor(ctx, a))
	})
}

// moves moves ranges of the bucket, Config.Rounds times. Some ranges are cut at a key that the function key returns,
// and others are merged, or only moved to another partition.
func (g *stage) moves(ctx context.Context, key func(r *rand.Rand) []byte) {
	r := rand.New(rand.NewPCG(g.c.Seed, 5))
	rows := several{g.gated}
	if g.c.Mistakes.NoNotes {
		rows = several{noteless{g.gated}}
	}
	for range g.c.Rounds {
		root, err := g.maps.Load(ctx, g.bucket)
		if err != nil {
			continue
		}
		var ranges []partmap.Range
		for rg, err := range g.maps.Ranges(ctx, root, nil) {
			if err != nil {
				return
			}
			ranges = append(ranges, rg)
		}
		at := r.IntN(len(ranges))
		to := min(at+1+r.IntN(2), len(ranges))
		goal := move.Goal{Start: ranges[at].Start, End: ranges[to-1].End, Stay: -1}
		if cut := key(r); string(cut) > string(goal.Start) && (len(goal.End) == 0 || string(cut) < string(goal.End)) {
			goal.Cuts = [][]byte{cut}
		} else if to == at+1 {
			goal.Leave = ranges[at].Partition
		}
		x := executor.New(rows, g.maps, g.bucket, executor.Options{
			PageRows: 1 + r.IntN(8), BatchRows: 1 + r.IntN(4), NewID: g.newID, Now: time.Now, CollectAfter: time.Hour,
		})
		x.Add(goal)
		if err := x.Run(ctx); err != nil && ctx.Err() == nil && !errors.Is(err, errStopped) {
			g.s.fail("I11: the mover stopped with an error: %v", err)
		}
		g.swaps.Add(1)
		time.Sleep(time.Duration(r.Int64N(int64(30 * time.Minute))))
	}
}

// run schedules until all actors that the method begin has started have ended, and the function done returns true.
func (g *stage) run(done func() bool) {
	g.s.run(func() bool { return g.left.Load() == 0 && done() }, 200_000)
}

// mixed is a store with the rows of one store, and the registers and map nodes of another one.
type mixed struct {
	store.Store
	rows store.Rows
}

func (x mixed) Get(ctx context.Context, p store.Partition, key []byte) (store.Row, bool, error) {
	return x.rows.Get(ctx, p, key)
}

func (x mixed) Slice(
	ctx context.Context, p store.Partition, b store.Bounds, o store.SliceOptions,
) (store.Page, error) {
	return x.rows.Slice(ctx, p, b, o)
}

// mapclientOf returns a map client whose calls are not scheduled, for checks outside of the simulation.
func mapclientOf(g *stage) *mapclient.Client {
	return mapclient.NewEmbedded(g.centres, mapclient.Options{NewID: g.newID})
}

// quiet ends cuts of the link and faults, and delivers all writes to the other data centre.
func (g *stage) quiet() {
	g.reach()
	g.centres.mu.Lock()
	g.centres.o.Lose = 0
	g.centres.mu.Unlock()
	g.centres.heal()
}

// reach ends cuts of the link and faults. Writes that are on their way to the other data centre, or lost, stay so.
func (g *stage) reach() {
	g.faults.Enable(false)
	if err := g.faults.Flush(context.Background()); err != nil {
		g.s.fail("flush: %v", err)
	}
	g.centres.mu.Lock()
	defer g.centres.mu.Unlock()
	g.centres.o.Cut, g.centres.until = 0, time.Now()
}

// excused reports whether faults of the store, or a cut of the link, explain the error err.
func excused(err error) bool {
	k := store.KindOf(err)
	return k == store.Timeout || k == store.Unavailable || errors.Is(err, errStopped)
}

func (g *stage) report() Report {
	r := Report{Err: errors.Join(g.s.failures...), Steps: g.s.steps, Swaps: int(g.swaps.Load())}
	r.Outages, r.Later, r.Refused = g.centres.cuts, g.centres.late, g.centres.refused
	return r
}
