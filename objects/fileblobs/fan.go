package fileblobs

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/evenkeel/evenkeel/store"
)

// The blobs of a bucket are distributed over 4096 directories by a hash of their key:
//
//	blob  b/KEY-/ID         old path       b/KEY-/ID
//	                        new path       b/+HHH/KEY-/ID      HHH: the first hexadecimal digits of the hash
//
// The reason is that a directory of ext4 is full at some two million names. With 10^9 keys, each of the directories has
// 244,000 names. No name of a blob contains a plus, so no file is taken for the file of another blob. All blobs of a
// key are in one directory, so that the blobs of one upload are listed without reading the other directories.
//
// Older programs know only the old paths. Where they may still be running, blobs are written to the old paths: the new
// paths are used only in a directory that has the marker file. The marker file has the name of the directory in which
// older programs write unfinished files, so they can't open a directory that has it. Blobs are read from both paths,
// with the marker file and without.
const (
	mark       = unfinished
	markText   = "form 2\nThe bodies here are in folders by a hash of their keys. Older servers can't read them.\n"
	fanDigits  = 3
	writingFan = ".writing" // the directory of unfinished files, if there is a marker file
	beginning  = ".mark-"   // the beginning of the names of marks that are being written
)

// fanOf returns the directory for the file of a blob, which is chosen by a hash of the object's key. The directory ends
// with a slash. name is the name of the blob, or the first part of the names of several blobs. The result ok is false
// if name does not have the whole key, as the blobs may then be in several directories.
func fanOf(name string) (fan string, ok bool) {
	bucket, rest, inBucket := strings.Cut(name, "/")
	key, _, ok := strings.Cut(rest, "-/")
	if !inBucket {
		return "", false
	}
	sum := sha256.Sum256([]byte(key))
	return bucket + "/+" + hex.EncodeToString(sum[:])[:fanDigits] + "/", ok
}

// fanned returns the path of the file of a blob, in a directory that is chosen by a hash of the object's key. A blob
// that belongs to no bucket is not in a directory of this kind. Then fanned returns the blob's own name and false.
func fanned(name string) (file string, ok bool) {
	fan, _ := fanOf(name)
	if fan == "" {
		return name, false
	}
	return fan + name[strings.IndexByte(name, '/')+1:], true
}

// files returns the paths at which the file of a blob may be, in the order in which to look. Mostly these are two
// paths: the path of the blob's own name, to which older programs write, and a path in a directory chosen by a hash. If
// there is a marker file, the latter comes both first and last.
func (s *directory) files(name string) []string {
	// A migration may move the file at any moment from the path of its own name to the other path, and never back. So a
	// look at the first path and then at the second finds the file. Once there is a marker file, most files are at the
	// second path already, so that path also comes at the beginning.
	file, ok := fanned(name)
	switch {
	case !ok:
		return []string{name}
	case s.fans.Load():
		return []string{file, name, file}
	}
	return []string{name, file}
}

// begin prepares an empty directory for blobs: it puts a marker file into the directory, which says that blobs go into
// subdirectories chosen by a hash of their keys. In a directory that is in use, begin does nothing. If several
// processes begin at once, perhaps older programs among them, the process that first creates the name of the marker
// file decides on the layout.
func begin(dir string) error {
	entries, err := os.ReadDir(dir)
	used := func(e fs.DirEntry) bool { return e.Name() != "lost+found" && !strings.HasPrefix(e.Name(), beginning) }
	if err != nil || slices.ContainsFunc(entries, used) {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	return writeMark(root, func(temporary string) error {
		_ = root.Link(temporary, mark) // another process was first, or there are no links: the place is looked at again
		return nil
	})
}

// writeMark writes the text of the marker file, which tells the layout of the directory, into a temporary file, and
// syncs the file. Then it calls put with the path of the temporary file. put gives the file its final name.
func writeMark(root *os.Root, put func(temporary string) error) error {
	temporary := beginning + uuid.NewString()
	f, err := root.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer root.Remove(temporary) //nolint:errcheck // what is left is not read
	_, err = f.WriteString(markText)
	if err = cmp.Or(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return put(temporary)
}

// form finds out the layout of the directory. It sets s.fans to true if the directory has the marker file: then blobs
// go into subdirectories chosen by a hash. It fails with InvalidArgument if the marker file has an unknown text, as a
// newer program may write.
func (s *directory) form() error {
	st, err := s.root.Stat(mark)
	if errors.Is(err, fs.ErrNotExist) || err == nil && st.IsDir() {
		return nil
	}
	if err != nil {
		return err
	}
	text, err := s.root.ReadFile(mark)
	if line, _, _ := strings.Cut(string(text), "\n"); err == nil && line != "form 2" {
		return store.Errorf(store.InvalidArgument, "%s in the directory of blobs does not say \"form 2\" but %.64q: a newer "+
			"server has written there, or the file is damaged; use the newer program, or bring the file back", mark, line)
	}
	if err == nil {
		s.fans.Store(true)
	}
	return err
}

// writing returns the directory for files that are being written. fans is true if finished blobs go into subdirectories
// chosen by a hash.
func writing(fans bool) string {
	if fans {
		return writingFan
	}
	return unfinished
}

func (s *directory) writing() string { return writing(s.fans.Load()) }

func isFan(name string) bool { return len(name) == 1+fanDigits && name[0] == '+' }
