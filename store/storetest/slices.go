package storetest

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/store"
)

func (s *suite) slices(t *testing.T) {
	ctx, p, r := t.Context(), newPartition(), s.rand(t.Name(), 0)
	keys := append([][]byte{}, trickyKeys...)
	for i := range s.scale(300) {
		keys = append(keys, fmt.Appendf(nil, "k%03d", i*7%300))
	}
	o := operation{}
	for i, key := range keys {
		if i%3 != 0 {
			o.rows = append(o.rows, store.Row{Key: key, Value: fmt.Append(nil, i), Timestamp: store.Timestamp(1 + i)})
		}
	}
	require.NoError(t, o.apply(ctx, s.rows, []store.Partition{p}))
	all := visible([]operation{o}, 0)
	for round := range s.scale(1500) {
		b := randomBounds(r, keys)
		o := store.SliceOptions{Limit: 1 + r.IntN(len(all)+3), Reverse: r.IntN(2) == 0, Timestamps: r.IntN(2) == 0}
		switch n := len(expected(all, b, o)); r.IntN(4) {
		case 0:
			o.Limit = max(1, n)
		case 1:
			o.Limit = n + 1
		case 2:
			o.Limit = max(1, n-1)
		}
		_, err := s.checkSlice(ctx, s.rows, p, all, b, o)
		require.NoError(t, err, "round %d", round)
	}
	for _, limit := range []int{1, 7, len(all) - 1, len(all), len(all) + 1} {
		for _, reverse := range []bool{false, true} {
			o := store.SliceOptions{Limit: limit, Reverse: reverse}
			require.NoError(t, s.checkPages(ctx, s.rows, p, all, store.Bounds{}, o))
			require.NoError(t, s.checkPages(ctx, s.rows, p, all, store.Bounds{Start: []byte("k05"), End: []byte("k2")},
				o))
		}
	}
}

func (s *suite) emptyBounds(t *testing.T) {
	ctx, p := t.Context(), newPartition()
	o := operation{rows: []store.Row{
		{Key: []byte("a"), Value: []byte{1}, Timestamp: 1},
		{Key: []byte("b"), Value: []byte{2}, Timestamp: 1},
		{Key: []byte("b\x00"), Value: []byte{3}, Timestamp: 1},
	}}
	require.NoError(t, o.apply(ctx, s.rows, []store.Partition{p}))
	all := visible([]operation{o}, 0)
	bounds := func(start string, exclusive bool, end string) store.Bounds {
		return store.Bounds{Start: []byte(start), StartExclusive: exclusive, End: []byte(end)}
	}
	empty := []store.Bounds{
		bounds("b", false, "b"), bounds("b", true, "b"), bounds("b", true, "b\x00"), bounds("aa", false, "b"),
		bounds("c", false, ""), bounds("b\x00", true, ""), bounds("", false, "a"), bounds("", true, "\x00"),
	}
	for _, b := range empty {
		for _, reverse := range []bool{false, true} {
			page, err := s.checkSlice(ctx, s.rows, p, all, b, store.SliceOptions{Limit: 1, Reverse: reverse})
			require.NoError(t, err)
			require.Empty(t, page.Rows)
			require.False(t, page.More)
		}
		require.NoError(t, s.rows.Remove(ctx, p, b, 9))
		require.NoError(
			t, s.checkPages(ctx, s.rows, p, all, store.Bounds{}, store.SliceOptions{Limit: 10}), "after the removal of %s",
			formatBounds(b),
		)
	}
	// StartExclusive has no effect if Start is empty.
	page, err := s.checkSlice(ctx, s.rows, p, all, bounds("", true, "b"), store.SliceOptions{Limit: 10})
	require.NoError(t, err)
	require.Len(t, page.Rows, 1)
}

func (s *suite) timestamps(t *testing.T) {
	ctx, p := t.Context(), newPartition()
	const latest = store.Timestamp(1<<62 + 12345)
	all := []store.Row{
		{Key: []byte("a"), Value: []byte{}, Timestamp: 1},
		{Key: []byte("b"), Value: []byte{0}, Timestamp: latest},
	}
	require.NoError(t, s.rows.Put(ctx, p, all...))
	for _, reverse := range []bool{false, true} {
		for _, asked := range []bool{false, true} {
			o := store.SliceOptions{Limit: 10, Reverse: reverse, Timestamps: asked}
			require.NoError(t, s.checkPages(ctx, s.rows, p, all, store.Bounds{}, o))
		}
	}
	require.NoError(t, checkGet(ctx, s.rows, p, all, []byte("a")))
	require.NoError(t, checkGet(ctx, s.rows, p, all, []byte("b")))
}

// into tests SliceOptions.Into, by which a caller reuses the memory of one page's rows for the next page. The keys and
// values of earlier pages must not change when the memory is overwritten.
func (s *suite) into(t *testing.T) {
	ctx, p := t.Context(), newPartition()
	var all []store.Row
	for i := range 20 {
		all = append(
			all, store.Row{Key: fmt.Appendf(nil, "key%02d", i), Value: fmt.Appendf(nil, "value %d", i), Timestamp: 1},
		)
	}
	require.NoError(t, s.rows.Put(ctx, p, all...))
	into := make([]store.Row, 0, 4)
	var got []store.Row
	for b := (store.Bounds{}); ; {
		page, err := s.rows.Slice(ctx, p, b, store.SliceOptions{Limit: 4, Timestamps: true, Into: into})
		require.NoError(t, err)
		got = append(got, page.Rows...)
		if !page.More {
			break
		}
		b.Start, b.StartExclusive = page.Rows[len(page.Rows)-1].Key, true
	}
	require.Equal(t, all, got)
}

