package mapclient_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/test/faultstore"
	"github.com/evenkeel/evenkeel/internal/wait"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// lagged is a store with many replicas, as far as registers go: what was swapped
// in is seen at once by reads at Serial, but by reads at Local only after a
// while, or once it was acknowledged. It remembers when what was seen.
type lagged struct {
	store.Store
	rng    *locked
	maxLag time.Duration

	mu    sync.Mutex
	shown map[string]store.Record
	seen  map[string][]event // what was shown to reads at Local
	swaps map[string][]event // what was swapped in
}

// event is that a register came to a record.
type event struct {
	at  time.Time
	rec store.Record
}

// locked is chance for many goroutines.
type locked struct {
	mu sync.Mutex
	*rand.Rand
}

func (l *locked) upTo(d time.Duration) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Duration(l.Int64N(int64(d) + 1))
}

func (l *locked) oneIn(n int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.IntN(n) == 0
}

func newLagged(rng *locked) *lagged {
	return &lagged{
		Store: memstore.New(), rng: rng, shown: map[string]store.Record{}, seen: map[string][]event{},
		swaps: map[string][]event{},
	}
}

func register(t store.Table, key []byte) string { return fmt.Sprintf("%s/%x", t, key) }

func (s *lagged) Swap(ctx context.Context, t store.Table, key []byte, old store.Version, next store.Record) error {
	if err := s.Store.Swap(ctx, t, key, old, next); err != nil {
		return err
	}
	name := register(t, key)
	s.mu.Lock()
	s.swaps[name] = append(s.swaps[name], event{time.Now(), next})
	s.mu.Unlock()
	if s.maxLag == 0 {
		s.show(name, next)
	} else {
		time.AfterFunc(s.rng.upTo(s.maxLag), func() { s.show(name, next) })
	}
	return nil
}

func (s *lagged) show(name string, rec store.Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shown[name].Epoch < rec.Epoch {
		s.shown[name] = rec
		s.seen[name] = append(s.seen[name], event{time.Now(), rec})
	}
}

