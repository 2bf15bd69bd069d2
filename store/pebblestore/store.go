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

	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/wait"
)

var (
	_ store.Store           = (*Store)(nil)
	_ store.PartitionLister = (*Store)(nil)
	_ store.Backupper       = (*Store)(nil)
	_ store.Writable        = (*Store)(nil)
)

// Store is an open data directory. All methods are safe for concurrent use.
type Store struct {
	dir    string
	o      Options
	format int // of the directory
	db     *pebble.DB
	lock   *pebble.Lock // nil: read only, and without a lock file
	disk   *disk
	fs     *guardFS
	cache  *pebble.Cache
	syncer syncer
	// grouper passes its batches to the syncer, so it is stopped first.
	grouper  *grouper
	barriers wait.Rounds[struct{}] // syncs that readers wait for

	opening *openingFS
	copies  *backupFS
	backups sync.Mutex // held during a backup

	locks    locks
	removals removals
	newest   newest
	rowBytes atomic.Int64 // mean size of the rows of a recent slice, to size the next arena
	jumps    jumps

	// gate is held shared by each call under way, and exclusively by Close.
	gate    sync.RWMutex
	closing sync.Once

	quit       chan struct{} // closed when background work must end
	background sync.WaitGroup
}

// enter begins a call with valid arguments; leave ends it.
func (s *Store) enter(ctx context.Context, invalid error) error {
	if err := cmp.Or(invalid, ctx.Err()); err != nil {
		return err
	}
	if !s.gate.TryRLock() { // it fails only once Close has begun
		return store.Wrap(s.dir, store.ErrClosed)
	}
	return nil
}

func (s *Store) leave() { s.gate.RUnlock() }

// enterWrite is enter for a write; why and bytes as in disk.admit.
func (s *Store) enterWrite(ctx context.Context, invalid error, why purpose, bytes int) error {
	if err := s.enter(ctx, invalid); err != nil {
		return err
	}
	if err := s.disk.admit(why, bytes); err != nil {
		s.leave()
		return err
	}
	return nil
}

// Writable implements store.Writable.
func (s *Store) Writable() error {
	if err := s.enterWrite(context.Background(), nil, adds, 0); err != nil {
		return s.translate(err)
	}
	s.leave()
	return nil
}

// Close waits for calls under way, ends all background work and syncs. Later calls fail with
// Unavailable. Where writes wait for disk space or have failed, Close fails with Unavailable:
// acknowledged writes are safe, and the directory stays locked until the process ends. Closing
// again does nothing.
func (s *Store) Close() (err error) {
	s.closing.Do(func() { err = store.Wrap("close "+s.dir, s.translate(s.close())) })
	return err
}

// close takes the gate and keeps it, so that no call enters again.
func (s *Store) close() error {
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

// Metrics returns the metrics of Pebble; nil after Close.
func (s *Store) Metrics() *pebble.Metrics {
	if !s.gate.TryRLock() {
		return nil
	}
	defer s.leave()
	return s.db.Metrics()
}

// guardPanic turns panics of Pebble into errors. Pebble panics after errors from which it can't
// recover; guardFS prevents those, so this is a last resort.
func guardPanic(f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("pebble: %v", r)
		}
	}()
	return f()
}

// translate gives errors of Pebble and of the system their kind, and adds the name of a damaged
// file.
func (s *Store) translate(err error) error { return translate(s.dir, err) }

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

// wrap adds the operation and its subject to an error.
func (s *Store) wrap(op string, subject fmt.Stringer, err error) error {
	if err == nil {
		return nil
	}
	return store.Wrap(op+" "+subject.String(), s.translate(err))
}

// read returns a copy of a stored value, or nil if there is none.
func (s *Store) read(phys []byte) ([]byte, error) {
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
