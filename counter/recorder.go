package counter

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/evenkeel/evenkeel/internal/keysample"
	"github.com/evenkeel/evenkeel/store"
)

// Flusher is the part of a Backend that a Recorder needs. The recorder sends its counts of writes and reads with Flush.
type Flusher interface {
	Flush(ctx context.Context, b *Batch) ([]Hint, error)
	Forget(ctx context.Context, partitions ...store.Partition) error
}

// Grouper is implemented by a backend of counts that divides the buckets into groups. Then all partitions of a batch of
// counts must be of the same group, and the batches of each group are numbered separately.
type Grouper interface {
	// Group returns the number of the group to which the bucket with the given id belongs.
	Group(id store.BucketID) int
}

// RecorderOptions are the options of a Recorder, such as the interval of flushes and limits of memory. The zero value
// stands for the defaults.
type RecorderOptions struct {
	// Every is the interval at which the recorder sends its counts, 1 s by default. If Every is negative, the recorder
	// sends counts only when Flush is called.
	Every time.Duration
	// Timeout is the time limit of one flush of counts, 5 s by default. No write waits for a flush.
	Timeout time.Duration
	// MaxPartitions is the largest number of partitions in memory, 65,536 by default. These are the partitions with
	// counts to be sent and, as far as there is memory, the partitions whose counts were sent last. The counts of
	// another MaxPartitions may be on their way to the backend.
	//
	// A write to a further partition, between two successful flushes, is not counted. The recorder then keeps the name
	// of the partition. The backend learns the names, and no longer trusts its counts of these partitions (Known). At
	// most four times MaxPartitions names are kept. Beyond them no partition of the same group of buckets is Known.
	MaxPartitions int
	// MaxBytes bounds, roughly, the memory for sampled keys that were not yet sent, 64 MiB by default. Beyond this
	// bound writes are counted without sampling their keys.
	MaxBytes int64
	// Logger receives a message when flushes begin to fail and when they work again. A nil Logger discards the
	// messages.
	Logger *slog.Logger
	// Now returns the wall clock; time.Now by default.
	Now func() time.Time
}

// RecorderCounts are statistics about the work of a Recorder since it was made, e.g. how many flushes failed.
type RecorderCounts struct {
	// Batches is the number of batches of counts that the backend has taken. Failures is the number of flushes that
	// failed.
	Batches, Failures int64
	// Lost is the number of requests that were not counted, for lack of memory. The counts of partitions with lost
	// writes are not trusted (Known) until these partitions are recounted. Blind is the number of writes that were
	// counted without sampling their keys.
	Lost, Blind int64
	// Partitions is the present number of partitions in memory. Waiting is the number of partitions about which the
	// backend does not know everything yet. Either their counts were not sent, or the backend was not told that some of
	// their writes are not counted.
	Partitions, Waiting int64
}

// Recorder counts acknowledged writes per partition and sends the counts to a backend about once a second. Its methods
// are safe for concurrent use. Put, Delete and Read take tens of nanoseconds, never wait for I/O, and do not keep the
// key.
type Recorder struct {
	to     Flusher
	o      RecorderOptions
	shards [recorderShards]shard

	partitions, bytes             atomic.Int64
	flushed                       atomic.Int64 // partitions in memory that may be evicted
	lost, blind, batches, failing atomic.Int64
	failures                      atomic.Int64

	flushing sync.Mutex // held during a flush
	client   uuid.UUID
	group    func(store.BucketID) int
	sent     map[int]*sequence // by group
	inflight []*Batch          // closed batches that may not be applied yet, in order
	last     time.Time         // time of the last batch that was applied
	begun    time.Time         // time at which recording for the next batch began
	rounds   int

	telling sync.Mutex
	removed []store.Partition // partitions whose counts the next flush drops
	// uncounted has the names of the partitions with writes that were not counted. flooded has the groups of buckets of
	// which all partitions count as uncounted, since there was no memory for another name: for each group, one of its
	// partitions.
	uncounted map[store.Partition]struct{}
	flooded   map[int]store.Partition

	quit   chan struct{}
	closed sync.Once
	done   sync.WaitGroup
}

