package s3api_test

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/objects"
	"github.com/evenkeel/evenkeel/s3api"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// letters notes answers of a server, to the letter, where a second passes before each request. Ids of
// versions and uploads are named in the order of their appearance: {1} is the first one, in requests as well.
type letters struct {
	t    *testing.T
	h    http.Handler
	o    *objects.Objects
	now  time.Time
	ids  map[string]string
	back []string // names and ids
	all  strings.Builder
}

func newLetters(t *testing.T) *letters {
	st := memstore.New()
	t.Cleanup(func() { require.NoError(t, st.Close()) })
	l := &letters{t: t, now: time.Date(2024, 2, 29, 23, 0, 0, 0, time.UTC), ids: map[string]string{}}
	clock := func() time.Time { return l.now }
	c, err := listing.New(st, listing.Options{Now: clock})
	require.NoError(t, err)
	l.o = overBlobs(t, c)
	l.h, err = s3api.New(s3api.Over(c), s3api.Options{SoleWriter: true, Now: clock, Objects: l.o})
	require.NoError(t, err)
	return l
}

var (
	foundID  = regexp.MustCompile(`\b[0-9a-f]{28}\b`)
	created  = regexp.MustCompile("(<CreationDate>)[^<]*")
	repeated = regexp.MustCompile("(?:a{99,}|k{99,}|x{99,})")
)

// ask notes the answer to a request, and returns it.
func (l *letters) ask(call, body string, headers ...string) string {
	l.now = l.now.Add(time.Second)
	names := strings.NewReplacer(l.back...)
	w := wanted{call: names.Replace(call), body: names.Replace(body)}
	for _, header := range headers {
		w.headers = append(w.headers, names.Replace(header))
	}
	_, text := w.send(l.t.Context(), l.h)
	text = repeated.ReplaceAllString(created.ReplaceAllString(text, "$1"), "…")
	text = foundID.ReplaceAllStringFunc(text, func(id string) string {
		if l.ids[id] == "" {
			l.ids[id] = fmt.Sprintf("{%d}", len(l.ids)+1)
			l.back = append(l.back, l.ids[id], id)
		}
		return l.ids[id]
	})
	fmt.Fprintf(&l.all, "%.99s %.80q %.200q\n%s\n\n", call, headers, body, text)
	return text
}

// last is the name of the id that appeared last.
func (l *letters) last() string { return fmt.Sprintf("{%d}", len(l.ids)) }

