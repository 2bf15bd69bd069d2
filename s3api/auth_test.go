package s3api_test

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/sigv4"
	"github.com/evenkeel/evenkeel/internal/test/presign"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/s3api"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// testKeys are the keys of a server under test.
const testKeys = `
keys:
  - {id: ADMIN, secret: the secret of the admin, access: read-write, everything: true, key-bytes: any}
  - {id: READER, secret: the secret of the reader, access: read-only, everything: true}
  - {id: PHOTOS, secret: the secret of the photos, access: read-write, only: [photos]}
  - {id: LOGS, secret: the secret of the logs, access: read-write, only: [logs/2024/, logs/ü/, photos/p/]}
complete: true
`

// serveKeys serves from memory to whoever has a key.
func serveKeys(t *testing.T, o s3api.Options) *server {
	t.Helper()
	st := memstore.New()
	t.Cleanup(func() { require.NoError(t, st.Close()) })
	c, err := listing.New(st, listing.Options{})
	require.NoError(t, err)
	keys, err := s3api.ParseKeys([]byte(testKeys))
	require.NoError(t, err)
	o.Keys = keys
	s := serve(t, s3api.Over(c), o)
	s.buckets = c
	return s
}

// as is the server seen with a key: every request is signed.
func (s *server) as(id string) *server {
	other := *s
	other.sign = func(r *sigv4.Request, body string) {
		require.NoError(s.t, sigv4.Sign(r, id, "the secret of the "+strings.ToLower(id), "us-east-1",
			sigv4.PayloadOf([]byte(body)), time.Now()))
	}
	return &other
}

func TestWithoutAKeyNothingIsServed(t *testing.T) {
	s := serveKeys(t, s3api.Options{})
	s.as("ADMIN").want(200, "", "PUT", "/photos", "")
	for _, call := range []string{"GET /", "PUT /abc", "GET /photos", "GET /photos?list-type=2", "HEAD /photos",
		"GET /photos/k", "PUT /photos/k", "DELETE /photos/k", "GET /photos?acl", "GET /photos?location",
		"GET /photos?evenkeel-splits=2", "POST /photos?delete", "POST /photos?evenkeel-delete-range", "GET /none"} {
		method, uri, _ := strings.Cut(call, " ")
		s.want(403, "AccessDenied", method, uri, "")
		nobody := *s
		nobody.sign = func(r *sigv4.Request, body string) {
			require.NoError(t, sigv4.Sign(r, "NOBODY", "the secret of the nobody", "us-east-1",
				sigv4.PayloadOf([]byte(body)),
				time.Now()))
		}
		nobody.want(403, "InvalidAccessKeyId", method, uri, "")
		wrong := *s
		wrong.sign = func(r *sigv4.Request, body string) {
			require.NoError(t, sigv4.Sign(r, "ADMIN", "the secret of the reader", "us-east-1",
				sigv4.PayloadOf([]byte(body)),
				time.Now()))
		}
		wrong.want(403, "SignatureDoesNotMatch", method, uri, "")
		late := *s
		late.sign = func(r *sigv4.Request, body string) {
			require.NoError(t, sigv4.Sign(r, "ADMIN", "the secret of the admin", "us-east-1",
				sigv4.PayloadOf([]byte(body)),
				time.Now().Add(-16*time.Minute)))
		}
		a := late.want(403, "RequestTimeTooSkewed", method, uri, "")
		if method == "HEAD" {
			continue
		}
		var times struct {
			RequestTime, ServerTime    string
			MaxAllowedSkewMilliseconds int
		}
		require.NoError(t, xml.Unmarshal([]byte(a.body), &times))
		said, err := time.Parse("20060102T150405Z", times.RequestTime)
		require.NoError(t, err)
		now, err := time.Parse(time.RFC3339, times.ServerTime)
		require.NoError(t, err)
		require.Equal(t, 900_000, times.MaxAllowedSkewMilliseconds)
		require.Greater(t, now.Sub(said), 15*time.Minute, "a client corrects its clock by the difference")
	}
	elsewhere := *s
	elsewhere.sign = func(r *sigv4.Request, body string) {
		require.NoError(t, sigv4.Sign(r, "ADMIN", "the secret of the admin", "eu-west-1", sigv4.PayloadOf([]byte(body)),
			time.Now()))
	}
	a := elsewhere.want(400, "AuthorizationHeaderMalformed", "GET", "/photos/k", "")
	require.Contains(t, a.body, "<Region>us-east-1</Region>")
	elsewhere.want(200, "", "GET", "/photos?location", "")
	s.want(403, "SignatureDoesNotMatch", "GET", "/photos/k", "", "Authorization", "AWS ADMIN:c2lnbmF0dXJl", "Date",
		time.Now().UTC().Format(http.TimeFormat))
	s.as("ADMIN").want(404, "NoSuchKey", "GET", "/photos/k", "")
}

