package s3api_test

import (
	"bufio"
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/keytext"
	"github.com/evenkeel/evenkeel/internal/sigv4"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/s3api"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// Targets for what strangers send: whole requests, tokens, documents, signatures
// and files of keys. Their corpora are in testdata/fuzz; `make fuzz` runs them.

// fuzzTime is when all of it happens.
var fuzzTime = time.Date(2024, 2, 29, 23, 59, 0, 0, time.UTC)

// fuzzHandler serves a bucket abc with a few keys from memory.
func fuzzHandler(t *testing.T, o s3api.Options) *s3api.Handler {
	st := memstore.New()
	t.Cleanup(func() { require.NoError(t, st.Close()) })
	c, err := listing.New(st, listing.Options{})
	require.NoError(t, err)
	require.NoError(t, c.CreateBucket(t.Context(), "abc", []byte("b/")))
	for _, key := range fuzzKeys {
		o := s3api.Object{Modified: fuzzTime, Body: []byte("hello")}
		require.NoError(t, c.Bucket("abc").Put(t.Context(), []byte(key), o.AppendRecord(nil)))
	}
	o.Now, o.SoleWriter, o.HostSuffixes = func() time.Time { return fuzzTime }, true, []string{"example.test"}
	h, err := s3api.New(s3api.Over(c), o)
	require.NoError(t, err)
	return h
}

var fuzzKeys = []string{"a", "b/1", "b/2", "b/2/3", "ü", "\x01"}

// ask sends a request; the answer has to be whole, and no failure of the server.
func ask(t *testing.T, h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code >= 500 && w.Code != http.StatusNotImplemented {
		t.Fatalf("%s %s: %d %s", r.Method, r.RequestURI, w.Code, w.Body)
	}
	if w.Code < 400 || r.Method == http.MethodHead {
		return w
	}
	// XML 1.0 can't hold all that a path can.
	var e struct {
		XMLName       xml.Name `xml:"Error"`
		Code, Message string
	}
	if err := xml.Unmarshal(w.Body.Bytes(), &e); e.Code == "" || e.Message == "" {
		t.Fatalf("%s %s: %d, no error document (%v): %s", r.Method, r.RequestURI, w.Code, err, w.Body)
	}
	return w
}

// FuzzRequest: any request gets an answer that is no failure, and without a key no
// request is served.
func FuzzRequest(f *testing.F) {
	for _, text := range []string{
		"GET / HTTP/1.1\r\nHost: h\r\n\r\n",
		"GET /abc?list-type=2&prefix=b/&delimiter=/&max-keys=1&encoding-type=url HTTP/1.1\r\nHost: h\r\n\r\n",
		"GET /abc?versions&key-marker=a&version-id-marker=null HTTP/1.1\r\nHost: h\r\n\r\n",
		"GET /?list-type=2&fetch-owner=true HTTP/1.1\r\nHost: abc.example.test:9\r\n\r\n",
		"PUT /abc/k HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nContent-MD5: XUFAKrxLKna5cZ2REBfFkg==\r\nIf-None-Match: " +
			"*\r\nx-amz-meta-a: b\r\n\r\nhello",
		"PUT /abc/k HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
		"PUT /abc/k HTTP/1.1\r\nHost: h\r\nContent-Length: 47\r\nX-Amz-Content-Sha256: " +
			"STREAMING-UNSIGNED-PAYLOAD-TRAILER\r\nX-Amz-Decoded-Content-Length: 5\r\nX-Amz-Trailer: " +
			"x-amz-checksum-crc32\r\n\r\n5\r\nhello\r\n0\r\nx-amz-checksum-crc32:NhCmhg==\r\n\r\n",
		"PUT /abc/k HTTP/1.1\r\nHost: h\r\nx-evenkeel-size: 7\r\nx-evenkeel-etag: \"e\"\r\n\r\n",
		"PUT /abc/k HTTP/1.1\r\nHost: h\r\nx-amz-copy-source: /abc/a?versionId=null\r\nx-amz-metadata-directive: " +
			"REPLACE\r\n\r\n",
		"PUT /abd HTTP/1.1\r\nHost: h\r\nContent-Length: " +
			"83\r\n\r\n<CreateBucketConfiguration><LocationConstraint>x</LocationConstraint></CreateBucketConfiguration>",
		"PUT /abd?evenkeel-cuts HTTP/1.1\r\nHost: h\r\nContent-Length: 7\r\n\r\na\nb\\x00",
		"PUT /abc/a?acl HTTP/1.1\r\nHost: h\r\nx-amz-acl: private\r\n\r\n",
		"GET /abc/a HTTP/1.1\r\nHost: h\r\nRange: bytes=1-2\r\nIf-Match: 5d41402abc4b2a76b9719d911017c592\r\n\r\n",
		"HEAD /abc/a?versionId=null&response-content-type=x HTTP/1.1\r\nHost: h\r\nIf-Modified-Since: Thu, 29 Feb 2024 " +
			"23:59:00 GMT\r\n\r\n",
		"DELETE /abc/b%2F1 HTTP/1.1\r\nHost: h\r\nIf-Match: *\r\n\r\n",
		"POST /abc?delete HTTP/1.1\r\nHost: h\r\nContent-Length: 58\r\nx-amz-checksum-crc32: " +
			"AAAAAA==\r\n\r\n<Delete><Object><Key>a</Key></Object></Delete>",
		"POST /abc/k?uploads HTTP/1.1\r\nHost: h\r\n\r\n",
		"GET /abc?evenkeel-splits=3 HTTP/1.1\r\nHost: h\r\n\r\n",
		"GET /abc/a?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=ADMIN%2F20240229%2Fus-east-1%2Fs3%2Faws4_request&" +
			"X-Amz-Date=20240229T235900Z&X-Amz-Expires=60&X-Amz-SignedHeaders=host&X-Amz-Signature=0 HTTP/1.1\r\nHost: " +
			"h\r\n\r\n",
		"GET /abc/a HTTP/1.1\r\nHost: h\r\nX-Amz-Date: 20240229T235900Z\r\nX-Amz-Content-Sha256: " +
			"UNSIGNED-PAYLOAD\r\nAuthorization: AWS4-HMAC-SHA256 Credential=ADMIN/20240229/us-east-1/s3/aws4_request, " +
			"SignedHeaders=host;x-amz-date, Signature=0\r\n\r\n",
		"GET /abc/a?AWSAccessKeyId=ADMIN&Signature=b%2B%3D&Expires=1709251200&versionId=null&x-amz-acl=a HTTP/1.1\r\n" +
			"Host: h\r\n\r\n",
		"PUT /abc HTTP/1.1\r\nHost: h\r\nDate: Thu, 29 Feb 2024 23:59:00 GMT\r\nAuthorization: AWS ADMIN:b+=\r\n\r\n",
	} {
		f.Add([]byte(text))
	}
	keys := s3api.KeySet{"ADMIN": {
		ID: "ADMIN", Secret: "a secret that nobody has signed with", Write: true, Everything: true,
	}}
	f.Fuzz(func(t *testing.T, text []byte) {
		read := func() *http.Request {
			r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(text)))
			if err != nil {
				return nil
			}
			return r
		}
		r := read()
		if r == nil {
			return
		}
		ask(t, fuzzHandler(t, s3api.Options{}), r)
		if w := ask(t, fuzzHandler(t, s3api.Options{Keys: keys}), read()); w.Code < 400 {
			t.Fatalf("nobody has signed it: %d %s", w.Code, w.Body)
		}
	})
}

