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

// openingFS is the file system under guardFS while the store opens. Pebble then flushes the logs
// into tables; if the disk is full it retries that without a pause, and can't be stopped. So
// openingFS hides the lack of space. After the first write that fails for it, nothing on the disk
// is changed any more: all later changes go to files in memory, laid over those on disk. When
// Pebble is open, Open discards the result, closes Pebble and reports how much space was missing.
// To the disk it is as if the process had been killed at that write.
//
// The memory needed is about the size of the logs at most. Compactions are not needed to open,
// so their writes do fail.
//
// Once settled it passes everything through.
//
// With Options.ReadOnly all changes go to memory, from the beginning until the store is closed.
type openingFS struct {
	vfs.FS
	dir     string
	settled atomic.Bool

	mu    sync.Mutex // held during each change, so that none to the disk follows the failed one
	mem   *vfs.MemFS // nil until a change found the disk full, unless nothing may be changed
	cause error      // the error of that change
	named bool       // a manifest that was created here is the valid one
	young []string   // files created here, on disk, to which the valid manifest can't refer
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

// settle ends the opening. It fails if the disk was too full for it.
func (o *openingFS) settle() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.mem == nil {
		o.settled.Store(true)
	}
	return o.cause
}

// full reports whether changes go to memory.
func (o *openingFS) full() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.mem != nil
}

// undo removes the useless files of a failed opening, so that the next one does not need more
// space. Pebble is closed by then.
func (o *openingFS) undo() {
	for _, name := range o.young {
		_ = o.FS.Remove(name)
	}
}

// openingMargin is added to the bytes written by an opening, for what is not counted:
// directories, and files' last blocks.
const openingMargin = 1 << 20

// fullToOpen returns the error of an opening that needs that many bytes.
func fullToOpen(fs vfs.FS, dir string, needs uint64, cause error) error {
	missing := needs + openingMargin
	// The free space may not include a quota: then all of it is missing.
	if u, err := fs.GetDiskUsage(dir); err == nil && u.AvailBytes < missing {
		missing -= u.AvailBytes
	}
	return store.Errorf(store.Unavailable,
		"disk full: free at least %d bytes under %s, then start again; acknowledged writes are safe (%w)",
		missing, dir, cause)
}

// change makes a change on disk or, once the disk is full, in memory.
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

// memory returns the files laid over those on disk, or nil.
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

// made and wrote keep account of the files on disk. When it opens, Pebble creates a new manifest,
// fills it, and then creates the marker that names it.
func (o *openingFS) made(name string) {
	switch base := o.PathBase(name); {
	case strings.HasPrefix(base, "marker.manifest."):
		o.named, o.young, o.needs = true, nil, 0
	case isManifest(base) || strings.HasSuffix(base, ".sst") || strings.HasSuffix(base, ".blob"):
		o.young = append(o.young, name)
	}
}

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

// Lock and MkdirAll are called by Pebble for the directory itself, which is there.
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
	return &openingFile{File: f, fs: o, name: name, inMemory: true}, nil // nothing to move
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

// openingFile is a file that was created, or a directory that was opened, by an opening.
type openingFile struct {
	vfs.File   // replaced when the file moves to memory, under fs.mu
	fs         *openingFS
	name       string
	size       int64 // written so far, while opening
	compaction bool
	inMemory   bool
}

// move copies what was written to the file into memory, where it continues.
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

// persist runs a sync. In memory there is nothing to sync, but the file must move: the one on
// disk may not be written any more.
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