// What each key may do, by signatures of both versions. The error of what it may is another one, or none.
func TestKeysAreLimited(t *testing.T) {
	for _, as := range []func(*server, string) *server{(*server).as, (*server).as2} {
		testKeysAreLimited(t, as)
	}
}

func testKeysAreLimited(t *testing.T, as func(*server, string) *server) {
	s := serveKeys(t, s3api.Options{})
	for _, b := range []string{"photos", "logs", "other"} {
		s.as("ADMIN").want(200, "", "PUT", "/"+b, "")
		s.as("ADMIN").want(200, "", "PUT", "/"+b+"/2024/a", "v")
	}
	for call, may := range map[string]string{
		"GET /other/2024/a":                                "ADMIN READER",
		"GET /photos/2024/a":                               "ADMIN READER PHOTOS",
		"GET /photos/p/none":                               "ADMIN READER PHOTOS LOGS",
		"HEAD /photos/p":                                   "ADMIN READER PHOTOS",
		"GET /logs/2024/a":                                 "ADMIN READER LOGS",
		"GET /logs/2024":                                   "ADMIN READER",
		"GET /logs/%C3%BC/x":                               "ADMIN READER LOGS",
		"GET /logs/2023/a":                                 "ADMIN READER",
		"PUT /logs/2024/b":                                 "ADMIN LOGS",
		"PUT /logs/2024":                                   "ADMIN",
		"PUT /photos/x":                                    "ADMIN PHOTOS",
		"DELETE /photos/p/x":                               "ADMIN PHOTOS LOGS",
		"DELETE /other/x":                                  "ADMIN",
		"GET /logs?list-type=2":                            "ADMIN READER",
		"GET /logs?list-type=2&prefix=2024/":               "ADMIN READER LOGS",
		"GET /logs?list-type=2&prefix=2024/1":              "ADMIN READER LOGS",
		"GET /logs?list-type=2&prefix=2024":                "ADMIN READER",
		"GET /logs?list-type=2&prefix=2024&prefix=2024/":   "ADMIN READER",
		"GET /photos?list-type=2&delimiter=/":              "ADMIN READER PHOTOS",
		"GET /logs?evenkeel-splits=2":                      "ADMIN READER",
		"GET /logs?evenkeel-splits=2&prefix=2024/":         "ADMIN READER LOGS",
		"POST /logs?evenkeel-delete-range&evenkeel-from=~": "ADMIN",
		"POST /logs?evenkeel-delete-range&prefix=2024/&evenkeel-from=~": "ADMIN LOGS",
		"POST /logs?evenkeel-delete-range&prefix=2024&evenkeel-from=~":  "ADMIN",
		"POST /photos?evenkeel-delete-range&evenkeel-from=~":            "ADMIN PHOTOS",
		"HEAD /logs":           "ADMIN READER LOGS",
		"GET /logs?location":   "ADMIN READER LOGS",
		"GET /logs?acl":        "ADMIN READER LOGS",
		"GET /other?acl":       "ADMIN READER",
		"GET /logs/2024/a?acl": "ADMIN READER LOGS",
		"GET /logs/2023/a?acl": "ADMIN READER",
		"HEAD /photos":         "ADMIN READER PHOTOS LOGS",
		"HEAD /other":          "ADMIN READER",
		"HEAD /none":           "ADMIN READER",
		"DELETE /logs":         "ADMIN",
		"DELETE /photos":       "ADMIN PHOTOS",
		"PUT /photos":          "ADMIN PHOTOS",
		"PUT /photos?acl":      "ADMIN PHOTOS",
		"PUT /photos/p/x?acl":  "ADMIN PHOTOS LOGS",
		"POST /photos?delete":  "ADMIN PHOTOS LOGS",
		"POST /other?delete":   "ADMIN",
		"PUT /logs":            "ADMIN",
	} {
		method, uri, _ := strings.Cut(call, " ")
		for _, id := range []string{"ADMIN", "READER", "PHOTOS", "LOGS"} {
			a := as(s, id).do(method, uri, "")
			if strings.Contains(" "+may+" ", " "+id+" ") {
				require.NotEqual(t, 403, a.status, "%s %s: %s", id, call, a.body)
			} else {
				require.Equal(t, 403, a.status, "%s %s: %s", id, call, a.body)
				if method != "HEAD" {
					require.Equal(t, "AccessDenied", a.code())
				}
			}
		}
	}
	for id, names := range map[string]string{"ADMIN": "logs other photos", "READER": "logs other photos",
		"PHOTOS": "photos", "LOGS": "logs photos"} {
		body := as(s, id).want(200, "", "GET", "/", "").body
		for _, b := range []string{"photos", "logs", "other"} {
			require.Equal(t, strings.Contains(names, b), strings.Contains(body, "<Name>"+b+"</Name>"), "%s: %s", id,
				body)
		}
	}
	require.Contains(t, as(s, "LOGS").want(200, "", "GET", "/?prefix=ph", "").body, "<Bucket><Name>photos</Name>")
	first := as(s, "LOGS").want(200, "", "GET", "/?max-buckets=1", "").body
	_, rest, _ := strings.Cut(first, "<ContinuationToken>")
	token, _, _ := strings.Cut(rest, "<")
	second := as(s, "LOGS").want(200, "", "GET", "/?max-buckets=1&continuation-token="+token, "").body
	require.Contains(t, second, "<Name>photos</Name>")
	require.NotContains(t, second, "<Name>logs</Name>")
}

