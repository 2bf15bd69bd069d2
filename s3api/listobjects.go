package s3api

import (
	"bytes"
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
)

// These are query parameters of evenkeel that S3 does not have.
const (
	// paramReverse with the value true lists the highest keys first. The parameter start-after is then an upper bound.
	paramReverse = "evenkeel-reverse"
	// paramFrom and paramTo limit a listing to the keys with from <= key < to.
	paramFrom = "evenkeel-from"
	paramTo   = "evenkeel-to"
	// paramSplits with the value N requests at most N-1 keys that divide a listing into N pieces of similar size. The
	// client can list the pieces in parallel.
	paramSplits = "evenkeel-splits"
	// paramDeleteRange makes a POST request to a bucket delete a range of keys.
	paramDeleteRange = "evenkeel-delete-range"
	// paramCuts means that the body of a CreateBucket request is a list of cuts, which are keys at which the new bucket
	// is divided.
	paramCuts = "evenkeel-cuts"
)

const (
	// maxPageKeys is the largest number of keys in a page of a listing, as in S3. A larger max-keys is lowered to
	// maxPageKeys.
	maxPageKeys = 1000
	// maxSplits is the largest number of pieces into which a client can divide a listing by the parameter
	// evenkeel-splits.
	maxSplits = 10_000
	// splitMemory is the memory in bytes for finding the keys that divide a listing into pieces. splitMemoryEach is the
	// memory in addition for each piece.
	splitMemory, splitMemoryEach = 2 << 20, 3 << 10
	// fillTime is how long a request may read past empty partitions to fill its page of a listing. After that time the
	// page is sent short, with a token.
	fillTime = 2 * time.Second
	// maxIdle is the largest number of reads without a result for one page. Each read passes some hundreds of empty
	// partitions.
	maxIdle = 32
	// maxPageXML is the size in bytes at which the XML document of a page is full.
	maxPageXML = 1 << 20
	// readBytes is the largest number of bytes of one read from the store for a page.
	readBytes = 512 << 10
)

// listForm is the kind of a listing request: ListObjectsV2, ListObjects or ListObjectVersions.
type listForm int

const (
	formV2 listForm = iota
	formV1
	formVersions
)

// listQuery is a listing as a request describes it: the query for package listing, and how the answer is written.
type listQuery struct {
	listing.Query
	form       listForm
	maxKeys    int
	urlEncoded bool
	fetchOwner bool
	// startAfter is the parameter start-after or marker, behind which the listing begins. The answer repeats it. With a
	// continuation token startAfter has no effect, as a client may repeat the parameter or send another value.
	startAfter string
	// versionMarker is the parameter version-id-marker: the listing begins behind this version of the key in the
	// marker. The answer repeats it.
	versionMarker string
	// beyond is true if the marker is a common prefix. Then the page begins after all keys with that prefix.
	beyond bool
	// nothing is true if no key can follow the marker, so that the page is empty.
	nothing bool
}

