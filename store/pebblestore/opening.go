package pebblestore

import (
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/evenkeel/evenkeel/store"
)

// openingFS is the file system that Pebble uses while a store opens. It hides a full disk from Pebble. During the
// opening Pebble flushes the logs into tables; if that fails for lack of space, it tries again without a pause, and
// can't be stopped.
//
// After the first write that fails for lack of space, openingFS changes nothing on the disk any more: all later changes
// go to files in memory, which replace those on disk. When Pebble is open, Open discards the result, closes Pebble and
// reports how much space was missing. The disk looks as if the process had been killed at the write that failed.
//
// The memory needed is at most about the size of the logs. Compactions are not needed to open, so their writes do fail.
// After the opening, openingFS passes all calls to the disk.
//
// With Options.ReadOnly all changes go to memory, from the beginning until the store is closed.
type openingFS struct {
	vfs.FS
	dir     string
	settled atomic.Bool

	mu    sync.Mutex // held during each change, so that none to the disk follows the failed one
	mem   *vfs.MemFS // the files in memory; nil until a change finds the disk full, unless nothing may be changed
	cause error      // the error of the change that found the disk full
	named bool       // the valid manifest is one that was created here
	young []string   // files on disk, created here, to which the valid manifest can't refer
	needs uint64     // bytes written since young was last empty
}

func newOpeningFS(fs vfs.FS, dir string, readOnly bool) (*openingFS, error) {
	o := &openingFS{FS: fs, dir: dir}
	if !readOnly {
		return o, nil
	}
	o.mem = vfs.NewMem()
	return o, o.mem.MkdirAll(dir, 0o755)
}

func (o *openingFS) Unwrap() vfs.FS { return o.FS }

// settle ends the opening of the store. If a change of a file found the disk full, settle returns the error of the
// first such change. Else it returns nil, and all later changes go to the disk (to memory if the store is read only).
func (o *openingFS) settle() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.mem == nil {
		o.settled.Store(true)
	}
	return o.cause
}

// full reports whether changes go to files in memory instead of the disk, since the disk is full or the store is read
// only.
func (o *openingFS) full() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.mem != nil
}

// undo removes the files that a failed opening of the store has written in vain, since the next opening would need more
// space if they stayed. Pebble must be closed.
func (o *openingFS) undo() {
	for _, name := range o.young {
		_ = o.FS.Remove(name)
	}
}

// openingMargin is added to the number of bytes that opening a store needs, for space that is not counted: directories,
// and the last blocks of files.
const openingMargin = 1 << 20

// fullToOpen returns the error of an opening of the store that fails because the disk of the directory dir is full. The
// error says how many bytes the user has to free. needs is the number of bytes that the opening writes, and cause is
// the error of the failed write.
func fullToOpen(fs vfs.FS, dir string, needs uint64, cause error) error {
	missing := needs + openingMargin
	// The free space may not include a quota: then all of the need counts as missing.
	if u, err := fs.GetDiskUsage(dir); err == nil && u.AvailBytes < missing {
		missing -= u.AvailBytes
	}
	return store.Errorf(store.Unavailable,
		"disk full: free at least %d bytes under %s, then start again; acknowledged writes are safe (%w)",
		missing, dir, cause)
}

