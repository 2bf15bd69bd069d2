package s3api_test

import (
	"context"
	"flag"
	"fmt"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/s3api"
)

var update = flag.Bool("update", false, "write files of testdata anew")

// TestAnswersToTheLetter: headers and documents are promises. If one changes on purpose, run
// go test ./s3api -run AnswersToTheLetter -update, and look at the difference.
func TestAnswersToTheLetter(t *testing.T) {
	now := time.Date(2024, 2, 29, 23, 59, 59, 999e6, time.UTC)
	h := handle(t, s3api.Options{SoleWriter: true, Region: "mars", Now: func() time.Time { return now }})
	var all strings.Builder
	ask := func(call, body string, headers ...string) {
		w := wanted{call, body, headers}
		_, text := w.send(t.Context(), h.h)
		text = regexp.MustCompile("(<CreationDate>)[^<]*").ReplaceAllString(text, "$1")
		fmt.Fprintf(&all, "%s %q\n%s\n\n", call, headers, text)
	}
	ask("PUT /abc/a%26b", chunked("hello", nil, true), "Content-Type", "text/x", "Cache-Control", "no-cache",
		"Expires", "never", "Content-Disposition", "inline", "Content-Language", "de",
		"Content-Encoding", "gzip, aws-chunked", "x-amz-decoded-content-length", "5", "x-amz-meta-z", "1",
		"x-amz-meta-b", "2", "x-amz-meta-y", "3", "x-amz-meta-a", "4")
	e, err := h.c.Bucket("abc").Get(t.Context(), []byte("a&b"))
	require.NoError(t, err)
	o, err := s3api.ParseRecord(e.Value)
	require.NoError(t, err)
	require.Len(t, o.Headers, 9)
	require.True(t, slices.IsSortedFunc(o.Headers, func(a, b s3api.Header) int { return strings.Compare(a.Name, b.Name) }))
	ask("PUT /abc/b/1", "", "x-evenkeel-size", "12345678901", "x-evenkeel-etag", "e&1")
	ask("PUT /abc/b/2", "")
	ask("PUT /abc/c", strings.Repeat("x", 2000))
	now = now.Add(time.Hour)
	ask("PUT /abc/d", "", "x-amz-copy-source", "/abc/a%26b")
	for _, method := range []string{"GET", "HEAD"} {
		for _, key := range []string{"a%26b", "b/1", "b/2", "d", "none"} {
			ask(method+" /abc/"+key, "")
		}
		ask(method+" /abc/a%26b", "", "If-None-Match", helloETag)
		ask(method+" /abc/a%26b", "", "If-Match", "other")
		ask(method+" /abc/c", "", "Range", "bytes=-15")
		ask(method+" /abc/c", "", "Range", "bytes=2000-")
		ask(method+" /abc/a%26b?response-content-type=text/y&response-expires=0", "")
		ask(method+" /none", "")
	}
	for _, form := range [][2]string{
		{"list-type=2", "start-after=b%261"}, {"versions", "key-marker=b%261&version-id-marker=null"}, {"", "marker=b%261"},
	} {
		query, marker := form[0], form[1]
		for _, more := range []string{
			"", "&encoding-type=url&delimiter=%2B&prefix=%2B", "&delimiter=/&max-keys=2", "&max-keys=1", "&max-keys=0",
			"&max-keys=1&delimiter=%26", "&" + marker,
			"&fetch-owner=true&prefix=b/", "&max-keys=-1",
		} {
			ask("GET /abc?"+query+more, "")
		}
	}
	for _, call := range []string{
		"GET /", "GET /?prefix=a", "GET /?max-buckets=1", "GET /?bucket-region=us-east-1", "HEAD /abc", "GET /abc?location",
		"GET /abc?versioning", "GET /abc?acl", "GET /abc/c?acl", "GET /abc?evenkeel-splits=3",
		"GET /abc?evenkeel-splits=3&encoding-type=url", "PUT /abd", "PUT /abd", "GET /?max-buckets=1", "DELETE /abd",
		"DELETE /abc", "DELETE /abc/c", "DELETE /abc/c", "GET /abc?policy", "PUT /abc/c?tagging", "GET /abc/a%26b?versionId=1",
	} {
		ask(call, "")
	}
	for _, quiet := range []string{"true", "false", ""} {
		doc := "<Delete><Quiet>" + quiet + "</Quiet><Object><Key>d</Key><VersionId>null</VersionId></Object>" +
			"<Object><Key>&lt;</Key></Object><Object><Key>e</Key><VersionId>5</VersionId></Object><Object></Object></Delete>"
		ask("POST /abc?delete", doc, "Content-MD5", md5Of(doc))
	}
	same(t, "testdata/answers.txt", all.String())
}

