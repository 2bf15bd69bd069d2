package pebblestore

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/store"
)

// TestStretchesArePassedOver whatever their length: by reading, by a search, and by a search at once.
func TestStretchesArePassedOver(t *testing.T) {
	s, err := openDirectory(t.TempDir(), Options{NoSync: true})
	require.NoError(t, err)
	defer s.Close()
	p := store.Partition{Bucket: store.BucketID{1}, ID: store.PartitionID{1}}
	var want []string
	for i, n := range []int{1, 2, fewNexts, fewNexts + 1, 40, 3, 1, 40, 1, 2, 16, 17, 18, 40, 40, 1, 2, 3, 4, 5, 50, 60} {
		for k := range n {
			key := fmt.Sprintf("%c%02d", 'a'+i, k)
			if i == 20 {
				key = "\x80" + key[1:] // no UTF-8
			}
			if i == 21 {
				key = "\xff" + key[1:] // nothing is above all that begins so
			}
			if k == 0 {
				want = append(want, key)
			}
			require.NoError(t, s.Put(t.Context(), p, store.Row{Key: []byte(key), Value: []byte{1}, Timestamp: 1}))
		}
	}
	sift := func(_, value []byte) (pass, keep int) { return 1, len(value) }
	page, err := s.Slice(t.Context(), p, store.Bounds{}, store.SliceOptions{Limit: 1000, Sift: sift})
	require.NoError(t, err)
	var got []string
	for _, row := range page.Rows {
		got = append(got, string(row.Key))
	}
	require.Equal(t, want, got)
	require.False(t, page.More)
}
