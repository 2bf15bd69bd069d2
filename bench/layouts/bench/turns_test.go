package bench

import (
	"context"
	"encoding/xml"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/bench/layouts"
	"github.com/evenkeel/evenkeel/internal/test/seed"
)

func TestRatiosAreOfTheSameRounds(t *testing.T) {
	base, ours := map[int]float64{}, map[int]float64{}
	for i := range 100 {
		base[i] = float64(1 + i)
		if i%10 == 0 { // takes part in each tenth round only
			ours[i] = 3 * float64(1+i)
		}
	}
	ratio, least, most := ratios(ours, base)
	require.InDelta(t, 3, ratio, 1e-9)
	require.InDelta(t, 3, least, 1e-9)
	require.InDelta(t, 3, most, 1e-9)
	ratio, least, most = ratios(map[int]float64{3: 1}, map[int]float64{4: 1})
	require.Zero(t, ratio+least+most, "no round in common")
	// A slow moment that both share is none.
	for i := range ours {
		ours[i], base[i] = ours[i]*float64(i), base[i]*float64(i)
	}
	delete(ours, 0)
	_, least, most = ratios(ours, base)
	require.InDelta(t, 3, least, 1e-9)
	require.InDelta(t, 3, most, 1e-9)
}

// Ratios are compared with the words of their definition, written out another way.
func TestRatiosAreWhatTheySay(t *testing.T) {
	r := seed.New(t)
	middle := func(of []float64) float64 { // as many are above as below, or one less
		for _, x := range of {
			below, same := 0, 0
			for _, y := range of {
				if y < x {
					below++
				} else if y == x {
					same++
				}
			}
			if below <= len(of)/2 && len(of)/2 < below+same {
				return x
			}
		}
		return math.NaN()
	}
	for range 2000 {
		n := 1 + r.IntN(50)
		ours, base := map[int]float64{}, map[int]float64{}
		var all []float64
		for i := range n {
			round := i*100 + r.IntN(100)
			if r.IntN(5) == 0 {
				base[round] = 1 // takes no part
				continue
			}
			ours[round], base[round] = float64(1+r.IntN(9)), math.Exp2(float64(r.IntN(3)))
			all = append(all, ours[round]/base[round])
		}
		ratio, least, most := ratios(ours, base)
		if len(all) == 0 {
			require.Zero(t, ratio)
			continue
		}
		require.InDelta(t, middle(all), ratio, 1e-12)
		require.LessOrEqual(t, least, ratio, "%v", all)
		require.GreaterOrEqual(t, most, ratio, "%v", all)
		if len(all) < 9 {
			require.InDelta(t, slices.Min(all), least, 1e-12)
			require.InDelta(t, slices.Max(all), most, 1e-12)
		} else {
			first := middle(all[:len(all)/min(10, len(all)/3)]) // the first part
			require.LessOrEqual(t, least, first)
			require.GreaterOrEqual(t, most, first)
		}
		if len(all) >= 30 && len(all)%10 == 0 {
			var tenths []float64
			for some := range slices.Chunk(all, len(all)/10) {
				tenths = append(tenths, middle(some))
			}
			require.InDelta(t, slices.Min(tenths), least, 1e-12)
			require.InDelta(t, slices.Max(tenths), most, 1e-12)
		}
	}
}

func TestTurns(t *testing.T) {
	var order []string
	done := func(name string, rounds int) way {
		return way{layout: name, rounds: rounds, do: func(_ context.Context, round int) (func() error, error) {
			order = append(order, name)
			return nil, nil
		}, counted: func(context.Context, int) (layouts.Work, error) {
			return layouts.Work{Requests: 2, Rows: 3, Bytes: 5}, nil
		}}
	}
	lines, err := turns(t.Context(), []way{done(layouts.NameEvenkeel, 0), done("b", 0), done("c", 2)}, 10, 1, time.Hour)
	require.NoError(t, err)
	require.Len(t, lines, 3)
	require.Equal(t, 10, lines[0].N)
	require.Equal(t, 2, lines[2].N)
	require.InDelta(t, 2, lines[1].Requests, 1e-9)
	require.InDelta(t, 5, lines[2].Bytes, 1e-9)
	require.Contains(t, order, "c")
	followed := map[[2]string]int{}
	for i := range order[1:] {
		followed[[2]string{order[i], order[i+1]}]++
	}
	require.Positive(t, followed[[2]string{layouts.NameEvenkeel, "b"}], "neither always comes first")
	require.Positive(t, followed[[2]string{"b", layouts.NameEvenkeel}])

	wrong := way{layout: "w", do: func(context.Context, int) (func() error, error) {
		return func() error { return errors.New("a row is missing") }, nil
	}}
	_, err = turns(t.Context(), []way{wrong}, 3, 0, time.Hour)
	require.ErrorContains(t, err, "w: a row is missing")
}

