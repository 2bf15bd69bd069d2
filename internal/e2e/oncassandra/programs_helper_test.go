package oncassandra

import (
	"context"
	"testing"

	"github.com/gocql/gocql"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/store/cassandrastore"
)

// dropKeyspace drops a site's keyspace, if its node still runs.
func dropKeyspace(t *testing.T, s site) {
	ctx := context.WithoutCancel(t.Context())
	admin, err := cassandrastore.OpenAdmin(ctx, cassandrastore.Options{Hosts: []string{s.host}, Keyspace: s.keyspace})
	if err != nil {
		return
	}
	defer admin.Close()
	_ = admin.Drop(ctx)
}

// cql runs a statement as somebody else would.
func cql(t *testing.T, s site, statement string) {
	t.Helper()
	c := gocql.NewCluster(s.host)
	c.Keyspace, c.ProtoVersion = s.keyspace, 4
	session, err := c.CreateSession()
	require.NoError(t, err)
	defer session.Close()
	require.NoError(t, session.Query(statement).Exec())
}
