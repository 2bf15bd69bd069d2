package pebblestore

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/evenkeel/evenkeel/store"
)

const (
	// usageEvery is how long a reading of the free space is used, unless an eighth of
	// the reserve is written sooner.
	usageEvery = 100 * time.Millisecond
	// retryEvery is the pause before a write that failed for a shortage is repeated.
	retryEvery = 50 * time.Millisecond
	// restEvery is how long compactions pause after one has reached its limit.
	restEvery = time.Second
)

// The reserve is the free space below which puts are refused, so that a store can always be
// opened again on a disk that it has filled alone: 1 GiB, but at most a twentieth of the disk.
// Moves stop at three quarters of it: one that ends gives its space back. Deletes, which need
// space before they free any, stop at a half. Compactions, which free the space, stop at a
// quarter; while one runs, deletes may be refused. The last quarter is for flushing the logs: at
// most memTablesQueued memtables, the engine's limit. So each of them is at most a sixteenth.
const (
	maxReserve      = 1 << 30
	reserveShare    = 20
	compactionShare = 4
	memTablesQueued = 4
	memTableShare   = compactionShare * memTablesQueued
	minMemTable     = 64 << 10
)

// purpose is what a write is for: it decides how much of the reserve the write may use.
type purpose uint8

const (
	adds  purpose = iota // an entry of a client
	moves                // a copy of a move, or a node of a map
	frees                // a deletion or what leads to one, or what moves can't do without: a swap
)

// keeps returns the free space that a write must leave.
func (p purpose) keeps(reserve uint64) uint64 { return reserve / 4 * (4 - uint64(p)) }

// errReserved is the error of a compaction at its limit.
var errReserved = fmt.Errorf("the disk's last space is kept for opening the store again: %w", syscall.ENOSPC)

// disk decides whether the store may write: by the free space, which it reads now and then, and
// by the errors of the file system under Pebble (guardFS).
type disk struct {
	fs      vfs.FS // the one below guardFS
	dir     string
	reserve uint64 // bytes
	log     *slog.Logger

	looked atomic.Int64  // when the free space was read, nanoseconds since began
	wrote  atomic.Int64  // bytes admitted since then
	free   atomic.Uint64 // as read then
	began  time.Time

	mu     sync.Mutex
	parked int                           // writes that wait until a shortage is over
	lack   error                         // the error of the last of them
	rest   time.Time                     // until when compactions pause
	failed error                         // what ended all writing, for good
	signal atomic.Pointer[chan struct{}] // closed while parked > 0 or failed; replaced under mu
	quit   chan struct{}                 // closed when the store gives up on parked writes
	ending chan struct{}                 // closed when Close begins
}

func newDisk(fs vfs.FS, dir string, log *slog.Logger) *disk {
	d := &disk{
		fs: fs, dir: dir, log: log, reserve: maxReserve, began: time.Now(),
		quit: make(chan struct{}), ending: make(chan struct{}),
	}
	if u, err := fs.GetDiskUsage(dir); err == nil {
		d.reserve = min(d.reserve, u.TotalBytes/reserveShare)
	}
	d.look()
	d.clearSignal()
	return d
}

// admit refuses a write when the disk is too full for it, or writing has ended. bytes is about
// how much the write adds.
func (d *disk) admit(why purpose, bytes int) error {
	select {
	case <-d.troubled():
		reason, full := d.reason()
		if full {
			return d.full(max(d.reserve, 1))
		}
		return store.Errorf(store.Unavailable, "%w: %w", store.ErrUnwritable, reason)
	default:
	}
	need := why.keeps(d.reserve) + uint64(bytes)
	if free := d.freeBytes(bytes); free < need {
		return d.full(need - free)
	}
	return nil
}

// memTable returns the size of memtables that the reserve allows.
func (d *disk) memTable(want int64) int64 {
	return min(want, max(int64(d.reserve/memTableShare), minMemTable))
}

