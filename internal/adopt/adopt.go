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

	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/wait"
)

// Options of an Adoption.
type Options struct {
	Source Source
	Bucket *listing.Bucket
	// Pace is that of rows read from the source.
	Pace *wait.Pacer
	// Parallel is how many streams are read at a time.
	Parallel int
	// Memory is the most bytes of rows of the source that Compare and Back hold at a time; 0: DefaultMemory. Where it is
	// too little for a row of each part they fail with ErrMemory.
	Memory int64
	// Spans divide the keys: they are read at the same time.
	Spans []Span
	// Report receives rows that are not adopted, and what Compare finds. It is called by one goroutine at a time.
	Report func(Finding)
}

// Finding is a row that is not adopted, or that differs.
type Finding struct {
	Key []byte
	// Fault is a Refusal, or a Difference.
	Fault string
}

// Difference is how the two sides differ in a key.
type Difference string

// The differences.
const (
	Missing   Difference = "it is not in the bucket"
	Differing Difference = "its value in the bucket is another one"
	Extra     Difference = "it is not in the source"
	Collision Difference = "several rows of the source have this key"
)

// Adoption is one run. Its methods are called one at a time, but for Counts.
type Adoption struct {
	o      Options
	counts Counts
	merge  merging
	mu     sync.Mutex // of Report
}

// Counts are what a run has done so far.
type Counts struct {
	// Read are the rows of the source, on the way back with those of the bucket. Refused are those that are not adopted.
	Read, Refused atomic.Int64
	// Put and Deleted are the rows written to the bucket, or to the target on the way back.
	Put, Deleted atomic.Int64
	// Different are the keys that differ, of which a mending run writes what the source has.
	Different atomic.Int64
	// Again is how often a page was read anew, as the bucket's map had changed.
	Again atomic.Int64
}

// New returns a run.
func New(o Options) *Adoption {
	o.Memory = cmp.Or(o.Memory, DefaultMemory)
	return &Adoption{o: o}
}

// Counts may be read at any time.
func (a *Adoption) Counts() *Counts { return &a.counts }

const (
	pageRows  = 1000
	pageBytes = 2 << 20
)

// size adapts the rows of a page to their bytes.
type size int

func (s *size) learn(rows []Row) {
	bytes := 1
	for i := range rows {
		bytes += len(rows[i].Key) + len(rows[i].Value)
	}
	*s = size(min(max(len(rows)*pageBytes/bytes, 2), pageRows))
}

// early is a source that was read before any mark of the bucket: its rows are of one time.
type early interface{ AsOf() store.Timestamp }

// ErrForgotten means that rows of an early source were not brought: what was deleted in the bucket since they were
// written could come back.
var ErrForgotten = store.Errorf(store.Conflict, "the bucket's map has changed since the time of the rows (--as-of), "+
	"or that is more than a day ago: what was deleted since could come back")

// mark returns a mark with which rows of the source may be brought.
func (a *Adoption) mark(ctx context.Context) (listing.Mark, error) {
	m, err := a.o.Bucket.Mark(ctx)
	if s, ok := a.o.Source.(early); ok && err == nil && !m.Remembers(s.AsOf()) {
		err = ErrForgotten
	}
	return m, err
}

// Ready fails with ErrForgotten where Copy would.
func (a *Adoption) Ready(ctx context.Context) error {
	_, err := a.mark(ctx)
	return err
}

// Copy puts all rows of the source into the bucket, each with its own write time, from where done has come to. Rows
// that are newer in the bucket, or deleted there since, stay so. It may be repeated.
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
				err = a.o.Bucket.Bring(ctx, m, brought(page))
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

// brought are the rows of a page as they are brought.
func brought(page []Row) []store.Row {
	out := make([]store.Row, 0, len(page))
	for i := range page {
		if r := &page[i]; r.Refused == "" {
			out = append(out, entry(r.Key, r.Value, r.Time))
		}
	}
	return out
}

// entry is a row that is no deletion.
func entry(key, value []byte, at store.Timestamp) store.Row {
	if value == nil {
		value = []byte{}
	}
	return store.Row{Key: key, Value: value, Timestamp: at}
}

// patiently repeats f, all of it, where that may help: the map has changed, or a cluster is slow.
func (a *Adoption) patiently(ctx context.Context, f func() error) error {
	const attempts = 8
	pauses := wait.Backoff{First: 20 * time.Millisecond, Most: 10 * time.Second, Jitter: 0.5}
	for n := 1; ; n++ {
		err := f()
		if errors.Is(err, listing.ErrMoved) {
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
