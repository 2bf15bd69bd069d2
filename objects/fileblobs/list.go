package fileblobs

import (
	"bufio"
	"cmp"
	"container/heap"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
)

// mostNames is the largest number of names that a listing sorts in memory. Further names go to a temporary file.
// Servers list all bodies now and then, so memory matters: 200,000 of the longest names take 150 MiB, with what the
// garbage collector has not yet freed. Tests set mostNames.
var mostNames = 200_000

// List calls the func each with the name and the size of every blob whose name begins with prefix, in bytewise order of
// the names. The parameter after is a name: only blobs with greater names are listed. A blob that exists during the
// whole call is listed, even if a migration moves its file meanwhile. Each directory is read once. If there are more
// than mostNames names, they are sorted with the help of a temporary file.
func (s *directory) List(ctx context.Context, prefix, after string, each func(name string, size int64) error) error {
	if end := strings.LastIndexByte(prefix, '/'); end >= 0 {
		if err := check(prefix[:end]); err != nil {
			return err
		}
	}
	if !s.looks {
		s.sweep(time.Now())
	}
	if bucket, _, ok := strings.Cut(prefix, "/"); ok {
		return s.listBucket(ctx, bucket+"/", prefix, after, each)
	}
	return s.top(ctx, prefix, after, func(name string) error {
		if strings.HasSuffix(name, "/") {
			return s.listBucket(ctx, name, prefix, after, each)
		}
		return s.pass(name, each)
	})
}

// Tops calls the func each with the text before the first slash of the names of blobs, which stands for a bucket.
// Perhaps no blob with this beginning exists any more (see objects.Tops).
func (s *directory) Tops(ctx context.Context, each func(top string) error) error {
	return s.top(ctx, "", "", func(name string) error {
		if top, ok := strings.CutSuffix(name, "/"); ok && check(top) == nil {
			return each(top)
		}
		return nil
	})
}

// Written returns the time when the named blob was written, which is the modification time of its file. If the file was
// copied without its time, Written returns the time of the copy. It fails with NotFound if there is no such blob.
func (s *directory) Written(_ context.Context, name string) (time.Time, error) {
	if err := check(name); err != nil {
		return time.Time{}, err
	}
	st, err := s.stat(name)
	if err != nil {
		return time.Time{}, kind(err)
	}
	return st.ModTime(), nil
}

// top calls the func each with the names of the files and directories at the top level of the Store, in bytewise order.
// It leaves out names that a listing of blobs with this prefix, from the name after on, does not need.
func (s *directory) top(ctx context.Context, prefix, after string, each func(name string) error) error {
	names := sorter{s: s}
	defer names.close()
	l := lister{s: s, prefix: prefix, after: after}
	if err := l.entries(ctx, "", names.add); err != nil {
		return kind(err)
	}
	return names.all(ctx, each)
}

// listBucket lists the blobs of a bucket, each once. The file of a blob is either at the path of the blob's own name,
// as older programs write it, or in a directory chosen by a hash.
func (s *directory) listBucket(
	ctx context.Context, bucket, prefix, after string, each func(name string, size int64) error,
) error {
	// All files at the paths of their own names are read first. A migration may move files to the directories chosen by
	// a hash, and never back. So a file that is moved before the first search finds it is found by the second search,
	// and sorter drops what both have found.
	names := sorter{s: s}
	defer names.close()
	l := lister{s: s, prefix: prefix, after: after, each: names.add}
	dir := cmp.Or(prefix[:strings.LastIndexByte(prefix, '/')+1], bucket)
	err := l.folder(ctx, dir)
	if err == nil {
		err = l.fans(ctx, bucket, dir)
	}
	if err != nil {
		return kind(err)
	}
	return names.all(ctx, func(name string) error { return s.pass(name, each) })
}

// pass looks up the size of the named blob, and calls the func each with the name and the size. It does nothing if the
// blob was deleted meanwhile.
func (s *directory) pass(name string, each func(name string, size int64) error) error {
	st, err := s.stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return kind(err)
	}
	return each(name, st.Size())
}

// lister reads directories, and calls the func each with the names of the blobs in them. The names are not sorted.
type lister struct {
	s             *directory
	prefix, after string
	home, fan     string // fan: the directory of names that begin with home; both are empty for old paths
	each          func(name string) error
}

// file returns the path of the file that has the blob with this name. If name is the beginning of the names of several
// blobs, file returns the path of their directory.
func (l *lister) file(name string) string { return l.fan + name[len(l.home):] }

