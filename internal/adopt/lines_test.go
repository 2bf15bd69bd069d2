package adopt_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/adopt"
	"github.com/evenkeel/evenkeel/internal/test/faultstore"
	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// TestLinesOfFiles: what rows the lines of each form are, and which line is at fault.
func TestLinesOfFiles(t *testing.T) {
	for name, c := range map[string]struct {
		form  adopt.Form
		text  string
		rows  string // key=value, with spaces between
		lines int64
		err   string // and no rows behind it
	}{
		"keys":                     {adopt.Plain, "b\na\n", `"a"="" "b"=""`, 2, ""},
		"no line feed at the end":  {adopt.Plain, "b\na", `"a"="" "b"=""`, 2, ""},
		"nothing":                  {adopt.Plain, "", "", 0, ""},
		"bytes of a key":           {adopt.Plain, `a\xff\\` + "\n", `"a\xff\\"=""`, 1, ""},
		"an empty line":            {adopt.Plain, "a\n\nb\n", "", 2, "line 2: the key is empty"},
		"a stray backslash":        {adopt.Plain, "a\nb\nc\\q\n", "", 3, "line 3: "},
		"tabs in a key":            {adopt.Plain, "a\tb\n", `"a\tb"=""`, 1, ""},
		"values":                   {adopt.TSV, "a\tb\\q\tc\r\nd\t\n", `"a"="b\\q\tc\r" "d"=""`, 2, ""},
		"a value at the end":       {adopt.TSV, "a\tb", `"a"="b"`, 1, ""},
		"no tab":                   {adopt.TSV, "a\tb\nc\n", "", 2, "line 2: it has no tab"},
		"an empty key and a value": {adopt.TSV, "\tb\n", "", 1, "line 1: the key is empty"},
		"objects": {
			adopt.JSONL, `{"key":"a","value":"b"}` + "\n" + `{"key":"c"}`, `"a"="b" "c"=""`, 2, "",
		},
		"other JSON stands for self": {adopt.JSONL, `{"value": {"x" : 1},"key":"a"}`, `"a"="{\"x\" : 1}"`, 1, ""},
		"numbers":                    {adopt.JSONL, `{"key":"a","value":1.50}`, `"a"="1.50"`, 1, ""},
		"null":                       {adopt.JSONL, `{"key":"a","value":null}`, `"a"=""`, 1, ""},
		"bytes of a key in JSON":     {adopt.JSONL, `{"key":"\\xff"}`, `"\xff"=""`, 1, ""},
		"no JSON":                    {adopt.JSONL, "{}x\n", "", 1, "line 1: it is no object of JSON"},
		"no key":                     {adopt.JSONL, `{"value":"a"}`, "", 1, `line 1: it has no member "key"`},
		"an empty key in JSON":       {adopt.JSONL, `{"key":""}`, "", 1, "line 1: the key is empty"},
	} {
		t.Run(name, func(t *testing.T) {
			spool := adopt.NewSpool(memstore.New(), 1000, 7)
			lines, err := spool.AddLines(t.Context(), strings.NewReader(c.text), c.form, func(f adopt.Finding) {
				t.Errorf("%q: %s", f.Key, f.Fault)
			})
			require.Equal(t, c.lines, lines)
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				return
			}
			require.NoError(t, err)
			rows, err := spool.Page(t.Context(), 0, adopt.Span{}, 100, true)
			require.NoError(t, err)
			var got []string
			for _, r := range rows {
				require.EqualValues(t, 7, r.Time)
				require.Empty(t, r.Refused)
				got = append(got, fmt.Sprintf("%q=%q", r.Key, r.Value))
			}
			require.Equal(t, c.rows, strings.Join(got, " "))
		})
	}
}

