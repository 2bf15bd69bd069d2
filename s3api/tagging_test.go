package s3api_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// tagging is the document with tags, given as keys and values in turn.
func tagging(tags ...string) string {
	doc := "<Tagging><TagSet>"
	for i := 0; i < len(tags); i += 2 {
		doc += "<Tag><Key>" + tags[i] + "</Key><Value>" + tags[i+1] + "</Value></Tag>"
	}
	return doc + "</TagSet></Tagging>"
}

func (s *server) wantTags(uri string, tags ...string) {
	s.t.Helper()
	sub := "?tagging"
	if strings.Contains(uri, "?") {
		sub = "&tagging"
	}
	body := s.want(200, "", "GET", uri+sub, "").body
	require.Equal(s.t, tagging(tags...), strings.Replace(body[strings.Index(body, "<Tagging"):],
		` xmlns="http://s3.amazonaws.com/doc/2006-03-01/"`, "", 1))
	count := ""
	if len(tags) > 0 {
		count = fmt.Sprint(len(tags) / 2)
	}
	for _, method := range []string{"HEAD", "GET"} {
		require.Equal(s.t, count, s.want(200, "", method, uri, "").header.Get("x-amz-tagging-count"))
	}
	if s.want(200, "", "HEAD", uri, "").header.Get("Content-Length") != "0" {
		require.Equal(s.t, count, s.want(206, "", "GET", uri, "", "Range", "bytes=0-0").header.Get("x-amz-tagging-count"))
	}
}

func TestTagsBelongToVersions(t *testing.T) {
	s, _ := serveObjects(t)
	s.want(200, "", "PUT", "/abc", "")
	s.want(200, "", "PUT", "/abc/k", "null", "x-amz-tagging", "b=2&a=%C3%BC+%2B&empty")
	s.wantTags("/abc/k", "a", "ü +", "b", "2", "empty", "")
	s.want(200, "", "PUT", "/abc?versioning", "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>")
	first := s.want(200, "", "PUT", "/abc/k", strings.Repeat("large", 2000), "x-amz-tagging", "n=1").header.Get(
		"x-amz-version-id")
	second := s.want(200, "", "PUT", "/abc/k", "2").header.Get("x-amz-version-id")
	s.wantTags("/abc/k")
	a := s.want(200, "", "PUT", "/abc/k?tagging", tagging("z", "9", "y", ""))
	require.Equal(t, second, a.header.Get("x-amz-version-id"))
	s.wantTags("/abc/k", "y", "", "z", "9")
	s.wantTags("/abc/k?versionId="+first, "n", "1")
	a = s.want(200, "", "PUT", "/abc/k?tagging&versionId="+first, tagging("n", "2"))
	require.Equal(t, first, a.header.Get("x-amz-version-id"))
	s.wantTags("/abc/k?versionId="+first, "n", "2")
	s.wantTags("/abc/k?versionId="+second, "y", "", "z", "9")
	s.wantTags("/abc/k?versionId=null", "a", "ü +", "b", "2", "empty", "")
	a = s.want(204, "", "DELETE", "/abc/k?tagging&versionId=null", "")
	require.Equal(t, "null", a.header.Get("x-amz-version-id"))
	s.wantTags("/abc/k?versionId=null")

	// Copies.
	s.want(200, "", "PUT", "/abc/copy", "", "x-amz-copy-source", "/abc/k")
	s.wantTags("/abc/copy", "y", "", "z", "9")
	s.want(200, "", "PUT", "/abc/copy", "", "x-amz-copy-source", "/abc/k?versionId="+first, "x-amz-tagging", "not=used")
	s.wantTags("/abc/copy", "n", "2")
	for _, tags := range [][]string{{"c", "3"}, nil} {
		s.want(200, "", "PUT", "/abc/copy", "", "x-amz-copy-source", "/abc/k", "x-amz-tagging-directive", "REPLACE",
			"x-amz-tagging", strings.Join(tags, "="))
		s.wantTags("/abc/copy", tags...)
	}
	s.want(400, "InvalidArgument", "PUT", "/abc/copy", "", "x-amz-copy-source", "/abc/k", "x-amz-tagging-directive", "MOVE")

	// A listing has no tags among its lines, and what is deleted has none.
	require.Equal(t, 4, strings.Count(s.want(200, "", "GET", "/abc?versions&prefix=copy", "").body, "<Version>"))
	marker := s.want(204, "", "DELETE", "/abc/k", "").header.Get("x-amz-version-id")
	for _, method := range []string{"GET", "PUT", "DELETE"} {
		s.want(404, "NoSuchKey", method, "/abc/k?tagging", tagging())
		s.want(405, "MethodNotAllowed", method, "/abc/k?tagging&versionId="+marker, tagging())
		s.want(404, "NoSuchKey", method, "/abc/none?tagging", tagging())
		s.want(404, "NoSuchVersion", method, "/abc/none?tagging&versionId="+first, tagging())
		s.want(400, "InvalidArgument", method, "/abc/k?tagging&versionId=x", tagging())
		s.want(404, "NoSuchBucket", method, "/none/k?tagging", tagging())
	}
	s.want(204, "", "DELETE", "/abc/k?versionId="+first, "")
	s.want(404, "NoSuchVersion", "GET", "/abc/k?tagging&versionId="+first, "")
}