// admitCompaction refuses a compaction's write at its limit.
func (d *disk) admitCompaction(bytes int) error {
	d.look() // each time: freeBytes does not count flushes
	if d.free.Load() >= d.reserve/compactionShare+uint64(bytes) {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.rest = time.Now().Add(restEvery)
	return errReserved
}

// full is the error of a write that is refused before it has begun.
func (d *disk) full(missing uint64) error {
	return store.Errorf(store.Unavailable, "%w: free at least %d bytes under %s", store.ErrFull, missing, d.dir)
}

func (d *disk) freeBytes(bytes int) uint64 {
	now, last := int64(time.Since(d.began)), d.looked.Load()
	much := d.wrote.Add(int64(bytes)) > int64(d.reserve/8)
	if (much || now-last >= int64(usageEvery)) && d.looked.CompareAndSwap(last, now) {
		d.look()
	}
	return d.free.Load()
}

func (d *disk) look() {
	d.wrote.Store(0)
	free := uint64(1) << 62 // enough, where it is not known, as in memory
	if u, err := d.fs.GetDiskUsage(d.dir); err == nil {
		free = u.AvailBytes
	}
	d.free.Store(free)
}

// troubled returns a channel that is closed while writes can't go on.
func (d *disk) troubled() <-chan struct{} {
	return *d.signal.Load()
}

// trouble returns the error of a call under way that writes can't go on.
func (d *disk) trouble() error {
	reason, _ := d.reason()
	return store.Errorf(store.Unavailable, "%w", reason)
}

// reason says why writes can't go on, and whether the disk is full. It may be over by now.
func (d *disk) reason() (reason error, full bool) {
	d.mu.Lock()
	failed, lack := d.failed, d.lack
	d.mu.Unlock()
	if failed != nil {
		return fmt.Errorf("%s can't be written; acknowledged writes are safe: remove the cause and restart the process: %w",
			d.dir, failed), false
	}
	if lack != nil && !isFull(lack) {
		return fmt.Errorf("%s can't be written at present; writing resumes automatically when this is over: %w%s",
			d.dir, lack, remedy(lack)), false
	}
	// Not ErrFull: the write may have been applied.
	return fmt.Errorf("disk full: free at least %d bytes under %s", max(d.reserve, 1), d.dir), true
}

// remedy returns advice against a shortage, to be appended to its error.
func remedy(lack error) string {
	switch {
	case errors.Is(lack, syscall.EMFILE):
		return " (raise the limit of open files of this process: ulimit -n)"
	case errors.Is(lack, syscall.ENFILE):
		return " (raise the limit of open files of this machine: fs.file-max)"
	}
	return ""
}

// fail ends all writing.
func (d *disk) fail(cause error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.failed != nil {
		return
	}
	d.failed = cause
	d.log.Error("the store can't write any more; restart the process", "dir", d.dir, "cause", cause)
	d.closeSignal()
}

func (d *disk) clearSignal() {
	c := make(chan struct{})
	d.signal.Store(&c)
}

func (d *disk) closeSignal() {
	c := *d.signal.Load()
	select {
	case <-c:
	default:
		close(c)
	}
}

func (d *disk) park(name string, lack error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.parked++
	d.lack = lack
	if d.parked == 1 && d.failed == nil {
		what := "disk full: writes wait for space"
		if !isFull(lack) {
			what = "writes wait until a shortage is over" + remedy(lack)
		}
		d.log.Error(what, "dir", d.dir, "file", name, "cause", lack)
	}
	d.closeSignal()
}

func (d *disk) unpark() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.parked--
	if d.parked == 0 && d.failed == nil {
		d.clearSignal()
		d.log.Info("writes go on again", "dir", d.dir)
	}
}

// persist runs a write whose failure Pebble would not survive. In a shortage it repeats the
// write until the shortage is over. Any other failure ends all writing and is never returned to
// Pebble, which would end the process while it holds locks: the calling goroutine, usually one
// of Pebble's, blocks here for good.
//
// Only writes are repeated. After a failed sync the kernel may have dropped the data that it
// could not write, so a second sync could succeed wrongly.
func (d *disk) persist(name string, again bool, write func() error) {
	err := write()
	if err == nil {
		return
	}
	if !again || !isShortage(err) {
		d.fail(fmt.Errorf("%s: %w", name, err))
		select {}
	}
	d.park(name, err)
	tick := time.NewTicker(retryEvery)
	defer tick.Stop()
	for err != nil {
		select {
		case <-tick.C:
		case <-d.quit:
			select {}
		}
		if err = write(); err != nil && !isShortage(err) {
			d.fail(fmt.Errorf("%s: %w", name, err))
			select {}
		}
	}
	d.unpark()
}

// waitForSpace delays a compaction while writes are parked or after a compaction reached its
// limit: Pebble would retry without a pause.
func (d *disk) waitForSpace() {
	for {
		d.mu.Lock()
		wait := d.parked > 0 || time.Now().Before(d.rest)
		d.mu.Unlock()
		if !wait {
			return
		}
		select {
		case <-time.After(retryEvery):
		case <-d.ending:
			return
		case <-d.quit:
			return
		}
	}
}

// abandon gives up on parked writes: their goroutines block for good.
func (d *disk) abandon() {
	d.mu.Lock()
	defer d.mu.Unlock()
	select {
	case <-d.quit:
	default:
		close(d.quit)
	}
}

