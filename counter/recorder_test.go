package counter

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/keysample"
	"github.com/evenkeel/evenkeel/internal/test/race"
	"github.com/evenkeel/evenkeel/store"
)

// sink takes batches, or fails.
type sink struct {
	mu      sync.Mutex
	fail    error
	batches []uint64
	puts    int64
	hints   []Hint

	forgotten []store.Partition
}

func (s *sink) Flush(_ context.Context, b *Batch) ([]Hint, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail != nil {
		return nil, s.fail
	}
	s.batches = append(s.batches, b.Seq)
	for i := range b.Deltas {
		s.puts += b.Deltas[i].Puts
	}
	return s.hints, nil
}

func (s *sink) Forget(_ context.Context, partitions ...store.Partition) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail == nil {
		s.forgotten = append(s.forgotten, partitions...)
	}
	return s.fail
}

func partitions(n int) []store.Partition {
	all := make([]store.Partition, n)
	for i := range all {
		all[i] = store.Partition{Bucket: store.BucketID{1}, ID: store.PartitionID(uuid.New())}
	}
	return all
}

func TestNothingIsLostWhileABackendIsAway(t *testing.T) {
	s := &sink{fail: errors.New("away")}
	r := NewRecorder(s, RecorderOptions{Every: -1})
	all := partitions(100)
	n := int64(0)
	for range 20 {
		for i := range 500 {
			r.Put(all[i%100], fmt.Appendf(nil, "k%d", i), 10, store.Timestamp(i+1))
			n++
		}
		require.Error(t, r.Flush(context.Background()))
	}
	require.Equal(t, int64(20), r.Counts().Failures)
	s.fail = nil
	require.NoError(t, r.Close(context.Background()))
	require.Equal(t, n, s.puts)
	for i, seq := range s.batches {
		require.Equal(t, uint64(i+1), seq)
	}
	require.Zero(t, r.Counts().Waiting)
}

// The counts of what was deleted at once are dropped once the backend is there, before what came later counts.
func TestWhatWasRemovedIsForgotten(t *testing.T) {
	s := &sink{fail: errors.New("away")}
	r := NewRecorder(s, RecorderOptions{Every: -1, MaxPartitions: 3})
	all := partitions(5)
	for _, p := range all[:2] {
		r.Removed(p)
	}
	require.Error(t, r.Flush(t.Context()))
	r.Removed(all[2])
	r.Removed(all[3])
	require.Empty(t, s.batches)
	s.fail = nil
	require.NoError(t, r.Flush(t.Context()))
	require.Equal(t, all[:3], s.forgotten, "at most so many are remembered")
	require.NoError(t, r.Flush(t.Context()))
	require.Len(t, s.forgotten, 3, "once")
}

func TestMemoryIsBounded(t *testing.T) {
	race.Skip(t)
	s := &sink{fail: errors.New("away")}
	r := NewRecorder(s, RecorderOptions{Every: -1, MaxPartitions: 1000, MaxBytes: 1 << 20})
	all := partitions(3000)
	for i := range 300_000 {
		r.Put(all[i%3000], fmt.Appendf(nil, "some key of usual length %d", i), 10, store.Timestamp(i+1))
	}
	c := r.Counts()
	require.Equal(t, int64(1000), c.Partitions)
	require.Equal(t, int64(200_000), c.Lost)
	require.Positive(t, c.Blind)
	held := 0
	for i := range r.shards {
		for _, x := range r.shards[i].all {
			held += x.Sample.keys.Size()
		}
	}
	require.Less(t, held, 2<<20)
	s.fail = nil
	require.NoError(t, r.Flush(context.Background()))
	require.Equal(t, int64(100_000), s.puts)
	for range 2 * idleRounds {
		require.NoError(t, r.Flush(context.Background()))
	}
	require.Zero(t, r.Counts().Partitions, "idle ones are forgotten")
}

func TestManyWritersAndFlushes(t *testing.T) {
	s := &sink{}
	r := NewRecorder(s, RecorderOptions{Every: time.Millisecond})
	all := partitions(10)
	var g sync.WaitGroup
	for w := range 8 {
		g.Go(func() {
			for i := range 20_000 {
				key := fmt.Appendf(nil, "w%d/%d", w, i)
				r.Put(all[i%10], key, 10, store.Timestamp(i+1))
				r.Delete(all[i%10], key, store.Timestamp(i+2), i%2 == 0)
				r.Read(all[i%10], nil)
			}
		})
	}
	g.Wait()
	require.NoError(t, r.Close(context.Background()))
	require.NoError(t, r.Close(context.Background()), "again")
	require.Equal(t, int64(160_000), s.puts)
}

func TestARecorderThatIsBackAfterLongTakesANewName(t *testing.T) {
	s := &sink{}
	now := time.Unix(1e9, 0)
	r := NewRecorder(s, RecorderOptions{Every: -1, Now: func() time.Time { return now }})
	p := partitions(1)[0]
	for range 3 {
		r.Put(p, []byte("k"), 1, 1)
		require.NoError(t, r.Flush(context.Background()))
		now = now.Add(50 * time.Minute)
	}
	now = now.Add(time.Hour)
	r.Put(p, []byte("k"), 1, 1)
	require.NoError(t, r.Flush(context.Background()))
	require.Equal(t, []uint64{1, 2, 3, 1}, s.batches)
}

