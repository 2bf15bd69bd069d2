package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/evenkeel/evenkeel/internal/commontime"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// Net configures the network form of a simulation, in which each client and each mover is a process with its own clocks
// and map client, and in which leases hold for a time.
type Net struct {
	Lease time.Duration
	// Lag is the longest time for which reads at level Local may return an older record. A root is then read torn,
	// which means with a newer version beside older content, with the probability Torn.
	Lag  time.Duration
	Torn float64
	// Cut is the probability that a data centre does not answer an acknowledgement of a register.
	Cut float64
	// Drift is the largest relative error of the speed of a process's clocks.
	Drift float64
	// Weather is the probability of a disturbance at each step: a process is paused, its machine is suspended, its wall
	// clock is set, or the process dies.
	Weather float64
	// Stall is the probability that a process is paused after it has written a map node, and before it swaps the root
	// that names the node.
	Stall float64
	// Servers is the number of servers from whose clocks the common time of timestamps is computed. The clocks differ
	// by at most Apart, and the clocks of processes drift within the bound of the common time. If Servers is 0, all
	// timestamps come from one source.
	Servers int
	Apart   time.Duration
}

// process is one machine: its clocks, its map client and its disturbances. Its wall clock may be set to any time, as
// neither leases nor timestamps may depend on the wall clock.
type process struct {
	w       *world
	a       *actor
	m       Mistakes
	maps    *mapclient.Client
	started time.Time
	rate    float64
	way     time.Duration   // to a server and back at most
	index   store.Timestamp // no two clients have the same
	stepped bool            // disturbed by steps of its wall clock, else by suspensions
	die     func()
	last    store.Timestamp // of the mistake OwnClock; guarded by mu

	mu      sync.Mutex
	off     time.Duration // of the wall clock, by steps
	slept   time.Duration // the machine was suspended
	asleep  []span        // the same, not yet over
	frozen  int
	at      [2]time.Duration // while frozen
	fetched map[string]store.Record
	pretend map[string]store.Record
	before  uint64 // the clock when a root's swap began
}

type span struct{ from, to time.Time }

// newProcess starts a process for the actor a. Equal seeds give equal processes.
func (w *world) newProcess(a *actor, seed uint64) (*process, error) {
	r := rand.New(rand.NewPCG(w.c.Seed, seed))
	n := w.c.Net
	p := &process{
		w: w, a: a, m: w.c.Mistakes, started: time.Now(), stepped: r.IntN(2) == 0, rate: 1 + n.Drift*(2*r.Float64()-1),
		fetched: map[string]store.Record{}, pretend: map[string]store.Record{},
	}
	wire, wired := &wire{w.gated, p}, mapclient.Store(nil)
	if wired = wire; n.Servers > 0 {
		const most = 90e-6 // and as much of the servers
		p.rate = 1 + most*(2*r.Float64()-1)
		p.off = time.Duration(r.Int64N(int64(2*time.Second))) - time.Second
		p.way = time.Duration(r.Int64N(int64(3 * time.Millisecond)))
		wired = &timedWire{wire}
	}
	lease := n.Lease
	if w.c.Mistakes.ShortLease && !a.client {
		lease = mapclient.MinLease
	}
	maps, err := mapclient.NewNetwork(wired, mapclient.Options{
		Lease: lease, Clocks: 1, Now: p.now, Monotonic: p.monotonic, NewID: w.newID,
		Jitter: func() float64 {
			p.mu.Lock()
			defer p.mu.Unlock()
			return r.Float64()
		},
	})
	if err != nil {
		return nil, err
	}
	p.maps = maps
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	at, _ := slices.BinarySearchFunc(w.processes, a.name,
		func(p *process, name string) int { return strings.Compare(p.a.name, name) })
	w.processes = slices.Insert(w.processes, at, p)
	return p, nil
}

// end closes the map client of the process in the background, after the calls of the process have ended.
func (p *process) end() {
	p.w.s.mu.Lock()
	p.a.gone = true
	p.w.s.mu.Unlock()
	p.w.actors.Go(p.maps.Close)
}

// elapsed returns the time since the process started, by the monotonic clock and by the wall clock of the process.
func (p *process) elapsed() (mono, wall time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.frozen > 0 {
		return p.at[0], p.at[1]
	}
	real := time.Since(p.started)
	mono = real
	for i := 0; i < len(p.asleep); {
		s, now := p.asleep[i], p.started.Add(real)
		if now.Before(s.to) {
			mono -= now.Sub(s.from)
			i++
			continue
		}
		p.slept += s.to.Sub(s.from)
		p.asleep = slices.Delete(p.asleep, i, i+1)
	}
	mono -= p.slept
	mono, wall = time.Duration(float64(mono)*p.rate), time.Duration(float64(real)*p.rate)+p.off
	if p.m.LeaseByMonotonic && p.a.client {
		wall = mono
	}
	if p.m.WaitByFirstClock && !p.a.client {
		mono, wall = max(mono, wall), max(mono, wall)
	}
	return mono, wall
}

