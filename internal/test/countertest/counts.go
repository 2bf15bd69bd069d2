package countertest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/internal/countbook"
	"github.com/evenkeel/evenkeel/store"
)

// recount checks that an exact count of the rows (a recount) replaces all earlier counts of a backend, and that later
// writes are added to its result.
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

	// The clock of the recount is behind the clocks of the writers: rows that the recount saw do not count twice.
	s.clock.Go(time.Minute)
	const rows, behind = 2000, 4 * time.Hour
	r = s.fill(p, 100_000, 100_000+rows)
	require.NoError(s, s.b.Correct(s.Context(), p, &counter.Count{
		Started: s.clock.Now().Add(-behind), Took: time.Second, Rows: rows,
	}))
	require.Equal(s, int64(rows), s.stats(p).Rows)
	s.clock.Go(time.Minute)
	r.Put(p, []byte("newer"), 10, s.now())
	s.flush(r)
	require.Equal(s, int64(rows+1), s.stats(p).Rows)
}

// overwrites checks that a backend of counts does not count repeated puts of the same keys as more rows.
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

// appends checks that appends, which are puts above every earlier key, are distinguished from other puts, also if the
// client has just begun.
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

// appendsSideBySide checks that appends are recognized when many clients append concurrently. Their puts end in random
// order, so not every put is above the highest key.
func (s *suite) appendsSideBySide() {
	p := partition()
	r := s.recorder()
	const writers = 400
	for i := 0; i < 10*writers; i += writers {
		for _, k := range s.r.Perm(writers) {
			r.Put(p, key(i+k), 20, s.now())
		}
		s.flush(r)
	}
	require.Greater(s, s.stats(p).AppendShare, 0.95)
	// All puts are in one batch, as when a partition is filled within a second.
	q := partition()
	for i := 0; i < 10*writers; i += writers {
		for _, k := range s.r.Perm(writers) {
			r.Put(q, key(i+k), 20, s.now())
		}
	}
	s.flush(r)
	require.Greater(s, s.stats(q).AppendShare, 0.7)
}

// requests checks the sample that is kept of the requests of a busy partition. Requests of each kind and of each client
// have the same chance to be in the sample; older requests have a smaller chance.
func (s *suite) requests() {
	p, quiet := partition(), partition()
	few, many := s.recorder(), s.recorder()
	minute := func(from int) {
		for range 60 {
			for i := range 30 {
				few.Delete(p, key(from+i%10), s.now(), false)
			}
			for i := range 90 {
				many.Read(p, key(from+10+i%10))
			}
			few.Put(quiet, key(from), 10, s.now())
			require.NoError(s, few.Flush(s.Context()))
			s.flush(many)
		}
	}
	for range 5 {
		minute(0)
	}
	byFew, all := 0, 0
	last := int64(0)
	for _, x := range s.stats(p).Asked {
		require.GreaterOrEqual(s, x.At, last)
		last = x.At
		if all++; string(x.Key) < string(key(10)) {
			byFew++
		}
	}
	require.GreaterOrEqual(s, all, 32)
	require.LessOrEqual(s, all, 64)
	require.InDelta(s, 0.25, float64(byFew)/float64(all), 0.2, "a quarter of the requests")
	require.Empty(s, s.stats(quiet).Asked)
	for range 15 {
		minute(100)
	}
	old := 0
	for _, x := range s.stats(p).Asked {
		if string(x.Key) < string(key(100)) {
			old++
		}
	}
	require.LessOrEqual(s, old, 16, "what was asked a quarter of an hour ago")
	s.clock.Go(10 * time.Minute)
	require.Empty(s, s.stats(p).Asked, "it is quiet now")
}

