package listing

import (
	"bytes"
	"cmp"

	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// Query is a selection of entries, and of common prefixes of their keys, for a listing. The zero Query selects every
// entry, in ascending order of keys.
type Query struct {
	// Prefix selects the keys that begin with these bytes. An empty prefix selects all keys.
	Prefix []byte
	// Delimiter groups keys into common prefixes. A key that contains the delimiter behind Prefix is not listed itself.
	// Its common prefix, up to and including the first delimiter behind Prefix, is listed once for all keys with that
	// prefix. With the delimiter "/", the keys a/1 and a/2 are listed as the common prefix a/.
	Delimiter []byte
	// From and To select the keys with From <= key < To, in either direction of the listing. An empty From or To is no
	// bound.
	From, To []byte
	// After selects the keys beyond this key in listing order: above it, or below it in reverse. A common prefix is
	// listed if at least one of its keys lies beyond After. An empty After is no bound.
	After []byte
	// Limit is the greatest number of items on a page (default 1,000, at most 10,000). For All, Limit bounds the number
	// of items of all pages together (default: no limit).
	Limit int
	// Bytes ends a page once the keys and values on the page have this many bytes together. It also bounds, roughly,
	// the bytes that are read for the page at a time. The default, and the most, is 8 MiB.
	Bytes int
	// Reverse lists the keys in descending order, the highest key first.
	Reverse bool
	// KeysOnly leaves the values out of the items and frees the memory of the values.
	KeysOnly bool
	// Sift, if not nil, returns the form in which the listing shows an entry: the entry, a common prefix, or nothing.
	// It is used in place of Delimiter. Sift must return the same result for the same entry every time, and must not
	// keep the entry. The listing calls Sift while it reads, from several goroutines at a time.
	Sift func(e Entry) Sifted
	// Stretch, together with Sift, lets listings over a network read ahead, as listings with Delimiter do. It returns
	// how many of the first bytes of a key name the group of keys that the listing skips once it has shown a key of the
	// group. The number must be the Pass that Sift returns for a visible entry with this key. It is 0 if the listing
	// skips no keys behind that entry. Stretch is also called with keys that no entry has, and from several goroutines
	// at a time.
	Stretch func(key []byte) int
	// Each, if not nil, receives the items of a page in place of Page.Items: one by one, in order, before List returns.
	// The parameter more is the number of items that may still follow from rows already read, a hint for allocating
	// memory. If List fails, discard the items that Each was given. An error of Each ends the page, and List returns
	// that error. Only List calls Each; All ignores it.
	Each func(item Item, more int) error
	// Token is the position at which the listing continues, from Page.Next or Page.After of an earlier page. An empty
	// Token begins at the first key. The rest of the query must be that of the earlier page, except for Limit, Bytes,
	// KeysOnly, Each and bounds that the earlier pages have passed.
	Token Token
}

// Item is an element of a listing: an entry, or a common prefix of several keys.
type Item struct {
	// Entry is the entry that is listed. For a common prefix, its Key is the prefix and its Value is nil.
	Entry
	// CommonPrefix means that the item stands for all keys that begin with Key.
	CommonPrefix bool
}

// Sifted is the form in which a listing shows an entry, as Query.Sift returns it. The zero Sifted shows the entry
// itself.
type Sifted struct {
	// Hidden means that the listing shows nothing for the entry.
	Hidden bool
	// CommonPrefix means that the listing shows the first Pass bytes of the key, as a common prefix.
	CommonPrefix bool
	// Pass, if not 0, is the number of leading bytes of the key that name a group of keys. The listing skips all
	// further keys that begin with these bytes. If the group has many keys, the listing jumps over them.
	Pass int
	// ValueBytes, if not 0, is the number of leading bytes of the value that the item has. The rest of the value need
	// not be copied.
	ValueBytes int
}

// Page is a part of a listing, as List returns it. A page is complete between its first and its last item: each entry
// that existed throughout the call is on the page exactly once.
type Page struct {
	// Items are entries and common prefixes together, in the order of the query. Items is nil if the query has an Each.
	Items []Item
	// Next is the token of the next page. It is empty on the last page. A page with a token may have few items, or
	// none.
	Next Token

	id   store.BucketID
	q    *Query
	left span // the keys that are still to be listed
}

// After returns the token of the page that would follow if this page ended with its i-th item. A program that shows
// only the first items of a page goes on with this token. The token is empty if no key can follow.
func (p *Page) After(i int) Token {
	s := p.q.span()
	if item := &p.Items[i]; item.CommonPrefix {
		s.passPrefix(item.Key)
	} else {
		s.passKey(item.Key)
	}
	if s.done {
		return ""
	}
	return s.token(p.id, p.q)
}

// Reached returns the key up to which the listing has come with this page. All keys below it have been listed. If the
// result past is true, key itself has been listed, too. The page must be of an ascending listing, and have a token.
func (p *Page) Reached() (key []byte, past bool) { return p.left.lo, p.left.exclusive }

// defaultLimit is the number of items on a page if Query.Limit is 0, and maxLimit is the greatest number.
const (
	defaultLimit = 1000
	maxLimit     = store.MaxPageRows
)

// limit returns the greatest number of items on a page: Query.Limit within its bounds, or the default.
func (q *Query) limit() int { return min(cmp.Or(q.Limit, defaultLimit), maxLimit) }

// bytes returns the number of bytes of keys and values at which a page ends: Query.Bytes within its bounds, or the
// default.
func (q *Query) bytes() int { return min(cmp.Or(q.Bytes, maxPageBytes), maxPageBytes) }

// check returns nil if the query is valid, else an InvalidArgument error that describes the first fault of the query.
func (q *Query) check() error {
	if q.Sift == nil && q.Stretch != nil {
		return invalid("the query has a Stretch, but no Sift")
	}
	if q.Sift != nil && len(q.Delimiter) > 0 {
		return invalid("the query has both a delimiter and its own way to sift")
	}
	if q.Limit < 0 || q.Bytes < 0 {
		return invalid("the limit %d, or the bytes %d, are negative", q.Limit, q.Bytes)
	}
	for _, part := range []struct {
		name  string
		value []byte
	}{{"prefix", q.Prefix}, {"delimiter", q.Delimiter}, {"from", q.From}, {"to", q.To}, {"after", q.After}} {
		if len(part.value) > store.MaxKeyBytes {
			return invalid("the query's %s has %d bytes: at most %d", part.name, len(part.value), store.MaxKeyBytes)
		}
	}
	return nil
}

// A span is the interval of keys that a listing has still to cover. The listing covers it from its near end on: the
// lower bound lo, or in reverse the upper bound hi. That end moves as the listing goes on.
type span struct {
	lo        []byte // the first key; empty: no lower bound
	exclusive bool   // lo itself is not in the span
	hi        []byte // the first key above the span; empty: no upper bound
	reverse   bool   // the listing descends
	done      bool   // the span is empty
}

// span returns the interval of keys that the query selects by its prefix and its bounds. It ignores the token of the
// query.
func (q *Query) span() span {
	s := span{reverse: q.Reverse}
	s.raise(q.From, false)
	s.raise(q.Prefix, false)
	s.lower(q.To)
	s.lower(store.PrefixEnd(q.Prefix))
	if q.Reverse {
		s.lower(q.After)
	} else if len(q.After) > 0 {
		s.raise(q.After, true)
	}
	return s
}

// spanOf returns the interval of keys with the bounds b, as a span to list in ascending order.
func spanOf(b store.Bounds) span {
	return span{lo: b.Start, exclusive: b.StartExclusive, hi: b.End}
}

// bounds returns the interval of keys of the span, in the form that reads of a store take.
func (s *span) bounds() store.Bounds {
	return store.Bounds{Start: s.lo, StartExclusive: s.exclusive && len(s.lo) > 0, End: s.hi}
}

// settle marks the span, an interval of keys, as done if no key can lie in the interval: its lower bound is not below
// its upper bound.
func (s *span) settle() {
	if len(s.hi) > 0 && bytes.Compare(s.lo, s.hi) >= 0 {
		s.done = true
	}
}

// raise makes key the lower bound of the span, an interval of keys, if key is above the present lower bound. If
// exclusive is true, the span does not include key itself.
func (s *span) raise(key []byte, exclusive bool) {
	if d := bytes.Compare(key, s.lo); d > 0 || d == 0 && exclusive {
		s.lo, s.exclusive = key, exclusive
	}
	s.settle()
}

// lower makes key the upper bound of the span, an interval of keys, if key is below the present upper bound. The span
// does not include key itself. An empty key changes nothing.
func (s *span) lower(key []byte) {
	if len(key) > 0 && (len(s.hi) == 0 || bytes.Compare(key, s.hi) < 0) {
		s.hi = key
	}
	s.settle()
}

// passKey removes a key, which has just been listed, from the span, the interval of keys to list. It also removes all
// keys before it in the direction of the listing.
func (s *span) passKey(key []byte) {
	if s.reverse {
		s.lower(key)
	} else {
		s.raise(key, true)
	}
}

// passPrefix removes the keys that begin with p from the span, the interval of keys to list. It also removes all keys
// before them in the direction of the listing.
func (s *span) passPrefix(p []byte) {
	if s.reverse {
		s.lower(p)
	} else if next := store.PrefixEnd(p); next != nil {
		s.raise(next, false)
	} else {
		s.done = true
	}
}

// passNear moves the near end of the span, the interval of keys to list, to the near end of the span other. The near
// end is where the listing begins: the lower bound or, in reverse, the upper bound.
func (s *span) passNear(other *span) {
	if s.reverse {
		s.lower(other.hi)
	} else {
		s.raise(other.lo, other.exclusive)
	}
}

// passRange removes the keys of the range rg, which has been listed, from the span, the interval of keys to list. It
// also removes all keys before the range in the direction of the listing.
func (s *span) passRange(rg *partmap.Range) {
	switch {
	case s.reverse && len(rg.Start) == 0, !s.reverse && len(rg.End) == 0:
		s.done = true
	case s.reverse:
		s.lower(rg.Start)
	default:
		s.raise(rg.End, false)
	}
}

// within returns the bounds of the keys that a read of the range rg has to cover: those that lie both in the span, the
// interval of keys to list, and in rg. The bounds never go beyond rg, because its partition may hold rows outside of rg
// that are no longer valid.
func (s *span) within(rg *partmap.Range) store.Bounds {
	b := s.bounds()
	if bytes.Compare(rg.Start, b.Start) > 0 {
		b.Start, b.StartExclusive = rg.Start, false
	}
	if len(b.End) == 0 || len(rg.End) > 0 && bytes.Compare(rg.End, b.End) < 0 {
		b.End = rg.End
	}
	return b
}

// passed reports whether the listing is past the key. In ascending order, these are the keys below the next key to
// list; in reverse, the keys above it. If the listing is done, every key is passed.
func (s *span) passed(key []byte) bool {
	if s.done {
		return true
	}
	if s.reverse {
		return len(s.hi) > 0 && bytes.Compare(key, s.hi) >= 0
	}
	d := bytes.Compare(key, s.lo)
	return d < 0 || d == 0 && s.exclusive
}

// jumps reports whether the listing may skip keys, by a delimiter or by Query.Sift. In that case a read may return many
// rows of which only a few are useful.
func (q *Query) jumps() bool { return len(q.Delimiter) > 0 || q.Sift != nil }

// stretches reports whether reading ahead is possible for the query. To read ahead, the listing must know by the key
// alone which other keys it skips together with that key. It does with a Delimiter, or with Query.Stretch.
func (q *Query) stretches() bool { return len(q.Delimiter) > 0 || q.Stretch != nil }

// stretch returns the prefix that the given key shares with the keys that the listing skips once it has listed key.
// With the delimiter "/", it is the common prefix a/ for the key a/1, for example. The prefix is empty if the listing
// skips no keys. It shares memory with key.
func (q *Query) stretch(key []byte) []byte {
	if q.Stretch != nil {
		return key[:min(max(q.Stretch(key), 0), len(key))]
	}
	prefix, _ := q.commonPrefix(key)
	return prefix
}

// sift returns the form in which the listing shows the entry with the given key and value. Query.Sift decides the form,
// or else the delimiter. The field Pass of the result, a number of bytes of the key, is at most the length of the key.
func (q *Query) sift(key, value []byte) (s Sifted) {
	if q.Sift != nil {
		s = q.Sift(Entry{Key: key, Value: value})
		s.Pass = min(max(s.Pass, 0), len(key))
		return s
	}
	prefix, folded := q.commonPrefix(key)
	return Sifted{CommonPrefix: folded, Pass: len(prefix)}
}

// commonPrefix returns the common prefix in place of which the listing shows key, such as a/ for the key a/1. The
// second result is false if the listing shows key itself, as key has no delimiter behind the prefix of the query. The
// common prefix shares memory with key.
func (q *Query) commonPrefix(key []byte) ([]byte, bool) {
	if len(q.Delimiter) == 0 {
		return nil, false
	}
	at := bytes.Index(key[len(q.Prefix):], q.Delimiter)
	if at < 0 {
		return nil, false
	}
	end := len(q.Prefix) + at + len(q.Delimiter)
	return key[:end:end], true
}

// passedRange reports whether the listing is past all keys of the range rg, so that none of them is still to be listed.
func (s *span) passedRange(rg *partmap.Range) bool {
	if s.done {
		return true
	}
	if s.reverse {
		return len(s.hi) > 0 && bytes.Compare(s.hi, rg.Start) <= 0
	}
	return len(rg.End) > 0 && bytes.Compare(s.lo, rg.End) >= 0
}
