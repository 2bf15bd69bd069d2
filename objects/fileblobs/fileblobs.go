// Package fileblobs stores the bodies of objects (blobs) as files in a directory. Open returns a Store, which
// objects.New takes.
package fileblobs

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/google/uuid"

	"github.com/evenkeel/evenkeel/objects"
	"github.com/evenkeel/evenkeel/store"
)

// Store is a directory that stores blobs, which are bodies of objects, as files. It is safe for concurrent use, also by
// several processes. Close closes the directory. The Store must not be used afterwards.
type Store interface {
	objects.Blobs
	objects.Tops
	io.Closer
}

// directory implements Store.
type directory struct {
	root  *os.Root
	looks bool         // opened by Look: only what a caller asks for is changed
	fans  atomic.Bool  // the directory has the marker file (fan.go)
	swept atomic.Int64 // when sweep last looked for abandoned files, in Unix seconds
}

const (
	// unfinished is the directory of files that are being written. No name of a blob begins with a dot, so it can't be
	// the name of a blob.
	unfinished = ".unfinished"
	// abandoned is the age at which an unfinished file is removed, since no process is still writing the file. It is
	// far above the time of a put, and above the differences between the clocks of the machines that share the
	// directory.
	abandoned = 24 * time.Hour
	// sweepEvery is the shortest time between two searches for abandoned files, which dead processes have left
	// unfinished.
	sweepEvery = time.Hour
)

// Open opens a directory for blobs, and creates it if it does not exist. If a process dies while it writes a file, the
// file stays in a directory for unfinished files. Any process that opens the Store, writes or lists removes such a file
// a day later. A process that lists also removes empty directories.
func Open(dir string) (Store, error) { return stored(open(dir)) }

func stored(s *directory, err error) (Store, error) {
	if err != nil {
		return nil, err
	}
	return s, nil
}

func open(dir string) (*directory, error) {
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		err = begin(dir)
	}
	if err != nil {
		return nil, kind(err)
	}
	s, err := look(dir)
	if err != nil {
		return nil, err
	}
	if err := s.folder(s.writing()); err != nil {
		_ = s.Close()
		return nil, kind(err)
	}
	s.looks = false
	s.sweep(time.Now())
	return s, nil
}

// sweep removes unfinished files that are a day old, since the processes that were writing them have died. It does
// nothing if the last sweep was less than an hour before now. If a file can't be removed, the next sweep tries again.
func (s *directory) sweep(now time.Time) {
	last := s.swept.Load()
	if now.Sub(time.Unix(last, 0)).Abs() < sweepEvery || !s.swept.CompareAndSwap(last, now.Unix()) {
		return
	}
	writing := s.writing()
	d, err := s.root.Open(writing)
	if err != nil {
		return
	}
	defer d.Close()
	for {
		entries, err := d.ReadDir(1024)
		for _, e := range entries {
			if st, err := e.Info(); err == nil && st.Mode().IsRegular() && now.Sub(st.ModTime()) > abandoned {
				_ = s.root.Remove(writing + "/" + e.Name())
			}
		}
		if err != nil || len(entries) == 0 {
			return
		}
	}
}

// Look opens a directory of blobs, which must exist, for checks. Unlike a Store from Open, the Store does no
// housekeeping: it creates and removes only what its caller asks for.
func Look(dir string) (Store, error) { return stored(look(dir)) }

func look(dir string) (*directory, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, kind(err)
	}
	s := &directory{root: root, looks: true}
	if err := s.form(); err != nil {
		_ = root.Close()
		return nil, kind(err)
	}
	return s, nil
}

func (s *directory) Close() error { return s.root.Close() }

// Create writes a blob with the given name, and returns once the blob is durable on the disk. The size of the body need
// not be known: the last argument is ignored.
func (s *directory) Create(ctx context.Context, name string, body io.Reader, _ int64) (err error) {
	if err := check(name); err != nil {
		return err
	}
	s.sweep(time.Now())
	f, temporary, err := s.unfinished()
	if err != nil {
		return kind(err)
	}
	file := temporary.target(name)
	defer func() {
		if err != nil {
			_ = f.Close()
			_ = s.root.Remove(temporary.path())
			s.prune(path.Dir(file))
		}
	}()
	if err = write(f, &untilDone{ctx, body}); err != nil {
		return kind(err)
	}
	if err = f.Sync(); err != nil {
		return kind(err)
	}
	if err = f.Close(); err != nil {
		return kind(err)
	}
	for tries := 0; ; tries++ {
		if err = s.folder(path.Dir(file)); err == nil {
			err = s.root.Rename(temporary.path(), file)
		}
		if err == nil {
			break
		}
		// Another process has removed the folder, which was empty. Or the marker file has been made, and its
		// unfinished files have moved.
		again, ferr := s.again(tries, err)
		if ferr != nil || !again {
			return kind(cmp.Or(ferr, err))
		}
		if !temporary.fans && s.fans.Load() {
			s.prune(path.Dir(file))
			temporary.fans = true
			file = temporary.target(name)
		}
	}
	there, err := s.syncUp(file)
	if fan, ok := fanned(name); err == nil && !there && ok {
		_, err = s.syncUp(fan) // a migration has moved the blob
	}
	return kind(err)
}

