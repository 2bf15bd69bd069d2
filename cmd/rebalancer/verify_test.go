package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon"
	"github.com/evenkeel/evenkeel/internal/cells"
	"github.com/evenkeel/evenkeel/internal/door"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/rebalance/executor"
	"github.com/evenkeel/evenkeel/internal/rebalance/move"
	"github.com/evenkeel/evenkeel/internal/storekit"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/cassandrastore"
	"github.com/evenkeel/evenkeel/store/pebblestore"
)

// inStore makes a store's contents: a bucket with some rows and a cut, or with
// damage that a repair mends (a marker left, a partition that nobody names), or
// with damage that it does not.
func inStore(t *testing.T, s store.Store, c *listing.Client, what string) {
	ctx := t.Context()
	id := func() store.BucketID {
		owner, err := door.Client(c).Owner(ctx, "photos")
		require.NoError(t, err)
		return owner.ID
	}
	put := func(p store.PartitionID, key string, cell []byte) {
		row := store.Row{Key: []byte(key), Value: cell, Timestamp: store.Timestamp(time.Now().UnixMicro())}
		require.NoError(t, s.Put(ctx, store.Partition{Bucket: id(), ID: p}, row))
	}
	home := func() store.PartitionID {
		root, err := mapclient.Of(c).Load(ctx, id())
		require.NoError(t, err)
		return root.Entries[0].Partition
	}
	switch what {
	case "whole":
		require.NoError(t, c.CreateBucket(ctx, "photos", []byte("m")))
		for i := range 40 {
			require.NoError(t, c.Bucket("photos").Put(ctx, fmt.Appendf(nil, "%c-%d", 'a'+i%26, i), []byte("value")))
		}
	case "mendable":
		put(home(), "a-marker", cells.Marker())
		e, err := c.Bucket("photos").Get(ctx, []byte("a-0"))
		require.NoError(t, err)
		old := store.Row{Key: e.Key, Value: store.EntryCell(e.Value), Timestamp: 1}
		require.NoError(t, s.Put(ctx, store.Partition{Bucket: id(), ID: store.PartitionID(uuid.New())}, old))
	case "elsewhere":
		put(store.PartitionID(uuid.New()), "b-elsewhere", store.EntryCell([]byte("value")))
	case "moved":
		// The maps are restored from a copy that is older than that of the rows.
		old, err := mapclient.Of(c).Load(ctx, id())
		require.NoError(t, err)
		x := executor.New(s, mapclient.Of(c), id(), executor.Options{})
		x.Add(move.Merge(nil, nil))
		require.NoError(t, x.Run(ctx))
		now, err := mapclient.Of(c).Load(ctx, id())
		require.NoError(t, err)
		require.NotEqual(t, old.Entries, now.Entries)
		next := *old
		next.Epoch, next.Token = now.Epoch+1, storekit.NewToken()
		require.NoError(t, mapclient.Of(c).Swap(ctx, partmap.Change{Old: now.Version(), Next: &next}))
	case "lasting":
		put(home(), "zz", store.EntryCell(nil))
	}
}

// verified runs verify and returns its exit code and lines, the summary apart.
func verified(t *testing.T, args ...string) (code int, found []map[string]any, summary map[string]any) {
	t.Helper()
	code, out, errs := ran(t, 0, "", append([]string{"verify", "--format", "json"}, args...)...)
	t.Logf("%d: %s%s", code, out, errs)
	for _, line := range strings.Split(strings.TrimSpace(out), "\n") {
		var x map[string]any
		if json.Unmarshal([]byte(line), &x) != nil {
			continue
		}
		if s, ok := x["summary"]; ok {
			summary = s.(map[string]any)
		} else {
			found = append(found, x)
		}
	}
	return code, found, summary
}

func TestVerifyADataDirectory(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	code, _, errs := ran(t, 0, "", "verify", "--data", dir)
	require.Equal(t, daemon.ExitUnusable, code)
	require.Contains(t, errs, "not a data directory")
	require.NoDirExists(t, dir)
	for _, bad := range [][]string{
		{"--data", dir, "--cassandra", "localhost"}, {"--cassandra", "localhost"},
		{"--data", dir, "--local-dc", "dc1"}, {"--data", dir, "--parallel", "0"},
		{"--adopt"}, {"--adopt-all"}, {"--data", dir, "--adopt", "--skip-orphans"},
		{"--data", dir, "--discard", uuid.NewString()},
		{"--data", dir, "--repair", "--discard", "nothing"},
	} {
		code, _, errs := ran(t, 0, "", append([]string{"verify"}, bad...)...)
		require.Equal(t, daemon.ExitUsage, code, "%q: %s", bad, errs)
	}

	with := func(what string, f func()) {
		s, err := pebblestore.Open(dir, pebblestore.Options{})
		require.NoError(t, err)
		c, err := listing.New(s, listing.Options{})
		require.NoError(t, err)
		inStore(t, s, c, what)
		if f != nil {
			f()
		}
		require.NoError(t, s.Close())
	}
	with("whole", func() {
		code, _, errs := ran(t, 0, "", "verify", "--data", dir)
		require.Equal(t, daemon.ExitUnusable, code, "somebody has it open")
		require.Contains(t, errs, "unavailable")
	})
	code, out, errs := ran(t, 0, "", "verify", "--data", dir)
	require.Zero(t, code, errs)
	require.Contains(t, out, "clean")
	verifies(t, []string{"--data", dir}, func(what string) { with(what, nil) })
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.NotEmpty(t, entries)
}

