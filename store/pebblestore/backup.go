package pebblestore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/evenkeel/evenkeel/store"
)

// partialSuffix is appended to the name of a backup's directory while the backup is being written, e.g.
// "monday.partial". The directory of a complete backup has no such suffix.
const partialSuffix = ".partial"

// Backup writes a copy of the store into the new directory dir on this machine, while other calls go on. The copy shows
// the store as of one moment, and has all writes that were acknowledged before the call. Tables are hard links if dir
// is on the same file system, and copies otherwise. The directory gets its name when the whole copy is synced. The
// function progress, unless nil, is called after each file, and must not block. The result is the size of the whole
// copy.
//
// Backup fails with
//   - InvalidArgument if dir exists or its parent does not,
//   - Conflict while another backup of this store is under way, and
//   - Unavailable if the store or dir can't be written.
//
// After an error nothing is left of the backup, and the store goes on.
func (s *directory) Backup(ctx context.Context, dir string, progress func(store.Size)) (store.Size, error) {
	// Of the writes under way the copy has those that come first in the order of the log.
	size, err := s.backup(ctx, filepath.Clean(dir), progress)
	return size, store.Wrap("back up "+s.dir+" to "+dir, s.translate(err))
}

func (s *directory) backup(ctx context.Context, dir string, progress func(store.Size)) (store.Size, error) {
	if !s.backups.TryLock() {
		return store.Size{}, store.Errorf(store.Conflict, "another backup of this directory is under way: wait for its end")
	}
	// The goroutine of the checkpoint calls end. Backup may have returned earlier, if the store's writes wait.
	end := func() {
		s.copies.target.Store(nil)
		s.backups.Unlock()
	}
	if err := s.enter(ctx, nil); err != nil {
		end()
		return store.Size{}, err
	}
	t := &target{ctx: ctx, quit: s.quit, dir: dir + partialSuffix, format: s.format, progress: progress}
	err := t.prepare(s.o.fs, dir)
	if err == nil && liesIn(s.dir, dir) {
		err = store.Errorf(store.InvalidArgument, "the target lies within the data directory: choose one outside")
	}
	if err == nil {
		// After the sync, all writes that are visible are in the log file, which is copied.
		err = s.settle(ctx)
	}
	if err != nil {
		s.leave()
		end()
		return store.Size{}, err
	}
	s.copies.target.Store(t)
	ended := make(chan error, 1)
	go func() {
		err := guardPanic(func() error { return s.db.Checkpoint(t.dir) })
		if err == nil {
			err = t.finish(s.o.fs, dir)
		}
		if err != nil {
			_ = s.o.fs.RemoveAll(t.dir)
		}
		s.leave()
		end()
		ended <- err
	}()
	select {
	case err = <-ended:
	case <-s.disk.troubled():
		err = s.disk.trouble()
		t.fail(err)
	}
	if err != nil {
		return store.Size{}, err
	}
	return t.size(), nil
}

// liesIn reports whether path is the path of a file or directory below the directory dir.
func liesIn(dir, path string) bool {
	dir, err := filepath.Abs(dir)
	path, perr := filepath.Abs(path)
	return err == nil && perr == nil && strings.HasPrefix(path, dir+string(filepath.Separator))
}

// target is a backup that is being written: the directory, the size copied so far, and what can cancel the backup (ctx
// and quit).
type target struct {
	ctx      context.Context
	quit     <-chan struct{}
	dir      string // the path with partialSuffix
	format   int
	progress func(store.Size)

	mu     sync.Mutex
	done   store.Size
	failed error
}

// prepare checks that a backup can be written into the new directory dir. It fails with InvalidArgument if the parent
// of dir is missing, if dir exists, or if an interrupted backup to dir has left its temporary directory.
func (t *target) prepare(fsys vfs.FS, dir string) error {
	parent := fsys.PathDir(dir)
	if info, err := fsys.Stat(parent); err != nil || !info.IsDir() {
		return store.Errorf(store.InvalidArgument, "%s is no directory: make it, or choose another target", parent)
	}
	for path, reason := range map[string]string{
		dir:   "a backup is written into a new directory",
		t.dir: "a backup into it did not end; remove it, or choose another target",
	} {
		switch _, err := fsys.Stat(path); {
		case err == nil:
			return store.Errorf(store.InvalidArgument, "%s exists: %s", path, reason)
		case !errors.Is(err, os.ErrNotExist):
			return err
		}
	}
	return nil
}

