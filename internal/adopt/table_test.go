package adopt

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/evenkeel/evenkeel/internal/cqltable"
	"github.com/evenkeel/evenkeel/keys"
	"github.com/evenkeel/evenkeel/store"
)

// cells is a Cassandra table in memory. Its rows lie in the clustering order that it was made with.
type cells struct {
	columns cqltable.Columns
	values  []string
	desc    bool // the order in which the table keeps its rows
	json    bool // the form in which values are expected

	mu   sync.Mutex
	rows []cellRow
	err  error // of the next read or write
}

type cellRow struct {
	partition [][]byte
	cqltable.Row
	deleted bool
}

func joinWires(wires [][]byte) string { return fmt.Sprintf("%q", wires) }

func (c *cells) order(a, b [][]byte) int {
	for i, column := range c.columns.Clustering {
		if order := compareWires(column.Type, a[i], b[i]); order != 0 {
			return order
		}
	}
	return 0
}

func (c *cells) takeError() error {
	err := c.err
	c.err = nil
	return err
}

func (c *cells) Read(_ context.Context, q cqltable.Query) (out []cqltable.Row, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.takeError(); err != nil {
		return nil, err
	}
	if q.Limit < 1 || q.AsJSON != c.json || len(q.Partition) != len(c.columns.Partition) {
		return nil, store.Errorf(store.InvalidArgument, "no such query: %+v", q)
	}
	for _, r := range c.rows {
		if r.deleted || joinWires(r.partition) != joinWires(q.Partition) {
			continue
		}
		in := true
		for _, bound := range []struct {
			columns        [][]byte
			with, isHigher bool
		}{{q.From, !q.FromExclusive, q.Desc}, {q.To, q.ToInclusive, !q.Desc}} {
			if bound.columns == nil {
				continue
			}
			order := c.order(r.Clustering, bound.columns)
			if bound.isHigher {
				order = -order
			}
			in = in && (order > 0 || order == 0 && bound.with)
		}
		if !in {
			continue
		}
		row := cqltable.Row{Clustering: r.Clustering}
		if len(q.Values) > 0 { // those of the table
			row.Values, row.WriteTime, row.Expires = r.Values, r.WriteTime, r.Expires
		}
		out = append(out, row)
	}
	// Without an order in the statement rows come as the table keeps them.
	desc := c.desc
	if q.Desc != q.TableDesc {
		desc = q.Desc
	}
	slices.SortFunc(out, func(a, b cqltable.Row) int {
		if desc {
			a, b = b, a
		}
		return c.order(a.Clustering, b.Clustering)
	})
	return out[:min(len(out), q.Limit)], nil
}

func (c *cells) Write(
	_ context.Context, partition [][]byte, values []string, asJSON bool, changes []cqltable.Change,
) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.takeError(); err != nil {
		return err
	}
	if !slices.Equal(values, c.values) || asJSON != c.json {
		return store.Errorf(store.InvalidArgument, "no such values: %q", values)
	}
	for _, change := range changes {
		if !change.Delete && len(change.Values) != len(c.values) {
			return store.Errorf(store.InvalidArgument, "%d values", len(change.Values))
		}
		row := cqltable.Row{Clustering: change.Clustering, Values: change.Values, WriteTime: change.At}
		at := slices.IndexFunc(c.rows, func(r cellRow) bool {
			return joinWires(r.partition) == joinWires(partition) && c.order(r.Clustering, change.Clustering) == 0
		})
		if at < 0 {
			at, c.rows = len(c.rows), append(c.rows, cellRow{})
		} else if change.At < c.rows[at].WriteTime {
			continue
		}
		c.rows[at] = cellRow{partition, row, change.Delete}
	}
	return nil
}

