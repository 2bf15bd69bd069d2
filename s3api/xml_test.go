package s3api_test

import (
	"encoding/xml"
	"fmt"
	"net/url"
	"regexp"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/s3api"
)

// xmlChar reports whether XML 1.0 can hold r.
func xmlChar(r rune) bool {
	return r == '\t' || r == '\n' || r == '\r' || r >= ' ' && r <= 0xD7FF || r >= 0xE000 && r <= 0xFFFD || r >= 0x10000
}

func xmlString() *rapid.Generator[string] {
	return rapid.Map(rapid.SliceOf(rapid.Rune().Filter(xmlChar)), func(r []rune) string { return string(r) })
}

func TestXMLTextReadsBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := xmlString().Draw(t, "text")
		var back string
		if err := xml.Unmarshal([]byte("<a>"+s3api.XMLText(s)+"</a>"), &back); err != nil || back != s {
			t.Fatalf("%q came back as %q, %v", s, back, err)
		}
	})
	require.Equal(t, "&#x0;&#x1;&#x1F;&#x9;&#xA;&#xD;\x7f&amp;&lt;&gt;&quot;&apos;ü&#xFFFE;&#xFFFF;\ufffd",
		s3api.XMLText("\x00\x01\x1f\t\n\r\x7f&<>\"'ü\ufffe\uffff\ufffd"))
	require.Equal(t, "a\ufffdb\ufffd", s3api.XMLText("a\xffb\xc3"))
	require.Equal(t, "a\ufffdb\ufffd", s3api.XMLText("a\x80b\x81"))
}

func TestURLText(t *testing.T) {
	plain := regexp.MustCompile(`^[A-Za-z0-9._/*-]$`)
	for c := range 256 {
		want := fmt.Sprintf("%%%02X", c)
		if text := string([]byte{byte(c)}); plain.MatchString(text) {
			want = text
		}
		require.Equal(t, want, s3api.URLText(string([]byte{byte(c)})))
	}
	require.Equal(t, "a/b-c_d.e*%20%2B%25%7E%0A%00%FF%C3%BC%26%27%22", s3api.URLText("a/b-c_d.e* +%~\n\x00\xffü&'\""))
	rapid.Check(t, func(t *rapid.T) {
		s := string(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes"))
		enc := s3api.URLText(s)
		back, err := url.QueryUnescape(enc)
		if err != nil || back != s {
			t.Fatalf("%q came back as %q, %v", s, back, err)
		}
		if back, err = url.PathUnescape(enc); err != nil || back != s {
			t.Fatalf("%q came back as %q, %v", s, back, err)
		}
		if s3api.XMLText(enc) != enc {
			t.Fatalf("%q needs escapes in XML", enc)
		}
	})
}

func TestXMLTimeIsThatOfAppendFormat(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		at := time.UnixMilli(rapid.Int64().Draw(t, "ms")).UTC()
		require.Equal(t, at.Truncate(time.Second).Format("2006-01-02T15:04:05.000Z"), s3api.XMLTime(at))
	})
	require.Equal(t, "1970-01-01T00:00:00.000Z", s3api.XMLTime(time.UnixMilli(999)))
	require.Equal(t, "2024-02-29T23:59:59.000Z", s3api.XMLTime(time.Date(2024, 2, 29, 23, 59, 59, 999e6, time.UTC)))
}

// listBucketResult is S3's document, read by reflection.
type listBucketResult struct {
	XMLName               xml.Name `xml:"http://s3.amazonaws.com/doc/2006-03-01/ ListBucketResult"`
	Name, Prefix          string
	StartAfter            string
	ContinuationToken     string
	NextContinuationToken string
	KeyCount, MaxKeys     int
	Delimiter             string
	EncodingType          string
	IsTruncated           bool
	Contents              []struct {
		Key          string
		LastModified time.Time
		ETag         string
		Size         int64
		Owner        *struct{ ID, DisplayName string }
		StorageClass string
	}
	CommonPrefixes []struct{ Prefix string }
}

// The appended document is what encoding/xml reads back, in S3's order.
func TestListDocumentReadsBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(xmlString(), rapid.StringMatching(`[a-c/&<]{0,5}`))
		var page listing.Page
		var keys, prefixes []string
		var want []s3api.Object
		for range rapid.IntRange(0, 5).Draw(t, "items") {
			key := text.Draw(t, "key")
			item := listing.Item{Entry: listing.Entry{Key: []byte(key)}}
			if item.CommonPrefix = rapid.Bool().Draw(t, "common prefix"); item.CommonPrefix {
				prefixes = append(prefixes, key)
			} else {
				keys = append(keys, key)
				o := anyObject().Draw(t, "object")
				o.ETag = string([]rune(rapid.StringMatching(`[a-f0-9]{1,8}`).Draw(t, "etag")))
				item.Value = o.AppendRecord(nil)
				o, err := s3api.ParseRecord(item.Value)
				require.NoError(t, err)
				want = append(want, o)
			}
			page.Items = append(page.Items, item)
		}
		page.Next = listing.Token(rapid.StringMatching(`[A-Za-z0-9_-]{0,10}`).Draw(t, "next"))
		q := listing.Query{Prefix: []byte(text.Draw(t, "prefix")), Delimiter: []byte(text.Draw(t, "delimiter")),
			After: []byte(text.Draw(t, "after")), Token: "tok"}
		enc := rapid.Bool().Draw(t, "encoding-type=url")
		doc, err := s3api.ListDocument("abc", q, page, enc)
		require.NoError(t, err)

		var got listBucketResult
		require.NoError(t, xml.Unmarshal(doc, &got), "%s", doc)
		plain := func(s string) string {
			if !enc {
				return s
			}
			s, err := url.PathUnescape(s)
			require.NoError(t, err)
			return s
		}
		require.Equal(t, "abc", got.Name)
		require.Equal(t, string(q.Prefix), plain(got.Prefix))
		require.Equal(t, string(q.Delimiter), plain(got.Delimiter))
		require.Equal(t, string(q.After), plain(got.StartAfter))
		require.Equal(t, "tok", got.ContinuationToken)
		require.Equal(t, string(page.Next), got.NextContinuationToken)
		require.Equal(t, page.Next != "", got.IsTruncated)
		require.Equal(t, len(page.Items), got.KeyCount)
		require.Equal(t, 1000, got.MaxKeys)
		require.Equal(t, enc, got.EncodingType == "url")
		require.Len(t, got.Contents, len(keys))
		for i, c := range got.Contents {
			require.Equal(t, keys[i], plain(c.Key))
			require.Equal(t, `"`+want[i].ETag+`"`, c.ETag)
			require.Equal(t, want[i].Size, c.Size)
			require.True(t, want[i].Modified.Truncate(time.Second).Equal(c.LastModified))
			require.Equal(t, "STANDARD", c.StorageClass)
		}
		require.Len(t, got.CommonPrefixes, len(prefixes))
		for i, p := range got.CommonPrefixes {
			require.Equal(t, prefixes[i], plain(p.Prefix))
		}
	})
}

func TestKeysThatAreNotUTF8NeedEncodingType(t *testing.T) {
	page := listing.Page{Items: []listing.Item{{Entry: listing.Entry{Key: []byte("a\xff")}}}}
	_, err := s3api.ListDocument("abc", listing.Query{}, page, false)
	require.ErrorContains(t, err, "encoding-type=url")
	doc, err := s3api.ListDocument("abc", listing.Query{}, page, true)
	require.NoError(t, err)
	require.Contains(t, string(doc), "<Key>a%FF</Key>")
	require.True(t, utf8.Valid(doc))
}
