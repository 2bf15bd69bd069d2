package s3api_test

import (
	"encoding/xml"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/s3api"
)

// begin begins an upload.
func (s *server) begin(target string, headers ...string) string {
	s.t.Helper()
	var up struct{ UploadId string }
	require.NoError(s.t, xml.Unmarshal([]byte(s.want(200, "", "POST", target+"?uploads", "", headers...).body), &up))
	return up.UploadId
}

// TestModifiedSinceTheFuture: a time that has not come is none, as no client can have seen it; but one that an answer
// has told counts, whatever this server's clock says.
func TestModifiedSinceTheFuture(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	s, _ := serveObjectsBy(t, func(o *s3api.Options) { o.Now = func() time.Time { return now } })
	s.want(200, "", "PUT", "/plain", "", "x-evenkeel-bucket-kind", "plain")
	s.want(200, "", "PUT", "/kept", "")
	for _, target := range []string{"/plain/k", "/kept/k"} {
		s.want(200, "", "PUT", target, "v")
		modified, err := http.ParseTime(s.want(200, "", "GET", target, "").header.Get("Last-Modified"))
		require.NoError(t, err)
		for since, status := range map[time.Time]int{
			modified.Add(-time.Second): 200, modified: 304, modified.Add(time.Second): 304,
			modified.Add(time.Minute): 304, modified.Add(time.Minute + time.Second): 200,
			modified.Add(1000 * time.Hour): 200,
		} {
			now = modified.Add(time.Minute)
			header := since.UTC().Format(http.TimeFormat)
			s.want(status, "", "GET", target, "", "If-Modified-Since", header)
			s.want(status, "", "HEAD", target, "", "If-Modified-Since", header)
			s.want(map[int]int{200: 200, 304: 412}[status], "", "PUT", "/kept/copy", "", "x-amz-copy-source", target,
				"x-amz-copy-source-if-modified-since", header)
		}
		now = modified.Add(-time.Hour)
		s.want(304, "", "GET", target, "", "If-Modified-Since", modified.UTC().Format(http.TimeFormat))
		s.want(200, "", "GET", target, "", "If-Unmodified-Since", modified.Add(time.Hour).UTC().Format(http.TimeFormat))
	}
}

// TestHeadersWithoutAValue of which AWS says that they are wrong.
func TestHeadersWithoutAValue(t *testing.T) {
	s, _ := serveObjects(t)
	s.want(200, "", "PUT", "/kept", "")
	s.want(200, "", "PUT", "/kept/k", "v")
	up := s.begin("/kept/u")
	part := "/kept/u?partNumber=1&uploadId=" + up
	s.want(400, "InvalidArgument", "PUT", part, "", "x-amz-copy-source", "/kept/k", "x-amz-copy-source-range", "")
	s.want(400, "InvalidArgument", "PUT", part, "", "x-amz-copy-source", "/kept/k", "x-amz-copy-source-range", "bytes=")
	s.want(200, "", "PUT", part, "", "x-amz-copy-source", "/kept/k", "x-amz-copy-source-range", "bytes=0-0")
	for tags, code := range map[string]string{
		"=": "InvalidArgument", "=v": "InvalidArgument", "a=b&=": "InvalidArgument", "&=": "InvalidArgument",
		"a=1&a=2": "InvalidArgument", "%zz": "InvalidArgument", "aws:a=b": "InvalidTag", "a=%00": "InvalidTag",
		"": "", "a": "", "a=": "", "&a=b&": "",
	} {
		status := map[bool]int{true: 200, false: 400}[code == ""]
		s.want(status, code, "PUT", "/kept/tagged", "v", "x-amz-tagging", tags)
		s.want(status, code, "POST", "/kept/tagged?uploads", "", "x-amz-tagging", tags)
		s.want(status, code, "PUT", "/kept/tagged", "", "x-amz-copy-source", "/kept/k", "x-amz-tagging", tags,
			"x-amz-tagging-directive", "REPLACE")
	}
}