func TestTagsOfUploads(t *testing.T) {
	s, _ := serveObjects(t)
	s.want(200, "", "PUT", "/abc", "")
	u := between(s.want(200, "", "POST", "/abc/k?uploads", "", "x-amz-tagging", "Hello=World&foo=bar").body, "UploadId")
	etag := s.want(200, "", "PUT", "/abc/k?partNumber=1&uploadId="+u, "body").header.Get("ETag")
	s.want(200, "", "POST", "/abc/k?uploadId="+u, "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>"+etag+
		"</ETag></Part></CompleteMultipartUpload>")
	s.wantTags("/abc/k", "Hello", "World", "foo", "bar")
	s.want(204, "", "DELETE", "/abc/k?tagging", "")
	s.wantTags("/abc/k")
	s.want(400, "InvalidTag", "POST", "/abc/k?uploads", "", "x-amz-tagging", "aws:x=1")
}

func between(body, tag string) string {
	_, rest, _ := strings.Cut(body, "<"+tag+">")
	text, _, _ := strings.Cut(rest, "</"+tag+">")
	return text
}

func manyTags(n int) (tags []string) {
	for i := range n {
		tags = append(tags, fmt.Sprint("k", i), "v")
	}
	return tags
}

// refusedTags are documents, by the codes of their refusals.
func refusedTags() map[string][]string {
	refused := map[string][]string{"MalformedXML": {
		"", "x", "<Tagging>", "<Tagging/>", "<Tagging></Tagging>", "<Other><TagSet/></Other>", "<Tagging><TagSet>",
		"<Tagging><TagSet/><TagSet/></Tagging>", "<Tagging><TagSet><Other/></TagSet></Tagging>", "<Tagging><Other/></Tagging>",
		"<Tagging><TagSet><Tag/></TagSet></Tagging>", "<Tagging><TagSet><Tag><Key>a</Key></Tag></TagSet></Tagging>",
		"<Tagging><TagSet><Tag><Value>a</Value></Tag></TagSet></Tagging>",
		"<Tagging><TagSet><Tag><Key>a</Key><Key>b</Key><Value/></Tag></TagSet></Tagging>",
		"<Tagging><TagSet><Tag><Key>a</Key><Value>b</Value><Value>b</Value></Tag></TagSet></Tagging>",
		"<Tagging><TagSet><Tag><Key>a</Key><Value>b</Value><Other/></Tag></TagSet></Tagging>",
		"<Tagging><TagSet><Tag><Key><a/></Key><Value>b</Value></Tag></TagSet></Tagging>",
		"<Tagging><TagSet><Tag><Key>b</Key><Value><a/></Value></Tag></TagSet></Tagging>",
		"<Tagging><TagSet><Tag><Other/></Tag></TagSet></Tagging>",
	}}
	for _, tags := range [][]string{
		manyTags(11), {"", "v"}, {strings.Repeat("k", 129), ""}, {strings.Repeat("ü", 129), ""},
		{"k", strings.Repeat("v", 257)}, {"k", "1", "k", "2"}, {"k", "1", "k", "1"}, {"aws:k", "v"}, {"AWS:k", "v"},
		{"aws:", "v"}, {"a!b", "v"}, {"k", "a,b"}, {"k", "a&#9;b"}, {"k", "&lt;"}, {"k", "\u200b"},
	} {
		refused["InvalidTag"] = append(refused["InvalidTag"], tagging(tags...))
	}
	return refused
}

// refusedTagHeaders are headers, by the codes of their refusals.
func refusedTagHeaders() map[string][]string {
	return map[string][]string{
		"InvalidTag": {
			strings.Repeat("k", 129) + "=v", "k=" + strings.Repeat("v", 257), "aws:k=v", "a%21", "k=%0A", "k=%ff",
			strings.Join(strings.Split("abcdefghijk", ""), "&"), "a&b&c&d&e&f&g&h&i&j&&&&&&&&&&&&",
		},
		"InvalidArgument": {"k=1&k=2", "%zz", "a;b", "k=%", "=", "=v", "a&="},
	}
}

