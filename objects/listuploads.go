package objects

import (
	"bytes"
	"context"

	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
)

// UploadQuery selects the open multipart uploads that a listing returns: by a prefix of the key, and by a start
// position.
type UploadQuery struct {
	// Prefix, Delimiter, After, Limit and Token are as in Query: e.g. Prefix selects the uploads whose keys begin with
	// Prefix.
	Prefix, Delimiter, After []byte
	// AfterID also selects those uploads of the key After that were created later than the upload AfterID. It has no
	// effect without After.
	AfterID UploadID
	Limit   int
	Token   listing.Token
}

// ListUploads returns a page of the bucket's open uploads, which were neither completed nor aborted. The uploads are
// sorted by key, and the uploads of one key from the oldest to the newest. ListUploads fails like listing.Bucket.List.
func (b *Bucket) ListUploads(ctx context.Context, q UploadQuery) (Page[Upload], error) {
	page, err := b.rows.List(ctx, q.rows())
	if err != nil {
		return Page[Upload]{}, err
	}
	out := Page[Upload]{Items: make([]Upload, 0, len(page.Items)), Next: page.Next}
	for _, item := range page.Items {
		if item.CommonPrefix {
			key := unescape(item.Key[len(uploadsBegin):])
			out.Items = append(out.Items, Upload{Key: key, CommonPrefix: true})
			continue
		}
		at, err := parseUploadRow(item.Key)
		if err != nil {
			return Page[Upload]{}, err
		}
		r, err := decode(item.Value)
		if err != nil {
			return Page[Upload]{}, store.Wrap("upload "+at.id.String(), err)
		}
		out.Items = append(out.Items, r.upload(at.key, at.id))
	}
	return out, nil
}

// rows returns the query for rows whose results are the items of the listing of uploads q.
func (q *UploadQuery) rows() listing.Query {
	rows := listing.Query{
		Prefix: escape(bytes.Clone(uploadsBegin), q.Prefix), Limit: q.Limit, Token: q.Token,
	}
	switch {
	case len(q.After) > 0 && !q.AfterID.isZero():
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
		if !at.own() { // a row that is left of an upload that is gone
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
