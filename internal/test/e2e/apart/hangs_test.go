package apart

import (
	"testing"
	"time"

	"github.com/gocql/gocql"
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
	work(t, servers, bucket, workers, busy, 5*time.Second)
	begun, _ := b.answered(t, servers[0].site)
	before := work(t, servers, bucket, workers, busy, measured)
	require.Empty(t, before[0].failed())

	// A node that answers nothing would prove nothing.
	ended, control := b.answered(t, servers[0].site)
	hangs := 0
	for i := range ended {
		ended[i] -= begun[i]
		if ended[i] > ended[hangs] {
			hangs = i
		}
	}
	t.Logf("the nodes have answered %d requests, control connection: %v; number %d hangs", ended, control, hangs)
	node := b.cluster.Nodes[hangs] // those of dc1 are the first
	require.Equal(t, servers[0].hosts[hangs], node.Address)
	require.NoError(t, node.Pause())
	hung := work(t, servers, bucket, workers, busy, measured)
	require.NoError(t, node.Resume())

	for _, kind := range kinds {
		b.report.add(check, "undisturbed: slowest "+kind, milliseconds(quantile(before[0][kind].took, 1)), "ms")
		b.report.add(check, "hung: slowest "+kind, milliseconds(quantile(hung[0][kind].took, 1)), "ms")
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

// answered is how many requests over the keyspace each node of a data centre has answered, and on
// which of them the driver of a server hears of changes of the cluster.
func (b *bed) answered(t *testing.T, at *site) (requests []int64, control []bool) {
	t.Helper()
	for _, host := range at.hosts {
		c := gocql.NewCluster(host)
		c.ProtoVersion, c.Timeout, c.DisableInitialHostLookup = 4, time.Minute, true
		s, err := c.CreateSession()
		require.NoError(t, err)
		rows := s.Query("SELECT address, keyspace_name, request_count FROM system_views.clients").Iter()
		var from, keyspace string
		var n, sum int64
		controlled := false
		for rows.Scan(&from, &keyspace, &n) {
			switch {
			case from == b.cluster.Machine(at.number): // this test
			case keyspace == b.keyspace:
				sum += n
			default:
				controlled = true
			}
		}
		require.NoError(t, rows.Close())
		s.Close()
		requests, control = append(requests, sum), append(control, controlled)
	}
	return requests, control
}
