package cqltables_test

import (
	"bytes"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/bench/layouts"
	"github.com/evenkeel/evenkeel/bench/layouts/cqltables"
	"github.com/evenkeel/evenkeel/bench/layouts/layouttest"
	"github.com/evenkeel/evenkeel/internal/test/cassandratest"
	"github.com/evenkeel/evenkeel/internal/test/e2e/harness"
	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/store"
)

var cassandra cassandratest.Shared

func TestMain(m *testing.M) { os.Exit(cassandra.Run(m)) }

// A feed in tables answers as a sorted slice does; a month that is archived and
// dropped is in its file, and nowhere else.
func TestTablesAnswerAsTheOracle(t *testing.T) {
	r := seed.New(t)
	address := cassandra.Address(t)
	session := harness.Session(t, address, "")
	keyspace := harness.KeyspaceName()
	require.NoError(t, session.Query("CREATE KEYSPACE "+keyspace+" WITH replication = {'class': 'NetworkTopologyStrategy', 'dc1': 1}").Exec())
	defer func() { require.NoError(t, session.Query("DROP KEYSPACE "+keyspace).Exec()) }()
	session = harness.Session(t, address, keyspace)
	var m layouts.Meter
	l, err := cqltables.Open(t.Context(), session, keyspace, "feed", &m)
	require.NoError(t, err)
	keys := layouttest.FeedKeys(t, r, 1000)
	require.ErrorIs(t, l.Put(t.Context(), keys[0], nil), store.NotFound)
	first, err := layouts.SnowflakeOf(keys[0])
	require.NoError(t, err)
	last, err := layouts.SnowflakeOf(keys[len(keys)-1])
	require.NoError(t, err)
	require.NoError(t, l.Create(t.Context(), first.Time(), last.Time()))
	layouttest.Feed(t, r, l, keys)
	require.Positive(t, m.Work().Rows)

	all := layouttest.Scanned(t, l, 1)
	old := map[string]string{}
	for k, v := range all {
		if id, err := layouts.SnowflakeOf([]byte(k)); err == nil &&
			id.Time().Format("200601") == first.Time().Format("200601") {
			old[k] = v
			delete(all, k)
		}
	}
	var file bytes.Buffer
	rows, err := l.Archive(t.Context(), first.Time(), &file)
	require.NoError(t, err)
	require.Len(t, old, rows)
	require.NoError(t, l.Drop(t.Context(), first.Time()))
	require.Equal(t, all, layouttest.Scanned(t, l, 2))
	_, found, err := l.Get(t.Context(), keys[0])
	require.NoError(t, err)
	require.False(t, found)
	require.NoError(t, cqltables.ReadArchive(&file, func(e layouts.Entry) error {
		require.Equal(t, old[string(e.Key)], string(e.Value))
		delete(old, string(e.Key))
		return nil
	}))
	require.Empty(t, old)

	_, err = l.List(t.Context(), layouts.Query{})
	require.ErrorIs(t, err, layouts.ErrCannot)
	// Another process sees what there is.
	other, err := cqltables.Open(t.Context(), session, keyspace, "feed", nil)
	require.NoError(t, err)
	items, err := other.List(t.Context(),
		layouts.Query{Reverse: true, Limit: 1, After: layouts.Snowflake(int64(1)<<62 + int64(time.Second)).Key()})
	require.NoError(t, err)
	require.Len(t, items, 1)
}
