package s3api_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/evenkeel/evenkeel/s3api"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// chunked frames data as aws-chunked, in chunks of the given sizes.
func chunked(data string, sizes []int, signed bool, trailers ...string) string {
	var b strings.Builder
	frame := func(part string) {
		fmt.Fprintf(&b, "%x", len(part))
		if signed {
			b.WriteString(";chunk-signature=" + strings.Repeat("0", 64))
		}
		b.WriteString("\r\n")
	}
	for _, n := range sizes {
		if n = min(n, len(data)); n > 0 {
			frame(data[:n])
			b.WriteString(data[:n] + "\r\n")
			data = data[n:]
		}
	}
	if data != "" {
		frame(data)
		b.WriteString(data + "\r\n")
	}
	frame("")
	for _, t := range trailers {
		b.WriteString(t + "\r\n")
	}
	b.WriteString("\r\n")
	return b.String()
}

func TestChunkedRoundTrips(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		data := string(rapid.SliceOfN(rapid.Byte(), 0, 5000).Draw(t, "data"))
		sizes := rapid.SliceOfN(rapid.IntRange(1, 2000), 0, 8).Draw(t, "sizes")
		body := chunked(data, sizes, rapid.Bool().Draw(t, "signed"), "x-amz-checksum-crc32:abcd", "X-Other: 1")
		got, trailer, err := s3api.ReadChunked(iotest.OneByteReader(strings.NewReader(body)))
		if err != nil || got != data {
			t.Fatalf("%q came back as %q, %v", data, got, err)
		}
		require.Equal(t, "abcd", trailer.Get("x-amz-checksum-crc32"))
		require.Equal(t, "1", trailer.Get("X-Other"))
	})
}

// A body cut anywhere is never taken for a whole one.
func TestChunkedCutShort(t *testing.T) {
	body := chunked("hello, world", []int{5, 3}, true, "x-amz-checksum-crc32:abcd")
	for i := range len(body) {
		_, _, err := s3api.ReadChunked(strings.NewReader(body[:i]))
		require.ErrorIs(t, err, io.ErrUnexpectedEOF, "cut to %d bytes", i)
	}
}

func TestChunkedMalformed(t *testing.T) {
	for _, body := range []string{
		"x\r\n", "-1\r\n", "5\r\nhelloX\r\n0\r\n\r\n", "5\r\nhello0\r\n\r\n", "0\r\nno-colon\r\n\r\n", "0\r\n\r\nmore",
		"ffffffffffffffffff\r\n", strings.Repeat("0", 2000), "5\r\nhello" + strings.Repeat("x", 1024) + "0\r\n\r\n",
		"0\r\na:" + strings.Repeat("b", 1022) + "\r\n0\r\n\r\n",
		"0\r\n" + strings.Repeat("a:"+strings.Repeat("b", 900)+"\r\n",
			20) + "\r\n",
	} {
		_, _, err := s3api.ReadChunked(strings.NewReader(body))
		require.ErrorIs(t, err, s3api.ErrFraming, "%.40q", body)
	}
	broken := errors.New("broken")
	_, _, err := s3api.ReadChunked(io.MultiReader(strings.NewReader("5\r\nhel"), iotest.ErrReader(broken)))
	require.ErrorIs(t, err, broken)
}

func FuzzChunked(f *testing.F) {
	f.Add(chunked("hello", []int{2}, true, "a:b"))
	f.Add("0\r\n\r\n")
	f.Fuzz(func(t *testing.T, body string) {
		data, _, err := s3api.ReadChunked(strings.NewReader(body))
		if len(data) > len(body) {
			t.Fatalf("%d bytes of %d", len(data), len(body))
		}
		if err == nil && !strings.Contains(body, "0") {
			t.Fatal("there was no last chunk")
		}
	})
}

func b64(b []byte) string { return base64.StdEncoding.EncodeToString(b) }

