package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon"
	"github.com/evenkeel/evenkeel/internal/test/cassandratest"
	"github.com/evenkeel/evenkeel/internal/test/e2e/harness"
	"github.com/evenkeel/evenkeel/store/cassandrastore"
)

var cassandra cassandratest.Shared

func TestMain(m *testing.M) { os.Exit(cassandra.Run(m)) }

func TestSchemaIsPrintedWithReasons(t *testing.T) {
	t.Parallel()
	code, out, errs := ran(t, 0, "", "schema", "print", "--keyspace", "listings", "--replication", "east=3,west=2")
	require.Equal(t, 0, code, errs)
	require.Contains(t, out, "'NetworkTopologyStrategy', 'east': 3, 'west': 2")
	for _, table := range cassandrastore.Tables() {
		require.Contains(t, out, "CREATE TABLE IF NOT EXISTS listings."+table.Name+" (")
	}

	for _, bad := range [][]string{
		{"print"},
		{"print", "--replication", "east=0"},
		{"print", "--replication", "east=3", "--keyspace", "No"},
		{"check"},
	} {
		code, _, errs := ran(t, 0, "", append([]string{"schema"}, bad...)...)
		require.Equal(t, daemon.ExitUsage, code, "%q: %s", bad, errs)
	}
}

func TestSchemaOfALiveCluster(t *testing.T) {
	t.Parallel()
	address := cassandra.Address(t)
	keyspace := fmt.Sprintf("rebalancer_%d", time.Now().UnixNano())
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		admin, err := cassandrastore.OpenAdmin(ctx,
			harness.Patient(cassandrastore.Options{Hosts: []string{address}, Keyspace: keyspace}))
		require.NoError(t, err)
		defer admin.Close()
		require.NoError(t, admin.Drop(ctx))
	})
	schema := func(args ...string) (code int, out, errs string) {
		return ran(t, 0, "", append([]string{"schema", args[0], "--cassandra", address, "--keyspace", keyspace},
			args[1:]...)...)
	}

	code, out, errs := schema("check")
	require.Equal(t, daemon.ExitFailed, code, "there is no keyspace yet: %s", out)
	require.Contains(t, out+errs, keyspace)

	code, _, errs = schema("apply", "--replication", "elsewhere=1")
	require.Equal(t, daemon.ExitUsage, code)
	require.Contains(t, errs, "dc1", "it says which data centres there are")

	for range 2 { // the second time there is nothing to do
		_, out, errs = schema("apply", "--replication", "dc1=1")
		require.True(t, strings.HasPrefix(out, "keyspace "+keyspace+" is there"), "%s%s", out, errs)
	}

	// The test's cluster has one node, so one copy is all that differs.
	code, out, _ = schema("check", "--format", "json")
	var found struct {
		Problems []struct{ Where, What string }
	}
	require.NoError(t, json.Unmarshal([]byte(out), &found), out)
	require.Equal(t, daemon.ExitFailed, code, "one copy is refused: %s", out)
	for _, p := range found.Problems {
		t.Log(p.Where, p.What)
	}
	require.Contains(t, out, "--allow-single-replica", "the remedy")
}
