package objects

import (
	"bytes"
	"context"
	"crypto/md5"
	"math"
	"slices"

	"github.com/evenkeel/evenkeel/internal/wire"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
)

// Query selects objects, or versions of them.
type Query struct {
	// Prefix selects keys that begin with it; Delimiter groups them, as in listing.Query.
	Prefix, Delimiter []byte
	// After selects keys above it; common prefixes of which one key is above it. Empty: no bound.
	After []byte
	// AfterID, with After, selects the versions of the key After that are older than this one,
	// too. It is for ListVersions.
	AfterID ID
	// From and To select keys with From <= key < To. Empty: no bound.
	From, To []byte
	// Limit bounds the items of a page, default 1,000, at most 10,000.
	Limit int
	// Token continues where a page ended. The rest of the query must be the same, but for Limit.
	Token listing.Token
}

// Item is one line of a listing.
type Item struct {
	// Info of a common prefix has the prefix as Key.
	Info
	CommonPrefix bool
	// Latest: it is the newest version of its object.
	Latest bool
}

// Page is a part of a listing, complete between its first and last item.
type Page struct {
	Items []Item
	// Next is the token of the next page; empty after the last one. A page with a token may be
	// short or empty.
	Next listing.Token
}

// List reads a page of the newest versions that are no delete markers. Older versions are passed
// over as keys below a common prefix are. It fails like listing.Bucket.List. Items share memory:
// clone what must outlive the page.
func (b *Bucket) List(ctx context.Context, q Query) (out Page, err error) {
	if !q.AfterID.IsZero() {
		return Page{}, store.Errorf(store.InvalidArgument, "AfterID is for ListVersions")
	}
	rows, r := q.rows(true), reader{}
	rows.Each = func(row listing.Item, more int) error {
		item := out.next(more)
		err := r.read(item, &row)
		item.Latest = !item.CommonPrefix
		return err
	}
	page, err := b.rows.List(ctx, rows)
	if err != nil {
		return Page{}, err
	}
	out.Next = page.Next
	return out, nil
}

// next returns the next item of the page, which is zero. more is how many may follow.
func (p *Page) next(more int) *Item {
	n := len(p.Items)
	if n == cap(p.Items) {
		p.Items = append(make([]Item, 0, max(n+1+more, 2*n)), p.Items...)
	}
	p.Items = p.Items[:n+1]
	return &p.Items[n]
}

// ListVersions reads a page of all versions, delete markers included: in the order of keys, the
// newest version of each first. Of null versions only the newest is shown. It fails like List.
func (b *Bucket) ListVersions(ctx context.Context, q Query) (out Page, err error) {
	if b, err = b.pinned(ctx); err != nil {
		return Page{}, err
	}
	rows, r := q.rows(false), reader{versions: true}
	null := false // the group has a null version
	rows.Each = func(row listing.Item, more int) error {
		item := out.next(more)
		if err := r.read(item, &row); err != nil || item.CommonPrefix {
			return err
		}
		if item.Latest = !r.again; item.Latest {
			null = false
		}
		if item.Null && null {
			*item = Item{}
			out.Items = out.Items[:len(out.Items)-1]
			return nil
		}
		null = null || item.Null
		return nil
	}
	page, err := b.rows.List(ctx, rows)
	if err == nil && (len(q.Token) > 0 || !q.AfterID.IsZero()) { // else the page begins with a whole group
		err = b.continueGroup(ctx, &out)
	}
	if err != nil {
		return Page{}, err
	}
	out.Next = page.Next
	return out, nil
}

// continueGroup corrects a page of versions whose first key may have newer versions before the page.
func (b *Bucket) continueGroup(ctx context.Context, p *Page) error {
	if len(p.Items) == 0 || p.Items[0].CommonPrefix {
		return nil
	}
	first := &p.Items[0]
	seen, null, err := b.above(ctx, rowKey(first.Key, first.ID), groupOf(first.Key))
	if err != nil {
		return err
	}
	first.Latest = !seen
	if !null {
		return nil
	}
	for i := range p.Items {
		if !bytes.Equal(p.Items[i].Key, first.Key) {
			return nil
		}
		if p.Items[i].Null {
			p.Items = slices.Delete(p.Items, i, i+1)
			return nil // there is no second one
		}
	}
	return nil
}

