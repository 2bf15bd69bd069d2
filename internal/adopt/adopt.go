package adopt

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/internal/door"
	"github.com/evenkeel/evenkeel/internal/wait"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
)

// Options are the settings of an Adoption, which copies rows of another store (the source) into a bucket or compares
// the two.
type Options struct {
	Source Source
	Bucket *listing.Bucket
	// Pace limits the number of rows per second that are read from the source.
	Pace *wait.Pacer
	// Parallel is the number of streams of rows that are read at the same time.
	Parallel int
	// Memory is the largest number of bytes that Compare and Back hold in rows of the source; 0 stands for
	// DefaultMemory. If Memory is too small for one row of each part of the source, they fail with ErrMemory.
	Memory int64
	// Spans are intervals of keys that together have all keys. The intervals are read at the same time.
	Spans []Span
	// Report is called with each row that cannot be copied, and with each difference that Compare finds. One goroutine
	// at a time calls it.
	Report func(Finding)
}

// Finding is a report about one key: its row cannot be copied into the bucket, or the source and the bucket have
// different rows for the key.
type Finding struct {
	Key []byte
	// Fault says in words what is wrong. It is the text of a Refusal (the row cannot be copied) or of a Difference.
	Fault string
}

// Difference says how the source and the bucket differ in one key, as a text for people: e.g. "it is not in the
// bucket".
type Difference string

// These are the differences that a comparison can find for one key.
const (
	Missing   Difference = "it is not in the bucket"
	Differing Difference = "its value in the bucket is another one"
	Extra     Difference = "it is not in the source"
	Collision Difference = "several rows of the source have this key"
)

// Adoption is one run that copies the rows of another store into a bucket (Copy), compares the two (Compare), or writes
// the bucket's entries back (Back). Only one of its methods may run at a time, except for Counts.
type Adoption struct {
	o      Options
	counts Counts
	merge  merging
	mu     sync.Mutex // guards calls of Report
}

// Counts are the numbers of rows that a run of copying or comparing has handled so far.
type Counts struct {
	// Read is the number of rows read from the source. When the bucket is written back, Read also counts the bucket's
	// rows. Refused is the number of rows that cannot be copied.
	Read, Refused atomic.Int64
	// Put and Deleted are the numbers of rows written to the bucket or, when the bucket is written back, to the target.
	Put, Deleted atomic.Int64
	// Different is the number of keys in which the source and the bucket differ. With repairs it is the number of keys
	// that were repaired.
	Different atomic.Int64
	// Again is the number of pages of rows that were read again because the bucket's partition map (its ranges and
	// partitions) had changed during the read.
	Again atomic.Int64
}

// New returns an Adoption, which copies rows of another store into a bucket or compares the two, as the options o say.
// The work begins when one of its methods is called.
func New(o Options) *Adoption {
	o.Memory = cmp.Or(o.Memory, DefaultMemory)
	return &Adoption{o: o}
}

// Counts returns the numbers of rows that the run has handled so far. The numbers may be read at any time, also while
// the run goes on.
func (a *Adoption) Counts() *Counts { return &a.counts }

const (
	pageRows  = 1000
	pageBytes = 2 << 20
)

// size is the number of rows to request for the next page of a source. It follows from the size of earlier rows, so
// that a page has about pageBytes bytes.
type size int

func (s *size) learn(rows []Row) {
	bytes := 1
	for i := range rows {
		bytes += len(rows[i].Key) + len(rows[i].Value)
	}
	*s = size(min(max(len(rows)*pageBytes/bytes, 2), pageRows))
}

// early is a source, such as a file, whose rows were read some time before the copy into the bucket. The method AsOf
// returns the time at which all its rows count as written.
type early interface{ AsOf() store.Timestamp }

// ErrForgotten is the error of a copy that could bring deleted rows back. Only sources such as files, whose rows were
// read some time ago, are affected. Keys of these rows may have been deleted from the bucket since, and the bucket may
// no longer remember all these deletions.
var ErrForgotten = store.Errorf(store.Conflict, "the bucket's map has changed since the time of the rows (--as-of), "+
	"or that is more than a day ago: what was deleted since could come back")