// FuzzListing: whatever the parameters of a listing, tokens first of all, the answer
// is a refusal or a page that holds what it has to, in order; what it says the next
// page begins with is taken.
func FuzzListing(f *testing.F) {
	for _, token := range []string{"", "AQ", "MTphYmM"} {
		f.Add(token, "", "", "", "2", byte(0))
		f.Add(token, "b/", "/", "a", "1", byte(1))
	}
	f.Add("", "b/", "/", "b/2/", "", byte(2))
	f.Add("", "", "\xff", "\x01", "0", byte(5))
	f.Fuzz(func(t *testing.T, token, prefix, delimiter, after, most string, form byte) {
		q := url.Values{"encoding-type": {"url"}, "prefix": {prefix}, "delimiter": {delimiter}, "max-keys": {most}}
		switch form % 3 {
		case 0:
			q.Set("list-type", "2")
			q.Set("start-after", after)
			if token != "" {
				q.Set("continuation-token", token)
			}
			if form&4 != 0 {
				q.Set("evenkeel-from", "b")
			}
		case 1:
			q.Set("marker", after)
		case 2:
			q.Set("versions", "")
			q.Set("key-marker", after)
		}
		h := fuzzHandler(t, s3api.Options{})
		for pages := 0; ; pages++ {
			require.Less(t, pages, 20, "it does not end")
			w := ask(t, h, httptest.NewRequest("GET", "/abc?"+q.Encode(), nil))
			if w.Code != 200 {
				require.True(t, pages == 0 && w.Code == 400, "%d after %d pages: %s", w.Code, pages, w.Body)
				return
			}
			var page struct {
				Contents, Version   []struct{ Key string }
				CommonPrefixes      []struct{ Prefix string }
				IsTruncated         bool
				NextMarker          string
				NextKeyMarker       string
				NextVersionIdMarker string

				NextContinuationToken string
			}
			require.NoError(t, xml.Unmarshal(w.Body.Bytes(), &page), "%s", w.Body)
			last := ""
			keys := append(page.Contents, page.Version...)
			for _, c := range keys {
				key, err := url.PathUnescape(c.Key)
				require.NoError(t, err)
				require.True(t, strings.HasPrefix(key, prefix) && key > last && slices.Contains(fuzzKeys, key),
					"%q: %s", key,
					w.Body)
				require.False(t, delimiter != "" && strings.Contains(key[len(prefix):], delimiter),
					"%q has to be folded", key)
				last = key
			}
			for _, c := range page.CommonPrefixes {
				folded, err := url.PathUnescape(c.Prefix)
				require.NoError(t, err)
				require.True(t, strings.HasPrefix(folded, prefix) && strings.HasSuffix(folded, delimiter) &&
					delimiter != "",
					"%q: %s", folded, w.Body)
			}
			if !page.IsTruncated {
				return
			}
			require.NotEmpty(t, len(keys)+len(page.CommonPrefixes))
			next := func(v string) string {
				v, err := url.PathUnescape(v)
				require.NoError(t, err)
				return v
			}
			switch {
			case form%3 == 0:
				altered := []byte(page.NextContinuationToken)
				altered[(9+7*int(form)+5*pages)%len(altered)] ^= 1
				q.Set("continuation-token", string(altered))
				require.Equal(t, 400, ask(t, h, httptest.NewRequest("GET", "/abc?"+q.Encode(), nil)).Code, "%s",
					altered)
				q.Set("continuation-token", page.NextContinuationToken)
			case form%3 == 2:
				q.Set("key-marker", next(page.NextKeyMarker))
				q.Set("version-id-marker", page.NextVersionIdMarker)
			case delimiter != "":
				q.Set("marker", next(page.NextMarker))
			default:
				q.Set("marker", last)
			}
		}
	})
}

