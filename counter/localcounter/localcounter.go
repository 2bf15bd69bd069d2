// Package localcounter keeps counts in a directory of one process. The states of all partitions are in memory. Every
// change is appended to one file, which is rewritten when most of it is out of date.
//
// The file is a sequence of frames, each with its length and a checksum. If a frame is damaged, only the frames before
// it are used. Then no count is Known until a recount, since nobody knows what the lost frames had.
package localcounter

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/internal/countbook"
	"github.com/evenkeel/evenkeel/internal/storekit"
	"github.com/evenkeel/evenkeel/store"
)

// Options are the options of a Backend that keeps counts in a local directory. The zero value stands for the defaults.
type Options struct {
	// Logger receives messages for operators; nil discards them.
	Logger *slog.Logger

	// The rest is for tests: noSync saves the syncs of the file, and now replaces the wall clock.
	noSync bool
	now    func() time.Time
}

// compactBytes says when the file of counts is rewritten without its outdated parts: when at least so many bytes have
// been appended.
const compactBytes = 4 << 20

// backend is a counter.Backend that keeps its counts in memory and in a file in a local directory.
type backend struct {
	dir  string
	o    Options
	lock io.Closer

	mu      sync.Mutex
	book    *countbook.Book
	buckets map[store.PartitionID]store.BucketID
	// written has, for each partition, the number of the last batch of counts for that partition. Numbers count the
	// batches since this process began.
	written map[store.PartitionID]uint64
	batches uint64
	file    *os.File
	size    int64 // size of the file up to the last whole frame, bytes
	fresh   int64 // size after the last rewrite, bytes
	slack   int64 // the file is rewritten only after more than this was appended, bytes
	closed  bool
	scratch []byte
}

// These are the names of files in the directory. The counts are in fileName. A new version of this file is written
// under the name tempName, which is then changed to fileName.
const (
	fileName = "counters"
	tempName = "counters.new"
	lockName = "counters.lock"
)

// These constants are for frames, the records of the file. A frame is the length of its body (4 bytes, big-endian), the
// xxhash64 of the body (8 bytes), and the body. The first byte of the body is its kind.
const (
	frameHead = 4 + 8
	// maxFrame is the largest valid length of a frame's body, in bytes. A longer frame counts as damaged. The length is
	// far above the size of any batch of counts.
	maxFrame = 1 << 28

	kindHead   = 'h'
	kindState  = 's' // a partition and its state
	kindBatch  = 'b'
	kindForget = 'f' // a partition
)

// Open returns a backend that keeps its counts in memory and in a file in the directory dir. It creates the directory
// if necessary. One process at a time may use the directory. Open fails with
//   - Unavailable if another process has the directory open or if the disk fails, and
//   - InvalidArgument if a newer program wrote the file.
//
// A damaged file is not an error: Open uses the readable part of the file, and all partitions have to be recounted.
func Open(dir string, o Options) (counter.Backend, error) {
	b, err := start(dir, o)
	if err != nil {
		return nil, err
	}
	return b, nil
}

// start returns the backend of Open.
func start(dir string, o Options) (*backend, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.now == nil {
		o.now = time.Now
	}
	b := &backend{
		dir: dir, o: o, book: countbook.NewBook(), buckets: map[store.PartitionID]store.BucketID{},
		written: map[store.PartitionID]uint64{}, slack: compactBytes,
	}
	if err := b.open(); err != nil {
		if b.lock != nil {
			_ = b.lock.Close()
		}
		if store.KindOf(err) == store.Other {
			err = store.Errorf(store.Unavailable, "%w", err)
		}
		return nil, store.Wrap("open the counts in "+dir, err)
	}
	return b, nil
}