// A key of an object that is not UTF-8 makes plain listings fail, those of others too:
// not every access key may store one.
func TestKeysOfAnyBytes(t *testing.T) {
	s := serveKeys(t, s3api.Options{})
	s.as("ADMIN").want(200, "", "PUT", "/photos", "")
	any := []string{"x-evenkeel-key-bytes", "any"}
	copied := append([]string{"x-amz-copy-source", "photos/%C3%BC"}, any...)
	s.as("PHOTOS").want(200, "", "PUT", "/photos/%C3%BC", "v", any...) // as listd load does
	s.as("PHOTOS").want(403, "AccessDenied", "PUT", "/photos/%FF", "v", any...)
	s.as("PHOTOS").want(400, "InvalidURI", "PUT", "/photos/%FF", "v")
	s.as("PHOTOS").want(403, "AccessDenied", "PUT", "/photos/%FF", "", copied...)
	s.as("LOGS").want(403, "AccessDenied", "PUT", "/photos/p/%FF", "v", any...)
	s.as("READER").want(200, "", "GET", "/photos?list-type=2", "")
	s.as("ADMIN").want(200, "", "PUT", "/photos/%FF", "", copied...)
	s.as("READER").want(400, "InvalidArgument", "GET", "/photos?list-type=2", "")
	s.as("PHOTOS").want(200, "", "GET", "/photos/%FF", "")
	s.as("PHOTOS").want(204, "", "DELETE", "/photos/%FF", "")
}

// A body that is not the one that was signed is not stored.
func TestAlteredBodies(t *testing.T) {
	s := serveKeys(t, s3api.Options{})
	s.as("ADMIN").want(200, "", "PUT", "/photos", "")
	altered := *s
	altered.sign = func(r *sigv4.Request, body string) {
		require.NoError(t, sigv4.Sign(r, "ADMIN", "the secret of the admin", "us-east-1",
			sigv4.PayloadOf([]byte(body+"x")),
			time.Now()))
	}
	altered.want(400, "XAmzContentSHA256Mismatch", "PUT", "/photos/k", "v")
	s.as("ADMIN").want(404, "NoSuchKey", "GET", "/photos/k", "")
	unsigned := *s
	unsigned.sign = func(r *sigv4.Request, _ string) {
		require.NoError(t, sigv4.Sign(r, "ADMIN", "the secret of the admin", "us-east-1", sigv4.UnsignedPayload,
			time.Now()))
	}
	unsigned.want(200, "", "PUT", "/photos/k", "v")
	// Without keys the digest is verified all the same: it is one of the body's.
	open := serveStore(t, memstore.New())
	open.want(200, "", "PUT", "/photos", "")
	open.want(400, "XAmzContentSHA256Mismatch", "PUT", "/photos/k", "v", "x-amz-content-sha256",
		sigv4.PayloadOf([]byte("w")))
	open.want(200, "", "PUT", "/photos/k", "v", "x-amz-content-sha256", sigv4.PayloadOf([]byte("v")))
}

