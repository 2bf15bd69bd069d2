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

// Query selects the objects, or the versions of objects, that a listing returns: by a prefix, an interval of keys, and
// a start position.
type Query struct {
	// Prefix selects the keys that begin with Prefix. If Delimiter is not empty, keys that have a Delimiter behind the
	// Prefix are grouped. For example, with the Delimiter / the keys photos/a and photos/b are shown as one common
	// prefix, photos/.
	Prefix, Delimiter []byte
	// After selects only keys above After, and common prefixes with such a key. If After is empty, there is no bound.
	After []byte
	// AfterID also selects those versions of the key After that are older than the version AfterID. AfterID is for
	// ListVersions only, and has no effect without After.
	AfterID ID
	// From and To select the keys with From <= key < To. An empty From or To is no bound.
	From, To []byte
	// Limit is the largest number of items in a page. Default 1,000, at most 10,000.
	Limit int
	// Token is the Page.Next of an earlier page, behind which the listing continues. All other fields except Limit must
	// be the same as for that page.
	Token listing.Token
}

// Item is an entry in a page of a listing: an object, a version of an object, or a common prefix of keys.
type Item struct {
	// Info is the metadata of the version. For a common prefix, only Info.Key is set, to the prefix.
	Info
	CommonPrefix bool
	// Latest is true for the newest version of an object.
	Latest bool
}

// Page is one page of a listing of objects or versions (Page[Item]), or of open uploads (Page[Upload]). It has all
// items of the listing between its first and its last item.
type Page[T any] struct {
	Items []T
	// Next is the token by which the next page is requested (the field Token of the query). Next is empty after the
	// last page. A page that is not the last one may have fewer items than the Limit of the query, or none.
	Next listing.Token
}

// List returns a page of objects: the newest version of each key. Objects whose newest version is a delete marker are
// left out. Older versions are skipped without being read one by one. List fails like listing.Bucket.List. The items of
// a page share memory, so a caller clones what must outlive the page.
func (b *Bucket) List(ctx context.Context, q Query) (out Page[Item], err error) {
	if !q.AfterID.isZero() {
		return Page[Item]{}, store.Errorf(store.InvalidArgument, "AfterID is for ListVersions")
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
		return Page[Item]{}, err
	}
	out.Next = page.Next
	return out, nil
}

// next appends an empty item to the page, and returns the item for the caller to fill in. The parameter more is the
// number of items that may still follow: a hint for allocating memory.
func (p *Page[T]) next(more int) *T {
	n := len(p.Items)
	if n == cap(p.Items) {
		p.Items = append(make([]T, 0, max(n+1+more, 2*n)), p.Items...)
	}
	p.Items = p.Items[:n+1]
	return &p.Items[n]
}

// ListVersions returns a page of all versions of the bucket's objects, including delete markers. The versions are
// sorted by key, and the versions of one key from the newest to the oldest. Of the null versions of a key, which were
// written while the bucket kept no versions, only the newest is shown. ListVersions fails like List.
func (b *Bucket) ListVersions(ctx context.Context, q Query) (out Page[Item], err error) {
	if b, err = b.pinned(ctx); err != nil {
		return Page[Item]{}, err
	}
	rows, r := q.rows(false), reader{versions: true}
	null := false // the present group has a null version
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
	if err == nil && (len(q.Token) > 0 || !q.AfterID.isZero()) { // else the page begins with the newest version
		err = b.continueGroup(ctx, &out)
	}
	if err != nil {
		return Page[Item]{}, err
	}
	out.Next = page.Next
	return out, nil
}

// continueGroup corrects a page of versions that begins in the middle of an object: newer versions of the object were
// on an earlier page. On the corrected page
//
//   - the first item is not marked as the latest version of its object;
//   - no null version is left if a newer null version was on an earlier page. (Null versions were written while the
//     bucket kept no versions. Only the newest of an object is shown.)
func (b *Bucket) continueGroup(ctx context.Context, p *Page[Item]) error {
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
			return nil // the page has only one null version of a key
		}
	}
	return nil
}

