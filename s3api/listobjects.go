package s3api

import (
	"bytes"
	"net/http"
	"net/url"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/partmap"
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

// listForm is which of S3's listings is asked for.
type listForm int

const (
	formV2 listForm = iota
	formV1
	formVersions
)

// listQuery is a request for a listing.
type listQuery struct {
	listing.Query
	form       listForm
	maxKeys    int
	urlEncoded bool
	fetchOwner bool
	// startAfter, or the marker, is echoed; a continuation token overrides it.
	startAfter string
	// versionMarker is echoed.
	versionMarker string
	// nothing: no key can be beyond the marker.
	nothing bool
}

// parseListQuery reads the parameters of a listing.
func parseListQuery(q url.Values, form listForm) (listQuery, *Error) {
	l := listQuery{form: form, maxKeys: maxPageKeys, fetchOwner: form != formV2}
	l.Prefix, l.Delimiter = []byte(q.Get("prefix")), []byte(q.Get("delimiter"))
	if form != formV2 {
		for _, name := range []string{paramFrom, paramTo, paramReverse} {
			if q.Has(name) {
				return l, notImplemented(name + " without list-type=2")
			}
		}
	}
	switch form {
	case formV2:
		l.From, l.To = []byte(q.Get(paramFrom)), []byte(q.Get(paramTo))
		l.startAfter = q.Get("start-after")
		l.After = []byte(l.startAfter)
		l.Token = listing.Token(q.Get("continuation-token"))
		if q.Has("continuation-token") && l.Token == "" {
			return l, invalidArgument("The continuation token provided is incorrect.")
		}
		var refusal *Error
		if l.fetchOwner, refusal = boolParam(q, "fetch-owner"); refusal != nil {
			return l, refusal
		}
		if l.Reverse, refusal = boolParam(q, paramReverse); refusal != nil {
			return l, refusal
		}
	case formV1:
		l.goBeyond(q.Get("marker"))
	case formVersions:
		l.goBeyond(q.Get("key-marker"))
		l.versionMarker = q.Get("version-id-marker")
		switch {
		case l.versionMarker != "" && l.startAfter == "":
			return l, invalidArgument("A version-id marker cannot be specified without a key marker.")
		case l.versionMarker != "" && l.versionMarker != nullVersion:
			return l, invalidArgument("Invalid version id specified: buckets have no versions here, only %q.", nullVersion)
		}
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
	return l, nil
}

// goBeyond begins a listing without tokens beyond a marker. A marker that is a
// common prefix stands for all keys under it: the page before has listed it.
func (l *listQuery) goBeyond(marker string) {
	l.startAfter = marker
	rest, under := bytes.CutPrefix([]byte(marker), l.Prefix)
	if at := bytes.Index(rest, l.Delimiter); under && len(l.Delimiter) > 0 && at >= 0 && at+len(l.Delimiter) == len(rest) {
		l.From = partmap.PrefixEnd([]byte(marker))
		l.nothing = l.From == nil
		return
	}
	l.After = []byte(marker)
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

// listIn makes an operation of a listing.
func listIn(form listForm) func(*Handler, *exchange) error {
	return func(h *Handler, x *exchange) error { return h.listObjects(x, form) }
}

func (h *Handler) listObjects(x *exchange, form listForm) error {
	l, refusal := parseListQuery(x.query, form)
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
// but not for ever. Without tokens a page has to have an item, from which the
// next one goes on.
func (h *Handler) fillPage(x *exchange, l *listQuery) (listing.Page, error) {
	bucket := h.buckets.Bucket(x.bucket)
	q := l.Query
	if l.maxKeys == 0 || l.nothing {
		// S3 answers an empty page that is not truncated; the bucket must exist
		// and the token must be right all the same.
		q.Limit = 1
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
		if page.Next == "" || len(whole.Items) >= l.maxKeys || time.Now().After(until) && (l.form == formV2 || len(whole.Items) > 0) {
			return whole, nil
		}
		q.Token = page.Next
	}
}

// listResult writes the document of a page, in S3's order of elements.
func (b *xmlBuffer) listResult(bucket string, l *listQuery, page *listing.Page) error {
	root := "ListBucketResult"
	if l.form == formVersions {
		root = "ListVersionsResult"
	}
	b.root(root)
	b.text("Name", bucket)
	if err := b.key("Prefix", l.Prefix, l); err != nil {
		return err
	}
	if err := b.position(l, page); err != nil {
		return err
	}
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
	for i := range page.Items {
		if page.Items[i].CommonPrefix {
			continue
		}
		if err := b.contents(&page.Items[i], l); err != nil {
			return err
		}
	}
	for i := range page.Items {
		if item := &page.Items[i]; item.CommonPrefix {
			b.raw("<CommonPrefixes>")
			if err := b.key("Prefix", item.Key, l); err != nil {
				return err
			}
			b.raw("</CommonPrefixes>")
		}
	}
	b.close(root)
	return nil
}

// position writes where the page begins and where the next one goes on.
func (b *xmlBuffer) position(l *listQuery, page *listing.Page) error {
	if l.form == formV2 {
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
		return nil
	}
	name := "Marker"
	if l.form == formVersions {
		name = "KeyMarker"
	}
	if err := b.key(name, []byte(l.startAfter), l); err != nil {
		return err
	}
	if l.form == formVersions {
		b.text("VersionIdMarker", l.versionMarker)
	}
	if page.Next == "" || l.form == formV1 && len(l.Delimiter) == 0 {
		return nil // without a delimiter the last key is the marker
	}
	last := &page.Items[len(page.Items)-1]
	if err := b.key("Next"+name, last.Key, l); err != nil {
		return err
	}
	if l.form == formVersions && !last.CommonPrefix {
		b.text("NextVersionIdMarker", nullVersion)
	}
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
	// The buffer is stored once per object, not once per element: each store is a
	// write barrier while garbage is collected.
	dst := b.b
	if l.form == formVersions {
		dst = append(dst, "<Version>"...)
	} else {
		dst = append(dst, "<Contents>"...)
	}
	if dst, err = appendKey(dst, "Key", item.Key, l); err != nil {
		return err
	}
	if l.form == formVersions {
		dst = append(dst, "<VersionId>"+nullVersion+"</VersionId><IsLatest>true</IsLatest>"...)
	}
	dst = append(dst, "<LastModified>"...)
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
	dst = append(dst, "<StorageClass>STANDARD</StorageClass>"...)
	if l.form == formVersions {
		dst = append(dst, "</Version>"...)
	} else {
		dst = append(dst, "</Contents>"...)
	}
	b.b = dst
	return nil
}

// key writes an element that holds a key, or a part of one.
func (b *xmlBuffer) key(name string, key []byte, l *listQuery) error {
	dst, err := appendKey(b.b, name, key, l)
	if err == nil {
		b.b = dst
	}
	return err
}

// appendKey appends such an element.
func appendKey(dst []byte, name string, key []byte, l *listQuery) ([]byte, error) {
	dst = append(append(append(dst, '<'), name...), '>')
	if l.urlEncoded {
		dst = appendURLText(dst, key)
	} else {
		if !utf8.Valid(key) {
			return nil, invalidArgument("The %s %q is not UTF-8, which XML can't carry: please ask with encoding-type=url.", name, key)
		}
		dst = appendXMLText(dst, key)
	}
	return append(append(append(dst, '<', '/'), name...), '>'), nil
}

// splitPoints answers keys that cut a listing into pieces of about the same
// size, for clients that list in parallel.
func (h *Handler) splitPoints(x *exchange) error {
	l, refusal := parseListQuery(x.query, formV2)
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
