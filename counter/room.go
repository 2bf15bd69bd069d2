package counter

import (
	"encoding/binary"
	"math"
	"slices"
	"time"

	"github.com/evenkeel/evenkeel/store"
)

// A recorder keeps a bounded number of partitions in memory, and a process may write to more of them than that.
//
// What the recorder knows of a partition that was flushed is a cache: it makes room, the oldest first. Only partitions
// with writes that are not flushed have to stay. Where these fill the memory, as while the backend is away, a write to
// one more partition can't be counted. It must not be lost silently, either, as a size that is too small would never be
// found out. So the partition becomes unknown, and is counted anew by a look at its rows. For example, with room for
// two partitions and the backend away:
//
//	put to A     A is in memory
//	put to B     B is in memory
//	put to C     there is no room: C is uncounted, and remembered by its name
//	the backend  is back: A and B are flushed, and C is told
//	put to D     A, the oldest that was flushed, makes room
//
// The backend is told in the form that it knows from crashes: a batch with C took a number, and never came.

const (
	// namesPerPartition is the number of uncounted partitions that are remembered by name, for each one that may be in
	// memory. A name takes at most a tenth of the memory of a partition.
	namesPerPartition = 4
	// namesPerBatch is the number of uncounted partitions that one batch tells. Their empty deltas fill it.
	namesPerBatch = 2000
)

// touch returns the state of a partition, nil if there is no room for it: then what was a write is to be missed. The
// shard is locked.
func (r *Recorder) touch(s *shard, p store.Partition) *pending {
	x, ok := s.all[p.ID]
	if !ok {
		if !r.room(s) {
			r.lost.Add(1)
			return nil
		}
		x = &pending{below: math.MaxUint64, lot: binary.BigEndian.Uint64(p.ID[:8])}
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
		x.Sample.reset(x.below)
	}
	return x
}

// room takes the place of one more partition, and reports whether there was one. If all are taken, a partition that was
// flushed gives up its place: the oldest of the shard, which is locked, or else of a shard that nobody uses just now.
func (r *Recorder) room(s *shard) bool {
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

// evict drops the partition of a shard, which is locked, that was flushed the longest ago. It reports whether there was
// one.
func (r *Recorder) evict(s *shard) bool {
	id, _, ok := s.flushed.RemoveOldest()
	if ok {
		delete(s.all, id)
		r.flushed.Add(-1)
		r.partitions.Add(-1)
	}
	return ok
}

// miss notes that writes to a partition are not counted.
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

// admit tells the backend which partitions are uncounted: as the partitions of a batch that took a number but is never
// sent, so that it counts as missing. The batch after it names them, and has an empty delta of each, so that whoever
// looks at what was written looks at them.
func (r *Recorder) admit(now time.Time) {
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
		r.uncounted = map[store.Partition]struct{}{} // without the memory of the old one
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
		r.skip(group, manyMissing+1, []store.Partition{p}, now)
	}
}

// skip opens a batch of a group after a number of missing batches, whose partitions it names.
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
