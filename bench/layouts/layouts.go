package layouts

import (
	"bytes"
	"context"
	"fmt"
	"iter"

	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
)

// Entry and Item are evenkeel's own, so that no layout pays for a conversion.
type (
	// Entry is a key with its value.
	Entry = listing.Entry
	// Item is one line of a listing: an entry or a common prefix.
	Item = listing.Item
)

// Layout is one bucket laid out in one way. All methods are safe for concurrent
// use; Put and Load only where the layout says no other.
//
// Not every layout can do everything: what one can't fails with ErrCannot.
type Layout interface {
	// Put stores one entry, over what its key had before.
	Put(ctx context.Context, key, value []byte) error
	// Load stores entries in the fastest way that the layout has; of one key the
	// last entry wins. An error leaves some of them stored.
	Load(ctx context.Context, entries []Entry) error
	// Get reads one entry.
	Get(ctx context.Context, key []byte) (value []byte, found bool, err error)
	// List reads one page: as many items as the limit, fewer only at the end.
	List(ctx context.Context, q Query) ([]Item, error)
	// Scan reads everything with so many readers at once, each in pages of
	// ScanPage, and hands them to each, which is called from several goroutines.
	// With one reader the order is the layout's own; with more there is none.
	Scan(ctx context.Context, readers int, each func([]Entry) error) error
	// Partition names the partition in which a key lies; "" where only a search
	// would tell.
	Partition(ctx context.Context, key []byte) (string, error)
}

// ErrCannot says that a layout can't do what it is asked for.
var ErrCannot = fmt.Errorf("this layout can't")

func cannot(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrCannot, fmt.Sprintf(format, args...))
}

// ScanPage is the number of rows that a scan reads at once.
const ScanPage = 1000

// Query says what one page lists. The zero Query is all, in order, up to a
// thousand.
type Query struct {
	// Prefix: only keys that begin with it.
	Prefix []byte
	// Delimiter: keys that have it after the prefix are folded into common
	// prefixes, as in listing.Query. Forward only.
	Delimiter []byte
	// After: only what comes after it in the query's direction. A common prefix
	// passes all that it stands for.
	After []byte
	// Limit is the most items; 0 is DefaultLimit.
	Limit int
	// Reverse lists the highest keys first.
	Reverse bool
}

// DefaultLimit is the page size of S3.
const DefaultLimit = 1000

// String is for messages.
func (q Query) String() string {
	return fmt.Sprintf("{prefix %q, delimiter %q, after %q, limit %d, reverse %t}", q.Prefix, q.Delimiter, q.After,
		q.Limit, q.Reverse)
}

func (q *Query) limit() int {
	if q.Limit == 0 {
		return DefaultLimit
	}
	return q.Limit
}

// check refuses what no layout takes.
func (q *Query) check() error {
	switch {
	case q.Limit < 0 || q.Limit > store.MaxPageRows:
		return store.Errorf(store.InvalidArgument, "a limit of %d: 1 to %d, or 0 for %d", q.Limit, store.MaxPageRows,
			DefaultLimit)
	case q.Reverse && len(q.Delimiter) > 0:
		return cannot("fold common prefixes in reverse")
	}
	return nil
}

// bounds are the keys that the query has to look at.
func (q *Query) bounds() store.Bounds {
	b := store.Bounds{Start: q.Prefix, End: store.PrefixEnd(q.Prefix)}
	after := q.After
	switch {
	case len(after) == 0:
	case q.Reverse:
		if len(b.End) == 0 || bytes.Compare(after, b.End) < 0 {
			b.End = after
		}
	default:
		if p, folded := q.commonPrefix(after); folded && len(p) == len(after) {
			next := store.PrefixEnd(after)
			if next == nil { // nothing is above it
				return store.Bounds{Start: after, End: after}
			}
			b.Start = maxKey(b.Start, next)
		} else if bytes.Compare(after, b.Start) >= 0 {
			b.Start, b.StartExclusive = after, true
		}
	}
	return b
}

func maxKey(a, b []byte) []byte {
	if bytes.Compare(a, b) > 0 {
		return a
	}
	return b
}

// Bounds is what a layout outside of this package needs to answer the query: the
// keys that it has to look at, and the most items. It fails where no layout could.
func (q *Query) Bounds() (b store.Bounds, limit int, err error) {
	if err := q.check(); err != nil {
		return b, 0, err
	}
	return q.bounds(), q.limit(), nil
}

// CommonPrefix is what stands for a key in the listing, if something does. It shares
// the memory of key.
func (q *Query) CommonPrefix(key []byte) ([]byte, bool) { return q.commonPrefix(key) }

// Empty reports whether no key lies within bounds.
func Empty(b store.Bounds) bool { return empty(b) }

// empty reports whether no key lies within b.
func empty(b store.Bounds) bool {
	return len(b.End) > 0 && bytes.Compare(b.Start, b.End) >= 0
}

// commonPrefix is what stands for a key in the listing, if something does. It
// shares the memory of key.
func (q *Query) commonPrefix(key []byte) ([]byte, bool) {
	if len(q.Delimiter) == 0 || len(key) < len(q.Prefix) {
		return nil, false
	}
	at := bytes.Index(key[len(q.Prefix):], q.Delimiter)
	if at < 0 {
		return nil, false
	}
	end := len(q.Prefix) + at + len(q.Delimiter)
	return key[:end:end], true
}

// All lists everything that a query asks for, page by page; its limit is the
// page size.
func All(ctx context.Context, l Layout, q Query) iter.Seq2[Item, error] {
	return func(yield func(Item, error) bool) {
		for {
			page, err := l.List(ctx, q)
			if err != nil {
				yield(Item{}, err)
				return
			}
			for _, item := range page {
				if !yield(item, nil) {
					return
				}
			}
			if len(page) < q.limit() {
				return
			}
			q.After = page[len(page)-1].Key
		}
	}
}