// above reports whether a group has versions that are seen before a row of it, and null ones.
func (b *Bucket) above(ctx context.Context, rowKey, group []byte) (seen, null bool, err error) {
	q := listing.Query{From: group, To: rowKey, Sift: func(e listing.Entry) listing.Sifted {
		at, err := parseRow(e.Key)
		if err != nil || at.beside() {
			return listing.Sifted{Hidden: true}
		}
		h, err := decodeHead(e.Value)
		return listing.Sifted{Hidden: err != nil || !h.visible()}
	}}
	for {
		page, err := b.rows.List(ctx, q)
		if err != nil {
			return false, false, err
		}
		for _, item := range page.Items {
			h, err := decodeHead(item.Value)
			if err != nil {
				return false, false, err
			}
			if seen = true; h.null {
				return true, true, nil
			}
		}
		if page.Next == "" {
			return seen, false, nil
		}
		q.Token = page.Next
	}
}

// rows returns the query of the rows, of the latest versions or of all. What has the delimiter is a common prefix
// instead of an item.
func (q *Query) rows(latest bool) listing.Query {
	prefix := escape(nil, q.Prefix)
	rows := listing.Query{Prefix: prefix, Limit: q.Limit, Token: q.Token}
	if len(prefix) == 0 {
		rows.From = objectsBegin
	}
	switch {
	case len(q.After) > 0 && !q.AfterID.IsZero():
		rows.After = append(rowKey(q.After, q.AfterID), noteSuffix) // behind what is beside it, too
	case len(q.After) > 0:
		rows.From = store.PrefixEnd(groupOf(q.After))
	}
	if from := groupOf(q.From); len(q.From) > 0 && bytes.Compare(from, rows.From) > 0 {
		rows.From = from
	}
	if len(q.To) > 0 {
		rows.To = groupOf(q.To)
	}
	if latest || len(q.Delimiter) > 0 {
		rows.Stretch = func(rowKey []byte) int { return q.stretch(rowKey, latest) }
	}
	rows.Sift = func(e listing.Entry) listing.Sifted {
		n := len(e.Key) - idBytes // of the group, if it is a version's row; what is shown is parsed again
		if n <= 2 || e.Key[n-1] != endsKey || e.Key[n-2] != zero || len(q.Delimiter) > 0 || !plainHead(e.Value) {
			return q.sift(e, latest)
		}
		s := listing.Sifted{ValueBytes: bytesToList(e.Value)}
		if latest {
			s.Pass = n
		}
		return s
	}
	return rows
}

// stretch returns how much of the key of a row all those have in common that a listing passes over with it: a common
// prefix or, of a listing of the latest, a group. The key may be cut anywhere.
func (q *Query) stretch(rowKey []byte, latest bool) int {
	key, group := rowKey, 0
	if i := bytes.Index(rowKey, []byte{zero, endsKey}); i >= 0 {
		key, group = rowKey[:i], i+2
	}
	if own := unescape(key); len(q.Delimiter) > 0 && bytes.HasPrefix(own, q.Prefix) {
		if i := bytes.Index(own[len(q.Prefix):], q.Delimiter); i >= 0 {
			return len(escape(nil, own[:len(q.Prefix)+i+len(q.Delimiter)]))
		}
	}
	if !latest {
		return 0
	}
	return group
}

// plainHead reports whether a record is of a version that is seen, as most are, and no delete marker.
func plainHead(b []byte) bool {
	return len(b) >= 4 && (b[0] == byte(live) || b[0] == byte(kept)) && b[1] == 1 && b[2]&^flagNull == 0
}

// judge says what a listing shows for a version.
func (h head) judge(group int, latest bool) listing.Sifted {
	s := listing.Sifted{Hidden: !h.visible()}
	if latest && !s.Hidden { // what is not seen hides nothing: an older one is the latest
		s.Hidden, s.Pass = h.marker, group
	}
	return s
}