// fans lists the blobs of a bucket that are in directories chosen by a hash of the object's key. If the prefix of the
// listing contains a whole key, only the directory for this key is read.
func (l *lister) fans(ctx context.Context, bucket, dir string) error {
	l.home = bucket
	if fan, ok := fanOf(l.prefix); ok {
		l.fan = fan
		return l.folder(ctx, dir)
	}
	d, err := l.s.root.Open(strings.TrimSuffix(bucket, "/"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer d.Close()
	for {
		entries, err := d.ReadDir(1024)
		for _, e := range entries {
			if !e.IsDir() || !isFan(e.Name()) {
				continue
			}
			l.fan = bucket + e.Name() + "/"
			if err := l.folder(ctx, bucket); err != nil {
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

// gone reports whether err is a normal end of reading a directory: either the directory was read to its end, or another
// process has removed the empty directory.
func gone(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, fs.ErrNotExist) }

// folder lists the blobs in the directory dir and in the directories below it. The name dir ends with a slash.
func (l *lister) folder(ctx context.Context, dir string) error {
	return l.entries(ctx, dir, func(name string) error {
		if strings.HasSuffix(name, "/") {
			return l.folder(ctx, name)
		}
		return l.each(name)
	})
}

// entries reads the directory dir, and calls the func each with the names in it that the listing selects. The name of a
// subdirectory ends with a slash. If dir is empty, entries removes it, except in a Store that was opened by Look.
func (l *lister) entries(ctx context.Context, dir string, each func(name string) error) error {
	at := path.Join(".", l.file(dir))
	d, err := l.s.root.Open(at)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer d.Close()
	for empty := true; ; {
		entries, err := d.ReadDir(1024)
		for _, e := range entries {
			empty = false
			name := e.Name()
			if e.IsDir() {
				name += "/"
			}
			if name[0] == '.' || name[0] == '+' || !l.wants(dir+name) {
				continue
			}
			if err := each(dir + name); err != nil {
				return err
			}
		}
		if gone(err) {
			if empty && !l.s.looks {
				l.s.prune(at)
			}
			return nil
		}
		if err = cmp.Or(err, ctx.Err()); err != nil {
			return err
		}
	}
}

// wants reports whether the listing selects the blob with the name full. If full is the name of a directory, wants
// reports whether the listing may select blobs below the directory.
func (l *lister) wants(full string) bool {
	if strings.HasSuffix(full, "/") {
		return (full > l.after || strings.HasPrefix(l.after, full)) &&
			(strings.HasPrefix(full, l.prefix) || strings.HasPrefix(l.prefix, full))
	}
	return full > l.after && strings.HasPrefix(full, l.prefix)
}

// sorter sorts names, and returns each name once. It keeps up to mostNames names in memory. If there are more, it
// writes sorted sequences of names to a temporary file, and merges them at the end.
type sorter struct {
	s     *directory
	names []string
	f     *os.File
	end   int64
	runs  []*io.SectionReader
}

func (o *sorter) add(name string) error {
	if o.names = append(o.names, name); len(o.names) < mostNames {
		return nil
	}
	return o.spill()
}

// spill sorts the names that are in memory, writes them to the temporary file as one sorted sequence, and frees the
// memory.
func (o *sorter) spill() (err error) {
	if o.f == nil {
		if o.f, err = o.s.scratch(); err != nil {
			return err
		}
	}
	slices.Sort(o.names)
	w, begin := bufio.NewWriterSize(o.f, writeBytes), o.end
	for _, name := range o.names {
		n, _ := w.WriteString(name + "\n")
		o.end += int64(n)
	}
	clear(o.names)
	o.names = o.names[:0]
	o.runs = append(o.runs, io.NewSectionReader(o.f, begin, o.end-begin))
	return w.Flush()
}

// scratch opens a temporary file without a name, which disappears when it is closed. Mostly the file is in the
// directory of unfinished files. If the process may only read the directory of blobs, the file is in the system's
// directory of temporary files.
func (s *directory) scratch() (*os.File, error) {
	for range 2 {
		name := s.writing() + "/" + uuid.NewString()
		if f, err := s.root.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600); err == nil {
			return f, s.root.Remove(name)
		}
		if err := s.form(); err != nil { // the marker file may have been made
			return nil, err
		}
	}
	f, err := os.CreateTemp("", "bodies-*")
	if err == nil {
		err = os.Remove(f.Name())
	}
	return f, err
}

func (o *sorter) close() {
	if o.f != nil {
		_ = o.f.Close()
	}
}

// all calls the func each with every name once, in bytewise order. It merges the sorted sequences of names in memory
// and in the temporary file.
func (o *sorter) all(ctx context.Context, each func(string) error) error {
	slices.Sort(o.names)
	h := runs{{names: o.names}}
	for _, r := range o.runs {
		h = append(h, &run{r: bufio.NewReaderSize(r, 16<<10)})
	}
	for _, r := range h {
		if err := r.next(); err != nil {
			return kind(err)
		}
	}
	h = slices.DeleteFunc(h, func(r *run) bool { return r.name == "" })
	last := ""
	for heap.Init(&h); len(h) > 0; {
		if name := h[0].name; name != last {
			if err := cmp.Or(ctx.Err(), each(name)); err != nil {
				return err
			}
			last = name
		}
		if err := h[0].next(); err != nil {
			return kind(err)
		}
		if h[0].name == "" {
			heap.Pop(&h)
		} else {
			heap.Fix(&h, 0)
		}
	}
	return nil
}

// run is a sorted sequence of names that a sorter merges with other sequences. It is in memory or in a section of a
// file.
type run struct {
	names []string
	r     *bufio.Reader
	name  string // the present name; empty at the end
}

func (r *run) next() (err error) {
	r.name = ""
	if r.r == nil {
		if len(r.names) > 0 {
			r.name, r.names = r.names[0], r.names[1:]
		}
		return nil
	}
	line, err := r.r.ReadString('\n')
	if errors.Is(err, io.EOF) && line == "" {
		return nil
	}
	r.name = strings.TrimSuffix(line, "\n")
	return err
}

type runs []*run

func (h runs) Len() int           { return len(h) }
func (h runs) Less(i, j int) bool { return h[i].name < h[j].name }
func (h runs) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *runs) Push(any)          { panic("runs only end") }
func (h *runs) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}