func (p *process) monotonic() time.Duration { mono, _ := p.elapsed(); return mono }
func (p *process) now() time.Time           { _, wall := p.elapsed(); return p.started.Add(wall) }

// stampsEach is the number of successive timestamps that are drawn for one timestamp. Of these, each process uses a
// different one, so that no two processes have the same timestamp.
const stampsEach = 256

// stamp returns a timestamp of the common time that no other process has.
func (p *process) stamp(ctx context.Context) (store.Timestamp, error) {
	if p.m.OwnClock {
		return p.ownStamp(), nil
	}
	first, err := p.maps.Time().Next(ctx, stampsEach)
	return first + (p.index-first%stampsEach+stampsEach)%stampsEach, err
}

// ownStamp returns a timestamp of the process's wall clock, for the mistake OwnClock.
func (p *process) ownStamp() store.Timestamp {
	p.mu.Lock()
	defer p.mu.Unlock()
	const within = int64(time.Second)
	off := time.Duration(int64(p.index)*37_777_777%within) - time.Duration(within/2)
	p.last = max(p.last+stampsEach, store.Timestamp(time.Now().Add(off).UnixMicro())/stampsEach*stampsEach+p.index)
	return p.last
}

// timedWire is the store of a process's map client, with servers that tell the time of their clocks.
type timedWire struct{ *wire }

// serverClock is the clock of one server: its offset at the beginning, and its relative error of speed.
type serverClock struct {
	offset time.Duration
	rate   float64
}

// Servers returns the servers whose clocks can be read.
func (x *timedWire) Servers(context.Context) (all []store.Server, err error) {
	for i := range x.p.w.serverClocks {
		all = append(all, store.Server{Name: strconv.Itoa(i), Near: true})
	}
	return all, nil
}

// Time returns the time of a server's clock, after the time that a request takes.
func (x *timedWire) Time(_ context.Context, server string) (time.Time, error) {
	i, err := strconv.Atoi(server)
	if err != nil {
		return time.Time{}, err
	}
	time.Sleep(x.p.way / time.Duration(2+i))
	c := x.p.w.serverClocks[i]
	real := time.Now()
	t := real.Add(c.offset + time.Duration(c.rate*float64(real.Sub(x.p.w.began))))
	time.Sleep(x.p.way / time.Duration(3+i))
	return t.Truncate(commontime.Resolution), nil
}

// freeze stops the clocks of the process until thaw is called. This is a mistake: while the clocks stand still, no
// lease ends.
func (p *process) freeze() (thaw func()) {
	if p == nil {
		return func() {}
	}
	mono, wall := p.elapsed()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.frozen++; p.frozen == 1 {
		p.at = [2]time.Duration{mono, wall}
	}
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.frozen--
	}
}

// weather disturbs a process at random times.
func (w *world) weather(r *rand.Rand) {
	n := w.c.Net
	if n == nil || r.Float64() >= n.Weather {
		return
	}
	w.s.mu.Lock()
	p := w.processes[r.IntN(len(w.processes))]
	alive := !p.a.gone && !p.a.dead
	w.s.mu.Unlock()
	what, d := r.IntN(8), time.Duration(r.Int64N(int64(n.Lease)<<r.IntN(4)))
	switch {
	case !alive:
	case what == 0 && p.die != nil:
		w.trace("%s dies", p.a.name)
		p.die()
	case what < 3:
		w.trace("%s is paused for %v", p.a.name, d)
		w.s.pause(p.a, d)
	case p.stepped:
		step := time.Duration(r.Int64N(int64(20*time.Second))) - 10*time.Second
		w.trace("the clock of %s is set by %v", p.a.name, step)
		p.mu.Lock()
		p.off += step
		p.mu.Unlock()
	default:
		w.trace("%s is suspended for %v", p.a.name, d)
		p.mu.Lock()
		p.asleep = append(p.asleep, span{time.Now(), time.Now().Add(d)})
		p.mu.Unlock()
		w.s.pause(p.a, d)
	}
}

func (w *world) trace(format string, args ...any) {
	if w.c.Trace != nil {
		w.c.Trace(fmt.Sprintf(format, args...))
	}
}

// wire is the store of a process's map client. It makes the process's mistakes.
type wire struct {
	*gated
	p *process
}

// own assigns the background calls of a map client to the actor of its process.
func (x *wire) own(ctx context.Context) context.Context {
	if a, _ := ctx.Value(actorKey{}).(*actor); a == nil {
		return withActor(ctx, x.p.a)
	}
	return ctx
}

