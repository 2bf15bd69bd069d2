package hints

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

var bucket = store.BucketID{1, 2, 3} // of shard 1

// flaky is a store that may be away.
type flaky struct {
	memstore.Store
	away atomic.Bool
}

func (f *flaky) Put(ctx context.Context, p store.Partition, rows ...store.Row) error {
	if f.away.Load() {
		return store.Errorf(store.Unavailable, "away")
	}
	if len(rows) > mostBatchRows {
		return errors.New("too many rows")
	}
	return f.Store.Put(ctx, p, rows...)
}

// due follows and deletes all hints that are due, and returns their keys.
func due(t *testing.T, j *Journal, n int, from Position) (keys []string, end Position) {
	t.Helper()
	for {
		rows, next, err := j.Due(t.Context(), n, from, 10)
		require.NoError(t, err)
		if len(rows) == 0 {
			slices.Sort(keys)
			return keys, next
		}
		for i := range rows {
			require.Equal(t, bucket, rows[i].Bucket)
			keys = append(keys, rows[i].Keys...)
			require.NoError(t, j.Forget(t.Context(), &rows[i]))
		}
		from = next
	}
}

func TestHintsAreReadOnceTheyAreDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &flaky{Store: memstore.New()}
		j := New(s, slog.New(slog.DiscardHandler))
		key := []byte("now")
		j.Note(bucket, key, 0)
		j.Note(bucket, key, 0)
		copy(key, "xxx")
		j.Note(bucket, []byte("soon"), time.Hour)
		j.Note(bucket, []byte("late"), 12*24*time.Hour)
		j.Note(store.BucketID{2}, []byte("of another shard"), 0)
		time.Sleep(slot + late)
		keys, at := due(t, j, 1, Position{})
		require.Equal(t, []string{"now"}, keys)
		j.Note(bucket, []byte("more"), 0)
		j.Close() // writes it
		j = New(s, slog.New(slog.DiscardHandler))
		defer j.Close()
		time.Sleep(time.Hour)
		keys, at = due(t, j, 1, at)
		require.Equal(t, []string{"more", "soon"}, keys)
		keys, _ = due(t, j, 1, Position{})
		require.Empty(t, keys, "they are deleted")
		time.Sleep(12 * 24 * time.Hour)
		keys, _ = due(t, j, 1, at)
		require.Equal(t, []string{"late"}, keys)
	})
}

// Hints wait in memory while the store is away, and go where readers have not been. There is room for some.
func TestHintsWaitForTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &flaky{Store: memstore.New()}
		s.away.Store(true)
		j := New(s, slog.New(slog.DiscardHandler))
		defer j.Close()
		j.Note(bucket, []byte("first"), 0)
		time.Sleep(2 * time.Hour)
		_, at := due(t, j, 1, Position{})
		for i := range mostKeys + 9 {
			j.Note(bucket, fmt.Append(nil, i), time.Hour)
		}
		require.Equal(t, Counts{Dropped: 10}, j.Counts())
		s.away.Store(false)
		require.NoError(t, j.Flush(t.Context()))
		require.Equal(t, Counts{Written: mostKeys, Dropped: 10}, j.Counts())
		require.Zero(t, j.keys+j.bytes)
		time.Sleep(slot + late)
		keys, at := due(t, j, 1, at)
		require.Equal(t, []string{"first"}, keys)
		time.Sleep(2 * time.Hour)
		keys, _ = due(t, j, 1, at)
		require.Len(t, keys, mostKeys-1)
	})
}

// What came to a slot beside a row that was read stays, and so does a row that is not understood.
func TestAHintThatIsFollowedTakesNoOtherWithIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		j := New(s, slog.New(slog.DiscardHandler))
		defer j.Close()
		put := func(key string) {
			j.Note(bucket, []byte(key), 0)
			require.NoError(t, j.Flush(t.Context()))
		}
		put("read")
		p, now := partition(1, slotOf(time.Now())), store.Timestamp(time.Now().UnixMicro())
		newer := store.Row{Key: []byte{1}, Value: store.EntryCell([]byte("\x02of a newer program")), Timestamp: now}
		require.NoError(t, s.Put(t.Context(), p, newer))
		time.Sleep(slot + late)
		rows, _, err := j.Due(t.Context(), 1, Position{}, 10)
		require.NoError(t, err)
		require.Len(t, rows, 1)
		value, _ := encode(bucket, []string{"came late"})
		require.NoError(t, s.Put(t.Context(), p, store.Row{Key: []byte{2}, Value: value, Timestamp: now}))
		require.NoError(t, j.Forget(t.Context(), &rows[0]))
		keys, _ := due(t, j, 1, Position{})
		require.Equal(t, []string{"came late"}, keys)
		_, there, err := s.Get(t.Context(), p, newer.Key)
		require.NoError(t, err)
		require.True(t, there)
	})
}

func TestRowsOfHintsAreReadAsTheyWereWritten(t *testing.T) {
	r := seed.New(t)
	for range 100 {
		var keys []string
		for range 1 + r.IntN(50) {
			key := []byte(strings.Repeat("ab", r.IntN(20)))
			for range 1 + r.IntN(1000) {
				key = append(key, byte(r.IntN(256)))
			}
			keys = append(keys, string(key))
		}
		slices.Sort(keys)
		var read []string
		for rest := keys; len(rest) > 0; {
			var value []byte
			value, rest = encode(bucket, rest)
			require.Less(t, len(value), mostRowBytes+2000)
			id, some, ok := decode(value)
			require.True(t, ok)
			require.Equal(t, bucket, id)
			read = append(read, some...)
			_, _, ok = decode(value[:len(value)-1])
			require.False(t, ok)
		}
		require.Equal(t, keys, read)
	}
}

// Rows hold many more bytes of keys than they have: a reader is not given all rows of a page at once.
func TestWhatIsReadAtATimeIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &flaky{Store: memstore.New()}
		j := New(s, slog.New(slog.DiscardHandler))
		defer j.Close()
		begin := strings.Repeat("a", 1000)
		const rows, keys = 50, 1000
		for n := range rows {
			for i := range keys {
				j.Note(bucket, fmt.Appendf(nil, "%s%06d", begin, n*keys+i), 0)
			}
			require.NoError(t, j.Flush(t.Context()))
		}
		time.Sleep(slot + late)
		for _, most := range []int{3 * keys, 1 << 20} {
			read := 0
			for from := (Position{}); ; {
				page, next, err := j.Due(t.Context(), 1, from, most)
				require.NoError(t, err)
				if len(page) == 0 {
					break
				}
				count := 0
				for _, r := range page {
					count += len(r.Keys)
				}
				require.LessOrEqual(t, count, min(most, mostKeyBytes/len(page[0].Keys[0])+keys))
				read, from = read+count, next
			}
			require.Equal(t, rows*keys, read)
		}
	})
}

// A position that a clock has reached which was ahead is none.
func TestAPositionInTheFutureIsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := New(memstore.New(), slog.New(slog.DiscardHandler))
		defer j.Close()
		j.Note(bucket, []byte("key"), 0)
		require.NoError(t, j.Flush(t.Context()))
		time.Sleep(slot + late)
		keys, _ := due(t, j, 1, Position{Slot: slotOf(time.Now().Add(24 * time.Hour))})
		require.Equal(t, []string{"key"}, keys)
	})
}