// FuzzBucketsToken: a token of ListBuckets is refused, or names go on behind it.
func FuzzBucketsToken(f *testing.F) {
	f.Add("MTphYmM", "1", "")
	f.Add("MTph", "2", "a")
	f.Add("=", "0", "abc")
	f.Fuzz(func(t *testing.T, token, most, prefix string) {
		q := url.Values{"continuation-token": {token}, "max-buckets": {most}, "prefix": {prefix}}
		w := ask(t, fuzzHandler(t, s3api.Options{}), httptest.NewRequest("GET", "/?"+q.Encode(), nil))
		if w.Code != 200 && w.Code != 400 {
			t.Fatalf("%d: %s", w.Code, w.Body)
		}
		listed := strings.Contains(w.Body.String(), "<Name>abc</Name>")
		if listed && !strings.HasPrefix("abc", prefix) {
			t.Fatalf("prefix %q: %s", prefix, w.Body)
		}
	})
}

// FuzzConfiguration: the document of CreateBucket means nothing, or is refused.
func FuzzConfiguration(f *testing.F) {
	f.Add([]byte(""))
	f.Add([]byte(`<CreateBucketConfiguration xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><LocationConstraint>eu-west-1</LocationConstraint></CreateBucketConfiguration>`))
	f.Add([]byte("<CreateBucketConfiguration><Bucket><Type>Directory</Type></Bucket></CreateBucketConfiguration>"))
	f.Add([]byte("<!DOCTYPE a [<!ENTITY b \"c\">]><CreateBucketConfiguration>&b;</CreateBucketConfiguration>"))
	f.Fuzz(func(t *testing.T, body []byte) {
		switch code := s3api.CheckConfiguration(body); {
		case code == "" && len(bytes.TrimSpace(body)) > 0 && !bytes.Contains(body, []byte("CreateBucketConfiguration")):
			t.Fatal("another document was taken")
		case code != "" && code != "MalformedXML" && code != "NotImplemented":
			t.Fatal(code)
		}
	})
}

