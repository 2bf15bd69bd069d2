package adopt

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/evenkeel/evenkeel/keys"
	"github.com/evenkeel/evenkeel/store/cassandrastore"
)

func column(name, typ string, kind cassandrastore.ColumnKind, desc bool) cassandrastore.TableColumn {
	return cassandrastore.TableColumn{Name: name, Type: typ, Kind: kind, Desc: desc}
}

// compareWires is the order of Cassandra's types.
func compareWires(typ string, a, b []byte) int {
	signed := func(b []byte) int64 {
		v := append(bytes.Repeat([]byte{byte(int8(b[0]) >> 7)}, 8-len(b)), b...)
		return int64(binary.BigEndian.Uint64(v))
	}
	if _, whole := integers[typ]; whole {
		return cmp.Compare(signed(a), signed(b))
	}
	return bytes.Compare(a, b) // texts, blobs, booleans, and dates, which are unsigned
}

func drawWire(t *rapid.T, typ string) []byte {
	if n, whole := integers[typ]; whole {
		b := rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 0x7f, 0x80, 0xff, 42}), n, n).Draw(t, typ)
		if typ == "timestamp" {
			b[0] = byte(int8(b[0]) >> 7) // within 290,000 years of 1970
			b[1] = b[0]
		}
		return b
	}
	switch typ {
	case "date":
		return rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, typ)
	case "boolean":
		return []byte{rapid.ByteRange(0, 1).Draw(t, typ)}
	case "blob":
		return rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 0xff, 'a'}), 0, 4).Draw(t, typ)
	}
	return []byte(rapid.StringOfN(rapid.SampledFrom([]rune{0, 1, 'a', 'b', '\x7f'}), 0, 4, -1).Draw(t, typ))
}

// Keys compare as Cassandra sorts the rows, in the direction that is asked for, and lead back to their rows.
func TestKeysKeepTheOrderOfRows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		columns := Columns{Partition: []cassandrastore.TableColumn{
			column("p", rapid.SampledFrom(sortable).Draw(t, "p"), cassandrastore.PartitionKey, false),
		}}
		desc, tableDesc := rapid.Bool().Draw(t, "desc"), rapid.Bool().Draw(t, "table desc")
		var key []string
		withPartition := rapid.Bool().Draw(t, "with partition")
		if withPartition {
			key = append(key, "p")
		}
		for i := range rapid.IntRange(1, 3).Draw(t, "columns") {
			name := fmt.Sprint("c", i)
			typ := rapid.SampledFrom(sortable).Draw(t, "type")
			columns.Clustering = append(columns.Clustering, column(name, typ, cassandrastore.Clustering, tableDesc))
			if desc {
				name = "-" + name
			}
			key = append(key, name)
		}
		m, err := NewMapping(columns, key, nil)
		require.NoError(t, err)
		draw := func() (partition, clustering [][]byte) {
			partition = [][]byte{drawWire(t, columns.Partition[0].Type)}
			for _, c := range columns.Clustering {
				clustering = append(clustering, drawWire(t, c.Type))
			}
			return partition, clustering
		}
		p1, c1 := draw()
		p2, c2 := draw()
		want := 0
		if withPartition {
			want = compareWires(columns.Partition[0].Type, p1[0], p2[0])
		}
		for i, c := range columns.Clustering {
			order := compareWires(c.Type, c1[i], c2[i])
			if desc {
				order = -order
			}
			want = cmp.Or(want, order)
		}
		k1, err := m.Key(p1, c1)
		require.NoError(t, err)
		k2, err := m.Key(p2, c2)
		require.NoError(t, err)
		require.Equal(t, want, bytes.Compare(k1, k2), "%x %x: %x; %x %x: %x", p1, c1, k1, p2, c2, k2)
		prefix, err := m.prefix(p1)
		require.NoError(t, err)
		require.True(t, bytes.HasPrefix(k1, prefix))
		back, ok := m.Clustering(p1, k1)
		require.True(t, ok)
		require.Equal(t, c1, back)
		if other, ok := m.Clustering(p1, k2); ok {
			again, err := m.Key(p1, other)
			require.NoError(t, err)
			require.Equal(t, k2, again)
		}
	})
}

