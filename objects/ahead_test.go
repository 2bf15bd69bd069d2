package objects_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/test/listtest"
	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/objects"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// TestReadingAheadShowsTheSame: listings that read ahead, as over a network, show of objects with many versions what
// listings do that read one piece after the other, page by page, whatever is in the keys.
func TestReadingAheadShowsTheSame(t *testing.T) {
	r, ctx := seed.New(t), t.Context()
	s := &listtest.Morsels{Store: memstore.New(), Rows: 2}
	open := func(ahead int) *objects.Bucket {
		c, err := listing.New(s, listing.Options{RowsPerRead: 1, ReadAhead: ahead, ReadAheadAfter: 1})
		require.NoError(t, err)
		if ahead == 1 {
			require.NoError(t, c.CreateBucket(ctx, "b"))
		}
		o, err := objects.New(c, &blobsInMemory{m: map[string][]byte{}}, objects.Options{})
		require.NoError(t, err)
		return o.Bucket("b", objects.Enabled)
	}
	plain := open(1)
	for i := range 400 {
		key := fmt.Appendf(nil, "%03d", i)
		if i%3 == 0 {
			key = append(append(key[:2:2], randomKey(r)...), key[2])
		}
		for range 1 + r.IntN(6) {
			if r.IntN(8) == 0 {
				_, err := plain.Delete(ctx, key)
				require.NoError(t, err)
				continue
			}
			_, err := plain.Put(ctx, key, bytes.NewReader([]byte("body")), objects.Meta{Size: -1})
			require.NoError(t, err)
		}
	}
	ahead := open(6)
	for _, delimiter := range []string{"", "/", "\x00", "\x01", "a", "ab"} {
		for range 4 {
			q := objects.Query{Delimiter: []byte(delimiter), Limit: 60 + r.IntN(300)}
			if r.IntN(3) == 0 {
				q.Prefix = []byte{'0' + byte(r.IntN(3))}
			}
			for _, versions := range []bool{false, true} {
				require.Equal(t, lines(t, plain, q, versions), lines(t, ahead, q, versions), "%q, versions %v", q, versions)
			}
		}
	}
}
