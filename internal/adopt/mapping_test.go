package adopt

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/evenkeel/evenkeel/internal/cqltable"
	"github.com/evenkeel/evenkeel/keys"
)

func column(name, typ string, kind cqltable.Kind, desc bool) cqltable.Column {
	return cqltable.Column{Name: name, Type: typ, Kind: kind, Desc: desc}
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
		columns := cqltable.Columns{Partition: []cqltable.Column{
			column("p", rapid.SampledFrom(sortable).Draw(t, "p"), cqltable.PartitionKey, false),
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
			columns.Clustering = append(columns.Clustering, column(name, typ, cqltable.Clustering, tableDesc))
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
	part, sort := cqltable.PartitionKey, cqltable.Clustering
	columns := cqltable.Columns{
		Partition:  []cqltable.Column{column("room", "text", part, false), column("shard", "int", part, false)},
		Clustering: []cqltable.Column{column("day", "date", sort, false), column("id", "bigint", sort, true)},
		Others: []cqltable.Column{
			column("v", "text", cqltable.Regular, false), column("n", "int", cqltable.Regular, false),
			column("tags", "set<text>", cqltable.Regular, false), column("hits", "counter", cqltable.Regular, false),
			column("title", "text", cqltable.Static, false),
		},
	}
	random := columns
	random.Clustering = []cqltable.Column{column("id", "timeuuid", sort, false)}
	flat := columns
	flat.Clustering = nil
	for _, c := range []struct {
		t          cqltable.Columns
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
	dates := cqltable.Columns{
		Partition:  []cqltable.Column{column("day", "date", part, false)},
		Clustering: []cqltable.Column{column("id", "bigint", sort, true)},
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

// TestPartitionsOfEachType: the texts of the flag --partitions, in the bytes that Cassandra sends.
func TestPartitionsOfEachType(t *testing.T) {
	const id = "00112233-4455-6677-8899-aabbccddeeff"
	for _, c := range []struct {
		typ, text string
		want      string // hexadecimal, with commas between
		err       string
	}{
		{"timestamp", "1970-01-01T00:00:01.5Z", "00000000000005dc", ""},
		{"timestamp", "1969-12-31T23:59:59Z", "fffffffffffffc18", ""},
		{"timestamp", "1970-01-01", "", "no value of p, a timestamp"},
		{"date", "1970-01-01", "80000000", ""},
		{"date", "1969-12-30..1970-01-01", "7ffffffe,7fffffff,80000000", ""},
		{"date", "1970-01-32", "", "no value of p, a date"},
		{"date", "1970-01-01..x", "", "no value of p, a date"},
		{"tinyint", "-128..-127", "80,81", ""},
		{"tinyint", "127", "7f", ""},
		{"tinyint", "128", "", "no value of p, a tinyint"},
		{"smallint", "-32768", "8000", ""},
		{"smallint", "32768", "", "out of range"},
		{"int", "2147483647", "7fffffff", ""},
		{"int", "2147483648", "", "out of range"},
		{"int", "5..5", "00000005", ""},
		{"int", "5..4", "", "a range goes upwards"},
		{"int", "5..", "", "no value of p"},
		{"int", "..5", "", "no value of p"},
		{"bigint", "-9223372036854775808..-9223372036854775807", "8000000000000000,8000000000000001", ""},
		{"bigint", "9223372036854775806..9223372036854775807", "7ffffffffffffffe,7fffffffffffffff", ""},
		{"bigint", "-9223372036854775808..9223372036854775807", "", "at most 100000 values"},
		{"bigint", "-9223372036854775808..0", "", "at most 100000 values"},
		{"boolean", "true", "01", ""},
		{"boolean", "false", "00", ""},
		{"boolean", "maybe", "", "no value of p, a boolean"},
		{"text", "a..b", "612e2e62", ""},
		{"ascii", "", "", ""},
		{"blob", "0x00ff", "00ff", ""},
		{"blob", "00ff", "00ff", ""},
		{"blob", "0x0", "", "hexadecimal digits are expected"},
		{"blob", "00-ff", "", "hexadecimal digits are expected"},
		{"uuid", id, "00112233445566778899aabbccddeeff", ""},
		{"timeuuid", id, "00112233445566778899aabbccddeeff", ""},
		{"uuid", id + "00", "", "hexadecimal digits are expected"},
		{"uuid", id[:len(id)-2], "", "hexadecimal digits are expected"},
		{"uuid", "x" + id[1:], "", "hexadecimal digits are expected"},
		{"decimal", "1", "", "of type decimal, which is not supported"},
	} {
		m, err := NewMapping(cqltable.Columns{
			Partition:  []cqltable.Column{column("p", c.typ, cqltable.PartitionKey, false)},
			Clustering: []cqltable.Column{column("c", "int", cqltable.Clustering, false)},
		}, nil, nil)
		require.NoError(t, err)
		got, err := m.Partitions("p=" + c.text)
		if c.err != "" {
			require.ErrorContains(t, err, c.err, "%+v", c)
			continue
		}
		require.NoError(t, err, "%+v", c)
		var texts []string
		for _, p := range got {
			require.Len(t, p, 1)
			texts = append(texts, hex.EncodeToString(p[0]))
		}
		require.Equal(t, c.want, strings.Join(texts, ","), "%+v", c)
	}
}

// TestMostPartitions: a text names at most 100,000 partitions, of one column or of several.
func TestMostPartitions(t *testing.T) {
	m, err := NewMapping(cqltable.Columns{
		Partition: []cqltable.Column{
			column("a", "int", cqltable.PartitionKey, false),
			column("b", "int", cqltable.PartitionKey, false),
		},
		Clustering: []cqltable.Column{column("c", "int", cqltable.Clustering, false)},
	}, nil, nil)
	require.NoError(t, err)
	for text, want := range map[string]int{
		"a=0..99999,b=0": 100_000, "b=1..1000,a=1..100": 100_000, "a=0..100000,b=0": 0, "a=1..1000,b=0..100": 0,
	} {
		got, err := m.Partitions(text)
		require.Len(t, got, want, text)
		require.Equal(t, want == 0, err != nil, text)
	}
	got, err := m.Partitions("a=1..2,b=3..4", "b=5,a=6")
	require.NoError(t, err)
	var numbers [][]int64
	for _, p := range got {
		numbers = append(numbers, []int64{integer(p[0]), integer(p[1])})
	}
	require.Equal(t, [][]int64{{1, 3}, {1, 4}, {2, 3}, {2, 4}, {6, 5}}, numbers)
	for text, says := range map[string]string{
		"a=1,b=2,c=3": `"c" is no partition column: there are a ASC, b ASC`, "a=1": "lacks the partition column b",
		"a=1,b": "a partition is COLUMN=VALUE", "a=1,a=1,b=2": "a partition is COLUMN=VALUE",
	} {
		_, err := m.Partitions("a=1,b=1", text)
		require.ErrorContains(t, err, says)
	}
}

// TestKeysThatNoRowHas: a key with another element, or a value out of the column's range, belongs to no row.
func TestKeysThatNoRowHas(t *testing.T) {
	plain := func(bytes string) []byte { return []byte(bytes) }
	day := time.Date(1970, 1, 2, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		typ  string
		key  []byte
		want string // hexadecimal; "none"
	}{
		{"timestamp", keys.Of(keys.Time(day)), "0000000005265c00"},
		{"timestamp", keys.Of(keys.Time(day.Add(time.Millisecond))), "0000000005265c01"},
		{"timestamp", keys.Of(keys.Time(day.Add(time.Microsecond))), "none"},
		{"timestamp", keys.Of(keys.Time(day.Add(-time.Microsecond))), "none"},
		{"tinyint", keys.Of(keys.Int(127)), "7f"},
		{"tinyint", keys.Of(keys.Int(128)), "none"},
		{"tinyint", keys.Of(keys.Int(-128)), "80"},
		{"tinyint", keys.Of(keys.Int(-129)), "none"},
		{"int", keys.Of(keys.Int(1 << 31)), "none"},
		{"int", keys.Of(keys.Int(1), keys.Int(1)), "none"},
		{"int", keys.Of(), "none"},
		{"int", keys.Of(keys.Desc(keys.Int(1))), "none"},
		{"int", keys.Of(keys.String("1")), "none"},
		{"date", keys.Of(keys.Int(-1 << 31)), "00000000"},
		{"date", keys.Of(keys.Int(-1<<31 - 1)), "none"},
		{"date", keys.Of(keys.Int(1<<31 - 1)), "ffffffff"},
		{"date", keys.Of(keys.Int(1 << 31)), "none"},
		{"boolean", keys.Of(keys.Bool(true)), "01"},
		{"boolean", keys.Of(keys.Bool(false)), "00"},
		{"boolean", keys.Of(keys.Int(1)), "none"},
		{"text", plain("\u00e4"), "c3a4"},
		{"text", plain("\xff"), "none"},
		{"ascii", plain("\x7f"), "7f"},
		{"ascii", plain("\x80"), "none"},
		{"ascii", plain("a\u00e4"), "none"},
		{"blob", plain("\xff"), "ff"},
	} {
		m, err := NewMapping(cqltable.Columns{
			Partition:  []cqltable.Column{column("p", "int", cqltable.PartitionKey, false)},
			Clustering: []cqltable.Column{column("c", c.typ, cqltable.Clustering, false)},
		}, nil, nil)
		require.NoError(t, err)
		got, ok := m.Clustering(nil, c.key)
		require.Equal(t, c.want != "none", ok, "%s %x", c.typ, c.key)
		if ok {
			require.Len(t, got, 1)
			require.Equal(t, c.want, hex.EncodeToString(got[0]), "%s %x", c.typ, c.key)
		}
	}
	// In a tuple texts are checked as well, and the partition's own elements.
	m, err := NewMapping(cqltable.Columns{
		Partition:  []cqltable.Column{column("p", "text", cqltable.PartitionKey, false)},
		Clustering: []cqltable.Column{column("c", "ascii", cqltable.Clustering, false)},
	}, []string{"p", "c"}, nil)
	require.NoError(t, err)
	room := [][]byte{[]byte("room")}
	for key, want := range map[string]bool{
		string(keys.Of(keys.String("room"), keys.String("x"))): true,
		string(keys.Of(keys.String("rook"), keys.String("x"))): false, string(keys.Of(keys.String("room"))): false,
		string(keys.Of(keys.String("room"), keys.String("\u00e4"))): false,
	} {
		got, ok := m.Clustering(room, []byte(key))
		require.Equal(t, want, ok, "%q", key)
		if want {
			require.Equal(t, [][]byte{[]byte("x")}, got)
		}
	}
}

// TestColumnsOfAWrongLength: a column that Cassandra sends with another number of bytes than its type has is an error,
// and so is a null.
func TestColumnsOfAWrongLength(t *testing.T) {
	for typ, n := range map[string]int{
		"tinyint": 1, "smallint": 2, "int": 4, "bigint": 8, "timestamp": 8, "date": 4, "boolean": 1,
	} {
		m, err := NewMapping(cqltable.Columns{
			Partition:  []cqltable.Column{column("p", typ, cqltable.PartitionKey, false)},
			Clustering: []cqltable.Column{column("c", "text", cqltable.Clustering, false)},
		}, []string{"p", "c"}, nil)
		require.NoError(t, err)
		for length := range 10 {
			_, err := m.Key([][]byte{make([]byte, length)}, [][]byte{{}})
			_, prefixErr := m.prefix([][]byte{make([]byte, length)})
			require.Equal(t, err, prefixErr)
			if length == n {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, fmt.Sprintf("p of type %s has %d bytes", typ, length))
			}
		}
		_, err = m.Key([][]byte{nil}, [][]byte{{}})
		require.ErrorContains(t, err, "the column p is null")
	}
}

// TestValuesOfColumns: the value of one column of text or blob is the column itself; others are JSON.
func TestValuesOfColumns(t *testing.T) {
	columns := cqltable.Columns{Clustering: []cqltable.Column{column("c", "text", cqltable.Clustering, false)}}
	for _, typ := range []string{
		"text", "ascii", "blob", "int", "frozen<set<text>>", "tuple<int>", "vector<float, 3>", "set<int>", "list<int>",
	} {
		columns.Others = append(columns.Others, column(typ, typ, cqltable.Regular, false))
	}
	some := func(texts ...string) (out [][]byte) {
		for _, text := range texts {
			if out = append(out, []byte(text)); text == "nil" {
				out[len(out)-1] = nil
			}
		}
		return out
	}
	for _, c := range []struct {
		names   []string
		columns [][]byte
		value   string
		err     string // of the way back
	}{
		{nil, nil, "", ""},
		{[]string{"text"}, some("x"), "x", ""},
		{[]string{"text"}, some("{}"), "{}", ""},
		{[]string{"text"}, some("\xff"), "\xff", "the column text is of type text"},
		{[]string{"ascii"}, some("\u00e4"), "\u00e4", "the column ascii is of type ascii"},
		{[]string{"blob"}, some("\xff"), "\xff", ""},
		{[]string{"int"}, some("7"), `{"int":7}`, ""},
		{[]string{"int"}, some("nil"), `{"int":null}`, ""},
		{[]string{"text", "blob"}, some(`"x"`, `"0x00"`), `{"text":"x","blob":"0x00"}`, ""},
		{[]string{"frozen<set<text>>"}, some(`["x"]`), `{"frozen\u003cset\u003ctext\u003e\u003e":["x"]}`, ""},
		{[]string{"tuple<int>"}, some(`[1]`), `{"tuple\u003cint\u003e":[1]}`, ""},
		{[]string{"vector<float, 3>"}, some(`[1]`), `{"vector\u003cfloat, 3\u003e":[1]}`, ""},
	} {
		m, err := NewMapping(columns, nil, c.names)
		require.NoError(t, err, "%q", c.names)
		require.Equal(t, c.value, string(m.Value(c.columns)), "%q", c.names)
		back, err := m.columnsOf([]byte(c.value))
		if c.err != "" {
			require.ErrorContains(t, err, c.err)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, c.columns, back)
	}
	for _, name := range []string{"set<int>", "list<int>"} {
		_, err := NewMapping(columns, nil, []string{name})
		require.ErrorContains(t, err, "not frozen")
	}
	text, err := NewMapping(columns, nil, []string{"text"})
	require.NoError(t, err)
	require.Empty(t, text.Value(some("nil")))
	require.NotNil(t, text.Value(some("nil")), "a nil would be a deletion")
	none, err := NewMapping(columns, nil, nil)
	require.NoError(t, err)
	_, err = none.columnsOf([]byte("x"))
	require.ErrorContains(t, err, "--value names no column")
}

// TestSameValues: JSON is compared by its content, numbers as they are written, and what is no JSON byte for byte.
func TestSameValues(t *testing.T) {
	columns := cqltable.Columns{
		Clustering: []cqltable.Column{column("c", "text", cqltable.Clustering, false)},
		Others:     []cqltable.Column{column("n", "bigint", cqltable.Regular, false)},
	}
	m, err := NewMapping(columns, nil, []string{"n"})
	require.NoError(t, err)
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{`{"n":1}`, ` {"n" : 1}`, true},
		{`{"n":1}`, `{"n":2}`, false},
		{`{"n":9007199254740992}`, `{ "n":9007199254740993}`, false},
		{`{"n":1,"m":2}`, `{"m":2,"n":1}`, true},
		{`{"n":"\u0061"}`, `{"n":"a"}`, true},
		{"x", "x", true},
		{"x", "y", false},
		{`{"n":1}`, "x", false},
		{`{"n":1}`, `{"n":1}{}`, false},
		{"x", `{"n":1}`, false},
		{`{"n":1}{}`, `{"n":1}`, false},
	} {
		require.Equal(t, c.want, m.same([]byte(c.a), []byte(c.b)), "%+v", c)
	}
}

// TestMappingsThatFitTogether: rows of several tables are one bucket only if keys and values have the same form.
func TestMappingsThatFitTogether(t *testing.T) {
	mapping := func(partition, clustering string, desc bool, key []string, values ...string) *Mapping {
		m, err := NewMapping(cqltable.Columns{
			Partition: []cqltable.Column{
				column("p", partition, cqltable.PartitionKey, false),
				column("q", partition, cqltable.PartitionKey, false),
			},
			Clustering: []cqltable.Column{column("c", clustering, cqltable.Clustering, desc)},
			Others: []cqltable.Column{
				column("v", "text", cqltable.Regular, false), column("n", "int", cqltable.Regular, false),
			},
		}, key, values)
		require.NoError(t, err)
		return m
	}
	same := []*Mapping{
		mapping("int", "bigint", false, []string{"p", "c"}, "v"),
		mapping("int", "bigint", true, []string{"q", "c"}, "v"), // another order of the table's rows, another column
	}
	require.NoError(t, same[0].Fits(same[1]))
	for i, other := range []*Mapping{
		mapping("bigint", "bigint", false, []string{"p", "c"}, "v"),
		mapping("int", "int", false, []string{"p", "c"}, "v"),
		mapping("int", "bigint", false, []string{"p", "-c"}, "v"),
		mapping("int", "bigint", false, []string{"-p", "c"}, "v"),
		mapping("int", "bigint", false, []string{"c"}, "v"),
		mapping("int", "bigint", false, []string{"p", "q", "c"}, "v"),
		mapping("int", "bigint", false, []string{"p", "c"}, "n"), mapping("int", "text", false, []string{"c"}, "v"),
	} {
		for _, m := range same {
			require.ErrorContains(t, m.Fits(other), "other keys, or other values", i)
			require.Error(t, other.Fits(m), i)
		}
	}
	text, tuple := mapping("int", "text", false, nil), mapping("int", "int", false, nil)
	require.Error(t, text.Fits(tuple), "a text as it is, or a tuple")
}

// TestKeysWithoutNames: the key is the clustering columns in the table's own order; one column of text that ascends is
// the key as it is.
func TestKeysWithoutNames(t *testing.T) {
	for _, c := range []struct {
		types []string
		desc  bool
		want  []byte
	}{
		{[]string{"text"}, false, []byte("ab")},
		{[]string{"ascii"}, false, []byte("ab")},
		{[]string{"blob"}, false, []byte("ab")},
		{[]string{"text"}, true, keys.Of(keys.Desc(keys.String("ab")))},
		{[]string{"smallint"}, false, keys.Of(keys.Int('a'<<8 | 'b'))},
		{[]string{"text", "blob"}, false, keys.Of(keys.String("ab"), keys.Bytes([]byte("ab")))},
		{[]string{"text", "blob"}, true, keys.Of(keys.Desc(keys.String("ab")), keys.Desc(keys.Bytes([]byte("ab"))))},
	} {
		var columns cqltable.Columns
		var wires [][]byte
		for i, typ := range c.types {
			columns.Clustering = append(columns.Clustering,
				column(fmt.Sprint("c", i), typ, cqltable.Clustering, c.desc))
			wires = append(wires, []byte("ab"))
		}
		m, err := NewMapping(columns, nil, nil)
		require.NoError(t, err)
		got, err := m.Key(nil, wires)
		require.NoError(t, err)
		require.Equal(t, c.want, got, "%+v", c)
		prefix, err := m.prefix(nil)
		require.NoError(t, err)
		require.Empty(t, prefix)
	}
}
