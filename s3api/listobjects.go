package s3api

import (
	"net/http"
	"net/url"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/evenkeel/evenkeel/listing"
)

// Query parameters of evenkeel's own.
const (
	// paramReverse=true lists the highest keys first; start-after is then an
	// upper bound.
	paramReverse = "evenkeel-reverse"
	// paramFrom and paramTo bound a listing to from <= key < to.
	paramFrom = "evenkeel-from"
	paramTo   = "evenkeel-to"
	// paramSplits=N asks for up to N-1 keys that cut a listing into pieces of
	// about the same size.
	paramSplits = "evenkeel-splits"
	// paramCuts: CreateBucket's body is a list of cuts.
	paramCuts = "evenkeel-cuts"
)

const (
	// maxPageKeys is S3's: a larger max-keys is lowered to it.
	maxPageKeys = 1000
	// maxSplits bounds the answer of evenkeel-splits.
	maxSplits = 10_000
	// fillTime is how long a page may go on reading past empty partitions to
	// become full. Then it is sent short, with a token.
	fillTime = 2 * time.Second
)

// listQuery is a ListObjectsV2 request.
type listQuery struct {
	listing.Query
	maxKeys    int
	urlEncoded bool
	fetchOwner bool
	// startAfter is echoed; a continuation token overrides it.
	startAfter string
}

// parseListQuery reads the parameters of ListObjectsV2.
func parseListQuery(q url.Values) (listQuery, *Error) {
	l := listQuery{maxKeys: maxPageKeys, startAfter: q.Get("start-after")}
	l.Prefix, l.Delimiter = []byte(q.Get("prefix")), []byte(q.Get("delimiter"))
	l.From, l.To = []byte(q.Get(paramFrom)), []byte(q.Get(paramTo))
	l.After = []byte(l.startAfter)
	l.Token = listing.Token(q.Get("continuation-token"))
	if q.Has("continuation-token") && l.Token == "" {
		return l, invalidArgument("The continuation token provided is incorrect.")
	}
	if s := q.Get("max-keys"); s != "" {
		n, err := strconv.ParseInt(s, 10, 32)
		if err != nil || n < 0 {
			return l, invalidArgument("Argument max-keys must be an integer between 0 and 2147483647.")
		}
		l.maxKeys = int(min(n, maxPageKeys))
	}
	switch enc := q.Get("encoding-type"); enc {
	case "":
	case "url":
		l.urlEncoded = true
	default:
		return l, invalidArgument("Invalid Encoding Method specified in Request: %q.", enc)
	}
	var refusal *Error
	if l.fetchOwner, refusal = boolParam(q, "fetch-owner"); refusal != nil {
		return l, refusal
	}
	l.Reverse, refusal = boolParam(q, paramReverse)
	return l, refusal
}

func boolParam(q url.Values, name string) (bool, *Error) {
	switch v := q.Get(name); v {
	case "", "false":
		return false, nil
	case "true":
		return true, nil
	default:
		return false, invalidArgument("%s is true or false, not %q.", name, v)
	}
}

func (h *Handler) listObjects(x *exchange) error {
	l, refusal := parseListQuery(x.query)
	if refusal != nil {
		return refusal
	}
	page, err := h.fillPage(x, &l)
	if err != nil {
		return err
	}
	b := newXML()
	defer b.free()
	if err := b.listResult(x.bucket, &l, &page); err != nil {
		return err
	}
	h.metrics.entries.Add(float64(len(page.Items)))
	return x.writeXML(http.StatusOK, b)
}

// fillPage reads up to max-keys items. Listing may end a page early, even an
// empty one, with a token; S3's clients are used to full pages, so it goes on,
// but not for ever.
func (h *Handler) fillPage(x *exchange, l *listQuery) (listing.Page, error) {
	bucket := h.buckets.Bucket(x.bucket)
	q := l.Query
	if l.maxKeys == 0 {
		// S3 answers an empty page that is not truncated; the bucket must exist
		// and the token must be right all the same.
		q.Limit, q.KeysOnly = 1, true
		_, err := bucket.List(x.ctx(), q)
		return listing.Page{}, err
	}
	until := time.Now().Add(fillTime)
	var whole listing.Page
	for {
		q.Limit = l.maxKeys - len(whole.Items)
		page, err := bucket.List(x.ctx(), q)
		if err != nil {
			return whole, err
		}
		if whole.Items == nil {
			whole.Items = page.Items
		} else {
			whole.Items = append(whole.Items, page.Items...)
		}
		whole.Next = page.Next
		if page.Next == "" || len(whole.Items) >= l.maxKeys || time.Now().After(until) {
			return whole, nil
		}
		q.Token = page.Next
	}
}

