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

	"github.com/evenkeel/evenkeel/internal/rebalance/move"
	"github.com/evenkeel/evenkeel/internal/rebalance/repair"
	"github.com/evenkeel/evenkeel/internal/test/faultstore"
	"github.com/evenkeel/evenkeel/internal/test/history"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/partmap/mapclient"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// Config of one run. All of it is given; see Random.
type Config struct {
	Seed uint64
	// Clients do Ops operations each, on Keys keys.
	Clients, Ops, Keys int
	// Movers work on the same goals, Rounds times.
	Movers, Rounds int
	// Writes is the share of writes among the operations, in percent.
	Writes int
	// Sparse clients do their operations slowly, spread over the moves, and do not
	// go on as long as there are moves.
	Sparse bool
	// Loose movers have goals of their own, round by round, and do not wait for
	// each other: while one sleeps the others begin the next moves.
	Loose bool
	// Kill is the probability that a mover dies at a failpoint; KillAt is the
	// number of the one failpoint of the run at which it surely does (0: none).
	Kill   float64
	KillAt int
	// Faults of the store; late writes land after up to LateCalls calls (0: 20).
	Faults    faultstore.Rates
	LateCalls int
	// Late is the probability that a client's put, or plain delete, is answered with a
	// timeout and lands long after that.
	Late float64
	// Deletes: one client tries to delete the bucket now and then, and succeeds if it
	// finds it empty; then the run ends.
	Deletes bool
	// LongKeys make maps that do not fit into their root; their nodes are collected
	// (network form only).
	LongKeys bool
	// Ahead: clients list with delimiters, a few rows at a time, and read ahead
	// wherever they can.
	Ahead bool
	// Net is the network form; nil: the embedded one.
	Net      *Net
	Mistakes Mistakes
	// Trace gets each step.
	Trace func(string)
}

// Random makes a config from a seed: few or many of everything.
func Random(seed uint64) Config {
	r := rand.New(rand.NewPCG(seed, 1))
	c := Config{Seed: seed, Clients: 1 + r.IntN(4), Ops: 15 + r.IntN(20), Keys: 3 + r.IntN(10), Movers: 1 + r.IntN(2), Rounds: 2 + r.IntN(2)}
	c.Writes = []int{25, 55, 80}[r.IntN(3)]
	if c.Sparse = r.IntN(4) == 0; c.Sparse {
		c.Ops = 3 + r.IntN(8)
	}
	c.Loose = r.IntN(3) == 0
	c.LateCalls = []int{20, 300}[r.IntN(2)]
	c.Kill = []float64{0, 0, 0.03, 0.15}[r.IntN(4)]
	if r.IntN(4) == 0 {
		c.Late = 0.2
	}
	if r.IntN(2) == 0 {
		c.Faults = faultstore.Rates{Refuse: 0.01, Lose: 0.03, Late: 0.05, Repeat: 0.05, Short: 0.2}
	}
	if r.IntN(8) == 0 {
		c.Deletes, c.Keys, c.Writes = true, 1+r.IntN(2), 80
	}
	if c.Ahead = rand.New(rand.NewPCG(seed, 7)).IntN(3) == 0; c.Ahead && !c.Deletes {
		c.Keys += 8 // names to go on from
	}
	return c
}

// RandomNet is Random for the network form.
func RandomNet(seed uint64) Config {
	c := Random(seed)
	r := rand.New(rand.NewPCG(seed, 6))
	c.Ops = 5 + r.IntN(15)
	c.Net = &Net{
		Lease: 300 * time.Millisecond, Drift: 0.004,
		Lag: []time.Duration{0, 200 * time.Millisecond, time.Second}[r.IntN(3)], Torn: 0.3, Cut: 0.05,
		Weather: []float64{0, 0.003, 0.01}[r.IntN(3)],
	}
	if r.IntN(3) == 0 {
		c.Net.Servers, c.Net.Apart = 1+2*r.IntN(2), time.Duration(r.IntN(30))*time.Millisecond
	}
	if c.LongKeys = r.IntN(4) == 0; c.LongKeys {
		c.Keys, c.Net.Stall = max(c.Keys, 8), 0.1
	}
	return c
}

// faulty reports whether errors are to be expected.
func (c *Config) faulty() bool { return c.Late > 0 || c.Faults != faultstore.Rates{} }

// Report says what a run did and what was wrong.
type Report struct {
	// Err joins all violations; nil: none.
	Err error
	// Steps of the scheduler; Swaps of the root; Kills of movers.
	Steps, Swaps, Kills int
	// Points is how many failpoints were reached.
	Points int
	// Acked and Unknown writes; keys Shown and Absent in answers; Pages.
	Acked, Unknown, Shown, Absent, Pages int
	// Phases is how many ranges were seen in each phase, over all roots.
	Phases map[partmap.Phase]int
	// Leases looked at while they were good; Deaths of clients; Collected map nodes.
	Leases, Deaths, Collected int
	// Deleted: the bucket is.
	Deleted bool
	// Cuts of the bucket at the end.
	Cuts []string
	// History is what clients did and were told, if nothing was wrong with it so far.
	History *history.History
}

