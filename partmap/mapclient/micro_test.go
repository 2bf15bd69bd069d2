package mapclient_test

import (
	"context"
	"testing"
)

// BenchmarkMicroFind is what an operation asks of the map: the range of a key
// under a lease that is held, in a map of 100,000 ranges that is in memory.
func BenchmarkMicroFind(b *testing.B) {
	c, l, cuts := largeMap(b, 100_000, 1<<30)
	defer l.Release()
	keys := newRandomKeys(cuts, len(cuts))
	ctx := context.Background()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if _, err := c.Find(ctx, l, keys.at(i)); err != nil {
			b.Fatal(err)
		}
	}
}
