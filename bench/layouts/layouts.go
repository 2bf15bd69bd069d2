package layouts

import (
	"bytes"
	"context"
	"fmt"
	"iter"

	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
)

// Entry and Item are the types of evenkeel's package listing, so that no layout has to convert between types.
type (
	// Entry is a key with its value.
	Entry = listing.Entry
	// Item is one line of a listing: an entry or a common prefix.
	Item = listing.Item
)

// Layout is one bucket whose rows are laid out in one way, e.g. in hash buckets. All methods are safe for concurrent
// use.
//
// Not every layout supports every operation. An unsupported operation fails with ErrCannot.
type Layout interface {
	// Put stores one entry, and replaces the value that the key had before.
	Put(ctx context.Context, key, value []byte) error
	// Load stores entries in the fastest way that the layout has. Of several entries with the same key the last one
	// wins. After an error some of the entries may be stored.
	Load(ctx context.Context, entries []Entry) error
	// Get reads one entry. The result found is false if the key has no entry.
	Get(ctx context.Context, key []byte) (value []byte, found bool, err error)
	// List reads one page. The page has as many items as the limit of q, and fewer only at the end of the listing.
	List(ctx context.Context, q Query) ([]Item, error)
	// Scan reads all entries in pages of ScanPage entries, and calls `each` with every page. readers is the number of
	// concurrent readers, so `each` is called from several goroutines. With one reader the entries come in the layout's
	// own order. With several readers the order is not defined.
	Scan(ctx context.Context, readers int, each func([]Entry) error) error
	// Partition returns the name of the partition in which a key lies. Layouts that would have to search for the key
	// fail with ErrCannot.
	Partition(ctx context.Context, key []byte) (string, error)
}

// ErrCannot is the error of operations that a layout does not support.
var ErrCannot = fmt.Errorf("this layout can't")

func cannot(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrCannot, fmt.Sprintf(format, args...))
}

// ScanPage is the number of rows that a scan reads by one request.
const ScanPage = 1000

// Query says which entries one page lists. The zero Query lists the first thousand entries in ascending order.
type Query struct {
	// Prefix limits the listing to keys that begin with Prefix.
	Prefix []byte
	// Delimiter folds keys that contain Delimiter after the prefix into common prefixes, as in listing.Query. A
	// delimiter cannot be combined with Reverse.
	Delimiter []byte
	// After limits the listing to what comes after the key After in the direction of the query. If After is a common
	// prefix, the listing skips all keys with that prefix.
	After []byte
	// Limit is the largest number of items of the page. 0 stands for DefaultLimit.
	Limit int
	// Reverse lists the highest keys first.
	Reverse bool
}

// DefaultLimit is the number of items of a page if the query has no limit, as in S3.
const DefaultLimit = 1000

// String returns the fields of the query as text, for error messages.
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

// check returns an error if no layout supports the query: a bad limit, or a delimiter in reverse.
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

// bounds returns the interval of keys that a layout has to read to answer the query.
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

// Bounds returns the interval of keys that a layout has to read to answer the query, and the largest number of items.
// It is for layouts outside of this package. Bounds returns an error if no layout supports the query.
func (q *Query) Bounds() (b store.Bounds, limit int, err error) {
	if err := q.check(); err != nil {
		return b, 0, err
	}
	return q.bounds(), q.limit(), nil
}

// CommonPrefix returns the common prefix that a listing shows instead of key, e.g. photos/ for the key photos/a.jpg and
// the query's delimiter "/". The result is false if the listing shows the key itself. The prefix shares the memory of
// key.
func (q *Query) CommonPrefix(key []byte) ([]byte, bool) { return q.commonPrefix(key) }

// Empty reports whether no key lies within bounds.
func Empty(b store.Bounds) bool { return empty(b) }

// empty reports whether no key lies within b.
func empty(b store.Bounds) bool {
	return len(b.End) > 0 && bytes.Compare(b.Start, b.End) >= 0
}

// commonPrefix returns the common prefix that a listing shows instead of key, e.g. photos/ for the key photos/a.jpg and
// the query's delimiter "/". The result is false if the listing shows the key itself. The prefix shares the memory of
// key.
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

// All returns all items that the query q asks for, page by page. The limit of q is the size of a page.
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