func (x *wire) ours(t store.Table, key []byte) bool {
	return t == store.Roots && store.BucketID(key) == x.p.w.bucket
}

func (x *wire) Read(ctx context.Context, t store.Table, key []byte, l store.Level) (store.Record, error) {
	ctx = x.own(ctx)
	p := x.p
	deceived := p.a.client && l == store.Local
	if deceived && p.m.RootBeforeClock {
		if t == store.Clocks {
			p.prefetch(ctx)
		} else if rec, ok := p.recall(register(t, key)); ok {
			return rec, nil
		}
	}
	rec, err := x.gated.Read(ctx, t, key, l)
	if err == nil && deceived && x.ours(t, key) {
		if p.m.TornRoot {
			rec = retold(p.w.bucket, p.w.replicas.mend(t, key, rec),
				func(r *partmap.Root) { r.Epoch, r.Token = rec.Epoch, rec.Token })
		}
		if p.m.ActWhileClosing {
			rec = retold(p.w.bucket, rec, func(r *partmap.Root) {
				if r.State == partmap.Closing {
					r.State = partmap.Open
				}
			})
		}
	}
	return rec, err
}

// retold returns the record of a root with a change, as a process that makes a mistake sees the root.
func retold(id store.BucketID, rec store.Record, change func(r *partmap.Root)) store.Record {
	r, err := partmap.DecodeRoot(id, rec)
	if err != nil {
		return rec
	}
	change(r)
	if out, err := partmap.EncodeRoot(r); err == nil {
		return out
	}
	return rec
}

func (p *process) prefetch(ctx context.Context) {
	rec, err := p.w.replicas.Read(ctx, store.Roots, p.w.bucket[:], store.Local)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil {
		p.fetched[register(store.Roots, p.w.bucket[:])] = rec
	}
}

func (p *process) recall(name string) (store.Record, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	rec, ok := p.fetched[name]
	return rec, ok
}

func (x *wire) Swap(ctx context.Context, t store.Table, key []byte, old store.Version, next store.Record) error {
	ctx = x.own(ctx)
	p := x.p
	bumped := func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.pretend[register(t, key)] = next
	}
	switch {
	case p.m.BumpFirst && x.ours(t, key):
		x.bump(ctx)
	case p.m.BumpFirst && t == store.Clocks:
		bumped()
		return nil
	case p.m.OthersBump && x.ours(t, key):
		p.mu.Lock()
		p.before = x.clock().value
		p.mu.Unlock()
	case p.m.OthersBump && t == store.Clocks:
		p.mu.Lock()
		before := p.before
		p.mu.Unlock()
		if before > 0 && x.clock().names(p.w.bucket, before) {
			bumped()
			return nil
		}
	}
	return x.gated.Swap(ctx, t, key, old, next)
}

// clock reads the current map clock, a record that tells clients which maps have changed.
func (x *wire) clock() mapClock {
	rec, err := x.p.w.mem.Read(context.Background(), store.Clocks, clockKey, store.Serial)
	if err != nil {
		return mapClock{}
	}
	return openClock(rec)
}

// bump bumps and acknowledges the map clock too early, for the mistake BumpFirst.
func (x *wire) bump(ctx context.Context) {
	for range 5 {
		rec, err := x.gated.Read(ctx, store.Clocks, clockKey, store.Serial)
		if err != nil {
			continue
		}
		next := openClock(rec).bumped(rec.Version, store.Token(x.p.w.newID()), x.p.w.bucket)
		if x.gated.Swap(ctx, store.Clocks, clockKey, rec.Version, next) == nil {
			_, _ = x.gated.Acknowledge(ctx, store.Clocks, clockKey)
			return
		}
	}
}

func (x *wire) Acknowledge(ctx context.Context, t store.Table, key []byte) (store.Record, error) {
	ctx = x.own(ctx)
	p := x.p
	p.mu.Lock()
	pretended, ok := p.pretend[register(t, key)]
	delete(p.pretend, register(t, key))
	p.mu.Unlock()
	switch {
	case ok:
		return pretended, nil
	case p.m.RootUnacknowledged && t == store.Roots, p.m.BumpUnacknowledged && t == store.Clocks:
		return x.gated.Read(ctx, t, key, store.Serial)
	}
	return x.gated.Acknowledge(ctx, t, key)
}

func (x *wire) Node(ctx context.Context, b store.BucketID, id store.NodeID) ([]byte, error) {
	return x.gated.Node(x.own(ctx), b, id)
}

func (x *wire) WriteNode(ctx context.Context, b store.BucketID, id store.NodeID, blob []byte) error {
	err := x.gated.WriteNode(x.own(ctx), b, id, blob)
	if n := x.p.w.c.Net; x.gated.chance(n.Stall) {
		x.p.w.s.pause(x.p.a, 6*n.Lease)
	}
	return err
}