// syncUp syncs all directories above a file, so that the new file, and new directories, are durable. The result there
// is false if one of the directories does not exist any more.
func (s *directory) syncUp(file string) (there bool, err error) {
	there = true
	for dir := path.Dir(file); ; dir = path.Dir(dir) {
		err = s.sync(dir)
		if errors.Is(err, fs.ErrNotExist) {
			there, err = false, nil
		}
		if err != nil || dir == "." {
			return there, err
		}
	}
}

// mostTries is the largest number of times that an operation is tried while other processes change the same
// directories.
const mostTries = 100

// again decides whether to repeat an operation that failed with err. It returns true if other processes that change the
// same directories may have caused err. Before that, it waits for a moment and reads the layout of the directory anew.
// tries is the number of tries so far. After mostTries tries, again fails.
func (s *directory) again(tries int, err error) (bool, error) {
	if !folderChanged(err) && !errors.Is(err, syscall.ENOTDIR) {
		return false, nil
	}
	if tries == mostTries {
		return false, store.Errorf(store.Unavailable, "the directory of blobs: others change its folders: %w", err)
	}
	time.Sleep(time.Duration(tries) * 100 * time.Microsecond)
	return true, s.form()
}

// folderChanged reports whether err may be caused by another process that has removed or created the same directory at
// this moment.
func folderChanged(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrExist)
}

// temporary is the path of a file that is being written, in one of two directories. The directory decides where the
// finished blob goes:
//
//   - from the directory unfinished to the path of the blob's own name, which is the old layout;
//   - from the directory writingFan to a directory chosen by a hash, which is the new layout.
//
// So once a migration has removed the directory unfinished, no file is added in the old layout any more.
type temporary struct {
	id   string
	fans bool
}

func (t temporary) path() string { return writing(t.fans) + "/" + t.id }

// target returns the path of the finished file of the blob with the given name. The temporary file is renamed to this
// path.
func (t temporary) target(name string) string {
	if file, ok := fanned(name); ok && t.fans {
		return file
	}
	return name
}

// unfinished creates a file for a blob that is being written, in the directory of unfinished files. It returns the open
// file and its path, t.
func (s *directory) unfinished() (f *os.File, t temporary, err error) {
	t.id = uuid.NewString()
	for tries := 0; ; tries++ {
		t.fans = s.fans.Load()
		if f, err = s.root.OpenFile(t.path(), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600); err == nil {
			return f, t, nil
		}
		if again, ferr := s.again(tries, err); ferr != nil || !again {
			return nil, t, cmp.Or(ferr, err)
		}
		if tries > mostTries/2 && !s.fans.Load() {
			_ = s.root.Mkdir(unfinished, 0o700) // a migration has died before it made the marker file (turn)
		}
	}
}

// writers is a pool of buffers for writing bodies to files. With a buffer, a file is written in blocks of writeBytes
// (128 KiB) whatever the sizes of the reads from the body. The kernel then keeps the file in larger units, and reads it
// 1.4 times as fast.
var writers = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, writeBytes) }}

const writeBytes = 128 << 10

// write copies body to the file f in large blocks. It does not sync the file.
func write(f *os.File, body io.Reader) error {
	w := writers.Get().(*bufio.Writer)
	defer writers.Put(w)
	defer w.Reset(nil) // the pool keeps neither the file nor an error
	w.Reset(&flushed{f: f})
	if _, err := io.Copy(w, body); err != nil {
		return err
	}
	return w.Flush()
}

// flushEvery is the number of bytes, written to a file, after which the kernel is told to begin to move these bytes to
// the disk.
const flushEvery = 4 << 20

// flushed is a writer to a file that lets the kernel move earlier bytes to the disk while later bytes are still
// arriving. So the sync at the end has little left to do. Still, only that sync guarantees that all bytes are on the
// disk.
type flushed struct {
	f           *os.File
	n, begunFor int64
}

