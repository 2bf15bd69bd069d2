package counter

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/store"
)

// keeping takes batches and keeps them.
type keeping struct{ batches []*Batch }

func (k *keeping) Flush(_ context.Context, b *Batch) ([]Hint, error) {
	kept := *b
	kept.Deltas = slices.Clone(b.Deltas)
	k.batches = append(k.batches, &kept)
	return nil, nil
}

// TestPutsAboveTheRest: a put is an append where its key is above what was the highest
// some time before; the first of all is none.
func TestPutsAboveTheRest(t *testing.T) {
	p := store.Partition{ID: store.PartitionID{1}}
	for name, c := range map[string]struct {
		rounds [][]string // keys between flushes
		above  []int64
	}{
		"the first":             {[][]string{{"m"}}, []int64{0}},
		"an empty key":          {[][]string{{"", ""}}, []int64{0}},
		"rising":                {[][]string{{"a", "b", "c"}}, []int64{2}},
		"falling":               {[][]string{{"c", "b", "a"}}, []int64{0}},
		"the same":              {[][]string{{"c", "c"}}, []int64{0}},
		"side by side, at once": {[][]string{{"a", "d", "b", "c"}}, []int64{1}},
		"above the last rounds": {[][]string{{"a"}, {"b"}, {"d", "c", "b", "a"}}, []int64{0, 1, 3}},
		"as high as then":       {[][]string{{"b"}, {"b"}, {"b", "a"}}, []int64{0, 0, 0}},
	} {
		var k keeping
		r := NewRecorder(&k, RecorderOptions{Every: -1})
		var above []int64
		for _, keys := range c.rounds {
			for i, key := range keys {
				r.Put(p, []byte(key), 1, store.Timestamp(i+1))
			}
			require.NoError(t, r.Flush(t.Context()))
			above = append(above, k.batches[len(k.batches)-1].Deltas[0].Above)
		}
		require.Equal(t, c.above, above, name)
		require.NoError(t, r.Close(t.Context()))
	}
}

func (*keeping) Forget(context.Context, ...store.Partition) error { return nil }
