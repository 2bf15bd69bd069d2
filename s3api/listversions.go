package s3api

import (
	"bytes"
	"cmp"
	"math"
	"strconv"
	"time"

	"github.com/evenkeel/evenkeel/internal/care"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/objects"
	"github.com/evenkeel/evenkeel/store"
)

// These are the kinds of position in a continuation token, by which a client continues a listing of objects:
//   - tokenKey: the position is the last item of the page, a key;
//   - tokenPrefix: the position is the last item of the page, a common prefix;
//   - tokenInner: the position is a token of package listing, for a page without items.
//
// The token consists of a checksum, the kind and the position. The checksum covers the kind, the position, the bucket
// and the query.
const (
	tokenKey    = 'k'
	tokenPrefix = 'p'
	tokenInner  = 't'
	// tokenOfLast stands for tokenKey or tokenPrefix, depending on the last item of the page.
	tokenOfLast = 0
)

// tokenOf returns the continuation token with which a client continues this listing of the bucket. kind is the kind of
// the position `at`, e.g. tokenKey.
func (l *listQuery) tokenOf(bucket string, kind byte, at []byte) listing.Token {
	return listing.Token(sealToken(append([]byte{kind}, at...), []byte(bucket), l.Prefix, l.Delimiter, l.From, l.To))
}

// openToken decodes the continuation token of a listing of objects. The results are:
//   - kind: the kind of the position at which the listing continues
//   - at: that position
//   - err: listing.ErrBadToken if tokenOf has not made the token for this listing
func (l *listQuery) openToken(bucket string) (kind byte, at []byte, err error) {
	b, ok := openToken(string(l.Token), []byte(bucket), l.Prefix, l.Delimiter, l.From, l.To)
	if !ok || len(b) < 2 {
		return 0, nil, listing.ErrBadToken
	}
	return b[0], b[1:], nil
}

// beyondPrefix returns a key that is above all keys with the prefix. The key consists of the prefix and bytes 0xFF, and
// is as long as the longest allowed key.
func beyondPrefix(prefix []byte) []byte {
	key := bytes.Repeat([]byte{math.MaxUint8}, care.MaxKeyBytes)
	copy(key, prefix)
	return key
}

// objectQuery translates a listing request into a query of package objects. The parameters of the request are in l. The
// query begins at the continuation token or the marker in l. The parameter `in` is the bucket of objects.
func (h *Handler) objectQuery(x *exchange, in *versioned, l *listQuery) (q objects.Query, err error) {
	if l.Reverse || len(l.From)+len(l.To) > 0 && l.form == formV2 {
		return q, notImplemented(paramReverse + ", " + paramFrom + " and " + paramTo + " in a bucket of objects")
	}
	if l.versionMarker != "" {
		if _, refusal := parseVersion(l.versionMarker); refusal != nil {
			return q, refusal
		}
	}
	q = objects.Query{Prefix: l.Prefix, Delimiter: l.Delimiter, After: l.After}
	switch {
	case l.Token != "":
		kind, at, err := l.openToken(x.bucket)
		if err != nil {
			return q, err
		}
		switch {
		case kind == tokenInner:
			q.Token = listing.Token(at)
		case kind == tokenKey && len(at) <= care.MaxKeyBytes:
			q.After = at
		case kind == tokenPrefix && len(at) <= care.MaxKeyBytes:
			q.After = beyondPrefix(at)
		default:
			return q, listing.ErrBadToken
		}
	case l.beyond:
		q.After = beyondPrefix([]byte(l.startAfter))
	case l.versionMarker != "" && in.status != objects.Never:
		id, err := in.parse(x.ctx(), l.startAfter, l.versionMarker)
		if store.KindOf(err) == store.NotFound {
			// The null version is gone, and so is its place among the versions: all versions of the key are listed.
			id, err = objects.ID{Stamp: math.MaxInt64}, nil
		}
		if err != nil {
			return q, err
		}
		q.AfterID = id
	}
	return q, nil
}

