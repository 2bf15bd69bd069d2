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

// Query parameters of evenkeel's own.
const (
	// paramReverse=true lists the highest keys first; start-after is then an upper bound.
	paramReverse = "evenkeel-reverse"
	// paramFrom and paramTo bound a listing to from <= key < to.
	paramFrom = "evenkeel-from"
	paramTo   = "evenkeel-to"
	// paramSplits=N requests up to N-1 keys that cut a listing into pieces of similar size.
	paramSplits = "evenkeel-splits"
	// paramDeleteRange deletes a range of keys.
	paramDeleteRange = "evenkeel-delete-range"
	// paramCuts: CreateBucket's body is a list of cuts.
	paramCuts = "evenkeel-cuts"
)

const (
	// maxPageKeys is S3's: a larger max-keys is lowered to it.
	maxPageKeys = 1000
	// maxSplits bounds the answer of evenkeel-splits.
	maxSplits = 10_000
	// splitMemory, and splitMemoryEach for each piece, are the memory for finding the cuts.
	splitMemory, splitMemoryEach = 2 << 20, 3 << 10
	// fillTime is how long a page may read past empty partitions to become full. Then it is
	// sent short, with a token.
	fillTime = 2 * time.Second
	// maxIdle is the most runs of empty partitions, of some hundreds each, that a page reads.
	maxIdle = 32
	// maxPageXML bounds a page's document.
	maxPageXML = 1 << 20
	// readBytes bounds one read for a page.
	readBytes = 512 << 10
)

type listForm int

const (
	formV2 listForm = iota
	formV1
	formVersions
)

type listQuery struct {
	listing.Query
	form       listForm
	maxKeys    int
	urlEncoded bool
	fetchOwner bool
	// startAfter is start-after or the marker. The answer repeats it; beside a continuation token
	// it means nothing, as a client may repeat it or send another one.
	startAfter string
	// versionMarker is repeated in the answer.
	versionMarker string
	// beyond: the marker is a common prefix, and stands for all keys with it.
	beyond bool
	// nothing: no key can follow the marker.
	nothing bool
}

func parseListQuery(q url.Values, form listForm) (listQuery, *Error) {
	l := listQuery{form: form, fetchOwner: form != formV2}
	l.Prefix, l.Delimiter = []byte(q.Get("prefix")), []byte(q.Get("delimiter"))
	if q.Get("allow-unordered") == "true" && len(l.Delimiter) > 0 { // Ceph's; a listing in order is one of any order
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

// encoding reads how keys are to be written in the answer.
func (l *listQuery) encoding(q url.Values) *Error {
	enc := q.Get("encoding-type")
	if l.urlEncoded = enc == "url"; enc != "" && !l.urlEncoded {
		return invalidArgument("Invalid Encoding Method specified in Request: %q.", enc)
	}
	return nil
}

// goBeyond starts a listing without tokens after a marker. A marker that is a common prefix
// stands for all keys with it: the page before has listed it.
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

// pageMemory is the memory for a page of so many keys: one read, and the document, which
// grows by copying. It never counts as small: one read may return readBytes, however few the
// keys are.
func pageMemory(keys int) int64 {
	return max(min(int64(keys+1)*(16<<10), 2*readBytes+2*maxPageXML+maxPageXML/2), readBytes)
}

// listPage is a page whose document is being built. It does not keep values, which may be
// large.
type listPage struct {
	l                  *listQuery
	contents, prefixes *xmlBuffer
	n                  int
	last               listing.Item // without its value
	lastVersion        string       // of last
	truncated          bool
	next               listing.Token // of form V2
	// reached is the next marker of a truncated page without items, see
	// listing.Page.Reached.
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

// add adds items to the page, and reports whether its document had room for all of them.
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

func (p *listPage) goOnAfter(item *listing.Item) {
	p.last = listing.Item{Entry: listing.Entry{Key: bytes.Clone(item.Key)}, CommonPrefix: item.CommonPrefix}
}

// fillPage reads up to max-keys items. Package listing may return a short or empty page with
// a token. S3's clients expect full pages, so fillPage reads on, within limits.
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

// endsHere reports whether the next page can continue from here. Without tokens it continues
// from the last item, or if there is none from a marker that is no key.
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

// markerBelow returns a marker with which a listing continues at a key, or with past after
// it. The marker is just below the key: keys in between, if any, are read again.
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
	if last--; last == 0xDFFF { // a surrogate, as all from 0xD800 on, is no character
		last = 0xD7FF
	}
	return utf8.AppendRune(utf8.AppendRune(rest, last), utf8.MaxRune)
}

// listHead writes a page's document without its items, in S3's order of elements; the end is
// appended to the items.
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

// position writes where the page and the next one begin.
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
	// b.b is assigned once per object, not once per element: each assignment is a write
	// barrier during garbage collection.
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

// key writes an element with a key or a part of one.
func (b *xmlBuffer) key(name string, key []byte, l *listQuery) {
	dst, err := appendKey(b.b, name, key, l)
	if err != nil {
		b.err = cmp.Or(b.err, err)
		return
	}
	b.b = dst
}

// appendKey appends an element with a key or a part of one.
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

// splitPoints answers keys that cut a listing into pieces of similar size, for clients that
// list in parallel.
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
	if in != nil { // bounds of listings are not implemented there: it is one piece
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