// Register is what each key of a run's history is held to.
func (c *Config) Register() history.Register {
	if c.Net != nil && c.Net.Servers > 0 {
		return history.HighestWins
	}
	return history.LastWins
}

// world is everything of one run.
type world struct {
	c         Config
	s         *scheduler
	h         *proof
	watch     *watch
	mem       *memstore.Store
	replicas  *replicas
	faults    *faultstore.Faults
	gated     *gated
	maps      *mapclient.Client // of the embedded form
	stamps    *stamps
	processes []*process
	// serverClocks are those that tell the time, since began.
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

// Run runs a simulation. It has to be called within a testing/synctest bubble.
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
		w.last()
	}
	return w.report()
}

func newWorld(c Config) *world {
	w := &world{c: c, mem: memstore.New(), lateSweeps: map[store.PartitionID]bool{}, ids: rand.New(rand.NewPCG(c.Seed, 2))}
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
	w.replicas = &replicas{Store: w.mem, r: rand.New(rand.NewPCG(c.Seed, 8)), past: map[string][]state{}}
	w.watch = &watch{
		Store: w.replicas, s: w.s, h: w.h, off: c.Mistakes.Unwatched, network: c.Net != nil, keys: w.keys,
		touched: map[store.PartitionID]bool{}, markers: map[marker]uint64{}, looked: map[store.PartitionID]partmap.Phase{},
		named: map[store.PartitionID]bool{}, phases: map[partmap.Phase]int{}, stages: map[uint64]*epoch{},
	}
	faulty, faults := faultstore.New(w.watch, faultstore.Options{Seed: c.Seed, Rates: c.Faults, MaxLate: c.LateCalls})
	w.faults = faults
	w.gated = &gated{s: w.s, inner: faulty, watch: w.watch, replicas: w.replicas, r: rand.New(rand.NewPCG(c.Seed, 4))}
	if c.Net != nil {
		// Some hundred steps make a lease.
		w.s.nap, w.s.longest = 0.1, 30*time.Millisecond
		w.replicas.lag, w.replicas.torn = c.Net.Lag, c.Net.Torn
		w.gated.cut = c.Net.Cut
	}
	w.s.always = w.watch.always
	weather := rand.New(rand.NewPCG(c.Seed, 9))
	w.s.weather = func() { w.weather(weather) }
	w.stamps = &stamps{s: w.s, h: w.h, last: &atomic.Int64{}}
	w.maps = mapclient.NewEmbedded(w.gated, mapclient.Options{NewID: w.newID})
	return w
}

// padding makes keys long.
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

// setUp creates the bucket, with nobody else around and nothing going wrong.
func (w *world) setUp() error {
	w.faults.Enable(false)
	defer w.faults.Enable(true)
	quiet := mapclient.NewEmbedded(w.mem, mapclient.Options{NewID: w.newID})
	c, err := listing.New(w.mem, quiet, listing.Options{Timestamps: w.stamps})
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

// find returns the bucket that is new and empty: the other is the list of
// buckets.
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
	return store.BucketID{}, errors.New("the bucket is not there")
}

// clientLives runs a client; in the network form another one when it died.
func (w *world) clientLives(ctx context.Context, i int, moving func() bool) {
	for life := 1; ; life++ {
		cl, err := w.client(i, life)
		if err != nil {
			w.s.fail("client: %v", err)
			return
		}
		ctx, cancel := context.WithCancel(withActor(ctx, cl.a))
		var died atomic.Bool
		if cl.p != nil && life < 10 {
			cl.p.die = sync.OnceFunc(func() {
				died.Store(true)
				w.deaths.Add(1)
				w.s.kill(cl.a)
				cancel()
			})
		}
		cl.run(ctx, w.c.Ops, moving)
		cancel()
		if cl.p != nil {
			cl.p.end()
		}
		if w.s.failed() || w.h.over() || !died.Load() {
			return
		}
	}
}

