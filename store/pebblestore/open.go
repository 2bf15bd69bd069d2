package pebblestore

import (
	"bytes"
	"cmp"
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

// Options of a Store. The zero value has the defaults.
type Options struct {
	// TombstoneGrace is how long tombstones and removals are kept after they were
	// stored, by the wall clock: a put that is delayed for longer may bring a deleted
	// row back. Default one hour, far above any timeout in evenkeel. Until then
	// tombstones slow reads of their range down a little.
	TombstoneGrace time.Duration
	// CacheBytes bounds Pebble's cache of blocks. Default 128 MiB.
	CacheBytes int64
	// MemTableBytes is the size of the memtable, which becomes a file when it is
	// full. Once some have been, three times that much memory stays in use: Pebble keeps
	// one for reuse, and a reference to another one; while files are written it is up to
	// five times. Default 64 MiB. It is limited to a sixteenth of the disk's reserve (but
	// 64 KiB at least), so that the store can be opened on a full disk.
	MemTableBytes int64
	// OpenTables is about how many tables the store keeps open. Default 1000, at
	// least 64. Beside them it needs some 50 file descriptors.
	OpenTables int
	// ReadOnly leaves the directory, which must be one of a store, as it is: for checks and backups.
	// What the logs have that no table has yet, and what is written, is kept in memory until Close.
	ReadOnly bool
	// Logger receives messages for operators; nil discards them.
	Logger *slog.Logger

	// NoSync acknowledges writes before they are synced: a crash loses the last
	// ones. For tests and for bulk loads that can be repeated.
	NoSync bool
	// For tests.
	fs  vfs.FS
	now func() time.Time
}

const (
	// memTablesInUse are there once some memtables have been full.
	memTablesInUse = 3

	openTables    = 1000
	minOpenTables = 64 // Pebble's own least
)

func (o Options) withDefaults() (Options, error) {
	if o.TombstoneGrace < 0 || o.CacheBytes < 0 || o.MemTableBytes < 0 {
		return o, store.Errorf(store.InvalidArgument, "a negative option")
	}
	o.fs = diskFS(o)
	o.TombstoneGrace = cmp.Or(o.TombstoneGrace, time.Hour)
	o.CacheBytes = cmp.Or(o.CacheBytes, 128<<20)
	o.MemTableBytes = cmp.Or(o.MemTableBytes, 64<<20)
	o.OpenTables = cmp.Or(o.OpenTables, openTables)
	if o.OpenTables < minOpenTables {
		return o, store.Errorf(store.InvalidArgument, "Options.OpenTables is %d: at least %d", o.OpenTables, minOpenTables)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.now == nil {
		o.now = time.Now
	}
	return o, nil
}

// Open opens the store in dir, or creates it. What root creates in a directory gets the owner of that
// directory, so that a server that runs as its owner can go on. Open fails with Unavailable if another process
// has it open, or if the disk is too full to flush the logs into tables (the error says how
// much is missing; dir is unlocked, and Open may be called again); with InvalidArgument if dir
// has other files or a newer format; with Corrupt if the store is damaged.
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
	present := false
	if o.ReadOnly {
		if present, err = readable(o.fs, dir); err != nil {
			return nil, err
		}
	} else if err := o.fs.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	var lock *pebble.Lock // nil: there is no lock file, and none may be made
	if present || !o.ReadOnly {
		if lock, err = lockDir(o.fs, dir); err != nil {
			return nil, err
		}
		defer func() {
			if err != nil {
				_ = lock.Close()
			}
		}()
	}
	format, err := checkFormat(o.fs, dir)
	if err != nil {
		return nil, err
	}

	s := &Store{dir: dir, o: o, format: format, lock: lock, quit: make(chan struct{})}
	s.locks.seed = maphash.MakeSeed()
	s.newest.step = ceilingStep
	s.disk = newDisk(o.fs, dir, o.Logger)
	if s.opening, err = newOpeningFS(o.fs, dir, o.ReadOnly); err != nil {
		return nil, err
	}
	s.fs = &guardFS{FS: s.opening, disk: s.disk}
	s.copies = newBackupFS(s.fs, o.fs)
	// Pebble takes the memory of memtables from the cache's.
	s.cache = pebble.NewCache(o.CacheBytes + memTablesInUse*s.disk.memTable(o.MemTableBytes))
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

// openPebble opens the database and loads the ceiling and the removals. If it fails, the
// database is closed.
func (s *Store) openPebble() error {
	err := guardPanic(func() (err error) {
		s.db, err = pebble.Open(s.dir, s.pebbleOptions())
		return err
	})
	if err == nil {
		err = errors.Join(s.loadCeiling(), s.loadRemovals())
	}
	// In this order, so that each write is guarded by one of the two.
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
	o.Comparer = comparerOf(s.format)
	o.FS, o.Lock, o.Cache = s.copies, s.lock, s.cache
	o.MaxOpenFiles = s.o.OpenTables
	o.MemTableSize = uint64(s.disk.memTable(s.o.MemTableBytes))
	o.DisableAutomaticCompactions = s.o.ReadOnly // their tables would lie in memory
	o.Logger = logger{s.o.Logger}
	log := s.o.Logger
	o.EventListener = &pebble.EventListener{
		BackgroundError: func(err error) {
			level := slog.LevelWarn
			if errors.Is(err, errReserved) || s.opening.full() { // refused writes, and Open, report it
				level = slog.LevelDebug
			}
			log.Log(context.Background(), level, "pebble: background work failed; it is tried again", "cause", err)
		},
		// Without a listener Pebble would end the process here. The read that
		// found the damage fails with Corrupt.
		DataCorruption: func(i pebble.DataCorruptionInfo) {
			log.Error("a file is damaged", "file", i.Path, "cause", i.Details)
		},
		WriteStallBegin: func(i pebble.WriteStallBeginInfo) { log.Warn("pebble: writes stall", "reason", i.Reason) },
		WriteStallEnd:   func() { log.Info("pebble: writes go on") },
	}
	return o
}

// blockBytes is the size of a block of a table. Larger blocks hold more groups, and a listing goes from block to block
// less often; a row that is read by itself costs more I/O where its block is not in the cache.
const blockBytes = 32 << 10

// EngineOptions returns the options of Pebble, without those that depend on the directory
// and on Options: for tools, and for benchmarks that compare with bare Pebble. They open directories of the present
// format.
func EngineOptions() *pebble.Options {
	o := &pebble.Options{
		Comparer:                    comparerOf(formatCurrent),
		FormatMajorVersion:          pebble.FormatValueSeparation,
		L0CompactionThreshold:       2,
		L0StopWritesThreshold:       64,
		MemTableStopWritesThreshold: memTablesQueued,
		LBaseMaxBytes:               64 << 20,
		MaxOpenFiles:                openTables,
	}
	for i := range o.Levels {
		o.Levels[i].BlockSize = blockBytes
		o.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
		o.Levels[i].FilterType = pebble.TableFilter
	}
	return o
}

// logger logs Pebble's messages. Each text is an attribute, so that all lines have the same
// message.
type logger struct{ log *slog.Logger }

func (l logger) Infof(format string, args ...any) {
	l.log.Debug("pebble", "says", fmt.Sprintf(format, args...))
}

func (l logger) Errorf(format string, args ...any) {
	l.log.Error("pebble", "says", fmt.Sprintf(format, args...))
}

// Fatalf must not return: Pebble relies on it. Pebble calls it when one of its invariants is
// broken, not for failed writes (guardFS stops those below Pebble). guardPanic catches the
// panic in calls of the store; in Pebble's background work it ends the process, and the next
// start recovers all acknowledged writes.
func (l logger) Fatalf(format string, args ...any) {
	msg := fmt.Sprintf(format, args...)
	l.log.Error("pebble: fatal", "says", msg)
	panic(errors.New(msg))
}

// lockDir locks the directory until the process ends.
func lockDir(fsys vfs.FS, dir string) (*pebble.Lock, error) {
	l, err := pebble.LockDirectory(dir, fsys)
	var path *fs.PathError
	if err == nil || errors.As(err, &path) || isFull(err) { // the lock file can't be created
		return l, err
	}
	return nil, store.Errorf(store.Unavailable,
		"the data directory %s is held by another process, or twice by this one: "+
			"stop the other, or choose another directory (%w)", dir, err)
}

// readable fails where a directory is no store's, and reports whether it has a lock file. A backup has none: nobody
// opens it but to read it.
func readable(fsys vfs.FS, dir string) (lock bool, err error) {
	if _, err := fsys.Stat(fsys.PathJoin(dir, FormatFile)); err != nil {
		return false, store.Errorf(store.InvalidArgument, "%s is no data directory of evenkeel: %w", dir, err)
	}
	_, err = fsys.Stat(fsys.PathJoin(dir, "LOCK"))
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// The format of a data directory. Open refuses a higher one. A directory keeps the one that it was made with, and so do
// its backups.
const (
	FormatFile    = "EVENKEEL"
	formatMagic   = "evenkeel pebblestore format "
	formatGroups  = 2 // from here on Pebble knows groups (groups.go)
	formatCurrent = formatGroups
)

// checkFormat returns the format that the format file names, or writes the file into an empty directory.
func checkFormat(fsys vfs.FS, dir string) (int, error) {
	path := fsys.PathJoin(dir, FormatFile)
	f, err := fsys.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return formatCurrent, writeFormat(fsys, dir)
	}
	if err != nil {
		return 0, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, 1024))
	if err != nil {
		return 0, err
	}
	number, ok := strings.CutPrefix(string(bytes.TrimSpace(text)), formatMagic)
	version, err := strconv.Atoi(number)
	switch {
	case !ok || err != nil || version < 1:
		return 0, store.Errorf(store.Corrupt, "%s does not name a format of evenkeel", path)
	case version > formatCurrent:
		return 0, store.Errorf(store.InvalidArgument,
			"%s was written by a newer evenkeel (format %d, this one knows up to %d): run the newer one",
			dir, version, formatCurrent)
	}
	return version, nil
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
	return markFormat(fsys, dir, formatCurrent)
}
