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

	"github.com/evenkeel/evenkeel/store"
)

// Flusher is what a Recorder needs of a Backend.
type Flusher interface {
	Flush(ctx context.Context, b *Batch) ([]Hint, error)
	Forget(ctx context.Context, partitions ...store.Partition) error
}

// Grouper is a Flusher whose batches have partitions of one group of buckets each. The batches
// of each group are numbered by themselves.
type Grouper interface {
	// Group returns the group of a bucket.
	Group(id store.BucketID) int
}

// RecorderOptions are options of a Recorder. The zero value has the defaults.
type RecorderOptions struct {
	// Every is the interval of flushes, default 1 s; if negative only Flush flushes.
	Every time.Duration
	// Timeout bounds one flush, default 5 s. No write waits for it.
	Timeout time.Duration
	// MaxPartitions bounds the partitions in memory, default 65,536: those that wait for a flush, and, as far as there
	// is room, those that were flushed last. As many again may be on their way to the backend. Writes to more, between
	// two successful flushes, are not counted: the backend is told their partitions, which are not Known then. The
	// names of four times as many partitions are kept for that; beyond it no partition of their group of buckets is
	// Known.
	MaxPartitions int
	// MaxBytes bounds, roughly, the memory of sampled keys that were not flushed, default 64
	// MiB. Beyond it writes are counted without sampling their keys.
	MaxBytes int64
	// Logger receives a message when flushes begin to fail and when they work again; nil
	// discards them.
	Logger *slog.Logger
	// Now is the wall clock, default time.Now.
	Now func() time.Time
}

// RecorderCounts are a recorder's own counts since it was made.
type RecorderCounts struct {
	// Batches were flushed; Failures are flushes that failed.
	Batches, Failures int64
	// Lost requests were not counted, for lack of memory; partitions with lost writes are not Known until they are
	// recounted. Blind writes were counted without sampling their keys.
	Lost, Blind int64
	// Partitions are in memory at present. Waiting are those of which the backend is to be told something: counts, or
	// that some are lost.
	Partitions, Waiting int64
}

// Recorder counts acknowledged writes per partition and flushes the counts. Its methods are
// safe for concurrent use. Put, Delete and Read take tens of nanoseconds, never wait for I/O,
// and do not keep the key.
type Recorder struct {
	to     Flusher
	o      RecorderOptions
	shards [recorderShards]shard

	partitions, bytes             atomic.Int64
	flushed                       atomic.Int64 // partitions in memory that may make room for others
	lost, blind, batches, failing atomic.Int64
	failures                      atomic.Int64

	flushing sync.Mutex // held during a flush
	client   uuid.UUID
	group    func(store.BucketID) int
	sent     map[int]*sequence // by group
	inflight []*Batch          // closed and not known to be applied, in order
	last     time.Time         // of the last batch that was applied
	begun    time.Time         // when recording for the next batch began
	rounds   int

	telling sync.Mutex
	removed []store.Partition // to be forgotten at the next flush
	// uncounted are the partitions with writes that were not counted. Where there is no room for another name, its whole
	// group of buckets is uncounted: flooded has one partition of each such group.
	uncounted map[store.Partition]struct{}
	flooded   map[int]store.Partition

	quit   chan struct{}
	closed sync.Once
	done   sync.WaitGroup
}

const (
	recorderShards = 32
	// batchBytes is about how large batches are; a delta is never divided.
	batchBytes = 256 << 10
	// deltaBytes is about how large a delta without keys is.
	deltaBytes = 100
	// newNameAfter is the time without a batch after which a recorder takes a new id; see
	// forgetClient.
	newNameAfter = time.Hour
	// idleRounds is the number of flushes after which a partition without writes is dropped.
	idleRounds = 600
)

// sequence is the last batch of a group: its number and its partitions.
type sequence struct {
	seq  uint64
	had  []store.PartitionID
	open *Batch // while batches are collected
	size int
}

type shard struct {
	mu      sync.Mutex
	all     map[store.PartitionID]*pending
	touched []*pending
	// flushed are those of all that were not touched since they were flushed, oldest first. What is known of them is a
	// cache: they make room for others.
	flushed *simplelru.LRU[store.PartitionID, *pending]
	free    []Sample
	_       [56]byte // so that two shards share no cache line
}

// pending is the state of a partition in a recorder.
type pending struct {
	Delta
	touched bool
	top     []byte // the highest key ever seen
	// Concurrent appends do not end in order. So a put is an append if it is above the
	// highest key of some puts before: base. mark is the next base, taken since puts ago.
	base, mark []byte
	since      int
	below      uint64 // what the backend's sample is limited to
	used       int    // the round of its last write
	// skip is after how many requests the next one is sampled; lot draws it.
	skip int
	lot  uint64
}

// NewRecorder makes a recorder and, unless o.Every is negative, starts flushing until Close.
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
		// It never is full before the recorder is; its size is positive.
		r.shards[i].flushed, _ = simplelru.NewLRU[store.PartitionID, *pending](o.MaxPartitions, nil)
	}
	if o.Every > 0 {
		r.done.Go(r.run)
	}
	return r
}

