package mapclient_test

import (
	"context"
	"testing"

	"github.com/evenkeel/evenkeel/internal/test/mapbench"
)

// BenchmarkMicroFind is what an operation asks of the map: the range of a key
// under a lease that is held, in a map of 100,000 ranges that is in memory.
func BenchmarkMicroFind(b *testing.B) {
	m := largeMap(b, 100_000, 1<<30)
	defer m.Lease.Release()
	keys := mapbench.NewKeys(m.Cuts, len(m.Cuts))
	ctx := context.Background()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if err := m.Find(ctx, keys.At(i)); err != nil {
			b.Fatal(err)
		}
	}
}
