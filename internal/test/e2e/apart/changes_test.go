package apart

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// changes measures what changes of names and maps take at a distance, one after the other. They go through lightweight
// transactions of all data centres and wait for acknowledgements from each, so they take multiples of the distance:
// fewer with paxos_variant v2.
func (b *bed) changes(t *testing.T) {
	const check, bucket = "changes", "changes"
	b.cluster.Link.SetDistance(b.distance)
	s := b.serve(t, b.sites[0])
	b.bucket(t, s, bucket)
	fill(t, s, bucket)
	leading(t, []*server{s})
	var created, split, merged []time.Duration
	took := func(times *[]time.Duration, do func()) {
		begun := time.Now()
		do()
		*times = append(*times, time.Since(begun))
	}
	move := func(what, flag, at string) {
		b.programs(t, s.site).Run("rebalancer", what, bucket, flag, at, "--admin", s.admin, "--progress", "none")
	}
	for i := range 5 {
		took(&created, func() {
			_, err := s.request(t.Context(), http.MethodPut, fmt.Sprintf("%s/created-%d", s.s3, i), "")
			require.NoError(t, err)
		})
	}
	for i := range 3 {
		took(&split, func() { move("split", "--at", filledKey((i+1)*filled/4)) })
	}
	took(&merged, func() { move("merge", "--range", "..") })
	b.report.add(check, "a bucket is created, p50", milliseconds(quantile(created, 0.5)), "ms")
	b.report.add(check, "a split, p50", quantile(split, 0.5).Seconds(), "s")
	b.report.add(check, "a merge of four ranges", merged[0].Seconds(), "s")
}
