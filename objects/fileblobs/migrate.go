package fileblobs

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/evenkeel/evenkeel/store"
)

// A migration moves blobs from their old paths into the directories of their hashes, while other processes read, write,
// list and delete:
//
//	b/KEY-        →  b/+HHH/KEY-       one rename, with all blobs of the key
//	b/KEY-/ID     →  b/+HHH/KEY-/ID    one rename for each blob, if the directory has blobs of the key already
//
// Each step is a rename, so at any moment a blob is at one of the two paths, whichever process dies. A blob never comes
// back to the old path. So a process that looks first at the old path and then at the new path finds the blob (files).
// For the same reason List and Delete visit the old paths first.
//
// No record says how far a migration has come: the blobs at old paths are those that are not moved yet. Several
// processes may migrate the same directory.

// Migrate changes the layout of the directory of blobs: it moves the files of all blobs into subdirectories chosen by a
// hash of the object's key. First it puts a marker file into the directory, so that no older program can open the
// directory. End older programs before: one that has the directory open would not find the moved blobs.
//
// Migrate calls the func each with the name of a bucket and the number of its keys moved since the previous call. If
// each returns an error, the migration ends. An interrupted migration can be repeated.
func (s *directory) Migrate(ctx context.Context, each func(bucket string, keys int64) error) error {
	if err := s.turn(); err != nil {
		return kind(err)
	}
	return s.Tops(ctx, func(bucket string) error {
		for {
			m := migration{
				s: s, ctx: ctx, touched: map[string]bool{}, left: map[string]bool{},
				each: func(keys int64) error { return each(bucket, keys) },
			}
			more, err := m.pass(bucket)
			if err != nil || !more {
				return kind(err)
			}
		}
	})
}

// HasMark reports whether the directory has the marker file which says that new blobs go into subdirectories chosen by
// a hash of the object's key.
func (s *directory) HasMark() bool { return s.fans.Load() }

// turn switches the directory to the new layout, in which blobs go into subdirectories chosen by a hash of the object's
// key. It moves unfinished files from the directory unfinished to the directory writingFan, and then puts the marker
// file into the directory. When the unfinished files are finished, they become blobs in the new layout, or their
// writers fail. Once the directory unfinished is gone, no new file appears in the old layout.
func (s *directory) turn() error {
	for tries := 0; !s.fans.Load(); tries++ {
		err := s.turnUnfinished()
		if err == nil {
			err = writeMark(s.root, s.mark)
		}
		ferr := s.form() // another migration may have been the first
		if ferr != nil || !s.fans.Load() && (tries == mostTries || !occupied(err)) {
			_ = s.root.Mkdir(unfinished, 0o700) // so that other servers can go on without the marker file
			return cmp.Or(ferr, err)
		}
	}
	return s.sync(".") // for the marker file of another process, too, which may have died
}

// mark replaces the directory of unfinished files by the marker file, a file of the same name that tells the new
// layout. The contents of the marker file are on the disk already, in the file temporary. So the exchange is quick, and
// no process can begin to write a blob in the middle of it.
func (s *directory) mark(temporary string) error {
	// Root.Remove would also remove a file, and so the marker file of another migration. Rmdir does not.
	err := syscall.Rmdir(filepath.Join(s.root.Name(), unfinished))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return s.root.Link(temporary, mark)
}

func (s *directory) turnUnfinished() error {
	if err := s.folder(writingFan); err != nil {
		return err
	}
	entries, err := s.below(unfinished)
	for _, e := range entries {
		if err == nil {
			err = s.root.Rename(unfinished+"/"+e.Name(), writingFan+"/"+e.Name())
		}
		if errors.Is(err, fs.ErrNotExist) {
			err = nil // the file was finished, and has moved
		}
	}
	return err
}

// migration is one pass that moves files of a bucket from the old layout to the new one. In the old layout, a file is
// at the path of the blob's own name. In the new layout, it is in a subdirectory chosen by a hash.
type migration struct {
	s             *directory
	ctx           context.Context
	each          func(keys int64) error
	keys          int64           // keys that were moved and are not yet told to each
	touched, left map[string]bool // directories that have got, or lost, entries since the last sync
}

// mostMoved is the number of keys whose files a migration moves before it syncs the changed directories. It is also the
// number of directory entries that are read at a time. Tests set it.
var mostMoved = 1024

