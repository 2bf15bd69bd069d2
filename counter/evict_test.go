package counter

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/store"
)

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