// TestTablesAreReadAndWrittenByKeys: whatever the columns, a table is the sorted rows that were written to it: by pages
// of any span, and one by one.
func TestTablesAreReadAndWrittenByKeys(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		withPartition, desc := rapid.Bool().Draw(t, "with partition"), rapid.Bool().Draw(t, "desc")
		c := &cells{desc: rapid.Bool().Draw(t, "table desc")}
		types := []string{"text", "int", "blob"}
		c.columns.Partition = []cqltable.Column{column("p", "int", cqltable.PartitionKey, false)}
		c.columns.Others = []cqltable.Column{
			column("v", "text", cqltable.Regular, false), column("n", "int", cqltable.Regular, false),
		}
		var key []string
		if withPartition {
			key = append(key, "p")
		}
		for i := range rapid.IntRange(1, 2).Draw(t, "columns") {
			name := fmt.Sprint("c", i)
			c.columns.Clustering = append(c.columns.Clustering,
				column(name, rapid.SampledFrom(types).Draw(t, "type"), cqltable.Clustering, c.desc))
			if desc {
				name = "-" + name
			}
			key = append(key, name)
		}
		c.values = rapid.SampledFrom([][]string{nil, {"v"}, {"n"}, {"v", "n"}}).Draw(t, "values")
		c.json = len(c.values) > 0 && c.values[len(c.values)-1] == "n"
		m, err := NewMapping(c.columns, key, c.values)
		require.NoError(t, err)
		partitions, err := m.Partitions("p=-1..1")
		require.NoError(t, err)
		target, err := FromTable(c, m, partitions, 1000)
		require.NoError(t, err)
		require.Equal(t, 3, target.Parts())

		type place struct {
			part int
			key  string
		}
		rows := map[place]store.Row{}
		var known []string
		drawValue := func() []byte {
			switch {
			case c.json:
				values := map[string]string{
					"v": rapid.SampledFrom([]string{`"x"`, "null"}).Draw(t, "v"),
					"n": rapid.SampledFrom([]string{"7", "null"}).Draw(t, "n"),
				}
				var members []string
				for _, name := range c.values {
					members = append(members, `"`+name+`":`+values[name])
				}
				return []byte("{" + strings.Join(members, ",") + "}")
			case len(c.values) == 1:
				return []byte(rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, "value"))
			}
			return []byte{}
		}
		for range rapid.IntRange(0, 15).Draw(t, "writes") {
			part := rapid.IntRange(0, 2).Draw(t, "part")
			var clustering [][]byte
			for _, column := range c.columns.Clustering {
				clustering = append(clustering, drawWire(t, column.Type))
			}
			key, err := m.Key(partitions[part], clustering)
			require.NoError(t, err)
			at := place{part, string(key)}
			time := store.Timestamp(rapid.IntRange(1, 3).Draw(t, "at"))
			row := store.Row{Key: key, Timestamp: time, Value: drawValue()}
			if rapid.IntRange(0, 3).Draw(t, "delete") == 0 {
				row.Value = nil
			}
			require.NoError(t, target.Write(t.Context(), part, []store.Row{row}))
			if row.Timestamp >= rows[at].Timestamp {
				rows[at] = row
			}
			known = append(known, string(key))
		}
		drawKey := func(name string) []byte {
			if len(known) == 0 || rapid.IntRange(0, 2).Draw(t, name+" is set") == 0 {
				return nil
			}
			return []byte(rapid.SampledFrom(known).Draw(t, name))
		}
		for range 5 {
			part, limit := rapid.IntRange(0, 2).Draw(t, "part"), rapid.IntRange(1, 8).Draw(t, "limit")
			s := Span{From: drawKey("from"), To: drawKey("to")}
			s.After = s.From != nil && rapid.Bool().Draw(t, "after")
			var want []Row
			for at, row := range rows {
				order := bytes.Compare(row.Key, s.From)
				if at.part == part && row.Value != nil && (s.From == nil || order > 0 || order == 0 && !s.After) &&
					(s.To == nil || bytes.Compare(row.Key, s.To) < 0) {
					want = append(want, Row{Key: row.Key, Value: row.Value, Time: row.Timestamp})
				}
			}
			slices.SortFunc(want, func(a, b Row) int { return bytes.Compare(a.Key, b.Key) })
			want = want[:min(len(want), limit)]
			page, err := target.Page(t.Context(), part, s, limit, true)
			require.NoError(t, err)
			keysOnly, err := target.Page(t.Context(), part, s, limit, false)
			require.NoError(t, err)
			require.Len(t, page, len(want))
			require.Len(t, keysOnly, len(want))
			for i := range want {
				if len(c.values) == 0 {
					want[i].Time = 0 // there is no cell with a time
				}
				require.Equal(t, string(want[i].Key), string(page[i].Key))
				require.Equal(t, string(want[i].Value), string(page[i].Value))
				require.Equal(t, want[i].Time, page[i].Time)
				require.Equal(t, want[i].Key, keysOnly[i].Key)
			}
		}
		for _, key := range append(known, "\xff\xff", "\x00") {
			homes := 0
			for part := range target.Parts() {
				at := rows[place{part, key}]
				row, found, err := target.Get(t.Context(), part, []byte(key))
				require.NoError(t, err)
				require.Equal(t, at.Value != nil, found)
				require.Equal(t, string(at.Value), string(row.Value))
				if _, ok := m.Clustering(partitions[part], []byte(key)); ok {
					homes++
				}
			}
			part, why := target.Home([]byte(key))
			switch {
			case homes == 0:
				require.Equal(t, NoRow, why)
			case homes > 1:
				require.Equal(t, NoHome, why)
			default:
				require.Empty(t, why)
				_, ok := m.Clustering(partitions[part], []byte(key))
				require.True(t, ok)
			}
			if homes != 1 {
				require.Equal(t, -1, part)
			}
		}
	})
}