// decay checks that rates (events per second) fall with time when nothing happens, while numbers of rows stay the same.
func (s *suite) decay() {
	p := partition()
	s.correct(p, 0)
	r := s.recorder()
	for i := range 1000 {
		r.Put(p, key(i), 20, s.now())
		r.Read(p, key(i))
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

// removed checks a partition in which many entries were deleted at once. Its estimates must not be trusted (Known)
// until a recount, and Written must return the partition.
func (s *suite) removed() {
	p, q := partition(), partition()
	s.correct(p, 10)
	s.correct(q, 20)
	r := s.recorder()
	_, mark, err := s.b.Written(s.Context(), 0)
	require.NoError(s, err)
	r.Removed(p)
	r.Put(q, key(1), 10, s.now())
	s.flush(r)
	for range 2 {
		require.False(s, s.stats(p).Known)
		require.Zero(s, s.stats(p).Rows)
		require.True(s, s.stats(q).Known)
		written, _, err := s.b.Written(s.Context(), mark)
		require.NoError(s, err)
		require.Contains(s, written, p)
	}
	s.correct(p, 0)
	require.True(s, s.stats(p).Known)
}

// allAtOnce calls all methods of a backend concurrently, and checks that every put counts once. If several backends may
// share the data, the test uses several backends.
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

// busy reports whether an error may come only from conflicts of concurrent calls, so that the test calls again. It
// returns true for the kinds Conflict and Unavailable.
func busy(err error) bool { return errors.Is(err, store.Conflict) || errors.Is(err, store.Unavailable) }

func (s *suite) closed() {
	require.NoError(s, s.b.Close())
	require.NoError(s, s.b.Close())
	if s.env.GoesOn {
		return
	}
	_, err := s.b.Stats(s.Context(), []store.Partition{partition()})
	require.ErrorIs(s, err, store.Unavailable)
	_, err = s.b.Quanta(s.Context(), partition())
	require.ErrorIs(s, err, store.Unavailable)
	_, err = s.b.Flush(s.Context(), &counter.Batch{Client: uuid.New(), Seq: 1, At: s.clock.Now()})
	require.ErrorIs(s, err, store.Unavailable)
	require.ErrorIs(s, s.b.Correct(s.Context(), partition(), &counter.Count{Started: s.clock.Now()}), store.Unavailable)
	require.ErrorIs(s, s.b.Forget(s.Context(), partition()), store.Unavailable)
}

// written checks that the method Written of a backend returns every partition that was written to, so that its caller
// misses none.
func (s *suite) written() {
	r := s.recorder()
	known := map[store.Partition]bool{}
	mark := uint64(0)
	look := func() {
		ps, next, err := s.b.Written(s.Context(), mark)
		require.NoError(s, err)
		require.GreaterOrEqual(s, next, mark)
		for _, p := range ps {
			known[p] = true
		}
		mark = next
	}
	look()
	require.Empty(s, known)
	p, q, forgotten := partition(), partition(), partition()
	r.Put(p, key(1), 10, s.now())
	r.Read(q, nil)
	s.flush(r)
	look()
	require.Equal(s, map[store.Partition]bool{p: true, q: true}, known)
	clear(known)
	r.Delete(q, key(1), s.now(), false)
	r.Put(forgotten, key(1), 10, s.now())
	s.flush(r)
	require.Equal(s, int64(1), s.stats(forgotten).Puts)
	require.NoError(s, s.b.Forget(s.Context(), forgotten))
	look()
	require.True(s, known[q])
	require.False(s, known[forgotten])
	look()
	clear(known)
	r.Put(p, key(2), 10, s.now())
	s.flush(r)
	look()
	require.True(s, known[p])
}

// covers checks that Stats.Covers returns true only for the interval of keys in which the last recount has counted the
// rows.
func (s *suite) covers() {
	p := partition()
	require.False(s, s.stats(p).Covers(nil, nil))
	r := s.recorder()
	r.Put(p, []byte("m"), 10, s.now())
	s.flush(r)
	require.False(s, s.stats(p).Covers(nil, nil), "never counted")
	count := func(start, end string) {
		c, err := countbook.NewRecount(nothing{}, p, store.Bounds{Start: []byte(start), End: []byte(end)}, countbook.RecountOptions{Now: s.clock.Now}).
			Run(s.Context())
		require.NoError(s, err)
		require.NoError(s, s.b.Correct(s.Context(), p, c))
	}
	count("", "")
	for range 2 {
		st := s.stats(p)
		require.True(s, st.Covers(nil, nil))
		require.True(s, st.Covers([]byte{}, []byte("n")), "a cut above the highest key")
		require.False(s, st.Covers(nil, []byte("m")))
		require.False(s, st.Covers([]byte("a"), nil))
		s.reopen()
	}
	count("a", "f")
	require.True(s, s.stats(p).Covers([]byte("a"), []byte("f")))
	require.False(s, s.stats(p).Covers([]byte("a"), []byte("e")))
	require.False(s, s.stats(p).Covers(nil, []byte("f")))
}
