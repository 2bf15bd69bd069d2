package pebblestore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/evenkeel/evenkeel/internal/wait"
	"github.com/evenkeel/evenkeel/store"
)

// Store is an open data directory of the embedded store, which keeps rows, registers and map nodes in a Pebble
// database. Open opens it. All methods are safe for concurrent use.
type Store interface {
	store.Store
	store.PartitionLister
	store.OnDisk
	// PutThen puts rows like Put, for callers that give up early but must know when the write has ended. It returns at
	// the latest when ctx ends, whatever delays the write.
	//
	// The function ended is called exactly once, when the write has been refused or applied, perhaps after PutThen has
	// returned. It must return at once. Writes that begin after the call of ended come later in the order of writes.
	PutThen(ctx context.Context, p store.Partition, ended func(), rows ...store.Row) error
	// Metrics returns the metrics of the Pebble database, or nil after Close.
	Metrics() *pebble.Metrics
}

// directory is an open data directory. Its exported methods are those of Store.
type directory struct {
	dir    string
	o      Options
	format int // the format of the directory
	db     *pebble.DB
	lock   *pebble.Lock // nil: the store is read only, and there is no lock file
	disk   *disk
	fs     *guardFS
	cache  *pebble.Cache
	syncer syncer
	// grouper passes its batches to the syncer, so it is stopped first.
	grouper  *grouper
	barriers wait.Rounds[struct{}] // the syncs for which readers wait

	opening *openingFS
	copies  *backupFS
	backups sync.Mutex // held during a backup

	locks    locks
	removals removals
	newest   newest
	rowBytes atomic.Int64 // mean size of the rows of a recent slice, to size the next arena
	jumps    jumps

	// gate makes Close wait for other calls: each call under way holds gate shared, and Close takes it exclusively.
	gate    sync.RWMutex
	closing sync.Once

	quit       chan struct{} // closed when background work must end
	background sync.WaitGroup
}

// enter begins a call of a method of the store, and leave ends the call; Close waits for calls in between. enter
// returns an error, and the call must not begin, if
//   - invalid, the result of the check of the arguments, is an error,
//   - ctx has ended, or
//   - the store is closed (ErrClosed).
func (s *directory) enter(ctx context.Context, invalid error) error {
	if err := cmp.Or(invalid, ctx.Err()); err != nil {
		return err
	}
	if !s.gate.TryRLock() { // it fails only once Close has begun
		return store.Wrap(s.dir, store.ErrClosed)
	}
	return nil
}

func (s *directory) leave() { s.gate.RUnlock() }

// enterWrite begins a call that writes, and leave ends the call. The parameter why is the purpose of the write, such as
// a put of a client, and bytes is about the number of bytes that the write adds. enterWrite returns an error, and the
// call must not begin, if
//   - invalid, the result of the check of the arguments, is an error,
//   - ctx has ended,
//   - the store is closed (ErrClosed), or
//   - the store can't write at present, e.g. since the disk is too full (an Unavailable error).
func (s *directory) enterWrite(ctx context.Context, invalid error, why purpose, bytes int) error {
	if err := s.enter(ctx, invalid); err != nil {
		return err
	}
	if err := s.disk.admit(why, bytes); err != nil {
		s.leave()
		return err
	}
	return nil
}

// Writable returns nil if the store accepts puts of clients at present, else an error with the reason, such as a full
// disk. It implements store.Writable.
func (s *directory) Writable() error {
	if err := s.enterWrite(context.Background(), nil, adds, 0); err != nil {
		return s.translate(err)
	}
	s.leave()
	return nil
}

// Close waits for calls under way, ends all background work and syncs. Later calls fail with Unavailable. Closing again
// does nothing. If writes wait for disk space, or have failed, Close itself fails with Unavailable. Acknowledged writes
// are safe then, and the directory stays locked until the process ends.
func (s *directory) Close() (err error) {
	s.closing.Do(func() { err = store.Wrap("close "+s.dir, s.translate(s.close())) })
	return err
}

// close does the work of Close. It takes the exclusive lock s.gate, which waits for calls under way. It never releases
// the lock, so that no call begins again.
func (s *directory) close() error {
	end := func(f func() error) error {
		done := make(chan error, 1)
		go func() { done <- f() }()
		select {
		case err := <-done:
			return err
		case <-s.disk.troubled():
			err := s.disk.trouble()
			s.disk.abandon()
			return err
		}
	}
	close(s.quit)
	close(s.disk.ending)
	if err := end(func() error { s.gate.Lock(); return nil }); err != nil {
		return err
	}
	if err := end(func() error { s.background.Wait(); s.grouper.stop(); s.syncer.stop(); return nil }); err != nil {
		return err
	}
	if err := end(func() error { return guardPanic(s.db.Close) }); err != nil {
		return err
	}
	s.cache.Unref()
	if s.lock == nil {
		return nil
	}
	return s.lock.Close()
}

func (s *directory) Metrics() *pebble.Metrics {
	if !s.gate.TryRLock() {
		return nil
	}
	defer s.leave()
	return s.db.Metrics()
}

// guardPanic runs f and returns its error, or a panic of Pebble as an error. Pebble panics after errors from which it
// can't recover. The file system guardFS prevents such errors, so guardPanic is a last resort.
func guardPanic(f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("pebble: %v", r)
		}
	}()
	return f()
}

// translate returns err, an error of Pebble or of the operating system, as an error with a store.Kind. The error of
// damaged data also names the file.
func (s *directory) translate(err error) error { return translate(s.dir, err) }

func translate(dir string, err error) error {
	switch {
	case err == nil:
		return nil
	case store.KindOf(err) != store.Other:
		return err
	case pebble.IsCorruptionError(err):
		where := dir
		if info := pebble.ExtractDataCorruptionInfo(err); info != nil {
			where = info.Path
		}
		return store.Errorf(store.Corrupt, "%s is damaged: %w", where, err)
	case isFull(err):
		return store.Errorf(store.Unavailable, "disk full: free space under %s: %w", dir, err)
	case isShortage(err):
		return store.Errorf(store.Unavailable, "%w%s", err, remedy(err))
	}
	return store.Errorf(store.Unavailable, "%w", err)
}

// wrap returns err with the name op of the failed operation and its subject, such as a partition. It returns nil if err
// is nil.
func (s *directory) wrap(op string, subject fmt.Stringer, err error) error {
	if err == nil {
		return nil
	}
	return store.Wrap(op+" "+subject.String(), s.translate(err))
}

// read returns a copy of the value that Pebble has stored under the key phys, or nil if the key is not stored.
func (s *directory) read(phys []byte) ([]byte, error) {
	v, closer, err := s.db.Get(phys)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer closer.Close()
	return append([]byte{}, v...), nil
}

func diskFS(o Options) vfs.FS {
	if o.fs != nil {
		return o.fs
	}
	return owned(vfs.Default)
}