// sift says what a listing shows for any row.
func (q *Query) sift(e listing.Entry, latest bool) listing.Sifted {
	at, err := parseRow(e.Key)
	if err != nil {
		return listing.Sifted{} // shown, and so an error of the page
	}
	if at.beside() {
		return listing.Sifted{Hidden: true}
	}
	h, err := decodeHead(e.Value)
	if err != nil {
		return listing.Sifted{}
	}
	s := h.judge(len(at.group), latest)
	s.ValueBytes = bytesToList(e.Value)
	if s.Hidden || len(q.Delimiter) == 0 {
		return s
	}
	if i := bytes.Index(at.key[len(q.Prefix):], q.Delimiter); i >= 0 {
		end := len(q.Prefix) + i + len(q.Delimiter)
		pass := len(escape(nil, at.key[:end]))
		return listing.Sifted{CommonPrefix: true, Pass: pass}
	}
	return s
}

// reader reads the items of one page.
type reader struct {
	typ      string // of the item before, which most items have, too
	versions bool   // rows of a group may follow one another
	group    []byte // of the row before, if so
	escaped  bool   // it has zero bytes
	again    bool   // this row is of it
}

// read reads an item of a listing of rows into a zero item.
func (r *reader) read(i *Item, of *listing.Item) error {
	if of.CommonPrefix {
		i.Key, i.CommonPrefix = unescape(of.Key), true
		return nil
	}
	n := len(of.Key) - idBytes
	again := r.versions && n > 0 && string(of.Key[:n]) == string(r.group)
	if !again || r.escaped || stampAt(of.Key[n:]) <= 0 {
		n = plainGroup(of.Key)
	}
	if n > 0 && r.plain(&i.Info, of.Value) {
		i.Key, i.ID.Stamp = of.Key[:n-2:n-2], stampAt(of.Key[n:])
		copy(i.ID.Salt[:], of.Key[n+8:])
		if r.again = again; r.versions && !again {
			r.group, r.escaped = of.Key[:n:n], false
		}
		return nil
	}
	at, err := parseRow(of.Key)
	if err != nil {
		return err
	}
	record := record{typ: r.typ}
	if err := record.decode(of.Value, listed); err != nil {
		return store.Wrap("version "+at.id.String(), err)
	}
	r.typ = record.typ
	record.infoInto(&i.Info, at.key, at.id, nil)
	r.again = bytes.Equal(at.group, r.group)
	r.group, r.escaped = at.group, len(at.key) != len(at.group)-2
	return nil
}

// plain reads a record as most are that listings show: of a body, inline or one blob, its MD5 or none, and a type.
// It returns false where there is anything else, or something wrong: then decode reads the record. It
// spares the record in between, field by field with all that may be empty: three times the work.
func (r *reader) plain(i *Info, b []byte) bool {
	if len(b) > maxRecordBytes || !plainHead(b) || b[3] > byte(inBlob) {
		return false
	}
	d := decoder{wire.Shortest{Of: b, At: 4}}
	size := d.Uint()
	sum := d.At + 1 // behind its length; behind the MD5 are the lengths of the ETag and of the type
	if d.Bad || len(b) < sum+2 || b[sum-1] != 0 && b[sum-1] != md5.Size {
		return false
	}
	typ := sum + int(b[sum-1]) + 2
	if len(b) < typ || b[typ-2] != 0 || b[typ-1] >= 0x80 {
		return false
	}
	end := typ + int(b[typ-1]) // of the type; then come no checksums and no headers
	if len(b) != end+2 || b[end]|b[end+1] != 0 || size > math.MaxInt64 {
		return false
	}
	if text := b[typ:end]; string(text) != r.typ {
		r.typ = string(text)
	}
	if i.Null, i.Size = b[2] == flagNull, int64(size); end > typ { //nolint:gosec // bounded
		i.ContentType = r.typ
	}
	if b[sum-1] != 0 {
		i.hasMD5, i.md5 = true, [md5.Size]byte(b[sum:])
	}
	return true
}