// Put records the put of an entry with size bytes of key and value, at its timestamp.
func (r *Recorder) Put(p store.Partition, key []byte, size int, at store.Timestamp) {
	hash := hashOf(key)
	s := r.shard(p.ID)
	s.mu.Lock()
	if x := r.touch(s, p); x != nil {
		x.Puts++
		x.PutBytes += int64(size)
		cut := key[:min(len(key), maxTop)]
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
		if hash < x.Sample.below {
			r.sample(x, hash, key, at, uint32(min(size, math.MaxUint32)), present|written)
		}
		x.ask(key)
	} else {
		r.miss(p)
	}
	s.mu.Unlock()
}

// sideBySide is more than the number of concurrent puts.
const sideBySide = 512

// remark advances base and mark.
func (x *pending) remark() {
	x.base, x.mark = append(x.base[:0], x.mark...), append(x.mark[:0], x.top...)
	x.since = 0
}

// Delete records the deletion of an entry, by a marker if its range moves.
func (r *Recorder) Delete(p store.Partition, key []byte, at store.Timestamp, marker bool) {
	hash := hashOf(key)
	s := r.shard(p.ID)
	s.mu.Lock()
	if x := r.touch(s, p); x != nil {
		x.Deletes++
		if marker {
			x.Markers++
		}
		if hash < x.Sample.below {
			r.sample(x, hash, key, at, 0, 0)
		}
		x.ask(key)
	} else {
		r.miss(p)
	}
	s.mu.Unlock()
}

// Read records a read of an entry, or of a page from a key on (empty: from the beginning of the range).
func (r *Recorder) Read(p store.Partition, key []byte) {
	s := r.shard(p.ID)
	s.mu.Lock()
	if x := r.touch(s, p); x != nil {
		x.Reads++
		x.ask(key)
	}
	s.mu.Unlock()
}

// RemovedDeletes is how many deletes Removed counts: the store reads over what it hid like over so many tombstones.
const RemovedDeletes = 1000

// Removed records that many entries of a partition were deleted at once: its counts are dropped, so that it is counted
// again, but for RemovedDeletes.
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

// forgetRemoved drops the counts of what Removed recorded.
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

// shard: partition ids are random, so a byte of them is a hash.
func (r *Recorder) shard(id store.PartitionID) *shard { return &r.shards[id[15]%recorderShards] }

func (r *Recorder) sample(x *pending, hash uint64, key []byte, at store.Timestamp, size uint32, is flags) {
	if x.Blind {
		r.blind.Add(1)
		return
	}
	before := x.Sample.size()
	x.Sample.write(hash, key, at, size, is)
	if grown := x.Sample.size() - before; grown != 0 && r.bytes.Add(int64(grown)) > r.o.MaxBytes {
		x.Blind = true
		r.blind.Add(1)
	}
}

// Counts returns the recorder's own counts.
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

// report logs when flushes begin to fail, and when they work again.
func (r *Recorder) report(err error) {
	switch {
	case err != nil && r.failing.Swap(1) == 0:
		r.o.Logger.Warn("sizes of partitions can't be counted for now; writes go on, counts are kept in memory", "error", err)
	case err == nil && r.failing.Swap(0) == 1:
		r.o.Logger.Info("sizes of partitions are counted again")
	}
}

// Flush sends everything recorded so far to the backend. If it fails, what was not applied is
// kept for the next Flush.
func (r *Recorder) Flush(ctx context.Context) error {
	r.flushing.Lock()
	defer r.flushing.Unlock()
	r.rounds++
	// First: what is written to them since then shows that they are to be looked at.
	if err := r.forgetRemoved(ctx); err != nil {
		r.failures.Add(1)
		return store.Wrap("flush counts", err)
	}
	if len(r.inflight) == 0 { // else the backend is away: keep adding up in place
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

// collect closes batches over all that was touched.
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
			r.bytes.Add(-int64(x.Sample.size()))
			d := x.Delta
			d.Top = bytes.Clone(d.Top)
			if d.Blind {
				d.Sample.reset(math.MaxUint64)
			}
			q.open.Deltas = append(q.open.Deltas, d)
			q.size += deltaBytes + len(d.Sample.keys) + 24*d.Sample.n
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

// batch returns the open batch of a group, a new one if there is none with room.
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

func (r *Recorder) sequence(group int) *sequence {
	q := r.sent[group]
	if q == nil {
		q = &sequence{}
		r.sent[group] = q
	}
	return q
}

// close notes what the open batch has, for the next one.
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

// take applies hints.
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

// recycle keeps the memory of a batch's samples for the next ones.
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

// forgetIdle drops partitions without recent writes.
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

// Close flushes within ctx and stops the recorder. What is recorded later is lost.
func (r *Recorder) Close(ctx context.Context) error {
	r.closed.Do(func() { close(r.quit) })
	r.done.Wait()
	err := r.Flush(ctx)
	for range namesPerPartition + 1 {
		if err != nil || r.Counts().Waiting == 0 {
			break
		}
		err = r.Flush(ctx) // older ones were sent first
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return store.Errorf(store.Timeout, "the last counts were not taken in time: %w", err)
	}
	return err
}
