package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon"
	"github.com/evenkeel/evenkeel/internal/adminapi"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/processes"
	"github.com/evenkeel/evenkeel/internal/rebalance/balancer"
	"github.com/evenkeel/evenkeel/internal/rebalance/engine"
	"github.com/evenkeel/evenkeel/internal/test/cassandratest"
	"github.com/evenkeel/evenkeel/internal/test/e2e/harness"
	"github.com/evenkeel/evenkeel/store/cassandrastore"
	"github.com/evenkeel/evenkeel/store/memstore"
)

var cassandra cassandratest.Shared

func TestMain(m *testing.M) { os.Exit(cassandra.Run(m)) }

func TestSchemaIsPrintedWithReasons(t *testing.T) {
	t.Parallel()
	code, out, errs := ran(t, 0, "", "schema", "print", "--keyspace", "listings", "--replication", "east=3,west=2")
	require.Equal(t, 0, code, errs)
	require.Contains(t, out, "'NetworkTopologyStrategy', 'east': 3, 'west': 2")
	for _, table := range []string{"rows", "nodes", "sizes", "roots", "directory", "clocks", "busy", "process"} {
		require.Contains(t, out, "CREATE TABLE IF NOT EXISTS listings."+table+" (")
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

// TestUpgradeOfTheSchema: a keyspace from before versions gets one, once no program is left that does not know it, and
// after a yes.
func TestUpgradeOfTheSchema(t *testing.T) {
	t.Parallel()
	s := memstore.New()
	_, err := mapclient.AgreeOnLease(t.Context(), s, testLease, false)
	require.NoError(t, err)
	version := func() mapclient.Schema {
		t, terr := mapclient.Agreed(context.Background(), s)
		err = terr
		return t.Schema
	}
	upgrade := func(answer string, dryRun, yes bool) (string, error) {
		var out bytes.Buffer
		err := upgradeSchema(t.Context(), stdio{in: strings.NewReader(answer), out: &out}, s, "listings", dryRun, yes)
		return out.String(), err
	}
	old, err := processes.Appear(t.Context(), s, processes.Process{Name: "an old one", Version: "v0.1"}, nil)
	require.NoError(t, err)
	_, err = upgrade("yes\n", false, false)
	require.ErrorContains(t, err, "do not know version 3 of the schema: an old one (version v0.1, last seen ")
	old.Close()
	db, err := openShared(t.Context(), kept{s}, terms{}, nil)
	require.NoError(t, err, "the present program works with a keyspace without a version")
	defer func() { require.NoError(t, db.Close()) }()
	out, err := upgrade("", true, false)
	require.NoError(t, err)
	require.Contains(t, out, "keyspace listings: the schema's version becomes 3; it is none.")
	require.Contains(t, out, "Programs from before versions are not listed, and do not notice: end them first")
	require.Contains(t, out, "dry run")
	_, err = upgrade("no\n", false, false)
	require.ErrorContains(t, err, "nothing was done")
	require.Equal(t, mapclient.Unversioned, version())
	out, err = upgrade("y\n", false, false)
	require.NoError(t, err)
	require.Contains(t, out, "is of version 3 now")
	require.Equal(t, mapclient.NewestSchema, version())
	require.NoError(t, err)
	out, err = upgrade("", false, false)
	require.NoError(t, err)
	require.Equal(t, "keyspace listings: the schema is of version 3 already\n", out)
}

// TestStatusListsTheProcesses of a keyspace, with what they say of themselves.
func TestStatusListsTheProcesses(t *testing.T) {
	t.Parallel()
	s := memstore.New()
	now := time.Now()
	one, err := openShared(t.Context(), kept{s}, terms{dataCentre: "east"}, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, one.Close()) }()
	other, err := processes.Appear(t.Context(), s, processes.Process{
		Name: "listd on b", Version: "v7", DataCentre: "west", NewestSchema: 4, Admin: "http://b:9001",
	}, nil)
	require.NoError(t, err)
	defer other.Close()
	r := engine.New(engine.Options{
		Store: one.Store, Buckets: one.Client, Balance: &balancer.Options{}, Leader: &engine.Candidate{Name: "one"},
		Presence: one.Presence, Counting: one.Counting,
	})
	c, end := adminapi.Within(adminapi.New(r))
	defer end()
	cluster, err := c.Cluster(t.Context())
	require.NoError(t, err)
	require.Len(t, cluster.Processes, 2)
	here := cluster.Processes[0]
	require.True(t, here.Here)
	require.Equal(t, "east", here.DataCentre)
	require.Equal(t, []int64{0, 3}, here.Schemas)
	require.EqualValues(t, 3, cluster.Terms.Schema)
	require.Equal(t, []int64{0, 4}, cluster.Processes[1].Schemas)
	var out bytes.Buffer
	printProcesses(&failing{w: &out}, &cluster, now.Add(time.Hour))
	require.Regexp(t, `listd on b +west +v7 +0 to 4 +1h0m\ds? ago +http://b:9001`, out.String())
	require.Contains(t, out.String(), "Schema of the keyspace: version 3\n")
}

// TestRepairsOfALiveKeyspace: what Cassandra has not recorded, or has of one replica only, is warned of; what it has of
// all replicas is not.
func TestRepairsOfALiveKeyspace(t *testing.T) {
	t.Parallel()
	address := cassandra.Address(t)
	site := harness.NewSite(t, address)
	check := func() string {
		now := time.Duration(time.Now().UnixNano()) // the clock of ran begins in 1970
		_, out, errs := ran(t, now, "", site.Flags("schema", "check")...)
		return out + errs
	}
	require.NotContains(t, check(), "repair", "there is no keyspace")
	_, out, errs := ran(t, 0, "", site.Flags("schema", "apply", "--replication", "dc1=2")...)
	require.Contains(t, out+errs, "the version of the schema is left to the first program", "one of two replicas is there")
	require.Contains(t, check(), "Cassandra knows of no repair within 30 days of 100 % of its ranges")
	session := harness.Session(t, address, "system_distributed")
	// repaired is a repair of which Cassandra has kept what it keeps of one: of a session the last range only.
	repaired := func(ago time.Duration, options map[string]string, sessions ...[]string) {
		t.Helper()
		at := time.Now().Add(-ago)
		parent := gocql.UUIDFromTime(at)
		require.NoError(t, session.Query("INSERT INTO parent_repair_history (parent_id, keyspace_name, columnfamily_names, "+
			"started_at, successful_ranges, options) VALUES (?, ?, {'rows'}, ?, {'(0,5]', '(5,0]'}, ?)",
			parent, site.Name, at, options).Consistency(gocql.One).Exec())
		for _, others := range sessions {
			require.NoError(t, session.Query("INSERT INTO repair_history (keyspace_name, columnfamily_name, id, parent_id, "+
				"range_begin, range_end, coordinator, coordinator_port, participants_v2, status) "+
				"VALUES (?, 'rows', ?, ?, '0', '5', '10.0.0.1', 7000, ?, 'SUCCESS')",
				site.Name, gocql.TimeUUID(), parent, others).Consistency(gocql.One).Exec())
		}
	}
	alone, two := []string{}, []string{"10.0.0.2:7000"}
	pulls, usual := map[string]string{"pullRepair": "true"}, map[string]string{"pullRepair": "false"}
	repaired(time.Hour, usual, alone)
	repaired(time.Hour, usual, alone, two)
	repaired(time.Hour, usual, two, alone)
	repaired(time.Hour, pulls, two)
	repaired(time.Hour, usual)
	require.Contains(t, check(), "of 100 % of its ranges")
	repaired(9*24*time.Hour, usual, two)
	require.Contains(t, check(), "was repaired 9.0 days ago, and tombstones are kept for 10.0 days")
	repaired(2*time.Hour, usual, two, two)
	require.NotContains(t, check(), "repair")
}
