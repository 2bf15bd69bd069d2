package oncassandra

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/test/e2e/harness"
	"github.com/evenkeel/evenkeel/listing"
)

// BenchmarkReadAhead lists 1,000 common prefixes of 10 to 1,000 keys each, in
// turns with a client that reads nothing ahead, which stands for the bare one.
func BenchmarkReadAhead(b *testing.B) {
	const prefixes, ranges = 1000, 20
	for _, each := range []int{10, 100, 250, 1000} {
		b.Run(fmt.Sprintf("keys=%d", each), func(b *testing.B) {
			name := func(i int) []byte { return fmt.Appendf(nil, "customer-%04d/photo-%08d.jpg", i/each, i) }
			var cuts [][]byte
			for i := 1; i < ranges; i++ {
				cuts = append(cuts, name(i*prefixes*each/ranges+each/3))
			}
			x := newRig(b, cuts...)
			var entries []listing.Entry
			for i := range prefixes * each {
				entries = append(entries, listing.Entry{Key: name(i), Value: benchValue})
			}
			for some := range slices.Chunk(entries, 10_000) {
				require.NoError(b, x.bucket.PutBatch(b.Context(), some))
			}
			list := func(o listing.Options) func() error {
				bucket := harness.Client(b, x.store, x.maps, o).Bucket("bench")
				return func() error {
					got, err := bucket.List(b.Context(), listing.Query{Delimiter: []byte("/")})
					if err == nil && len(got.Items) != prefixes {
						err = fmt.Errorf("%d common prefixes", len(got.Items))
					}
					return err
				}
			}
			inTurns(b, 20, "list", list(listing.Options{}), list(listing.Options{ReadAhead: 1}))
		})
	}
}