const (
	recorderShards = 32
	// batchBytes is the approximate size of a batch of counts, in bytes. The counts of one partition are never divided
	// between batches.
	batchBytes = 256 << 10
	// deltaBytes is the approximate size, in bytes, of the counts of one partition without keys.
	deltaBytes = 100
	// newNameAfter is the time without a flush after which a recorder takes a new client id. The backend forgets the
	// old id later, after a day (countbook.forgetClient).
	newNameAfter = time.Hour
	// idleRounds is the number of flushes after which a partition without requests is dropped from the recorder's
	// memory.
	idleRounds = 600
)

// sequence describes the last batch of counts that a recorder made for a group of buckets: the number of the batch, its
// partitions, and the batch itself while counts are added to it.
type sequence struct {
	seq  uint64
	had  []store.PartitionID // the partitions of the last closed batch
	open *Batch              // nil unless batches are being collected
	size int                 // approximate bytes of open
}

// shard has those partitions of a recorder whose ids have the same hash, under one lock. Several shards keep concurrent
// writers from waiting for the same lock.
type shard struct {
	mu      sync.Mutex
	all     map[store.PartitionID]*pending
	touched []*pending
	// flushed has the partitions in the map all that have had no requests since their last flush, oldest first. They
	// are only a cache of what the recorder knows, so they are dropped when memory is needed for other partitions.
	flushed *simplelru.LRU[store.PartitionID, *pending]
	free    []Sample
	_       [56]byte // so that two shards share no cache line
}

// pending is what a recorder knows of one partition: the counts since the last flush, and what the recorder needs to
// count further requests.
type pending struct {
	Delta
	touched bool
	top     []byte // the highest key ever seen
	// base and mark are keys by which appends are recognized. A put counts as an append if its key is above base, which
	// was the highest key some puts ago. mark is the next base, and since is the number of puts after mark was taken.
	base, mark []byte
	since      int
	below      uint64 // the limit of the backend's sample
	used       int    // the number of the flush that last sent a delta of it
	// skip is the number of requests until the next request whose key is sampled. lot is the state of the random number
	// generator that chooses skip.
	skip int
	lot  uint64
}