// TestTwoChecksumsAtOnce: S3 takes one of a body.
func TestTwoChecksumsAtOnce(t *testing.T) {
	s, _ := serveObjects(t)
	s.want(200, "", "PUT", "/kept", "")
	s.want(200, "", "PUT", "/plain", "", "x-evenkeel-bucket-kind", "plain")
	up := s.begin("/kept/u")
	crc, sha := sumOf("CRC32", "v"), sumOf("SHA256", "v")
	for _, target := range []string{"/kept/k", "/plain/k", "/kept/u?partNumber=1&uploadId=" + up} {
		a := s.want(400, "InvalidRequest", "PUT", target, "v", "x-amz-checksum-crc32", crc, "x-amz-checksum-sha256",
			sha)
		require.Contains(t, a.body, "Expecting a single x-amz-checksum- header")
		s.want(200, "", "PUT", target, "v", "x-amz-checksum-crc32", crc, "Content-MD5", "njZp0ZtnW9VwWP1GZCBdKg==")
		chunks := "1\r\nv\r\n0\r\nx-amz-checksum-crc32:" + crc + "\r\n\r\n"
		chunked := []string{"x-amz-content-sha256", "STREAMING-UNSIGNED-PAYLOAD-TRAILER",
			"x-amz-decoded-content-length", "1", "x-amz-trailer", "x-amz-checksum-crc32"}
		s.want(200, "", "PUT", target, chunks, chunked...)
		s.want(200, "", "PUT", target, chunks, append(chunked, "x-amz-checksum-crc32", crc)...)
		s.want(400, "InvalidRequest", "PUT", target, chunks, append(chunked, "x-amz-checksum-sha256", sha)...)
		both := "1\r\nv\r\n0\r\nx-amz-checksum-crc32:" + crc + "\r\nx-amz-checksum-sha256:" + sha + "\r\n\r\n"
		s.want(400, "InvalidRequest", "PUT", target, both, append(chunked[:5:5],
			"x-amz-checksum-crc32,x-amz-checksum-sha256")...)
	}
	const deletion = "<Delete><Object><Key>none</Key></Object></Delete>"
	s.want(400, "InvalidRequest", "POST", "/kept?delete", deletion, "x-amz-checksum-crc32", sumOf("CRC32", deletion),
		"x-amz-checksum-sha256", sumOf("SHA256", deletion))
}

// TestChecksumTypesInListings: what a listing says of a checksum is what HEAD says.
func TestChecksumTypesInListings(t *testing.T) {
	s, _ := serveObjects(t)
	s.want(200, "", "PUT", "/kept", "")
	s.want(200, "", "PUT", "/kept/b", "v", "x-amz-checksum-sha256", sumOf("SHA256", "v"))
	s.want(200, "", "PUT", "/kept/c", "v")
	for _, algorithm := range []string{"CRC32", "SHA256"} {
		up := s.begin("/kept/a", "x-amz-checksum-algorithm", algorithm)
		etag := s.want(200, "", "PUT", "/kept/a?partNumber=1&uploadId="+up, "v").header.Get("ETag")
		s.want(200, "", "POST", "/kept/a?uploadId="+up, "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber>"+
			"<ETag>"+etag+"</ETag><Checksum"+algorithm+">"+sumOf(algorithm, "v")+"</Checksum"+algorithm+
			"></Part></CompleteMultipartUpload>")
		require.Equal(t, "COMPOSITE", s.want(200, "", "HEAD", "/kept/a", "", "x-amz-checksum-mode", "ENABLED").
			header.Get("x-amz-checksum-type"))
		for _, query := range []string{"", "?list-type=2", "?versions"} {
			body := s.want(200, "", "GET", "/kept"+query, "").body
			a, rest, _ := strings.Cut(body, "<Key>b</Key>")
			b, c, _ := strings.Cut(rest, "<Key>c</Key>")
			require.Contains(t, a, "<ChecksumAlgorithm>"+algorithm+"</ChecksumAlgorithm><ChecksumType>COMPOSITE</")
			require.Contains(t, b, "<ChecksumAlgorithm>SHA256</ChecksumAlgorithm><ChecksumType>FULL_OBJECT</")
			require.NotContains(t, c, "Checksum")
		}
	}
}

