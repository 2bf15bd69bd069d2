package s3api_test

import (
	"context"
	"encoding/xml"
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/test/race"
	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/s3api"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// deleteRange repeats the request until all is done, and returns how many that took.
func (s *server) deleteRange(query url.Values) (requests int) {
	s.t.Helper()
	query.Set("evenkeel-delete-range", "")
	query.Set("encoding-type", "url")
	for {
		requests++
		var answer struct{ NextKey *string }
		body := s.want(200, "", "POST", "/abc?"+query.Encode(), "").body
		require.NoError(s.t, xml.Unmarshal([]byte(body), &answer), body)
		if answer.NextKey == nil {
			return requests
		}
		next, err := url.PathUnescape(*answer.NextKey)
		require.NoError(s.t, err)
		require.Greater(s.t, next, query.Get("evenkeel-from"))
		query.Set("evenkeel-from", next)
	}
}

// Against an oracle, by requests that have the time for one range of the map each.
func TestRangesAreDeletedBySeveralRequests(t *testing.T) {
	seed.Each(t, race.Fewer(10), func(n uint64) bool {
		r := rand.New(rand.NewPCG(n, 1))
		c, err := listing.New(memstore.New(), listing.Options{})
		require.NoError(t, err)
		s := serve(t, s3api.Over(c), s3api.Options{SoleWriter: true})
		impatient := serve(t, hurried{s3api.Over(c)}, s3api.Options{SoleWriter: true})
		defer s.stop()
		defer impatient.stop()
		key := func(i int) string { return fmt.Sprintf("%03d\xff &", i) }
		var cuts [][]byte
		for i := 37; i < 1000; i += 37 {
			cuts = append(cuts, []byte(key(i)))
		}
		require.NoError(t, c.CreateBucket(t.Context(), "abc", cuts...))
		var want []string
		for i := range 1000 {
			if r.IntN(3) > 0 {
				want = append(want, key(i))
				require.NoError(t, c.Bucket("abc").Put(t.Context(), []byte(key(i)), nil))
			}
		}
		most := 0
		for range 8 {
			q := url.Values{}
			prefix, from, to := key(r.IntN(1000))[:r.IntN(4)], "", ""
			if r.IntN(2) == 0 {
				from = key(r.IntN(1000))
			}
			if r.IntN(2) == 0 {
				to = key(r.IntN(1000))
			}
			q.Set("prefix", prefix)
			q.Set("evenkeel-from", from)
			q.Set("evenkeel-to", to)
			most = max(most, []*server{s, impatient}[r.IntN(2)].deleteRange(q))
			want = slices.DeleteFunc(want, func(k string) bool {
				return strings.HasPrefix(k, prefix) && k >= from && (to == "" || k < to)
			})
			var got []string
			for item, err := range c.Bucket("abc").All(t.Context(), listing.Query{}) {
				require.NoError(t, err)
				got = append(got, string(item.Key))
			}
			require.True(t, slices.Equal(want, got), "%q, from %q, to %q", prefix, from, to)
		}
		require.NoError(t, c.Bucket("abc").Put(t.Context(), []byte("k"), nil))
		require.Equal(t, 1, s.deleteRange(url.Values{}), "there is time for all of them")
		require.Equal(t, len(cuts)+1, impatient.deleteRange(url.Values{}), "one by one")
		s.want(204, "", "DELETE", "/abc", "")
		return true
	})
}

func TestRangesThatAreNotDeleted(t *testing.T) {
	s := serveStore(t, memstore.New())
	s.want(404, "NoSuchBucket", "POST", "/abc?evenkeel-delete-range", "")
	s.want(404, "NoSuchBucket", "POST", "/abc?evenkeel-delete-range&evenkeel-from=b&evenkeel-to=a", "")
	s.want(200, "", "PUT", "/abc", "")
	s.want(200, "", "PUT", "/abc/k", "v")
	for _, bad := range []string{"delimiter=/", "start-after=a", "continuation-token=a", "max-keys=1",
		"evenkeel-reverse=true", "encoding-type=x", "evenkeel-from=" + strings.Repeat("k", 65536)} {
		s.want(400, "InvalidArgument", "POST", "/abc?evenkeel-delete-range&"+bad, "")
	}
	require.Contains(t, s.want(400, "InvalidArgument", "POST",
		"/abc?evenkeel-delete-range&evenkeel-from="+strings.Repeat("k", 65536), "").body, "has 65536 bytes: at most 65535.")
	require.NotContains(t, s.want(200, "", "POST", "/abc?evenkeel-delete-range&prefix=k1", "").body, "EncodingType")
	require.Contains(t, s.want(200, "", "POST", "/abc?evenkeel-delete-range&prefix=k1&encoding-type=url", "").body,
		"<EncodingType>url</EncodingType>")
	for _, nothing := range []string{"prefix=k1", "evenkeel-from=l", "evenkeel-to=k", "evenkeel-from=l&evenkeel-to=k",
		"prefix=k&evenkeel-from=l", "prefix=k&evenkeel-to=a"} {
		s.want(200, "", "POST", "/abc?evenkeel-delete-range&"+nothing, "")
	}
	s.want(501, "NotImplemented", "POST", "/abc?evenkeel-from=a", "")
	require.Equal(t, "v", s.want(200, "", "GET", "/abc/k", "").body)
}

// hurried has no time for more than one range of the map.
type hurried struct{ inner }

type hurriedBucket struct{ s3api.Bucket }

func (h hurried) Bucket(name string) s3api.Bucket { return hurriedBucket{h.inner.Bucket(name)} }

func (b hurriedBucket) DeleteRangeUntil(ctx context.Context, from, to []byte, _ time.Time) ([]byte, error) {
	return b.Bucket.DeleteRangeUntil(ctx, from, to, time.Unix(1, 0))
}