// TestAnswersAboutTagsToTheLetter: as TestAnswersToTheLetter.
func TestAnswersAboutTagsToTheLetter(t *testing.T) {
	l := newLetters(t)
	l.ask("PUT /abc", "")
	l.ask("PUT /plain", "", "x-evenkeel-bucket-kind", "plain")
	l.ask("PUT /plain/k", "plain")
	l.ask("PUT /abc/k", "hello", "x-amz-tagging", "b=2&a=1")
	documents, headers := refusedTags(), refusedTagHeaders()
	for _, code := range slices.Sorted(maps.Keys(documents)) {
		for _, doc := range documents[code] {
			l.ask("PUT /abc/k?tagging", doc)
		}
		for _, header := range headers[code] {
			l.ask("PUT /abc/k", "", "x-amz-tagging", header)
		}
	}
	l.ask("PUT /abc/k", "hello", "x-amz-tagging", headers["InvalidArgument"][0])
	for _, header := range []string{
		"a&b&c&d&e&f&g&h&i&j", "aws=1", "awsx:=2", "a=+-=._:/@1%C3%BC", strings.Repeat("k", 128) + "=" + strings.Repeat("x", 256),
	} {
		l.ask("PUT /abc/k", "hello", "x-amz-tagging", header)
		l.ask("GET /abc/k?tagging", "")
	}
	for _, doc := range []string{
		tagging(manyTags(10)...), tagging(), tagging("b", "", "a", "&amp;"), tagging("b", "", "a", "@"),
	} {
		l.ask("PUT /abc/k?tagging", doc)
		l.ask("GET /abc/k?tagging", "")
	}
	for _, method := range []string{"GET", "PUT", "DELETE"} {
		for _, key := range []string{"abc/k", "abc/none", "plain/k", "plain/none", "none/k"} {
			l.ask(method+" /"+key+"?tagging", tagging("c", "3"))
		}
	}
	for _, bucket := range []string{"abc", "plain"} {
		for _, directive := range []string{"", "COPY", "REPLACE", "copy"} {
			for _, tags := range []string{"", "d=4", "d=4&d=5"} {
				l.ask("PUT /"+bucket+"/copy", "", "x-amz-copy-source", "/abc/k", "x-amz-tagging-directive", directive,
					"x-amz-tagging", tags)
				l.ask("HEAD /"+bucket+"/copy", "")
			}
		}
		l.ask("PUT /"+bucket+"/k", "x", "x-amz-tagging", "d=4")
		l.ask("POST /"+bucket+"/k?uploads", "", "x-amz-tagging", "d=4")
		l.ask("POST /"+bucket+"/k?uploads", "", "x-amz-tagging", "d=4&d=5")
		l.ask("POST /"+bucket+"/k?uploadId=x", "", "x-amz-tagging", "d=4")
		l.ask("PUT /"+bucket+"/k?uploadId=x&partNumber=1", "", "x-amz-tagging", "d=4")
		l.ask("DELETE /"+bucket+"/k", "", "x-amz-tagging", "d=4")
	}
	same(t, "testdata/answersabouttags.txt", l.all.String())
}

func TestTagsThatAreRefused(t *testing.T) {
	s, dir := serveObjects(t)
	s.want(200, "", "PUT", "/abc", "")
	s.want(200, "", "PUT", "/abc/k", "1", "x-amz-tagging", "stays=so")
	count := files(t, dir)
	for code, documents := range refusedTags() {
		for _, doc := range documents {
			s.want(400, code, "PUT", "/abc/k?tagging", doc)
		}
	}
	for code, headers := range refusedTagHeaders() {
		for _, header := range headers {
			s.want(400, code, "PUT", "/abc/k", strings.Repeat("large", 2000), "x-amz-tagging", header)
			s.want(400, code, "POST", "/abc/k?uploads", "", "x-amz-tagging", header)
			s.want(400, code, "PUT", "/abc/copy", "", "x-amz-copy-source", "/abc/k", "x-amz-tagging", header)
		}
	}
	s.want(400, "EntityTooLarge", "PUT", "/abc/k?tagging", tagging("k", strings.Repeat("v", 64<<10)))
	s.want(400, "BadDigest", "PUT", "/abc/k?tagging", tagging(), "Content-MD5", b64(make([]byte, 16)))
	s.wantTags("/abc/k", "stays", "so")
	require.Equal(t, count, files(t, dir), "nothing was stored")
	s.want(200, "", "PUT", "/abc/k?tagging", tagging(manyTags(10)...))
	s.wantTags("/abc/k", manyTags(10)...)
	long := []string{strings.Repeat("ü", 128), strings.Repeat("𝔸", 256)}
	s.want(200, "", "PUT", "/abc/k?tagging", tagging(long...))
	s.wantTags("/abc/k", long...)

	s.want(200, "", "PUT", "/plain", "", "x-evenkeel-bucket-kind", "plain")
	s.want(200, "", "PUT", "/plain/k", "1")
	for _, method := range []string{"GET", "PUT", "DELETE"} {
		s.want(501, "NotImplemented", method, "/plain/k?tagging", tagging())
	}
	s.want(501, "NotImplemented", "PUT", "/plain/k", "1", "x-amz-tagging", "a=b")
	s.want(501, "NotImplemented", "PUT", "/plain/k", "1", "x-amz-copy-source", "/abc/k", "x-amz-tagging", "a=b",
		"x-amz-tagging-directive", "REPLACE")
}
