package s3api_test

import (
	"context"
	"fmt"
	"sort"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/test/race"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/objects"
	"github.com/evenkeel/evenkeel/s3api"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// TestMemoryThatRequestsNeed: the fewest bytes of either kind with which each request is served, as
// testdata/needs.txt has them; and when the server was busy, and not. With fewer bytes it is told so. If a
// number changes on purpose, run go test ./s3api -run MemoryThatRequestsNeed -update.
func TestMemoryThatRequestsNeed(t *testing.T) {
	race.Skip(t)
	requests := []wanted{
		{"PUT /abc/k?acl", "", []string{"x-amz-acl", "private"}}, {"PUT /abe?evenkeel-cuts", "a\nb", nil}, {"GET /", "", nil},
	}
	for _, bucket := range []string{"abc", "plain"} {
		for _, key := range []string{"4096", "4097", "65536", "65537"}[:map[string]int{"abc": 4, "plain": 2}[bucket]] {
			at := "/" + bucket + "/" + key
			requests = append(requests, wanted{"GET " + at, "", nil}, wanted{"HEAD " + at, "", nil},
				wanted{"GET " + at, "", []string{"Range", "bytes=1-4096"}}, wanted{"GET " + at, "", []string{"Range", "bytes=1-"}},
				wanted{"PUT /abc/k", "", []string{"x-amz-copy-source", at}},
				wanted{"PUT /abc/up?partNumber=1&uploadId={1}", "", []string{"x-amz-copy-source", at}})
		}
		for _, n := range []int{0, 1, 4096, 4097, 65536, 65537} {
			requests = append(requests, wanted{"PUT /" + bucket + "/k", strings.Repeat("x", n), nil})
		}
		for _, query := range []string{
			"?list-type=2", "?list-type=2&max-keys=1", "?list-type=2&max-keys=40", "?versions", "?versions&max-keys=10",
			"?evenkeel-splits=3",
		} {
			requests = append(requests, wanted{"GET /" + bucket + query, "", nil})
		}
		const one = "<Delete><Object><Key>none</Key></Object></Delete>"
		requests = append(requests, wanted{"PUT /plain/k", "", []string{"x-amz-copy-source", "/" + bucket + "/4097"}},
			wanted{"POST /" + bucket + "?delete", one, []string{"Content-MD5", md5Of(one)}},
			wanted{"PUT /" + bucket + "?acl", "", []string{"x-amz-acl", "private"}})
	}
	for _, n := range []string{"", "0", "1", "40", "1000", "1001"} {
		requests = append(requests, wanted{"GET /abc?uploads&max-uploads=" + n, "", nil},
			wanted{"GET /abc/up?uploadId={1}&max-parts=" + n, "", nil}, wanted{"GET /abc/4096?attributes", "",
				[]string{"x-amz-object-attributes", "ETag", "x-amz-max-parts", n}})
	}
	requests = append(requests,
		wanted{"PUT /abc/k?tagging", tagging("a", "1"), nil}, wanted{"PUT /abc?lifecycle", lifecycle(rule("1", inDays)), nil},
		wanted{"PUT /abc?versioning", "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>", nil},
		wanted{"PUT /abc/up?partNumber=1&uploadId={1}", "hello", nil},
		wanted{"PUT /abc/up?partNumber=1&uploadId={1}", strings.Repeat("x", 70_000), nil},
		wanted{"POST /abc/up?uploadId={1}", completion([]string{"x"}), nil},
		wanted{"PUT /abd", "<CreateBucketConfiguration></CreateBucketConfiguration>", nil})
	var all strings.Builder
	synctest.Test(t, func(t *testing.T) { // who finds no memory waits for a second
		st := memstore.New()
		defer func() { require.NoError(t, st.Close()) }()
		c, err := listing.New(st, listing.Options{})
		require.NoError(t, err)
		o, err := objects.New(c, &brokenBlobs{m: map[string][]byte{}}, objects.Options{})
		require.NoError(t, err)
		busy := ""
		h, err := s3api.New(s3api.Over(c), s3api.Options{
			SoleWriter: true, Objects: o, MemoryBytes: 16 << 20, MaxBodyBytes: 100_000,
			Busy: func(_ context.Context, now bool) { busy += map[bool]string{true: "+", false: "-"}[now] },
		})
		require.NoError(t, err)
		l := &letters{t: t, h: h, ids: map[string]string{}, now: time.Now()}
		l.ask("PUT /abc", "")
		l.ask("PUT /plain", "", "x-evenkeel-bucket-kind", "plain")
		for _, call := range []string{
			"PUT /abc/4096", "PUT /abc/4097", "PUT /abc/65536", "PUT /abc/65537", "PUT /plain/4096", "PUT /plain/4097",
		} {
			var n int
			_, err := fmt.Sscan(call[strings.LastIndexByte(call, '/')+1:], &n)
			require.NoError(t, err)
			l.ask(call, strings.Repeat("x", n))
		}
		l.ask("POST /abc/up?uploads", "")
		served := func(w wanted, small, large int) bool {
			defer h.Leave(int64(small), int64(large))()
			return !strings.Contains(l.ask(w.call, w.body, w.headers...), "<Code>SlowDown</Code>")
		}
		const most = 12 << 20
		for _, w := range requests {
			small, large := 0, 0
			if !served(w, 0, 0) {
				small = sort.Search(most, func(n int) bool { return served(w, n, most) })
				large = sort.Search(most, func(n int) bool { return served(w, most, n) })
			}
			busy = ""
			status, _, _ := strings.Cut(l.ask(w.call, w.body, w.headers...), "\n")
			fmt.Fprintf(&all, "%s %q %d bytes: %d small, %d large, %s %s\n", w.call, w.headers, len(w.body), small,
				large, busy, status)
		}
	})
	same(t, "testdata/needs.txt", all.String())
}