// TestLinesThatAreRefused: a row that is too long is left out and reported with its line, and the limits are inclusive.
// Of two lines with one key the later one counts, however far apart they are.
func TestLinesThatAreRefused(t *testing.T) {
	const most = 10
	longest, key := strings.Repeat("v", most), strings.Repeat("k", store.MaxKeyBytes)
	var text bytes.Buffer
	fmt.Fprintf(&text, "a\t%s\nb\t%sv\n%s\tv\n%sk\tv\nc\t1\nc\t2\n", longest, longest, key, key)
	const others = 6000 // more than are written at once
	for i := range others {
		fmt.Fprintf(&text, "o%04d\tv\n", i)
	}
	fmt.Fprint(&text, "a\t3\no0003\t4\nlast\t5")
	spool, found := adopt.NewSpool(memstore.New(), most, 7), []string(nil)
	lines, err := spool.AddLines(t.Context(), &text, adopt.TSV, func(f adopt.Finding) {
		found = append(found, fmt.Sprintf("%.5s %s", f.Key, f.Fault))
	})
	require.NoError(t, err)
	require.EqualValues(t, 6+others+3, lines)
	require.Equal(t, []string{
		"b line 2: " + string(adopt.BadValue), "kkkkk line 4: " + string(adopt.BadKey),
		"c line 6: " + string(adopt.Collision), fmt.Sprintf("a line %d: %s", 7+others, adopt.Collision),
		fmt.Sprintf("o0003 line %d: %s", 8+others, adopt.Collision),
	}, found)
	for key, want := range map[string]string{"a": "3", "c": "2", "o0003": "4", "o0004": "v", "last": "5", key: "v"} {
		row, there, err := spool.Get(t.Context(), 0, []byte(key))
		require.NoError(t, err)
		require.True(t, there)
		require.Equal(t, want, string(row.Value))
		require.EqualValues(t, 7, row.Time)
	}
	_, there, err := spool.Get(t.Context(), 0, []byte("b"))
	require.NoError(t, err)
	require.False(t, there)
	require.True(t, spool.Same([]byte("x"), []byte("x")))
	require.False(t, spool.Same([]byte("x"), []byte("y")))
	require.Equal(t, 1, spool.Parts())
}

// TestLargeValuesOfLines: rows that together are more than a store takes at once are written in several batches.
func TestLargeValuesOfLines(t *testing.T) {
	value := strings.Repeat("v", 900<<10)
	var text bytes.Buffer
	for i := range 10 {
		fmt.Fprintf(&text, "%d\t%s\n", i, value)
	}
	spool := adopt.NewSpool(memstore.New(), 1<<20, 7)
	_, err := spool.AddLines(t.Context(), &text, adopt.TSV, func(adopt.Finding) { t.Error("nothing is refused") })
	require.NoError(t, err)
	rows, err := spool.Page(t.Context(), 0, adopt.Span{}, 20, true)
	require.NoError(t, err)
	require.Len(t, rows, 10)
	require.Len(t, rows[9].Value, len(value))

	_, err = adopt.NewSpool(memstore.New(), 1<<20, 7).AddLines(t.Context(),
		strings.NewReader("a\tb\nc\t"+strings.Repeat("v", 8<<20)), adopt.TSV, func(adopt.Finding) {})
	require.ErrorContains(t, err, "line 2: ", "a line that is too long for memory")
}

// TestManyLines: more lines than a store takes rows at once.
func TestManyLines(t *testing.T) {
	var text bytes.Buffer
	const n = store.MaxBatchRows + 10
	for i := range n {
		fmt.Fprintf(&text, "%06d\n", i)
	}
	spool := adopt.NewSpool(memstore.New(), 1, 7)
	lines, err := spool.AddLines(t.Context(), &text, adopt.Plain, func(adopt.Finding) { t.Error("nothing is refused") })
	require.NoError(t, err)
	require.EqualValues(t, n, lines)
	for from, want := range map[string]int{"": 6000, "006000": 4010, "010000": 10} {
		rows, err := spool.Page(t.Context(), 0, adopt.Span{From: []byte(from)}, 6000, true)
		require.NoError(t, err)
		require.Len(t, rows, want)
	}
}