func (w *world) client(i, life int) (*client, error) {
	a := &actor{name: fmt.Sprintf("client%d", i), client: true, lazy: w.c.Sparse}
	attempts := 3
	if w.c.Late > 0 {
		attempts = 1 // a put that is tried again is not late
	}
	seed := uint64(1000*life + i)
	c := &client{
		s: w.s, h: w.h, a: a, r: rand.New(rand.NewPCG(w.c.Seed, 100+seed)),
		keys: w.keys, writes: w.c.Writes, faults: w.c.faulty(), id: w.bucket, watch: w.watch, m: w.c.Mistakes,
		deleter: w.c.Deletes && i == 0, closes: w.c.Deletes,
	}
	maps, stamps := w.maps, *w.stamps
	if w.c.Net != nil {
		a.name = fmt.Sprintf("%s.%d", a.name, life)
		var err error
		if c.p, err = w.newProcess(a, 10_000+seed); err != nil {
			return nil, err
		}
		maps, c.p.index = c.p.maps, store.Timestamp(16*i+life)
		if w.c.Net.Servers > 0 {
			stamps.own = c.p
		}
	}
	var err error
	options := listing.Options{Timestamps: &stamps, WriteAttempts: attempts}
	if w.c.Ahead {
		c.folds = rand.New(rand.NewPCG(w.c.Seed, 500+seed))
		options.RowsPerRead, options.ReadAhead, options.ReadAheadAfter = 1, 4, 1
	}
	m := w.c.Mistakes
	m.EmptyAtHome = m.EmptyAtHome && c.deleter
	own := &clientStore{Store: w.gated, m: m, world: w, r: rand.New(rand.NewPCG(w.c.Seed, 300+seed))}
	var s store.Store = own
	if m.DeleteThroughAtOnce {
		s = hasty{own}
	}
	c.c, err = listing.New(s, maps, options)
	if err != nil {
		return nil, err
	}
	c.b = c.c.Bucket("b")
	return c, nil
}

// rounds gives the movers goals until there were enough.
func (w *world) rounds(ctx context.Context) {
	r := rand.New(rand.NewPCG(w.c.Seed, 5))
	var movers []*mover
	for i := range w.c.Movers {
		movers = append(movers, &mover{w: w, name: fmt.Sprintf("mover%d", i), seed: uint64(20_000 + 100*i), r: rand.New(rand.NewPCG(w.c.Seed, 200+uint64(i)))})
	}
	var wg sync.WaitGroup
	if w.c.Loose {
		for _, m := range movers {
			wg.Go(func() {
				for i := 0; i < w.c.Rounds && !w.h.over(); i++ {
					goals, _ := w.goals(m.r)
					m.run(ctx, goals)
				}
			})
		}
		wg.Wait()
		if ctx.Err() == nil && !w.s.failed() {
			w.settled(nil)
		}
		return
	}
	for range w.c.Rounds {
		goals, want := w.goals(r)
		for _, m := range movers {
			wg.Go(func() { m.run(ctx, goals) })
		}
		wg.Wait()
		if ctx.Err() != nil || w.s.failed() || w.h.over() {
			return
		}
		w.settled(want)
	}
}

// goals draws goals from the layout of the moment, and the cuts to which they
// lead.
func (w *world) goals(r *rand.Rand) (goals []move.Goal, cuts []string) {
	w.watch.mu.Lock()
	ranges := slices.Clone(w.watch.ranges)
	w.watch.mu.Unlock()
	want := map[string]bool{}
	for _, rg := range ranges[1:] {
		want[string(rg.Start)] = true
	}
	for i := 0; i < len(ranges); {
		n := min(1+r.IntN(3), len(ranges)-i)
		span := ranges[i : i+n]
		i += n
		if r.IntN(3) == 0 && len(goals) > 0 {
			continue
		}
		g := move.Goal{Start: span[0].Start, End: span[n-1].End, Stay: -1}
		for _, rg := range span[1:] {
			delete(want, string(rg.Start))
		}
		for _, k := range w.keys {
			if g.Start == nil || k > string(g.Start) {
				if (len(g.End) == 0 || k < string(g.End)) && r.IntN(4) == 0 && len(g.Cuts) < 3 {
					g.Cuts = append(g.Cuts, []byte(k))
					want[k] = true
				}
			}
		}
		if n == 1 && len(g.Cuts) == 0 {
			g.Leave = span[0].Partition
		} else if n == 1 {
			g.Stay = r.IntN(len(g.Cuts)+2) - 1
		}
		goals = append(goals, g)
	}
	for k := range want {
		cuts = append(cuts, k)
	}
	slices.Sort(cuts)
	return goals, cuts
}

