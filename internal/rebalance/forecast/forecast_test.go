package forecast_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sort"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/rebalance/forecast"
	"github.com/evenkeel/evenkeel/internal/test/race"
	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/store"
)

// source is a tenant: next returns its keys in the order of their writing, one per
// call, and when each is written.
type source func(r *rand.Rand) (next func() ([]byte, time.Time))

// tenant is one kind of growth.
type tenant struct {
	name string
	keys source
	// exact: a counter without chance, so cuts are too.
	exact bool
	// rate is told; 0: nothing is.
	rate float64
	// history is how many keys were written before, 20,000 if 0.
	history int
	// dense is how full partitions may stay at least, on average, of each; 0.7 if 0.
	dense float64
	// within: keys fall anywhere in a long tick, so partitions are full when it is over.
	within bool
	how    string // what is to be learned
}

var start = time.Date(2026, 11, 21, 17, 15, 0, 0, time.UTC)

// arrivals is a clock of rows that come at a rate by chance.
func arrivals(r *rand.Rand, at time.Time, perSecond float64) func() time.Time {
	t := float64(0)
	return func() time.Time {
		t += r.ExpFloat64() / perSecond
		return at.Add(time.Duration(t * 1e9))
	}
}

// counter counts, one row in a millisecond.
func counter(format string, from, step int64) source {
	return func(*rand.Rand) func() ([]byte, time.Time) {
		n, at := from, start
		return func() ([]byte, time.Time) {
			n, at = n+step, at.Add(time.Millisecond)
			return fmt.Appendf(nil, format, n), at
		}
	}
}

// timed makes keys of the time of their writing.
func timed(from time.Time, perSecond float64, key func(r *rand.Rand, at time.Time) []byte) source {
	return func(r *rand.Rand) func() ([]byte, time.Time) {
		clock := arrivals(r, from, perSecond)
		return func() ([]byte, time.Time) {
			at := clock()
			return key(r, at), at
		}
	}
}

const minutely = 100_000 / 60.0 // rows per second: 100,000 in a minute

const million = 1_000_000

func layout(l string) func(*rand.Rand, time.Time) []byte {
	return func(r *rand.Rand, at time.Time) []byte {
		return fmt.Appendf(nil, "logs/%s-%06x", at.Format(l), r.IntN(1<<24))
	}
}

