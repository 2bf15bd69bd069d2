package apart

import (
	"fmt"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/stretchr/testify/require"
)

// tenant has others create, alter and drop keyspaces with copies in one data centre, in the other,
// and in both. That is none of our business: servers of both data centres go on.
func (b *bed) tenant(t *testing.T) {
	const bucket = "tenant"
	servers := []*server{b.serve(t, b.sites[0]), b.serve(t, b.sites[1])}
	b.bucket(t, servers[0], bucket)
	fill(t, servers[0], bucket)
	work(t, servers, bucket, 1, busy, 5*time.Second) // so that each knows both data centres

	c := gocql.NewCluster(b.sites[0].hosts...)
	c.ProtoVersion, c.Timeout = 4, time.Minute
	c.HostFilter = gocql.DataCentreHostFilter(b.sites[0].name)
	other, err := c.CreateSession()
	require.NoError(t, err)
	t.Cleanup(other.Close)
	copies := []string{"'dc1': 1", "'dc2': 1", "'dc1': 1, 'dc2': 1"}
	for n, do := range []string{"CREATE", "ALTER", "DROP"} {
		for i := range copies {
			statement := fmt.Sprintf("%s KEYSPACE other%d", do, i)
			if do != "DROP" {
				statement += " WITH replication = {'class': 'NetworkTopologyStrategy', " + copies[(i+n)%len(copies)] + "}"
			}
			require.NoError(t, other.Query(statement).Exec(), statement)
		}
		// The driver gathers what changed for a second.
		loads := work(t, servers, bucket, 1, busy, 5*time.Second)
		for i, s := range servers {
			s.lives(t)
			require.Empty(t, loads[i].failed(), "after %s KEYSPACE", do)
		}
	}
	b.report.add("keyspaces of others", "statements that both servers outlived", float64(3*len(copies)), "")
}
