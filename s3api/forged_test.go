package s3api_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/sigv4"
	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/s3api"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// signer signs the chunks of one body, as a client does; by hand, so that a mistake of
// package sigv4 is not on both sides.
// https://docs.aws.amazon.com/AmazonS3/latest/API/sigv4-streaming.html
type signer struct {
	key          []byte
	stamp, scope string
	last         string // the signature before
	body         strings.Builder
	sumOfEmpty   string
}

func hmacSum(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}

func newSigner(secret, authorization, stamp string) *signer {
	day := stamp[:8]
	key := []byte("AWS4" + secret)
	for _, part := range []string{day, "us-east-1", "s3", "aws4_request"} {
		key = hmacSum(key, part)
	}
	_, seed, _ := strings.Cut(authorization, "Signature=")
	return &signer{key: key, stamp: stamp, scope: day + "/us-east-1/s3/aws4_request", last: seed,
		sumOfEmpty: sigv4.PayloadOf(nil)}
}

func (s *signer) next(what, sums string) string {
	s.last = hex.EncodeToString(hmacSum(s.key,
		strings.Join([]string{"AWS4-HMAC-SHA256-" + what, s.stamp, s.scope, s.last,
			sums}, "\n")))
	return s.last
}

func (s *signer) chunk(data string) {
	signature := s.next("PAYLOAD", s.sumOfEmpty+"\n"+sigv4.PayloadOf([]byte(data)))
	fmt.Fprintf(&s.body, "%x;chunk-signature=%s\r\n", len(data), signature)
	if data != "" {
		s.body.WriteString(data + "\r\n")
	}
}

func (s *signer) trailers(lines string) {
	s.body.WriteString(strings.ReplaceAll(lines, "\n", "\r\n"))
	fmt.Fprintf(&s.body, "x-amz-trailer-signature:%s\r\n", s.next("TRAILER", sigv4.PayloadOf([]byte(lines))))
}

const (
	forgedData = "the body of an object, in three chunks"
	sealed     = "x-amz-checksum-crc32:"
)

// streamed makes a request with a body in chunks, signed now or a little earlier.
func streamed(t *testing.T, form string, ago time.Duration) (r *http.Request, body string) {
	r = httptest.NewRequest("PUT", "/photos/k", nil)
	now := time.Now().UTC().Add(-ago)
	r.Header.Set("X-Amz-Decoded-Content-Length", strconv.Itoa(len(forgedData)))
	r.Header.Set("Content-Encoding", "aws-chunked")
	if form != sigv4.SignedChunks {
		r.Header.Set("X-Amz-Trailer", "x-amz-checksum-crc32")
	}
	signed := &sigv4.Request{Method: "PUT", Path: "/photos/k", Host: r.Host, Header: r.Header, Length: -1}
	require.NoError(t, sigv4.Sign(signed, "ADMIN", "the secret of the admin", "us-east-1", form, now))
	crc := crc32.ChecksumIEEE([]byte(forgedData))
	line := sealed + b64([]byte{byte(crc >> 24), byte(crc >> 16), byte(crc >> 8), byte(crc)})
	if form == sigv4.UnsignedChunksTrailer {
		return r, chunked(forgedData, []int{10, 15}, false, line)
	}
	s := newSigner("the secret of the admin", r.Header.Get("Authorization"), r.Header.Get("X-Amz-Date"))
	for _, part := range []string{forgedData[:10], forgedData[10:25], forgedData[25:], ""} {
		s.chunk(part)
	}
	if form == sigv4.SignedChunksTrailer {
		s.trailers(line + "\n")
	}
	return r, s.body.String() + "\r\n"
}

// put sends the request with another body and returns the code of the refusal, and
// what is stored then.
func put(t *testing.T, h http.Handler, c *listing.Client, r *http.Request, body string) (code, stored string) {
	t.Helper()
	require.NoError(t, c.Bucket("photos").Delete(t.Context(), []byte("k")))
	again := httptest.NewRequest(r.Method, r.URL.String(), strings.NewReader(body))
	again.RemoteAddr = "127.0.0.1:1" // else bodies that are not signed are refused
	again.Host, again.Header = r.Host, r.Header.Clone()
	a := httptest.NewRecorder()
	h.ServeHTTP(a, again)
	if a.Code != http.StatusOK {
		code = answer{a.Code, a.Header(), a.Body.String()}.code()
	}
	e, err := c.Bucket("photos").Get(t.Context(), []byte("k"))
	if err == nil {
		o, err := s3api.ParseRecord(e.Value)
		require.NoError(t, err)
		stored = string(o.Body)
	}
	return code, stored
}

