package forecast_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/rebalance/forecast"
)

// Keys with the present time in them are told from others by one key.
func TestTimed(t *testing.T) {
	now := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	for key, want := range map[string]bool{
		fmt.Sprintf("a/%d/x", now.Unix()): true,
		fmt.Sprintf("%08x-%04x-7abc-8def-0123456789ab", now.UnixMilli()>>16, now.UnixMilli()&0xffff): true,
		"log-2026-03-04T05-06-00": true, "2026/03/04/000123": true,
		"log-2020-03-04T05-06-00": false, "key-00012345": false, "1500000000": false, "": false,
	} {
		require.Equal(t, want, forecast.Timed([]byte(key), now), key)
		require.False(t, forecast.Timed([]byte(key), time.Time{}), key)
	}
}

// A number that counts rows is told from one that grows by chance, as times do.
func TestCounted(t *testing.T) {
	for name, c := range map[string]struct {
		key  func(i int) int
		want bool
	}{
		"in a row":            {func(i int) int { return i }, true},
		"every tenth":         {func(i int) int { return 10 * i }, true},
		"a fifth was deleted": {func(i int) int { return i + i/4 }, true},
		"in bunches":          {func(i int) int { return 10_000*(i/8) + i%8 }, false},
	} {
		t.Run(name, func(t *testing.T) {
			var keys [][]byte
			for i := range 800 {
				keys = append(keys, fmt.Appendf(nil, "%010d", 1_000_000+c.key(i)))
			}
			f, err := forecast.Ahead(keys, forecast.Options{First: 100, Each: 900, N: 3})
			require.NoError(t, err)
			require.Equal(t, c.want, f.Counted)
		})
	}
}

// Where the keys' times say that rows come faster than was counted, they are right: the cuts lie closer.
func TestKeysKnowTheRateOfALoadThatHasJustBegun(t *testing.T) {
	now := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	var keys [][]byte
	for i := range 200 { // 100 per second
		ms := now.Add(-2*time.Second + time.Duration(i)*10*time.Millisecond).UnixMilli()
		keys = append(keys, fmt.Appendf(nil, "%08x-%04x-7abc-8def-0123456789ab", ms>>16, ms&0xffff))
	}
	for counted, want := range map[float64]float64{100: 9, 60: 9, 30: 9, 95: 9.5, 1: 900} {
		f, err := forecast.Ahead(keys, forecast.Options{First: 900, Each: 900, N: 2, RowsPerSecond: counted, Now: now})
		require.NoError(t, err)
		at := func(cut []byte) float64 {
			text := fmt.Sprintf("%s000000000000", cut)
			var high, low int64
			_, err := fmt.Sscanf(text[:8]+" "+text[9:13], "%x %x", &high, &low)
			require.NoError(t, err)
			return float64(high<<16|low)/1000 - float64(now.Unix())
		}
		require.InDelta(t, want, at(f.Cuts[1])-at(f.Cuts[0]), want/20, "counted as %v per second", counted)
	}
}

// Four digits of text, read as a time in seconds, lie in 1999. A time of writing has moved on as the clock has.
func TestDigitsAreNoTimeOfOtherMonths(t *testing.T) {
	now := time.Date(2000, 1, 1, 0, 31, 30, 0, time.UTC)
	for top := 36_000; top < 40_000; top += 37 {
		for _, n := range []int{64, 200, 500, 800} {
			var keys [][]byte
			var written []int64
			for i := range n { // 20 per second
				keys = append(keys, fmt.Appendf(nil, "key-%08d", top-n+i))
				written = append(written, now.Add(time.Duration((i-n)/20)*time.Second).UnixMicro())
			}
			f, err := forecast.Ahead(keys, forecast.Options{
				First: 200, Each: 900, N: 2, RowsPerSecond: 20, Now: now, Written: written,
			})
			require.NoError(t, err, top)
			require.Equal(t, forecast.Number, f.Method, "%d of %d: %s", n, top, f.How)
		}
	}
}
