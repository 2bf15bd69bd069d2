// Package countertest is what every counter.Backend has to do.
package countertest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/store"
)

// Clock is the wall clock of a backend and its clients; tests move it.
type Clock struct {
	mu  sync.Mutex
	now time.Time
}

// Now returns the time.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Go moves the time, also back.
func (c *Clock) Go(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// Env is one backend under test, with nothing in it.
type Env struct {
	// Open returns a backend over the env's data; the one before is closed, unless
	// Shared.
	Open func(t *testing.T) counter.Backend
	// Shared says that several backends over the same data may be open at once.
	Shared bool
	// Crash makes the process or server that holds the data end as if killed, and
	// leaves it ready for Open.
	Crash func(t *testing.T)
	// Lose destroys all data, and leaves it ready for Open. A shared backend that
	// is open goes on over nothing.
	Lose func(t *testing.T)
}

// Run runs the suite. env is called for each case.
func Run(t *testing.T, env func(t *testing.T, clock *Clock) *Env) {
	for _, c := range []struct {
		name string
		f    func(s *suite)
	}{
		{"Nothing", (*suite).nothing},
		{"ManyClients", (*suite).manyClients},
		{"OneBatchCountsOnce", (*suite).once},
		{"LostAnswers", (*suite).lostAnswers},
		{"Restart", (*suite).restart},
		{"Crash", (*suite).crash},
		{"LostData", (*suite).lostData},
		{"LostBatch", (*suite).lostBatch},
		{"Recount", (*suite).recount},
		{"Overwrites", (*suite).overwrites},
		{"Appends", (*suite).appends},
		{"Decay", (*suite).decay},
		{"ManyPartitions", (*suite).manyPartitions},
		{"Forget", (*suite).forget},
		{"AllAtOnce", (*suite).allAtOnce},
		{"Closed", (*suite).closed},
	} {
		t.Run(c.name, func(t *testing.T) {
			clock := &Clock{now: time.Unix(1_700_000_000, 0)}
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			s := &suite{T: t, env: env(t, clock), clock: clock, r: rand.New(rand.NewPCG(seed, 7))}
			s.open()
			c.f(s)
		})
	}
}

type suite struct {
	*testing.T
	env   *Env
	clock *Clock
	r     *rand.Rand
	b     counter.Backend
	stamp store.Timestamp
}

func (s *suite) open() {
	s.b = s.env.Open(s.T)
	s.Cleanup(func() { _ = s.b.Close() })
}

func (s *suite) reopen() {
	require.NoError(s, s.b.Close())
	s.open()
}

func (s *suite) recorder() *counter.Recorder {
	return counter.NewRecorder(s.b, counter.RecorderOptions{Every: -1, Now: s.clock.Now})
}

// flush flushes and lets a second pass.
func (s *suite) flush(all ...*counter.Recorder) {
	s.Helper()
	for _, r := range all {
		require.NoError(s, r.Flush(s.Context()))
	}
	s.clock.Go(time.Second)
}

func (s *suite) now() store.Timestamp {
	s.stamp = max(s.stamp+1, store.Timestamp(s.clock.Now().UnixMicro()))
	return s.stamp
}

func (s *suite) stats(p store.Partition) counter.Stats {
	s.Helper()
	all, err := s.b.Stats(s.Context(), []store.Partition{p})
	require.NoError(s, err)
	require.Len(s, all, 1)
	require.Equal(s, p, all[0].Partition)
	return all[0]
}

// correct tells the backend what a recount of an empty store, or of so many rows
// of which it has seen nothing, found.
func (s *suite) correct(p store.Partition, rows int64) {
	s.Helper()
	c, err := counter.NewRecount(nothing{}, p, store.Bounds{}, counter.RecountOptions{Now: s.clock.Now}).Run(s.Context())
	require.NoError(s, err)
	c.Rows, c.Bytes = rows, rows*100
	require.NoError(s, s.b.Correct(s.Context(), p, c))
}

type nothing struct{}

func (nothing) Slice(context.Context, store.Partition, store.Bounds, store.SliceOptions) (store.Page, error) {
	return store.Page{}, nil
}

// partition draws one.
func partition() store.Partition {
	return store.Partition{Bucket: store.BucketID(uuid.New()), ID: store.PartitionID(uuid.New())}
}

func key(i int) []byte { return fmt.Appendf(nil, "key/%07d", i) }

func (s *suite) nothing() {
	none, err := s.b.Stats(s.Context(), nil)
	require.NoError(s, err)
	require.Empty(s, none)
	st := s.stats(partition())
	require.False(s, st.Known)
	require.Zero(s, st.Rows)
	require.NoError(s, s.b.Forget(s.Context(), partition()))
	require.NoError(s, s.b.Forget(s.Context()))
	s.flush(s.recorder())
}

// Increments of many clients add up.
func (s *suite) manyClients() {
	ps := []store.Partition{partition(), partition(), partition()}
	s.correct(ps[0], 0)
	var g sync.WaitGroup
	const clients, rounds, each = 8, 5, 300
	at := s.now()
	for c := range clients {
		g.Go(func() {
			r := s.recorder()
			for round := range rounds {
				for i := range each {
					n := (c*rounds+round)*each + i
					r.Put(ps[n%3], key(n), 50, at+store.Timestamp(n))
					r.Read(ps[n%3])
				}
				require.NoError(s, r.Flush(s.Context()))
			}
			require.NoError(s, r.Close(s.Context()))
		})
	}
	g.Wait()
	s.clock.Go(time.Second)
	total := int64(0)
	for i, p := range ps {
		st := s.stats(p)
		require.Equal(s, i == 0, st.Known)
		require.Equal(s, st.Puts, st.Rows, "new keys only")
		require.InDelta(s, st.Puts*50, st.Bytes, float64(st.Puts)*10)
		require.InDelta(s, float64(st.Puts), st.PutsPerS, float64(st.Puts), "all of a second or two")
		require.InDelta(s, st.PutsPerS, st.ReadsPerS, 1)
		total += st.Puts
	}
	require.Equal(s, int64(clients*rounds*each), total)
}

// told keeps batches that went by, and may lose answers.
type told struct {
	counter.Backend
	batches []*counter.Batch
	lose    func() bool
}

func (x *told) Flush(ctx context.Context, b *counter.Batch) ([]counter.Hint, error) {
	data, err := b.AppendBinary(nil)
	if err != nil {
		return nil, err
	}
	c := new(counter.Batch)
	if err := c.UnmarshalBinary(data); err != nil {
		return nil, err
	}
	x.batches = append(x.batches, c)
	hints, err := x.Backend.Flush(ctx, b)
	if err == nil && x.lose != nil && x.lose() {
		return nil, store.Errorf(store.Timeout, "the answer was lost")
	}
	return hints, err
}

// A batch that is told again, at once, later or after a restart, counts once.
func (s *suite) once() {
	p := partition()
	s.correct(p, 1000)
	x := &told{Backend: s.b}
	r := counter.NewRecorder(x, counter.RecorderOptions{Every: -1, Now: s.clock.Now})
	for i := range 900 {
		r.Put(p, key(i), 10, s.now())
		if i%100 == 99 {
			s.flush(r)
			_, err := s.b.Flush(s.Context(), x.batches[len(x.batches)-1])
			require.NoError(s, err)
		}
	}
	require.Len(s, x.batches, 9)
	for range 2 {
		for _, i := range s.r.Perm(len(x.batches)) {
			_, err := s.b.Flush(s.Context(), x.batches[i])
			require.NoError(s, err)
		}
		st := s.stats(p)
		require.Equal(s, int64(900), st.Puts)
		require.Equal(s, int64(1900), st.Rows)
		require.True(s, st.Known)
		s.reopen()
	}
}

// Where an answer is lost, the client says the same again.
func (s *suite) lostAnswers() {
	p := partition()
	s.correct(p, 0)
	x := &told{Backend: s.b, lose: func() bool { return s.r.IntN(2) == 0 }}
	r := counter.NewRecorder(x, counter.RecorderOptions{Every: -1, Now: s.clock.Now})
	failed := 0
	for i := range 2000 {
		r.Put(p, key(i), 10, s.now())
		if i%50 == 0 {
			if r.Flush(s.Context()) != nil {
				failed++
			}
			s.clock.Go(time.Second)
		}
	}
	x.lose = nil
	require.NoError(s, r.Close(s.Context()))
	require.Positive(s, failed)
	st := s.stats(p)
	require.Equal(s, int64(2000), st.Puts)
	require.Equal(s, int64(2000), st.Rows)
	require.True(s, st.Known)
}

func (s *suite) fill(p store.Partition, from, to int) *counter.Recorder {
	r := s.recorder()
	for i := from; i < to; i++ {
		r.Put(p, key(i), 20+i%10, s.now())
		if i%3 == 0 {
			r.Delete(p, key(i), s.now(), i%2 == 0)
		}
		if i%1000 == 999 {
			s.flush(r)
		}
	}
	s.flush(r)
	return r
}

// A restart changes nothing of what is known.
func (s *suite) restart() {
	p := partition()
	s.correct(p, 500)
	r := s.fill(p, 0, 5000)
	before := s.stats(p)
	require.True(s, before.Known)
	for range 3 {
		s.reopen()
		require.Equal(s, before, s.stats(p))
	}
	// The same client goes on, over the backend of now.
	_ = r
	r = s.recorder()
	r.Put(p, []byte("zz"), 1, s.now())
	s.flush(r)
	st := s.stats(p)
	require.Equal(s, before.Puts+1, st.Puts)
	require.True(s, st.Known)
}

// What was flushed before a crash is there after it, or nothing is Known.
func (s *suite) crash() {
	p := partition()
	s.correct(p, 500)
	s.fill(p, 0, 3000)
	before := s.stats(p)
	s.env.Crash(s.T)
	s.open()
	if st := s.stats(p); st.Known {
		require.Equal(s, before, st)
	}
	s.correct(p, 2500)
	require.True(s, s.stats(p).Known)
	require.Equal(s, int64(2500), s.stats(p).RecountedRows)
}

// A backend that lost everything says so; a recount brings it back.
func (s *suite) lostData() {
	p := partition()
	s.correct(p, 500)
	r := s.fill(p, 0, 3000)
	require.True(s, s.stats(p).Known)
	s.env.Lose(s.T)
	if s.env.Shared {
		require.False(s, s.stats(p).Known)
		r.Put(p, []byte("more"), 10, s.now())
		require.NoError(s, r.Flush(s.Context()))
	} else {
		s.open()
		s.fill(p, 3000, 3100)
	}
	st := s.stats(p)
	require.False(s, st.Known)
	require.Positive(s, st.Puts)
	s.clock.Go(time.Minute)
	s.correct(p, 2500)
	st = s.stats(p)
	require.True(s, st.Known)
	require.Equal(s, int64(2500), st.Rows)
}

// A batch that never came is noticed at the next one of the same client.
func (s *suite) lostBatch() {
	p, q := partition(), partition()
	s.correct(p, 500)
	s.correct(q, 500)
	lost := false
	x := &dropping{Backend: s.b, drop: &lost}
	r := counter.NewRecorder(x, counter.RecorderOptions{Every: -1, Now: s.clock.Now})
	r.Put(p, []byte("a"), 1, s.now())
	s.flush(r)
	require.True(s, s.stats(p).Known)
	lost = true
	r.Put(q, []byte("b"), 1, s.now())
	s.flush(r)
	lost = false
	require.True(s, s.stats(q).Known)
	r.Put(p, []byte("c"), 1, s.now())
	s.flush(r)
	require.False(s, s.stats(p).Known)
	require.False(s, s.stats(q).Known)
	s.correct(q, 501)
	require.True(s, s.stats(q).Known)
	require.False(s, s.stats(p).Known)
	s.reopen()
	require.True(s, s.stats(q).Known)
	require.False(s, s.stats(p).Known)
}

type dropping struct {
	counter.Backend
	drop *bool
}

func (x *dropping) Flush(ctx context.Context, b *counter.Batch) ([]counter.Hint, error) {
	if *x.drop {
		return nil, nil
	}
	return x.Backend.Flush(ctx, b)
}

// A recount replaces what was counted before it, and what comes later adds up.
func (s *suite) recount() {
	p := partition()
	r := s.fill(p, 0, 3000)
	require.False(s, s.stats(p).Known)
	s.clock.Go(time.Minute)
	s.correct(p, 12345)
	st := s.stats(p)
	require.True(s, st.Known)
	require.Equal(s, int64(12345), st.Rows)
	require.Equal(s, int64(1234500), st.Bytes)
	require.Equal(s, int64(12345), st.RecountedRows)
	require.Zero(s, st.Distinct)
	require.Zero(s, st.Fruitless)
	require.WithinDuration(s, s.clock.Now(), st.Recounted, time.Second)
	s.clock.Go(time.Minute)
	for i := range 10 {
		r.Put(p, fmt.Appendf(nil, "new/%d", i), 10, s.now())
	}
	s.flush(r)
	require.Equal(s, int64(12355), s.stats(p).Rows)
	for n := range 3 {
		s.clock.Go(time.Minute)
		require.NoError(s, s.b.Correct(s.Context(), p, &counter.Count{Started: s.clock.Now(), Rows: 7, Fine: true}))
		require.Equal(s, n+1, s.stats(p).Fruitless)
		require.Equal(s, int64(7), s.stats(p).Rows)
	}
	s.reopen()
	require.Equal(s, 3, s.stats(p).Fruitless)
}

// The same keys all day are no growth.
func (s *suite) overwrites() {
	p := partition()
	s.correct(p, 0)
	a, b := s.recorder(), s.recorder()
	const n = 6000
	for range 5 {
		for i := range n {
			a.Put(p, key(i), 20, s.now())
			b.Put(p, key(n-i), 20, s.now())
			if i%2000 == 0 {
				s.flush(a, b)
			}
		}
		s.flush(a, b)
	}
	st := s.stats(p)
	require.Equal(s, int64(10*n), st.Puts)
	require.InDelta(s, n, st.Rows, n*0.35)
	require.InDelta(s, n, st.Distinct, n*0.35)
	require.Less(s, st.AppendShare, 0.3)
	quanta, err := s.b.Quanta(s.Context(), p)
	require.NoError(s, err)
	require.Greater(s, len(quanta), 100)
	sum := int64(0)
	for i, q := range quanta {
		if sum += q.Rows; i > 0 {
			require.Less(s, string(quanta[i-1].Key), string(q.Key))
		}
	}
	require.Equal(s, st.Rows, sum)
	quanta, err = s.b.Quanta(s.Context(), partition())
	require.NoError(s, err)
	require.Empty(s, quanta)
}

// Puts above every key so far are told from others, also by clients that have
// just begun.
func (s *suite) appends() {
	p, q := partition(), partition()
	for n := range 10 {
		r := s.recorder()
		for i := range 500 {
			r.Put(p, key(n*500+i), 20, s.now())
			r.Put(q, fmt.Appendf(nil, "%016x", s.r.Uint64()), 20, s.now())
			if i == 0 || i%100 == 99 {
				s.flush(r)
			}
		}
	}
	st := s.stats(p)
	require.Greater(s, st.AppendShare, 0.95)
	require.InDelta(s, st.PutsPerS, st.AppendsPerS, st.PutsPerS*0.05)
	require.Equal(s, string(key(4999)), string(st.Top))
	require.Less(s, s.stats(q).AppendShare, 0.1)
}

// Rates decay, rows do not.
func (s *suite) decay() {
	p := partition()
	s.correct(p, 0)
	r := s.recorder()
	for i := range 1000 {
		r.Put(p, key(i), 20, s.now())
		r.Read(p)
		if i%10 == 9 {
			s.flush(r)
		}
	}
	st := s.stats(p)
	require.InDelta(s, 10, st.PutsPerS, 1)
	require.InDelta(s, 10, st.GrowthRowsPerS, 1)
	s.clock.Go(5 * time.Minute)
	st = s.stats(p)
	require.Less(s, st.PutsPerS, 0.1)
	require.Less(s, st.ReadsPerS, 0.1)
	require.InDelta(s, 10, st.GrowthRowsPerS, 8)
	s.clock.Go(12 * time.Hour)
	st = s.stats(p)
	require.Less(s, st.GrowthRowsPerS, 0.01)
	require.Equal(s, int64(1000), st.Rows)
	require.True(s, st.Known)
}

func (s *suite) manyPartitions() {
	const n = 3000
	ps := make([]store.Partition, n)
	r := s.recorder()
	for i := range ps {
		ps[i] = partition()
		for j := range 1 + i%3 {
			r.Put(ps[i], key(j), 10, s.now())
		}
	}
	s.flush(r)
	for range 2 {
		all, err := s.b.Stats(s.Context(), ps)
		require.NoError(s, err)
		require.Len(s, all, n)
		for i := range all {
			require.Equal(s, ps[i], all[i].Partition)
			require.Equal(s, int64(1+i%3), all[i].Rows)
		}
		s.reopen()
	}
}

func (s *suite) forget() {
	p, q := partition(), partition()
	s.correct(p, 10)
	s.correct(q, 20)
	require.NoError(s, s.b.Forget(s.Context(), p, partition()))
	for range 2 {
		require.False(s, s.stats(p).Known)
		require.Zero(s, s.stats(p).Rows)
		require.Equal(s, int64(20), s.stats(q).Rows)
		s.reopen()
	}
}

// All calls at once, by several backends where they may: every put counts once.
func (s *suite) allAtOnce() {
	backends := []counter.Backend{s.b}
	if s.env.Shared {
		for range 2 {
			b := s.env.Open(s.T)
			s.Cleanup(func() { _ = b.Close() })
			backends = append(backends, b)
		}
	}
	ps := []store.Partition{partition(), partition()}
	at := s.now()
	var writers, others sync.WaitGroup
	ctx, stop := context.WithCancel(s.Context())
	defer stop()
	for w := range 6 {
		b := backends[w%len(backends)]
		writers.Go(func() {
			r := counter.NewRecorder(b, counter.RecorderOptions{Every: 2 * time.Millisecond, Now: s.clock.Now})
			for i := range 3000 {
				r.Put(ps[i%2], key(w*3000+i), 10, at+store.Timestamp(i))
				if i%100 == 0 {
					time.Sleep(time.Millisecond)
				}
			}
			for deadline := time.Now().Add(20 * time.Second); ; {
				if err := r.Close(s.Context()); err == nil || time.Now().After(deadline) {
					require.NoError(s, err)
					return
				}
			}
		})
		others.Go(func() {
			for ctx.Err() == nil {
				_, err := b.Stats(ctx, ps)
				if err != nil && ctx.Err() == nil && !busy(err) {
					s.Errorf("stats: %v", err)
					return
				}
				if err := b.Forget(ctx, partition()); err != nil && ctx.Err() == nil && !busy(err) {
					s.Errorf("forget: %v", err)
					return
				}
			}
		})
	}
	writers.Wait()
	stop()
	others.Wait()
	for _, b := range backends {
		all, err := b.Stats(s.Context(), ps)
		require.NoError(s, err)
		for i := range all {
			require.Equal(s, int64(9000), all[i].Puts)
			require.Equal(s, int64(9000), all[i].Rows)
		}
	}
}

// busy: several at once got into each other's way more often than they try.
func busy(err error) bool { return errors.Is(err, store.Conflict) || errors.Is(err, store.Unavailable) }

func (s *suite) closed() {
	require.NoError(s, s.b.Close())
	require.NoError(s, s.b.Close())
	_, err := s.b.Stats(s.Context(), []store.Partition{partition()})
	require.ErrorIs(s, err, store.Unavailable)
	_, err = s.b.Quanta(s.Context(), partition())
	require.ErrorIs(s, err, store.Unavailable)
	_, err = s.b.Flush(s.Context(), &counter.Batch{Client: uuid.New(), Seq: 1, At: s.clock.Now()})
	require.ErrorIs(s, err, store.Unavailable)
	require.ErrorIs(s, s.b.Correct(s.Context(), partition(), &counter.Count{Started: s.clock.Now()}), store.Unavailable)
	require.ErrorIs(s, s.b.Forget(s.Context(), partition()), store.Unavailable)
}