// parseListQuery returns the listing that a request of the given kind describes by its query q.
func parseListQuery(q url.Values, form listForm) (listQuery, *Error) {
	l := listQuery{form: form, fetchOwner: form != formV2}
	l.Prefix, l.Delimiter = []byte(q.Get("prefix")), []byte(q.Get("delimiter"))
	if q.Get("allow-unordered") == "true" && len(l.Delimiter) > 0 { // Ceph's parameter: our order is allowed, too
		return l, invalidArgument("allow-unordered and a delimiter do not go together.")
	}
	switch form {
	case formV2:
		l.From, l.To = []byte(q.Get(paramFrom)), []byte(q.Get(paramTo))
		l.startAfter = q.Get("start-after")
		l.Token = listing.Token(q.Get("continuation-token"))
		switch {
		case l.Token != "":
		case q.Has("continuation-token"): // a client that has lost its token must not begin again
			return l, badToken()
		default:
			l.After = []byte(l.startAfter)
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
		if l.versionMarker != "" && l.startAfter == "" {
			return l, invalidArgument("A version-id marker cannot be specified without a key marker.")
		}
	}
	n, refusal := count(q.Get("max-keys"), "max-keys", maxPageKeys)
	if refusal != nil {
		return l, refusal
	}
	l.maxKeys = min(n, maxPageKeys)
	refusal = l.encoding(q)
	return l, refusal
}

// encoding reads the parameter encoding-type, by which a client asks for URL-encoded keys. Any other encoding is an
// error.
func (l *listQuery) encoding(q url.Values) *Error {
	enc := q.Get("encoding-type")
	if l.urlEncoded = enc == "url"; enc != "" && !l.urlEncoded {
		return invalidArgument("Invalid Encoding Method specified in Request: %q.", enc)
	}
	return nil
}

// goBeyond makes the page of a listing begin after marker, the last item of the previous page. If marker is a common
// prefix, the page begins after all keys with this prefix: the previous page has listed the prefix in their place.
func (l *listQuery) goBeyond(marker string) {
	l.startAfter = marker
	rest, under := bytes.CutPrefix([]byte(marker), l.Prefix)
	if at := bytes.Index(rest, l.Delimiter); under && len(l.Delimiter) > 0 && at >= 0 && at+len(l.Delimiter) == len(rest) {
		l.From, l.beyond = store.PrefixEnd([]byte(marker)), true
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

// listIn returns the function that serves listing requests of the given kind.
func listIn(form listForm) func(*Handler, *exchange) error {
	return func(h *Handler, x *exchange) error { return h.listObjects(x, form) }
}

func (h *Handler) listObjects(x *exchange, form listForm) error {
	l, refusal := parseListQuery(x.query, form)
	if refusal != nil {
		return refusal
	}
	if refusal := h.beginWith(x, pageMemory(l.maxKeys)); refusal != nil {
		return refusal
	}
	in, err := h.objectsOf(x.ctx(), x.bucket)
	if err != nil {
		return err
	}
	page := newListPage(&l)
	defer page.free()
	if in != nil {
		err = h.fillObjects(x, in, page)
	} else {
		err = h.fillPage(x, page)
	}
	if err != nil {
		return err
	}
	head := newXML()
	defer head.free()
	head.listHead(x.bucket, page)
	h.metrics.entries.Add(float64(page.n))
	x.shrink(int64(cap(page.contents.b) + cap(page.prefixes.b)))
	return x.writeXML(http.StatusOK, head, page.contents, page.prefixes)
}

// pageMemory returns the memory in bytes for a listing page of at most the given number of keys. It covers one read and
// the XML document, whose buffer grows by copying. It is at least readBytes, as one read may return readBytes bytes
// even for a few keys.
func pageMemory(keys int) int64 {
	return max(min(int64(keys+1)*(16<<10), 2*readBytes+2*maxPageXML+maxPageXML/2), readBytes)
}

// listPage is one page of a listing while its XML document is built. It does not keep the values of entries, which may
// be large.
type listPage struct {
	l                  *listQuery
	contents, prefixes *xmlBuffer
	n                  int
	last               listing.Item // without its value
	lastVersion        string       // the version id of last
	truncated          bool
	next               listing.Token // the token of the next page, for formV2
	// reached is the marker at which the next page begins if this page is truncated and has no items (see
	// listing.Page.Reached).
	reached []byte
}

func newListPage(l *listQuery) *listPage {
	p := &listPage{l: l, contents: newXML(), prefixes: newXML(), lastVersion: nullVersion}
	p.contents.b, p.prefixes.b = p.contents.b[:0], p.prefixes.b[:0]
	return p
}

func (p *listPage) free() {
	p.contents.free()
	p.prefixes.free()
}

// add appends the items of page, which was read from the store, to the XML document. The result room is false if the
// document became full. Then the remaining items go to the next page.
func (p *listPage) add(page *listing.Page) (room bool, err error) {
	p.next, p.truncated = page.Next, page.Next != ""
	for i := range page.Items {
		item := &page.Items[i]
		if item.CommonPrefix {
			p.prefixes.raw("<CommonPrefixes>")
			p.prefixes.key("Prefix", item.Key, p.l)
			p.prefixes.raw("</CommonPrefixes>")
		} else {
			p.contents.contents(item, p.l)
		}
		if err := cmp.Or(p.contents.err, p.prefixes.err); err != nil {
			return room, err
		}
		p.n++
		if len(p.contents.b)+len(p.prefixes.b) < maxPageXML {
			continue
		}
		if i+1 < len(page.Items) {
			p.next, p.truncated = page.After(i), true
		}
		p.goOnAfter(item)
		return false, nil
	}
	if n := len(page.Items); n > 0 {
		p.goOnAfter(&page.Items[n-1])
	}
	return true, nil
}

// goOnAfter makes item the last item of the page, after which the next page begins.
func (p *listPage) goOnAfter(item *listing.Item) {
	p.last = listing.Item{Entry: listing.Entry{Key: bytes.Clone(item.Key)}, CommonPrefix: item.CommonPrefix}
}

// fillPage fills the page p of a listing of a plain bucket. Clients of S3 expect full pages, while package listing may
// return fewer items and a token to continue. So fillPage reads on until the page is full, within limits of time
// (fillTime) and of empty reads (maxIdle).
func (h *Handler) fillPage(x *exchange, p *listPage) error {
	if v := p.l.versionMarker; v != "" && v != nullVersion {
		return invalidArgument("Invalid version id specified: the bucket has no versions, only %q.", nullVersion)
	}
	bucket := h.buckets.Bucket(x.bucket)
	q := p.l.Query
	q.Bytes = readBytes
	if p.l.maxKeys == 0 || p.l.nothing {
		// S3 answers an empty page that is not truncated. Still the bucket must exist and
		// the token must be valid.
		q.Limit = 1
		_, err := bucket.List(x.ctx(), q)
		return err
	}
	until := time.Now().Add(fillTime)
	for idle := 0; ; {
		q.Limit = p.l.maxKeys - p.n
		page, err := bucket.List(x.ctx(), q)
		if err != nil {
			return err
		}
		if room, err := p.add(&page); err != nil || !room || !p.truncated || p.n >= p.l.maxKeys {
			return err
		}
		if len(page.Items) == 0 {
			idle++
		}
		if (idle >= maxIdle || time.Now().After(until)) && p.endsHere(page.Reached()) {
			return nil
		}
		q.Token = page.Next
	}
}

// endsHere decides whether a page of a listing can end before it is full. The listing has come as far as the key
// reached. If past is true, the next page begins after this key, otherwise with it. The page can end here if the client
// can ask for the next page:
//   - by a token, in a listing with tokens;
//   - by the last item of the page, in a listing without tokens;
//   - by a marker made from reached, if the page has neither items nor a token. endsHere stores the marker in
//     p.reached, and returns false if there is no good marker.
func (p *listPage) endsHere(reached []byte, past bool) bool {
	if p.l.form == formV2 || p.n > 0 {
		return true
	}
	marker := markerBelow(reached, past)
	if !p.l.urlEncoded && !utf8.Valid(marker) || string(marker) <= p.l.startAfter || bytes.Compare(marker, p.l.From) < 0 ||
		len(p.l.Delimiter) > 0 && bytes.HasSuffix(marker, p.l.Delimiter) {
		return false
	}
	p.reached = marker
	return true
}

// markerBelow returns the marker by which a listing without tokens continues. A listing begins behind its marker. If
// past is true, the listing must continue after key, so the marker is key itself. Otherwise it must continue with key,
// so the marker is the highest text just below key. Keys between that text and key are listed again.
func markerBelow(key []byte, past bool) []byte {
	if past || len(key) == 0 {
		return key
	}
	last, n := utf8.DecodeLastRune(key)
	rest := key[: len(key)-n : len(key)-n]
	switch {
	case last == utf8.RuneError && n == 1: // not UTF-8
		last = rune(key[len(key)-1])
		return append(rest, byte(last-1), 0xFF)
	case last == 0:
		return rest
	}
	if last--; last == 0xDFFF { // the surrogates, 0xD800 to 0xDFFF, are not characters
		last = 0xD7FF
	}
	return utf8.AppendRune(utf8.AppendRune(rest, last), utf8.MaxRune)
}

// listHead writes those elements of a listing page that come before its items, in the order of S3. It also appends the
// end tag of the page to p.prefixes, which is the last part of the document.
func (b *xmlBuffer) listHead(bucket string, p *listPage) {
	l, root := p.l, "ListBucketResult"
	if l.form == formVersions {
		root = "ListVersionsResult"
	}
	b.root(root)
	b.text("Name", bucket)
	b.key("Prefix", l.Prefix, l)
	b.position(p)
	b.text("MaxKeys", strconv.Itoa(l.maxKeys))
	if len(l.Delimiter) > 0 {
		b.key("Delimiter", l.Delimiter, l)
	}
	if l.urlEncoded {
		b.text("EncodingType", "url")
	}
	b.text("IsTruncated", strconv.FormatBool(p.truncated))
	p.prefixes.close(root)
}

// position writes the elements of a listing page that say where the page begins, and where the next page begins. They
// contain keys or tokens, according to the version of the listing API.
func (b *xmlBuffer) position(p *listPage) {
	l := p.l
	if l.form == formV2 {
		if l.startAfter != "" {
			b.key("StartAfter", []byte(l.startAfter), l)
		}
		if l.Token != "" {
			b.text("ContinuationToken", string(l.Token))
		}
		if p.truncated {
			b.text("NextContinuationToken", string(p.next))
		}
		b.text("KeyCount", strconv.Itoa(p.n))
		return
	}
	name := "Marker"
	if l.form == formVersions {
		name = "KeyMarker"
	}
	b.key(name, []byte(l.startAfter), l)
	if l.form == formVersions {
		b.text("VersionIdMarker", l.versionMarker)
	}
	switch {
	case !p.truncated:
	case p.n == 0:
		b.key("Next"+name, p.reached, l)
	case l.form == formV1 && len(l.Delimiter) == 0:
		// Without a delimiter the last key is the marker.
	default:
		b.key("Next"+name, p.last.Key, l)
		if l.form == formVersions && !p.last.CommonPrefix {
			b.text("NextVersionIdMarker", p.lastVersion)
		}
	}
}

func (b *xmlBuffer) contents(item *listing.Item, l *listQuery) {
	s, err := parseSummary(item.Value)
	if err != nil {
		b.err = fmt.Errorf("%w (key %q)", err, item.Key)
		return
	}
	// b.b is assigned once per object, not once per element, as each assignment costs a write barrier during garbage
	// collection.
	dst, element := b.b, "Contents>"
	if l.form == formVersions {
		element = "Version>"
	}
	dst = append(append(dst, '<'), element...)
	if dst, err = appendKey(dst, "Key", item.Key, l); err != nil {
		b.err = err
		return
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
	b.b = append(append(dst, "<StorageClass>STANDARD</StorageClass></"...), element...)
}

// key appends an element with the given name that contains a key, or the beginning of a key. If the key can't be
// written in XML, b.err is set.
func (b *xmlBuffer) key(name string, key []byte, l *listQuery) {
	dst, err := appendKey(b.b, name, key, l)
	if err != nil {
		b.err = cmp.Or(b.err, err)
		return
	}
	b.b = dst
}

// appendKey appends an element with the given name that contains a key, or the beginning of a key. The key is
// URL-encoded if the client asks for it. Otherwise a key that is not UTF-8 is an error, as XML can't contain it.
func appendKey(dst []byte, name string, key []byte, l *listQuery) ([]byte, error) {
	dst = append(append(append(dst, '<'), name...), '>')
	if l.urlEncoded {
		dst = appendURLText(dst, key)
	} else {
		if !utf8.Valid(key) {
			return nil, invalidArgument("The %s %q is not UTF-8, which XML can't carry: please ask with encoding-type=url.",
				name, key)
		}
		dst = appendXMLText(dst, key)
	}
	return append(append(append(dst, '<', '/'), name...), '>'), nil
}

// splitPoints answers with keys that divide a listing into pieces of similar size. A client can then list the pieces in
// parallel.
func (h *Handler) splitPoints(x *exchange) error {
	l, refusal := parseListQuery(x.query, formV2)
	if refusal != nil {
		return refusal
	}
	n, err := strconv.Atoi(x.query.Get(paramSplits))
	if err != nil || n < 1 || n > maxSplits {
		return invalidArgument("%s is a number of pieces, 1 to %d.", paramSplits, maxSplits)
	}
	if refusal := h.beginWith(x, splitMemory+int64(n)*splitMemoryEach); refusal != nil {
		return refusal
	}
	in, err := h.objectsOf(x.ctx(), x.bucket)
	if err != nil {
		return err
	}
	if in != nil { // listings with bounds are not implemented there, so the answer is one piece
		return x.writeDocument("EvenkeelSplitPoints", func(*xmlBuffer) {})
	}
	points, err := h.buckets.Bucket(x.bucket).SplitPoints(x.ctx(), l.Query, n)
	if err != nil {
		return err
	}
	return x.writeDocument("EvenkeelSplitPoints", func(b *xmlBuffer) {
		if l.urlEncoded {
			b.text("EncodingType", "url")
		}
		for _, point := range points {
			b.key("Key", point, &l)
		}
	})
}
