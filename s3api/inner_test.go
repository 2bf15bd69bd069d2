package s3api

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/objects"
)

// page is a guard.
type page struct{ host, origin error }

func (p page) CheckHost(*http.Request) error   { return p.host }
func (p page) CheckOrigin(*http.Request) error { return p.origin }

// TestRequestsOfPages: without keys a guard refuses them, with the reason.
func TestRequestsOfPages(t *testing.T) {
	host, origin := errors.New("another host"), errors.New("another origin")
	for guard, want := range map[interface {
		CheckHost(*http.Request) error
		CheckOrigin(*http.Request) error
	}]string{
		nil:                "",
		page{}:             "",
		page{host, nil}:    "Access Denied. another host",
		page{nil, origin}:  "Access Denied. another origin; without access keys none may change anything",
		page{host, origin}: "Access Denied. another host",
	} {
		refusal := (&Handler{o: Options{Guard: guard}}).refusePages(&exchange{})
		if want == "" {
			require.Nil(t, refusal)
			continue
		}
		require.Equal(t, []string{"AccessDenied", want}, []string{refusal.Code, refusal.Message})
		require.Equal(t, http.StatusForbidden, refusal.Status)
	}
}

// TestBodiesThatFail: what went wrong is for the log.
func TestBodiesThatFail(t *testing.T) {
	for cause, code := range map[error]string{
		errors.New("broken"): "IncompleteBody", io.ErrUnexpectedEOF: "IncompleteBody",
		os.ErrDeadlineExceeded: "RequestTimeout",
	} {
		for _, length := range []int64{5, -1} {
			r := httptest.NewRequest("PUT", "/abc/k", io.MultiReader(strings.NewReader("hello"), iotest.ErrReader(cause)))
			r.ContentLength = length
			b, refusal := openBody(r, payload{}, 16)
			if refusal == nil {
				_, refusal = b.all()
			}
			require.Equal(t, []any{code, http.StatusBadRequest}, []any{refusal.Code, refusal.Status})
			require.Equal(t, cause, refusal.Cause)
		}
	}
}

// TestBodiesStayAtTheirEnd: whoever reads on is told again how the body ended.
func TestBodiesStayAtTheirEnd(t *testing.T) {
	for sum, code := range map[string]string{"XUFAKrxLKna5cZ2REBfFkg==": "", "CY9rzUYh03PK3k6DJie09g==": "BadDigest"} {
		r := httptest.NewRequest("PUT", "/abc/k", iotest.DataErrReader(strings.NewReader("hello")))
		r.ContentLength = 5
		r.Header.Set("Content-MD5", sum)
		b, refusal := openBody(r, payload{}, 16)
		require.Nil(t, refusal)
		_, end := io.Copy(io.Discard, struct{ io.Reader }{b})
		for range 2 {
			n, err := b.Read(make([]byte, 8))
			require.Zero(t, n)
			if code == "" {
				require.NoError(t, end)
				require.Equal(t, io.EOF, err)
				continue
			}
			require.Equal(t, end, err)
			require.Equal(t, code, err.(*Error).Code)
		}
	}
}

// TestBodiesFailOnce: what comes behind a failure is not read.
func TestBodiesFailOnce(t *testing.T) {
	failing := io.MultiReader(strings.NewReader("he"), &failsOnce{}, strings.NewReader("llo"))
	r := httptest.NewRequest("PUT", "/abc/k", failing)
	r.ContentLength = 5
	b, refusal := openBody(r, payload{}, 16)
	require.Nil(t, refusal)
	_, end := io.Copy(io.Discard, struct{ io.Reader }{b})
	require.Equal(t, "IncompleteBody", end.(*Error).Code)
	n, err := b.Read(make([]byte, 8))
	require.Zero(t, n)
	require.Equal(t, end, err)
}

// TestBodiesEndWhereTheyWereToEnd: what is longer than said is not waited for.
func TestBodiesEndWhereTheyWereToEnd(t *testing.T) {
	for _, said := range []string{"0", "1", "4", "5"} {
		late := iotest.ErrReader(os.ErrDeadlineExceeded)
		r := httptest.NewRequest("PUT", "/abc/k", io.MultiReader(strings.NewReader("5\r\nhello\r\n"), late))
		r.Header.Set("Content-Encoding", "aws-chunked")
		r.Header.Set("X-Amz-Decoded-Content-Length", said)
		b, refusal := openBody(r, payload{}, 16)
		require.Nil(t, refusal)
		_, refusal = b.all()
		require.Equal(t, map[bool]string{true: "RequestTimeout", false: "IncompleteBody"}[said == "5"], refusal.Code, said)
	}
}

