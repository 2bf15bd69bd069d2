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
