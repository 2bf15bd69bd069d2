package counter

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

	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/store"
)

// unsteady has two groups of buckets, each with a book of its own, as in a cluster. Calls fail at times: some before
// they were applied, and some after it.
type unsteady struct {
	groups [2]Backend
	draw   *rand.Rand
	fails  float64 // the share of its calls that fail
}

func newUnsteady(draw *rand.Rand, now func() time.Time) *unsteady {
	return &unsteady{groups: [2]Backend{NewMemory(now), NewMemory(now)}, draw: draw}
}

func (u *unsteady) Group(id store.BucketID) int { return int(id[0]) % 2 }

func (u *unsteady) of(p store.Partition) Backend { return u.groups[u.Group(p.Bucket)] }

func (u *unsteady) do(f func() error) error {
	fails := u.draw.Float64() < u.fails
	if fails && u.draw.IntN(2) == 0 {
		return errors.New("away")
	}
	if err := f(); err != nil || !fails {
		return err
	}
	return errors.New("away after all was done")
}

func (u *unsteady) Flush(ctx context.Context, b *Batch) (hints []Hint, err error) {
	err = u.do(func() error {
		hints, err = u.of(b.Deltas[0].Partition).Flush(ctx, b)
		return err
	})
	return hints, err
}

func (u *unsteady) Forget(ctx context.Context, all ...store.Partition) error {
	return u.do(func() error {
		for _, p := range all {
			if err := u.of(p).Forget(ctx, p); err != nil {
				return err
			}
		}
		return nil
	})
}

func (u *unsteady) stats(t *testing.T, p store.Partition) Stats {
	t.Helper()
	all, err := u.of(p).Stats(t.Context(), []store.Partition{p})
	require.NoError(t, err)
	return all[0]
}

// correct makes a partition Known, of no rows.
func (u *unsteady) correct(t *testing.T, p store.Partition, now time.Time) {
	t.Helper()
	require.NoError(t, u.of(p).Correct(t.Context(), p, &Count{Started: now}))
}

// A server whose requests go from partition to partition counts them all, however many partitions there are, as long
// as the backend takes what it flushes.
func TestFlushedPartitionsMakeRoom(t *testing.T) {
	s := &sink{}
	r := NewRecorder(s, RecorderOptions{Every: -1, MaxPartitions: 1000})
	n := int64(0)
	for range 100 {
		for _, p := range partitions(300) {
			r.Put(p, []byte("key"), 10, 1)
			n++
		}
		require.NoError(t, r.Flush(t.Context()))
		require.LessOrEqual(t, r.Counts().Partitions, int64(1000))
	}
	require.Zero(t, r.Counts().Lost)
	require.Equal(t, n, s.puts)
}

// The partition that makes room is the one whose last request is the longest ago.
func TestTheOldestMakesRoom(t *testing.T) {
	s := &sink{}
	r := NewRecorder(s, RecorderOptions{Every: -1, MaxPartitions: 3})
	all := make([]store.Partition, 5)
	for i := range all {
		all[i] = store.Partition{ID: store.PartitionID{byte(i)}} // in one shard
	}
	for _, i := range []int{0, 1, 2, 0, 3, 4} {
		r.Read(all[i], nil)
		require.NoError(t, r.Flush(t.Context()))
	}
	kept := r.shard(all[0].ID).all
	require.Len(t, kept, 3)
	for _, i := range []int{0, 3, 4} {
		require.Contains(t, kept, all[i].ID)
	}
}

// Where a shard has nothing that was flushed, one of another shard makes room.
func TestAnotherShardMakesRoom(t *testing.T) {
	s := &sink{}
	r := NewRecorder(s, RecorderOptions{Every: -1, MaxPartitions: 2})
	in := func(shard byte) store.Partition {
		return store.Partition{ID: store.PartitionID{0: byte(rand.N(256)), 1: byte(rand.N(256)), 15: shard}}
	}
	for range 2 {
		r.Read(in(1), nil)
	}
	require.NoError(t, r.Flush(t.Context()))
	for range 2 {
		r.Read(in(2), nil)
	}
	require.Zero(t, r.Counts().Lost)
	require.Equal(t, int64(2), r.Counts().Partitions)
}

// Whatever is written to however many partitions, over a backend that is away for a while: each partition either has
// all its puts or is not Known.
func TestWhatIsNotCountedIsUnknown(t *testing.T) {
	for name, most := range map[string]int{"few partitions in memory": 8, "enough": 400} {
		t.Run(name, func(t *testing.T) {
			draw := seed.New(t)
			lost := int64(0)
			for range 20 {
				lost += oneOracleRun(t, draw, most)
			}
			if most > 300 {
				require.Zero(t, lost)
			} else {
				require.Positive(t, lost)
			}
		})
	}
}

