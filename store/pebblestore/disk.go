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
	// usageEvery is how long a measurement of the free disk space is used. The free space is measured sooner if an
	// eighth of the reserve has been written since.
	usageEvery = 100 * time.Millisecond
	// retryEvery is the pause before a write to a file is repeated that failed for lack of disk space, file descriptors
	// or memory.
	retryEvery = 50 * time.Millisecond
	// restEvery is how long compactions pause after a compaction has filled the disk up to the limit for compactions.
	restEvery = time.Second
)

// These constants divide the reserve, which is free disk space that is kept for urgent writes: 1 GiB, but at most a
// twentieth of the disk. With the reserve a store can always be opened again on a disk that the store has filled alone.
// Each kind of write may use a part of the reserve:
//
//	free space left    who stops below it
//	all of it          puts of clients
//	three quarters     moves, whose end gives their space back
//	a half             deletes, which need space before they free any
//	a quarter          compactions, which free the space; while one runs, deletes may be refused
//
// The last quarter is for flushing the logs into tables: at most memTablesQueued memtables, which is the engine's
// limit. So each memtable is at most a sixteenth of the reserve.
const (
	maxReserve      = 1 << 30
	reserveShare    = 20
	compactionShare = 4
	memTablesQueued = 4
	memTableShare   = compactionShare * memTablesQueued
	minMemTable     = 64 << 10
)

// purpose is the reason for a write, such as a put of a client or a deletion. It decides how much of the reserve the
// write may use. The reserve is free disk space that is kept for deletions, compactions and the next start.
type purpose uint8

const (
	adds  purpose = iota // an entry of a client
	moves                // a copy that a move writes, or a node of a map
	frees                // a deletion or a write that leads to one, or a swap, without which moves could not end
)

// keeps returns how many bytes of disk space must be free after a write with the purpose p. reserve is the free space
// in bytes that is kept for urgent writes. A more urgent write may use more of the reserve.
func (p purpose) keeps(reserve uint64) uint64 { return reserve / 4 * (4 - uint64(p)) }

// errReserved is the error of a compaction that is refused, because it would leave less than a quarter of the reserve.
// The reserve is the free space that is kept for urgent writes. Its last quarter is needed for opening the store again.
var errReserved = fmt.Errorf("the disk's last space is kept for opening the store again: %w", syscall.ENOSPC)

