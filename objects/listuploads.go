package objects

import (
	"bytes"
	"context"

	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
)

// UploadQuery selects uploads.
type UploadQuery struct {
	// Prefix, Delimiter, After, Limit and Token are as in Query.
	Prefix, Delimiter, After []byte
	// AfterID, with After, selects the later uploads of the key After, too.
	AfterID UploadID
	Limit   int
	Token   listing.Token
}

// UploadItem is one line of a listing of uploads.
type UploadItem struct {
	// Upload of a common prefix has the prefix as Key, and nothing else.
	Upload
	CommonPrefix bool
}

// UploadPage is a part of a listing of uploads; Next is as in Page.
type UploadPage struct {
	Items []UploadItem
	Next  listing.Token
}

// ListUploads reads a page of the uploads that have not ended, in the order of keys and, of one key,
// of their creation. It fails like listing.Bucket.List.
func (b *Bucket) ListUploads(ctx context.Context, q UploadQuery) (UploadPage, error) {
	page, err := b.rows.List(ctx, q.rows())
	if err != nil {
		return UploadPage{}, err
	}
	out := UploadPage{Items: make([]UploadItem, 0, len(page.Items)), Next: page.Next}
	for _, item := range page.Items {
		if item.CommonPrefix {
			key := unescape(item.Key[len(uploadsBegin):])
			out.Items = append(out.Items, UploadItem{Upload: Upload{Key: key}, CommonPrefix: true})
			continue
		}
		at, err := parseUploadRow(item.Key)
		if err != nil {
			return UploadPage{}, err
		}
		r, err := decode(item.Value)
		if err != nil {
			return UploadPage{}, store.Wrap("upload "+at.id.String(), err)
		}
		out.Items = append(out.Items, UploadItem{Upload: r.upload(at.key, at.id)})
	}
	return out, nil
}

// rows returns the query of the rows.
func (q *UploadQuery) rows() listing.Query {
	rows := listing.Query{
		Prefix: escape(bytes.Clone(uploadsBegin), q.Prefix), Limit: q.Limit, Token: q.Token,
	}
	switch {
	case len(q.After) > 0 && !q.AfterID.IsZero():
		rows.From = store.PrefixEnd(uploadKey(q.After, q.AfterID))
	case len(q.After) > 0:
		rows.From = store.PrefixEnd(uploadGroup(q.After))
	}
	rows.Sift = func(e listing.Entry) listing.Sifted {
		at, err := parseUploadRow(e.Key)
		if err != nil {
			return listing.Sifted{} // shown, and so an error of the page
		}
		s := listing.Sifted{Pass: len(at.group)}
		if !at.own() { // of an upload that is gone
			s.Hidden = true
			return s
		}
		h, err := decodeHead(e.Value)
		if err != nil {
			return listing.Sifted{}
		}
		if s.Hidden = h.rank != live; s.Hidden || len(q.Delimiter) == 0 {
			return s
		}
		if i := bytes.Index(at.key[len(q.Prefix):], q.Delimiter); i >= 0 {
			end := len(q.Prefix) + i + len(q.Delimiter)
			pass := len(uploadsBegin) + len(escape(nil, at.key[:end]))
			return listing.Sifted{CommonPrefix: true, Pass: pass}
		}
		return s
	}
	return rows
}