func (w *flushed) Write(p []byte) (int, error) {
	n, err := w.f.Write(p)
	if w.n += int64(n); err == nil && w.n-w.begunFor >= flushEvery {
		beginFlush(w.f, w.begunFor, w.n-w.begunFor)
		w.begunFor = w.n
	}
	return n, err
}

// folder creates the directory dir, and missing directories above it.
func (s *directory) folder(dir string) error { return s.root.MkdirAll(dir, 0o700) }

func (s *directory) sync(dir string) error {
	d, err := s.root.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// Open returns a reader of n bytes of a blob, from offset on, and the size of the whole blob in bytes. It fails with
// NotFound if there is no such blob.
func (s *directory) Open(_ context.Context, name string, offset, n int64) (io.ReadCloser, int64, error) {
	if err := check(name); err != nil {
		return nil, 0, err
	}
	for _, file := range s.files(name) {
		f, size, err := s.open(file)
		if err == nil {
			return &part{io.NewSectionReader(f, offset, n), f}, size, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, 0, kind(err)
		}
	}
	return nil, 0, kind(&fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist})
}

// open opens a file, and returns its size in bytes. It fails with fs.ErrNotExist if there is no such file, or if the
// path is that of a directory or another special file.
func (s *directory) open(file string) (*os.File, int64, error) {
	f, err := s.root.Open(file)
	if err != nil {
		return nil, 0, err
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = fs.ErrNotExist
	}
	if err != nil {
		_ = f.Close()
		return nil, 0, err
	}
	return f, st.Size(), nil
}

// part is a reader of a range of bytes of a file. Closing the reader closes the file.
type part struct {
	*io.SectionReader
	f *os.File
}

func (p *part) Close() error { return p.f.Close() }

// Delete removes a blob, and then the directories above it that are empty. It also succeeds if the blob does not exist.
func (s *directory) Delete(_ context.Context, name string) error {
	if err := check(name); err != nil {
		return err
	}
	files := s.files(name)
	for _, file := range files[max(0, len(files)-2):] {
		if err := s.root.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return kind(err)
		}
		s.prune(path.Dir(file))
	}
	return nil
}

// prune removes the directory dir if it is empty, then the directory above if that is empty now, and so on. If another
// process has just created one of them for a new blob, that process creates the directory again.
func (s *directory) prune(dir string) {
	for ; dir != "."; dir = path.Dir(dir) {
		if err := s.root.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return // the folder is not empty
		}
	}
}

// stat returns the file information of the named blob. It fails with fs.ErrNotExist if there is no such blob.
func (s *directory) stat(name string) (fs.FileInfo, error) {
	for _, file := range s.files(name) {
		st, err := s.root.Stat(file)
		if err == nil && st.Mode().IsRegular() {
			return st, nil
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	return nil, fs.ErrNotExist
}

// check fails with InvalidArgument if name can't be the name of a blob. The name of a blob is a path of at most 1,024
// bytes. Each element of the path has at most 255 letters, digits and characters of ".-_=", and does not begin with a
// dot.
func check(name string) error {
	ok := len(name) <= 1024
	for part := range strings.SplitSeq(name, "/") {
		ok = ok && part != "" && len(part) <= 255 && part[0] != '.'
		for _, c := range []byte(part) {
			letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
			ok = ok && (letter || strings.IndexByte(".-_=", c) >= 0)
		}
	}
	if !ok {
		return store.Errorf(store.InvalidArgument, "%.64q is not the name of a blob", name)
	}
	return nil
}

// kind returns err, an error of the file system, as a store error, which has a kind such as Unavailable. An error that
// already has a kind, e.g. an error of a body, is returned unchanged.
func kind(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, store.KindOf(err)):
		return err
	case errors.Is(err, fs.ErrNotExist):
		return store.Errorf(store.NotFound, "there is no such blob: %w", err)
	}
	var path *fs.PathError
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return store.Errorf(store.Unavailable, "the directory of blobs: %w: %w", store.ErrFull, err)
	}
	if errors.As(err, &path) {
		return store.Errorf(store.Unavailable, "the directory of blobs: %w", err)
	}
	return err
}

// untilDone is a reader that fails with the error of its context once the context has ended. It makes a long copy of a
// body stop early.
type untilDone struct {
	ctx context.Context
	r   io.Reader
}

func (u *untilDone) Read(p []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}
	return u.r.Read(p)
}
