package cassandrastore

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/gocql/gocql"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/storekit"
	"github.com/evenkeel/evenkeel/store"
)

// Each level is the driver's of the same name; none other is taken.
func TestLevelsOfTheDriver(t *testing.T) {
	for l, want := range map[Level]gocql.Consistency{
		"": gocql.LocalQuorum, LocalQuorum: gocql.LocalQuorum, Quorum: gocql.Quorum,
		Each: gocql.EachQuorum, LocalOne: gocql.LocalOne,
	} {
		got, err := l.driver()
		require.NoError(t, err)
		require.Equal(t, want, got)
		if l != "" {
			require.Equal(t, string(l), got.String())
		}
	}
	_, err := Level("ONE").driver()
	require.ErrorIs(t, err, store.InvalidArgument)
}

// So many cuts of a partition are remembered, then all are forgotten.
func TestCutsAreBounded(t *testing.T) {
	k := &partitionMemory{}
	for round := range 2 {
		for i := range cutsPerPartition {
			k.cut(fmt.Appendf(nil, "%d-%04d", round, i))
			require.Len(t, k.cuts(), i+1)
		}
	}
	k.cut([]byte("1-0000")) // it is known, but there is no telling without a look
	require.Len(t, k.cuts(), 1)
}

// An error without a code is none of the server's.
func TestCodesOfErrors(t *testing.T) {
	c, fromServer := code(errors.New("no connection"))
	require.Zero(t, c)
	require.False(t, fromServer)
	c, fromServer = code(&gocql.RequestErrWriteTimeout{})
	require.Zero(t, c)
	require.True(t, fromServer)
}

// Both sides of a cut are together what was cut, wherever it begins and ends.
func TestHalvesOfOpenIntervals(t *testing.T) {
	for _, c := range []struct{ start, end, cut string }{
		{"", "", "\x7f"}, {"a", "", "\xb0"}, {"ab", "", "b"}, {"a\xffb", "", "b"}, {"\xff\xffb", "", "\xff\xff\xb1"},
		{"a", "b", "a\x7f"}, {"", "b", "0"}, {"a", "c\x00\x00", "b"}, {"b", "c\x00\x00", "c"},
		{"c", "c\x00\x00", "c\x00"},
	} {
		b := store.Bounds{Start: []byte(c.start), End: []byte(c.end)}
		low, high, ok := halve(b)
		require.True(t, ok)
		require.Equal(t, c.start, string(low.Start))
		require.Equal(t, c.end, string(high.End))
		require.Equal(t, string(low.End), string(high.Start))
		require.Equal(t, c.cut, string(low.End), "%q to %q", c.start, c.end)
	}
}

// A call after Close has done nothing. One during which the store was closed may have been applied.
func TestWritesOfAClosedStore(t *testing.T) {
	closed := func() *database {
		s := &database{}
		s.rows = rows{s: s}
		s.closed.Store(true)
		return s
	}
	s, ctx, p := closed(), t.Context(), store.Partition{Bucket: store.BucketID{1}, ID: store.PartitionID{1}}
	row := store.Row{Key: []byte("k"), Value: []byte("v"), Timestamp: 1}
	swapped := store.Record{Version: store.Version{Epoch: 1, Token: storekit.NewToken()}, Blob: []byte("b")}
	for name, err := range map[string]error{
		"put":        s.Put(ctx, p, row),
		"put two":    s.Put(ctx, p, row, store.Row{Key: []byte("l"), Value: []byte("v"), Timestamp: 1}),
		"delete":     s.Delete(ctx, p, row.Key, 1),
		"remove":     s.Remove(ctx, p, store.Bounds{}, 1),
		"swap":       s.Swap(ctx, store.Directory, []byte("a"), store.Version{}, swapped),
		"write node": s.WriteNode(ctx, p.Bucket, store.NodeID{1}, []byte("n")),
	} {
		require.ErrorIs(t, err, store.ErrClosed, name)
		require.ErrorIs(t, err, store.Unavailable, name)
		require.False(t, store.OutcomeUnknown(err), name)
	}

	s.closed.Store(false)
	_, err := retry(ctx, s, request{level: gocql.EachQuorum}, func(context.Context) (struct{}, error) {
		s.closed.Store(true)
		return struct{}{}, gocql.ErrConnectionClosed
	})
	err = s.fail(ctx, err, "put", p)
	require.ErrorIs(t, err, gocql.ErrConnectionClosed)
	require.ErrorIs(t, err, store.Unavailable)
	require.ErrorContains(t, err, "closed")
	require.True(t, store.OutcomeUnknown(err))
}

func TestPrintedSchemaIsTheAppliedOne(t *testing.T) {
	printed, err := PrintSchema("listings", Replication{"b": 3, "a": 2})
	require.NoError(t, err)
	require.Contains(
		t, printed,
		"CREATE KEYSPACE IF NOT EXISTS listings WITH replication = {'class': 'NetworkTopologyStrategy', 'a': 2, 'b': 3}",
	)
	for _, table := range tables() {
		require.Contains(t, printed, table.create("listings"))
		for _, o := range table.Options {
			require.NotEmpty(t, o.Why, "%s.%s", table.Name, o.Name)
		}
	}
	for _, bad := range []Replication{nil, {"a": 0}, {"a'": 1}, {"": 1}} {
		_, err := PrintSchema("listings", bad)
		require.ErrorIs(t, err, store.InvalidArgument)
	}
}
