package forecast_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/rebalance/forecast"
	"github.com/evenkeel/evenkeel/store"
)

// Whatever the keys are: no panic, and no cut that is none.
func FuzzAhead(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 1))
	for i := range tenants {
		next := tenants[i].keys(r)
		var keys []string
		for range 60 {
			k, _ := next()
			keys = append(keys, string(k))
		}
		f.Add(strings.Join(keys, "\n"), 1000.0, 100_000.0, uint16(5), 100.0, start.Unix(), uint64(i))
	}
	f.Add("9\n99\n999\na\nb\nc\nd\ne\nf\nff\nfff\nffff", 0.0, 1.0, uint16(300), 0.0, int64(0), uint64(0))
	f.Add("\xfe\n\xff\n\xff\xff\n\xff\xff\xff\n\xff\xff\xff\xff\n\xff\xff\xff\xff\xff\n0\n1\n2\n3", 0.0, 1e-9,
		uint16(300), 0.0, int64(0), uint64(0))
	f.Fuzz(func(t *testing.T, text string, first, each float64, n uint16, rate float64, now int64, seed uint64) {
		var keys [][]byte
		for k := range strings.SplitSeq(text, "\n") {
			keys = append(keys, []byte(k))
		}
		slices.SortFunc(keys, bytes.Compare)
		keys = slices.CompactFunc(keys, bytes.Equal)
		o := forecast.Options{First: first, Each: each, N: int(n), RowsPerSecond: rate}
		if now != 0 {
			o.Now = time.Unix(now%(1<<40), 0)
		}
		if seed%3 == 0 {
			r := rand.New(rand.NewPCG(seed, 1))
			for range keys {
				o.Written = append(o.Written, now%(1<<40)*1e6+int64(len(o.Written))*1000+r.Int64N(2000))
			}
		}
		before := bytes.Join(keys, []byte("\n"))
		got, err := forecast.Ahead(keys, o)
		require.Equal(t, before, bytes.Join(keys, []byte("\n")), "the keys are left as they were")
		var no *forecast.Unpredictable
		if errors.As(err, &no) {
			require.NotEmpty(t, no.Reason)
			return
		}
		if err != nil {
			require.ErrorIs(t, err, store.InvalidArgument)
			return
		}
		checkCuts(t, got.Cuts, keys[len(keys)-1], o)
		require.Len(t, got.Rows, len(got.Cuts))
		require.True(t, slices.IsSorted(got.Rows), "%v", got.Rows)
		require.GreaterOrEqual(t, got.Rows[0], 0.0)
		require.NotEmpty(t, got.How)
		require.GreaterOrEqual(t, got.Sure, 0.0)
		require.LessOrEqual(t, got.Sure, 1.0)
	})
}

func BenchmarkAhead(b *testing.B) {
	for _, x := range tenants {
		b.Run(x.name, func(b *testing.B) {
			r := rand.New(rand.NewPCG(1, 1))
			next := x.keys(r)
			var keys [][]byte
			var now time.Time
			for range 20_000 {
				k, at := next()
				keys, now = append(keys, k), at
			}
			recent := highest(keys, 1000)
			o := forecast.Options{First: 50_000, Each: 100_000, N: 10, RowsPerSecond: x.rate, Now: now}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := forecast.Ahead(recent, o); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("refused", func(b *testing.B) {
		r := rand.New(rand.NewPCG(1, 1))
		var keys [][]byte
		for range 1000 {
			k := make([]byte, 3+r.IntN(40))
			for i := range k {
				k[i] = byte(' ' + r.IntN(90))
			}
			keys = append(keys, k)
		}
		recent := highest(keys, 1000)
		o := forecast.Options{First: 50_000, Each: 100_000, N: 10}
		b.ReportAllocs()
		for b.Loop() {
			if _, err := forecast.Ahead(recent, o); err == nil {
				b.Fatal("a forecast of unpredictable keys")
			}
		}
	})
}