func TestRecordingAllocatesNothing(t *testing.T) {
	s := &sink{}
	r := NewRecorder(s, RecorderOptions{Every: -1})
	p := partitions(1)[0]
	keys := make([][]byte, 10_000)
	for i := range keys {
		keys[i] = fmt.Appendf(nil, "photos/2024/IMG_%08d.jpg", i*7919%10_000)
	}
	for i, k := range keys {
		r.Put(p, k, 100, store.Timestamp(i+1))
	}
	i := 0
	require.Zero(t, testing.AllocsPerRun(10_000, func() {
		i++
		r.Put(p, keys[i%len(keys)], 100, store.Timestamp(i))
		r.Delete(p, keys[i%len(keys)], store.Timestamp(i), false)
		r.Read(p, nil)
	}))
}

// Puts of new keys to a partition of which the backend has told nothing yet lower the limit of its sample many times.
// That allocates little: per put far less than once.
func TestNewKeysAllocateLittle(t *testing.T) {
	r := NewRecorder(&sink{}, RecorderOptions{Every: -1})
	p := partitions(1)[0]
	const puts = 2000
	keys := make([][]byte, puts)
	n := 0
	for i := range keys {
		keys[i] = fmt.Appendf(nil, "photos/2024/IMG_%08d.jpg", i)
	}
	require.LessOrEqual(t, testing.AllocsPerRun(20, func() {
		for _, key := range keys {
			n++
			r.Put(p, key, 100, store.Timestamp(n))
		}
		require.NoError(t, r.Flush(t.Context()))
	}), puts/10.0)
}

// BenchmarkRecord is the price of one recorded write, beside that of hashing the
// key, which is its floor: of one goroutine, and of many on one partition.
func BenchmarkRecord(b *testing.B) {
	keys := make([][]byte, 1<<14)
	for i := range keys {
		keys[i] = fmt.Appendf(nil, "photos/2024/%02d/%02d/IMG_%08d.jpg", i%12, i%28, i*7919)
	}
	all := partitions(100)
	s := &sink{}
	b.Run("hash", func(b *testing.B) {
		sum := uint64(0)
		for i := 0; b.Loop(); i++ {
			sum += keysample.Hash(keys[i%len(keys)])
		}
		_ = sum
	})
	run := func(name string, of []store.Partition, hints bool) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			r := NewRecorder(s, RecorderOptions{})
			defer r.Close(context.Background())
			if hints {
				s.hints = nil
				for _, p := range of {
					s.hints = append(s.hints, Hint{Partition: p.ID, Below: 1 << 56})
				}
				for i, p := range of {
					r.Put(p, keys[i], 1, 1)
				}
				_ = r.Flush(context.Background())
			}
			for i := 0; b.Loop(); i++ {
				r.Put(of[i%len(of)], keys[i%len(keys)], 150, store.Timestamp(i+1))
			}
			s.hints = nil
		})
	}
	run("one", all[:1], false)
	run("hundred", all, false)
	run("hundred-hinted", all, true)
	b.Run("parallel", func(b *testing.B) {
		b.ReportAllocs()
		r := NewRecorder(s, RecorderOptions{})
		defer r.Close(context.Background())
		var next atomic.Int64
		b.RunParallel(func(pb *testing.PB) {
			for i := int(next.Add(1)) * 1000; pb.Next(); i++ {
				r.Put(all[0], keys[i%len(keys)], 150, store.Timestamp(i+1))
			}
		})
	})
}

// grouped takes batches of two groups of buckets.
type grouped struct{ keeping }

func (*grouped) Group(id store.BucketID) int { return int(id[0]) % 2 }

// The batches of each group are numbered by themselves, and name the partitions of the one before.
func TestBatchesOfGroups(t *testing.T) {
	var g grouped
	now := time.Unix(1e9, 0)
	r := NewRecorder(&g, RecorderOptions{Every: -1, Now: func() time.Time { return now }})
	seed := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		for range seed.IntN(4) {
			p := store.Partition{Bucket: store.BucketID{byte(seed.IntN(4))}, ID: store.PartitionID(uuid.New())}
			r.Put(p, []byte("k"), 1, 1)
		}
		require.NoError(t, r.Flush(t.Context()))
	}
	check := func(batches []*Batch) {
		t.Helper()
		seqs, had := [2]uint64{}, [2][]store.PartitionID{}
		for _, b := range batches {
			group := g.Group(b.Deltas[0].Partition.Bucket)
			require.Equal(t, seqs[group]+1, b.Seq)
			require.Equal(t, had[group], b.Before)
			seqs[group], had[group] = b.Seq, nil
			for i := range b.Deltas {
				require.Equal(t, group, g.Group(b.Deltas[i].Partition.Bucket))
				had[group] = append(had[group], b.Deltas[i].Partition.ID)
			}
		}
		require.Positive(t, seqs[0])
		require.Positive(t, seqs[1])
	}
	check(g.batches)
	now = now.Add(2 * time.Hour) // a new name, which has sent nothing
	old := len(g.batches)
	for i := range 4 {
		r.Read(store.Partition{Bucket: store.BucketID{byte(i)}, ID: store.PartitionID{byte(i)}}, nil)
	}
	require.NoError(t, r.Flush(t.Context()))
	require.NotEqual(t, g.batches[0].Client, g.batches[old].Client)
	check(g.batches[old:])
}