func TestTheOracleFindsWhatIsWrong(t *testing.T) {
	var entries []layouts.Entry
	for _, k := range []string{"b/2", "a", "b/1", "c", "b/2"} {
		entries = append(entries, layouts.Entry{Key: []byte(k), Value: valueOf([]byte(k), len(entries))})
	}
	o := newOracle(entries)
	require.Len(t, o.keys, 4)
	all := o.list(layouts.Query{Limit: 10})
	require.Equal(t, entries[4].Value, all[2].Value)
	folded := o.list(layouts.Query{Limit: 10, Delimiter: []byte("/")})
	require.Len(t, folded, 3)
	require.Equal(t, "b/", string(folded[1].Key))
	require.True(t, folded[1].CommonPrefix)
	back := o.list(layouts.Query{Limit: 2, Reverse: true, After: []byte("b/2")})
	require.Equal(t, "b/1", string(back[0].Key))
	require.Equal(t, "a", string(back[1].Key))
	require.NoError(t, o.check(layouts.Query{Limit: 10}, all))
	require.Error(t, o.check(layouts.Query{Limit: 10}, all[:3]))
	all[0].Value = []byte("x")
	require.Error(t, o.check(layouts.Query{Limit: 10}, all))
	one := func(entries ...layouts.Entry) [][]layouts.Entry { return [][]layouts.Entry{entries} }
	require.Error(t, o.complete(one(entries...)))
	require.NoError(t, o.complete(one(entries[4], entries[1], entries[2], entries[3])))
	require.NoError(t, o.complete([][]layouts.Entry{{entries[3]}, {}, {entries[2], entries[4]}, {entries[1]}}),
		"pages in any order")
	require.NoError(t, o.complete([][]layouts.Entry{{entries[1], entries[3]}, {entries[2], entries[4]}}),
		"pages that overlap")
	require.Error(t, o.complete([][]layouts.Entry{{entries[1], entries[3]}, {entries[2], entries[0]}}),
		"a value that was overwritten")
}

func TestSetsAreWhatTheySay(t *testing.T) {
	for _, s := range sets() {
		if s.name == setReal {
			continue // walks the disk; realkeys has a test of its own
		}
		entries := s.entries(2000)
		require.Len(t, entries, max(int(s.share*2000), 100), s.name)
		o := newOracle(entries)
		if s.name == "zipf" {
			require.Less(t, len(o.keys), len(entries)/5)
		} else {
			require.Len(t, o.keys, len(entries), s.name)
		}
		for _, k := range o.keys {
			_, err := layouts.SnowflakeOf(k)
			require.Equal(t, s.feed, err == nil, s.name)
		}
	}
}

// What a run writes down is there again: in the table, the document and the chart.
func TestReports(t *testing.T) {
	r := newReport(Options{Keys: 2000, Stores: []string{Pebble}})
	for _, name := range []string{layouts.NameEvenkeel, nameBare, "a <strange> & name"} {
		r.Lines = append(r.Lines, Line{
			Store: Pebble, Set: setReal, Measure: deepPage, Layout: name, N: 7, P50: 1234, P95: 99_000, Ratio: 0.5,
			Least: 0.25, Most: 0.8, Requests: 2, Rows: 1000, Bytes: 2048,
		})
	}
	r.Sizes = []Size{{Store: Pebble, Set: setReal, Layout: "wide", Partitions: 1, Min: 4711, Mean: 4711, Max: 4711}}
	r.leftOut("something else")
	r.Map = []Figure{{What: "a lookup", Value: 600.4, Unit: "ns", Note: "at noon", Most: atMost(500)},
		{What: "a read", Value: 0.25, Unit: "ns"}}
	require.Equal(t, []target{
		{Pebble, "page of 1000: time relative to bare", "2.00 (1.25 to 4.00)", "at most 1.5", missed},
		{aboutMap, "a lookup", "600.4 ns (at noon)", "at most 500 ns", missed},
		{aboutMap, "a read", "0.25 ns", "-", yardstick},
	}, r.targets())
	var table strings.Builder
	require.NoError(t, r.Print(&table))
	root := t.TempDir()
	require.NoError(t, r.WriteDocs(root))
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(root, name))
		require.NoError(t, err)
		return string(text)
	}
	page, tables := read(pageFile), read(tablesFile)
	targets := []string{"2.00 (1.25 to 4.00)", "600.4 ns", "missed", "yardstick", "something else"}
	figures := []string{"1.23 ms", "99.00 ms", "0.50 (0.25 to 0.80)", "4711", "something else"}
	for text, wanted := range map[string][]string{table.String(): slices.Concat(targets, figures), page: targets,
		tables: figures} {
		for _, want := range wanted {
			require.Contains(t, text, want)
		}
	}
	require.NotContains(t, page, "99.00 ms", "the page has the targets only")
	require.Less(t, strings.Index(page, "## Pebble"), strings.Index(page, "## The map"), "a table each")
	require.Equal(t, 1, strings.Count(page, "600.4 ns"), "in its own table only")
	chart := read(resultsDir + "/" + chartName(Pebble))
	require.NoError(t, xml.Unmarshal([]byte(chart), new(struct{})))
	require.Contains(t, chart, "a &lt;strange&gt; &amp; name")
	require.Contains(t, tables, "("+chartName(Pebble)+")")
	// Both documents find each other, wherever the tree lies.
	for from, link := range map[string]string{pageFile: "../" + tablesFile, tablesFile: "../../" + pageFile} {
		require.Contains(t, read(from), "("+link+")")
		require.FileExists(t, filepath.Join(root, filepath.Dir(from), link))
	}
}
