package counter

import (
	"context"
	"fmt"
	"testing"

	"github.com/evenkeel/evenkeel/store"
)

// BenchmarkMicroRecord records puts of 16,000 keys in turn, each in its own of 100
// partitions, between two flushes.
func BenchmarkMicroRecord(b *testing.B) {
	r := NewRecorder(&sink{}, RecorderOptions{Every: -1})
	defer r.Close(context.Background())
	all, keys := partitions(100), make([][]byte, 16_000)
	for i := range keys {
		keys[i] = fmt.Appendf(nil, "photos/2024/%02d/%02d/IMG_%08d.jpg", i%12, i%28, i*7919)
	}
	record := func(i int) { r.Put(all[i%len(all)], keys[i%len(keys)], 150, store.Timestamp(i+1)) }
	for i := range keys { // what comes up first after a flush allocates its place
		record(i)
	}
	b.ReportAllocs()
	for i := len(keys); b.Loop(); i++ {
		record(i)
	}
}
