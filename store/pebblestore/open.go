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

// Options are the settings of a Store, such as the size of its cache. The zero value has the defaults.
type Options struct {
	// TombstoneGrace is how long tombstones, and removals of intervals of keys, are kept after they were stored, by the
	// wall clock. A put that is delayed for longer may bring a deleted row back. The default is one hour, far above any
	// timeout in evenkeel. While they are kept, tombstones slow down reads of the keys around them a little.
	TombstoneGrace time.Duration
	// CacheBytes is the size of Pebble's cache of blocks. The default is 128 MiB.
	CacheBytes int64
	// MemTableBytes is the size of the memtable, which becomes a file when it is full. The default is 64 MiB. Once some
	// memtables have been full, three times that much memory stays in use: Pebble keeps one memtable for reuse, and a
	// reference to another one. While files are written, the memory is up to five times the size. The size is limited
	// to a sixteenth of the disk's reserve (but 64 KiB at least), so that the store can be opened on a full disk.
	MemTableBytes int64
	// OpenTables is about the number of table files that the store keeps open. The default is 1000, the least 64. The
	// store needs some 50 file descriptors besides.
	OpenTables int
	// ReadOnly leaves the files of the directory unchanged, for checks and backups. The directory must be that of a
	// store. Writes that are only in the logs, and new writes, are kept in memory until Close.
	ReadOnly bool
	// Logger receives messages for operators; nil discards them.
	Logger *slog.Logger

	// NoSync acknowledges writes before they are synced: a crash loses the last writes. NoSync is for tests and for
	// bulk loads that can be repeated.
	NoSync bool
	// fs and now are for tests.
	fs  vfs.FS
	now func() time.Time
}

const (
	// memTablesInUse is the number of memtables whose memory stays in use once some have been full.
	memTablesInUse = 3

	openTables    = 1000
	minOpenTables = 64 // the least that Pebble accepts
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

// Open opens the store in the directory dir. If dir is missing or empty, Open creates the store. Files that root
// creates get the owner of the directory, so that a server that runs as this owner can go on. Open fails with
//   - Unavailable if another process has dir open,
//   - Unavailable if the disk is too full to flush the logs into tables. The error says how much space is missing. The
//     directory is unlocked, and Open may be called again.
//   - InvalidArgument if dir has other files or a newer format, and
//   - Corrupt if the store is damaged.
func Open(dir string, o Options) (Store, error) {
	s, err := openDirectory(dir, o)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// openDirectory does the work of Open.
func openDirectory(dir string, o Options) (*directory, error) {
	s, err := open(dir, o)
	if err == nil {
		return s, nil
	}
	if isFull(err) && store.KindOf(err) == store.Other {
		err = fullToOpen(diskFS(o), dir, 0, err)
	}
	return nil, store.Wrap("open "+dir, translate(dir, err))
}

func open(dir string, o Options) (_ *directory, err error) {
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
	if err == nil && format <= formatGroups && !o.ReadOnly {
		format += formatCurrent - formatGroups
		err = markFormat(o.fs, dir, format)
	}
	if err != nil {
		return nil, err
	}

	s := &directory{dir: dir, o: o, format: format, lock: lock, quit: make(chan struct{})}
	s.locks.seed = maphash.MakeSeed()
	s.newest.step = ceilingStep
	s.disk = newDisk(o.fs, dir, o.Logger)
	if s.opening, err = newOpeningFS(o.fs, dir, o.ReadOnly); err != nil {
		return nil, err
	}
	s.fs = &guardFS{FS: s.opening, disk: s.disk}
	s.copies = newBackupFS(s.fs, o.fs)
	// Pebble takes the memory of memtables out of the cache's.
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

// openPebble opens Pebble's database. It then loads into memory the ceiling (an upper bound of all timestamps) and the
// removals (the stored deletions of intervals of keys). After an error the database is closed.
func (s *directory) openPebble() error {
	err := guardPanic(func() (err error) {
		s.db, err = pebble.Open(s.dir, s.pebbleOptions())
		return err
	})
	if err == nil {
		err = errors.Join(s.loadCeiling(), s.loadRemovals())
	}
	// guardFS begins to guard before openingFS ends, so that each write is guarded by one of the two.
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

// pebbleOptions returns Pebble's options for this store. The options are chosen for reads of short ranges and of single
// small rows.
func (s *directory) pebbleOptions() *pebble.Options {
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
			if errors.Is(err, errReserved) || s.opening.full() { // the error of Open or of a refused write reports it
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

// blockBytes is the size in bytes of a block in a table on disk. With larger blocks, a listing that jumps over the
// versions of objects goes from block to block less often. But a read of a single row costs more I/O if the block is
// not in the cache.
const blockBytes = 32 << 10

// EngineOptions returns the options with which this package opens Pebble, except the options that depend on the
// directory and on Options. They are for tools that open a data directory with Pebble, and for benchmarks that compare
// a store with bare Pebble. Only directories of the present format can be opened with these options.
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

// logger writes Pebble's messages to a log. All its log lines have the same message, "pebble"; the text of Pebble is an
// attribute of the line.
type logger struct{ log *slog.Logger }

func (l logger) Infof(format string, args ...any) {
	l.log.Debug("pebble", "says", fmt.Sprintf(format, args...))
}

func (l logger) Errorf(format string, args ...any) {
	l.log.Error("pebble", "says", fmt.Sprintf(format, args...))
}

// Fatalf logs a message of Pebble and panics, since it must never return. Pebble calls it when one of its invariants is
// broken.
func (l logger) Fatalf(format string, args ...any) {
	// It is not called for failed writes, which guardFS hides from Pebble. In calls of the store, guardPanic catches
	// the panic. In Pebble's background work the panic ends the process, and the next start recovers all acknowledged
	// writes.
	msg := fmt.Sprintf(format, args...)
	l.log.Error("pebble: fatal", "says", msg)
	panic(errors.New(msg))
}

// lockDir locks the directory dir against other processes. The lock lasts until it is closed or the process ends.
// lockDir fails with Unavailable if the directory is locked already.
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

// readable returns an InvalidArgument error if dir is not the directory of a store. The result lock is true if the
// directory has a lock file. A backup has no lock file, since backups are opened only for reading.
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

// These constants describe the format of a data directory, which is a number in the file FormatFile. Open refuses a
// higher number than formatCurrent. In an even format Pebble knows groups of rows (groups.go), and in an odd format, of
// older directories, it does not. A backup keeps the format of its store.
//
// Open raises the format 1 to 3 and 2 to 4. Programs that know only 1 and 2 would delete bodies of objects that were
// uploaded in parts (mapclient.Client.StampsCompletions).
const (
	FormatFile    = "EVENKEEL"
	formatMagic   = "evenkeel pebblestore format "
	formatGroups  = 2
	formatCurrent = 4
)

// checkFormat returns the number of the format of the data directory dir, as the format file says. If the directory is
// empty, checkFormat first writes the format file with the present format. It fails if the format is newer than this
// program.
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