// change makes one change of a file while the store opens. The function disk changes the file on disk. Once the disk is
// full, change calls the function memory instead, which changes a copy of the file in memory.
func (o *openingFS) change(disk func() error, memory func() error) error {
	if o.settled.Load() {
		return disk()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.mem == nil {
		err := disk()
		if !isFull(err) {
			return err
		}
		mem := vfs.NewMem()
		if err := mem.MkdirAll(o.dir, 0o755); err != nil {
			return err
		}
		o.mem, o.cause = mem, err
	}
	return memory()
}

// memory returns the files in memory that replace files on disk while the store opens on a full disk. It returns nil if
// all changes go to the disk.
func (o *openingFS) memory() *vfs.MemFS {
	if o.settled.Load() {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.mem
}

func (o *openingFS) create(name string, c vfs.DiskWriteCategory, disk func() (vfs.File, error)) (vfs.File, error) {
	if o.settled.Load() {
		return disk()
	}
	f := &openingFile{fs: o, name: name, compaction: c == compaction}
	err := o.change(func() (err error) {
		if f.File, err = disk(); err == nil {
			o.made(name)
		}
		return err
	}, func() (err error) {
		if f.compaction && o.cause != nil {
			return o.cause
		}
		f.inMemory = true
		f.File, err = o.mem.Create(name, c)
		return err
	})
	if err != nil {
		return nil, err
	}
	return f, nil
}

// made records that the file with the given name was created on disk while the store opens. If the opening fails, undo
// removes such files. If the file is the marker that names Pebble's new manifest, the files created before are in use
// from then on, and undo must not remove them.
func (o *openingFS) made(name string) {
	switch base := o.PathBase(name); {
	case strings.HasPrefix(base, "marker.manifest."):
		o.named, o.young, o.needs = true, nil, 0
	case isManifest(base) || strings.HasSuffix(base, ".sst") || strings.HasSuffix(base, ".blob"):
		o.young = append(o.young, name)
	}
}

// wrote records that n bytes were written to the file with the given name while the store opens. After a write to
// Pebble's present manifest, the files created before may be in use. Then undo must not remove them after a failed
// opening.
func (o *openingFS) wrote(name string, n int) {
	o.needs += uint64(n)
	if o.named && isManifest(o.PathBase(name)) {
		o.young, o.needs = nil, 0
	}
}

func isManifest(base string) bool { return strings.HasPrefix(base, "MANIFEST-") }

func (o *openingFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return o.create(name, c, func() (vfs.File, error) { return o.FS.Create(name, c) })
}

func (o *openingFS) ReuseForWrite(from, to string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return o.create(to, c, func() (vfs.File, error) { return o.FS.ReuseForWrite(from, to, c) })
}

// Lock locks the data directory against other processes. Pebble calls Lock, like MkdirAll, only with the name of the
// data directory, which exists.
func (o *openingFS) Lock(name string) (io.Closer, error) {
	if mem := o.memory(); mem != nil {
		return mem.Lock(name)
	}
	return o.FS.Lock(name)
}

func (o *openingFS) MkdirAll(dir string, perm os.FileMode) error {
	if mem := o.memory(); mem != nil {
		return mem.MkdirAll(dir, perm)
	}
	return o.FS.MkdirAll(dir, perm)
}

func (o *openingFS) OpenDir(name string) (vfs.File, error) {
	f, err := o.FS.OpenDir(name)
	if err != nil || o.settled.Load() {
		return f, err
	}
	return &openingFile{File: f, fs: o, name: name, inMemory: true}, nil // a directory has no content to move
}

func (o *openingFS) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	if mem := o.memory(); mem != nil {
		if f, err := mem.Open(name, opts...); !errors.Is(err, os.ErrNotExist) {
			return f, err
		}
	}
	return o.FS.Open(name, opts...)
}

func (o *openingFS) Stat(name string) (vfs.FileInfo, error) {
	if mem := o.memory(); mem != nil {
		if i, err := mem.Stat(name); !errors.Is(err, os.ErrNotExist) {
			return i, err
		}
	}
	return o.FS.Stat(name)
}

func (o *openingFS) List(dir string) ([]string, error) {
	names, err := o.FS.List(dir)
	if mem := o.memory(); err == nil && mem != nil {
		over, err := mem.List(dir)
		if err != nil {
			return nil, err
		}
		names = append(names, over...)
		slices.Sort(names)
		names = slices.Compact(names)
	}
	return names, err
}

func (o *openingFS) Remove(name string) error {
	return o.change(func() error { return o.FS.Remove(name) }, func() error {
		if err := o.mem.Remove(name); !errors.Is(err, os.ErrNotExist) {
			return err
		}
		return nil // files on disk stay
	})
}

func (o *openingFS) Rename(from, to string) error {
	return o.change(func() error { return o.FS.Rename(from, to) }, func() error {
		if _, err := o.mem.Stat(from); errors.Is(err, os.ErrNotExist) {
			return vfs.CopyAcrossFS(o.FS, from, o.mem, to)
		}
		return o.mem.Rename(from, to)
	})
}

// openingFile is a file that Pebble creates, or a directory that Pebble opens, while the store opens. If the disk
// becomes full, the file moves to memory.
type openingFile struct {
	vfs.File   // replaced when the file moves to memory, under fs.mu
	fs         *openingFS
	name       string
	size       int64 // bytes written while the store opens
	compaction bool
	inMemory   bool
}

// move replaces a file on disk by a file in memory with the bytes written so far, after the disk has become full. It
// does nothing if the file is in memory already.
func (f *openingFile) move() error {
	if f.inMemory {
		return nil
	}
	if f.compaction {
		return f.fs.cause
	}
	from, err := f.fs.FS.Open(f.name)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := f.fs.mem.Create(f.name, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	if _, err := io.Copy(to, io.LimitReader(from, f.size)); err != nil {
		return errors.Join(err, to.Close())
	}
	_ = f.File.Close()
	f.File, f.inMemory = to, true
	return nil
}

func (f *openingFile) Write(p []byte) (done int, err error) {
	if f.fs.settled.Load() {
		return f.File.Write(p)
	}
	write := func() error {
		n, err := f.File.Write(p[done:])
		done += n
		f.size += int64(n)
		return err
	}
	err = f.fs.change(func() error {
		err := write()
		f.fs.wrote(f.name, done)
		return err
	}, func() error {
		if err := f.move(); err != nil {
			return err
		}
		f.fs.needs += uint64(len(p) - done)
		return write()
	})
	return done, err
}

// persist runs the function sync, which syncs the file to disk. Once the disk is full, it moves the file to memory
// instead, since files on disk must not change any more.
func (f *openingFile) persist(sync func() error) error { return f.fs.change(sync, f.move) }

func (f *openingFile) Sync() error     { return f.persist(func() error { return f.File.Sync() }) }
func (f *openingFile) SyncData() error { return f.persist(func() error { return f.File.SyncData() }) }

func (f *openingFile) SyncTo(length int64) (full bool, err error) {
	err = f.persist(func() (err error) { full, err = f.File.SyncTo(length); return err })
	return full, err
}

func (f *openingFile) Preallocate(off, length int64) error {
	return f.fs.change(func() error { _ = f.File.Preallocate(off, length); return nil }, func() error { return nil })
}
