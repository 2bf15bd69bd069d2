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
	// usageEvery is how long one look at the free space serves, unless an eighth
	// of the reserve is written sooner.
	usageEvery = 100 * time.Millisecond
	// retryEvery is how often a write that met a shortage is tried again.
	retryEvery = 50 * time.Millisecond
	// restEvery is how long compactions rest after one has met its limit.
	restEvery = time.Second
)

// The reserve is free space that is shared out so that a disk which this store
// alone has filled can always be opened again. Puts stop at all of it. Deletes,
// which need space before they give any, stop at a half. Compactions, which give
// the space back, stop at a quarter. The last quarter is for flushing what the
// logs hold: at most memTablesQueued memtables, the engine's limit, each of
// which is therefore at most a sixteenth.
const (
	defaultReserve  = 1 << 30
	freesShare      = 2
	compactionShare = 4
	memTablesQueued = 4
	memTableShare   = compactionShare * memTablesQueued
	minMemTable     = 64 << 10
)

// errReserved is what a compaction gets at its limit.
var errReserved = fmt.Errorf("the disk's last space is kept for opening the store again: %w", syscall.ENOSPC)

// disk knows whether the store may write. It has two sources: a look at the
// free space now and then, and the file system under Pebble
// (guardFS), which reports what really failed.
type disk struct {
	fs      vfs.FS // the one below guardFS
	dir     string
	reserve uint64 // below this many free bytes nothing grows; 0: never refused
	log     *slog.Logger

	looked atomic.Int64  // when, nanoseconds since began
	wrote  atomic.Int64  // bytes admitted since then
	free   atomic.Uint64 // what was seen then
	began  time.Time

	mu     sync.Mutex
	parked int                           // writes that wait until a shortage is over
	lack   error                         // what the last of them met
	rest   time.Time                     // until when compactions rest
	failed error                         // what ended all writing, for good
	signal atomic.Pointer[chan struct{}] // closed while parked > 0 or failed; replaced under mu
	quit   chan struct{}                 // closed when the store gives up on parked writes
	ending chan struct{}                 // closed when Close begins
}

func newDisk(fs vfs.FS, dir string, reserve int64, log *slog.Logger) *disk {
	d := &disk{fs: fs, dir: dir, log: log, began: time.Now(), quit: make(chan struct{}), ending: make(chan struct{})}
	if reserve >= 0 {
		d.reserve = uint64(reserve)
	}
	if reserve == 0 {
		d.reserve = defaultReserve
		if u, err := fs.GetDiskUsage(dir); err == nil {
			d.reserve = min(d.reserve, u.TotalBytes/20)
		}
	}
	d.look()
	d.clearSignal()
	return d
}

// admit refuses a write when the disk is too full for it, or writing has ended.
// A write that frees or that moves depend on (delete, removal, swap) may use
// half of the reserve. bytes is about how much it adds.
func (d *disk) admit(frees bool, bytes int) error {
	select {
	case <-d.troubled():
		return d.trouble()
	default:
	}
	if d.reserve == 0 {
		return nil
	}
	need := d.reserve
	if frees {
		need /= freesShare
	}
	need += uint64(bytes)
	if free := d.freeBytes(bytes); free < need {
		return d.full(need - free)
	}
	return nil
}

// memTable returns the size of memtables that the reserve allows.
func (d *disk) memTable(want int64) int64 {
	if d.reserve == 0 {
		return want
	}
	return min(want, max(int64(d.reserve/memTableShare), minMemTable))
}

