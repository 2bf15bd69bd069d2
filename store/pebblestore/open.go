package pebblestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/evenkeel/evenkeel/store"
)

// Options say how a directory is opened. The zero Options are right for use.
type Options struct {
	// TombstoneGrace is how long tombstones and removals are kept, by the wall
	// clock, from when they were stored: a put that was delayed for longer may
	// bring a deleted row back. Default one hour, far above any timeout in
	// evenkeel. Dead rows cost reads of their range a little until then.
	TombstoneGrace time.Duration
	// CacheBytes bounds Pebble's cache of blocks. Default 128 MiB.
	CacheBytes int64
	// MemTableBytes is how much is written before it becomes a file; twice that
	// much memory may be in use. Default 64 MiB. At most a sixteenth of the
	// reserve is taken (but 64 KiB always), so that a full disk can be opened.
	MemTableBytes int64
	// ReserveBytes is the free disk space below which puts are refused. Default
	// 1 GiB, but at most a twentieth of the disk; negative: never refuse.
	ReserveBytes int64
	// OpenTables is how many of its files the store keeps open to read them, about.
	// Default 1000, at least 64. Beside them it needs some 50 descriptors.
	OpenTables int
	// Logger gets what an operator should know. Default: nothing is logged.
	Logger *slog.Logger

	// NoSync acknowledges writes before they are synced: a crash loses the last
	// ones. For tests and for bulk loads that can be repeated.
	NoSync bool
	// For tests.
	fs           vfs.FS
	now          func() time.Time
	collectEvery time.Duration // default a minute, or a tenth of a shorter grace
	ceilingStep  store.Timestamp
}

const (
	openTables    = 1000
	minOpenTables = 64 // Pebble's own least
)

func (o Options) withDefaults() (Options, error) {
	if o.TombstoneGrace < 0 || o.CacheBytes < 0 || o.MemTableBytes < 0 {
		return o, store.Errorf(store.InvalidArgument, "a negative option")
	}
	o.fs = diskFS(o)
	if o.TombstoneGrace == 0 {
		o.TombstoneGrace = time.Hour
	}
	if o.CacheBytes == 0 {
		o.CacheBytes = 128 << 20
	}
	if o.MemTableBytes == 0 {
		o.MemTableBytes = 64 << 20
	}
	if o.OpenTables == 0 {
		o.OpenTables = openTables
	}
	if o.OpenTables < minOpenTables {
		return o, store.Errorf(store.InvalidArgument, "Options.OpenTables is %d: at least %d", o.OpenTables, minOpenTables)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.now == nil {
		o.now = time.Now
	}
	if o.collectEvery == 0 {
		o.collectEvery = max(min(time.Minute, o.TombstoneGrace/10), time.Millisecond)
	}
	return o, nil
}

// Open opens the store in dir, making it if there is none. It fails with
// Unavailable if another process has it open, or if the disk is too full to
// write what the logs hold into tables (the error says how much is missing; dir
// is let go, and Open may be called again), with InvalidArgument if dir holds
// something else or a newer format, with Corrupt if it is damaged.
func Open(dir string, o Options) (*Store, error) {
	s, err := open(dir, o)
	if err == nil {
		return s, nil
	}
	if isFull(err) && store.KindOf(err) == store.Other {
		err = fullToOpen(diskFS(o), dir, 0, err)
	}
	return nil, store.Wrap("open "+dir, translate(dir, err))
}

func open(dir string, o Options) (_ *Store, err error) {
	if o, err = o.withDefaults(); err != nil {
		return nil, err
	}
	if err := o.fs.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	lock, err := lockDir(o.fs, dir)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = lock.Close()
		}
	}()
	if err := checkFormat(o.fs, dir); err != nil {
		return nil, err
	}

	s := &Store{dir: dir, o: o, lock: lock, quit: make(chan struct{})}
	s.locks.seed = maphash.MakeSeed()
	s.disk = newDisk(o.fs, dir, o.ReserveBytes, o.Logger)
	s.opening = newOpeningFS(o.fs, dir)
	s.fs = &guardFS{FS: s.opening, disk: s.disk}
	s.copies = newBackupFS(s.fs, o.fs)
	s.cache = pebble.NewCache(o.CacheBytes)
	defer func() {
		if err != nil {
			s.cache.Unref()
		}
	}()
	if err := s.openPebble(); err != nil {
		return nil, err
	}
	s.syncer = newSyncer(s.disk.fail)
	s.grouper = newGrouper(s)
	s.background.Add(1)
	go s.collectLoop()
	return s, nil
}

// openPebble opens the database and loads what is kept in memory of it. If it
// fails, the database is closed again.
func (s *Store) openPebble() error {
	err := guardPanic(func() (err error) {
		s.db, err = pebble.Open(s.dir, s.pebbleOptions())
		return err
	})
	if err == nil {
		err = errors.Join(s.loadCeiling(), s.loadRemovals())
	}
	// In this order: of a write in between, one of the two takes care.
	s.fs.open.Store(true)
	full := s.opening.settle()
	if err == nil && full == nil {
		return nil
	}
	if s.db != nil {
		err = errors.Join(err, guardPanic(s.db.Close))
	}
	if full == nil {
		return err
	}
	s.opening.undo()
	return fullToOpen(s.o.fs, s.dir, s.opening.needs, full)
}