// keysThatChange are keys that change under a server.
type keysThatChange func(id string) *s3api.Key

func (k keysThatChange) Key(id string) *s3api.Key { return k(id) }

// The log has the id of a key that was named, good or not, and not the secret.
func TestKeysAreLogged(t *testing.T) {
	var log bytes.Buffer
	s := serveKeys(t, s3api.Options{LogEvery: true, Logger: slog.New(slog.NewJSONHandler(&log, nil))})
	s.as("READER").want(404, "NoSuchBucket", "GET", "/abc/k", "")
	s.as("NOBODY").want(403, "InvalidAccessKeyId", "GET", "/abc/k", "")
	s.want(403, "AccessDenied", "GET", "/abc/k", "")
	s.want(400, "InvalidURI", "GET", "/abc?%zz", "")
	s.stop()
	var got []string
	for line := range strings.Lines(log.String()) {
		var l struct{ Operation, Code, Key string }
		require.NoError(t, json.Unmarshal([]byte(line), &l))
		got = append(got, strings.Join([]string{l.Operation, l.Code, l.Key}, " "))
		require.NotContains(t, line, "secret")
	}
	require.Equal(t, []string{"GetObject NoSuchBucket READER", "GetObject InvalidAccessKeyId NOBODY",
		"GetObject AccessDenied ", "unknown InvalidURI "}, got)
}

func TestKeysMayChange(t *testing.T) {
	secret := "the secret of the admin"
	keys := keysThatChange(func(id string) *s3api.Key { return &s3api.Key{ID: id, Secret: secret, Everything: true} })
	s := serve(t, &faulty{err: listing.ErrNotFound}, s3api.Options{Keys: keys})
	s.as("ADMIN").want(404, "NoSuchKey", "GET", "/abc/k", "")
	secret = "another secret"
	s.as("ADMIN").want(403, "SignatureDoesNotMatch", "GET", "/abc/k", "")
}

// Parameters of a presigned URL that stand for headers count like headers.
func TestHeadersInPresignedURLs(t *testing.T) {
	s := serveKeys(t, s3api.Options{})
	s.as("ADMIN").want(200, "", "PUT", "/photos", "")
	for _, c := range []struct {
		status int
		extra  string
	}{{200, ""}, {200, "&x-amz-acl=private"}, {501, "&x-amz-acl=public-read"}, {501, "&X-Amz-Tagging=a%3Db"},
		{400, "&x-amz-checksum-crc32=AAAAAA%3D%3D"}} {
		now := time.Now().UTC()
		q := fmt.Sprintf("X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=%s&X-Amz-Date=%s&X-Amz-Expires=60&"+
			"X-Amz-SignedHeaders=host%s",
			url.QueryEscape("ADMIN/"+now.Format("20060102")+"/us-east-1/s3/aws4_request"),
			now.Format("20060102T150405Z"),
			c.extra)
		r := &sigv4.Request{Method: "PUT", Path: "/photos/k", Query: q, Host: strings.TrimPrefix(s.url, "http://"),
			Header: http.Header{}}
		signature, err := presign.Signature(r, "the secret of the admin", "us-east-1", now)
		require.NoError(t, err)
		s.want(c.status, "", "PUT", "/photos/k?"+q+"&X-Amz-Signature="+signature, "body")
		s.want(403, "SignatureDoesNotMatch", "PUT", "/photos/other?"+q+"&X-Amz-Signature="+signature, "body")
		s.want(403, "AccessDenied", "PUT", "/photos/k?"+q+"&X-Amz-Signature="+signature, "body", "x-amz-meta-added",
			"1")
	}
}
