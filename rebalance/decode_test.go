package rebalance_test

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/test/plannertest"
	"github.com/evenkeel/evenkeel/rebalance"
)

func problems(t *testing.T, layout string) []string {
	t.Helper()
	_, _, err := rebalance.DecodeLayout([]byte(layout))
	if err == nil {
		return nil
	}
	var list rebalance.Problems
	require.ErrorAs(t, err, &list)
	var lines []string
	for _, p := range list {
		lines = append(lines, p.String())
	}
	return lines
}

func TestDecodesTheFormat(t *testing.T) {
	l, limits, err := rebalance.DecodeLayout([]byte(`{"bucket":"b",
		"limits":{"max_rows":100000,"min_rows":25000,"target_rows":60000,"max_writes_per_s":500,"horizon_s":60},
		"partitions":[
			{"id":"p1","start":"","end":"k","quanta":[{"key":"a","rows":1000},{"key":"b","rows":0}],"pinned":true,
			 "writes_per_s":1.5,"growth_rows_per_s":-2},
			{"id":"p2","start":"k"},
			{"id":"p3","start":{"b64":"/wA="},"quanta":[{"key":{"b64":"/wA="},"rows":9007199254739992}]}]} `))
	require.NoError(t, err)
	k := rebalance.Key("k")
	require.Equal(t,
		rebalance.Limits{MaxRows: 100000, MinRows: 25000, TargetRows: 60000, MaxWritesPerS: 500, HorizonS: 60}, limits)
	require.Equal(t, rebalance.Layout{Bucket: "b", Partitions: []rebalance.Partition{
		{ID: "p1", End: &k, Quanta: []rebalance.Quantum{{Key: "a", Rows: 1000}, {Key: "b"}}, Pinned: true,
			WritesPerS: 1.5, GrowthRowsPerS: -2},
		{ID: "p2", Start: "k"},
		{ID: "p3", Start: "\xff\x00", Quanta: []rebalance.Quantum{{Key: "\xff\x00", Rows: 9007199254739992}}},
	}}, l)
}

func TestDefaults(t *testing.T) {
	_, limits, err := rebalance.DecodeLayout([]byte(`{"limits":{"max_rows":7},"partitions":[{"id":"p","start":""}]}`))
	require.NoError(t, err)
	require.Equal(t, rebalance.Limits{MaxRows: 7, TargetRows: 4, HorizonS: 86400}, limits)
	require.Equal(t, int64(90), rebalance.DefaultTarget(100, 90))
	require.Equal(t, int64(5404319552844594), rebalance.DefaultTarget(math.MaxInt64>>10, 0))
}

// Everything that is wrong is said at once, and nothing that only follows from
// something else.
func TestListsAllProblemsByPath(t *testing.T) {
	require.Equal(t, []string{
		`limits.max_row: unknown field`,
		`limits.min_rows: must be a whole number without point or exponent, is 1.5`,
		`limits.max_rows: is missing`,
		`partitions[0].colour: unknown field`,
		`partitions[0].quanta[1].rows: is 99999999999999999999, more than 9007199254740992`,
		`partitions[0].quanta[2].row: unknown field`,
		`partitions[0].quanta[2].rows: is missing`,
		`partitions[1].start.b64: not base64: illegal base64 data at input byte 0`,
		`partitions[1].pinned: must be true or false, is a string`,
		`partitions[2]: must be an object, is a number`,
		`partitions[3].id: is given twice`,
		`partitions[3].start: must be a string or {"b64":"..."}, is null`,
		`partitions[4].id: is missing`,
		`partitions[5].quanta[0].key.b32: unknown field`,
		`partitions[5].quanta[0].key.b64: is missing`,
		`partitions[5].writes_per_s: is 1e999, beyond 1e+12`,
		`extra: unknown field`,
		`partitions[0].start: is "b": a gap, no partition holds the keys below it`,
		`partitions[0].quanta[0].key: is "a", below the partition's start, "b"`,
		`partitions[0].quanta[0].rows: is negative: -1`,
		`partitions[0].quanta[1].key: is "a", like the key before it: a duplicate`,
		`partitions[0].quanta[1].key: is "a", below the partition's start, "b"`,
		`partitions[0].quanta[2].key: is "a", like the key before it: a duplicate`,
		`partitions[0].quanta[2].key: is "a", below the partition's start, "b"`,
		`partitions[3].quanta[0].key: is "y", not below the next partition's start, "n": the two partitions overlap`,
		`partitions[3].quanta[1].key: is "x", below the key before it, "y": quanta must be in the order of their keys`,
		`partitions[3].quanta[1].key: is "x", not below the next partition's start, "n": the two partitions overlap`,
		`partitions[5].start: is "m", below the start before it, "n": partitions must be in the order of their keys`,
	}, problems(t, `{"limits":{"max_row":1,"min_rows":1.5},
		"partitions":[
			{"id":"p0","start":"b","colour":{"a":[1,{}]},"quanta":[{"key":"a","rows":-1},
				{"key":"a","rows":99999999999999999999},{"key":"a","row":3}]},
			{"id":"p1","start":{"b64":"?"},"pinned":"yes"},
			7,
			{"id":"p3","id":"p4","start":null,"quanta":[{"key":"y","rows":1},{"key":"x","rows":1}]},
			{"start":"n"},
			{"id":"p5","start":"m","quanta":[{"key":{"b32":""},"rows":1}],"writes_per_s":1e999}],
		"extra":[]}`))
}