// FuzzPolicy: a list of several grants, or of another document, is not taken for
// private.
func FuzzPolicy(f *testing.F) {
	f.Add([]byte(private))
	f.Add([]byte(strings.Replace(private, "FULL_CONTROL", "READ", 1)))
	f.Add([]byte("<AccessControlPolicy><AccessControlList><Grant/><Grant/></AccessControlList></AccessControlPolicy>"))
	f.Fuzz(func(t *testing.T, body []byte) {
		if !s3api.IsPrivate(body) {
			return
		}
		var p struct {
			XMLName xml.Name   `xml:"AccessControlPolicy"`
			Grants  []struct{} `xml:"AccessControlList>Grant"`
		}
		require.NoError(t, xml.Unmarshal(body, &p))
		require.Len(t, p.Grants, 1)
	})
}

// FuzzCuts: cuts are ascending and not empty, or refused.
func FuzzCuts(f *testing.F) {
	f.Add([]byte("a\nb\\x00\n"))
	f.Add([]byte("\\xff\r\n\\xff\\x00"))
	f.Fuzz(func(t *testing.T, text []byte) {
		cuts, err := keytext.ParseLines(text, math.MaxInt)
		if err != nil {
			require.Nil(t, cuts)
		}
		for i, cut := range cuts {
			if len(cut) == 0 || i > 0 && bytes.Compare(cuts[i-1], cut) >= 0 {
				t.Fatalf("%q", cuts)
			}
		}
	})
}

// FuzzKeys: a file of keys is refused, or every key in it is what it has to be; it
// reads the same again.
func FuzzKeys(f *testing.F) {
	f.Add([]byte(testKeys))
	f.Add([]byte("keys:\n- {id: A, secret: verysecretverysecret, access: read-only, only: [abc, d-e/f/]}\ncomplete: true"))
	f.Add([]byte("keys:\n- &a {id: A, secret: *a, access: all}\n---\n"))
	f.Add([]byte("{keys: [{<<: {id: A}, secret: !!binary dmVyeXNlY3JldHZlcnlzZWNyZXQ=, access: read-write, " +
		"everything: true}], complete: true}"))
	f.Fuzz(func(t *testing.T, text []byte) {
		set, err := s3api.ParseKeys(text)
		if err != nil {
			require.Nil(t, set)
			require.NotEmpty(t, err.Error())
			return
		}
		require.NotEmpty(t, set)
		for id, key := range set {
			require.Equal(t, id, key.ID)
			require.True(t, id != "" && len(id) <= 128 && !strings.ContainsAny(id,
				" ,/=\"") && len(key.Secret) >= 16 && len(key.Secret) <= 256, "%q", id)
			require.NotEqual(t, key.Everything, len(key.Only) > 0)
			for _, only := range key.Only {
				bucket, _, _ := strings.Cut(only, "/")
				require.Empty(t, s3api.BadBucketName(bucket))
			}
		}
		again, err := s3api.ParseKeys(text)
		require.NoError(t, err)
		require.Equal(t, set, again)
	})
}

const fuzzSecret = "a secret that nobody else has"

