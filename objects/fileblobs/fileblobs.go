// Package fileblobs keeps the bodies of objects as files in a directory.
package fileblobs

import (
	"bufio"
	"context"
	"errors"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/google/uuid"

	"github.com/evenkeel/evenkeel/store"
)

// Store is a directory of blobs. It is safe for concurrent use, also by several processes.
type Store struct {
	root  *os.Root
	swept atomic.Int64 // when sweep was called last, in Unix seconds
}

const (
	// unfinished is the folder of files that are being written. No name begins with a dot.
	unfinished = ".unfinished"
	// abandoned is the age of a file there that nobody writes any more: far above the time of a put, and by far more than
	// the clocks of those that share the directory differ.
	abandoned = 24 * time.Hour
	// sweepEvery is how often it is looked for them.
	sweepEvery = time.Hour
)

// Directory returns the directory that a URL like file:///srv/bodies names; false: the text is no such URL.
func Directory(text string) (dir string, ok bool) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "file" || u.Host != "" || !filepath.IsAbs(u.Path) || u.RawQuery+u.Fragment != "" {
		return "", false
	}
	return filepath.Clean(u.Path), true
}

// Open opens a directory, which is made if there is none. Files that were being written when a
// process died are in a folder of their own, and are removed a day later, by whoever opens the directory or writes.
func Open(dir string) (*Store, error) {
	if err := os.MkdirAll(filepath.Join(dir, unfinished), 0o700); err != nil {
		return nil, kind(err)
	}
	s, err := Look(dir)
	if err == nil {
		s.sweep(time.Now())
	}
	return s, err
}

// sweep now and then removes the files that were left by processes which died while they wrote. A removal that fails is
// tried again.
func (s *Store) sweep(now time.Time) {
	last := s.swept.Load()
	if now.Sub(time.Unix(last, 0)).Abs() < sweepEvery || !s.swept.CompareAndSwap(last, now.Unix()) {
		return
	}
	d, err := s.root.Open(unfinished)
	if err != nil {
		return
	}
	defer d.Close()
	for {
		entries, err := d.ReadDir(1024)
		for _, e := range entries {
			if st, err := e.Info(); err == nil && st.Mode().IsRegular() && now.Sub(st.ModTime()) > abandoned {
				_ = s.root.Remove(unfinished + "/" + e.Name())
			}
		}
		if err != nil || len(entries) == 0 {
			return
		}
	}
}

// Look opens a directory that must be there, and makes nothing in it: for checks.
func Look(dir string) (*Store, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, kind(err)
	}
	return &Store{root: root}, nil
}

// Close frees the directory.
func (s *Store) Close() error { return s.root.Close() }

// Create writes a blob, and returns once it is on the disk under its name.
func (s *Store) Create(ctx context.Context, name string, body io.Reader, _ int64) (err error) {
	if err := check(name); err != nil {
		return err
	}
	s.sweep(time.Now())
	temporary := unfinished + "/" + uuid.NewString()
	f, err := s.root.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return kind(err)
	}
	defer func() {
		if err != nil {
			_ = f.Close()
			_ = s.root.Remove(temporary)
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
		if err = s.folder(filepath.Dir(name)); err == nil {
			err = s.root.Rename(temporary, name)
		}
		if err == nil {
			break
		}
		const most = 100
		if !errors.Is(err, fs.ErrNotExist) || tries == most { // else Delete has removed the folder, which was empty
			return kind(err)
		}
	}
	// The entries of the folders on the way may be new, too.
	for dir := filepath.Dir(name); ; dir = filepath.Dir(dir) {
		if err := s.sync(dir); err != nil || dir == "." {
			return kind(err)
		}
	}
}

// writers pools the memory in which pieces of a body are gathered. However they are cut, writes are of whole
// pages, at multiples of their length: the kernel then keeps the file in larger units, and reads it 1.4 times as
// fast.
var writers = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, writeBytes) }}

const writeBytes = 128 << 10

// write writes a body to a file.
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

// flushEvery is after how many bytes the disk is told to begin with them.
const flushEvery = 4 << 20

// flushed is a file whose bytes go to the disk while others are still being written. So the sync at the
// end has little left to do; it alone says that all is there.
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

// folder makes a folder.
func (s *Store) folder(dir string) error { return s.root.MkdirAll(dir, 0o700) }