func TestEachProblem(t *testing.T) {
	wrap := func(partitions string) string {
		return `{"bucket":"b","limits":{"max_rows":10,"min_rows":2,"target_rows":6},"partitions":[` + partitions + `]}`
	}
	limits := func(l string) string { return `{"limits":` + l + `,"partitions":[{"id":"p","start":""}]}` }
	one := `{"id":"p","start":""`
	for _, c := range []struct{ layout, want string }{
		{``, `the layout is empty`},
		{`{"bucket":`, `line 1, byte 11: not JSON: it ends too early`},
		{"{\n \"bucket\":}", `line 2, byte 11: not JSON: invalid character '}' at start of value`},
		{wrap(one+`}`) + "\n}", `line 2, byte 1: something follows the layout: "}"`},
		{wrap(one+`}`) + wrap(""), `line 1, byte 106: something follows the layout: "{\"bucket\":\"b\",\"limit"`},
		{`[]`, `must be an object, is a list`},
		{wrap(``), `partitions: there must be at least one`},
		{wrap(one + `},`), `line 1, byte 104: not JSON: invalid character ',' at start of value`},
		{wrap(`{"id":"","start":""}`), `partitions[0].id: is empty`},
		{wrap(`{"id":"p","start":"a"}`), `partitions[0].start: is "a": a gap, no partition holds the keys below it`},
		{
			wrap(one + `},{"id":"q","start":""}`),
			`partitions[1].start: is "", like the start before it: the two partitions overlap`,
		},
		{wrap(one + `},{"id":"p","start":"m"}`), `partitions[1].id: "p" is the id of partitions[0] too`},
		{
			wrap(one + `,"end":"k"},{"id":"q","start":"m"}`),
			`partitions[0].end: is "k": a gap, no partition holds the keys from it up to the next start, "m"`,
		},
		{
			wrap(one + `,"end":"n"},{"id":"q","start":"m"}`),
			`partitions[0].end: is "n", beyond the next start, "m": the two partitions overlap`,
		},
		{
			wrap(one + `,"end":""},{"id":"q","start":"m"}`),
			`partitions[0].end: is "", beyond the next start, "m": the two partitions overlap`,
		},
		{
			wrap(one + `,"end":"n"}`),
			`partitions[0].end: is "n": a gap, no partition holds the keys from it on; the last end is empty`,
		},
		{
			wrap(one + `,"quanta":[{"key":"m","rows":1}]},{"id":"q","start":"m"}`),
			`partitions[0].quanta[0].key: is "m", not below the next partition's start, "m": ` +
				`the two partitions overlap`,
		},
		{
			wrap(one + `,"quanta":[{"key":"m","rows":1},{"key":"m","rows":1}]}`),
			`partitions[0].quanta[1].key: is "m", like the key before it: a duplicate`,
		},
		{wrap(one + `,"quanta":[{"key":"m","rows":-5}]}`), `partitions[0].quanta[0].rows: is negative: -5`},
		{
			wrap(one + `,"quanta":[{"key":"m","rows":-99999999999999999999}]}`),
			`partitions[0].quanta[0].rows: is negative: -99999999999999999999`,
		},
		{
			wrap(one + `,"quanta":[{"key":"m","rows":1e3}]}`),
			`partitions[0].quanta[0].rows: must be a whole number without point or exponent, is 1e3`,
		},
		{
			wrap(one + `,"quanta":[{"key":"m","rows":9223372036854775807}]}`),
			`partitions[0].quanta[0].rows: is 9223372036854775807, more than 9007199254740992`,
		},
		{
			wrap(one + `,"quanta":[{"key":"m","rows":9007199254740992},{"key":"n","rows":1}]}`),
			`partitions[0].quanta[1].rows: makes the bucket larger than 9007199254740992 rows`,
		},
		{wrap(one + `,"writes_per_s":-1}`), `partitions[0].writes_per_s: is negative: -1`},
		{wrap(one + `,"growth_rows_per_s":-1e13}`), `partitions[0].growth_rows_per_s: is -1e+13, beyond 1e+12`},
		{wrap(one + `,"node":"n1"}`), `partitions[0].node: unknown field`},
		{
			wrap(`{"id":"p","start":"` + strings.Repeat("a", 65536) + `"}`),
			`partitions[0].start: has 65536 bytes, more than 65535`,
		},
		{limits(`{"max_rows":0}`), `limits.max_rows: is 0, must be at least 1`},
		{limits(`{"max_rows":9007199254740993}`), `limits.max_rows: is 9007199254740993, more than 9007199254740992`},
		{limits(`{"max_rows":5,"min_rows":6}`), `limits.min_rows: is 6, above max_rows, which is 5`},
		{limits(`{"max_rows":5,"min_rows":-1}`), `limits.min_rows: is -1, must be at least 0`},
		{limits(`{"max_rows":5,"target_rows":-1}`), `limits.target_rows: is -1, must be at least 0`},
		{limits(`{"max_rows":5,"horizon_s":-1}`), `limits.horizon_s: is negative: -1`},
		{limits(`null`), `limits: must be an object, is null`},
		{`{"limits":{"max_rows":5},"nodes":[{"name":"n"}],"partitions":[` + one + `}]}`, `nodes: unknown field`},
		{`{"limits":{"Max_rows":5},"partitions":[` + one + `}]}`, `limits.Max_rows: unknown field`},
		{`{"limits":{"max_rows":5,"":5},"partitions":[` + one + `}]}`, `limits."": unknown field`},
		{wrap(one + `,"pinned":true,"pinned":true}`), `partitions[0].pinned: is given twice`},
		{wrap(one + `,"pinned":null}`), `partitions[0].pinned: must be true or false, is null`},
		{
			wrap("{\"id\":\"\xff\",\"start\":\"\"}"),
			`partitions[0].id: line 1, byte 90: invalid UTF-8: write such a key as {"b64":"..."}`,
		},
		{
			wrap(`{"id":"p\\\ud83d\ude00","start":""},{"id":"q","start":"\ude00"}`),
			"partitions[1].start: line 1, byte 138: invalid surrogate pair `\\ude00\"}]}` in string: " +
				"write such a key as {\"b64\":\"...\"}",
		},
	} {
		got := problems(t, c.layout)
		require.NotEmpty(t, got, c.layout)
		require.Equal(t, c.want, got[0], c.layout)
	}
}

