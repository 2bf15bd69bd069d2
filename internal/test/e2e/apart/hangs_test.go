package apart

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// hangs stops one of three nodes in its tracks (as a long pause for garbage, or a dead disk, does):
// two are a quorum, so requests go on, and none fails.
func (b *bed) hangs(t *testing.T) {
	const check, bucket, workers, measured = "a node that hangs", "hangs", 6, 20 * time.Second
	// least is the share of requests that have to go on. Until the other nodes take the hung one for
	// down, a third of all waits for a second attempt.
	const least = 0.2
	servers := []*server{b.serve(t, b.sites[0])}
	b.bucket(t, servers[0], bucket)
	fill(t, servers[0], bucket)
	work(t, servers, bucket, workers, 5*time.Second)
	before := work(t, servers, bucket, workers, measured)
	require.Empty(t, before[0].failed())

	node := b.cluster.Nodes[1]
	require.Equal(t, "dc1", node.DataCentre)
	require.NoError(t, node.Pause())
	hung := work(t, servers, bucket, workers, measured)
	require.NoError(t, node.Resume())

	for _, kind := range kinds {
		for when, l := range map[string]load{"undisturbed": before[0], "hung": hung[0]} {
			b.report.add(check, when+": slowest "+kind, milliseconds(slices.Max(append(l[kind].took, 0))), "ms")
		}
	}
	share := float64(hung[0].completed()) / float64(before[0].completed())
	b.report.add(check, "requests in 20 s, undisturbed", float64(before[0].completed()), "")
	b.report.add(check, "requests in 20 s, hung", float64(hung[0].completed()), "")
	b.report.add(check, "requests that failed", float64(len(hung[0].failed())), "")
	if share < least {
		t.Errorf("%.1f %% of the requests of an undisturbed time went on", 100*share)
	}
	if failed := hung[0].failed(); len(failed) > 0 {
		t.Errorf("%d requests failed, such as: %s", len(failed), failed[0])
	}
}
