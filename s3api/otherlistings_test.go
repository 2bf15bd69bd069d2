package s3api_test

import (
	"encoding/xml"
	"fmt"
	"math/rand/v2"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/s3api"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// otherListing is the document of ListObjects or ListObjectVersions.
type otherListing struct {
	XMLName                         xml.Name
	Name, Prefix, Delimiter         string
	Marker, NextMarker              *string
	KeyMarker, NextKeyMarker        *string
	VersionIdMarker                 *string
	NextVersionIdMarker             *string
	MaxKeys                         int
	EncodingType                    string
	IsTruncated                     bool
	KeyCount, NextContinuationToken *string
	Contents, Version               []struct {
		Key, ETag, VersionId, IsLatest, StorageClass string
		Size                                         int64
		Owner                                        *struct{ ID string }
	}
	CommonPrefixes []struct{ Prefix string }
}

// marked is what a listing by marker lists: what is beyond the marker, and
// nothing under it if it is a common prefix itself.
func (m model) marked(q modelQuery) []line {
	rest, under := strings.CutPrefix(q.startAfter, q.prefix)
	at := strings.Index(rest, q.delimiter)
	if q.delimiter == "" || !under || at < 0 || at+len(q.delimiter) < len(rest) {
		return m.list(q)
	}
	beyond := model{}
	for k, v := range m {
		if k > q.startAfter && !strings.HasPrefix(k, q.startAfter) {
			beyond[k] = v
		}
	}
	return beyond.list(modelQuery{prefix: q.prefix, delimiter: q.delimiter})
}

// TestOtherListingsAgainstAModel pages through random queries of ListObjects and
// ListObjectVersions as clients do, and compares with the model's.
func TestOtherListingsAgainstAModel(t *testing.T) {
	rnd := seed.New(t)
	s := serveStore(t, memstore.New())
	for round := range 4 {
		bucket := fmt.Sprintf("bucket-%d", round)
		raw := round%2 == 1
		m := fillBucket(s, rnd, bucket, raw)
		for range *queries {
			q := randomQuery(rnd, raw)
			q.from, q.to, q.reverse = "", "", false
			if rnd.IntN(4) == 0 && len(m) > 0 {
				lines := m.list(modelQuery{prefix: q.prefix, delimiter: q.delimiter})
				if len(lines) > 0 {
					q.startAfter = lines[rnd.IntN(len(lines))].text
				}
			}
			s.checkOther(rnd, bucket, m, q, rnd.IntN(2) == 0)
		}
	}
}

func (s *server) checkOther(rnd *rand.Rand, bucket string, m model, q modelQuery, versions bool) {
	t := s.t
	t.Helper()
	maxKeys := []int{1, 2, 3, 7, 1000, 5000}[rnd.IntN(6)]
	want := m.marked(q)
	v := url.Values{"max-keys": {strconv.Itoa(maxKeys)}, "encoding-type": {"url"}}
	if q.delimiter != "" || rnd.IntN(2) == 0 {
		v.Set("delimiter", q.delimiter)
	}
	if q.prefix != "" || rnd.IntN(2) == 0 {
		v.Set("prefix", q.prefix)
	}
	marker := "marker"
	if versions {
		marker = "key-marker"
		v.Set("versions", "")
	}
	if q.startAfter != "" || rnd.IntN(2) == 0 {
		v.Set(marker, q.startAfter)
	}
	plain := func(s string) string {
		s, err := url.PathUnescape(s)
		require.NoError(t, err)
		return s
	}
	for {
		uri := "/" + bucket + "?" + v.Encode()
		var d otherListing
		require.NoError(t, xml.Unmarshal([]byte(s.want(200, "", "GET", uri, "").body), &d), uri)
		require.Equal(t, []string{bucket, q.prefix, q.delimiter}, []string{d.Name, plain(d.Prefix), plain(d.Delimiter)},
			uri)
		require.Nil(t, d.KeyCount)
		require.Nil(t, d.NextContinuationToken)
		entries, echo := d.Contents, d.Marker
		if versions {
			entries, echo = d.Version, d.KeyMarker
			require.Equal(t, v.Get("version-id-marker"), *d.VersionIdMarker, uri)
		}
		require.Equal(t, v.Get(marker), plain(*echo), uri)
		require.Equal(t, min(maxKeys, 1000), d.MaxKeys)
		page := want[:min(len(want), d.MaxKeys)]
		want = want[len(page):]
		var keys, prefixes []string
		for _, l := range page {
			if l.prefix {
				prefixes = append(prefixes, l.text)
			} else {
				keys = append(keys, l.text)
			}
		}
		var gotKeys, gotPrefixes []string
		for _, c := range entries {
			key := plain(c.Key)
			gotKeys = append(gotKeys, key)
			o := s3api.Object{Body: []byte(m[key])}
			o, err := s3api.ParseRecord(o.AppendRecord(nil))
			require.NoError(t, err)
			require.Equal(t, []string{`"` + o.ETag + `"`, "STANDARD", "evenkeel"},
				[]string{c.ETag, c.StorageClass, c.Owner.ID},
				uri)
			if versions {
				require.Equal(t, "null true", c.VersionId+" "+c.IsLatest)
			}
		}
		for _, p := range d.CommonPrefixes {
			gotPrefixes = append(gotPrefixes, plain(p.Prefix))
		}
		require.Equal(t, keys, gotKeys, uri)
		require.Equal(t, prefixes, gotPrefixes, uri)
		require.Equal(t, len(want) > 0, d.IsTruncated, uri)
		if !d.IsTruncated {
			require.Nil(t, d.NextMarker)
			require.Nil(t, d.NextKeyMarker)
			return
		}
		last := page[len(page)-1]
		switch {
		case versions:
			require.Equal(t, last.text, plain(*d.NextKeyMarker), uri)
			require.Equal(t, last.prefix, d.NextVersionIdMarker == nil, uri)
			v.Del("version-id-marker")
			if !last.prefix {
				v.Set("version-id-marker", *d.NextVersionIdMarker)
			}
		case q.delimiter != "":
			require.Equal(t, last.text, plain(*d.NextMarker), uri)
		default:
			require.Nil(t, d.NextMarker, "without a delimiter S3 sends none")
		}
		v.Set(marker, last.text)
	}
}

func TestParametersOfOtherListings(t *testing.T) {
	s := serveStore(t, memstore.New())
	s.want(200, "", "PUT", "/abc", "")
	for _, k := range []string{"a", "b/1", "b/2", "c"} {
		s.want(200, "", "PUT", "/abc/"+k, "v")
	}
	for what, marker := range map[string]string{"": "marker", "versions&": "key-marker"} {
		for _, bad := range []string{"max-keys=-1", "max-keys=x", "encoding-type=base64"} {
			s.want(400, "InvalidArgument", "GET", "/abc?"+what+bad, "")
		}
		for _, other := range []string{"evenkeel-reverse=true", "evenkeel-from=a", "evenkeel-to=a"} {
			s.want(501, "NotImplemented", "GET", "/abc?"+what+other, "")
		}
		require.Contains(t, s.want(200, "", "GET", "/abc?"+what+"max-keys=0", "").body,
			"<MaxKeys>0</MaxKeys><IsTruncated>false</IsTruncated></List")
		s.want(404, "NoSuchBucket", "GET", "/none?"+what, "")
		s.want(404, "NoSuchBucket", "GET", "/none?"+
			what+"prefix=%FF&delimiter=%FF&encoding-type=url&"+marker+"=%FF%FF", "")
	}
	for _, bad := range []string{"version-id-marker=null", "version-id-marker=1&key-marker=a"} {
		s.want(400, "InvalidArgument", "GET", "/abc?versions&"+bad, "")
	}
	require.True(t, utf8.ValidString(s.want(200, "", "GET", "/abc?marker=b/&delimiter=/", "").body))
	require.Contains(t, s.do("GET", "/abc?marker=b/&delimiter=/", "").body,
		"<IsTruncated>false</IsTruncated><Contents><Key>c</Key>")
	require.Contains(t, s.do("GET", "/abc?marker=b/1&delimiter=/", "").body, "<Prefix>b/</Prefix>")
	require.Contains(t, s.want(200, "", "GET", "/abc?versioning", "").body,
		`<VersioningConfiguration xmlns="http://s3.amazonaws.com/doc/2006-03-01/"></VersioningConfiguration>`)
	s.want(404, "NoSuchBucket", "GET", "/none?versioning", "")
	require.NotContains(t, s.want(200, "", "GET", "/?bucket-region=eu-west-1", "").body, "<Bucket>")
	require.Contains(t, s.want(200, "", "GET", "/?bucket-region=us-east-1", "").body, "<Name>abc</Name>")
}

// A page without a token has an item, however long that takes: else nobody could
// go on from it.
func TestPagesByMarkerGoOnUntilThereIsAnItem(t *testing.T) {
	item := listing.Item{Entry: listing.Entry{Key: []byte("a")}}
	f := &faulty{pages: []listing.Page{{Next: "t1"}, {Next: "t2"}, {Items: []listing.Item{item}, Next: "t3"}}}
	s := serve(t, f, s3api.Options{})
	body := s.want(200, "", "GET", "/abc?max-keys=1&delimiter=/", "").body
	require.Contains(t, body, "<NextMarker>a</NextMarker>")
	require.Contains(t, body, "<IsTruncated>true</IsTruncated>")
}