// pass moves all files that it finds in the old layout of a bucket into subdirectories chosen by a hash. The result
// more is true if pass has found a file. Then another pass is needed, since a file system may leave out entries of a
// directory that changes while it is read.
func (m *migration) pass(bucket string) (more bool, err error) {
	err = m.below(bucket, func(e fs.DirEntry) error {
		if e.Name()[0] == '.' || e.Name()[0] == '+' {
			return nil
		}
		more = true
		return m.move(bucket+"/"+e.Name(), e.IsDir())
	})
	if err == nil {
		err = m.tell()
	}
	return more, err
}

// below calls the func each for every entry of the directory dir. It reads only mostMoved entries at a time, since a
// directory may have millions of entries for keys that begin alike. If the directory does not exist any more, below
// does nothing.
func (m *migration) below(dir string, each func(fs.DirEntry) error) error {
	d, err := m.s.root.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer d.Close()
	for {
		entries, err := d.ReadDir(mostMoved)
		for _, e := range entries {
			if err := m.ctx.Err(); err != nil {
				return err
			}
			if err := each(e); err != nil {
				return err
			}
		}
		if gone(err) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// tell syncs the changed directories, and then reports to the caller of the migration how many keys were moved since
// the previous report.
func (m *migration) tell() error {
	keys := m.keys
	if m.keys = 0; keys == 0 {
		return nil
	}
	return cmp.Or(m.sync(), m.each(keys))
}

// move moves the named file into a subdirectory chosen by a hash. If dir is true, name is a directory, and move moves
// all files below it.
func (m *migration) move(name string, dir bool) error {
	// All blobs below the folder of a key have one hash, so that folder moves as a whole. A long key has several parts
	// between slashes; the folders above its last part have blobs of many hashes.
	if _, whole := fanOf(name + "/"); whole || !dir {
		target := name
		if dir {
			target += "/"
		}
		target, _ = fanned(target)
		moved, err := m.rename(name, strings.TrimSuffix(target, "/"))
		if err != nil {
			return err
		}
		if moved {
			m.keys++
		}
		if moved && m.keys >= int64(mostMoved) {
			return m.tell()
		}
		if moved || !dir {
			return nil
		}
	}
	err := m.below(name, func(e fs.DirEntry) error { return m.move(name+"/"+e.Name(), e.IsDir()) })
	if err != nil {
		return err
	}
	if err := m.s.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) && !occupied(err) {
		return err
	}
	return nil
}

// below returns the entries of the directory dir. If the directory does not exist any more, below returns no entries
// and no error.
func (s *directory) below(dir string) (entries []fs.DirEntry, err error) {
	d, err := s.root.Open(dir)
	if err == nil {
		defer d.Close()
		entries, err = d.ReadDir(-1)
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return entries, err
}

// rename moves a file or a directory to the path target. It returns false if name does not exist any more, or if target
// exists and can't be replaced, e.g. as a directory that is not empty.
func (m *migration) rename(name, target string) (bool, error) {
	for tries := 0; ; tries++ {
		err := m.s.root.Rename(name, target)
		if err == nil {
			for dir := path.Dir(target); dir != "."; dir = path.Dir(dir) {
				m.touched[dir] = true
			}
			m.left[path.Dir(name)] = true
			return true, nil
		}
		if occupied(err) {
			return false, nil
		}
		if errors.Is(err, fs.ErrNotExist) && tries < mostTries {
			if _, err := m.s.root.Lstat(name); errors.Is(err, fs.ErrNotExist) {
				return false, nil // deleted, or moved by another migration
			}
			// The folder of target is not yet there, or another process has removed it, as it was empty.
			if err = m.s.folder(path.Dir(target)); err == nil || folderChanged(err) {
				continue
			}
		}
		return false, store.Errorf(store.Unavailable, "move %s to %s: %w; move one of them away, or make the file system "+
			"take it, and run this again", name, target, err)
	}
}

// occupied reports whether err, an error of a rename, means that the new name is taken already, or is a directory that
// is not empty.
func occupied(err error) bool { return errors.Is(err, fs.ErrExist) }

// sync makes the moves of files durable. It syncs the directories with new entries first, and then the directories that
// have lost entries, so that a crash between the two loses no blob.
func (m *migration) sync() error {
	for _, dirs := range []map[string]bool{m.touched, m.left} {
		for _, dir := range slices.Backward(slices.Sorted(maps.Keys(dirs))) {
			if err := m.s.sync(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
		clear(dirs)
	}
	return nil
}
