// Package countertest is the conformance suite for implementations of counter.Backend.
package countertest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/internal/countbook"
	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/store"
)

// Clock is a clock for tests, which moves only when the test calls Go. The backend of counts under test and its clients
// use a Clock as their wall clock.
type Clock struct {
	mu  sync.Mutex
	now time.Time
}

// Now returns the present time of the test clock, which changes only when Go is called.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Go moves the test clock forward by the duration d, or back if d is negative.
func (c *Clock) Go(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// Env has the functions by which the conformance tests open, crash and damage one backend of counts. At first the
// backend has no data.
type Env struct {
	// Open returns a backend over the data of this Env. If Shared is false, the backend that was opened before must be
	// closed first.
	Open func(t *testing.T) counter.Backend
	// Shared is true if several backends over the same data may be open at once.
	Shared bool
	// Crash ends the process or server that holds the data, as if the process were killed. Afterwards Open must work
	// again.
	Crash func(t *testing.T)
	// Lose destroys all data. Afterwards Open must work again. A shared backend that is open goes on, without the data.
	Lose func(t *testing.T)
	// GoesOn is true if a closed backend goes on working, since it has nothing to release.
	GoesOn bool
}

// Run runs the conformance tests of counter.Backend. It calls env once for each test, with the clock that the backend
// must use, and tests the backend of the returned Env.
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
		{"Kept", (*suite).kept},
		{"LostBatch", (*suite).lostBatch},
		{"LostMany", (*suite).lostMany},
		{"Uncounted", (*suite).uncounted},
		{"WrongClocks", (*suite).wrongClocks},
		{"Recount", (*suite).recount},
		{"Overwrites", (*suite).overwrites},
		{"Appends", (*suite).appends},
		{"AppendsSideBySide", (*suite).appendsSideBySide},
		{"Decay", (*suite).decay},
		{"Requests", (*suite).requests},
		{"ManyPartitions", (*suite).manyPartitions},
		{"Forget", (*suite).forget},
		{"Removed", (*suite).removed},
		{"Written", (*suite).written},
		{"Covers", (*suite).covers},
		{"AllAtOnce", (*suite).allAtOnce},
		{"Closed", (*suite).closed},
	} {
		t.Run(c.name, func(t *testing.T) {
			clock := &Clock{now: time.Unix(1_700_000_000, 0)}
			s := &suite{T: t, env: env(t, clock), clock: clock, r: seed.New(t)}
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

// flush sends the counts of the given recorders to the backend under test, and then moves the test's clock by a second.
// The test fails if a recorder returns an error.
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

// correct tells the backend under test that a recount of the partition p has found the given number of rows, of 100
// bytes each. The recount is invented: it has read no rows, so its sample of keys is empty.
func (s *suite) correct(p store.Partition, rows int64) {
	s.Helper()
	c, err := countbook.NewRecount(nothing{}, p, store.Bounds{}, countbook.RecountOptions{Now: s.clock.Now}).
		Run(s.Context())
	require.NoError(s, err)
	c.Rows, c.Bytes = rows, rows*100
	require.NoError(s, s.b.Correct(s.Context(), p, c))
}

type nothing struct{}

func (nothing) Slice(context.Context, store.Partition, store.Bounds, store.SliceOptions) (store.Page, error) {
	return store.Page{}, nil
}

// partition returns a new partition with a random id, in a new bucket with a random id.
func partition() store.Partition {
	return store.Partition{Bucket: store.BucketID(uuid.New()), ID: store.PartitionID(uuid.New())}
}

func key(i int) []byte { return fmt.Appendf(nil, "key/%07d", i) }
