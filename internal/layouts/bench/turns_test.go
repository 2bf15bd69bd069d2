package bench

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/layouts"
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
	base[99], base[98] = 1, 1
	ratio, _, most = ratios(base, base)
	require.InDelta(t, 1, ratio, 1e-9)
	require.InDelta(t, 1, most, 1e-9)
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
	require.Equal(t, layouts.NameEvenkeel, order[0])
	require.Contains(t, order, "c")

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
	require.Error(t, o.complete(slices.Clone(entries)))
	require.NoError(t, o.complete([]layouts.Entry{entries[4], entries[1], entries[2], entries[3]}))
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