// above reports whether an object has visible versions that are newer than the version in the row rowKey. The results
// are
//
//   - seen: true if there is a newer version;
//   - null: true if one of the newer versions is a null version, written while the bucket kept no versions.
//
// group are the first bytes of the keys of all rows of the object.
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

// rows returns the query that lists the rows for the listing q: each result gives one item of q. If latest is true, the
// listing shows only the newest version of each object; otherwise it shows all versions.
func (q *Query) rows(latest bool) listing.Query {
	prefix := escape(nil, q.Prefix)
	rows := listing.Query{Prefix: prefix, Limit: q.Limit, Token: q.Token}
	if len(prefix) == 0 {
		rows.From = objectsBegin
	}
	switch {
	case len(q.After) > 0 && !q.AfterID.isZero():
		rows.After = append(rowKey(q.After, q.AfterID), noteSuffix) // behind the rows that stand beside the version, too
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
		n := len(e.Key) - idBytes // length of the group, if this is a version's row; rows that are shown are parsed again
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

// stretch tells a listing which rows it can skip after the row rowKey, because they show nothing new. The result is a
// number of first bytes of rowKey: the listing skips all rows whose keys begin with these bytes. For example, if
// photos/a and photos/b are shown as one item, photos/, the result for a row of photos/a is 7, the length of photos/.
// If only the latest versions are listed, the bytes are those that all rows of one object share. The result is 0 if no
// row can be skipped. rowKey may be cut off at any byte.
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

// plainHead reports whether the encoded record b begins like the records of most versions: b has version 1 of the
// encoding, and belongs to a visible version that is no delete marker. Listings decode such records by a fast path.
func plainHead(b []byte) bool {
	return len(b) >= 4 && (b[0] == byte(live) || b[0] == byte(kept)) && b[1] == 1 && b[2]&^flagNull == 0
}

// judge returns what a listing does with a version whose record begins with h:
//
//   - A deleted version is hidden.
//   - In a listing of the latest versions, a delete marker is hidden, too, and the older versions of the object are
//     skipped.
//
// group is the number of bytes that the keys of all rows of the object share.
func (h head) judge(group int, latest bool) listing.Sifted {
	s := listing.Sifted{Hidden: !h.visible()}
	if latest && !s.Hidden { // a version that is not seen hides nothing: an older one is the latest
		s.Hidden, s.Pass = h.marker, group
	}
	return s
}

// sift returns what a listing shows for the row e: the version, its common prefix, or nothing. If latest is true, the
// listing shows only the newest version of each object.
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

// reader turns the rows of one page of a listing into items, by decoding the keys and the contents of the rows.
type reader struct {
	typ      string // of the previous item: most items of a page have the same
	versions bool   // several rows of a group may follow one another
	group    []byte // of the previous row, if versions is true
	escaped  bool   // the key of that group has zero bytes
	again    bool   // the present row is of the same group
}

// read fills in the empty item i from a result of a listing of rows. The parameter of is that result: a row, or a
// common prefix of rows. read fails with Corrupt if the row can't be decoded.
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

// plain decodes the encoded record b into i if b has the most common form. This is a body in the row or in one blob, an
// MD5 or none, a content type, and nothing else. It returns false for any other or damaged record, which the caller
// then decodes by the method decode. plain takes a third of the time.
func (r *reader) plain(i *Info, b []byte) bool {
	if len(b) > maxRecordBytes || !plainHead(b) || b[3] > byte(inBlob) {
		return false
	}
	d := decoder{wire.Shortest{Of: b, At: 4}}
	size := d.Uint()
	sum := d.At + 1 // where the MD5 begins, behind its length; behind the MD5 are the lengths of ETag and type
	if d.Bad || len(b) < sum+2 || b[sum-1] != 0 && b[sum-1] != md5.Size {
		return false
	}
	typ := sum + int(b[sum-1]) + 2
	if len(b) < typ || b[typ-2] != 0 || b[typ-1] >= 0x80 {
		return false
	}
	end := typ + int(b[typ-1]) // of the type; no checksums and no headers follow
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