func oneOracleRun(t *testing.T, draw *rand.Rand, most int) (lost int64) {
	t.Helper()
	now := time.Unix(1e9, 0)
	clock := func() time.Time { return now }
	u := newUnsteady(draw, clock)
	r := NewRecorder(u, RecorderOptions{Every: -1, MaxPartitions: most, Now: clock})
	all := make([]store.Partition, 20+draw.IntN(280))
	puts := map[store.Partition]int64{}
	removed := map[store.Partition]bool{}
	for i := range all {
		all[i] = store.Partition{Bucket: store.BucketID{byte(draw.IntN(4))}, ID: store.PartitionID(uuid.New())}
		u.correct(t, all[i], now)
	}
	now = now.Add(time.Minute)
	for range 30 {
		u.fails = []float64{0, 0, 0.3, 1}[draw.IntN(4)]
		some := all[draw.IntN(len(all)):]
		for range draw.IntN(40) {
			p := some[draw.IntN(len(some))]
			if draw.IntN(100) == 0 {
				removed[p] = true
				r.Removed(p)
				continue
			}
			puts[p]++
			r.Put(p, fmt.Appendf(nil, "%d", puts[p]), 10, store.Timestamp(now.UnixMicro()))
		}
		now = now.Add(time.Duration(1+draw.IntN(600)) * time.Second)
		_ = r.Flush(t.Context())
		require.LessOrEqual(t, r.Counts().Partitions, int64(most))
	}
	u.fails = 0
	require.NoError(t, r.Close(t.Context()))
	named := map[store.Partition]bool{}
	for _, g := range u.groups {
		written, _, err := g.Written(t.Context(), 0)
		require.NoError(t, err)
		for _, p := range written {
			named[p] = true
		}
	}
	// Where a generation ended all were made unknown, without their names.
	flooded := func(p store.Partition) bool { return u.of(p).(*memory).book.Generation > 1 }
	exact := 0
	for _, p := range all {
		st := u.stats(t, p)
		switch {
		case removed[p]:
			require.False(t, st.Known)
			require.True(t, named[p] || flooded(p))
		case st.Known:
			require.Equal(t, puts[p], st.Puts, "of a partition that is Known")
			require.Equal(t, puts[p], st.Rows)
			exact++
		case !flooded(p):
			require.Positive(t, puts[p], "nothing was written to a partition that is unknown")
			require.True(t, named[p], "it is not among what was written, so nobody looks at it")
		}
	}
	if r.Counts().Lost == 0 {
		require.Equal(t, len(all), exact+len(removed))
	}
	return r.Counts().Lost
}

// Beyond the partitions whose names it keeps a recorder makes all those of their group of buckets unknown, also if it
// has never sent a batch of that group.
func TestTooManyUncountedMakeAllUnknown(t *testing.T) {
	for _, before := range []bool{false, true} {
		t.Run(fmt.Sprintf("batches were sent before: %v", before), func(t *testing.T) {
			const most = 10
			now := time.Unix(1e9, 0)
			clock := func() time.Time { return now }
			u := newUnsteady(seed.New(t), clock)
			r := NewRecorder(u, RecorderOptions{Every: -1, MaxPartitions: most, Now: clock})
			in := func(group byte) store.Partition {
				return store.Partition{Bucket: store.BucketID{group}, ID: store.PartitionID(uuid.New())}
			}
			quiet := []store.Partition{in(0), in(1)}
			for _, p := range quiet {
				u.correct(t, p, now)
				if before {
					r.Read(p, nil)
				}
			}
			require.NoError(t, r.Flush(t.Context()))
			for range most + namesPerPartition*most {
				r.Put(in(0), []byte("k"), 1, 1)
			}
			r.Put(in(1), []byte("k"), 1, 1)
			require.Equal(t, int64(namesPerPartition*most+1), r.Counts().Lost)
			require.NoError(t, r.Close(t.Context()))
			require.True(t, u.stats(t, quiet[0]).Known)
			require.False(t, u.stats(t, quiet[1]).Known)
		})
	}
}

// The end of a recorder sends older batches, then the present counts, and names all partitions that were not counted. A
// backend that is away is asked once, and what it did not take in time is a timeout.
func TestTheEndSendsAll(t *testing.T) {
	const most = 8
	s := &sink{fail: context.DeadlineExceeded}
	r := NewRecorder(s, RecorderOptions{Every: -1, MaxPartitions: most})
	for _, p := range partitions(most + namesPerPartition*most) {
		r.Put(p, nil, 1, 1)
	}
	require.ErrorIs(t, r.Flush(t.Context()), context.DeadlineExceeded)
	for _, p := range partitions(2 * most) { // in place of those that the batches have, and of those that they name
		r.Put(p, nil, 1, 1)
	}
	require.ErrorIs(t, r.Close(t.Context()), store.Timeout)
	require.EqualValues(t, 2, r.Counts().Failures)
	s.fail = errors.New("away")
	err := r.Close(t.Context())
	require.ErrorIs(t, err, s.fail)
	require.NotErrorIs(t, err, store.Timeout)
	require.EqualValues(t, 3, r.Counts().Failures)
	require.EqualValues(t, most+namesPerPartition*most, r.Counts().Waiting)
	s.fail = nil
	require.NoError(t, r.Close(t.Context()))
	require.Zero(t, r.Counts().Waiting)
	require.EqualValues(t, 2*most, s.puts)
}

// Writers of many partitions at once, beside flushes: each put is either flushed or known to be lost, and no more
// partitions are in memory than may be.
func TestManyWritersToManyPartitions(t *testing.T) {
	s := &sink{}
	const most, writers, each = 200, 8, 20_000
	r := NewRecorder(s, RecorderOptions{Every: time.Millisecond, MaxPartitions: most})
	all := partitions(5000)
	var g sync.WaitGroup
	for w := range writers {
		draw := rand.New(rand.NewPCG(seed.Number(t), uint64(w)))
		g.Go(func() {
			for i := range each {
				r.Put(all[draw.IntN(len(all))], []byte("key"), 10, store.Timestamp(i+1))
			}
		})
	}
	g.Wait()
	require.NoError(t, r.Close(t.Context()))
	require.Equal(t, int64(writers*each), s.puts+r.Counts().Lost)
	require.LessOrEqual(t, r.Counts().Partitions, int64(most))
	held := 0
	for i := range r.shards {
		held += len(r.shards[i].all)
		require.Equal(t, len(r.shards[i].all), r.shards[i].flushed.Len(), "all were flushed")
	}
	require.Equal(t, r.Counts().Partitions, int64(held))
	require.Equal(t, r.flushed.Load(), int64(held))
}