// same compares a text with that of a file.
func same(t *testing.T, path, text string) {
	t.Helper()
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), text)
}

// asking notes what it is asked for.
type asking struct {
	faulty
	asked []string
}

func (a *asking) note(format string, args ...any) {
	a.asked = append(a.asked, fmt.Sprintf(format, args...))
}

func (a *asking) Bucket(name string) s3api.Bucket { return askingBucket{a, name} }

type askingBucket struct {
	*asking
	name string
}

func (a askingBucket) List(_ context.Context, q listing.Query) (listing.Page, error) {
	a.note("list %s %q %q after %q token %q from %q to %q reverse %t limit %d bytes %d keys only %t", a.name, q.Prefix,
		q.Delimiter, q.After, q.Token, q.From, q.To, q.Reverse, q.Limit, q.Bytes, q.KeysOnly)
	return listing.Page{}, nil
}

func (a askingBucket) Settings(context.Context) ([]byte, error) { return nil, nil }

func (a askingBucket) Get(_ context.Context, key []byte) (listing.Entry, error) {
	a.note("get %s %q", a.name, key)
	return listing.Entry{}, nil
}

func (a askingBucket) Put(_ context.Context, key, _ []byte) error {
	a.note("put %s %q", a.name, key)
	return nil
}

func (a askingBucket) Delete(_ context.Context, key []byte) error {
	a.note("delete %s %q", a.name, key)
	return nil
}

// TestWhatTheStoreIsAsked: each request asks for what it needs, once.
func TestWhatTheStoreIsAsked(t *testing.T) {
	const list = `list abc "" "" after "" token "" from "" to "" reverse false limit `
	const exists = list + "1 bytes 65536 keys only true"
	for call, want := range map[string][]string{
		"HEAD /abc":           {exists},
		"GET /abc?location":   {exists},
		"GET /abc?versioning": {exists},
		"GET /abc?acl":        {exists},
		"PUT /abc?acl":        {exists},
		"GET /abc/k?acl":      {`get abc "k"`},
		"PUT /abc/k?acl":      {`get abc "k"`},
		"GET /abc/k":          {`get abc "k"`},
		"HEAD /abc/k":         {`get abc "k"`},
		"PUT /abc/k":          {`put abc "k"`},
		"DELETE /abc/k":       {`delete abc "k"`},
		"PUT /abc/copy":       {`get abd "k"`, `put abc "copy"`},
		"POST /abc?delete":    {exists, `delete abc "k"`},
		"GET /abc":            {list + "1000 bytes 524288 keys only false"},
		"GET /abc?versions":   {list + "1000 bytes 524288 keys only false"},
		"GET /abc?max-keys=0": {list + "1 bytes 524288 keys only false"},
		"GET /abc?list-type=2&prefix=p&delimiter=d&start-after=a&continuation-token=t&evenkeel-from=f&evenkeel-to=g&" +
			"evenkeel-reverse=true&max-keys=7": {
			`list abc "p" "d" after "" token "t" from "f" to "g" reverse true limit 7 bytes 524288 keys only false`},
		"GET /abc?prefix=p&delimiter=d&marker=pad&max-keys=7": {
			`list abc "p" "d" after "" token "" from "pae" to "" reverse false limit 7 bytes 524288 keys only false`},
		"GET /abc?prefix=p&delimiter=d&marker=padx": {
			`list abc "p" "d" after "padx" token "" from "" to "" reverse false limit 1000 bytes 524288 keys only false`},
		"GET /abc?prefix=p&delimiter=d&marker=ad": {
			`list abc "p" "d" after "ad" token "" from "" to "" reverse false limit 1000 bytes 524288 keys only false`},
		"GET /abc?versions&prefix=p&key-marker=m": {
			`list abc "p" "" after "m" token "" from "" to "" reverse false limit 1000 bytes 524288 keys only false`},
	} {
		a := &asking{}
		h, err := s3api.New(a, s3api.Options{SoleWriter: true})
		require.NoError(t, err)
		method, target, _ := strings.Cut(call, " ")
		body := ""
		if method == "POST" {
			body = "<Delete><Object><Key>k</Key></Object></Delete>"
		}
		r := httptest.NewRequest(method, target, strings.NewReader(body))
		switch {
		case method == "POST":
			r.Header.Set("Content-MD5", md5Of(body))
		case strings.HasSuffix(target, "acl"):
			r.Header.Set("x-amz-acl", "private")
		case strings.HasSuffix(target, "copy"):
			r.Header.Set("x-amz-copy-source", "abd/k")
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		require.Less(t, w.Code, 300, "%s: %s", call, w.Body)
		require.Equal(t, want, a.asked, call)
	}
}