// admitCompaction refuses a compaction's write at its limit.
func (d *disk) admitCompaction(bytes int) error {
	if d.reserve == 0 {
		return nil
	}
	d.look() // each time: what is flushed meanwhile is not counted by freeBytes
	if d.free.Load() >= d.reserve/compactionShare+uint64(bytes) {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.rest = time.Now().Add(restEvery)
	return errReserved
}

func (d *disk) full(missing uint64) error {
	return store.Errorf(store.Unavailable, "disk full: free at least %d bytes under %s", missing, d.dir)
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
	free := uint64(1) << 62 // what can't be told, as in memory, is taken for enough
	if u, err := d.fs.GetDiskUsage(d.dir); err == nil {
		free = u.AvailBytes
	}
	d.free.Store(free)
}

// troubled returns a channel that is closed while writes can't go on.
func (d *disk) troubled() <-chan struct{} {
	return *d.signal.Load()
}

// trouble says why writes can't go on; it may be over by now.
func (d *disk) trouble() error {
	d.mu.Lock()
	failed, lack := d.failed, d.lack
	d.mu.Unlock()
	if failed != nil {
		return store.Errorf(store.Unavailable,
			"%s can't be written; what was acknowledged is safe: mend the cause and start the process anew: %w", d.dir, failed)
	}
	if lack != nil && !isFull(lack) {
		return store.Errorf(
			store.Unavailable, "%s can't be written at present; writing goes on by itself when this is over: %w%s", d.dir, lack,
			remedy(lack),
		)
	}
	return d.full(max(d.reserve, 1))
}

// remedy says what to do against a shortage.
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
	d.log.Error("the store can't write any more; start the process anew", "dir", d.dir, "cause", cause)
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

// persist runs a write of which Pebble does not survive the failure. The end of a
// shortage is waited for. Any other failure ends the store's writing and is never
// handed to Pebble, which would end the process in the middle of its locks: the
// calling goroutine, one of Pebble's own as a rule, stops here.
//
// Only writes are tried again. After a failed sync the kernel may have dropped
// what it could not write, so a second sync would lie.
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

// waitForSpace holds back a compaction that would only fill the disk further,
// or that has just found too little space: Pebble tries again without a pause.
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

// abandon stops waiting for space: the writes that do stay where they are.
func (d *disk) abandon() {
	d.mu.Lock()
	defer d.mu.Unlock()
	select {
	case <-d.quit:
	default:
		close(d.quit)
	}
}

func isFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// isShortage reports whether a write may succeed later as it is: for lack of space,
// descriptors or memory nothing is lost or broken.
func isShortage(err error) bool {
	for _, lack := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM} {
		if errors.Is(err, lack) {
			return true
		}
	}
	return isFull(err)
}

// guardFS is the file system that Pebble sees once the store is open. While it
// opens, errors pass through, so that Open can report them.
type guardFS struct {
	vfs.FS
	disk *disk
	open atomic.Bool
}

func (g *guardFS) Unwrap() vfs.FS { return g.FS }

// compaction is Pebble's name for files whose failure it survives: it drops
// them and tries again later.
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

func (g *guardFS) OpenReadWrite(name string, c vfs.DiskWriteCategory, o ...vfs.OpenOption) (vfs.File, error) {
	return g.file(name, c, func() (vfs.File, error) { return g.FS.OpenReadWrite(name, c, o...) })
}

func (g *guardFS) ReuseForWrite(from, to string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return g.file(to, c, func() (vfs.File, error) { return g.FS.ReuseForWrite(from, to, c) })
}

// Open opens a table to read it.
func (g *guardFS) Open(name string, o ...vfs.OpenOption) (vfs.File, error) {
	f, err := g.FS.Open(name, o...)
	if err != nil {
		g.slowDown(err)
	}
	return f, err
}

// slowDown holds back who has met a shortage that is not one of space: Pebble's
// background work is tried again without a pause.
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

// compactionFile leaves the reserve alone that others need.
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

// Write goes on behind what a failed attempt has written.
func (f *guardFile) Write(p []byte) (int, error) {
	done := 0
	err := f.persist(true, func() error {
		n, err := f.File.Write(p[done:])
		done += n
		return err
	})
	return done, err
}

func (f *guardFile) WriteAt(p []byte, off int64) (n int, err error) {
	err = f.persist(true, func() error { n, err = f.File.WriteAt(p, off); return err })
	return n, err
}

// Preallocate is an optimisation; if there is no space, Write will say so.
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