var tenants = []tenant{
	{name: "padded", keys: counter("order-%09d", 120_000, 1), exact: true,
		how: "zero-padded number after 'order-', step 1.00"},
	{name: "padded, suffix", keys: counter("a/b/order-%09d.json", 120_000, 1), exact: true},
	{name: "padded, carry over all", keys: counter("order-%09d", 979_990, 1), exact: true},
	{name: "padded, carry now", keys: counter("order-%09d", 979_999, 1), exact: true},
	{name: "padded, from 0", keys: counter("%010d", -1, 1), exact: true, history: 1000},
	{name: "steps of 10", keys: counter("order-%09d", 120_000, 10), exact: true, how: "step 10.00"},
	{name: "steps of 7", keys: counter("order-%09d", 120_000, 7), exact: true},
	{name: "few keys", keys: counter("order-%09d", 120_000, 3), exact: true, history: 9},
	{name: "unpadded, long enough", keys: counter("order-%d", 1_200_000, 1), exact: true,
		how: "number after 'order-', step 1.00"},
	{name: "grouped digits", keys: func(*rand.Rand) func() ([]byte, time.Time) {
		n := 0
		return func() ([]byte, time.Time) {
			n++
			return fmt.Appendf(nil, "x/%03d/%03d/%03d", n/1000000, n/1000%1000, n%1000), start
		}
	}, exact: true, history: 40_000, dense: 0.6},
	{name: "hexadecimal", keys: counter("id_%08x", 0x8fff0, 1), exact: true,
		how: "hexadecimal number after 'id_', step 1.00"},
	{name: "hexadecimal, upper", keys: counter("ID%012X", 0x8fff0, 16), exact: true,
		how: "hexadecimal number after 'ID', step 16.00"},
	{name: "binary", keys: func(*rand.Rand) func() ([]byte, time.Time) {
		n := uint64(1<<24 - 40_000)
		return func() ([]byte, time.Time) {
			n++
			return binary.BigEndian.AppendUint64([]byte("seq/"), n), start
		}
	}, exact: true, how: "binary number after 'seq/', step 1.00"},
	{name: "base 36", keys: func(*rand.Rand) func() ([]byte, time.Time) {
		n := int64(1 << 33)
		return func() ([]byte, time.Time) {
			n++
			return fmt.Appendf(nil, "u/%09s", strconv.FormatInt(n, 36)), start
		}
	}, exact: true},
	{name: "gaps", keys: func(r *rand.Rand) func() ([]byte, time.Time) {
		n := 5_000_000
		return func() ([]byte, time.Time) {
			n += 1 + r.IntN(9)
			return fmt.Appendf(nil, "order-%010d", n), start
		}
	}},
	{name: "low digits by chance", keys: func(r *rand.Rand) func() ([]byte, time.Time) {
		n := 5_000_000
		return func() ([]byte, time.Time) {
			n++
			return fmt.Appendf(nil, "order-%010d%04d", n/3, r.IntN(10000)), start
		}
	}},
	{name: "several appenders", keys: func(r *rand.Rand) func() ([]byte, time.Time) {
		// Each takes blocks of 50 numbers.
		const appenders, block = 8, 50
		next, left := [appenders]int{}, [appenders]int{}
		free := 1_000_000
		return func() ([]byte, time.Time) {
			a := r.IntN(appenders)
			if left[a] == 0 {
				next[a], left[a], free = free, block, free+block
			}
			next[a]++
			left[a]--
			return fmt.Appendf(nil, "order-%010d", next[a]), start
		}
	}},
	{name: "one of several prefixes", keys: func(*rand.Rand) func() ([]byte, time.Time) {
		n := 0
		return func() ([]byte, time.Time) {
			n++
			if n < 19_700 {
				return fmt.Appendf(nil, "2025/invoice-%05d", n), start
			}
			return fmt.Appendf(nil, "2026/order-%09d", n), start
		}
	}, exact: true},
	{name: "RFC 3339", keys: timed(start, minutely, layout(time.RFC3339)), rate: minutely},
	{name: "RFC 3339 with fractions", keys: timed(start, minutely, layout("2006-01-02T15:04:05.000000Z07:00")),
		how: "rows per second"},
	{name: "RFC 3339 with fractions, told", keys: timed(start, minutely, layout("2006-01-02T15:04:05.000000Z07:00")),
		rate: minutely},
	{name: "RFC 3339, nanoseconds without zeros", keys: timed(start, minutely, layout(time.RFC3339Nano)),
		rate: minutely},
	{name: "local time", keys: timed(start.In(time.FixedZone("", 9*3600)), minutely, layout("2006-01-02T15:04")),
		rate: minutely, within: true},
	{name: "compact", keys: timed(start, minutely, layout("20060102T150405")), rate: minutely},
	{name: "compact, milliseconds", keys: timed(start, minutely, layout("20060102150405.000"))},
	{name: "end of a leap February",
		keys: timed(time.Date(2028, 2, 28, 23, 59, 40, 0, time.UTC), minutely, layout("2006-01-02T15:04:05")),
		rate: minutely},
	{name: "end of a leap day",
		keys: timed(time.Date(2028, 2, 29, 23, 59, 40, 0, time.UTC), minutely, layout("2006-01-02T15:04:05.000")),
		rate: minutely},
	{name: "end of a year", keys: timed(time.Date(2026, 12, 31, 23, 59, 40, 0, time.UTC), minutely,
		layout("2006/01/02/15/04/05")), rate: minutely},
	{name: "slow, end of a month",
		keys: timed(time.Date(2026, 11, 28, 3, 0, 0, 0, time.UTC), 0.5, layout("2006-01-02T15:04:05"))},
	{name: "slow, by days", keys: timed(time.Date(2024, 1, 28, 3, 0, 0, 0, time.UTC), 0.004, layout("2006-01-02")),
		how: "time after 'logs/', to the day, about 0.0"},
	{name: "seconds", keys: timed(start, minutely, func(r *rand.Rand, at time.Time) []byte {
		return fmt.Appendf(nil, "%d-%08x", at.Unix(), r.Uint32())
	}), rate: minutely, how: "Unix time in seconds"},
	{name: "milliseconds", keys: timed(start, minutely, func(r *rand.Rand, at time.Time) []byte {
		return fmt.Appendf(nil, "m/%d-%08x", at.UnixMilli(), r.Uint32())
	}), how: "Unix time in milliseconds"},
	{name: "milliseconds, another rate", keys: func(r *rand.Rand) func() ([]byte, time.Time) {
		// It was slow; told is what comes.
		n, slow := 0, arrivals(r, start, 100)
		var fast func() time.Time
		return func() ([]byte, time.Time) {
			if n++; n == 20_000 {
				fast = arrivals(r, slow(), minutely)
			}
			at := time.Time{}
			if n < 20_000 {
				at = slow()
			} else {
				at = fast()
			}
			return fmt.Appendf(nil, "m/%d-%04x", at.UnixMilli(), r.IntN(1<<16)), at
		}
	}, rate: minutely},
	{name: "nanoseconds", keys: timed(start, minutely, func(_ *rand.Rand, at time.Time) []byte {
		return fmt.Appendf(nil, "n/%d", at.UnixNano())
	})},
	{name: "late arrivals", keys: timed(start, minutely, func(r *rand.Rand, at time.Time) []byte {
		return fmt.Appendf(nil, "n/%d", at.Add(-time.Duration(r.IntN(200))*time.Millisecond).UnixNano())
	})},
	{name: "ULID", keys: timed(start, minutely, ulid), how: "ULID"},
	{name: "UUIDv7", keys: timed(start, minutely, uuid7), how: "UUIDv7"},
	{name: "UUIDv7, told", keys: timed(start, minutely, uuid7), rate: minutely, how: "UUIDv7"},
	{name: "KSUID", keys: timed(start, minutely, ksuid), rate: minutely, how: "KSUID"},
	{name: "Snowflake", keys: func(r *rand.Rand) func() ([]byte, time.Time) {
		clock, n := arrivals(r, start, minutely), 0
		return func() ([]byte, time.Time) {
			n++
			at := clock()
			return fmt.Appendf(nil, "tweet/%d", (at.UnixMilli()-1288834974657)<<22|int64(r.IntN(32))<<12|int64(n%4)), at
		}
	}, how: "Snowflake"},
	{name: "ObjectId", keys: func(r *rand.Rand) func() ([]byte, time.Time) {
		clock, n := arrivals(r, start, minutely), 0
		return func() ([]byte, time.Time) {
			n++
			at := clock()
			return fmt.Appendf(nil, "%08x%010x%06x", at.Unix(), 0x12345678*(1+n%3), n), at
		}
	}, rate: minutely, how: "ObjectId"},
	{name: "hour, then random", keys: timed(start.Add(40*time.Minute), 300, func(r *rand.Rand, at time.Time) []byte {
		return fmt.Appendf(nil, "logs/%s/%016x", at.Format("2006/01/02/15"), r.Uint64())
	}), rate: 300, within: true},
	{name: "partitions of a data lake, then UUIDs",
		keys: timed(start.Add(40*time.Minute), 300, func(r *rand.Rand, at time.Time) []byte {
			return fmt.Appendf(nil, "t/%s/%08x-%04x-4%03x-%04x-%012x", at.Format("year=2006/month=01/day=02/hour=15"),
				r.Uint32(), r.IntN(1<<16), r.IntN(1<<12), 0x8000+r.IntN(0x4000), r.Int64N(1<<48))
		}), rate: 300, within: true},
	{name: "day, then a counter that begins anew", keys: func(r *rand.Rand) func() ([]byte, time.Time) {
		clock, day, n := arrivals(r, time.Date(2026, 11, 21, 23, 59, 40, 0, time.UTC), minutely), 0, 800_000
		return func() ([]byte, time.Time) {
			at := clock()
			if d := at.YearDay(); d != day {
				if day > 0 {
					n = 0
				}
				day = d
			}
			n++
			return fmt.Appendf(nil, "%s/%08d", at.Format("2006-01-02"), n), at
		}
	}, rate: minutely},
	{name: "day, then a counter that goes on", keys: func(r *rand.Rand) func() ([]byte, time.Time) {
		clock, n := arrivals(r, time.Date(2026, 11, 21, 23, 59, 40, 0, time.UTC), minutely), 5_000_000_000
		return func() ([]byte, time.Time) {
			n++
			at := clock()
			return fmt.Appendf(nil, "%s/%012d", at.Format("2006-01-02"), n), at
		}
	}, rate: minutely},
}

