package s3tour

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// allKeysFile writes a file with one key that may do everything.
func allKeysFile(t *testing.T, dir string) string {
	t.Helper()
	file := filepath.Join(dir, "all.yaml")
	text := "keys:\n- {id: " + keyID + ", secret: " + secret + ", access: read-write, everything: true}\n" +
		"complete: true\n"
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

var (
	part1 = strings.Repeat("one ", (5<<20)/4) // the least that a part has that is not the last
	part2 = "and the end"
	// The MD5s of part1 and part2.
	tag1, tag2 = "e6b95be3d735b9b96741fd0000f93ce7", "1d77bbcba047d21ec35de7472b575f05"
)

func completed(parts ...string) string {
	var b strings.Builder
	b.WriteString("<CompleteMultipartUpload>")
	for i := 0; i < len(parts); i += 2 {
		b.WriteString("<Part><PartNumber>" + parts[i] + "</PartNumber><ETag>" + parts[i+1] + "</ETag></Part>")
	}
	return b.String() + "</CompleteMultipartUpload>"
}

func versioning(status string) string {
	return `<VersioningConfiguration xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Status>` + status +
		"</Status></VersioningConfiguration>"
}

func tagged(pairs ...string) string {
	var b strings.Builder
	b.WriteString("<Tagging><TagSet>")
	for i := 0; i < len(pairs); i += 2 {
		b.WriteString("<Tag><Key>" + pairs[i] + "</Key><Value>" + pairs[i+1] + "</Value></Tag>")
	}
	return b.String() + "</TagSet></Tagging>"
}

// script is what both servers are asked, in this order.
var script = []ask{
	// Buckets.
	{what: "HEAD /tour-a"},
	{what: "GET /tour-a?list-type=2"},
	{what: "PUT /tour-a"},
	{what: "HEAD /tour-a"},
	{what: "PUT /A"},
	{what: "DELETE /tour-none"},
	{what: "GET /tour-a?versioning"},
	{what: "GET /tour-a?location"},

	// Objects, their headers, and ranges of them.
	{what: "GET /tour-a/none"},
	{what: "HEAD /tour-a/none"},
	{what: "DELETE /tour-a/none"},
	{what: "PUT /tour-none/k", body: "hello"},
	{what: "PUT /tour-a/k", body: "hello, world",
		header: "Content-Type: text/plain\nX-Amz-Meta-Colour: blue\nCache-Control: no-cache"},
	{what: "GET /tour-a/k"},
	{what: "HEAD /tour-a/k"},
	{what: "GET /tour-a/k", header: "Range: bytes=0-4"},
	{what: "GET /tour-a/k", header: "Range: bytes=7-"},
	{what: "GET /tour-a/k", header: "Range: bytes=-5"},
	{what: "GET /tour-a/k", header: "Range: bytes=5-900"},
	{what: "GET /tour-a/k", header: "Range: bytes=12-", but: "it does not say how long the object is"},
	{what: "HEAD /tour-a/k", header: "Range: bytes=1-2"},
	{what: "PUT /tour-a/coded", body: "as it is", header: "Content-Encoding: deflate, aws-chunked"},
	{what: "GET /tour-a/coded", but: "aws-chunked, which was the coding of the transfer, stays"},
	{what: "PUT /tour-a/empty"},
	{what: "GET /tour-a/empty"},
	{what: "GET /tour-a/empty", header: "Range: bytes=0-1", but: "it does not say how long the object is"},
	{what: "PUT /tour-a/md5", body: "hello", header: "Content-MD5: XUFAKrxLKna5cZ2REBfFkg=="},
	{what: "PUT /tour-a/md5", body: "other", header: "Content-MD5: XUFAKrxLKna5cZ2REBfFkg=="},
	{what: "PUT /tour-a/md5", body: "hello", header: "Content-MD5: nonsense"},
	{what: "GET /tour-a/md5"},

	// Conditions.
	{what: "GET /tour-a/md5", header: `If-Match: "5d41402abc4b2a76b9719d911017c592"`},
	{what: "GET /tour-a/md5", header: `If-Match: "00000000000000000000000000000000"`},
	{what: "GET /tour-a/md5", header: `If-None-Match: "5d41402abc4b2a76b9719d911017c592"`,
		but: "a 304 has no ETag"},
	{what: "GET /tour-a/md5", header: `If-None-Match: "00000000000000000000000000000000"`},
	{what: "GET /tour-a/md5", header: "If-Modified-Since: Wed, 21 Oct 2015 07:28:00 GMT"},
	{what: "GET /tour-a/md5", header: "If-Unmodified-Since: Wed, 21 Oct 2015 07:28:00 GMT"},
	{what: "HEAD /tour-a/md5", header: `If-None-Match: "5d41402abc4b2a76b9719d911017c592"`,
		but: "a 304 has no ETag"},
	{what: "PUT /tour-a/md5", body: "again", header: "If-None-Match: *"},
	{what: "PUT /tour-a/new", body: "new", header: "If-None-Match: *"},
	{what: "PUT /tour-a/md5", body: "again", header: `If-Match: "00000000000000000000000000000000"`},
	{what: "PUT /tour-a/md5", body: "again", header: `If-Match: "5d41402abc4b2a76b9719d911017c592"`},
	{what: "GET /tour-a/md5"},

	// Listings.
	{what: "PUT /tour-a/dir/a", body: "1"},
	{what: "PUT /tour-a/dir/b", body: "2"},
	{what: "PUT /tour-a/dir/sub/c", body: "3"},
	{what: "PUT /tour-a/space%20and%2Bplus%26", body: "4"},
	{what: "PUT /tour-a/%C3%BC", body: "5"},
	{what: "GET /tour-a"},
	{what: "GET /tour-a?list-type=2"},
	{what: "GET /tour-a?list-type=2&delimiter=%2F"},
	{what: "GET /tour-a?delimiter=%2F&prefix=dir%2F"},
	{what: "GET /tour-a?list-type=2&delimiter=%2F&prefix=dir%2F"},
	{what: "GET /tour-a?list-type=2&prefix=nothing"},
	{what: "GET /tour-a?list-type=2&start-after=dir%2Fb",
		but: "it answers a ContinuationToken that it was not sent"},
	{what: "GET /tour-a?marker=dir%2Fb"},
	{what: "GET /tour-a?list-type=2&max-keys=0"},
	{what: "GET /tour-a?list-type=2&max-keys=-1"},
	{what: "GET /tour-a?list-type=2&max-keys=many"},
	{what: "GET /tour-a?list-type=2&encoding-type=url&delimiter=%26",
		but: "it does not encode"},
	{what: "GET /tour-a?encoding-type=other",
		but: "it takes any encoding"},
	{what: "GET /tour-a?max-keys=2",
		but: "it has a NextMarker without a delimiter"},
	{what: "GET /tour-a?max-keys=2&delimiter=%2F"},
	{what: "GET /tour-a?max-keys=2&delimiter=%2F&marker=dir%2F"},

	// Copies.
	{what: "PUT /tour-a/copy", header: "X-Amz-Copy-Source: /tour-a/k"},
	{what: "GET /tour-a/copy"},
	{what: "PUT /tour-a/copy",
		header: "X-Amz-Copy-Source: tour-a/k\nX-Amz-Metadata-Directive: REPLACE\nX-Amz-Meta-Shape: round\n" +
			"Content-Type: text/html"},
	{what: "GET /tour-a/copy"},
	{what: "PUT /tour-a/k", header: "X-Amz-Copy-Source: tour-a/k"},
	{what: "PUT /tour-a/copy", header: "X-Amz-Copy-Source: tour-a/none"},
	{what: "PUT /tour-a/copy", header: "X-Amz-Copy-Source: tour-none/k"},
	{what: "PUT /tour-a/copy",
		header: "X-Amz-Copy-Source: tour-a/k\nX-Amz-Copy-Source-If-Match: \"00000000000000000000000000000000\""},
	{what: "PUT /tour-a/%C3%BC-copy", header: "X-Amz-Copy-Source: tour-a/%C3%BC"},
	{what: "GET /tour-a/%C3%BC-copy"},

	// Tags.
	{what: "PUT /tour-a/tags", body: "t", header: "X-Amz-Tagging: a=1"},
	{what: "GET /tour-a/tags?tagging"},
	{what: "GET /tour-a/tags"},
	{what: "PUT /tour-a/tags?tagging", body: tagged("c", "3")},
	{what: "GET /tour-a/tags?tagging"},
	{what: "PUT /tour-a/tags?tagging", body: tagged("c", "3", "c", "4")},
	{what: "DELETE /tour-a/tags?tagging"},
	{what: "GET /tour-a/tags?tagging"},
	{what: "GET /tour-a/none?tagging"},

	// Uploads in parts.
	{what: "POST /tour-a/large?uploads", header: "Content-Type: text/plain\nX-Amz-Meta-Large: yes", as: "upload"},
	{what: "PUT /tour-a/large?partNumber=1&uploadId={upload}", body: part1},
	{what: "PUT /tour-a/large?partNumber=2&uploadId={upload}", body: part2},
	{what: "PUT /tour-a/large?partNumber=3&uploadId={upload}", body: "left out"},
	{what: "PUT /tour-a/large?partNumber=0&uploadId={upload}", body: "x"},
	{what: "PUT /tour-a/large?partNumber=10001&uploadId={upload}", body: "x"},
	{what: "GET /tour-a/large?uploadId={upload}"},
	{what: "GET /tour-a/large?uploadId={upload}&max-parts=1"},
	{what: "GET /tour-a/large?uploadId={upload}&part-number-marker=1"},
	{what: "GET /tour-a?uploads"},
	{what: "GET /tour-a/large"},
	{what: "POST /tour-a/large?uploadId={upload}", body: completed()},
	{what: "POST /tour-a/large?uploadId={upload}", body: completed("2", tag2, "1", tag1),
		but: "it looks at sizes before the order"},
	{what: "POST /tour-a/large?uploadId={upload}", body: completed("1", tag2, "2", tag2)},
	{what: "POST /tour-a/large?uploadId={upload}", body: completed("1", tag1, "7", tag2)},
	{what: "POST /tour-a/large?uploadId={upload}", body: completed("1", tag1, "2", tag2)},
	{what: "HEAD /tour-a/large"},
	{what: "GET /tour-a/large", header: "Range: bytes=5242878-5242882"},
	{what: "GET /tour-a/large?partNumber=2"},
	{what: "GET /tour-a/large?partNumber=3",
		but: "it answers 416 InvalidPartNumber, as AWS; ceph/s3-tests asks for 400 InvalidPart"},
	{what: "GET /tour-a/k?partNumber=1"},
	{what: "GET /tour-a?uploads"},
	{what: "POST /tour-a/small?uploads", as: "second"},
	{what: "PUT /tour-a/small?partNumber=1&uploadId={second}", body: "too small"},
	{what: "PUT /tour-a/small?partNumber=2&uploadId={second}",
		header: "X-Amz-Copy-Source: tour-a/k\nX-Amz-Copy-Source-Range: bytes=0-4"},
	{what: "PUT /tour-a/small?partNumber=3&uploadId={second}",
		header: "X-Amz-Copy-Source: tour-a/k\nX-Amz-Copy-Source-Range: bytes=0-400",
		but:    "it answers 400 InvalidArgument; ceph/s3-tests asks for InvalidRange"},
	{what: "GET /tour-a/small?uploadId={second}"},
	{what: "POST /tour-a/small?uploadId={second}",
		body: completed("1", "6a3f0eb6d9c4fa20039a170c29be7100", "2", "5d41402abc4b2a76b9719d911017c592")},
	{what: "DELETE /tour-a/small?uploadId={second}"},
	{what: "DELETE /tour-a/small?uploadId={second}"},
	{what: "GET /tour-a/small?uploadId={second}"},
	{what: "PUT /tour-a/small?partNumber=1&uploadId={second}", body: "x"},

	// Deletions.
	{what: "POST /tour-a?delete",
		body: "<Delete><Object><Key>dir/a</Key></Object><Object><Key>none</Key></Object></Delete>"},
	{what: "POST /tour-a?delete", body: "<Delete><Quiet>true</Quiet><Object><Key>dir/b</Key></Object></Delete>",
		but: "it is not quiet"},
	{what: "POST /tour-a?delete", body: "<Delete></Delete>",
		but: "it deletes nothing, without an error"},
	{what: "POST /tour-a?delete", body: "nonsense",
		but: "it does not call it MalformedXML"},
	{what: "GET /tour-a?list-type=2&prefix=dir"},
	{what: "DELETE /tour-a"},

	// Versions.
	{what: "PUT /tour-v"},
	{what: "PUT /tour-v/k", body: "zero"},
	{what: "PUT /tour-v?versioning", body: versioning("Enabled")},
	{what: "GET /tour-v?versioning"},
	{what: "PUT /tour-v?versioning", body: versioning("Sometimes")},
	{what: "PUT /tour-v/k", body: "one", as: "v1"},
	{what: "PUT /tour-v/k", body: "the second", as: "v2"},
	{what: "GET /tour-v/k"},
	{what: "GET /tour-v/k?versionId={v1}"},
	{what: "HEAD /tour-v/k?versionId={v1}"},
	{what: "GET /tour-v/k?versionId=null"},
	{what: "GET /tour-v?versions"},
	{what: "DELETE /tour-v/k", as: "marker"},
	{what: "GET /tour-v/k", but: "it does not say which version is the delete marker"},
	{what: "HEAD /tour-v/k", but: "it does not say which version is the delete marker"},
	{what: "GET /tour-v/k?versionId={marker}", but: "it does not say which version is the delete marker"},
	{what: "HEAD /tour-v/k?versionId={marker}", but: "it does not say which version is the delete marker"},
	{what: "GET /tour-v/k?versionId={v2}"},
	{what: "GET /tour-v?list-type=2"},
	{what: "GET /tour-v?versions"},
	{what: "GET /tour-v?versions&max-keys=2"},
	{what: "GET /tour-v?versions&key-marker=k&version-id-marker={v2}"},
	{what: "PUT /tour-v/other", header: "X-Amz-Copy-Source: tour-v/k?versionId={v1}", as: "o1"},
	{what: "GET /tour-v/other"},
	{what: "PUT /tour-a/other", header: "X-Amz-Copy-Source: tour-v/k",
		but: "it copies a version below the delete marker"},
	{what: "PUT /tour-v/k?tagging&versionId={v1}", body: tagged("old", "yes")},
	{what: "GET /tour-v/k?tagging&versionId={v1}"},
	{what: "GET /tour-v/k?tagging&versionId={v2}"},
	{what: "DELETE /tour-v/k?versionId={marker}"},
	{what: "GET /tour-v/k", but: "it shows the null version, not the newest"},
	{what: "DELETE /tour-v/k?versionId={v2}"},
	{what: "GET /tour-v/k", but: "it shows the null version, not the newest"},
	{what: "GET /tour-v/k?versionId={v2}", but: "it names the key in the error"},
	{what: "POST /tour-v?delete", body: "<Delete><Object><Key>k</Key><VersionId>{v1}</VersionId></Object></Delete>",
		but: "it says that it is no delete marker"},
	{what: "GET /tour-v/k", but: "it does not say that the version is null"},
	{what: "PUT /tour-v?versioning", body: versioning("Suspended")},
	{what: "GET /tour-v?versioning"},
	{what: "PUT /tour-v/other", body: "null again"},
	{what: "GET /tour-v/other", but: "it does not say that the version is null"},
	{what: "DELETE /tour-v/other"},
	{what: "GET /tour-v?versions"},
	{what: "DELETE /tour-v"},
}