// NewRecorder returns a new recorder of writes and reads, which sends its counts to the backend `to`. The recorder
// sends them in the background until Close. If o.Every is negative, it sends counts only when Flush is called.
func NewRecorder(to Flusher, o RecorderOptions) *Recorder {
	if o.Every == 0 {
		o.Every = time.Second
	}
	if o.Timeout <= 0 {
		o.Timeout = 5 * time.Second
	}
	if o.MaxPartitions <= 0 {
		o.MaxPartitions = 1 << 16
	}
	if o.MaxBytes <= 0 {
		o.MaxBytes = 64 << 20
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	r := &Recorder{
		to: to, o: o, client: uuid.New(), sent: map[int]*sequence{}, group: func(store.BucketID) int { return 0 },
		quit: make(chan struct{}), last: o.Now(),
		uncounted: map[store.Partition]struct{}{}, flooded: map[int]store.Partition{},
	}
	if g, ok := to.(Grouper); ok {
		r.group = g.Group
	}
	r.begun = r.last
	for i := range r.shards {
		r.shards[i].all = map[store.PartitionID]*pending{}
		// The cache is never full before the recorder is. NewLRU fails only for a size that is not positive.
		r.shards[i].flushed, _ = simplelru.NewLRU[store.PartitionID, *pending](o.MaxPartitions, nil)
	}
	if o.Every > 0 {
		r.done.Go(r.run)
	}
	return r
}

// Put records that an entry with the given key was put into the partition p with the timestamp `at`. size is the number
// of bytes of the key and the value.
func (r *Recorder) Put(p store.Partition, key []byte, size int, at store.Timestamp) {
	hash := keysample.Hash(key)
	s := r.shard(p.ID)
	s.mu.Lock()
	if x := r.touch(s, p); x != nil {
		x.Puts++
		x.PutBytes += int64(size)
		cut := key[:min(len(key), keysample.MaxTop)]
		higher := bytes.Compare(cut, x.top) > 0
		if len(x.base) > 0 && (higher || bytes.Compare(cut, x.base) > 0) || len(x.base) == 0 && higher && len(x.top) > 0 {
			x.Above++
		}
		if higher {
			x.top = append(x.top[:0], cut...)
			x.Top = x.top // flush makes a copy
		}
		if x.since++; x.since >= sideBySide {
			x.remark()
		}
		if hash < x.Sample.keys.Below {
			r.sample(x, hash, key, at, uint32(min(size, math.MaxUint32)), keysample.Present|keysample.Written)
		}
		x.ask(key)
	} else {
		r.miss(p)
	}
	s.mu.Unlock()
}

// sideBySide is a number of puts by which appends are recognised. A put is an append if its key is above the highest
// key of 512 puts ago, or of up to 1,024 puts ago. sideBySide is larger than the number of concurrent puts.
//
// Concurrent appends end in random order, so the key of an append may be below the highest key so far.
const sideBySide = 512

// remark updates the two keys by which appends are recognised: a put above the key `base` is an append. `base` becomes
// the key `mark`, and `mark` becomes the highest key so far.
func (x *pending) remark() {
	// The key mark was the highest key before the puts in progress.
	x.base, x.mark = append(x.base[:0], x.mark...), append(x.mark[:0], x.top...)
	x.since = 0
}

// Delete records that the entry with the given key was deleted from the partition p. `at` is the timestamp of the
// deletion. marker is true if the deletion wrote a deletion marker, because the row was moving to another partition.
func (r *Recorder) Delete(p store.Partition, key []byte, at store.Timestamp, marker bool) {
	hash := keysample.Hash(key)
	s := r.shard(p.ID)
	s.mu.Lock()
	if x := r.touch(s, p); x != nil {
		x.Deletes++
		if marker {
			x.Markers++
		}
		if hash < x.Sample.keys.Below {
			r.sample(x, hash, key, at, 0, 0)
		}
		x.ask(key)
	} else {
		r.miss(p)
	}
	s.mu.Unlock()
}

// Read records a read of the entry with the given key in the partition p. It may also be a read of a page of rows that
// begins at this key. An empty key stands for the beginning of the partition.
func (r *Recorder) Read(p store.Partition, key []byte) {
	s := r.shard(p.ID)
	s.mu.Lock()
	if x := r.touch(s, p); x != nil {
		x.Reads++
		x.ask(key)
	}
	s.mu.Unlock()
}

// RemovedDeletes is the number of deletes that are counted when all rows in an interval of keys are deleted at once
// (see Removed). To reads, such a deletion costs roughly as much as this number of tombstones.
const RemovedDeletes = 1000

// Removed records that many entries of the partition p were deleted at once. Since their number is not known, the next
// flush makes the backend drop the counts of the partition, which then has to be recounted. The load counts as that of
// 1000 deletes (RemovedDeletes).
func (r *Recorder) Removed(p store.Partition) {
	s := r.shard(p.ID)
	s.mu.Lock()
	counted := false
	if x := r.touch(s, p); x != nil {
		x.Deletes += RemovedDeletes
		counted = true
	}
	s.mu.Unlock()
	r.telling.Lock()
	if len(r.removed) < r.o.MaxPartitions {
		r.removed = append(r.removed, p)
	} else {
		counted = false
	}
	r.telling.Unlock()
	if !counted {
		r.miss(p)
	}
}

// forgetRemoved tells the backend to drop its counts of the partitions in which many entries were deleted at once (see
// Removed). If the backend fails, the next flush tells it again.
func (r *Recorder) forgetRemoved(ctx context.Context) error {
	r.telling.Lock()
	all := r.removed
	r.removed = nil
	r.telling.Unlock()
	if len(all) == 0 {
		return nil
	}
	err := r.to.Forget(ctx, all...)
	if err != nil {
		r.telling.Lock()
		defer r.telling.Unlock()
		r.removed = append(all, r.removed...)
	}
	return err
}

// shard returns the shard to which the partition with the given id belongs: a part of the recorder with a lock of its
// own. Partition ids are random, so one byte of an id is a good hash.
func (r *Recorder) shard(id store.PartitionID) *shard { return &r.shards[id[15]%recorderShards] }

// sample adds a write of a key to the sampled keys of the partition x. If all sampled keys take more memory than
// RecorderOptions.MaxBytes, the partition becomes Blind: its keys are not sampled until the next flush.
func (r *Recorder) sample(x *pending, hash uint64, key []byte, at store.Timestamp, size uint32, is keysample.Flags) {
	if x.Blind {
		r.blind.Add(1)
		return
	}
	before := x.Sample.keys.Size()
	x.Sample.keys.Write(hash, key, at, size, is)
	if grown := x.Sample.keys.Size() - before; grown != 0 && r.bytes.Add(int64(grown)) > r.o.MaxBytes {
		x.Blind = true
		r.blind.Add(1)
	}
}

// Counts returns statistics about the work of the recorder, such as the number of failed flushes, for metrics.
func (r *Recorder) Counts() RecorderCounts {
	c := RecorderCounts{
		Batches: r.batches.Load(), Failures: r.failures.Load(), Lost: r.lost.Load(), Blind: r.blind.Load(),
		Partitions: r.partitions.Load(),
	}
	for i := range r.shards {
		s := &r.shards[i]
		s.mu.Lock()
		c.Waiting += int64(len(s.touched))
		s.mu.Unlock()
	}
	r.telling.Lock()
	defer r.telling.Unlock()
	c.Waiting += int64(len(r.uncounted))
	return c
}

// run sends the counts to the backend at each interval (RecorderOptions.Every), until Close.
func (r *Recorder) run() {
	tick := time.NewTicker(r.o.Every)
	defer tick.Stop()
	for {
		select {
		case <-r.quit:
			return
		case <-tick.C:
			ctx, cancel := context.WithTimeout(context.Background(), r.o.Timeout)
			err := r.Flush(ctx)
			cancel()
			r.report(err)
		}
	}
}

// report logs a message when flushes of counts begin to fail, and another message when they work again. err is the
// result of the last flush.
func (r *Recorder) report(err error) {
	switch {
	case err != nil && r.failing.Swap(1) == 0:
		r.o.Logger.Warn("sizes of partitions can't be counted for now; writes go on, counts are kept in memory", "error", err)
	case err == nil && r.failing.Swap(0) == 1:
		r.o.Logger.Info("sizes of partitions are counted again")
	}
}

// Flush sends all counts that were recorded so far to the backend. If Flush fails, the next call sends again what the
// backend did not take.
func (r *Recorder) Flush(ctx context.Context) error {
	r.flushing.Lock()
	defer r.flushing.Unlock()
	r.rounds++
	// Forgetting comes first, so that later writes to the removed partitions show that these must be checked.
	if err := r.forgetRemoved(ctx); err != nil {
		r.failures.Add(1)
		return store.Wrap("flush counts", err)
	}
	if len(r.inflight) == 0 { // else the backend is away: go on adding to the present deltas
		r.collect()
	}
	for len(r.inflight) > 0 {
		b := r.inflight[0]
		hints, err := r.to.Flush(ctx, b)
		if err != nil {
			r.failures.Add(1)
			return store.Wrap("flush counts", err)
		}
		r.batches.Add(1)
		r.last = b.At
		r.inflight[0] = nil
		r.inflight = r.inflight[1:]
		r.take(hints)
		r.recycle(b)
		if len(r.inflight) == 0 {
			r.inflight = nil
		}
	}
	r.forgetIdle()
	return nil
}

// collect moves the counts of all partitions with new requests into batches that are ready to be sent to the backend.
func (r *Recorder) collect() {
	now := r.o.Now()
	if d := now.Sub(r.last); d > newNameAfter || d < -newNameAfter {
		r.client = uuid.New()
		clear(r.sent)
	}
	for i := range r.shards {
		s := &r.shards[i]
		s.mu.Lock()
		for _, x := range s.touched {
			q := r.batch(r.group(x.Partition.Bucket), now)
			x.touched, x.used = false, r.rounds
			r.bytes.Add(-int64(x.Sample.keys.Size()))
			d := x.Delta
			d.Top = bytes.Clone(d.Top)
			if d.Blind {
				d.Sample.keys.Reset(math.MaxUint64)
			}
			q.open.Deltas = append(q.open.Deltas, d)
			q.size += deltaBytes + len(d.Sample.keys.Keys) + 24*d.Sample.keys.N
			x.Delta = Delta{Partition: x.Partition}
			s.flushed.Add(x.Partition.ID, x)
			r.flushed.Add(1)
		}
		clear(s.touched)
		s.touched = s.touched[:0]
		s.mu.Unlock()
	}
	r.admit(now)
	for _, q := range r.sent {
		q.close()
	}
	r.begun = now
}

// batch returns the open batch of counts for a group of buckets, to which the caller adds the counts of another
// partition. If no batch is open, or if the open batch is full, it opens a new one, which ends at the time now.
func (r *Recorder) batch(group int, now time.Time) *sequence {
	q := r.sequence(group)
	if q.open != nil && q.size > batchBytes {
		q.close()
	}
	if q.open == nil {
		q.seq++
		q.open = &Batch{Client: r.client, Seq: q.seq, From: r.begun, At: now, Before: q.had}
		q.size = 0
		r.inflight = append(r.inflight, q.open)
	}
	return q
}

// sequence returns the last batch of counts that was made for the given group of buckets. For a group without a batch
// it makes an empty sequence.
func (r *Recorder) sequence(group int) *sequence {
	q := r.sent[group]
	if q == nil {
		q = &sequence{}
		r.sent[group] = q
	}
	return q
}

// close ends the open batch of counts, if there is one. The next batch lists its partitions in the field Before, so
// that the backend knows whose counts are too low if this batch is lost.
func (q *sequence) close() {
	if q.open == nil {
		return
	}
	q.had = make([]store.PartitionID, len(q.open.Deltas))
	for i := range q.open.Deltas {
		q.had[i] = q.open.Deltas[i].Partition.ID
	}
	q.open = nil
}

// take stores the answer of the backend to a batch of counts. The answer has one Hint for each partition of the batch:
// the limit of the hashes of keys to be sampled, and the highest key.
func (r *Recorder) take(hints []Hint) {
	for i := range hints {
		h := &hints[i]
		s := r.shard(h.Partition)
		s.mu.Lock()
		if x, ok := s.all[h.Partition]; ok {
			x.below = h.Below
			if bytes.Compare(h.Top, x.top) > 0 {
				x.top = append(x.top[:0], h.Top...)
			}
		}
		s.mu.Unlock()
	}
}

// recycle lets later batches reuse the memory of the batch b, which was sent: the memory of its samples of keys.
func (r *Recorder) recycle(b *Batch) {
	const most = 64 // per shard
	for i := range b.Deltas {
		d := &b.Deltas[i]
		s := r.shard(d.Partition.ID)
		s.mu.Lock()
		if len(s.free) < most {
			s.free = append(s.free, d.Sample)
		}
		s.mu.Unlock()
	}
}

// forgetIdle drops the partitions from memory that have had no requests in the last idleRounds flushes.
func (r *Recorder) forgetIdle() {
	for i := range r.shards {
		s := &r.shards[i]
		s.mu.Lock()
		for {
			_, oldest, ok := s.flushed.GetOldest()
			if !ok || r.rounds-oldest.used < idleRounds {
				break
			}
			r.evict(s)
		}
		s.mu.Unlock()
	}
}

// Close sends the last counts to the backend, until ctx ends, and stops the recorder. Requests that are recorded
// afterwards are not counted. Close fails with Timeout if the backend did not take the last counts in time.
func (r *Recorder) Close(ctx context.Context) error {
	r.closed.Do(func() { close(r.quit) })
	r.done.Wait()
	err := r.Flush(ctx)
	// The first Flush may only have sent older batches, and each further one names a part of what was not counted.
	for range namesPerPartition {
		if err != nil || r.Counts().Waiting == 0 {
			break
		}
		err = r.Flush(ctx)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return store.Errorf(store.Timeout, "the last counts were not taken in time: %w", err)
	}
	return err
}