// TestAnswersAboutObjectsToTheLetter: as TestAnswersToTheLetter, for buckets of objects.
func TestAnswersAboutObjectsToTheLetter(t *testing.T) {
	l := newLetters(t)
	ask := func(call, body string, headers ...string) { l.ask(call, body, headers...) }
	versioning := func(status, more string) {
		ask("PUT /abc?versioning", "<VersioningConfiguration><Status>"+status+"</Status>"+more+"</VersioningConfiguration>")
	}
	const sha = "LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ=" // of hello
	const mode = "x-amz-checksum-mode"
	ask("PUT /abc", "")
	ask("PUT /plain", "", "x-evenkeel-bucket-kind", "plain")
	ask("PUT /plain/p", "plain bytes", "x-amz-meta-p", "1")
	ask("PUT /plain/big", "", "x-evenkeel-size", "5", "x-evenkeel-etag", "e")

	// Without versions.
	ask("GET /abc?versioning", "")
	ask("PUT /abc/k", "hello", "Content-Type", "text/x", "x-amz-meta-a", "1", "Cache-Control", "no-cache",
		"x-amz-checksum-sha256", sha, "Content-MD5", md5Of("hello"))
	ask("PUT /abc/two", "hello", "x-amz-checksum-sha256", sha, "x-amz-checksum-sha1", "qvTGHdzF6KLavt4PO0gs2a6pQ00=")
	ask("HEAD /abc/two", "", mode, "ENABLED")
	ask("DELETE /abc/two", "")
	ask("PUT /abc/large", strings.Repeat("x", 2000))
	ask("PUT /abc/k", "x", "x-amz-meta-b", strings.Repeat("x", 2048))
	ask("PUT /abc/k?versionId=null", "x")
	null, err := l.o.Bucket("abc", objects.Never).Head(t.Context(), []byte("k"), objects.Latest)
	require.NoError(t, err)
	l.back = append(l.back, "{hidden}", null.ID.String()) // clients know the version as null
	for _, call := range []string{
		"GET /abc/k?versionId={hidden}", "GET /abc/k", "HEAD /abc/k", "GET /abc/k?versionId=null",
		"GET /abc/k?versionId=", "GET /abc/k?versionId=1",
		"GET /abc/k?partNumber=1", "HEAD /abc/k?partNumber=1", "GET /abc/k?partNumber=2", "GET /abc/k?partNumber=0",
		"GET /abc/k?partNumber=10000", "GET /abc/k?partNumber=10001", "GET /abc/k?partNumber=x",
		"GET /abc/none?partNumber=1", "GET /plain/p?partNumber=1", "GET /abc?versions", "GET /abc?versions&max-keys=1",
		"GET /abc?versions&max-keys=0",
		"GET /abc?list-type=2&max-keys=1", "GET /abc?list-type=2&max-keys=0", "GET /abc?list-type=2&fetch-owner=true",
		"GET /abc", "GET /abc?list-type=2&evenkeel-reverse=true", "GET /abc?list-type=2&evenkeel-from=a",
		"GET /abc?list-type=2&evenkeel-to=z", "GET /abc?evenkeel-splits=3",
		"GET /abc?versions&key-marker=k&version-id-marker=x",
		"GET /abc?versions&key-marker=k&version-id-marker=null", "GET /abc/large?response-content-type=text/y",
		"GET /abc?location", "HEAD /abc", "HEAD /plain", "DELETE /abc/none", "DELETE /abc/k?versionId=x",
		"DELETE /abc/k?versionId=", "GET /abc/none", "HEAD /abc/none", "GET /abc/k?acl",
	} {
		ask(call, "")
	}
	for _, header := range [][]string{
		{mode, "enabled"}, {mode, "ENABLED", "Range", "bytes=1-2"}, {"Range", "bytes=5-"}, {"Range", "bytes=-2"},
		{"Range", "bytes=1-2", "If-Range", `"other"`}, {"If-None-Match", helloETag}, {"If-Match", "other"},
		{"If-Match", helloETag}, {"If-Modified-Since", "Thu, 29 Feb 2024 23:59:59 GMT"},
	} {
		ask("GET /abc/k", "", header...)
		ask("HEAD /abc/k", "", header...)
	}
	ask("GET /abc/k?partNumber=1", "", "Range", "bytes=1-2")
	ask("GET /abc/k?partNumber=1", "", "If-None-Match", "*")
	ask("PUT /abc/empty", "")
	ask("GET /abc/empty?partNumber=1", "")
	ask("DELETE /abc/empty?versionId=null", "")
	ask("GET /abc/empty", "")

	// With versions.
	versioning("Other", "")
	versioning("Enabled", "<MfaDelete>Enabled</MfaDelete>")
	versioning("Enabled", "<MfaDelete>x</MfaDelete>")
	versioning("Enabled", "<Other/>")
	ask("PUT /abc?versioning", "<Versioning>")
	ask("PUT /plain?versioning", "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>")
	ask("GET /plain?versioning", "")
	versioning("Enabled", "<MfaDelete>Disabled</MfaDelete>")
	ask("GET /abc?versioning", "")
	ask("PUT /abc/k", "second")
	ask("PUT /abc/k", "third one", "x-amz-checksum-crc32", "AAAAAA==")
	ask("PUT /abc/k", "third one")
	ask("DELETE /abc/k", "")
	for _, method := range []string{"GET", "HEAD"} {
		for _, q := range []string{
			"", "?versionId={1}", "?versionId={2}", "?versionId=null", "?versionId={3}",
			"?versionId=ffffffffffffffff000000000000", "?partNumber=1", "?versionId={3}&partNumber=1",
			"?versionId={1}&partNumber=1", "?versionId={hidden}",
		} {
			ask(method+" /abc/k"+q, "")
		}
	}
	ask("GET /abc/k?versionId={1}", "", "If-None-Match", "*")
	ask("GET /abc/k?versionId={1}", "", "Range", "bytes=2-3")
	ask("GET /abc/large?versionId=null", "", "If-Match", "other")
	ask("DELETE /abc/large", "")
	ask("PUT /abc/l%20/a", "")
	ask("PUT /abc/l%20/b", "")
	for _, q := range []string{
		"versions", "versions&max-keys=2", "versions&key-marker=k&version-id-marker={2}",
		"versions&key-marker=k&version-id-marker=null", "versions&key-marker=l&version-id-marker=null",
		"versions&key-marker=k&version-id-marker=x", "versions&key-marker=k", "versions&delimiter=/&encoding-type=url",
		"versions&delimiter=/&max-keys=7&encoding-type=url", "versions&delimiter=/&key-marker=l%20/",
		"versions&prefix=l%20",
		"versions&key-marker=" + strings.Repeat("k", 1025), "marker=" + strings.Repeat("k", 1025),
		"versions&key-marker=" + strings.Repeat("k", 1025) + "&version-id-marker=null",
		"versions&key-marker=" + strings.Repeat("k", 1025) + "&version-id-marker={1}",
		"versions&prefix=l&delimiter=/&key-marker=l" + strings.Repeat("k", 1025) + "/",
		"versions&prefix=l&delimiter=/&key-marker=l%20/" + strings.Repeat("k", 1025),
		"list-type=2&start-after=" + strings.Repeat("k", 1025), "list-type=2&start-after=kk",
		"versions&prefix=%FF&delimiter=%FF&encoding-type=url&key-marker=%FF", "delimiter=/",
		"delimiter=/&max-keys=1", "delimiter=/&marker=l%20/", "list-type=2&delimiter=/",
	} {
		ask("GET /abc?"+q, "")
	}

	// Copies.
	for _, source := range []string{
		"/abc/k?versionId={1}", "/abc/k?versionId=null", "/abc/k?versionId={3}", "/abc/k", "/abc/k?versionId=x",
		"/abc/k?versionId=ffffffffffffffff000000000000", "/abc/large?versionId=null", "/plain/p", "/plain/big",
		"/abc/none",
		"/plain/p?versionId=1", "/none/k",
	} {
		ask("PUT /abc/copy", "", "x-amz-copy-source", source)
		ask("PUT /plain/copy", "", "x-amz-copy-source", source)
	}
	ask("GET /abc/copy", "", mode, "ENABLED")
	ask("GET /plain/copy", "")
	ask("PUT /abc/k", "", "x-amz-copy-source", "/abc/k?versionId={1}")
	ask("PUT /abc/k", "", "x-amz-copy-source", "/abc/k")
	ask("PUT /abc/k", "", "x-amz-copy-source", "/abc/k", "x-amz-metadata-directive", "REPLACE", "x-amz-meta-b", "2")
	ask("GET /abc/k", "")
	ask("PUT /abc/copy", "", "x-amz-copy-source", "/abc/k", "x-amz-copy-source-if-match", "other")
	ask("PUT /abc/copy", "", "x-amz-copy-source", "/abc/k", "x-amz-copy-source-if-none-match", "*")
	ask("PUT /abc/copy", "", "x-amz-copy-source", "/abc/k", "If-None-Match", "*")
	ask("PUT /abc/copy", "", "x-amz-copy-source", "/abc/k", "x-amz-metadata-directive", "REPLACE",
		"x-amz-meta-b", strings.Repeat("x", 2048))

	// Deletes.
	const doc = "<Delete><Object><Key>k</Key></Object><Object><Key>k</Key><VersionId>null</VersionId></Object>" +
		"<Object><Key>k</Key><VersionId>x</VersionId></Object>" +
		"<Object><Key>large</Key><VersionId></VersionId></Object></Delete>"
	ask("POST /abc?delete", doc, "Content-MD5", md5Of(doc))
	ask("DELETE /abc/k?versionId={3}", "")
	ask("DELETE /abc/k?versionId={3}", "")
	ask("DELETE /abc/k?versionId=null", "")
	ask("DELETE /abc/none?versionId=null", "")
	ask("DELETE /abc/copy", "", "If-Match", "other")
	versioning("Suspended", "")
	ask("GET /abc?versioning", "")
	ask("PUT /abc/k", "fourth")
	ask("DELETE /abc/k", "")
	ask("GET /abc/k", "")
	ask("GET /abc?versions&prefix=k", "")
	ask("DELETE /abc", "")

	// Uploads in parts, in another bucket.
	ask("PUT /abd", "")
	ask("POST /plain/k?uploads", "")
	for _, n := range []int{4096, 4097} {
		ask("PUT /abd/n", strings.Repeat("x", n))
		ask("PUT /plain/n", "", "x-amz-copy-source", "/abd/n")
	}
	ask("PUT /abd/%FF", "x")
	ask("PUT /abd/%FF", "x", "x-evenkeel-key-bytes", "any")
	for _, q := range []string{"", "?list-type=2", "?versions", "?delimiter=%FF", "?encoding-type=url", "?uploads"} {
		ask("GET /abd"+q, "")
	}
	ask("DELETE /abd/%FF", "")
	ask("DELETE /abd/n", "")
	ask("PUT /abd/t", "0\r\nx-amz-checksum-xxhash:AAAA\r\n\r\n", "Content-Encoding", "aws-chunked",
		"x-amz-decoded-content-length", "0")
	ask("POST /abd/a?uploads", "", "Content-Type", "text/x", "x-amz-meta-a", "1")
	up := l.last()
	ask("POST /abd/a?uploads", "")
	other := l.last()
	ask("POST /abd/b%20/1?uploads", "")
	ask("POST /abd/b%20/2?uploads", "")
	ask("POST /abd/c?uploads", "", "x-amz-meta-a", strings.Repeat("x", 2048))
	ask("POST /abd/"+strings.Repeat("k", 1025)+"?uploads", "")
	for _, q := range []string{
		"", "&max-uploads=0", "&max-uploads=1", "&max-uploads=4", "&max-uploads=5", "&max-uploads=2147483647",
		"&max-uploads=-1",
		"&max-uploads=2147483648", "&max-uploads=x", "&encoding-type=url", "&encoding-type=x", "&delimiter=/",
		"&delimiter=/&max-uploads=3", "&delimiter=/&max-uploads=2", "&delimiter=/&key-marker=b%20/", "&prefix=b",
		"&key-marker=a", "&key-marker=a&upload-id-marker=" + up, "&key-marker=a&upload-id-marker=x",
		"&upload-id-marker=x",
		"&key-marker=" + strings.Repeat("a", 1025), "&key-marker=" + strings.Repeat("a", 1024) + "&upload-id-marker=" + up,
		"&key-marker=%FF", "&prefix=%FF",
	} {
		ask("GET /abd?uploads"+q, "")
	}
	ask("GET /none?uploads", "")
	ask("GET /plain?uploads", "")
	put := "/abd/a?uploadId=" + up + "&partNumber="
	ask("PUT "+put+"10000", "hello", "x-amz-checksum-sha256", sha)
	ask("PUT "+put+"10001", "hello")
	ask("PUT "+put+"0", "hello")
	ask("PUT "+put+"1", "hello", "Content-MD5", md5Of("other"))
	ask("PUT /abd/a?partNumber=1&uploadId=x", "hello")
	for _, key := range []string{"a", "b"} { // the upload is looked for before the body comes
		for _, length := range []string{"5368709120", "5368709121"} {
			ask("PUT /abd/"+key+"?partNumber=1&uploadId="+up, "", "Content-Encoding", "aws-chunked",
				"x-amz-decoded-content-length", length)
		}
	}
	for _, source := range []string{"/abc/large?versionId=null", "/plain/p", "/plain/big", "/plain/none"} {
		for _, part := range []string{"", "bytes=0-0", "bytes=1-3", "bytes=0-4", "bytes=0-10", "bytes=0-1999",
			"bytes=2000-2000"} {
			header := []string{"x-amz-copy-source", source, "x-amz-copy-source-range", part}
			if part == "" {
				header = header[:2]
			}
			ask("PUT "+put+"2", "", header...)
		}
	}
	ask("PUT "+put+"2", "", "x-amz-copy-source", "x")
	for _, part := range []string{"bytes=2-1", "0-1", "bytes=0", "bytes=-1", "bytes=0-"} {
		ask("PUT "+put+"2", "", "x-amz-copy-source", "/plain/p", "x-amz-copy-source-range", part)
	}
	ask("PUT "+put+"2", "", "x-amz-copy-source", "/plain/p", "x-amz-copy-source-if-match", "other")
	ask("PUT "+put+"2", "", "x-amz-copy-source", "/plain/p", "x-amz-copy-source-if-none-match", "other")
	list := "GET /abd/a?uploadId=" + up
	for _, q := range []string{
		"", "&max-parts=0", "&max-parts=1", "&max-parts=2", "&max-parts=-1", "&part-number-marker=2",
		"&part-number-marker=1",
		"&part-number-marker=-1", "&part-number-marker=x", "&part-number-marker=0", "&part-number-marker=10001",
		"&part-number-marker=2147483648",
	} {
		ask(list+q, "")
	}
	ask("GET /abd/a?uploadId=x", "")
	ask("GET /abd/a?uploadId="+other, "")
	part := func(text string) string {
		return "<CompleteMultipartUpload><Part>" + text + "</Part></CompleteMultipartUpload>"
	}
	const number, tag = "<PartNumber>10000</PartNumber>", "<ETag>&quot;" + helloETag + "&quot;</ETag>"
	end := "POST /abd/a?uploadId=" + up
	for _, doc := range []string{
		"<Other/>", part(number), part(tag), part(number + tag + "<Other/>"), part(number + "<ETag><a/></ETag>"),
		part("<PartNumber>x</PartNumber>" + tag), part("<PartNumber>10001</PartNumber>" + tag),
		part("<PartNumber>-1</PartNumber>" + tag),
		part("<PartNumber>1</PartNumber>" + tag), "<CompleteMultipartUpload><Quiet/></CompleteMultipartUpload>",
		"<CompleteMultipartUpload>" + strings.Repeat("<Part>"+number+"</Part>", 10001) + "</CompleteMultipartUpload>",
		part(number + "<ChecksumSHA256>x<a/></ChecksumSHA256>"), part(number)[:50],
	} {
		ask(end, doc)
	}
	for _, length := range []int{4 << 20, 4<<20 + 1} {
		ask(end, part(number)+strings.Repeat(" ", length-len(part(number))))
	}
	ask("POST /abd/a?uploadId=x", part(number+tag))
	ask("POST /abd/a?uploadId="+up, part(number+tag), "If-Match", "*")
	ask(end, part(number+tag+"<ChecksumSHA256>"+sha+"</ChecksumSHA256>"))
	ask(end, part(number+tag))
	ask("POST /abd/a?uploadId="+other, part(number+tag), "If-None-Match", "*")
	ask("GET /abd/a", "")
	ask("GET /abd/a?partNumber=1", "")
	ask("GET /abd/a?partNumber=2", "")
	ask("DELETE /abd/a?uploadId="+other, "")
	ask("DELETE /abd/a?uploadId=x", "")
	ask("GET /abd?uploads&prefix=a", "")

	same(t, "testdata/answersaboutobjects.txt", l.all.String())
}