func (s *lagged) Read(ctx context.Context, t store.Table, key []byte, l store.Level) (store.Record, error) {
	if l == store.Serial {
		return s.Store.Read(ctx, t, key, l)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	rec, ok := s.shown[register(t, key)]
	if !ok {
		return store.Record{}, store.Errorf(store.NotFound, "%s", register(t, key))
	}
	return rec, nil
}

func (s *lagged) Acknowledge(ctx context.Context, t store.Table, key []byte) (store.Record, error) {
	rec, err := s.Store.Read(ctx, t, key, store.Serial)
	if err == nil {
		s.show(register(t, key), rec)
	}
	return rec, err
}

// firstAt is when a register first came to an epoch, or a later one; false: not yet.
func firstAt(events []event, epoch uint64) (time.Time, bool) {
	for _, e := range events {
		if e.rec.Epoch >= epoch {
			return e.at, true
		}
	}
	return time.Time{}, false
}

// process is one machine: its clocks, its way to the store, and what befalls it.
type process struct {
	store.Store // with faults
	all         *lagged
	rng         *locked
	started     time.Time

	mu         sync.Mutex
	rate       float64       // of both clocks
	stepped    time.Duration // of the wall clock, in all
	stopped    time.Duration // of the monotonic clock, in all
	suspended  time.Time     // since then; zero: not
	resumed    chan struct{}
	cut        bool // clock reads fail
	rowMissing bool // clock rows are not found
	slow       bool // calls take long

	// Deliberate mistakes.
	noWall, furtherClock  bool // leases or waits by one clock only
	rootFirst             bool
	prefetched            map[string]store.Record
	bumpFirst             bool
	noRootAck, noClockAck bool
	missingIsZero         bool
	othersBump            bool
	before                uint64         // the clock when the root's swap began
	swapBegan             store.BucketID // whose root that was
	pretended             map[string]store.Record
}

func newProcess(all *lagged, rng *locked, faults faultstore.Options) *process {
	p := &process{
		all: all, rng: rng, started: time.Now(), rate: 1, prefetched: map[string]store.Record{},
		pretended: map[string]store.Record{},
	}
	p.Store, _ = faultstore.New(all, faults)
	return p
}

// elapsed is what both clocks have run since the process started.
func (p *process) elapsed() (mono, wall time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	real := time.Since(p.started)
	mono = real - p.stopped
	if !p.suspended.IsZero() {
		mono -= time.Since(p.suspended)
	}
	mono, wall = time.Duration(float64(mono)*p.rate), time.Duration(float64(real)*p.rate)+p.stepped
	if p.noWall {
		wall = mono
	}
	if p.furtherClock {
		mono, wall = max(mono, wall), max(mono, wall)
	}
	return mono, wall
}

func (p *process) monotonic() time.Duration { mono, _ := p.elapsed(); return mono }

func (p *process) now() time.Time { _, wall := p.elapsed(); return p.started.Add(wall) }

func (p *process) set(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
}

func (p *process) get(f func() bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return f()
}

func (p *process) suspend() {
	p.set(func() { p.suspended, p.resumed = time.Now(), make(chan struct{}) })
}

func (p *process) resume() {
	p.set(func() {
		p.stopped += time.Since(p.suspended)
		p.suspended = time.Time{}
		close(p.resumed)
	})
}

// runs returns when the process is not suspended, or fails as the context ends.
func (p *process) runs(ctx context.Context) error {
	p.mu.Lock()
	resumed, is := p.resumed, !p.suspended.IsZero()
	p.mu.Unlock()
	if !is {
		return nil
	}
	select {
	case <-resumed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// travel is the way to the store or back.
func (p *process) travel(ctx context.Context) error {
	most := 3 * time.Millisecond
	if p.get(func() bool { return p.slow }) || p.rng.oneIn(30) {
		most = 500 * time.Millisecond
	}
	if err := wait.Sleep(ctx, p.rng.upTo(most)); err != nil {
		return err
	}
	return p.runs(ctx)
}

// call makes a call: there and back.
func (p *process) call(ctx context.Context, f func() error) error {
	if err := p.travel(ctx); err != nil {
		return err
	}
	err := f()
	if late := p.travel(ctx); late != nil {
		return late
	}
	return err
}

func (p *process) Read(ctx context.Context, t store.Table, key []byte, l store.Level) (rec store.Record, err error) {
	name := register(t, key)
	if p.rootFirst && l == store.Local {
		if t == store.Clocks {
			p.prefetch()
		} else if rec, ok := p.prefetchedRoot(name); ok {
			return rec, nil
		}
	}
	err = p.call(ctx, func() error {
		if t == store.Clocks && l == store.Local {
			if p.get(func() bool { return p.cut }) {
				return store.Errorf(store.Unavailable, "cut off")
			}
			if p.get(func() bool { return p.rowMissing }) {
				return store.Errorf(store.NotFound, "the row is missing")
			}
		}
		var err error
		rec, err = p.Store.Read(ctx, t, key, l)
		return err
	})
	if p.missingIsZero && t == store.Clocks && store.KindOf(err) == store.NotFound {
		return mapclient.ZeroClock(), nil
	}
	return rec, err
}

func (p *process) prefetch() {
	p.all.mu.Lock()
	defer p.all.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, rec := range p.all.shown {
		p.prefetched[name] = rec
	}
}

func (p *process) prefetchedRoot(name string) (store.Record, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	rec, ok := p.prefetched[name]
	return rec, ok
}

func (p *process) Swap(ctx context.Context, t store.Table, key []byte, old store.Version, next store.Record) error {
	name := register(t, key)
	switch {
	case t == store.Roots && p.bumpFirst:
		// The bump comes first, acknowledged and all; the later one does nothing.
		p.bumpBy(ctx, store.BucketID(key))
		_ = wait.Sleep(ctx, p.rng.upTo(2*time.Second))
	case t == store.Clocks && p.bumpFirst:
		p.set(func() { p.pretended[name] = next })
		return nil
	case t == store.Roots && p.othersBump:
		p.set(func() { p.before, p.swapBegan = p.clockValue(ctx), store.BucketID(key) })
	case t == store.Clocks && p.othersBump:
		rec, err := p.all.Store.Read(ctx, t, key, store.Serial)
		if err == nil {
			if named, _ := mapclient.ClockNames(rec, p.swapBegan, p.before); named {
				p.set(func() { p.pretended[name] = next })
				return nil
			}
		}
	}
	return p.call(ctx, func() error { return p.Store.Swap(ctx, t, key, old, next) })
}

func (p *process) clockValue(ctx context.Context) uint64 {
	rec, err := p.all.Store.Read(ctx, store.Clocks, make([]byte, 4), store.Serial)
	if err != nil {
		return 0
	}
	_, value := mapclient.ClockNames(rec, store.BucketID{}, 1<<63)
	return value
}

func (p *process) bumpBy(ctx context.Context, id store.BucketID) {
	for key := make([]byte, 4); ; {
		rec, err := p.all.Store.Read(ctx, store.Clocks, key, store.Serial)
		if err != nil {
			return
		}
		if p.all.Swap(ctx, store.Clocks, key, rec.Version, mapclient.BumpedClock(rec, id)) == nil {
			_, _ = p.all.Acknowledge(ctx, store.Clocks, key)
			return
		}
	}
}

func (p *process) Acknowledge(ctx context.Context, t store.Table, key []byte) (rec store.Record, err error) {
	p.mu.Lock()
	pretended, ok := p.pretended[register(t, key)]
	delete(p.pretended, register(t, key))
	p.mu.Unlock()
	if ok {
		return pretended, nil
	}
	if p.noRootAck && t == store.Roots || p.noClockAck && t == store.Clocks {
		return p.Read(ctx, t, key, store.Serial)
	}
	err = p.call(ctx, func() error {
		if p.rng.oneIn(10) {
			return store.Errorf(store.Unavailable, "a data centre is down")
		}
		rec, err = p.all.Acknowledge(ctx, t, key)
		return err
	})
	return rec, err
}