// settled holds the map and the store to what a round of moves leads to (I10):
// the layout that was wanted, and nothing left behind.
func (w *world) settled(want []string) {
	if w.c.Mistakes.Unwatched || w.h.over() {
		return
	}
	w.watch.mu.Lock()
	defer w.watch.mu.Unlock()
	homes := map[store.PartitionID]bool{}
	var cuts []string
	for i, rg := range w.watch.ranges {
		homes[rg.Partition] = true
		if rg.Phase != partmap.Settled || rg.SweepPending {
			w.s.fail("I10: the range from %q is %s (sweep pending: %v) when all moves are done", rg.Start, rg.Phase, rg.SweepPending)
		}
		if i > 0 {
			cuts = append(cuts, string(rg.Start))
		}
	}
	if !w.c.Loose && !slices.Equal(cuts, want) {
		w.s.fail("I10: the cuts are %q instead of %q", cuts, want)
	}
	ctx := context.Background()
	parts, err := w.mem.Partitions(ctx, store.Partition{}, 10_000)
	if err != nil {
		w.s.fail("I10: %v", err)
	}
	for _, p := range parts {
		if p.Bucket == w.bucket && !homes[p.ID] {
			w.s.fail("I10: partition %s has rows, but no range is there", name(p.ID))
		}
	}
	for _, rg := range w.watch.ranges {
		page, err := w.mem.Slice(ctx, store.Partition{Bucket: w.bucket, ID: rg.Partition}, store.Bounds{}, store.SliceOptions{Limit: 10_000})
		if err != nil {
			w.s.fail("I10: %v", err)
		}
		for _, row := range page.Rows {
			if !slices.ContainsFunc(w.watch.ranges, func(o partmap.Range) bool { return o.Partition == rg.Partition && o.Contains(row.Key) }) {
				w.s.fail("I10: %s has the row %q, which is outside of its ranges", name(rg.Partition), row.Key)
			}
			if store.IsMarker(row.Value) && !w.c.faulty() && w.c.Net == nil {
				w.s.fail("I10: %s has a marker of %q left", name(rg.Partition), row.Key)
			}
		}
	}
}

// last reads everything once more, when all that could come late has come.
func (w *world) last() {
	w.faults.Enable(false)
	if err := w.faults.Flush(context.Background()); err != nil {
		w.s.fail("flush: %v", err)
	}
	if w.h.over() {
		if err := w.h.gone(); err != nil {
			w.s.fail("last: %v", err)
		}
		return
	}
	if w.watch.closing() {
		return // nobody has found it old
	}
	c, err := listing.New(w.mem, mapclient.NewEmbedded(w.mem, mapclient.Options{}), listing.Options{})
	if err != nil {
		w.s.fail("last: %v", err)
		return
	}
	before, found := w.h.view(), map[string]string{}
	for e, err := range c.Bucket("b").All(context.Background(), listing.Query{}) {
		if err != nil {
			w.s.fail("last listing: %v", err)
		}
		found[string(e.Key)] = string(e.Value)
	}
	for _, k := range w.keys {
		v, shown := found[k]
		if err := w.h.read(before, k, shown, v); err != nil {
			w.s.fail("last listing: %v", err)
		}
	}
	w.verified(c)
}

// verified checks the whole store as operators do. A write that comes late, or of a
// process that stood still past its lease, may leave a marker after its range was
// swept; that has to mend.
func (w *world) verified(c *listing.Client) {
	if w.c.Mistakes != (Mistakes{}) {
		return // those are for the invariants to find
	}
	late := w.c.faulty() || w.c.Net != nil
	left := false
	check := func(mend bool) {
		_, err := repair.New(w.mem, c, repair.Options{Repair: mend, Report: func(x repair.Finding) {
			switch {
			case x.Kind == repair.LeftMarker && mend:
				left = true
			case x.Severity != repair.Info:
				w.s.fail("verify: %s", x)
			}
		}}).All(context.Background())
		if err != nil {
			w.s.fail("verify: %v", err)
		}
	}
	check(late)
	if left {
		check(false)
	}
}

// strikes reports whether a mover dies at this failpoint.
func (w *world) strikes(m *mover, point string) bool {
	n := w.points.Add(1)
	if w.c.KillAt > 0 {
		return n == int64(w.c.KillAt)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return w.c.Kill > 0 && m.lives < 30 && m.r.Float64() < w.c.Kill
}

func (w *world) report() Report {
	w.watch.mu.Lock()
	defer w.watch.mu.Unlock()
	r := Report{
		Err: errors.Join(w.s.failures...), Steps: w.s.steps, Swaps: w.watch.swaps, Kills: int(w.kills.Load()), Points: int(w.points.Load()),
		Acked: w.h.acked, Unknown: w.h.unknown, Shown: w.h.shown, Absent: w.h.absent, Pages: w.h.pages, Phases: w.watch.phases,
		Leases: w.watch.leases, Deaths: int(w.deaths.Load()), Collected: int(w.collected.Load()), Deleted: w.h.over(),
	}
	if r.Err == nil {
		r.History = &w.h.told
	}
	for _, rg := range w.watch.ranges[min(1, len(w.watch.ranges)):] {
		r.Cuts = append(r.Cuts, string(rg.Start))
	}
	return r
}
