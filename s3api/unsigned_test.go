package s3api_test

import (
	"bytes"
	"cmp"
	"crypto/md5"
	"crypto/sha1"
	"crypto/tls"
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/sigv4"
	"github.com/evenkeel/evenkeel/s3api"
)

// Over connections that others can listen to, a request is good for one body only.
func TestUnsignedBodies(t *testing.T) {
	const far = "192.0.2.9:4711"
	s := serveKeys(t, s3api.Options{})
	s.as("ADMIN").want(200, "", "PUT", "/photos", "")
	open, err := s3api.New(s3api.Over(s.buckets), s3api.Options{Keys: keysThatChange(func(id string) *s3api.Key {
		return &s3api.Key{ID: id, Secret: "the secret of the admin", Write: true, Everything: true}
	}), AllowUnsignedPayload: true})
	require.NoError(t, err)
	md5sum, sha1sum := md5.Sum([]byte("v")), sha1.Sum([]byte("v"))
	b64 := base64.StdEncoding.EncodeToString
	const deletion = "<Delete><Object><Key>k</Key></Object></Delete>"
	deletionMD5 := md5.Sum([]byte(deletion))
	plain := sigv4.UnsignedPayload
	chunked := []string{"x-amz-decoded-content-length", "1", "x-amz-trailer", "x-amz-checksum-crc32"}
	const chunks = "1\r\nv\r\n0\r\nx-amz-checksum-crc32:a2Q7hA==\r\n\r\n"
	crc := []string{"x-amz-checksum-crc32", "a2Q7hA=="}
	for _, c := range []struct {
		name, from, method, target, body, stands string
		header                                   []string // signed
		added                                    []string // not signed
		handler                                  http.Handler
		status                                   int
		code                                     string
	}{
		{name: "signed", from: far, stands: sigv4.PayloadOf([]byte("v")), status: 200},
		{name: "unsigned", from: far, stands: plain, status: 403, code: "AccessDenied"},
		{name: "unsigned, IPv6", from: "[2001:db8::9]:4711", stands: plain, status: 403, code: "AccessDenied"},
		{name: "nobody knows from where", from: "@", stands: plain, status: 403, code: "AccessDenied"},
		{name: "a name", from: "localhost:1", stands: plain, status: 403, code: "AccessDenied"},
		{name: "loopback", from: "127.3.2.1:4711", stands: plain, status: 200},
		{name: "loopback, IPv6", from: "[::1]:4711", stands: plain, status: 200},
		{name: "loopback, mapped", from: "[::ffff:127.0.0.1]:4711", stands: plain, status: 200},
		{name: "a proxy's word", from: far, stands: plain,
			added: []string{"x-forwarded-for", "127.0.0.1", "x-forwarded-proto", "https"}, status: 403,
			code: "AccessDenied"},
		{name: "TLS", from: "tls", stands: plain, status: 200},
		{name: "allowed", from: far, stands: plain, handler: open, status: 200},
		{name: "no body", from: far, body: "-", stands: plain, status: 403, code: "AccessDenied"},
		{name: "MD5", from: far, stands: plain, header: []string{"content-md5", b64(md5sum[:])}, status: 200},
		{name: "SHA-1", from: far, stands: plain, header: []string{"x-amz-checksum-sha1", b64(sha1sum[:])},
			status: 200},
		{name: "MD5, replayed", from: far, body: "w", stands: plain, header: []string{"content-md5", b64(md5sum[:])},
			status: 400, code: "BadDigest"},
		{name: "MD5, empty", from: far, stands: plain, header: []string{"content-md5", ""},
			status: 403, code: "AccessDenied"},
		{name: "MD5, not signed", from: far, stands: plain, added: []string{"content-md5", b64(md5sum[:])},
			status: 403, code: "AccessDenied"},
		{name: "CRC", from: far, stands: plain, header: crc, status: 403, code: "AccessDenied"},
		{name: "chunks", from: far, body: chunks, stands: sigv4.UnsignedChunksTrailer, header: chunked,
			status: 403, code: "AccessDenied"},
		{name: "chunks, loopback", from: "127.0.0.1:1", body: chunks, stands: sigv4.UnsignedChunksTrailer,
			header: chunked,
			status: 200},
		{name: "chunks, MD5", from: far, body: chunks, stands: sigv4.UnsignedChunksTrailer,
			header: append([]string{"content-md5", b64(md5sum[:])}, chunked...), status: 200},
		{name: "no body is read", from: far, method: "GET", body: "-", stands: plain, status: 200},
		{name: "a bucket", from: far, method: "PUT", target: "/others", body: "-", stands: plain, status: 200},
		{name: "a bucket with cuts", from: far, method: "PUT", target: "/cuts?evenkeel-cuts", body: "a\nb\n",
			stands: plain,
			status: 403, code: "AccessDenied"},
		{name: "deletions", from: far, method: "POST", target: "/photos?delete", body: deletion, stands: plain,
			header: crc,
			status: 403, code: "AccessDenied"},
		{name: "deletions, MD5", from: far, method: "POST", target: "/photos?delete", body: deletion, stands: plain,
			header: []string{"content-md5", b64(deletionMD5[:])}, status: 200},
	} {
		c.body = strings.TrimSuffix(cmp.Or(c.body, "v"), "-")
		r := httptest.NewRequest(cmp.Or(c.method, "PUT"), cmp.Or(c.target, "/photos/k"),
			bytes.NewReader([]byte(c.body)))
		r.RemoteAddr = c.from
		if c.from == "tls" {
			r.RemoteAddr, r.TLS = far, &tls.ConnectionState{}
		}
		for i := 0; i < len(c.header); i += 2 {
			r.Header.Set(c.header[i], c.header[i+1])
		}
		path, query, _ := strings.Cut(r.RequestURI, "?")
		signed := &sigv4.Request{
			Method: r.Method, Path: path, Query: query, Host: r.Host, Header: r.Header, Length: r.ContentLength,
		}
		require.NoError(t, sigv4.Sign(signed, "ADMIN", "the secret of the admin", "us-east-1", c.stands, time.Now()))
		for i := 0; i < len(c.added); i += 2 {
			r.Header.Set(c.added[i], c.added[i+1])
		}
		h := c.handler
		if h == nil {
			h = s.handler
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		require.Equal(t, c.status, w.Code, "%s: %s", c.name, w.Body)
		require.Equal(t, c.code != "", strings.Contains(w.Body.String(), "<Code>"+c.code+"</Code>"), "%s: %s", c.name,
			w.Body)
	}
}
