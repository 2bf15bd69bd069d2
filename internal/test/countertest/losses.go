package countertest

import (
	"context"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/store"
)

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

// restart checks that the estimates for a partition are the same after the backend of counts was closed and opened
// again.
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
	// The client goes on, over the reopened backend.
	_ = r
	r = s.recorder()
	r.Put(p, []byte("zz"), 1, s.now())
	s.flush(r)
	st := s.stats(p)
	require.Equal(s, before.Puts+1, st.Puts)
	require.True(s, st.Known)
}

// crash checks that a backend of counts survives a crash. Counts that were flushed must be in the backend afterwards,
// or the estimates of all partitions must say that counts are missing (Known false).
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

// lostData checks that the estimates for a partition are not trusted (Known false) after the backend has lost all data.
// After a recount they must be Known again.
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

// lostBatch checks that the backend notices a lost batch of counts when the same client sends its next batch. The
// estimates for the partitions of the lost batch are then not trusted (Known false) until these partitions are
// recounted. Other partitions stay Known.
func (s *suite) lostBatch() {
	// All partitions are in one bucket, so that their batches are numbered in one sequence.
	p, q, other := partition(), partition(), partition()
	q.Bucket, other.Bucket = p.Bucket, p.Bucket
	for _, x := range []store.Partition{p, q, other} {
		s.correct(x, 500)
	}
	known := func(want ...bool) {
		s.Helper()
		for i, x := range []store.Partition{p, q, other} {
			require.Equal(s, want[i], s.stats(x).Known, "partition %d", i)
		}
	}
	lost := false
	x := &dropping{Backend: s.b, drop: &lost}
	r := counter.NewRecorder(x, counter.RecorderOptions{Every: -1, Now: s.clock.Now})
	r.Put(p, []byte("a"), 1, s.now())
	s.flush(r)
	known(true, true, true)
	lost = true
	r.Put(q, []byte("b"), 1, s.now())
	s.flush(r)
	lost = false
	known(true, true, true)
	r.Put(p, []byte("c"), 1, s.now())
	s.flush(r)
	for range 2 {
		known(true, false, true)
		s.reopen()
	}
	s.correct(q, 501)
	known(true, true, true)

	// Of several lost batches the partitions of the last one are known. The next batch's partitions were presumably in
	// the others.
	x.Backend = s.b
	lost = true
	for _, x := range []store.Partition{other, p, q} {
		r.Put(x, []byte("d"), 1, s.now())
		s.flush(r)
	}
	lost = false
	r.Put(p, []byte("e"), 1, s.now())
	s.flush(r)
	for range 2 {
		known(false, false, true)
		s.reopen()
	}
}

// lostMany checks that the estimates of no partition are trusted (Known) any more after many batches of counts were
// lost, as happens when an old backup is restored.
func (s *suite) lostMany() {
	p, other := partition(), partition()
	other.Bucket = p.Bucket
	s.correct(p, 500)
	s.correct(other, 500)
	lost := false
	r := counter.NewRecorder(&dropping{Backend: s.b, drop: &lost}, counter.RecorderOptions{Every: -1, Now: s.clock.Now})
	put := func() {
		r.Put(p, []byte("a"), 1, s.now())
		s.flush(r)
	}
	put()
	lost = true
	for range 150 {
		put()
	}
	lost = false
	require.True(s, s.stats(p).Known)
	put()
	require.False(s, s.stats(p).Known)
	require.False(s, s.stats(other).Known)
	s.correct(other, 500)
	require.True(s, s.stats(other).Known)
}

// uncounted checks partitions whose writes a client could not count, for lack of memory. Their estimates must not be
// trusted (Known false), and Written must return the partitions. A partition stays Known if only a read was not
// counted, or if it had no writes. If too many partitions have uncounted writes, no partition is Known.
func (s *suite) uncounted() {
	bucket := partition().Bucket
	draw := func() store.Partition {
		p := partition()
		p.Bucket = bucket
		return p
	}
	counted, lost, read, quiet := draw(), draw(), draw(), draw()
	known := func(want ...bool) {
		s.Helper()
		for range 2 {
			for i, p := range []store.Partition{counted, lost, read, quiet} {
				require.Equal(s, want[i], s.stats(p).Known, "partition %d", i)
			}
			s.reopen()
		}
	}
	for _, p := range []store.Partition{counted, lost, read, quiet} {
		s.correct(p, 500)
	}
	_, mark, err := s.b.Written(s.Context(), 0)
	require.NoError(s, err)
	s.clock.Go(time.Minute)
	r := counter.NewRecorder(s.b, counter.RecorderOptions{Every: -1, MaxPartitions: 1, Now: s.clock.Now})
	r.Put(counted, key(1), 10, s.now())
	r.Put(lost, key(1), 10, s.now())
	r.Read(read, nil)
	require.Equal(s, int64(2), r.Counts().Lost)
	s.flush(r)
	written, _, err := s.b.Written(s.Context(), mark)
	require.NoError(s, err)
	require.ElementsMatch(s, []store.Partition{counted, lost}, written)
	known(true, false, true, true)
	s.correct(lost, 501)
	known(true, true, true, true)

	r = counter.NewRecorder(s.b, counter.RecorderOptions{Every: -1, MaxPartitions: 1, Now: s.clock.Now})
	for range 20 {
		r.Delete(draw(), key(1), s.now(), false)
	}
	require.NoError(s, r.Close(s.Context()))
	known(false, false, false, false)
}

// wrongClocks checks that a client whose clock is a day fast or slow does no harm. The backend must not forget other
// clients. The partitions to which the client writes must not get times in the future.
func (s *suite) wrongClocks() {
	for _, off := range []time.Duration{25 * time.Hour, -25 * time.Hour} {
		p, q := partition(), partition()
		s.correct(p, 500)
		s.correct(q, 500)
		right := s.recorder()
		wrong := counter.NewRecorder(s.b, counter.RecorderOptions{Every: -1, Now: func() time.Time {
			return s.clock.Now().Add(off)
		}})
		n := int64(0)
		for i := range 30 {
			right.Put(q, key(i), 10, s.now())
			wrong.Put(p, key(i), 10, s.now())
			n++
			s.flush(right, wrong)
		}
		for _, x := range []store.Partition{p, q} {
			st := s.stats(x)
			require.True(s, st.Known, "a clock off by %v", off)
			require.Equal(s, 500+n, st.Rows)
		}
		require.InDelta(s, 1, s.stats(q).PutsPerS, 0.2)
	}
}

type dropping struct {
	counter.Backend
	drop *bool
}

func (x *dropping) Group(id store.BucketID) int { return groupOf(x.Backend, id) }

func (x *dropping) Flush(ctx context.Context, b *counter.Batch) ([]counter.Hint, error) {
	if *x.drop {
		return nil, nil
	}
	return x.Backend.Flush(ctx, b)
}