func ulid(r *rand.Rand, at time.Time) []byte {
	const digits = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
	out := make([]byte, 26)
	ms := uint64(at.UnixMilli())
	for i := 9; i >= 0; i-- {
		out[i] = digits[ms%32]
		ms /= 32
	}
	for i := 10; i < 26; i++ {
		out[i] = digits[r.IntN(32)]
	}
	return out
}

func uuid7(r *rand.Rand, at time.Time) []byte {
	ms := at.UnixMilli()
	return fmt.Appendf(nil, "u/%08x-%04x-7%03x-%04x-%012x", ms>>16, ms&0xffff, r.IntN(1<<12), 0x8000+r.IntN(0x4000),
		r.Int64N(1<<48))
}

func ksuid(r *rand.Rand, at time.Time) []byte {
	const digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	var b [20]byte
	binary.BigEndian.PutUint32(b[:], uint32(at.Unix()-1400000000))
	for i := 4; i < 20; i++ {
		b[i] = byte(r.Uint32())
	}
	out := make([]byte, 27)
	for i := 26; i >= 0; i-- {
		rest := 0
		for j := range b {
			x := rest<<8 | int(b[j])
			b[j], rest = byte(x/62), x%62
		}
		out[i] = digits[rest]
	}
	return out
}

// highest is the last n of keys in order.
func highest(keys [][]byte, n int) [][]byte {
	keys = slices.Clone(keys)
	slices.SortFunc(keys, bytes.Compare)
	keys = slices.CompactFunc(keys, bytes.Equal)
	return keys[max(0, len(keys)-n):]
}