func TestMappingsThatLoseOrderAreRefused(t *testing.T) {
	part, sort := cassandrastore.PartitionKey, cassandrastore.Clustering
	columns := Columns{
		Partition:  []cassandrastore.TableColumn{column("room", "text", part, false), column("shard", "int", part, false)},
		Clustering: []cassandrastore.TableColumn{column("day", "date", sort, false), column("id", "bigint", sort, true)},
		Others: []cassandrastore.TableColumn{
			column("v", "text", cassandrastore.Regular, false), column("n", "int", cassandrastore.Regular, false),
			column("tags", "set<text>", cassandrastore.Regular, false), column("hits", "counter", cassandrastore.Regular, false),
			column("title", "text", cassandrastore.Static, false),
		},
	}
	random := columns
	random.Clustering = []cassandrastore.TableColumn{column("id", "timeuuid", sort, false)}
	flat := columns
	flat.Clustering = nil
	for _, c := range []struct {
		t          Columns
		key, value []string
		says       string
	}{
		{flat, nil, nil, "no clustering column"},
		{random, nil, nil, "sorts in another way"},
		{columns, []string{"day"}, nil, "lacks the clustering column id"},
		{columns, []string{"id", "day"}, nil, "at another place"},
		{columns, []string{"day", "room", "id"}, nil, "partition columns come first"},
		{columns, []string{"day", "id"}, nil, "in that order or in the reverse"},
		{columns, []string{"day", "-id"}, nil, "not supported yet"},
		{columns, []string{"day", "nonsense"}, nil, "no column of the primary key"},
		{columns, nil, []string{"tags"}, "not supported yet"},
	} {
		_, err := NewMapping(c.t, c.key, c.value)
		require.ErrorContains(t, err, c.says)
	}
	columns.Clustering = columns.Clustering[:1]
	for value, says := range map[string]string{
		"tags": "not frozen", "hits": "counter", "title": "static", "w": "no column",
	} {
		_, err := NewMapping(columns, nil, []string{value})
		require.ErrorContains(t, err, says)
	}

	m, err := NewMapping(columns, []string{"room", "day"}, []string{"v", "n"})
	require.NoError(t, err)
	require.JSONEq(t, `{"v":"x","n":null}`, string(m.Value([][]byte{[]byte(`"x"`), nil})))
	back, err := m.columnsOf([]byte(` { "n" : null, "v" : "x" } `))
	require.NoError(t, err)
	require.Equal(t, [][]byte{[]byte(`"x"`), nil}, back)
	require.True(t, m.same([]byte(`{"n":null, "v":"x"}`), []byte(`{"v":"x","n":null}`)))
	require.False(t, m.same([]byte(`{"n":1, "v":"x"}`), []byte(`{"v":"x","n":null}`)))
	for value, says := range map[string]string{
		"x": "no object", `{"v":"x"}`: `no member "n"`, `{"v":"x","n":1,"w":2}`: `"w" is none of the columns`,
	} {
		_, err := m.columnsOf([]byte(value))
		require.ErrorContains(t, err, says)
	}
	got, err := m.Partitions("room=a,shard=-1..1", "shard=7,room=b")
	require.NoError(t, err)
	require.Equal(t, [][][]byte{
		{[]byte("a"), {255, 255, 255, 255}}, {[]byte("a"), {0, 0, 0, 0}}, {[]byte("a"), {0, 0, 0, 1}},
		{[]byte("b"), {0, 0, 0, 7}},
	}, got)
	for _, bad := range []string{"", "room=a", "room=a,shard=x", "room=a,shard=3..1", "room=a,shard=1,day=2",
		"room=a,room=b", "room=a,shard=3000000000", "room=a,shard=0..100000"} {
		_, err := m.Partitions(bad)
		require.Error(t, err, bad)
	}
	dates := Columns{
		Partition:  []cassandrastore.TableColumn{column("day", "date", part, false)},
		Clustering: []cassandrastore.TableColumn{column("id", "bigint", sort, true)},
	}
	m2, err := NewMapping(dates, []string{"day", "id"}, nil)
	require.NoError(t, err)
	got, err = m2.Partitions("day=1969-12-31..1970-01-02")
	require.NoError(t, err)
	require.Equal(t, [][][]byte{{{0x7f, 255, 255, 255}}, {{0x80, 0, 0, 0}}, {{0x80, 0, 0, 1}}}, got)
	_, err = m2.Partitions("day=1970-01-02..1970-01-01")
	require.ErrorContains(t, err, "upwards")
	require.ErrorContains(t, m.Fits(m2), "other keys")
	require.NoError(t, m2.Fits(m2))
	key, err := m.Key([][]byte{[]byte("a"), nil}, [][]byte{{0x80, 0, 0, 1}})
	require.NoError(t, err)
	require.Equal(t, keys.Of(keys.String("a"), keys.Int(1)), key, "what programs make with package keys")
}

// Cuts divide what was sampled evenly, also of very many keys.
func TestCutsOfASample(t *testing.T) {
	var s sparse
	const rows = 100_000
	for i := range rows {
		s.add(fmt.Appendf(nil, "%06d", i), 1000)
	}
	require.LessOrEqual(t, len(s.keys), 1000)
	sample := Sample{Keys: s.keys, Every: float64(s.every), RowBytes: 100}
	require.InEpsilon(t, rows, sample.Rows(), 0.01)
	for _, cuts := range [][][]byte{sample.Cuts(7000, 1<<40), sample.Cuts(rows, 700_000)} {
		last := 0
		for _, end := range append(slices.Clone(cuts), fmt.Appendf(nil, "%06d", rows)) {
			var at int
			_, err := fmt.Sscan(string(bytes.TrimLeft(end, "0")), &at)
			require.NoError(t, err)
			require.InDelta(t, 6666, at-last, 600)
			last = at
		}
	}
	require.Len(t, sample.Streams(4), 3)
	require.Empty(t, (&Sample{}).Streams(8))
	require.Empty(t, (&Sample{}).Cuts(10, 10))
}
