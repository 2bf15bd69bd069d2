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

// A migration moves blobs from the flat place into the folders of their hashes, while other processes read, write, list
// and delete:
//
//	b/KEY-        →  b/+HHH/KEY-       one rename, with all blobs of the key
//	b/KEY-/ID     →  b/+HHH/KEY-/ID    one rename for each blob, if the folder has blobs of the key already
//
// Each step is a rename, so at any moment a blob is in one of the two places, whichever process dies. A blob never
// comes back to the flat place. So a process that looks first into the flat place and then into the folder finds the
// blob (files). For the same reason List and Delete visit the flat place first.
//
// No record says how far a migration has come: the blobs in the flat place are those that are not moved yet. Several
// processes may migrate the same directory.

// Migrate changes the layout of the directory: it moves the files of all blobs into folders chosen by a hash of the
// object's key. First it puts a file into the directory, the mark, so that no older program can open it. An older
// program that has the directory open would not find the moved blobs. Migrate reports to the func each how many keys of
// a bucket were moved since the previous report. each may wait, and an error of each ends the migration. A migration
// can be interrupted and repeated.
func (s *Store) Migrate(ctx context.Context, each func(bucket string, keys int64) error) error {
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

// HasMark reports whether the directory has the mark, a file which says that new blobs go into folders chosen by a
// hash.
func (s *Store) HasMark() bool { return s.fans.Load() }

// turn makes new blobs go into folders chosen by a hash of their keys: it puts the mark, a file that says so, into the
// directory. First it moves the unfinished files from the folder unfinished to the folder writingFan. When they are
// finished, they become blobs in folders chosen by a hash, or their writers fail. Once the folder unfinished is gone,
// no new file appears under a blob's own name any more.
func (s *Store) turn() error {
	for tries := 0; !s.fans.Load(); tries++ {
		err := s.turnUnfinished()
		if err == nil {
			err = writeMark(s.root, s.mark)
		}
		ferr := s.form() // another migration may have been the first
		if ferr != nil || !s.fans.Load() && (tries == mostTries || !occupied(err)) {
			_ = s.root.Mkdir(unfinished, 0o700) // so that other servers can go on without the mark
			return cmp.Or(ferr, err)
		}
	}
	return s.sync(".") // for the mark of another process, too, which may have died
}

// mark replaces the folder of unfinished files by a file of the same name, the mark, which tells the new layout. That
// file is on the disk already, under the name temporary. So the exchange is quick, and no process can begin to write in
// the middle of it.
func (s *Store) mark(temporary string) error {
	// Root.Remove would also remove a file, and so the mark that another migration has just made. Rmdir does not.
	err := syscall.Rmdir(filepath.Join(s.root.Name(), unfinished))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return s.root.Link(temporary, mark)
}

func (s *Store) turnUnfinished() error {
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

// migration is one pass over the files of a bucket that are still under the blobs' own names, to move them into folders
// chosen by a hash.
type migration struct {
	s             *Store
	ctx           context.Context
	each          func(keys int64) error
	keys          int64           // keys that were moved and are not yet told to each
	touched, left map[string]bool // folders that have got, or lost, entries since the last sync
}

// mostMoved is the number of keys whose files a migration moves before it syncs the changed folders. It is also the
// number of entries of a folder that are read at a time. Tests set it.
var mostMoved = 1024

// pass moves all files that it finds into folders chosen by a hash. more is true if it has found any: then another pass
// is needed, since a file system may leave out entries of a folder that changes while it is read.
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

// below passes the entries of a folder to the func each. It reads only mostMoved entries at a time, since a folder of
// keys that begin alike may have millions.
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

// tell syncs the folders that were changed, and then reports how many keys were moved since the last report.
func (m *migration) tell() error {
	keys := m.keys
	if m.keys = 0; keys == 0 {
		return nil
	}
	return cmp.Or(m.sync(), m.each(keys))
}

// move moves a file, or all files below a folder if dir is true, into folders chosen by a hash.
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

// below returns the entries of a folder. It returns none, and no error, if the folder does not exist any more.
func (s *Store) below(dir string) (entries []fs.DirEntry, err error) {
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

// rename moves a file or a folder to the name target. It returns false if the file is not there any more, or if target
// is a folder that is not empty.
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

// occupied reports whether err means that a name is taken already, or that a folder is not empty.
func occupied(err error) bool { return errors.Is(err, fs.ErrExist) }

// sync makes the moves of files durable. It syncs the folders with new entries first, and then those that have lost
// entries. So a crash between the two loses no blob.
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