// TestPagesOfSpools: pages of random spans are those of the sorted lines, though the store's pages are short.
func TestPagesOfSpools(t *testing.T) {
	ctx, random := t.Context(), seed.New(t)
	short := faultstore.Options{Seed: random.Uint64(), Rates: faultstore.Rates{Short: 0.5}}
	rows, _ := faultstore.New(memstore.New(), short)
	spool, all := adopt.NewSpool(rows, 10, 7), map[string]bool{}
	for range 60 {
		all[fmt.Sprintf("%02d", random.IntN(100))] = true
	}
	text := strings.Join(slices.Collect(maps.Keys(all)), "\n")
	_, err := spool.AddLines(ctx, strings.NewReader(text), adopt.Plain, func(adopt.Finding) {})
	require.NoError(t, err)
	pick := func() []byte {
		if random.IntN(4) == 0 {
			return nil
		}
		return fmt.Appendf(nil, "%02d", random.IntN(100))
	}
	for range 300 {
		s, limit := adopt.Span{From: pick(), To: pick()}, 1+random.IntN(60)
		s.After = s.From != nil && random.IntN(2) == 0
		if s.To != nil && bytes.Compare(s.From, s.To) > 0 {
			s.From, s.To = s.To, s.From
		}
		var want, got []string
		for _, key := range slices.Sorted(maps.Keys(all)) {
			if (key > string(s.From) || key == string(s.From) && !s.After) && (s.To == nil || key < string(s.To)) {
				want = append(want, key)
			}
		}
		page, err := spool.Page(ctx, 0, s, limit, true)
		require.NoError(t, err)
		for _, r := range page {
			got = append(got, string(r.Key))
		}
		require.Equal(t, want[:min(limit, len(want))], got, "%+v %d", s, limit)
	}
}

// failing is a store of rows whose n-th call fails.
type failing struct {
	store.Rows
	calls, fails int
}

var errFull = errors.New("the disk is full")

func (f *failing) next() error {
	if f.calls++; f.calls == f.fails {
		return errFull
	}
	return nil
}

func (f *failing) Put(ctx context.Context, p store.Partition, rows ...store.Row) error {
	if err := f.next(); err != nil {
		return err
	}
	return f.Rows.Put(ctx, p, rows...)
}

func (f *failing) Get(ctx context.Context, p store.Partition, key []byte) (store.Row, bool, error) {
	if err := f.next(); err != nil {
		return store.Row{}, false, err
	}
	return f.Rows.Get(ctx, p, key)
}

func (f *failing) Slice(
	ctx context.Context, p store.Partition, b store.Bounds, o store.SliceOptions,
) (store.Page, error) {
	if err := f.next(); err != nil {
		return store.Page{}, err
	}
	return f.Rows.Slice(ctx, p, b, o)
}

// TestEachCallOfASpoolFails: no failure is passed over, so that no row is missing in silence.
func TestEachCallOfASpoolFails(t *testing.T) {
	ctx := t.Context()
	for fails := 1; ; fails++ {
		rows := &failing{Rows: memstore.New(), fails: fails}
		spool := adopt.NewSpool(rows, 1<<20, 7)
		value := strings.Repeat("v", 1<<20-1) // a cell has a byte more
		_, err := spool.AddLines(ctx, strings.NewReader("a\t"+value+"\nb\t"+value+"\nc\t"+value+"\nd\t"), adopt.TSV,
			func(adopt.Finding) {})
		if err == nil {
			_, err = spool.Page(ctx, 0, adopt.Span{}, 10, true)
		}
		if err == nil {
			_, _, err = spool.Get(ctx, 0, []byte("a"))
		}
		if rows.calls < fails {
			require.NoError(t, err)
			require.Greater(t, fails, 7)
			return
		}
		require.ErrorIs(t, err, errFull, "call %d", fails)
	}
}

// broken is a reader that fails behind some text.
type broken struct{ text *strings.Reader }

func (b broken) Read(p []byte) (int, error) {
	if b.text.Len() == 0 {
		return 0, errFull
	}
	return b.text.Read(p)
}

func TestFilesThatCannotBeRead(t *testing.T) {
	spool := adopt.NewSpool(memstore.New(), 1, 7)
	_, err := spool.AddLines(t.Context(), broken{strings.NewReader("a\nb\n")}, adopt.Plain, func(adopt.Finding) {})
	require.ErrorIs(t, err, errFull)
	require.ErrorContains(t, err, "line 3: ")
}