func keyed(t *testing.T) (http.Handler, *listing.Client) {
	s := memstore.New()
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	c, err := listing.New(s, listing.Options{})
	require.NoError(t, err)
	require.NoError(t, c.CreateBucket(t.Context(), "photos"))
	keys, err := s3api.ParseKeys([]byte(testKeys))
	require.NoError(t, err)
	h, err := s3api.New(s3api.Over(c), s3api.Options{Keys: keys})
	require.NoError(t, err)
	return h, c
}

// A body whose chunks are signed is stored as it was signed or not at all, whichever of
// its bytes is altered, left out or put in twice.
func TestForgedChunks(t *testing.T) {
	r := seed.New(t)
	for _, form := range []string{sigv4.SignedChunks, sigv4.SignedChunksTrailer, sigv4.UnsignedChunksTrailer} {
		t.Run(form, func(t *testing.T) {
			h, c := keyed(t)
			request, body := streamed(t, form, 0)
			code, stored := put(t, h, c, request, body)
			require.Empty(t, code)
			require.Equal(t, forgedData, stored)
			for at := range len(body) {
				altered := []byte(body)
				altered[at] ^= 1 << r.IntN(7)
				for what, forged := range map[string]string{
					"altered": string(altered), "left out": body[:at] + body[at+1:], "twice": body[:at+1] + body[at:],
					"cut": body[:at],
				} {
					code, stored := put(t, h, c, request, forged)
					if code == "" { // the case of a digit, or a blank that nobody counts
						require.Equal(t, forgedData, stored, "byte %d %s: %q", at, what, forged)
					} else {
						require.Empty(t, stored, "byte %d %s: %q", at, what, forged)
						require.Contains(t, []string{"SignatureDoesNotMatch", "IncompleteBody", "BadDigest",
							"MalformedTrailerError",
							"InvalidRequest", "NotImplemented", "EntityTooLarge"}, code)
					}
				}
			}
		})
	}
}

// What exactly is refused, and how.
func TestForgedPlaces(t *testing.T) {
	h, c := keyed(t)
	replace := func(old, with string) func(string) string {
		return func(body string) string {
			require.Contains(t, body, old)
			return strings.Replace(body, old, with, 1)
		}
	}
	// part is what lies from one sign to another, with the former.
	part := func(body, from, to string) string {
		_, after, found := strings.Cut(body, from)
		require.True(t, found)
		inner, _, found := strings.Cut(after, to)
		require.True(t, found)
		return from + inner
	}
	for _, f := range []struct {
		name, form, code string
		forge            func(body string) string
	}{
		{"first chunk's data", sigv4.SignedChunks, "SignatureDoesNotMatch", replace("the body", "The body")},
		{"middle chunk's data", sigv4.SignedChunks, "SignatureDoesNotMatch", replace("object", "Object")},
		{"last chunk's data", sigv4.SignedChunks, "SignatureDoesNotMatch", replace("chunks\r\n", "chinks\r\n")},
		{"first chunk's signature", sigv4.SignedChunks, "SignatureDoesNotMatch", func(b string) string {
			return strings.Replace(b, part(b, "chunk-signature=", "\r\n"), "chunk-signature="+strings.Repeat("0", 64),
				1)
		}},
		{"no signature", sigv4.SignedChunks, "SignatureDoesNotMatch", func(b string) string {
			return strings.Replace(b,
				part(b, ";chunk-signature=", "\r\n"), "", 1)
		}},
		{"no signature of the end", sigv4.SignedChunks, "SignatureDoesNotMatch", func(b string) string {
			return strings.Replace(b, part(b, "\r\n0;chunk-signature=", "\r\n"), "\r\n0", 1)
		}},
		{"chunks in another order", sigv4.SignedChunks, "SignatureDoesNotMatch", func(b string) string {
			first := part(b, "a;chunk-signature=", "\r\nf;") + "\r\n"
			second := part(b, "f;chunk-signature=", "\r\nd;") + "\r\n"
			return strings.Replace(b, first+second, second+first, 1)
		}},
		{"a chunk less", sigv4.SignedChunks, "SignatureDoesNotMatch", func(b string) string {
			return strings.Replace(b, part(b, "f;chunk-signature=", "\r\nd;")+"\r\n", "", 1)
		}},
		{"an early end", sigv4.SignedChunks, "SignatureDoesNotMatch", func(b string) string {
			return strings.Replace(b, part(b, "d;chunk-signature=", "\r\n0;")+"\r\n", "", 1)
		}},
		{"trailers that nobody signed", sigv4.SignedChunks, "IncompleteBody",
			func(b string) string { return strings.TrimSuffix(b, "\r\n") + "x-amz-meta-a:b\r\n\r\n" }},
		{"trailer", sigv4.SignedChunksTrailer, "SignatureDoesNotMatch", replace(sealed, sealed+" x")},
		{"another trailer", sigv4.SignedChunksTrailer, "SignatureDoesNotMatch",
			replace(sealed, "x-amz-meta-a:b\r\n"+sealed)},
		{"no trailer", sigv4.SignedChunksTrailer, "SignatureDoesNotMatch", func(b string) string {
			return strings.Replace(b,
				part(b, sealed, "\r\n")+"\r\n", "", 1)
		}},
		{"trailer's signature", sigv4.SignedChunksTrailer, "SignatureDoesNotMatch", func(b string) string {
			return strings.Replace(b, part(b, "x-amz-trailer-signature:", "\r\n"),
				"x-amz-trailer-signature:"+strings.Repeat("0", 64), 1)
		}},
		{"no trailer's signature", sigv4.SignedChunksTrailer, "SignatureDoesNotMatch", func(b string) string {
			return strings.Replace(b, part(b, "x-amz-trailer-signature:", "\r\n")+"\r\n", "", 1)
		}},
		{"data under a digest", sigv4.UnsignedChunksTrailer, "BadDigest", replace("object", "Object")},
		{"no digest", sigv4.UnsignedChunksTrailer, "MalformedTrailerError", func(b string) string {
			return strings.Replace(b,
				part(b, sealed, "\r\n")+"\r\n", "", 1)
		}},
	} {
		request, body := streamed(t, f.form, 0)
		forged := f.forge(body)
		require.NotEqual(t, body, forged, f.name)
		code, stored := put(t, h, c, request, forged)
		require.Equal(t, f.code, code, f.name)
		require.Empty(t, stored, f.name)
	}
	// A body of another request, and one that says less of itself than was signed.
	request, _ := streamed(t, sigv4.SignedChunks, 0)
	_, body := streamed(t, sigv4.SignedChunks, time.Minute)
	code, _ := put(t, h, c, request, body)
	require.Equal(t, "SignatureDoesNotMatch", code)
	request, body = streamed(t, sigv4.SignedChunks, 0)
	request.Header.Set("X-Amz-Content-Sha256", sigv4.UnsignedPayload)
	code, _ = put(t, h, c, request, body)
	require.Equal(t, "SignatureDoesNotMatch", code)
}

