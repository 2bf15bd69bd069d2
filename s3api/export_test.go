package s3api

import (
	"io"
	"net/http"
	"slices"
	"sort"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/evenkeel/evenkeel/internal/sigv4"
	"github.com/evenkeel/evenkeel/listing"
)

// Summary is what a listing shows of a value.
func Summary(value []byte) (size int64, etag string, err error) {
	s, err := parseSummary(value)
	return s.size, string(s.appendETag(nil)), err
}

// ParseTarget is the bucket and key of a request.
func ParseTarget(r *http.Request, suffixes ...string) (bucket, key, code string) {
	t, err := parseTarget(r, suffixes)
	if err != nil {
		return "", "", err.Code
	}
	return t.bucket, t.key, ""
}

// OperationName names what a request asks for, and whether it is implemented.
func OperationName(r *http.Request) (string, bool) {
	t, err := parseTarget(r, nil)
	if err != nil {
		return err.Code, false
	}
	op := operationFor(r.Method, t, r.Header)
	return op.name, op.serve != nil
}

// ReadChunked decodes an aws-chunked body.
func ReadChunked(r io.Reader) (string, http.Header, error) {
	c := newChunkedReader(r)
	data, err := io.ReadAll(c)
	return string(data), c.Trailer, err
}

// ReadSigned decodes an aws-chunked body whose chunks, and trailers if there are
// any, are signed.
func ReadSigned(r io.Reader, chain *sigv4.Chain, trailers bool) (string, http.Header, error) {
	c := newChunkedReader(r)
	c.chain, c.trailers = chain, trailers
	data, err := io.ReadAll(c)
	return string(data), c.Trailer, err
}

// CheckConfiguration is the code of the refusal of CreateBucket's document.
func CheckConfiguration(body []byte) string {
	if err := checkConfiguration(body); err != nil {
		return err.Code
	}
	return ""
}

// IsPrivate says whether a document is the list that private stands for.
func IsPrivate(body []byte) bool {
	yes, refusal := isPrivate(body)
	return yes && refusal == nil
}

// ReadBody reads a request's body and returns the code of its refusal.
func ReadBody(r *http.Request, limit int64) (string, string) {
	b, err := openBody(r, payload{}, limit)
	var data []byte
	if err == nil {
		data, err = b.all()
	}
	if err != nil {
		return "", err.Code
	}
	return string(data), ""
}

var (
	BadBucketName = badBucketName
	ErrFraming    = errFraming
)

func XMLText(s string) string { return string(appendXMLText(nil, s)) }
func URLText(s string) string { return string(appendURLText(nil, s)) }

// ParseRange reads a Range header; code is that of its refusal.
func ParseRange(value string, size int64) (start, length int64, partial bool, code string) {
	start, length, partial, err := parseRange(value, size)
	if err != nil {
		code = err.Code
	}
	return start, length, partial, code
}

// ParseDelete reads the document of DeleteObjects; code is that of its refusal.
func ParseDelete(body []byte) (keys []string, code string) {
	doc, err := parseDelete(body)
	if err != nil {
		return nil, err.Code
	}
	for _, o := range doc.Object {
		keys = append(keys, o.Key)
	}
	return keys, ""
}

// CopySource reads the header that names what is copied.
func CopySource(value string) (bucket, key, code string) {
	x := exchange{r: &http.Request{Header: http.Header{headerCopySource: {value}}}, who: allKeys}
	from, err := x.copySource()
	if err == nil {
		err = checkVersion(from.query)
	}
	if err != nil {
		return "", "", err.Code
	}
	return from.bucket, from.key, ""
}

// MatchesETag looks for an ETag in a condition.
var MatchesETag = matchesETag

// ListDocument is the document of one page.
func ListDocument(bucket string, q listing.Query, page listing.Page, urlEncoded bool) ([]byte, error) {
	l := listQuery{Query: q, maxKeys: 1000, urlEncoded: urlEncoded, startAfter: string(q.After)}
	p, head := newListPage(&l), newXML()
	_, err := p.add(&page)
	if err == nil {
		head.listHead(bucket, p)
		err = head.err
	}
	return slices.Concat(head.b, p.contents.b, p.prefixes.b), err
}

func XMLTime(t time.Time) string { return string(appendXMLTime(nil, t)) }

// KeyLocks counts the keys that have locks.
func (h *Handler) KeyLocks() int {
	h.locks.mu.Lock()
	defer h.locks.mu.Unlock()
	return len(h.locks.locks)
}

// Held is what requests hold: slots, and bytes of either kind; and how many ask.
func (h *Handler) Held() (slots int, small, large int64, askers int) {
	r := h.requests
	r.mu.Lock()
	defer r.mu.Unlock()
	rest := func(s *semaphore.Weighted, size int64) int64 {
		n := int64(sort.Search(int(size), func(n int) bool {
			if !s.TryAcquire(int64(n) + 1) {
				return true
			}
			s.Release(int64(n) + 1)
			return false
		}))
		return size - n
	}
	return r.used, rest(r.smalls, r.small), rest(r.larges, r.large), len(r.by)
}

// MarkerBelow is the marker with which a listing goes on at a key.
func MarkerBelow(key []byte, past bool) []byte { return markerBelow(key, past) }

// CombineCRC combines the checks of two bodies, of which the second has n bytes.
func CombineCRC(name string, first, second uint64, n int64) uint64 {
	return crcs[name].combine(first, second, n)
}

// Leave takes all memory for requests but so many bytes of either kind, until it is given back.
func (h *Handler) Leave(small, large int64) (giveBack func()) {
	r := h.requests
	small, large = max(r.small-small, 0), max(r.large-large, 0)
	if !r.smalls.TryAcquire(small) || !r.larges.TryAcquire(large) {
		panic("requests are under way")
	}
	return func() {
		r.smalls.Release(small)
		r.larges.Release(large)
	}
}

// LimitCopies sets the largest size of what is copied, in bytes.
func (h *Handler) LimitCopies(n int64) { h.mostCopied = n }