// listResult writes a ListBucketResult of version 2, in S3's order of elements.
func (b *xmlBuffer) listResult(bucket string, l *listQuery, page *listing.Page) error {
	b.root("ListBucketResult")
	b.text("Name", bucket)
	if err := b.key("Prefix", l.Prefix, l); err != nil {
		return err
	}
	if l.startAfter != "" {
		if err := b.key("StartAfter", []byte(l.startAfter), l); err != nil {
			return err
		}
	}
	if l.Token != "" {
		b.text("ContinuationToken", string(l.Token))
	}
	if page.Next != "" {
		b.text("NextContinuationToken", string(page.Next))
	}
	b.text("KeyCount", strconv.Itoa(len(page.Items)))
	b.text("MaxKeys", strconv.Itoa(l.maxKeys))
	if len(l.Delimiter) > 0 {
		if err := b.key("Delimiter", l.Delimiter, l); err != nil {
			return err
		}
	}
	if l.urlEncoded {
		b.text("EncodingType", "url")
	}
	b.text("IsTruncated", strconv.FormatBool(page.Next != ""))
	prefixes := 0
	for i := range page.Items {
		if page.Items[i].CommonPrefix {
			prefixes++
			continue
		}
		if err := b.contents(&page.Items[i], l); err != nil {
			return err
		}
	}
	for i := range page.Items {
		if prefixes == 0 {
			break
		}
		if item := &page.Items[i]; item.CommonPrefix {
			prefixes--
			b.raw("<CommonPrefixes>")
			if err := b.key("Prefix", item.Key, l); err != nil {
				return err
			}
			b.raw("</CommonPrefixes>")
		}
	}
	b.close("ListBucketResult")
	return nil
}

// contents writes one object of a listing.
func (b *xmlBuffer) contents(item *listing.Item, l *listQuery) error {
	s, err := parseSummary(item.Value)
	if err != nil {
		e := fromStore(err, false)
		e.Message += " (key " + strconv.Quote(string(item.Key)) + ")"
		return e
	}
	b.raw("<Contents>")
	if err := b.key("Key", item.Key, l); err != nil {
		return err
	}
	dst := append(b.b, "<LastModified>"...)
	dst = appendXMLTime(dst, time.UnixMilli(s.modified))
	dst = append(dst, "</LastModified><ETag>&quot;"...)
	if s.external {
		dst = appendXMLText(dst, s.etag)
	} else {
		dst = s.appendETag(dst)
	}
	dst = append(dst, "&quot;</ETag><Size>"...)
	dst = strconv.AppendInt(dst, s.size, 10)
	dst = append(dst, "</Size>"...)
	if l.fetchOwner {
		dst = append(dst, ownerXML...)
	}
	b.b = append(dst, "<StorageClass>STANDARD</StorageClass></Contents>"...)
	return nil
}

// key writes an element that holds a key, or a part of one.
func (b *xmlBuffer) key(name string, key []byte, l *listQuery) error {
	dst := append(append(append(b.b, '<'), name...), '>')
	if l.urlEncoded {
		dst = appendURLText(dst, key)
	} else {
		if !utf8.Valid(key) {
			return invalidArgument("The %s %q is not UTF-8, which XML can't carry: please ask with encoding-type=url.", name, key)
		}
		dst = appendXMLText(dst, key)
	}
	b.b = append(append(append(dst, '<', '/'), name...), '>')
	return nil
}

// splitPoints answers keys that cut a listing into pieces of about the same
// size, for clients that list in parallel.
func (h *Handler) splitPoints(x *exchange) error {
	l, refusal := parseListQuery(x.query)
	if refusal != nil {
		return refusal
	}
	n, err := strconv.Atoi(x.query.Get(paramSplits))
	if err != nil || n < 1 || n > maxSplits {
		return invalidArgument("%s is a number of pieces, 1 to %d.", paramSplits, maxSplits)
	}
	points, err := h.buckets.Bucket(x.bucket).SplitPoints(x.ctx(), l.Query, n)
	if err != nil {
		return err
	}
	b := newXML()
	defer b.free()
	b.root("EvenkeelSplitPoints")
	if l.urlEncoded {
		b.text("EncodingType", "url")
	}
	for _, point := range points {
		if err := b.key("Key", point, &l); err != nil {
			return err
		}
	}
	b.close("EvenkeelSplitPoints")
	return x.writeXML(http.StatusOK, b)
}
