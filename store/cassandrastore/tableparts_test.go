package cassandrastore

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/evenkeel/evenkeel/internal/cqltable"
)

var halved = []string{"blob", "text", "ascii", "tinyint", "smallint", "int", "bigint", "timestamp", "date", "boolean"}

// compareOf is the order of Cassandra's types.
func compareOf(typ string, a, b []byte) int {
	number := func(b []byte) int64 {
		return int64(binary.BigEndian.Uint64(append(bytes.Repeat([]byte{byte(int8(b[0]) >> 7)}, 8-len(b)), b...)))
	}
	switch typ {
	case "tinyint", "smallint", "int", "bigint", "timestamp":
		return cmp.Compare(number(a), number(b))
	}
	return bytes.Compare(a, b)
}

// comparePlaces compares a row with a place.
func comparePlaces(columns []cqltable.Column, row [][]byte, p place) int {
	for i, v := range p.values {
		if d := compareOf(columns[i].Type, row[i], v); d != 0 {
			return d
		}
	}
	return map[bool]int{false: 1, true: -1}[p.after]
}

func drawValue(t *rapid.T, typ string) []byte {
	size := map[string]int{"tinyint": 1, "smallint": 2, "int": 4, "bigint": 8, "timestamp": 8, "date": 4}[typ]
	switch {
	case size > 0:
		return rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 0x7f, 0x80, 0xff, 42}), size, size).Draw(t, typ)
	case typ == "boolean":
		return []byte{rapid.ByteRange(0, 1).Draw(t, typ)}
	case typ == "blob":
		return rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 0xff, 'a'}), 0, 5).Draw(t, typ)
	case typ == "ascii":
		return []byte(rapid.StringOfN(rapid.SampledFrom([]rune{0, 1, 'a', 0x7f}), 0, 5, -1).Draw(t, typ))
	}
	runes := []rune{0, 1, 'a', 0x7f, 0x80, 0xd7ff, 0xe000, 0xffff, 0x10000, 0x10ffff}
	return []byte(rapid.StringOfN(rapid.SampledFrom(runes), 0, 5, -1).Draw(t, typ))
}

// An interval that is halved until no part has more rows than a replica reads past has each row in one part, whatever
// the types, and that in few steps. Each cut is a value that its column can have.
func TestHalvesOfRows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var columns []cqltable.Column
		for i := range rapid.IntRange(1, 3).Draw(t, "columns") {
			columns = append(columns,
				cqltable.Column{Name: fmt.Sprint("c", i), Type: rapid.SampledFrom(halved).Draw(t, "type")})
		}
		draw := func() (row [][]byte) {
			for _, c := range columns {
				row = append(row, drawValue(t, c.Type))
			}
			return row
		}
		rows := map[string][][]byte{}
		for range rapid.IntRange(1, 30).Draw(t, "rows") {
			row := draw()
			rows[fmt.Sprintf("%x", row)] = row
		}
		low, high := place{}, place{}
		if rapid.Bool().Draw(t, "from") {
			low = place{draw(), rapid.Bool().Draw(t, "exclusive")}
		}
		if rapid.Bool().Draw(t, "to") {
			high = place{draw(), rapid.Bool().Draw(t, "inclusive")}
		}
		within := func(row [][]byte, low, high place) bool {
			return (len(low.values) == 0 || comparePlaces(columns, row, low) > 0) &&
				(len(high.values) == 0 || comparePlaces(columns, row, high) < 0)
		}
		steps := 0
		var read func(low, high place) (seen int)
		read = func(low, high place) (seen int) {
			steps++
			var in [][][]byte
			for _, row := range rows {
				if within(row, low, high) {
					in = append(in, row)
				}
			}
			if len(in) <= 1 {
				return len(in)
			}
			cut, ok := halveRows(columns, low, high)
			require.True(t, ok, "%x: %x to %x", in, low, high)
			for i, v := range cut.values {
				if slices.Contains(halved[3:], columns[i].Type) {
					require.Len(t, v, len(in[0][i]))
				}
				require.True(t, columns[i].Type != "text" || bytes.Equal(v, []byte(string([]rune(string(v))))))
				require.True(t, columns[i].Type != "ascii" || !slices.ContainsFunc(v, func(b byte) bool { return b >= 0x80 }))
				require.True(t, columns[i].Type != "boolean" || v[0] <= 1)
			}
			return read(low, cut) + read(cut, high)
		}
		want := 0
		for _, row := range rows {
			if within(row, low, high) {
				want++
			}
		}
		require.Equal(t, want, read(low, high))
		require.Less(t, steps, 1+200*len(columns)*len(rows))
	})
}