// roomTable is a table of rows by room and id: some of its rooms. keyed says that the room is part of the key.
func roomTable(t *testing.T, keyed bool, value string, rooms ...string) (*cells, Target) {
	t.Helper()
	c := &cells{values: []string{value}, json: value == "n", columns: cqltable.Columns{
		Partition:  []cqltable.Column{column("room", "text", cqltable.PartitionKey, false)},
		Clustering: []cqltable.Column{column("id", "blob", cqltable.Clustering, false)},
		Others: []cqltable.Column{
			column("v", "text", cqltable.Regular, false), column("n", "int", cqltable.Regular, false),
		},
	}}
	key := []string{"id"}
	if keyed {
		key = []string{"room", "id"}
	}
	m, err := NewMapping(c.columns, key, c.values)
	require.NoError(t, err)
	var partitions [][][]byte
	for _, room := range rooms {
		partitions = append(partitions, [][]byte{[]byte(room)})
	}
	target, err := FromTable(c, m, partitions, 3)
	require.NoError(t, err)
	return c, target
}

func roomKey(room, id string) []byte { return keys.Of(keys.String(room), keys.Bytes([]byte(id))) }

// TestRowsThatABucketCannotHave: the reason is with the row, and the limits are inclusive.
func TestRowsThatABucketCannotHave(t *testing.T) {
	c, target := roomTable(t, false, "v", "a")
	for i, r := range []struct {
		id, value string
		expires   bool
		why       Refusal
	}{
		{id: "", value: "v", why: BadKey},
		{id: "a", value: "abc"},
		{id: "b", value: "abcd", why: BadValue},
		{id: "c", value: "v", expires: true, why: Expires},
		{id: strings.Repeat("d", store.MaxKeyBytes), value: "v"},
		{id: strings.Repeat("e", store.MaxKeyBytes+1), value: "v", why: BadKey},
	} {
		c.rows = []cellRow{{partition: [][]byte{[]byte("a")}, Row: cqltable.Row{
			Clustering: [][]byte{[]byte(r.id)}, Values: [][]byte{[]byte(r.value)}, WriteTime: 5, Expires: r.expires,
		}}}
		rows, err := target.Page(t.Context(), 0, Span{}, 10, true)
		require.NoError(t, err)
		require.Equal(t, []Row{{Key: []byte(r.id), Value: []byte(r.value), Time: 5, Refused: r.why}}, rows, i)
		row, found, err := target.Get(t.Context(), 0, []byte(r.id))
		require.NoError(t, err)
		require.True(t, found)
		require.Equal(t, rows[0], row)
	}
	c, target = roomTable(t, true, "v", "a")
	c.rows = []cellRow{{partition: [][]byte{[]byte("a")}, Row: cqltable.Row{Clustering: [][]byte{nil}}}}
	_, err := target.Page(t.Context(), 0, Span{}, 10, true)
	require.ErrorContains(t, err, "null")
}