// verifies takes a whole store through damage and repair.
func verifies(t *testing.T, args []string, damage func(what string)) {
	one := append([]string{"photos"}, args...)
	for _, scope := range [][]string{args, one} {
		code, found, summary := verified(t, scope...)
		require.Zero(t, code)
		require.Empty(t, found)
		require.GreaterOrEqual(t, summary["rows"], 40.0)
	}
	damage("mendable")
	kinds := func(found []map[string]any) (out []string) {
		for _, x := range found {
			out = append(out, x["kind"].(string))
		}
		return out
	}
	for _, scope := range [][]string{args, one} {
		code, found, summary := verified(t, scope...)
		require.Equal(t, daemon.ExitFailed, code)
		require.ElementsMatch(t, []string{"left markers", "orphan partition"}, kinds(found))
		require.EqualValues(t, 2, summary["problems"])
	}
	code, found, summary := verified(t, append(one, "--repair")...)
	require.Zero(t, code, "all is mended")
	require.ElementsMatch(t, []string{"left markers", "orphan partition"}, kinds(found))
	require.EqualValues(t, 2, summary["mended"])
	code, found, _ = verified(t, args...)
	require.Zero(t, code)
	require.Empty(t, found)

	damage("elsewhere")
	code, found, _ = verified(t, append(args, "--repair")...)
	require.Equal(t, daemon.ExitFailed, code, "a repair does not remove what is nowhere else")
	require.Equal(t, []string{"orphan partition"}, kinds(found))
	require.EqualValues(t, 1, found[0]["missing"])
	require.Contains(t, found[0]["todo"], "--adopt")
	code, found, summary = verified(t, append(args, "--adopt")...)
	require.Zero(t, code)
	require.NotEmpty(t, found[0]["mended"])
	require.EqualValues(t, 1, summary["adopted"])
	damage("elsewhere")
	_, found, _ = verified(t, args...)
	code, found, _ = verified(t, append(args, "--repair", "--discard", found[0]["partition"].(string))...)
	require.Zero(t, code)
	require.Equal(t, "discarded", found[0]["mended"])
	code, found, _ = verified(t, args...)
	require.Zero(t, code)
	require.Empty(t, found)

	damage("moved")
	code, found, _ = verified(t, append(args, "--repair")...)
	require.Equal(t, daemon.ExitFailed, code)
	require.Equal(t, []string{"orphan partition"}, kinds(found))
	require.EqualValues(t, found[0]["count"], found[0]["missing"])
	require.GreaterOrEqual(t, found[0]["missing"], 41.0)
	code, found, summary = verified(t, append(args, "--adopt-all")...)
	require.Zero(t, code)
	require.GreaterOrEqual(t, summary["adopted"], 41.0, "%v", found)
	code, found, _ = verified(t, args...)
	require.Zero(t, code)
	require.Empty(t, found)

	damage("lasting")
	code, found, _ = verified(t, append(args, "--repair")...)
	require.Equal(t, daemon.ExitFailed, code)
	require.Equal(t, []string{"misplaced rows"}, kinds(found))
	require.NotEmpty(t, found[0]["todo"])
	code, _, errs := ran(t, 0, "", append([]string{"verify", "nothing"}, args...)...)
	require.Equal(t, daemon.ExitRefused, code)
	require.Contains(t, errs, "there is no such bucket")
}

func TestVerifyACluster(t *testing.T) {
	t.Parallel()
	address := cassandra.Address(t)
	keyspace := fmt.Sprintf("verify_%d", time.Now().UnixNano())
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	admin, err := cassandrastore.OpenAdmin(ctx, cassandrastore.Options{Hosts: []string{address}, Keyspace: keyspace})
	require.NoError(t, err)
	defer admin.Close()
	require.NoError(t, admin.Apply(ctx, map[string]int{"dc1": 1}))
	defer func() {
		if err := admin.Drop(context.WithoutCancel(ctx)); err != nil {
			t.Logf("the keyspace stays until the node ends: %v", err)
		}
	}()
	s, err := cassandrastore.Open(ctx,
		cassandrastore.Options{
			Hosts: []string{address}, Keyspace: keyspace, DataCentre: "dc1", AllowSingleReplica: true,
		})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	require.NoError(t, mapclient.InitClocks(ctx, s, 2))
	maps, err := mapclient.NewNetwork(s, mapclient.Options{Lease: 300 * time.Millisecond, Clocks: 2})
	require.NoError(t, err)
	defer maps.Close()
	c, err := listing.New(mapclient.With(s, maps), listing.Options{})
	require.NoError(t, err)
	inStore(t, s, c, "whole")
	verifies(t, []string{"--cassandra", address, "--local-dc", "dc1", "--keyspace", keyspace, "--lease", "300ms",
		"--allow-single-replica"},
		func(what string) { inStore(t, s, c, what) })
}