// checkCuts holds cuts to what is promised of any.
func checkCuts(t testing.TB, cuts [][]byte, top []byte, o forecast.Options) {
	t.Helper()
	require.Len(t, cuts, o.N)
	last := top
	for _, c := range cuts {
		require.Positive(t, bytes.Compare(c, last), "%q is not above %q", c, last)
		require.LessOrEqual(t, len(c), store.MaxKeyBytes)
		last = c
	}
}

// The oracle: the keys that the tenant goes on to write, put through the cuts.
func TestTrueNextKeys(t *testing.T) {
	rows := million
	if race.Enabled {
		rows /= 20
	}
	for _, x := range tenants {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			r := seed.New(t)
			next := x.keys(r)
			history := x.history
			if history == 0 {
				history = 20_000
			}
			var keys [][]byte
			var now time.Time
			for range history {
				k, at := next()
				keys = append(keys, k)
				now = at
			}
			recent := highest(keys, 1000)
			top := recent[len(recent)-1]
			const n = 10
			each := float64(rows) / n
			o := forecast.Options{First: each * 0.4, Each: each, N: n, RowsPerSecond: x.rate, Now: now}
			f, err := forecast.Ahead(recent, o)
			require.NoError(t, err, "highest %s", top)
			checkCuts(t, f.Cuts, top, o)
			require.Contains(t, f.How, x.how)
			require.Len(t, f.Cuts, n)
			total := int(f.Late + o.First + (n-1)*each)
			got := make([]int, n+1)
			for range total {
				k, _ := next()
				got[sort.Search(n, func(i int) bool { return bytes.Compare(f.Cuts[i], k) > 0 })]++
			}
			t.Logf("%s; sure %.2f; late %.0f; cuts %q; rows %v", f.How, f.Sure, f.Late, f.Cuts[:3], got)
			most := 1.2
			if x.exact {
				most = 1.02
			}
			require.LessOrEqual(t, float64(got[0]), f.Late+o.First+(most-1)*each, "below the first cut")
			for i := 1; i < n; i++ {
				require.LessOrEqual(t, float64(got[i]), most*each, "partition %d of %v", i, got)
			}
			// Nor may there be many more partitions than needed.
			dense := x.dense
			if dense == 0 {
				dense = 0.8
			}
			if !x.within || !race.Enabled {
				require.GreaterOrEqual(t, float64(total-got[n]), dense*float64(total), "%v", got)
			}
		})
	}
}

func refused(t *testing.T, keys [][]byte, o forecast.Options, says string) {
	t.Helper()
	if o.N == 0 {
		o.First, o.Each, o.N = 1000, 100_000, 5
	}
	f, err := forecast.Ahead(keys, o)
	var no *forecast.Unpredictable
	require.True(t, errors.As(err, &no), "%v %+v", err, f)
	require.Contains(t, err.Error(), says)
}

