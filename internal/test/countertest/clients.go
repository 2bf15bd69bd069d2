package countertest

import (
	"context"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/store"
)

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

// manyClients checks that a backend of counts adds up the counts of many clients that write at the same time.
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
					r.Read(ps[n%3], key(n))
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

// groupOf returns the number of the group to which the backend b assigns the bucket with the given id, or 0 if b does
// not divide the buckets into groups. Test backends that wrap another backend use it.
func groupOf(b counter.Backend, id store.BucketID) int {
	if g, ok := b.(counter.Grouper); ok {
		return g.Group(id)
	}
	return 0
}

// told is a backend for tests that passes on all calls to another backend, and keeps a copy of each batch of counts. If
// the function lose returns true, the answer to a batch is lost: the batch was applied, but the client gets an error.
type told struct {
	counter.Backend
	batches []*counter.Batch
	lose    func() bool
}

func (x *told) Group(id store.BucketID) int { return groupOf(x.Backend, id) }

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

// once checks that a batch of counts counts only once, even if a client sends the batch again: immediately, later, or
// after a restart of the backend.
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

// lostAnswers checks that a batch of counts counts only once if the backend's answer was lost, so that the client sends
// the batch again.
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