// mark returns a mark of the bucket, which stands for a moment. The caller reads rows from the source after that
// moment, and writes them to the bucket with the mark. So they do not replace rows that were deleted or written since.
// For a source that was read earlier, such as a file, mark fails with ErrForgotten if the bucket no longer remembers
// all deletions since then.
func (a *Adoption) mark(ctx context.Context) (door.Mark, error) {
	m, err := door.Bucket(a.o.Bucket).Mark(ctx)
	if s, ok := a.o.Source.(early); ok && err == nil && !m.Remembers(s.AsOf()) {
		err = ErrForgotten
	}
	return m, err
}

// Ready returns nil if Copy can begin, or ErrForgotten if Copy would fail with this error at once. It copies nothing.
func (a *Adoption) Ready(ctx context.Context) error {
	_, err := a.mark(ctx)
	return err
}

// Copy copies all rows of the source into the bucket, each with its own write time. A row is skipped if the bucket has
// a newer row, or a newer deletion, of the same key. The argument done has the progress so far; Copy goes on from there
// and updates it. So a failed Copy may be repeated.
func (a *Adoption) Copy(ctx context.Context, done *Done) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(a.o.Parallel)
	for part := range a.o.Source.Parts() {
		for i := range a.o.Spans {
			g.Go(func() error { return a.copy(ctx, done, part, i) })
		}
	}
	return g.Wait()
}

func (a *Adoption) copy(ctx context.Context, done *Done, part, i int) error {
	left, ended := done.left(part, i, a.o.Spans[i])
	n := size(pageRows / 4)
	for !ended {
		limit := int(n)
		if err := a.o.Pace.Take(ctx, limit); err != nil {
			return err
		}
		var page []Row
		err := a.patiently(ctx, func() error {
			m, err := a.mark(ctx)
			if err == nil {
				page, err = a.o.Source.Page(ctx, part, left, limit, true)
			}
			if err == nil {
				err = door.Bucket(a.o.Bucket).Bring(ctx, m, brought(page))
			}
			return err
		})
		if err != nil {
			return err
		}
		a.o.Pace.Return(limit - len(page))
		var refused []Row
		for i := range page {
			if page[i].Refused != "" {
				refused = append(refused, page[i])
				a.report(page[i].Key, string(page[i].Refused))
			}
		}
		a.counts.Read.Add(int64(len(page)))
		a.counts.Refused.Add(int64(len(refused)))
		a.counts.Put.Add(int64(len(page) - len(refused)))
		if ended = len(page) < limit; !ended {
			left.From, left.After = slices.Clone(page[len(page)-1].Key), true
			n.learn(page)
		}
		done.set(part, i, page, refused, ended)
	}
	return nil
}

// brought returns the rows of a page of the source that can be copied, in the form in which Bring writes them to
// the bucket. Rows that cannot be copied (Row.Refused) are left out.
func brought(page []Row) []store.Row {
	out := make([]store.Row, 0, len(page))
	for i := range page {
		if r := &page[i]; r.Refused == "" {
			out = append(out, entry(r.Key, r.Value, r.Time))
		}
	}
	return out
}

// entry returns a row to put into the bucket, with the given key, value and time. A nil value becomes an empty one, as
// a row with a nil value would be a deletion.
func entry(key, value []byte, at store.Timestamp) store.Row {
	if value == nil {
		value = []byte{}
	}
	return store.Row{Key: key, Value: value, Timestamp: at}
}

// patiently calls f, and calls it again after errors that may pass:
//   - up to eight times in all while the store is slow or unavailable, and
//   - without a limit while ranges of the bucket move (door.ErrMoved).
//
// It pauses between the calls. Other errors are returned at once.
func (a *Adoption) patiently(ctx context.Context, f func() error) error {
	const attempts = 8
	pauses := wait.Backoff{First: 20 * time.Millisecond, Most: 10 * time.Second, Jitter: 0.5}
	for n := 1; ; n++ {
		err := f()
		if errors.Is(err, door.ErrMoved) {
			a.counts.Again.Add(1)
			n = min(n, attempts-1) // a move takes many seconds, and there may be others
		} else if k := store.KindOf(err); k != store.Unavailable && k != store.Timeout {
			return err
		}
		if n == attempts || pauses.Sleep(ctx, n) != nil {
			return err
		}
	}
}

func (a *Adoption) report(key []byte, fault string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.o.Report(Finding{Key: key, Fault: fault})
}
