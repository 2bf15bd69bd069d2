package listing

import (
	"bytes"
	"slices"
	"sort"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/cells"
	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// TestMergeAgainstAStore merges random pages, full of ties, and compares with a
// store into which the rows of both sides were put: merge must resolve each key
// as every store does, know how far it knows, and name what only the source has.
func TestMergeAgainstAStore(t *testing.T) {
	r := seed.New(t)
	ctx := t.Context()
	for range 2000 {
		src, dst, both := store.Partition{
			ID: store.PartitionID{1},
		}, store.Partition{
			ID: store.PartitionID{2},
		}, store.Partition{
			ID: store.PartitionID{3},
		}
		s := memstore.New()
		for _, p := range []store.Partition{src, dst} {
			for range r.IntN(12) {
				row := store.Row{
					Key: []byte{byte('a' + r.IntN(10))}, Value: cells.Marker(),
					Timestamp: store.Timestamp(1 + r.IntN(3)),
				}
				if r.IntN(3) > 0 {
					row.Value = store.EntryCell([]byte{byte('a' + r.IntN(3))})
				}
				require.NoError(t, s.Put(ctx, p, row))
				require.NoError(t, s.Put(ctx, both, row))
			}
		}
		o := store.SliceOptions{Limit: 1 + r.IntN(8), Reverse: r.IntN(2) == 0, Timestamps: true}
		page := func(p store.Partition, limit int) store.Page {
			o := o
			o.Limit = limit
			got, err := s.Slice(ctx, p, store.Bounds{}, o)
			require.NoError(t, err)
			return got
		}
		a, b := page(src, o.Limit), page(dst, 1+r.IntN(8))
		got := merge(a, b, o.Reverse)
		require.Equal(t, a.More || b.More, got.more)
		want := page(both, 1000).Rows
		if got.more {
			end := sort.Search(len(want), func(i int) bool {
				if o.Reverse {
					return bytes.Compare(want[i].Key, got.last) < 0
				}
				return bytes.Compare(want[i].Key, got.last) > 0
			})
			want = want[:end]
		}
		require.Equal(t, len(want), len(got.rows))
		var through []store.Row
		for i, row := range got.rows {
			require.Equal(t, want[i], row)
			old, in, err := s.Get(ctx, dst, row.Key)
			require.NoError(t, err)
			if !in || old.Timestamp != row.Timestamp || !bytes.Equal(old.Value, row.Value) {
				through = append(through, row)
			}
		}
		require.True(
			t, slices.EqualFunc(through, got.through, func(a store.Row, b late) bool { return bytes.Equal(a.Key, b.Key) }),
		)
		// Each side's page reaches at least as far as the piece says.
		for _, p := range []store.Page{a, b} {
			if p.More {
				last := p.Rows[len(p.Rows)-1].Key
				require.True(t, bytes.Equal(got.last, last) || (bytes.Compare(got.last, last) < 0) != o.Reverse)
			}
		}
	}
}