func (b *backend) open() error {
	if err := os.MkdirAll(b.dir, 0o700); err != nil {
		return err
	}
	lock, err := vfs.Default.Lock(filepath.Join(b.dir, lockName))
	if err != nil {
		return fmt.Errorf("another process has it open: %w", err)
	}
	b.lock = lock
	f, err := os.Open(filepath.Join(b.dir, fileName))
	if errors.Is(err, fs.ErrNotExist) {
		return b.compact()
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if err := b.load(bufio.NewReaderSize(f, 1<<20)); err != nil {
		if store.KindOf(err) == store.InvalidArgument {
			return err
		}
		b.o.Logger.Warn("the counts of partitions were damaged: all will be recounted", "dir", b.dir, "error", err)
		b.book.Generation++
	}
	return b.compact()
}

// load reads the file of counts from r to its end, and applies its frames (records with a checksum) one after the
// other. It fails with Corrupt at the first damaged frame; the frames before the damaged frame stay applied.
func (b *backend) load(r io.Reader) error {
	var head [frameHead]byte
	for {
		_, err := io.ReadFull(r, head[:])
		if err == io.EOF {
			return nil
		}
		n := binary.BigEndian.Uint32(head[:])
		if err != nil || n == 0 || n > maxFrame {
			return store.Errorf(store.Corrupt, "a frame is damaged")
		}
		body := make([]byte, n)
		if _, err := io.ReadFull(r, body); err != nil || xxhash.Sum64(body) != binary.BigEndian.Uint64(head[4:]) {
			return store.Errorf(store.Corrupt, "a frame is damaged")
		}
		if err := b.replay(body[0], body[1:]); err != nil {
			return err
		}
	}
}

func (b *backend) replay(kind byte, body []byte) error {
	switch kind {
	case kindHead:
		book, err := countbook.OpenBook(body)
		if err != nil {
			return err
		}
		book.States = b.book.States
		b.book = book
		return nil
	case kindBatch:
		var batch counter.Batch
		if err := batch.UnmarshalBinary(body); err != nil {
			return err
		}
		came := batch.At // the file does not have the time at which the batch came
		if now := b.o.now(); came.After(now) {
			came = now
		}
		b.apply(&batch, came)
		return nil
	case kindState, kindForget:
		if len(body) < storekit.PartitionBytes {
			return store.Errorf(store.Corrupt, "a frame is too short")
		}
		p := storekit.PartitionAt(body)
		if kind == kindForget {
			b.forget(p)
			return nil
		}
		s := countbook.NewState()
		if err := s.UnmarshalBinary(body[storekit.PartitionBytes:]); err != nil {
			return err
		}
		b.book.States[p.ID], b.buckets[p.ID] = s, p.Bucket
		return nil
	}
	return store.Errorf(store.InvalidArgument, "a frame of kind %q: a newer program wrote it", kind)
}

func (b *backend) apply(batch *counter.Batch, came time.Time) {
	b.book.Apply(batch, came)
	for i := range batch.Deltas {
		p := batch.Deltas[i].Partition
		b.buckets[p.ID] = p.Bucket
	}
}

func (b *backend) forget(p store.Partition) {
	delete(b.book.States, p.ID)
	delete(b.buckets, p.ID)
	delete(b.written, p.ID)
}

// Flush appends a client's batch of counts to the file, and adds the batch to the counts in memory. A batch that came
// before changes nothing. The result has one Hint (which keys to sample) for each partition of the batch. It implements
// counter.Backend.
func (b *backend) Flush(ctx context.Context, batch *counter.Batch) ([]counter.Hint, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.ready(ctx); err != nil {
		return nil, err
	}
	if !b.book.Seen(batch) {
		kept := *batch
		if b.book.Follows(batch) {
			kept.Before = nil // not needed: after a lost frame all later frames are lost, too
		}
		body, err := kept.AppendBinary(append(b.scratch[:0], kindBatch))
		if err == nil {
			err = b.append(body)
		}
		if err != nil {
			return nil, err
		}
		b.apply(batch, b.o.now())
		b.batches++
		for i := range batch.Deltas {
			b.written[batch.Deltas[i].Partition.ID] = b.batches
		}
	}
	return b.book.Hints(batch), nil
}

// Written returns the partitions that were written to after mark, and the mark for the next call. The parameter mark is
// the result of an earlier call, or 0. Only one caller may use Written: a call with a mark says that the caller has the
// partitions up to that mark, and they are forgotten. It implements counter.Backend.
func (b *backend) Written(ctx context.Context, mark uint64) ([]store.Partition, uint64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.ready(ctx); err != nil {
		return nil, mark, err
	}
	var out []store.Partition
	for id, seq := range b.written {
		if seq <= mark {
			delete(b.written, id)
			continue
		}
		out = append(out, store.Partition{Bucket: b.buckets[id], ID: id})
	}
	return out, b.batches, nil
}

// Stats returns the estimates for the given partitions, in the same order, from the counts in memory. It implements
// counter.Source.
func (b *backend) Stats(ctx context.Context, partitions []store.Partition) ([]counter.Stats, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.ready(ctx); err != nil {
		return nil, err
	}
	return b.book.Stats(partitions, b.o.now()), nil
}

// Quanta estimates how the rows of the partition p are distributed over intervals of keys, from the counts in memory.
// It implements counter.Source.
func (b *backend) Quanta(ctx context.Context, p store.Partition) ([]counter.Quantum, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.ready(ctx); err != nil {
		return nil, err
	}
	return b.book.Quanta(p), nil
}

// Correct replaces the estimate for the partition p by the result c of a recount, in memory and in the file. It
// implements counter.Backend.
func (b *backend) Correct(ctx context.Context, p store.Partition, c *counter.Count) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.ready(ctx); err != nil {
		return err
	}
	s := b.book.State(p)
	s.Correct(c, b.book.Generation)
	b.buckets[p.ID] = p.Bucket
	body, err := s.AppendBinary(storekit.AppendPartition(append(b.scratch[:0], kindState), p))
	if err != nil {
		return err
	}
	// If the append fails, the correction lasts only until the process ends.
	return b.append(body)
}

