package oncassandra

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/s3api"
	"github.com/evenkeel/evenkeel/store/pebblestore"
)

// BenchmarkHTTPPage reads pages of 1,000 objects through HTTP, over loopback and up
// to the last byte, and with the library, in turns, on both stores: objects without
// bodies, which is what listd is for, and with inline bodies of 4 KiB. x-bare is the
// HTTP page's time over the library call's. (listd serves without keys, as here.)
func BenchmarkHTTPPage(b *testing.B) {
	for _, kind := range []string{"pebble", "cassandra"} {
		b.Run(kind, func(b *testing.B) {
			var c *listing.Client
			if kind == "cassandra" {
				c = newRig(b, benchKeys(httpRows)[httpRows/2]).client
			} else {
				s, err := pebblestore.Open(b.TempDir(), pebblestore.Options{NoSync: true})
				require.NoError(b, err)
				b.Cleanup(func() { require.NoError(b, s.Close()) })
				c, err = listing.New(s, listing.Options{})
				require.NoError(b, err)
			}
			none, bodies := newHTTPPages(b, c, "objects", 0), newHTTPPages(b, c, "bodies", 4<<10)
			b.Run("no-bodies", func(b *testing.B) { inTurns(b, 300, "page", none.http, none.library) })
			b.Run("bodies=4KiB", func(b *testing.B) { inTurns(b, 100, "page", bodies.http, bodies.library) })
			// What inline bodies cost a page: here bare is the page of objects without.
			b.Run("bodies=4KiB-against-none", func(b *testing.B) { inTurns(b, 50, "page", bodies.http, none.http) })
		})
	}
}

// httpRows is how many objects a bucket has.
const httpRows = 6_000

// httpPages reads pages of one bucket.
type httpPages struct {
	bucket *listing.Bucket
	url    string
	keys   [][]byte
	rnd    *rand.Rand
}

// newHTTPPages fills a bucket of two ranges and serves it.
func newHTTPPages(b *testing.B, c *listing.Client, name string, body int) *httpPages {
	keys := benchKeys(httpRows)
	require.NoError(b, c.CreateBucket(b.Context(), name, keys[httpRows/2]))
	bucket := c.Bucket(name)
	o := s3api.Object{
		Modified: time.Now(), ContentType: "image/jpeg", External: true, Size: 123_456,
		ETag:    "9e107d9d372bb6826bd81d3542a419d6",
		Headers: []s3api.Header{{Name: "x-amz-meta-mtime", Value: "1700000000.123456789"}},
	}
	if body > 0 {
		o.External, o.Body = false, []byte(strings.Repeat("x", body))
	}
	var entries []listing.Entry
	for _, key := range keys {
		if entries = append(entries, listing.Entry{Key: key, Value: o.AppendRecord(nil)}); len(entries) == 500 {
			require.NoError(b, bucket.PutBatch(b.Context(), entries))
			entries = nil
		}
	}
	h, err := s3api.New(s3api.Over(c), s3api.Options{})
	require.NoError(b, err)
	server := httptest.NewServer(h)
	b.Cleanup(server.Close)
	return &httpPages{bucket: bucket, url: server.URL + "/" + name, keys: keys, rnd: rand.New(rand.NewPCG(1, 1))}
}

const httpPage = 1000

// after is the key behind which a page begins that does not reach across a range's
// end.
func (p *httpPages) after() []byte {
	const half = httpRows / 2
	return p.keys[p.rnd.IntN(2)*half+p.rnd.IntN(half-httpPage-1)]
}

func (p *httpPages) library() error {
	page, err := p.bucket.List(context.Background(), listing.Query{After: p.after(), Limit: httpPage})
	if err == nil && len(page.Items) != httpPage {
		err = fmt.Errorf("a page of %d", len(page.Items))
	}
	return err
}

func (p *httpPages) http() error {
	resp, err := http.Get(p.url + "?list-type=2&encoding-type=url&start-after=" + url.QueryEscape(string(p.after())))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	n, err := io.Copy(io.Discard, resp.Body)
	if err == nil && (resp.StatusCode != 200 || n < 200*httpPage) {
		err = fmt.Errorf("%d with %d bytes", resp.StatusCode, n)
	}
	return err
}