// TestAnnouncedTrailersThatCameAsHeaders: the Java SDK announces a trailer of a body that can have none, and sends it as a
// header, which is verified. Where trailers can come it is missed.
func TestAnnouncedTrailersThatCameAsHeaders(t *testing.T) {
	h, c := keyed(t)
	crc := crc32.ChecksumIEEE([]byte(forgedData))
	right := b64([]byte{byte(crc >> 24), byte(crc >> 16), byte(crc >> 8), byte(crc)})
	ask := func(form, header string) (code, stored string) {
		r, _ := streamed(t, sigv4.SignedChunks, 0)
		r.Header.Del("Authorization")
		r.Header.Set("X-Amz-Trailer", "x-amz-checksum-crc32")
		if header != "" {
			r.Header.Set("X-Amz-Checksum-Crc32", header)
		}
		signed := &sigv4.Request{Method: "PUT", Path: "/photos/k", Host: r.Host, Header: r.Header, Length: -1}
		require.NoError(t, sigv4.Sign(signed, "ADMIN", "the secret of the admin", "us-east-1", form, time.Now()))
		s := newSigner("the secret of the admin", r.Header.Get("Authorization"), r.Header.Get("X-Amz-Date"))
		for _, part := range []string{forgedData[:10], forgedData[10:], ""} {
			s.chunk(part)
		}
		if form == sigv4.SignedChunksTrailer {
			s.trailers("")
		}
		return put(t, h, c, r, s.body.String()+"\r\n")
	}
	for _, w := range []struct{ form, header, code, stored string }{
		{sigv4.SignedChunks, right, "", forgedData},
		{sigv4.SignedChunks, "AAAAAA==", "BadDigest", ""},
		{sigv4.SignedChunks, "", "MalformedTrailerError", ""},
		{sigv4.SignedChunksTrailer, right, "MalformedTrailerError", ""},
	} {
		code, stored := ask(w.form, w.header)
		require.Equal(t, []string{w.code, w.stored}, []string{code, stored}, "%+v", w)
	}
}