// fillObjects fills the page p of a listing with objects. The parameter `in` is the bucket of these objects.
// fillObjects reads until the page is full, the listing has ended or the time for the page is over.
func (h *Handler) fillObjects(x *exchange, in *versioned, p *listPage) error {
	q, err := h.objectQuery(x, in, p.l)
	if err != nil {
		return err
	}
	read := in.List
	if p.l.form == formVersions && in.status != objects.Never { // without versions the latest is the only one
		read = in.ListVersions
	}
	if p.l.maxKeys == 0 || p.l.nothing {
		q.Limit = 1
		_, err := read(x.ctx(), q)
		return err
	}
	until := time.Now().Add(fillTime)
	// One item more than the page has: if all later entries are hidden, the page is the last one.
	q.Limit = p.l.maxKeys + 1
	for {
		page, err := read(x.ctx(), q)
		if err != nil {
			return err
		}
		for i := range page.Items {
			if p.n == p.l.maxKeys || len(p.contents.b)+len(p.prefixes.b) >= maxPageXML {
				return p.cut(tokenOfLast, x.bucket, nil)
			}
			p.addObject(&page.Items[i])
			if err := cmp.Or(p.contents.err, p.prefixes.err); err != nil {
				return err
			}
		}
		switch late := time.Now().After(until); {
		case page.Next == "":
			return nil
		case late && p.n > 0:
			return p.cut(tokenOfLast, x.bucket, nil)
		case late && p.l.form == formV2:
			return p.cut(tokenInner, x.bucket, []byte(page.Next))
		}
		q.Token = page.Next
	}
}

// cut ends a page of a listing that is not the last page, and makes the token with which the client continues the
// listing. kind is the kind of position in the token, and at is the position. For the kind tokenOfLast the position is
// the last item of the page, and at has no meaning.
func (p *listPage) cut(kind byte, bucket string, at []byte) error {
	if kind == tokenOfLast {
		if kind, at = tokenKey, p.last.Key; p.last.CommonPrefix {
			kind = tokenPrefix
		}
	}
	p.truncated, p.next = true, p.l.tokenOf(bucket, kind, at)
	return nil
}

// addObject appends an item of a listing of objects to the page's XML document. The item is a version, a delete marker
// or a common prefix.
func (p *listPage) addObject(item *objects.Item) {
	p.n++
	p.last = listing.Item{Entry: listing.Entry{Key: item.Key}, CommonPrefix: item.CommonPrefix}
	if item.CommonPrefix {
		p.prefixes.raw("<CommonPrefixes>")
		p.prefixes.key("Prefix", item.Key, p.l)
		p.prefixes.raw("</CommonPrefixes>")
		return
	}
	p.lastVersion = versionText(&item.Info)
	b, element := p.contents, "Contents"
	switch {
	case p.l.form == formVersions && item.Marker:
		element = "DeleteMarker"
	case p.l.form == formVersions:
		element = "Version"
	}
	b.raw("<" + element + ">")
	b.key("Key", item.Key, p.l)
	if p.l.form == formVersions {
		b.text("VersionId", p.lastVersion)
		b.text("IsLatest", strconv.FormatBool(item.Latest))
	}
	b.time("LastModified", item.Modified())
	if !item.Marker {
		b.text("ETag", quoted(item.ETag()))
		sums := item.Meta().Sums
		for _, s := range sums {
			b.text("ChecksumAlgorithm", checksumNames[s.Name])
		}
		b.sumsType(sums)
		b.text("Size", strconv.FormatInt(item.Size, 10))
	}
	if p.l.fetchOwner {
		b.raw(ownerXML)
	}
	if !item.Marker {
		b.text("StorageClass", "STANDARD")
	}
	b.close(element)
}

// checksumNames maps names of checksum algorithms in lower case to the names in answers of S3, e.g. crc32c to CRC32C.
var checksumNames = map[string]string{
	"crc32": "CRC32", "crc32c": "CRC32C", "crc64nvme": "CRC64NVME", "sha1": "SHA1", "sha256": "SHA256",
}