func (s *suite) pageBytes(t *testing.T) {
	ctx, p := t.Context(), newPartition()
	var all []store.Row
	for i := range 10 {
		key := fmt.Appendf(nil, "key%d", i)
		// Four such rows together have exactly as many bytes as the limit.
		all = append(
			all, store.Row{Key: key, Value: bytes.Repeat([]byte{byte(i)}, store.MaxPageBytes/4-len(key)), Timestamp: 1},
		)
		require.NoError(t, s.rows.Put(ctx, p, all[i]))
	}
	for limit, rows := range map[int]int{
		0: 4, 1: 1, store.MaxPageBytes/2 - 1: 2, store.MaxPageBytes / 2: 2, 1 << 40: 4, -1: 4,
	} {
		reverse := limit%2 == 0
		o := store.SliceOptions{Limit: 100, Bytes: limit, Reverse: reverse, Timestamps: true}
		page, err := s.checkSlice(ctx, s.rows, p, all, store.Bounds{}, o)
		require.NoError(t, err)
		if !s.ShortPages {
			require.Len(t, page.Rows, rows)
		}
		require.NoError(t, s.checkPages(ctx, s.rows, p, all, store.Bounds{}, o))
		require.NoError(t, s.checkPages(ctx, s.rows, p, all, store.Bounds{Start: []byte("key6")}, o))
	}
}

func (s *suite) manyTombstones(t *testing.T) {
	ctx, p, r := t.Context(), newPartition(), s.rand(t.Name(), 0)
	ps := []store.Partition{p}
	var all []store.Row
	var batch operation
	for i := range s.scale(5000) {
		row := store.Row{Key: fmt.Appendf(nil, "%06d", i), Value: []byte{1}, Timestamp: 1}
		batch.rows = append(batch.rows, row)
		if i%500 == 499 {
			all = append(all, row)
		}
	}
	require.NoError(t, batch.apply(ctx, s.rows, ps))
	for i, row := range batch.rows {
		if i%500 != 499 {
			require.NoError(t, s.rows.Delete(ctx, p, row.Key, 2))
		}
	}
	require.NoError(t, batch.apply(ctx, s.rows, ps), "late, and older than the deletes")
	for range 20 {
		o := store.SliceOptions{Limit: 1 + r.IntN(len(all)+1), Reverse: r.IntN(2) == 0, Timestamps: true}
		require.NoError(t, s.checkPages(ctx, s.rows, p, all, store.Bounds{}, o))
	}
	require.NoError(t, s.rows.Remove(ctx, p, store.Bounds{}, 3))
	require.NoError(t, s.checkPages(ctx, s.rows, p, nil, store.Bounds{}, store.SliceOptions{Limit: 5}))
}

func (s *suite) passing(t *testing.T) {
	ctx, p, r := t.Context(), newPartition(), s.rand(t.Name(), 0)
	o := operation{}
	for i := range 300 {
		key := fmt.Appendf(nil, "%c%c%d", 'a'+i*7%300/100, 'a'+i*7%300/10%10, i%10)
		if i%17 == 0 {
			key = append([]byte{0xFF}, key...) // no key is above all keys with this first byte
		}
		if i%5 == 1 {
			key = append([]byte{0x80}, key...) // invalid UTF-8, but higher keys exist
		}
		o.rows = append(o.rows, store.Row{Key: key, Value: fmt.Append(nil, i), Timestamp: 1})
	}
	require.NoError(t, o.apply(ctx, s.rows, []store.Partition{p}))
	all := visible([]operation{o}, 0)
	for range s.scale(300) {
		lengths := r.IntN(1 << 8)
		pass := func(row store.Row) []byte {
			if lengths>>(row.Key[len(row.Key)-1]%8)&1 == 0 {
				return nil
			}
			return row.Key[:1+lengths%2]
		}
		keep := func(value []byte) int { return lengths % (len(value) + 1) }
		asked := 0
		slice := store.SliceOptions{Limit: 1 + r.IntN(len(all)), Sift: func(key, value []byte) (int, int) {
			asked++
			if p := pass(store.Row{Key: key}); p != nil {
				return len(p), keep(value)
			}
			return 0, keep(value)
		}}
		page, err := s.rows.Slice(ctx, p, store.Bounds{}, slice)
		require.NoError(t, err)
		require.LessOrEqual(t, asked, len(page.Rows))
		var passed []byte // the prefix of keys that may be left out
		got := page.Rows
		for _, row := range expected(all, store.Bounds{}, store.SliceOptions{Limit: len(all)}) {
			if len(got) > 0 && bytes.Equal(got[0].Key, row.Key) {
				require.True(t, bytes.HasPrefix(row.Value, got[0].Value))
				require.GreaterOrEqual(t, len(got[0].Value), keep(row.Value))
				passed, got = pass(row), got[1:]
				continue
			}
			if len(got) == 0 && page.More {
				break
			}
			require.True(t, passed != nil && bytes.HasPrefix(row.Key, passed), "%q is not there", row.Key)
		}
		require.Empty(t, got)
	}
}