// TestTokensOfOtherQueries: a token is good for one query.
func TestTokensOfOtherQueries(t *testing.T) {
	seen := map[string]bool{}
	for _, texts := range [][4]string{
		{}, {"x"}, {"", "x"}, {"", "", "x"}, {"", "", "", "x"}, {"x", "y"}, {"x y"}, {"x "}, {"x", " "}, {"", "x "}, {" x"},
		{"x 1", "y"}, {"x", "1 y"}, {"x", "", " "}, {"x  "},
	} {
		q := listing.Query{Prefix: []byte(texts[0]), Delimiter: []byte(texts[1]), From: []byte(texts[2]), To: []byte(texts[3])}
		for _, bucket := range []string{"abc", "abd"} {
			sum := string((&listQuery{Query: q}).tokenOf(bucket, tokenKey, []byte("k")))
			require.False(t, seen[sum], "%q", texts)
			seen[sum] = true
		}
	}
}

// TestCausesOfRefusedParts are for the log.
func TestCausesOfRefusedParts(t *testing.T) {
	for err, code := range map[error]string{
		objects.ErrNoSuchUpload: "NoSuchUpload", objects.ErrInvalidPart: "InvalidPart", objects.ErrPartOrder: "InvalidPartOrder",
	} {
		cause := fmt.Errorf("why: %w", err)
		e := (&Handler{}).translate(&exchange{}, cause)
		require.Equal(t, code, e.Code)
		require.Equal(t, cause, e.Cause)
	}
}

// failsOnce fails, and then has nothing.
type failsOnce struct{ failed bool }

func (f *failsOnce) Read([]byte) (int, error) {
	if f.failed {
		return 0, io.EOF
	}
	f.failed = true
	return 0, errors.New("broken")
}

// TestDamagedChecksumsOfParts: no checksum is made of them.
func TestDamagedChecksumsOfParts(t *testing.T) {
	for _, c := range []checksum{{"crc32", false}, {"crc32", true}} {
		for value, want := range map[string]bool{"AAAAAA==": true, "AAAAAA": false, "AAAAAAA=": false, "AAAA": false, "": false} {
			sum, err := c.compute([]objects.Part{{Number: 1, Size: 1, Sums: []objects.Pair{{Name: "crc32", Value: value}}}})
			require.Equal(t, want, err == nil, "%q", value)
			require.Equal(t, want, sum != "", "%q", value)
		}
	}
}

// TestTooLarge: what a client is told depends on which limit it was.
func TestTooLarge(t *testing.T) {
	for limit, want := range map[int64]string{
		maxObjectBytes: "Your proposed upload exceeds the maximum allowed object size: 5368709120 bytes in one request.",
		4096: "Your body is larger than 4096 bytes. Values are metadata here: keep the object's bytes elsewhere, and send " +
			"its size and ETag in X-Evenkeel-Size and X-Evenkeel-Etag with an empty body.",
	} {
		refusal := tooLarge(limit)
		require.Equal(t, []any{400, "EntityTooLarge", want}, []any{refusal.Status, refusal.Code, refusal.Message})
	}
}

// TestAnnouncedDigests: each trailer with a digest is computed once, beside what headers have; only
// bodies in chunks have trailers.
func TestAnnouncedDigests(t *testing.T) {
	const crc, sha, other = "x-amz-checksum-crc32", "x-amz-checksum-sha256", "x-amz-meta-a"
	for _, c := range []struct {
		chunked        bool
		trailer, given string
		want           string // of trailers; of headers with a colon, of both with two
	}{
		{true, crc, "", "X-Amz-Checksum-Crc32"},
		{false, crc, "", ""},
		{true, crc + "," + crc, "", "X-Amz-Checksum-Crc32"},
		{true, crc + ", " + sha, "", "InvalidRequest"},
		{true, other + "," + crc, "", "X-Amz-Checksum-Crc32"},
		{true, crc, "AAAAAA==", "X-Amz-Checksum-Crc32::"},
		{true, other, "AAAAAA==", "X-Amz-Checksum-Crc32:"},
		{true, "x-amz-checksum-xxhash", "", "NotImplemented"},
		{true, "", "AAAA", "InvalidRequest"},
	} {
		r := httptest.NewRequest("PUT", "/abc/k", strings.NewReader(""))
		r.Header.Set("X-Amz-Trailer", c.trailer)
		if c.given != "" {
			r.Header.Set(crc, c.given)
		}
		if c.chunked {
			r.Header.Set("Content-Encoding", "aws-chunked")
			r.Header.Set("X-Amz-Decoded-Content-Length", "0")
		}
		b, refusal := openBody(r, payload{}, 16)
		var got []string
		for _, d := range b.digests {
			if d.want != nil {
				d.name += ":"
			}
			if d.want != nil && d.trails {
				d.name += ":"
			}
			require.True(t, d.want != nil || d.trails, "it is compared with something")
			got = append(got, d.name)
		}
		if refusal != nil {
			got = []string{refusal.Code}
		}
		require.Equal(t, c.want, strings.Join(got, " "), "%+v", c)
	}
}