func TestEncodedLayoutsDecode(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 3))
		l, limits := plannertest.Small(r, 12)
		for _, k := range plannertest.Kinds() {
			if seed < 3 {
				l, limits = k.Make(r)
			}
		}
		if len(l.Partitions) > 1 {
			last := &l.Partitions[len(l.Partitions)-1]
			last.Start, last.Quanta, last.End = "\xff<>&\u2028", nil, new(rebalance.Key)
			last.ID = "\t\"\\<"
		}
		require.Empty(t, rebalance.Validate(l, limits), "seed %d", seed)
		data, err := rebalance.EncodeLayout(l, limits)
		require.NoError(t, err)
		got, gotLimits, err := rebalance.DecodeLayout(data)
		require.NoError(t, err, "seed %d: %s", seed, data)
		require.Equal(t, l, &got, "seed %d", seed)
		require.Equal(t, limits, gotLimits)
	}
}

// Whatever comes in, the answer is a layout that is valid, or problems.
func FuzzDecodeLayout(f *testing.F) {
	l, limits := plannertest.Small(rand.New(rand.NewPCG(1, 1)), 8)
	data, err := rebalance.EncodeLayout(l, limits)
	require.NoError(f, err)
	f.Add(data)
	f.Add([]byte(`{"limits":{"max_rows":7,"max_rows":8},"partitions":[{"id":"p","start":{"b64":"/w=="},"x":[{}]}]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		l, limits, err := rebalance.DecodeLayout(data)
		if err == nil {
			require.Empty(t, rebalance.Validate(&l, limits))
			return
		}
		var list rebalance.Problems
		require.ErrorAs(t, err, &list)
		require.NotEmpty(t, list)
	})
}