// finish completes a backup after Pebble has written its checkpoint, which is a copy of the database. It adds the
// format file, without which the copy is no data directory. Then it gives the directory its final name dir.
func (t *target) finish(fsys vfs.FS, dir string) error {
	if err := t.alive(); err != nil {
		return err
	}
	if err := markFormat(fsys, t.dir, t.format); err != nil {
		return err
	}
	if _, err := fsys.Stat(dir); err == nil {
		return store.Errorf(store.InvalidArgument, "%s was created meanwhile by another program", dir)
	}
	if err := fsys.Rename(t.dir, dir); err != nil {
		return err
	}
	return syncDir(fsys, fsys.PathDir(dir))
}

// alive returns nil as long as a backup may go on. It returns an error after the context of the backup has ended, after
// the backup has failed, and while the store is being closed.
func (t *target) alive() error {
	select {
	case <-t.quit:
		return store.Errorf(store.Unavailable, "the store is being closed")
	default:
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return errors.Join(t.failed, t.ctx.Err())
}

func (t *target) fail(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failed = err
}

func (t *target) size() store.Size {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.done
}

// add records that one more file of a backup, of the given size in bytes, is complete. It then calls the function
// progress with the new totals, unless progress is nil.
func (t *target) add(bytes int64) {
	t.mu.Lock()
	t.done.Files++
	t.done.Bytes += bytes
	now := t.done
	t.mu.Unlock()
	if t.progress != nil {
		t.progress(now)
	}
}

// backupFS is the file system that Pebble sees, with two additions for backups:
//   - Writes to a backup bypass guardFS. So a target that is full or broken ends the backup, not the store's writes.
//   - The bytes written to each log are counted, and the copy of a log in a backup gets only the bytes that were
//     written before the copy began.
//
// Pebble copies a log while the log grows. Since Pebble reuses the files of old logs, a log's file may have old bytes
// behind its end. A copy with these bytes in the middle would count as damaged.
type backupFS struct {
	vfs.FS        // guardFS
	under  vfs.FS // the file system below guardFS
	target atomic.Pointer[target]

	mu   sync.Mutex
	logs map[string]*atomic.Int64 // the bytes written to each log, by the base name of its file
}

func newBackupFS(guard, under vfs.FS) *backupFS {
	return &backupFS{FS: guard, under: under, logs: map[string]*atomic.Int64{}}
}

func (b *backupFS) Unwrap() vfs.FS { return b.FS }

// of returns the backup under way if path is the path of its directory or of a file in that directory. Else it returns
// nil.
func (b *backupFS) of(path string) *target {
	t := b.target.Load()
	if t != nil && (path == t.dir || strings.HasPrefix(path, t.dir+"/")) {
		return t
	}
	return nil
}

func isLog(path string) bool { return strings.HasSuffix(path, ".log") }

// written adds the counting of bytes to a newly created file if the file is a write-ahead log of Pebble. It returns any
// other file unchanged. f and err are the results of creating the file with the given name. If err is not nil, both are
// returned unchanged.
func (b *backupFS) written(name string, f vfs.File, err error) (vfs.File, error) {
	if err != nil || !isLog(name) {
		return f, err
	}
	n := &atomic.Int64{}
	b.mu.Lock()
	b.logs[b.PathBase(name)] = n
	b.mu.Unlock()
	return &logFile{f, n}, nil
}

func (b *backupFS) forget(name string) {
	if isLog(name) && b.of(name) == nil {
		b.mu.Lock()
		delete(b.logs, b.PathBase(name))
		b.mu.Unlock()
	}
}

func (b *backupFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	t := b.of(name)
	if t == nil {
		f, err := b.FS.Create(name, c)
		return b.written(name, f, err)
	}
	if err := t.alive(); err != nil {
		return nil, err
	}
	f, err := b.under.Create(name, c)
	if err != nil {
		return nil, err
	}
	rest := int64(-1)
	if isLog(name) {
		b.mu.Lock()
		if n := b.logs[b.PathBase(name)]; n != nil {
			rest = n.Load()
		}
		b.mu.Unlock()
	}
	return &copyFile{File: f, t: t, rest: rest}, nil
}

func (b *backupFS) ReuseForWrite(from, to string, c vfs.DiskWriteCategory) (vfs.File, error) {
	b.forget(from)
	f, err := b.FS.ReuseForWrite(from, to, c)
	return b.written(to, f, err)
}

func (b *backupFS) Remove(name string) error {
	b.forget(name)
	return b.FS.Remove(name)
}

// Link gives a file a second name by a hard link. The parameter `from` is the path of the existing file, and `to` is
// the new path. Pebble uses links to put tables into a backup. If the file system has no links, Link copies the file
// into the backup instead.
func (b *backupFS) Link(from, to string) error {
	// Pebble would give up otherwise.
	// On a file system without links, making one fails for lack of permission.
	t := b.of(to)
	if t == nil {
		return b.FS.Link(from, to)
	}
	if err := t.alive(); err != nil {
		return err
	}
	err := b.under.Link(from, to)
	if errors.Is(err, os.ErrPermission) {
		err = vfs.Copy(b.under, from, to)
	}
	if err != nil {
		return err
	}
	info, err := b.under.Stat(to)
	if err != nil {
		return err
	}
	t.add(info.Size())
	return nil
}

func (b *backupFS) OpenDir(name string) (vfs.File, error) {
	if b.of(name) != nil || b.holds(name) {
		return b.under.OpenDir(name)
	}
	return b.FS.OpenDir(name)
}

// holds reports whether the directory with the given name is the parent of the directory of the backup under way. It
// returns false if no backup is under way.
func (b *backupFS) holds(name string) bool {
	t := b.target.Load()
	return t != nil && b.PathDir(t.dir) == name
}

func (b *backupFS) Rename(from, to string) error {
	if b.of(to) != nil {
		return b.under.Rename(from, to)
	}
	return b.FS.Rename(from, to)
}

// logFile is a write-ahead log of Pebble. The field n counts the bytes that were written to the log.
type logFile struct {
	vfs.File
	n *atomic.Int64
}

func (f *logFile) Write(p []byte) (int, error) {
	n, err := f.File.Write(p)
	f.n.Add(int64(n))
	return n, err
}

// copyFile is a file that a backup writes, with a limit of its length. The field rest is the number of bytes that the
// file still takes. Further bytes are dropped without an error. A negative rest means that there is no limit.
type copyFile struct {
	vfs.File
	t     *target
	rest  int64
	bytes int64
}

func (f *copyFile) Write(p []byte) (int, error) {
	if err := f.t.alive(); err != nil {
		return 0, err
	}
	all := len(p)
	if f.rest >= 0 {
		p = p[:min(int64(len(p)), f.rest)]
		f.rest -= int64(len(p))
	}
	n, err := f.File.Write(p)
	f.bytes += int64(n)
	if err != nil {
		return n, err
	}
	return all, nil
}

// Preallocate does nothing. Pebble calls it to get disk space for a log that grows, but the copy of a log in a backup
// does not grow.
func (f *copyFile) Preallocate(int64, int64) error { return nil }

func (f *copyFile) Close() error {
	err := f.File.Close()
	if err == nil {
		f.t.add(f.bytes)
	}
	return err
}

// markFormat writes the file that contains the format number of the data directory dir. It is the last step of making a
// data directory: Open refuses a directory without this file as incomplete.
func markFormat(fsys vfs.FS, dir string, format int) error {
	path := fsys.PathJoin(dir, FormatFile)
	temporary := path + ".new"
	f, err := fsys.Create(temporary, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "%s%d\n", formatMagic, format)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := fsys.Rename(temporary, path); err != nil {
		return err
	}
	return syncDir(fsys, dir)
}

func syncDir(fsys vfs.FS, dir string) error {
	d, err := fsys.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Restore copies a backup, or the data directory of a closed store, into a new data directory. The parameter `from` is
// the directory to read, which stays unchanged. The parameter dir is the directory to write, which must be empty or
// missing. As a check Restore opens the copy and closes it again. It calls progress, unless nil, after each file, and
// notices the end of ctx between files. The result is the size of the copy.
//
// Restore fails with
//   - InvalidArgument if from is no backup or has a newer format, or if dir is not empty,
//   - Corrupt if the backup is damaged, and
//   - Unavailable if from is in use or dir can't be written.
//
// After an error Restore removes the files that it has written. If it is interrupted, Open refuses the files that it
// leaves.
func Restore(ctx context.Context, from, dir string, o Options, progress func(store.Size)) (store.Size, error) {
	size, err := restore(ctx, from, dir, o, progress)
	return size, store.Wrap("restore "+from+" into "+dir, translate(dir, err))
}

func restore(ctx context.Context, from, dir string, o Options, progress func(store.Size)) (size store.Size, err error) {
	fsys := diskFS(o)
	from, dir = filepath.Clean(from), filepath.Clean(dir)
	names, format, err := backedUp(fsys, from)
	if err != nil {
		return size, err
	}
	// A data directory may be in use by a process that holds its lock file; a backup has no lock file.
	if _, serr := fsys.Stat(fsys.PathJoin(from, "LOCK")); serr == nil {
		lock, err := lockDir(fsys, from)
		if err != nil {
			return size, err
		}
		defer func() { _ = lock.Close() }()
	}
	made, err := emptyDir(fsys, dir)
	if err != nil {
		return size, err
	}
	defer func() {
		if err != nil {
			removeWithin(fsys, dir, made)
		}
	}()
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return size, err
		}
		to := fsys.PathJoin(dir, name)
		if err := vfs.Copy(fsys, fsys.PathJoin(from, name), to); err != nil {
			return size, err
		}
		info, err := fsys.Stat(to)
		if err != nil {
			return size, err
		}
		size.Files++
		size.Bytes += info.Size()
		if progress != nil {
			progress(size)
		}
	}
	if err := errors.Join(markFormat(fsys, dir, format), syncDir(fsys, fsys.PathDir(dir))); err != nil {
		return size, err
	}
	s, err := open(dir, o)
	if err != nil {
		return size, err
	}
	return size, s.Close()
}