// Forget deletes the counts of partitions that no longer exist, in memory and in the file. It implements
// counter.Backend.
func (b *backend) Forget(ctx context.Context, partitions ...store.Partition) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.ready(ctx); err != nil {
		return err
	}
	for _, p := range partitions {
		if _, known := b.book.States[p.ID]; !known {
			continue
		}
		if err := b.append(storekit.AppendPartition(append(b.scratch[:0], kindForget), p)); err != nil {
			return err
		}
		b.forget(p)
	}
	return nil
}

// Close closes the file of counts and unlocks its directory. Later calls of other methods fail with Unavailable.
// Closing again does nothing. It implements counter.Backend.
func (b *backend) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil
	}
	b.closed = true
	return errors.Join(b.file.Close(), b.lock.Close())
}

func (b *backend) ready(ctx context.Context) error {
	if b.closed {
		return store.Errorf(store.Unavailable, "the counts are closed")
	}
	return store.Wrap("counts", ctx.Err())
}

// append writes one frame (a record with a checksum) with the given body to the end of the file of counts. If the write
// fails, append truncates the file to the frames before. If the truncation fails, too, the next call rewrites the file.
func (b *backend) append(body []byte) error {
	b.scratch = body[:0]
	if b.file == nil || b.size-b.fresh > max(b.slack, b.fresh) {
		if err := b.compact(); err != nil && b.file == nil {
			return store.Wrap("rewrite the counts", store.Errorf(store.Unavailable, "%w", err))
		}
	}
	err := writeFrame(b.file, body)
	if err == nil && !b.o.noSync {
		err = b.file.Sync()
	}
	if err == nil {
		b.size += int64(frameHead + len(body))
		return nil
	}
	_, serr := b.file.Seek(b.size, io.SeekStart)
	if terr := b.file.Truncate(b.size); terr != nil || serr != nil {
		_ = b.file.Close()
		b.file = nil
	}
	return store.Errorf(store.Unavailable, "append to the counts: %w", err)
}

func writeFrame(w io.Writer, body []byte) error {
	var head [frameHead]byte
	binary.BigEndian.PutUint32(head[:], uint32(len(body)))
	binary.BigEndian.PutUint64(head[4:], xxhash.Sum64(body))
	if _, err := w.Write(head[:]); err != nil {
		return err
	}
	_, err := w.Write(body)
	return err
}

// compact writes all present counts to a new file, which replaces the old file, so that the outdated parts of the old
// file go away. If compact fails, the old file stays in use.
func (b *backend) compact() (err error) {
	f, err := os.Create(filepath.Join(b.dir, tempName))
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = f.Close()
		}
	}()
	w := bufio.NewWriterSize(f, 1<<20)
	body, err := b.book.AppendHead([]byte{kindHead})
	if err == nil {
		err = writeFrame(w, body)
	}
	for id, s := range b.book.States {
		if err != nil {
			return err
		}
		p := store.Partition{Bucket: b.buckets[id], ID: id}
		if body, err = s.AppendBinary(storekit.AppendPartition(append(body[:0], kindState), p)); err == nil {
			err = writeFrame(w, body)
		}
	}
	if err == nil {
		err = w.Flush()
	}
	if err == nil && !b.o.noSync {
		err = f.Sync()
	}
	if err != nil {
		return err
	}
	size, err := f.Seek(0, io.SeekCurrent)
	if err != nil {
		return err
	}
	if err := os.Rename(filepath.Join(b.dir, tempName), filepath.Join(b.dir, fileName)); err != nil {
		return err
	}
	if b.file != nil {
		_ = b.file.Close()
	}
	b.file, b.size, b.fresh = f, size, size
	if b.o.noSync {
		return nil
	}
	// Without a sync of the directory a crash could undo the rename, and lose later frames.
	d, err := os.Open(b.dir)
	if err == nil {
		err = errors.Join(d.Sync(), d.Close())
	}
	if err != nil {
		b.o.Logger.Warn("the directory of the counts can't be synced", "error", err)
	}
	return nil
}
