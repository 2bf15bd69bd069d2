package apart

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/test/e2e/harness"
)

// cut cuts the link for a while, as both data centres write: neither notices, and afterwards
// everything that was acknowledged is listed in both.
func (b *bed) cut(t *testing.T) {
	const check, bucket, workers = "a cut", "cut", 2
	b.cluster.Link.SetDistance(b.distance)
	servers := []*server{b.serve(t, b.sites[0]), b.serve(t, b.sites[1])}
	b.bucket(t, servers[0], bucket)
	fill(t, servers[0], bucket)
	work(t, servers, bucket, workers, busy, 5*time.Second)

	b.cluster.Link.Cut()
	loads := work(t, servers, bucket, workers, busy, b.cutFor)
	b.tell(check, "cut", servers, loads)
	b.cluster.Link.Heal()
	for i := range servers {
		require.Empty(t, loads[i].failed())
	}
	keys := acknowledged(loads)
	require.NotEmpty(t, keys)
	begun := time.Now()
	for _, s := range servers {
		var lacks []string
		harness.Eventually(t, "what was acknowledged in both data centres is listed in "+s.name, func() bool {
			listed, err := s.all(t.Context(), bucket)
			require.NoError(t, err)
			lacks = missing(listed, keys)
			return len(lacks) == 0
		})
	}
	b.report.add(check, "keys acknowledged while cut, and listed on both sides", float64(len(keys)), "")
	b.report.add(check, "time until they were, after the link was back", time.Since(begun).Seconds(), "s")
}