// disk decides whether the store may write at present. It judges by the free space of the disk, which it measures from
// time to time, and by the errors of earlier writes to the file system (see guardFS).
type disk struct {
	fs      vfs.FS // the file system below guardFS
	dir     string
	reserve uint64 // bytes
	log     *slog.Logger

	looked atomic.Int64  // the time at which the free space was read, nanoseconds since began
	wrote  atomic.Int64  // bytes of writes admitted since that time
	free   atomic.Uint64 // the free space at that time, bytes
	began  time.Time

	mu     sync.Mutex
	parked int                           // the number of writes that wait until a shortage is over
	lack   error                         // the error of the last parked write
	rest   time.Time                     // the time until which compactions pause
	failed error                         // the error that ended all writing for good
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

// admit returns nil if the store may write, or the error of the refused write. The parameter why is the purpose of the
// write, such as a put of a client, and bytes is about the number of bytes that the write adds. A write is refused
//   - if the disk is too full for the purpose,
//   - while other writes wait for the end of a shortage, and
//   - after a write has failed for good.
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

// memTable returns the size in bytes that a memtable of Pebble shall have. It is want, or less on a small disk: all
// memtables must fit into the last quarter of the reserve, which is the free space that is kept for urgent writes.
func (d *disk) memTable(want int64) int64 {
	return min(want, max(int64(d.reserve/memTableShare), minMemTable))
}

// admitCompaction returns nil if a compaction may write the given number of bytes. It returns errReserved if less than
// a quarter of the reserve (the free space that is kept for urgent writes) would stay free. Then all compactions pause
// for restEvery.
func (d *disk) admitCompaction(bytes int) error {
	d.look() // each time, since freeBytes does not count flushes
	if d.free.Load() >= d.reserve/compactionShare+uint64(bytes) {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.rest = time.Now().Add(restEvery)
	return errReserved
}

// full returns the "disk full" error for a write that is refused before it has begun. The error says how many bytes the
// user has to free, which are missing.
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
	free := uint64(1) << 62 // enough, if the free space is not known, as of a file system in memory
	if u, err := d.fs.GetDiskUsage(d.dir); err == nil {
		free = u.AvailBytes
	}
	d.free.Store(free)
}

// troubled returns a channel that is closed while the store can't write. A call that waits for a write also waits for
// this channel, and gives up when it is closed. There are two causes:
//   - writes wait for the end of a shortage (of disk space, file descriptors or memory), or
//   - a write has failed for good.
func (d *disk) troubled() <-chan struct{} {
	return *d.signal.Load()
}

// trouble returns the error for a call that gives up because the store can't write at present. The error says why, and
// has the kind Unavailable.
func (d *disk) trouble() error {
	reason, _ := d.reason()
	return store.Errorf(store.Unavailable, "%w", reason)
}

// reason returns an error that says why the store can't write. The result full is true if the cause is a full disk, and
// false for any other cause. The shortage may be over at the time of the call.
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

// remedy returns advice against the shortage that the error lack reports, such as the name of a limit to raise. The
// caller appends the text to an error message. The text is empty if there is no advice.
func remedy(lack error) string {
	switch {
	case errors.Is(lack, syscall.EMFILE):
		return " (raise the limit of open files of this process: ulimit -n)"
	case errors.Is(lack, syscall.ENFILE):
		return " (raise the limit of open files of this machine: fs.file-max)"
	}
	return ""
}

// fail ends all writing to the store until the process is restarted. cause is the error of the write that has failed.
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

// persist runs write, a write to a file whose failure Pebble would not survive. It never returns a failure. If the
// cause is a shortage, such as a full disk, and the parameter `again` is true, the write is repeated until the shortage
// is over. After any other failure the calling goroutine blocks for good, and all writing to the store ends. The
// parameter name is the name of the file.
//
// Pebble would end the process, while it holds locks, if it saw the failure. The blocked goroutine is usually one of
// Pebble's. Syncs are never repeated: after a failed sync the kernel may have dropped the data that it could not write,
// so a second sync could succeed although the data is lost.
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

// waitForSpace delays a compaction while other writes wait for disk space. It also delays compactions for restEvery
// after one has found the disk nearly full.
func (d *disk) waitForSpace() {
	// Pebble would retry that compaction without a pause.
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

// abandon lets Close return although writes wait for the end of a shortage, such as a full disk. It gives up these
// writes, whose goroutines block for good.
func (d *disk) abandon() {
	d.mu.Lock()
	defer d.mu.Unlock()
	select {
	case <-d.quit:
	default:
		close(d.quit)
	}
}

// Disk returns the size of the store's file system and how full it is. The bool is false if these numbers are not
// known, or after Close.
func (s *directory) Disk() (store.DiskUsage, bool) {
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

// isShortage reports whether err is a lack of disk space, file descriptors or memory. After such an error the same
// write may succeed later.
func isShortage(err error) bool {
	return isFull(err) || errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) ||
		errors.Is(err, syscall.ENOMEM)
}

// guardFS is a file system that hides errors of writes from Pebble, which would end the process after such an error. A
// write that fails is repeated or blocks (see disk.persist). While the store opens, errors are not hidden, so that Open
// can report them.
type guardFS struct {
	vfs.FS
	disk *disk
	open atomic.Bool
}

func (g *guardFS) Unwrap() vfs.FS { return g.FS }

// compaction is Pebble's category for the files that a compaction writes. Pebble survives a failed write to such a
// file: it drops the file and retries the compaction later.
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

// slowDown pauses if err is a lack of file descriptors or memory. Without the pause Pebble's background work would
// retry at once, again and again.
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

// compactionFile is a file that a compaction writes. A write fails if it would leave less than a quarter of the
// reserve, which is the free space that is kept for urgent writes.
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

// Write writes all bytes of p to the file. If an attempt fails after some bytes, the next attempt continues behind
// these bytes. Once the store is open, Write never returns an error: it repeats the write or blocks (see disk.persist).
func (f *guardFile) Write(p []byte) (int, error) {
	done := 0
	err := f.persist(true, func() error {
		n, err := f.File.Write(p[done:])
		done += n
		return err
	})
	return done, err
}

// Preallocate asks the file system for disk space ahead of later writes, and never returns an error. It only makes the
// writes faster, and Write handles a lack of space.
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
