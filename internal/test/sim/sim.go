package sim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/test/faultstore"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// world is the state of one run: the store with all its wrappers, the clients, the movers, and the record of writes.
type world struct {
	c         Config
	s         *scheduler
	h         *proof
	watch     *watch
	mem       memstore.Store
	centres   *centres // nil: there is one data centre
	replicas  *replicas
	faults    *faultstore.Faults
	gated     *gated
	maps      *mapclient.Client // of the embedded form
	stamps    *stamps
	processes []*process
	// serverClocks are the clocks of the servers from which the common time is computed. They started at the time
	// began.
	serverClocks []serverClock
	began        time.Time
	bucket       store.BucketID
	keys         []string

	actors     sync.WaitGroup
	lateSweeps map[store.PartitionID]bool
	kills      atomic.Int64
	deaths     atomic.Int64
	collected  atomic.Int64
	points     atomic.Int64

	idMu sync.Mutex
	ids  *rand.Rand
}

// Run runs the simulation that c configures, and returns the violations and counts. Run must be called within a
// testing/synctest bubble.
func Run(c Config) Report {
	w := newWorld(c)
	if err := w.setUp(); err != nil {
		return Report{Err: err}
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var left atomic.Int64
	var moved atomic.Bool
	begin := func(f func()) {
		left.Add(1)
		w.actors.Go(func() {
			defer left.Add(-1)
			f()
		})
	}
	for i := range c.Clients {
		begin(func() { w.clientLives(ctx, i, func() bool { return !c.Sparse && !moved.Load() }) })
	}
	if c.Net != nil && c.LongKeys {
		m := &mover{w: w, name: "collector", seed: 7000}
		begin(func() { m.collect(ctx, func() bool { return !moved.Load() }) })
	}
	begin(func() {
		defer moved.Store(true)
		w.rounds(ctx)
	})
	w.s.run(func() bool { return left.Load() == 0 }, 200_000)
	cancel()
	w.s.stop()
	w.actors.Wait()
	if !w.s.failed() {
		w.lastListing()
	}
	return w.report()
}

func newWorld(c Config) *world {
	w := &world{
		c: c, mem: memstore.New(), lateSweeps: map[store.PartitionID]bool{}, ids: rand.New(rand.NewPCG(c.Seed, 2)),
	}
	for i := range c.Keys {
		key := fmt.Sprintf("k%02d", i)
		if c.LongKeys {
			key += padding
		}
		w.keys = append(w.keys, key)
	}
	if n := c.Net; n != nil {
		w.began = time.Now()
		r := rand.New(rand.NewPCG(c.Seed, 12))
		for range n.Servers {
			w.serverClocks = append(w.serverClocks, serverClock{
				offset: time.Duration(r.Int64N(int64(n.Apart) + 1)), rate: 90e-6 * (2*r.Float64() - 1),
			})
		}
	}
	w.h = newProof(w.keys)
	w.s = &scheduler{r: rand.New(rand.NewPCG(c.Seed, 3)), trace: c.Trace, nap: 1.0 / 30, longest: 20 * time.Millisecond}
	var rows store.Store = w.mem
	if c.Centres != nil {
		w.centres = newCentres(w.mem, c)
		rows, w.h.certain = w.centres, func() bool { return !w.centres.everCut() }
	}
	w.replicas = &replicas{Store: rows, r: rand.New(rand.NewPCG(c.Seed, 8)), past: map[string][]state{}}
	w.watch = &watch{
		Store: w.replicas, s: w.s, h: w.h, off: c.Mistakes.Unwatched, network: c.Net != nil, keys: w.keys,
		touched: map[store.PartitionID]bool{}, markers: map[marker]uint64{},
		looked: map[store.PartitionID]partmap.Phase{},
		named:  map[store.PartitionID]bool{}, phases: map[partmap.Phase]int{}, stages: map[uint64]*epoch{},
	}
	faulty, faults := faultstore.New(w.watch, faultstore.Options{Seed: c.Seed, Rates: c.Faults, MaxLate: c.LateCalls})
	w.faults = faults
	w.gated = &gated{
		s: w.s, inner: faulty, watch: w.watch, replicas: w.replicas, centres: w.centres,
		r: rand.New(rand.NewPCG(c.Seed, 4)),
	}
	if c.Net != nil {
		// Some hundred steps make a lease.
		w.s.nap, w.s.longest = 0.1, 30*time.Millisecond
		w.replicas.lag, w.replicas.torn = c.Net.Lag, c.Net.Torn
		w.gated.cut = c.Net.Cut
	}
	w.s.pace = c.Pace
	w.s.always = w.watch.always
	weather := rand.New(rand.NewPCG(c.Seed, 9))
	w.s.weather = func() {
		w.weather(weather)
		if w.centres != nil {
			w.centres.weather(w.trace)
		}
	}
	w.stamps = &stamps{s: w.s, h: w.h, last: &atomic.Int64{}}
	w.maps = mapclient.NewEmbedded(w.gated, mapclient.Options{NewID: w.newID})
	return w
}

// padding makes keys so long that a map does not fit into its root.
var padding = strings.Repeat("x", 600)

func (w *world) newID() uuid.UUID {
	w.idMu.Lock()
	defer w.idMu.Unlock()
	var id uuid.UUID
	for i := range id {
		id[i] = byte(w.ids.Uint32())
	}
	return id
}

// setUp creates the bucket, before any client or mover starts, and without faults.
func (w *world) setUp() error {
	w.faults.Enable(false)
	defer w.faults.Enable(true)
	quiet := mapclient.NewEmbedded(w.mem, mapclient.Options{NewID: w.newID})
	c, err := listing.New(mapclient.With(w.replicas.Store, quiet), listing.Options{Timestamps: w.stamps})
	if err != nil {
		return err
	}
	ctx := context.Background()
	if w.c.Net != nil {
		if err := mapclient.InitClocks(ctx, w.mem, 1); err != nil {
			return err
		}
	}
	before, err := w.mem.Scan(ctx, store.Roots, nil, 10)
	if err != nil {
		return err
	}
	if err := c.CreateBucket(ctx, "b"); err != nil {
		return err
	}
	id, err := w.find(ctx, before)
	if err != nil {
		return err
	}
	w.bucket, w.watch.bucket = id, id
	w.watch.adopt()
	return nil
}

// find returns the id of the new bucket, which has no rows. Another new bucket, with rows, is the list of buckets.
// before has the buckets before the creation.
func (w *world) find(ctx context.Context, before [][]byte) (store.BucketID, error) {
	after, err := w.mem.Scan(ctx, store.Roots, nil, 10)
	if err != nil {
		return store.BucketID{}, err
	}
	parts, err := w.mem.Partitions(ctx, store.Partition{}, 100)
	if err != nil {
		return store.BucketID{}, err
	}
	for _, key := range after {
		id := store.BucketID(key)
		if !slices.ContainsFunc(parts, func(p store.Partition) bool { return p.Bucket == id }) &&
			!slices.ContainsFunc(before, func(k []byte) bool { return bytes.Equal(k, key) }) {
			return id, nil
		}
	}
	return store.BucketID{}, errors.New("the created bucket has no root")
}

func (w *world) report() Report {
	w.watch.mu.Lock()
	defer w.watch.mu.Unlock()
	r := Report{
		Err: errors.Join(w.s.failures...), Steps: w.s.steps, Swaps: w.watch.swaps, Kills: int(w.kills.Load()),
		Points: int(w.points.Load()),
		Acked:  w.h.acked, Unknown: w.h.unknown, Shown: w.h.shown, Absent: w.h.absent, Pages: w.h.pages,
		Phases: w.watch.phases,
		Leases: w.watch.leases, Deaths: int(w.deaths.Load()), Collected: int(w.collected.Load()), Deleted: w.h.over(),
	}
	if w.centres != nil {
		r.Outages, r.Later, r.Refused = w.centres.cuts, w.centres.late, w.centres.refused
	}
	if r.Err == nil {
		r.History = &w.h.calls
	}
	for _, rg := range w.watch.ranges[min(1, len(w.watch.ranges)):] {
		r.Cuts = append(r.Cuts, string(rg.Start))
	}
	return r
}
