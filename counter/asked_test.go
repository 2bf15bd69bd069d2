package counter

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/store"
)

// Of the requests between two flushes the ninth is the first one that is sampled, then four at most, each 1 to 31
// requests after the one before, and of each key 256 bytes.
func TestRequestsThatARecorderSamples(t *testing.T) {
	draw, f := seed.New(t), &flushes{}
	r := NewRecorder(f, RecorderOptions{Every: -1})
	keys := make([][]byte, 200)
	for i := range keys {
		keys[i] = fmt.Appendf(nil, "%0256dend", i)
	}
	const each = 300 // partitions
	for range each {
		var p store.Partition
		binary.BigEndian.PutUint64(p.ID[:], draw.Uint64())
		binary.BigEndian.PutUint64(p.ID[8:], draw.Uint64())
		for i, key := range keys {
			switch i % 3 {
			case 0:
				r.Put(p, key, 1, 1)
			case 1:
				r.Delete(p, key, 1, false)
			case 2:
				r.Read(p, key)
			}
		}
	}
	require.NoError(t, r.Flush(t.Context()))
	steps := map[int]int{}
	for _, b := range f.batches {
		for _, d := range b.Deltas {
			require.Len(t, d.Asked, 4)
			at := make([]int, 4)
			for i, key := range d.Asked {
				at[i] = slices.IndexFunc(keys, func(k []byte) bool { return bytes.Equal(k[:256], key) })
			}
			require.Equal(t, 8, at[0])
			for i := range at[1:] {
				steps[at[i+1]-at[i]]++
			}
		}
	}
	for step, n := range steps {
		require.True(t, step >= 1 && step <= 31, "%d requests after the one before", step)
		require.InDelta(t, 3*each/31.0, n, 45, "seldom or often: %d", step) // 8 standard deviations
	}
	require.Len(t, steps, 31)
}