func (s *Store) sync(dir string) error {
	d, err := s.root.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// Open opens n bytes of a blob, from an offset on.
func (s *Store) Open(_ context.Context, name string, offset, n int64) (io.ReadCloser, int64, error) {
	if err := check(name); err != nil {
		return nil, 0, err
	}
	f, err := s.root.Open(name)
	if err != nil {
		return nil, 0, kind(err)
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = fs.ErrNotExist
	}
	if err != nil {
		_ = f.Close()
		return nil, 0, kind(err)
	}
	return &part{io.NewSectionReader(f, offset, n), f}, st.Size(), nil
}

// part is a part of a file.
type part struct {
	*io.SectionReader
	f *os.File
}

func (p *part) Close() error { return p.f.Close() }

// Delete deletes a blob, and the folders on the way that are empty then.
func (s *Store) Delete(_ context.Context, name string) error {
	if err := check(name); err != nil {
		return err
	}
	if err := s.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return kind(err)
	}
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if err := s.root.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			break // something is in it
		}
	}
	return nil
}

// List lists blobs in bytewise order of their names. Of a folder it holds at most twice mostNames of
// the names in memory; one that has more is read several times.
func (s *Store) List(ctx context.Context, prefix, after string, each func(name string, size int64) error) error {
	l := lister{s: s, prefix: prefix, after: after, each: each}
	dir := prefix[:strings.LastIndexByte(prefix, '/')+1]
	if dir != "" {
		if err := check(dir[:len(dir)-1]); err != nil {
			return err
		}
	}
	return l.folder(ctx, dir)
}

// mostNames is how many names of a folder are sorted at a time. Servers list all bodies now and then: of the longest
// names these take 150 MiB, with the garbage.
var mostNames = 200_000

type lister struct {
	s             *Store
	prefix, after string
	each          func(name string, size int64) error
}

// folder lists what is below a folder, whose name ends with a slash, or is empty.
func (l *lister) folder(ctx context.Context, dir string) error {
	last := ""
	for {
		names, more, err := l.names(ctx, dir, last)
		if err != nil {
			return kind(err)
		}
		for _, name := range names {
			if strings.HasSuffix(name, "/") {
				if err := l.folder(ctx, dir+name); err != nil {
					return err
				}
				continue
			}
			st, err := l.s.root.Stat(dir + name)
			if errors.Is(err, fs.ErrNotExist) {
				continue // deleted meanwhile
			}
			if err != nil {
				return kind(err)
			}
			if err := l.each(dir+name, st.Size()); err != nil {
				return err
			}
		}
		if !more {
			return nil
		}
		last = names[len(names)-1]
	}
}

// wants reports whether a blob is, or blobs below a folder may be, in the listing.
func (l *lister) wants(full string) bool {
	if strings.HasSuffix(full, "/") {
		return (full > l.after || strings.HasPrefix(l.after, full)) &&
			(strings.HasPrefix(full, l.prefix) || strings.HasPrefix(l.prefix, full))
	}
	return full > l.after && strings.HasPrefix(full, l.prefix)
}

// names returns the first mostNames names of a folder above last that are wanted, in order; those of
// folders end with a slash, as in the names of blobs. more: there are others.
func (l *lister) names(ctx context.Context, dir, last string) (names []string, more bool, err error) {
	d, err := l.s.root.Open(path.Join(".", dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	defer d.Close()
	cut := func() {
		slices.Sort(names)
		if len(names) > mostNames {
			clear(names[mostNames:])
			names, more = names[:mostNames], true
		}
	}
	for {
		entries, err := d.ReadDir(1024)
		for _, e := range entries {
			name := e.Name()
			if e.IsDir() {
				name += "/"
			}
			if name[0] == '.' || name <= last || !l.wants(dir+name) {
				continue
			}
			if names = append(names, name); len(names) >= 2*mostNames {
				cut()
			}
		}
		if err == nil {
			err = ctx.Err()
		}
		switch {
		case errors.Is(err, io.EOF):
			cut()
			return names, more, nil
		case err != nil:
			return nil, false, err
		}
	}
}

// check refuses names that are not paths of plain parts.
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

// kind gives an error of the file system its kind. Those of a body, which have one, keep it.
func kind(err error) error {
	var known *store.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &known):
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

// untilDone is a reader that fails once its context has ended.
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