// What is not appended, or can't be known, is refused, and says why.
func TestUnpredictableKeys(t *testing.T) {
	r := seed.New(t)
	random := func(n int, key func() []byte) (keys [][]byte) {
		for range n {
			keys = append(keys, key())
		}
		return highest(keys, 1000)
	}
	now := forecast.Options{First: 1000, Each: 100_000, N: 5, Now: start, RowsPerSecond: 1000}
	for _, n := range []int{1000, 50_000} {
		for _, o := range []forecast.Options{{}, now} {
			refused(t, random(n, func() []byte { return fmt.Appendf(nil, "%016x%016x", r.Uint64(), r.Uint64()) }), o,
				"random")
			refused(t, random(n, func() []byte { return fmt.Appendf(nil, "blob%016x", r.Uint64()) }), o, "random")
			refused(t, random(n, func() []byte { return fmt.Appendf(nil, "a/%016X.jpg", r.Uint64()) }), o, "random")
			refused(t, random(n, func() []byte { return fmt.Appendf(nil, "%010d", r.IntN(1e10)) }), o, "random")
			refused(t, random(n, func() []byte { return binary.BigEndian.AppendUint64(nil, r.Uint64()) }), o, "random")
			refused(t, random(n, func() []byte {
				return fmt.Appendf(nil, "%08x-%04x-4%03x-%04x-%012x", r.Uint32(), r.IntN(1<<16), r.IntN(1<<12),
					0x8000+r.IntN(0x4000), r.Int64N(1<<48))
			}), o, "random")
			refused(t, random(n, func() []byte {
				word := make([]byte, 4+r.IntN(9))
				for i := range word {
					word[i] = 'a' + byte(26*r.Float64()*r.Float64())
				}
				return word
			}), o, "")
		}
	}
	counted := func(format string, from, to int) (keys [][]byte) {
		for i := from; i < to; i++ {
			keys = append(keys, fmt.Appendf(nil, format, i))
		}
		return highest(keys, 1000)
	}
	refused(t, counted("order-%d", 1, 12_345), forecast.Options{}, "without leading zeros")
	refused(t, counted("order-%d", 1, 9_999), forecast.Options{}, "")
	refused(t, counted("order-%d", 90_000, 99_500), forecast.Options{}, "a digit more")
	refused(t, counted("order-%04d", 1, 9_500), forecast.Options{}, "a digit more")
	refused(t, counted("order-%04x", 1, 0xf500), forecast.Options{}, "a digit more")
	refused(t, counted("order-%09d", 1, 8), forecast.Options{}, "7 keys")
	refused(t, nil, forecast.Options{}, "0 keys")

	// Numbers by chance that don't fill their digits: only when they were written tells.
	var keys [][]byte
	for range 50_000 {
		keys = append(keys, fmt.Appendf(nil, "order-%09d", r.IntN(370_370_367)))
	}
	recent := highest(keys, 1000)
	var written []int64
	for range recent {
		written = append(written, start.UnixMicro()+r.Int64N(1e9))
	}
	refused(t, recent, forecast.Options{First: 1, Each: 100, N: 5, Written: written}, "not appended")

	// Random keys of the present hour, and nobody knows how many come.
	next := timed(start, minutely, func(r *rand.Rand, at time.Time) []byte {
		return fmt.Appendf(nil, "logs/%s/%016x", at.Format("2006/01/02/15"), r.Uint64())
	})(r)
	keys = nil
	for range 20_000 {
		k, _ := next()
		keys = append(keys, k)
	}
	refused(t, highest(keys, 1000), forecast.Options{First: 1, Each: 100, N: 5, Now: start}, "that has to be given")
}

func TestBadOptions(t *testing.T) {
	good := forecast.Options{First: 1, Each: 1, N: 1}
	keys := [][]byte{[]byte("a"), []byte("b")}
	for _, change := range []func(o *forecast.Options){
		func(o *forecast.Options) { o.First = -1 },
		func(o *forecast.Options) { o.First = math.NaN() },
		func(o *forecast.Options) { o.Each = 0 },
		func(o *forecast.Options) { o.Each = math.Inf(1) },
		func(o *forecast.Options) { o.N = 0 },
		func(o *forecast.Options) { o.N = forecast.MostCuts + 1 },
		func(o *forecast.Options) { o.RowsPerSecond = math.NaN() },
		func(o *forecast.Options) { o.Written = []int64{1} },
	} {
		o := good
		change(&o)
		_, err := forecast.Ahead(keys, o)
		require.ErrorIs(t, err, store.InvalidArgument)
	}
	for _, keys := range [][][]byte{{[]byte("b"), []byte("a")}, {[]byte("a"), []byte("a")}, {nil},
		{make([]byte, store.MaxKeyBytes+1)}} {
		_, err := forecast.Ahead(keys, good)
		require.ErrorIs(t, err, store.InvalidArgument)
	}
}