// TestErrorsOfTables: a table that was changed under the copy says so; other errors come as they are, also where a
// part is skipped.
func TestErrorsOfTables(t *testing.T) {
	c, target := roomTable(t, true, "v", "a", "a2")
	ctx, away := t.Context(), store.Errorf(store.Unavailable, "it is away")
	key := roomKey("a", "x")
	for name, call := range map[string]func() error{
		"page": func() error { _, err := target.Page(ctx, 0, Span{}, 1, true); return err },
		"get":  func() error { _, _, err := target.Get(ctx, 0, key); return err },
		"write": func() error {
			return target.Write(ctx, 0, []store.Row{{Key: key, Value: []byte("v"), Timestamp: 1}})
		},
	} {
		c.err = away
		require.ErrorIs(t, call(), away, name)
		c.err = store.Errorf(store.InvalidArgument, "unconfigured table")
		err := call()
		require.ErrorIs(t, err, store.InvalidArgument, name)
		require.Equal(t, name != "write", strings.Contains(err.Error(), "begin again with --key and --value"), name)
		require.NoError(t, call(), name)
	}
	bad := append(slices.Clone(key), 1)
	for _, s := range []Span{{From: bad}, {To: bad}} {
		_, err := target.Page(ctx, 0, s, 1, true)
		require.ErrorIs(t, err, store.InvalidArgument, "a bound that no row can have: the read would go on without it")
		_, err = target.Page(ctx, 1, s, 1, true)
		require.NoError(t, err, "it is outside of this part")
	}
	require.ErrorIs(t, target.Write(ctx, 0, []store.Row{{Key: bad, Timestamp: 1}}), store.InvalidArgument)
	row := store.Row{Key: key, Value: []byte("\xff"), Timestamp: 1}
	require.ErrorIs(t, target.Write(ctx, 0, []store.Row{row}), store.InvalidArgument)
	require.Empty(t, target.Takes(key, []byte("v")))
	require.Equal(t, NoValues+": the column v is of type text", target.Takes(key, row.Value))
	_, found, err := target.Get(ctx, 0, bad)
	require.NoError(t, err)
	require.False(t, found)
	_, numbers := roomTable(t, false, "n", "a")
	require.True(t, numbers.Same([]byte(`{"n":1}`), []byte(`{ "n": 1 }`)))
	require.False(t, target.Same([]byte(`{"n":1}`), []byte(`{ "n": 1 }`)), "texts")

	m, err := NewMapping(c.columns, []string{"room", "id"}, nil)
	require.NoError(t, err)
	_, err = FromTable(c, m, [][][]byte{{nil}}, 1)
	require.ErrorContains(t, err, "room is null")
}

// TestJoinedTablesAreOne: the parts of all tables count on, and each call goes to the table that has the part.
func TestJoinedTablesAreOne(t *testing.T) {
	ctx := t.Context()
	one, a := roomTable(t, true, "v", "a", "b")
	two, b := roomTable(t, true, "v", "c")
	three, c := roomTable(t, true, "v", "d", "e", "f")
	all := Join(a, b, c)
	require.Equal(t, 6, all.Parts())
	for part, in := range []*cells{one, one, two, three, three, three} {
		want := store.Row{Key: roomKey(string(rune('a'+part)), "x"), Value: []byte("v"), Timestamp: 1}
		before := len(in.rows)
		require.NoError(t, all.Write(ctx, part, []store.Row{want}))
		require.Len(t, in.rows, before+1)
		rows, err := all.Page(ctx, part, Span{}, 10, true)
		require.NoError(t, err)
		require.Equal(t, []Row{{Key: want.Key, Value: want.Value, Time: 1}}, rows)
		row, found, err := all.Get(ctx, part, want.Key)
		require.NoError(t, err)
		require.True(t, found)
		require.Equal(t, rows[0], row)
	}
	require.Panics(t, func() { _, _ = all.Page(ctx, 6, Span{}, 1, true) })
	require.True(t, all.Same([]byte("x"), []byte("x")))
	require.False(t, all.Same([]byte("x"), []byte("y")))
	require.Empty(t, all.Takes(nil, []byte("x")))
	require.NotEmpty(t, all.Takes(nil, []byte("\xff")))
}

// TestHomesInJoinedTables: an entry has a home if exactly one part of all tables can have it.
func TestHomesInJoinedTables(t *testing.T) {
	rooms := func(keyed bool, names ...string) Target {
		_, target := roomTable(t, keyed, "v", names...)
		return target
	}
	all := Join(rooms(true, "1", "2"), rooms(true, "3"), rooms(true, "2", "4", "5"))
	for room, want := range map[string]int{"1": 0, "3": 2, "4": 4, "5": 5} {
		part, why := all.Home(roomKey(room, "x"))
		require.Equal(t, want, part, room)
		require.Empty(t, why, room)
	}
	for room, want := range map[string]Refusal{"2": NoHome, "": NoRow, "11": NoRow} {
		part, why := all.Home(roomKey(room, "x"))
		require.Equal(t, -1, part, room)
		require.Equal(t, want, why, room)
	}
	_, why := Join(rooms(false, "1", "2"), rooms(true, "1")).Home([]byte("any"))
	require.Equal(t, NoHome, why, "two rooms of one table can have it")
}
