package listing

import (
	"bytes"
	"cmp"

	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// Query selects what to list. The zero Query selects every entry, in order.
type Query struct {
	// Prefix selects keys that begin with it.
	Prefix []byte
	// Delimiter groups keys: those that contain it after the prefix are not listed. What
	// they begin with, up to and including the first delimiter after the prefix, is
	// listed once, as a common prefix.
	Delimiter []byte
	// From and To select keys with From <= key < To, in either direction. Empty is no
	// bound.
	From, To []byte
	// After selects keys beyond this one in listing order: above it, or below it in
	// reverse. A common prefix is listed if one of its keys is. Empty is no bound.
	After []byte
	// Limit bounds the items of a page (default 1,000, at most 10,000). For All it bounds
	// all items (default: no limit).
	Limit int
	// Bytes ends a page once its keys and values have so many bytes. It also bounds, about,
	// what is read for the page at a time. The default, and the most, is 8 MiB.
	Bytes int
	// Reverse lists the highest keys first.
	Reverse bool
	// KeysOnly leaves the values out and frees their memory.
	KeysOnly bool
	// Sift, if not nil, says of each entry what the listing shows for it. It takes the place
	// of Delimiter, must always say the same of the same entry, and must not keep it. It is
	// called by the operation itself, by several goroutines at a time.
	Sift func(e Entry) Sifted
	// Stretch, with Sift, lets listings over a network read ahead, as they do with Delimiter. It says how many of the
	// first bytes of a key Sift returns as Pass for an entry with that key that is shown; 0 if that is none. It is
	// also called with keys that no entry has, and by several goroutines at a time.
	Stretch func(key []byte) int
	// Each, if not nil, is given the items in the place of Page.Items: one after the other, in order, before List
	// returns. If List fails, drop what Each was given. more is how many items may follow from what has been read, a
	// hint for memory. An error of Each ends the page, and List returns it. It is for List only.
	Each func(item Item, more int) error
	// Token continues where a page ended. The rest of the query must be the same, except
	// for Limit, KeysOnly, Each and bounds that earlier pages have passed.
	Token Token
}

// Item is one line of a listing: an entry or a common prefix.
type Item struct {
	// Entry of a common prefix has the prefix as Key and no Value.
	Entry
	// CommonPrefix means that the item stands for all keys that begin with Key.
	CommonPrefix bool
}

// Sifted says what a listing shows for an entry: the entry, unless one of the two is set.
type Sifted struct {
	// Hidden: nothing.
	Hidden bool
	// CommonPrefix: the first Pass bytes of the key, as a common prefix.
	CommonPrefix bool
	// Pass, unless 0: of all keys that have the first Pass bytes in common with this one, the listing passes over the
	// rest, and jumps where there are many.
	Pass int
	// ValueBytes, unless 0, is how much of the value the item has: its beginning. What is left out
	// need not be copied.
	ValueBytes int
}

// Page is a part of a listing. It is complete between its first and last item: it has every
// entry that existed throughout the call, and none twice.
type Page struct {
	// Items are keys and common prefixes together, in the order of the query.
	Items []Item
	// Next is the token of the next page; empty after the last one. A page with a token may
	// be short or empty.
	Next Token

	id   store.BucketID
	q    *Query
	left span
}

// After returns the token of the page that would follow if this one ended with item i;
// empty if nothing can follow.
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

// Reached returns the progress of an ascending page with a token: all keys below key were
// looked at, and with past, key itself too.
func (p *Page) Reached() (key []byte, past bool) { return p.left.lo, p.left.exclusive }

const (
	defaultLimit = 1000
	maxLimit     = store.MaxPageRows
)

// limit returns the page size in items.
func (q *Query) limit() int { return min(cmp.Or(q.Limit, defaultLimit), maxLimit) }

// bytes returns the page size in bytes.
func (q *Query) bytes() int { return min(cmp.Or(q.Bytes, maxPageBytes), maxPageBytes) }

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

// span is the interval of keys that is still to be listed. It shrinks from the near end,
// which is lo, or hi in reverse.
type span struct {
	lo        []byte // empty: no bound
	exclusive bool   // of lo itself
	hi        []byte // exclusive; empty: no bound
	reverse   bool
	done      bool // the span is empty
}

// span returns what the query covers before any token.
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

// spanOf returns the span of bounds, upwards.
func spanOf(b store.Bounds) span {
	return span{lo: b.Start, exclusive: b.StartExclusive, hi: b.End}
}

// bounds returns what is left as bounds of a read.
func (s *span) bounds() store.Bounds {
	return store.Bounds{Start: s.lo, StartExclusive: s.exclusive && len(s.lo) > 0, End: s.hi}
}

// settle sets done if nothing is left.
func (s *span) settle() {
	if len(s.hi) > 0 && bytes.Compare(s.lo, s.hi) >= 0 {
		s.done = true
	}
}

// raise takes a lower bound if it is the stricter one.
func (s *span) raise(key []byte, exclusive bool) {
	if d := bytes.Compare(key, s.lo); d > 0 || d == 0 && exclusive {
		s.lo, s.exclusive = key, exclusive
	}
	s.settle()
}

// lower takes an upper bound if it is the stricter one; an empty key is none.
func (s *span) lower(key []byte) {
	if len(key) > 0 && (len(s.hi) == 0 || bytes.Compare(key, s.hi) < 0) {
		s.hi = key
	}
	s.settle()
}

// passKey removes all up to and including key.
func (s *span) passKey(key []byte) {
	if s.reverse {
		s.lower(key)
	} else {
		s.raise(key, true)
	}
}

// passPrefix removes all up to and including the keys that begin with p.
func (s *span) passPrefix(p []byte) {
	if s.reverse {
		s.lower(p)
	} else if next := store.PrefixEnd(p); next != nil {
		s.raise(next, false)
	} else {
		s.done = true
	}
}

// passNear removes all before the near end of another span.
func (s *span) passNear(other *span) {
	if s.reverse {
		s.lower(other.hi)
	} else {
		s.raise(other.lo, other.exclusive)
	}
}

// passRange removes all up to the far end of a range.
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

// within returns the part of the span in a range. It gives both ends wherever they exist:
// a partition may hold rows that its range has lost, and a slice must not reach them.
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

// passed reports whether a key lies before the near end.
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

// jumps reports whether the listing passes over keys, so that a few rows may be all that is
// useful of many.
func (q *Query) jumps() bool { return len(q.Delimiter) > 0 || q.Sift != nil }

// stretches reports whether it can be told of any key which stretch of keys the listing passes over with it.
func (q *Query) stretches() bool { return len(q.Delimiter) > 0 || q.Stretch != nil }

// stretch returns what all keys have in common that the listing passes over with a key, sharing its memory; empty if
// there is nothing.
func (q *Query) stretch(key []byte) []byte {
	if q.Stretch != nil {
		return key[:min(max(q.Stretch(key), 0), len(key))]
	}
	prefix, _ := q.commonPrefix(key)
	return prefix
}

// sift says what the listing shows for an entry.
func (q *Query) sift(key, value []byte) (s Sifted) {
	if q.Sift != nil {
		s = q.Sift(Entry{Key: key, Value: value})
		s.Pass = min(max(s.Pass, 0), len(key))
		return s
	}
	prefix, folded := q.commonPrefix(key)
	return Sifted{CommonPrefix: folded, Pass: len(prefix)}
}

// commonPrefix returns the common prefix of key, sharing its memory; false where key is
// listed itself.
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

// passedRange reports whether nothing of a range is left.
func (s *span) passedRange(rg *partmap.Range) bool {
	if s.done {
		return true
	}
	if s.reverse {
		return len(s.hi) > 0 && bytes.Compare(s.hi, rg.Start) <= 0
	}
	return len(rg.End) > 0 && bytes.Compare(s.lo, rg.End) >= 0
}