// Disk returns how full the disk is; false where that is not known, or after Close.
func (s *Store) Disk() (store.DiskUsage, bool) {
	m := s.Metrics()
	if m == nil {
		return store.DiskUsage{}, false
	}
	u, err := s.o.fs.GetDiskUsage(s.dir)
	return store.DiskUsage{
		Total: u.TotalBytes, Free: u.AvailBytes, Reserve: s.disk.reserve, Store: m.DiskSpaceUsage(),
	}, err == nil
}

func isFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// isShortage reports a lack of space, descriptors or memory: the same write may succeed later.
func isShortage(err error) bool {
	return isFull(err) || errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) ||
		errors.Is(err, syscall.ENOMEM)
}

// guardFS keeps errors of writes from Pebble (see disk.persist) once the store is open. While it
// opens, errors pass through, so that Open can report them.
type guardFS struct {
	vfs.FS
	disk *disk
	open atomic.Bool
}

func (g *guardFS) Unwrap() vfs.FS { return g.FS }

// compaction is Pebble's category of files whose failure it survives: it drops them and
// retries later.
const compaction = vfs.DiskWriteCategory("pebble-compaction")

func (g *guardFS) file(name string, category vfs.DiskWriteCategory, open func() (vfs.File, error)) (vfs.File, error) {
	var f vfs.File
	var err error
	switch {
	case !g.open.Load():
		f, err = open()
	case category == compaction:
		g.disk.waitForSpace()
		f, err = open()
	default:
		g.disk.persist(name, true, func() error { f, err = open(); return err })
	}
	if err != nil {
		g.slowDown(err)
		return nil, err
	}
	if category == compaction {
		return &compactionFile{File: f, disk: g.disk}, nil
	}
	return &guardFile{File: f, fs: g, name: name}, nil
}

func (g *guardFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return g.file(name, c, func() (vfs.File, error) { return g.FS.Create(name, c) })
}

func (g *guardFS) ReuseForWrite(from, to string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return g.file(to, c, func() (vfs.File, error) { return g.FS.ReuseForWrite(from, to, c) })
}

func (g *guardFS) Open(name string, o ...vfs.OpenOption) (vfs.File, error) {
	f, err := g.FS.Open(name, o...)
	if err != nil {
		g.slowDown(err)
	}
	return f, err
}

// slowDown pauses after a shortage of descriptors or memory: Pebble's background work would
// retry without a pause.
func (g *guardFS) slowDown(err error) {
	if !g.open.Load() || !isShortage(err) || isFull(err) {
		return
	}
	select {
	case <-time.After(retryEvery):
	case <-g.disk.ending:
	}
}

func (g *guardFS) OpenDir(name string) (vfs.File, error) {
	f, err := g.FS.OpenDir(name)
	if err != nil {
		return nil, err
	}
	return &guardFile{File: f, fs: g, name: name}, nil
}

func (g *guardFS) Rename(from, to string) error {
	if !g.open.Load() {
		return g.FS.Rename(from, to)
	}
	g.disk.persist(to, true, func() error { return g.FS.Rename(from, to) })
	return nil
}

// compactionFile is a file of a compaction, which may not use all of the reserve.
type compactionFile struct {
	vfs.File
	disk *disk
}

func (f *compactionFile) Write(p []byte) (int, error) {
	if err := f.disk.admitCompaction(len(p)); err != nil {
		return 0, err
	}
	return f.File.Write(p)
}

type guardFile struct {
	vfs.File
	fs   *guardFS
	name string
}

func (f *guardFile) persist(again bool, write func() error) error {
	if !f.fs.open.Load() {
		return write()
	}
	f.fs.disk.persist(f.name, again, write)
	return nil
}

// Write continues behind the bytes that a failed attempt has written.
func (f *guardFile) Write(p []byte) (int, error) {
	done := 0
	err := f.persist(true, func() error {
		n, err := f.File.Write(p[done:])
		done += n
		return err
	})
	return done, err
}

// Preallocate is an optimisation; if there is no space, Write will report it.
func (f *guardFile) Preallocate(off, length int64) error {
	_ = f.File.Preallocate(off, length)
	return nil
}

func (f *guardFile) Sync() error     { return f.persist(false, f.File.Sync) }
func (f *guardFile) SyncData() error { return f.persist(false, f.File.SyncData) }

func (f *guardFile) SyncTo(length int64) (full bool, err error) {
	err = f.persist(false, func() error { full, err = f.File.SyncTo(length); return err })
	return full, err
}
