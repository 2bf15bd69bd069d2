package oncassandra

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/internal/test/e2e/harness"
	"github.com/evenkeel/evenkeel/internal/timestamps"
	"github.com/evenkeel/evenkeel/listing"
)

// BenchmarkCommonTime compares puts with timestamps of the common time, which wait for
// them to pass, with puts whose timestamps are those of this machine's wall clock.
func BenchmarkCommonTime(b *testing.B) {
	for _, workers := range []int{1, 64} {
		b.Run(fmt.Sprintf("workers=%d", workers), func(b *testing.B) {
			x := newRig(b)
			own := harness.Client(b, x.store, x.maps, listing.Options{Timestamps: timestamps.New(nil)}).Bucket("bench")
			servers, err := x.store.Servers(b.Context())
			require.NoError(b, err)
			for range 20_000 { // the server compiles what is hot, as it has after some minutes of writes
				_, err := x.store.Time(b.Context(), servers[0].Name)
				require.NoError(b, err)
			}
			value, puts := make([]byte, 100), 0
			one := func(to *listing.Bucket) func() error {
				return func() error {
					var g errgroup.Group
					for range workers {
						puts++
						key := fmt.Appendf(nil, "key/%09d", puts)
						g.Go(func() error {
							for range 20 {
								if err := to.Put(b.Context(), key, value); err != nil {
									return err
								}
							}
							return nil
						})
					}
					return g.Wait()
				}
			}
			inTurns(b, 50, "puts", one(x.bucket), one(own))
			counts, status := x.maps.Time().Counts(), x.maps.Time().Status()
			require.Zero(b, counts.Refusals)
			b.ReportMetric(float64(status.Width.Microseconds()), "width-µs")
			b.ReportMetric(float64(counts.Waits)/float64(puts*20/2), "waits/put")
			if counts.Waits > 0 {
				b.ReportMetric(float64(counts.Waited.Microseconds())/float64(counts.Waits), "µs/wait")
			}
		})
	}
}