// TestTokens: RFC 9110, section 5.6.2.
func TestTokens(t *testing.T) {
	token := regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]$")
	for c := range 256 {
		text := string([]byte{byte(c)})
		require.Equal(t, token.MatchString(text), isToken(text), "%q", text)
		require.Equal(t, token.MatchString(text), isToken("a"+text+"b"), "%q", text)
	}
}

// TestLockedOut: who gets no lock is told what to do, and the log why.
func TestLockedOut(t *testing.T) {
	cause := errors.New("a second")
	for conditional, want := range map[bool]Error{
		true: {Code: "ConditionalRequestConflict", Status: 409, Cause: cause,
			Message: "The conditional request cannot succeed: an earlier write of the key is still under way. " +
				"Nothing was written. Please try again."},
		false: {Code: "ServiceUnavailable", Status: 503, RetryAfter: 1, Cause: cause,
			Message: "Earlier writes of the key took too long. Nothing was written. Please try again."},
	} {
		require.Equal(t, want, *lockedOut(conditional, cause))
	}
}

// TestWhereAPageMayEnd: by a token anywhere, and behind an item; else where a marker can tell it.
func TestWhereAPageMayEnd(t *testing.T) {
	for _, c := range []struct {
		reached    string
		past       bool
		change     func(*listPage)
		ends       bool
		nextMarker string
	}{
		{"k", true, func(p *listPage) {}, true, "k"},
		{"k", false, func(p *listPage) {}, true, "j\U0010FFFF"},
		{"k", true, func(p *listPage) { p.l.form = formV2 }, true, ""},
		{"k", true, func(p *listPage) { p.n = 1 }, true, ""},
		{"\xff", true, func(p *listPage) {}, false, ""},
		{"\xff", true, func(p *listPage) { p.l.urlEncoded = true }, true, "\xff"},
		{"k", true, func(p *listPage) { p.l.urlEncoded = true }, true, "k"},
		{"k", true, func(p *listPage) { p.l.startAfter = "j" }, true, "k"},
		{"k", true, func(p *listPage) { p.l.startAfter = "k" }, false, ""},
		{"k", true, func(p *listPage) { p.l.startAfter = "l" }, false, ""},
		{"k", true, func(p *listPage) { p.l.From = []byte("k") }, true, "k"},
		{"k", true, func(p *listPage) { p.l.From = []byte("ka") }, false, ""},
		{"k/", true, func(p *listPage) {}, true, "k/"},
		{"k/", true, func(p *listPage) { p.l.Delimiter = []byte("/") }, false, ""},
		{"k/a", true, func(p *listPage) { p.l.Delimiter = []byte("/") }, true, "k/a"},
		{"", true, func(p *listPage) {}, false, ""},
	} {
		p := &listPage{l: &listQuery{form: formV1}}
		c.change(p)
		require.Equal(t, c.ends, p.endsHere([]byte(c.reached), c.past), "%+v of %+v", c, p.l)
		require.Equal(t, c.nextMarker, string(p.reached), "%+v of %+v", c, p.l)
	}
}

// TestErrorsInWords: for logs, with their causes.
func TestErrorsInWords(t *testing.T) {
	cause := errors.New("the disk is full")
	e := refuse(http.StatusConflict, "Busy", "Please try %s.", "again")
	require.EqualError(t, e, "Busy (409): Please try again.")
	require.NoError(t, e.Unwrap())
	e.Cause = cause
	require.EqualError(t, e, "Busy (409): Please try again.: the disk is full")
	require.ErrorIs(t, e, cause)
	// What is no refusal of a signature is no fault of the client's: see TestPanics.
	require.Panics(t, func() { _ = refuseSignature(cause) })
}
