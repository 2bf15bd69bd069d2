package objects

import (
	"bytes"
	"context"

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
// over as keys below a common prefix are. It fails like listing.Bucket.List.
func (b *Bucket) List(ctx context.Context, q Query) (Page, error) {
	if !q.AfterID.IsZero() {
		return Page{}, store.Errorf(store.InvalidArgument, "AfterID is for ListVersions")
	}
	page, err := b.rows.List(ctx, q.rows(func(group []byte, h head) listing.Sifted {
		switch {
		case !h.visible(): // it may hide nothing: an older one is the latest
			return listing.Sifted{Hidden: true}
		case h.marker:
			return listing.Sifted{Hidden: true, Pass: group}
		}
		return listing.Sifted{Pass: group}
	}))
	if err != nil {
		return Page{}, err
	}
	out := Page{Items: make([]Item, len(page.Items)), Next: page.Next}
	for i := range page.Items {
		item := &out.Items[i]
		if _, err := item.read(&page.Items[i]); err != nil {
			return Page{}, err
		}
		item.Latest = !item.CommonPrefix
	}
	return out, nil
}

// ListVersions reads a page of all versions, delete markers included: in the order of keys, the
// newest version of each first. Of null versions only the newest is shown. It fails like List.
func (b *Bucket) ListVersions(ctx context.Context, q Query) (Page, error) {
	page, err := b.rows.List(ctx, q.rows(func(_ []byte, h head) listing.Sifted {
		return listing.Sifted{Hidden: !h.visible()}
	}))
	if err != nil {
		return Page{}, err
	}
	out := Page{Items: make([]Item, 0, len(page.Items)), Next: page.Next}
	var group []byte
	seen := false // the group has a newer version, and a null one
	null := false
	for i := range page.Items {
		var item Item
		at, err := item.read(&page.Items[i])
		if err != nil {
			return Page{}, err
		}
		if item.CommonPrefix {
			out.Items = append(out.Items, item)
			continue
		}
		if i == 0 {
			if seen, null, err = b.above(ctx, page.Items[i].Key, at.group); err != nil {
				return Page{}, err
			}
		} else if !bytes.Equal(at.group, group) {
			seen, null = false, false
		}
		group = at.group
		if item.Null && null {
			continue
		}
		item.Latest = !seen
		seen, null = true, null || item.Null
		out.Items = append(out.Items, item)
	}
	return out, nil
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

// rows returns the query of the rows. judge says what the listing shows for a version; what has the
// delimiter is a common prefix instead of an item.
func (q *Query) rows(judge func(group []byte, h head) listing.Sifted) listing.Query {
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
	rows.Sift = func(e listing.Entry) listing.Sifted {
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
		s := judge(at.group, h)
		if s.Hidden || len(q.Delimiter) == 0 {
			return s
		}
		if i := bytes.Index(at.key[len(q.Prefix):], q.Delimiter); i >= 0 {
			end := len(q.Prefix) + i + len(q.Delimiter)
			return listing.Sifted{CommonPrefix: true, Pass: escape(nil, at.key[:end])}
		}
		return s
	}
	return rows
}

// read reads an item of a listing of rows.
func (i *Item) read(of *listing.Item) (row, error) {
	if of.CommonPrefix {
		i.Key, i.CommonPrefix = unescape(of.Key), true
		return row{}, nil
	}
	at, err := parseRow(of.Key)
	if err != nil {
		return row{}, err
	}
	var r record
	if err := r.decode(of.Value); err != nil {
		return row{}, store.Wrap("version "+at.id.String(), err)
	}
	r.infoInto(&i.Info, at.key, at.id)
	return at, nil
}