// TestCopiesThatAreTooLarge are refused before a byte of them is copied.
func TestCopiesThatAreTooLarge(t *testing.T) {
	s, dir := serveObjects(t)
	s.want(200, "", "PUT", "/kept", "")
	s.want(200, "", "PUT", "/plain", "", "x-evenkeel-bucket-kind", "plain")
	body := strings.Repeat("x", 10_000)
	s.want(200, "", "PUT", "/kept/k", body)
	s.want(200, "", "PUT", "/kept/limit", body[:9000])
	up := s.begin("/kept/u")
	part := "/kept/u?partNumber=1&uploadId=" + up
	s.handler.(*s3api.Handler).LimitCopies(9000)
	stored := files(t, dir)
	for _, target := range []string{"/kept/copy", "/plain/copy", part} {
		a := s.want(400, "InvalidRequest", "PUT", target, "", "x-amz-copy-source", "/kept/k")
		require.Contains(t, a.body, "larger than the maximum allowable size for a copy source: 9000")
	}
	s.want(400, "InvalidRequest", "PUT", "/kept/k", "", "x-amz-copy-source", "/kept/k",
		"x-amz-metadata-directive", "REPLACE")
	s.want(400, "InvalidRequest", "PUT", part, "", "x-amz-copy-source", "/kept/k",
		"x-amz-copy-source-range", "bytes=0-9000")
	s.want(412, "PreconditionFailed", "PUT", "/kept/copy", "", "x-amz-copy-source", "/kept/k",
		"x-amz-copy-source-if-match", "other")
	require.Equal(t, stored, files(t, dir))
	s.want(200, "", "PUT", part, "", "x-amz-copy-source", "/kept/k", "x-amz-copy-source-range", "bytes=1000-9999")
	s.want(200, "", "PUT", part, "", "x-amz-copy-source", "/kept/limit")
	s.want(200, "", "PUT", "/kept/copy", "", "x-amz-copy-source", "/kept/limit")
	s.want(200, "", "PUT", "/plain/external", "", "x-evenkeel-size", "10000", "x-evenkeel-etag", "e")
	s.want(200, "", "PUT", "/plain/external", "", "x-amz-copy-source", "/plain/external",
		"x-amz-metadata-directive", "REPLACE")
}

// TestAbortIfInitiated: an upload of another time stays.
func TestAbortIfInitiated(t *testing.T) {
	s, _ := serveObjects(t)
	s.want(200, "", "PUT", "/kept", "")
	for range 3 {
		up := s.begin("/kept/u")
		s.want(200, "", "PUT", "/kept/u?partNumber=1&uploadId="+up, "v")
		var all struct{ Upload struct{ Initiated time.Time } }
		require.NoError(t, xml.Unmarshal([]byte(s.want(200, "", "GET", "/kept?uploads", "").body), &all))
		began := all.Upload.Initiated
		abort := "/kept/u?uploadId=" + up
		for _, other := range []time.Time{began.Add(-time.Second), began.Add(time.Second), time.Unix(0, 0)} {
			for _, form := range []string{http.TimeFormat, time.RFC3339} {
				a := s.want(412, "PreconditionFailed", "DELETE", abort, "", "x-amz-if-match-initiated-time",
					other.UTC().Format(form))
				require.Contains(t, a.body, "<Condition>X-Amz-If-Match-Initiated-Time</Condition>")
			}
		}
		s.want(400, "InvalidArgument", "DELETE", abort, "", "x-amz-if-match-initiated-time", "yesterday")
		s.want(501, "NotImplemented", "DELETE", abort, "", "If-Match", "*")
		at := []string{"x-amz-if-match-initiated-time", began.UTC().Format(http.TimeFormat)}
		s.want(501, "NotImplemented", "DELETE", "/kept/k", "", at...)
		s.want(200, "", "GET", "/kept/u?uploadId="+up, "")
		s.want(204, "", "DELETE", abort, "", at...)
		s.want(404, "NoSuchUpload", "DELETE", abort, "", at...)
	}
}