// signedPut is a PutObject signed by fuzzSecret: what verifies its body, and what
// signs it.
func signedPut(t *testing.T, payload string) (*sigv4.Chain, *chunkSigner) {
	r := &sigv4.Request{Method: "PUT", Path: "/abc/k", Host: "h", Header: http.Header{}}
	require.NoError(t, sigv4.Sign(r, "ADMIN", fuzzSecret, "us-east-1", payload, fuzzTime))
	claim, err := sigv4.Parse(r)
	require.NoError(t, err)
	chain, err := claim.Verify(r, fuzzSecret)
	require.NoError(t, err)
	_, seed, _ := strings.Cut(r.Header.Get("Authorization"), "Signature=")
	return chain, &chunkSigner{last: seed}
}

// chunkSigner signs the parts of a body, one after the other.
// https://docs.aws.amazon.com/AmazonS3/latest/API/sigv4-streaming.html
type chunkSigner struct{ last string }

func (c *chunkSigner) sign(what, sums string) string {
	const date, scope = "20240229", "/us-east-1/s3/aws4_request"
	mac := func(key []byte, text string) []byte {
		h := hmac.New(sha256.New, key)
		h.Write([]byte(text))
		return h.Sum(nil)
	}
	key := []byte("AWS4" + fuzzSecret)
	for _, part := range strings.Split(date+scope, "/") {
		key = mac(key, part)
	}
	c.last = hex.EncodeToString(mac(key,
		"AWS4-HMAC-SHA256-"+what+"\n"+date+"T235900Z\n"+date+scope+"\n"+c.last+"\n"+sums))
	return c.last
}

// FuzzSignedChunks: no body passes that nobody has signed. One that was signed
// passes, and altered in a bit it is refused, or says the same.
func FuzzSignedChunks(f *testing.F) {
	f.Add([]byte("hello, world"), uint16(5), uint16(20), byte(0), false)
	f.Add([]byte("hello, world"), uint16(3), uint16(300), byte(4), true)
	f.Add([]byte("0;chunk-signature=ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648\r\n\r\n"),
		uint16(0),
		uint16(0), byte(7), false)
	f.Fuzz(func(t *testing.T, data []byte, each, at uint16, bit byte, trailer bool) {
		payload := sigv4.SignedChunks
		if trailer {
			payload = sigv4.SignedChunksTrailer
		}
		chain, signer := signedPut(t, payload)
		if got, _, err := s3api.ReadSigned(bytes.NewReader(data), chain, trailer); err == nil {
			t.Fatalf("it passed as %q", got)
		}
		body := signedBody(signer, data, int(each), trailer)
		chain, _ = signedPut(t, payload)
		got, sums, err := s3api.ReadSigned(bytes.NewReader(body), chain, trailer)
		require.NoError(t, err)
		require.Equal(t, string(data), got)
		require.Equal(t, trailer, sums.Get("x-amz-meta-a") == "b")

		altered := bytes.Clone(body)
		altered[int(at)%len(body)] ^= 1 << (bit % 8)
		chain, _ = signedPut(t, payload)
		got, sums, err = s3api.ReadSigned(bytes.NewReader(altered), chain, trailer)
		if err == nil && (got != string(data) || trailer != (sums.Get("x-amz-meta-a") == "b")) {
			t.Fatalf("%q altered to %q passed as %q, %v", body, altered, got, sums)
		}
	})
}

// signedBody frames data in signed chunks of a size; 0: in one.
func signedBody(c *chunkSigner, data []byte, each int, trailer bool) []byte {
	sum := func(text []byte) string {
		s := sha256.Sum256(text)
		return hex.EncodeToString(s[:])
	}
	var b bytes.Buffer
	for more := true; more; {
		n := len(data)
		if each > 0 {
			n = min(n, each)
		}
		fmt.Fprintf(&b, "%x;chunk-signature=%s\r\n%s", n, c.sign("PAYLOAD", sum(nil)+"\n"+sum(data[:n])), data[:n])
		if more = n > 0; more {
			b.WriteString("\r\n")
		}
		data = data[n:]
	}
	if trailer {
		fmt.Fprintf(&b, "x-amz-meta-a:b\r\nx-amz-trailer-signature:%s\r\n", c.sign("TRAILER",
			sum([]byte("x-amz-meta-a:b\n"))))
	}
	b.WriteString("\r\n")
	return b.Bytes()
}
