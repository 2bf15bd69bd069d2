package cassandrastore

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/store"
)

func TestChangesOfReplication(t *testing.T) {
	for _, c := range []struct {
		name        string
		now, wanted Replication
		filling     []string
		added       []string
		refused     string
	}{
		{name: "nothing", now: Replication{"a": 3}, wanted: Replication{"a": 3}},
		{name: "a data centre more", now: Replication{"a": 3}, wanted: Replication{"a": 3, "b": 3}, added: []string{"b"}},
		{name: "one less", now: Replication{"a": 3, "b": 3}, wanted: Replication{"b": 3}},
		{name: "one less, by zero", now: Replication{"a": 3, "b": 3}, wanted: Replication{"a": 0, "b": 3}},
		{name: "a copy more", now: Replication{"a": 3}, wanted: Replication{"a": 4}},
		{name: "a copy less", now: Replication{"a": 3, "b": 3}, wanted: Replication{"a": 3, "b": 2}},
		{name: "two copies more", now: Replication{"a": 3}, wanted: Replication{"a": 5}, refused: "one at a time"},
		{name: "two copies less", now: Replication{"a": 3}, wanted: Replication{"a": 1}, refused: "one at a time"},
		{
			name: "one data centre for another", now: Replication{"a": 3}, wanted: Replication{"b": 3},
			refused: "one data centre at a time",
		},
		{
			name: "two more at once", now: Replication{"a": 3}, wanted: Replication{"a": 3, "b": 3, "c": 3},
			refused: "one data centre at a time",
		},
		{
			name: "the other one less while one is filling", now: Replication{"a": 3, "b": 3}, wanted: Replication{"b": 3},
			filling: []string{"b"}, refused: "b has no complete copy yet",
		},
		{
			name: "another one more while one is filling", now: Replication{"a": 3, "b": 3},
			wanted: Replication{"a": 3, "b": 3, "c": 3}, filling: []string{"b"}, refused: "b has no complete copy yet",
		},
		{
			name: "the one less that is filling", now: Replication{"a": 3, "b": 3}, wanted: Replication{"a": 3},
			filling: []string{"b"},
		},
		{
			name: "the same once more", now: Replication{"a": 3, "b": 3}, wanted: Replication{"a": 3, "b": 3},
			filling: []string{"b"},
		},
		{
			name: "what was marked before it had copies", now: Replication{"a": 3}, wanted: Replication{"a": 3, "b": 3},
			filling: []string{"b"}, added: []string{"b"},
		},
		{name: "none at all", now: Replication{"a": 1}, wanted: Replication{}, refused: "no data centre would keep"},
		{name: "fewer than none", now: Replication{"a": 1}, wanted: Replication{"a": -1}, refused: "-1 copies"},
	} {
		t.Run(c.name, func(t *testing.T) {
			added, err := planReplication(c.now, c.wanted, c.filling)
			if c.refused != "" {
				require.ErrorContains(t, err, c.refused)
				require.Equal(t, store.InvalidArgument, store.KindOf(err))
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.added, added)
		})
	}
	cql, err := alterKeyspace("e", Replication{"a": 3, "b": 0}.kept())
	require.NoError(t, err)
	require.Equal(t, "ALTER KEYSPACE e WITH replication = {'class': 'NetworkTopologyStrategy', 'a': 3} "+
		"AND durable_writes = true", cql)
}