func TestReadBody(t *testing.T) {
	crc := crc32.ChecksumIEEE([]byte("hello"))
	good := b64([]byte{byte(crc >> 24), byte(crc >> 16), byte(crc >> 8), byte(crc)})
	streaming := []string{"x-amz-content-sha256", "STREAMING-UNSIGNED-PAYLOAD-TRAILER", "x-amz-decoded-content-length",
		"5", "x-amz-trailer", "x-amz-checksum-crc32"}
	framed := func(trailer ...string) string { return chunked("hello", []int{2}, false, trailer...) }
	for _, c := range []struct {
		name, body string
		headers    []string
		code       string
	}{
		{"plain", "hello", nil, ""},
		{"content md5", "hello", []string{"Content-MD5", "XUFAKrxLKna5cZ2REBfFkg=="}, ""},
		{"another md5", "hallo", []string{"Content-MD5", "XUFAKrxLKna5cZ2REBfFkg=="}, "BadDigest"},
		{"no md5", "hello", []string{"Content-MD5", "abc"}, "InvalidDigest"},
		{"short md5", "hello", []string{"Content-MD5", "XUFA"}, "InvalidDigest"},
		{"crc32", "hello", []string{"x-amz-checksum-crc32", good}, ""},
		{"bad crc32", "hellp", []string{"x-amz-checksum-crc32", good}, "BadDigest"},
		{"malformed crc32", "hello", []string{"x-amz-checksum-crc32", "abc"}, "InvalidRequest"},
		{"crc32c", "123456789", []string{"x-amz-checksum-crc32c", b64([]byte{0xe3, 0x06, 0x92, 0x83})}, ""},
		{"crc64nvme", "123456789",
			[]string{"x-amz-checksum-crc64nvme", b64([]byte{0xae, 0x8b, 0x14, 0x86, 0x0a, 0x79, 0x98,
				0x88})}, ""},
		{"sha1", "hello", []string{"x-amz-checksum-sha1", "qvTGHdzF6KLavt4PO0gs2a6pQ00="}, ""},
		{"sha256", "hello", []string{"x-amz-checksum-sha256", "LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ="}, ""},
		{"bad sha256", "hellO", []string{"x-amz-checksum-sha256", "LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ="},
			"BadDigest"},
		{"unknown digest", "hello", []string{"x-amz-checksum-xxhash3", "abc"}, "NotImplemented"},
		{"too large", "hello, world, here I am", nil, "EntityTooLarge"},
		{"chunked", framed("x-amz-checksum-crc32:" + good), streaming, ""},
		{"chunked, another trailer", framed("x-amz-checksum-crc32:AAAAAA=="), streaming, "BadDigest"},
		{"chunked, no trailer", framed(), streaming, "MalformedTrailerError"},
		{"chunked, no frames", "hello", streaming, "IncompleteBody"},
		{"chunked by its encoding", framed(), []string{"Content-Encoding", "gzip, aws-chunked",
			"x-amz-decoded-content-length", "5"}, ""},
		{"not chunked, whatever its encoding says", "hello", []string{"Content-Encoding", "gzip, aws-chunked"}, ""},
		{"chunked, no length", framed(), streaming[:2], "MissingContentLength"},
		{"chunked, bad length", framed(), []string{streaming[0], streaming[1], streaming[2], "five"},
			"InvalidArgument"},
		{"chunked, a length below zero", framed(), []string{streaming[0], streaming[1], streaming[2], "-1"},
			"InvalidArgument"},
		{"chunked, longer than nothing", framed(), []string{streaming[0], streaming[1], streaming[2], "0"},
			"IncompleteBody"},
		{"what a digest is called", "hello", []string{"x-amz-checksum-algorithm", "CRC32", "x-amz-checksum-type",
			"FULL_OBJECT"}, ""},
		{"chunked, longer than said", framed(), []string{streaming[0], streaming[1], streaming[2], "4"},
			"IncompleteBody"},
		{"chunked, shorter than said", framed(), []string{streaming[0], streaming[1], streaming[2], "6"},
			"IncompleteBody"},
		{"chunked, too large by its word", framed(), []string{streaming[0], streaming[1], streaming[2], "17"},
			"EntityTooLarge"},
		{"chunked, too large in fact", chunked("hello, world, here I am", nil, true),
			[]string{streaming[0], streaming[1], streaming[2], "5"}, "EntityTooLarge"},
	} {
		r := httptest.NewRequest("PUT", "/abc/k", strings.NewReader(c.body))
		for i := 0; i < len(c.headers); i += 2 {
			r.Header.Set(c.headers[i], c.headers[i+1])
		}
		body, code := s3api.ReadBody(r, 16)
		require.Equal(t, c.code, code, c.name)
		if code == "" {
			require.Contains(t, []string{"hello", "123456789"}, body, c.name)
		}
	}
}

func TestEmptyChunkedBody(t *testing.T) {
	r := httptest.NewRequest("PUT", "/abc/k", strings.NewReader(chunked("", nil, true)))
	r.Header.Set("Content-Encoding", "aws-chunked")
	r.Header.Set("x-amz-decoded-content-length", "0")
	body, code := s3api.ReadBody(r, 16)
	require.Equal(t, []string{"", ""}, []string{body, code})
}

func TestReadBodyShorterThanSaid(t *testing.T) {
	r := httptest.NewRequest("PUT", "/abc/k", strings.NewReader("hello"))
	r.ContentLength = 6
	_, code := s3api.ReadBody(r, 16)
	require.Equal(t, "IncompleteBody", code)
}

// A body whose length nobody said is kept whole, also an empty one; one that turns out
// to be too large is refused, and leaves what was there.
func TestBodiesWithoutALength(t *testing.T) {
	s := serveStore(t, memstore.New())
	s.want(200, "", "PUT", "/abc", "")
	put := func(body string) int {
		t.Helper()
		req, err := http.NewRequest("PUT", s.url+"/abc/k", io.MultiReader(strings.NewReader(body)))
		require.NoError(t, err)
		require.Zero(t, req.ContentLength)
		req.TransferEncoding = []string{"chunked"}
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		_ = resp.Body.Close()
		return resp.StatusCode
	}
	for _, body := range []string{"hello", "", strings.Repeat("x", 4096)} {
		require.Equal(t, 200, put(body), "%d bytes", len(body))
		require.Equal(t, body, s.want(200, "", "GET", "/abc/k", "").body)
	}
	require.Equal(t, 400, put(strings.Repeat("y", 4<<20)))
	require.Equal(t, strings.Repeat("x", 4096), s.want(200, "", "GET", "/abc/k", "").body)
}
