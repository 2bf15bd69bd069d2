package counter

import (
	"encoding/binary"
	"math"
	"slices"
	"time"

	"github.com/evenkeel/evenkeel/internal/keysample"
	"github.com/evenkeel/evenkeel/store"
)

// A recorder keeps a bounded number of partitions in memory, and a process may write to more partitions than this
// number.
//
// The recorder's knowledge of a flushed partition is a cache: it makes room for other partitions, the oldest first.
// Only partitions with writes that are not flushed have to stay. They may fill the memory, for example while the
// backend is away. Then a write to one more partition can't be counted. The write must not be lost silently, either,
// since nobody would ever notice a size that is too small. So the partition becomes unknown, and its rows are
// recounted. For example, with room for two partitions and the backend away:
//
//	put to A     A is in memory
//	put to B     B is in memory
//	put to C     there is no room: C is uncounted, and remembered by its name
//	the backend  is back: A and B are flushed, and C is told
//	put to D     A, the oldest that was flushed, makes room
//
// The backend is told in a form that it knows from crashes: a batch with C took a number, and never came.

const (
	// namesPerPartition is the number of partitions with uncounted writes whose names are remembered, per partition
	// that may be in memory. A name takes at most a tenth of the memory of a partition.
	namesPerPartition = 4
	// namesPerBatch is the number of partitions with uncounted writes in one batch of counts. Their empty counts fill
	// the batch.
	namesPerBatch = 2000
)

// touch returns the recorder's counts of the partition p, to which the caller adds a request. s is the shard of p,
// which must be locked. If there is no memory for another partition, the result is nil. In this case the caller must
// call miss if the request is a write.
func (r *Recorder) touch(s *shard, p store.Partition) *pending {
	x, ok := s.all[p.ID]
	if !ok {
		if !r.room(s) {
			r.lost.Add(1)
			return nil
		}
		x = &pending{below: math.MaxUint64, lot: binary.BigEndian.Uint64(p.ID[:])}
		x.Partition = p
		s.all[p.ID] = x
	}
	if !x.touched {
		if s.flushed.Remove(p.ID) {
			r.flushed.Add(-1)
		}
		x.touched = true
		x.remark()
		x.skip = askedFrom + 1
		s.touched = append(s.touched, x)
		if n := len(s.free); n > 0 {
			x.Sample, s.free = s.free[n-1], s.free[:n-1]
		}
		x.Sample.keys.Reset(x.below)
	}
	return x
}

// room makes sure that one more partition may be in memory, and returns false if that is impossible. If there are
// MaxPartitions in memory already, it drops a partition whose counts were flushed. The shard s must be locked.
func (r *Recorder) room(s *shard) bool {
	// It drops the oldest of the shard s, or else one of another shard that is not locked at the moment.
	if r.partitions.Add(1) <= int64(r.o.MaxPartitions) {
		return true
	}
	if r.evict(s) {
		return true
	}
	for i := range r.shards {
		if r.flushed.Load() == 0 {
			break
		}
		if other := &r.shards[i]; other != s && other.mu.TryLock() {
			evicted := r.evict(other)
			other.mu.Unlock()
			if evicted {
				return true
			}
		}
	}
	r.partitions.Add(-1)
	return false
}

// evict drops one partition of the shard s from memory, to make room for another one. It drops the one that was flushed
// the longest ago. It returns false if the shard has none whose counts were flushed. The shard must be locked.
func (r *Recorder) evict(s *shard) bool {
	id, _, ok := s.flushed.RemoveOldest()
	if ok {
		delete(s.all, id)
		r.flushed.Add(-1)
		r.partitions.Add(-1)
	}
	return ok
}

// miss remembers that a write to the partition p was not counted, for lack of memory. The backend will be told that its
// count of p is too low. If too many partitions must be remembered, all partitions of p's group of buckets count as
// uncounted.
func (r *Recorder) miss(p store.Partition) {
	r.telling.Lock()
	defer r.telling.Unlock()
	group := r.group(p.Bucket)
	if _, all := r.flooded[group]; all {
		return
	}
	if len(r.uncounted) >= namesPerPartition*r.o.MaxPartitions {
		if _, named := r.uncounted[p]; !named {
			r.flooded[group] = p
		}
		return
	}
	r.uncounted[p] = struct{}{}
}

// admit prepares batches by which the backend learns which partitions have writes that were not counted. The backend
// then no longer trusts its counts of these partitions. The batches end at the time now.
func (r *Recorder) admit(now time.Time) {
	// A gap in the numbers of the batches looks like a crash: one batch takes a number but is never sent, and the
	// backend notices that it is missing. The batch after the gap lists, in Before, the partitions with uncounted
	// writes. It also has empty counts for each of them, so that readers of Written check these partitions.
	of := map[int][]store.Partition{}
	r.telling.Lock()
	n := 0
	for p := range r.uncounted {
		if n++; n > r.o.MaxPartitions { // batches take more memory than names
			break
		}
		group := r.group(p.Bucket)
		of[group] = append(of[group], p)
		delete(r.uncounted, p)
	}
	flooded := r.flooded
	r.flooded = map[int]store.Partition{}
	if len(r.uncounted) == 0 {
		r.uncounted = map[store.Partition]struct{}{} // frees the memory of the old map
	}
	r.telling.Unlock()
	for group, all := range of {
		for some := range slices.Chunk(all, namesPerBatch) {
			r.skip(group, 1, some, now)
		}
	}
	for group, p := range flooded {
		// The backend must know the client to notice that many of its batches are missing.
		r.skip(group, 0, []store.Partition{p}, now)
		r.skip(group, keysample.ManyMissing+1, []store.Partition{p}, now)
	}
}

// skip makes the backend no longer trust its counts of the partitions `of`. It leaves out the numbers of `missing`
// batches of counts for a group of buckets, and then opens a new batch. The backend takes the missing batches for lost.
// The field Before of the new batch says that these partitions were in the lost batches. The new batch also has empty
// counts for each of them.
//
// If missing is 0, no batch is lost: the new batch only makes the client known to the backend.
func (r *Recorder) skip(group int, missing uint64, of []store.Partition, now time.Time) {
	q := r.sequence(group)
	q.close()
	if missing > 0 {
		q.had = make([]store.PartitionID, len(of))
		for i := range of {
			q.had[i] = of[i].ID
		}
		q.seq += missing
	}
	r.batch(group, now)
	for _, p := range of {
		q.open.Deltas = append(q.open.Deltas, Delta{Partition: p, Sample: newSample()})
		q.size += deltaBytes
	}
}