// pebbleOptions are chosen for short slices and point reads of small rows.
func (s *Store) pebbleOptions() *pebble.Options {
	o := EngineOptions()
	o.FS, o.Lock, o.Cache = s.copies, s.lock, s.cache
	o.MaxOpenFiles = s.o.OpenTables
	o.MemTableSize = uint64(s.disk.memTable(s.o.MemTableBytes))
	o.Logger = logger{s.o.Logger}
	log := s.o.Logger
	o.EventListener = &pebble.EventListener{
		BackgroundError: func(err error) {
			level := slog.LevelWarn
			if errors.Is(err, errReserved) || s.opening.full() { // refused writes, and Open, say so
				level = slog.LevelDebug
			}
			log.Log(context.Background(), level, "pebble: background work failed; it is tried again", "cause", err)
		},
		// Without a listener Pebble would end the process here. The read that
		// found the damage answers Corrupt.
		DataCorruption:  func(i pebble.DataCorruptionInfo) { log.Error("a file is damaged", "file", i.Path, "cause", i.Details) },
		WriteStallBegin: func(i pebble.WriteStallBeginInfo) { log.Warn("pebble: writes stall", "reason", i.Reason) },
		WriteStallEnd:   func() { log.Info("pebble: writes go on") },
	}
	return o
}

// EngineOptions are the options under which Pebble runs, but for those that say
// where and with how much memory: for tools, and for benchmarks that compare
// with bare Pebble.
func EngineOptions() *pebble.Options {
	o := &pebble.Options{
		FormatMajorVersion:          pebble.FormatValueSeparation,
		L0CompactionThreshold:       2,
		L0StopWritesThreshold:       64,
		MemTableStopWritesThreshold: memTablesQueued,
		LBaseMaxBytes:               64 << 20,
		MaxOpenFiles:                openTables,
	}
	for i := range o.Levels {
		o.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
		o.Levels[i].FilterType = pebble.TableFilter
	}
	return o
}

// logger hands Pebble's messages on. What they are made of is beside a message of ours: lines
// are told apart by it.
type logger struct{ log *slog.Logger }

func (l logger) Infof(format string, args ...any) {
	l.log.Debug("pebble", "says", fmt.Sprintf(format, args...))
}

func (l logger) Errorf(format string, args ...any) {
	l.log.Error("pebble", "says", fmt.Sprintf(format, args...))
}

// Fatalf must not return: Pebble relies on it. Failed writes do not get here
// (guardFS stops them below Pebble), only a broken invariant of Pebble's own
// does. In a call of ours guardPanic catches it; in Pebble's background work it
// ends the process, and the next start recovers what was acknowledged.
func (l logger) Fatalf(format string, args ...any) {
	msg := fmt.Sprintf(format, args...)
	l.log.Error("pebble: fatal", "says", msg)
	panic(errors.New(msg))
}

// lockDir takes the directory, for as long as the process lives at most.
func lockDir(fsys vfs.FS, dir string) (*pebble.Lock, error) {
	l, err := pebble.LockDirectory(dir, fsys)
	var path *fs.PathError
	switch {
	case err == nil:
		return l, nil
	case errors.As(err, &path), isFull(err): // the lock file itself can't be made
		return nil, err
	}
	return nil, store.Errorf(store.Unavailable,
		"the data directory %s is held by another process, or twice by this one: stop the other, or choose another directory (%w)", dir, err)
}

// The format of a data directory. A higher one is refused.
const (
	FormatFile    = "EVENKEEL"
	formatMagic   = "evenkeel pebblestore format "
	formatCurrent = 1
)

// checkFormat reads the marker, or writes it into an empty directory.
func checkFormat(fsys vfs.FS, dir string) error {
	path := fsys.PathJoin(dir, FormatFile)
	f, err := fsys.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return writeFormat(fsys, dir)
	}
	if err != nil {
		return err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, 1024))
	if err != nil {
		return err
	}
	number, ok := strings.CutPrefix(string(bytes.TrimSpace(text)), formatMagic)
	version, err := strconv.Atoi(number)
	switch {
	case !ok || err != nil || version < 1:
		return store.Errorf(store.Corrupt, "%s does not name a format of evenkeel", path)
	case version > formatCurrent:
		return store.Errorf(store.InvalidArgument,
			"%s was written by a newer evenkeel (format %d, this one knows up to %d): run the newer one", dir, version, formatCurrent)
	}
	return nil
}

func writeFormat(fsys vfs.FS, dir string) error {
	names, err := fsys.List(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		switch name {
		case "LOCK", FormatFile + ".new", "lost+found":
		default:
			return store.Errorf(store.InvalidArgument,
				"%s holds something else (%s, but no file %s): choose an empty or a new directory", dir, name, FormatFile)
		}
	}
	return markFormat(fsys, dir)
}