// backedUp lists the files of the backup in the directory from, and returns the number of its format. The result names
// has all files that Restore copies. It leaves out the files that Restore creates itself (the format file and the lock
// file), and directories, which hold estimates of counters.
func backedUp(fsys vfs.FS, from string) (names []string, format int, err error) {
	info, err := fsys.Stat(from)
	if err != nil {
		return nil, 0, store.Errorf(store.InvalidArgument, "there is no backup: %w", err)
	}
	if !info.IsDir() {
		return nil, 0, store.Errorf(store.InvalidArgument, "%s is no directory", from)
	}
	if _, err := fsys.Stat(fsys.PathJoin(from, FormatFile)); err != nil {
		if strings.HasSuffix(filepath.Clean(from), partialSuffix) {
			return nil, 0, store.Errorf(store.InvalidArgument,
				"%s is a backup that did not come to its end: take another one", from)
		}
		return nil, 0, store.Errorf(store.InvalidArgument, "%s is no backup of evenkeel: it has no file %s", from, FormatFile)
	}
	if format, err = checkFormat(fsys, from); err != nil {
		return nil, 0, err
	}
	all, err := fsys.List(from)
	if err != nil {
		return nil, 0, err
	}
	for _, name := range all {
		info, err := fsys.Stat(fsys.PathJoin(from, name))
		if err != nil {
			return nil, 0, err
		}
		if !info.IsDir() && name != FormatFile && name != FormatFile+".new" && name != "LOCK" {
			names = append(names, name)
		}
	}
	return names, format, nil
}

// emptyDir makes sure that dir is an empty directory, and creates it if it is missing. It fails with InvalidArgument if
// dir exists and is not empty. The result made is true if emptyDir has created the directory.
func emptyDir(fsys vfs.FS, dir string) (made bool, err error) {
	names, err := fsys.List(dir)
	if errors.Is(err, os.ErrNotExist) {
		return true, fsys.MkdirAll(dir, 0o700)
	}
	if err != nil {
		return false, err
	}
	for _, name := range names {
		if name != "lost+found" {
			return false, store.Errorf(store.InvalidArgument,
				"%s is not empty (%s): choose an empty or a new directory", dir, name)
		}
	}
	return false, nil
}

// removeWithin removes the content of the directory dir. If the argument itself is true, removeWithin also removes the
// directory. A failed Restore uses it to clean up.
func removeWithin(fsys vfs.FS, dir string, itself bool) {
	if itself {
		_ = fsys.RemoveAll(dir)
		return
	}
	names, _ := fsys.List(dir)
	for _, name := range names {
		if name != "lost+found" {
			_ = fsys.RemoveAll(fsys.PathJoin(dir, name))
		}
	}
}
