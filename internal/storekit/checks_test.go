package storekit_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/storekit"
	"github.com/evenkeel/evenkeel/store"
)

func requireTaken(t *testing.T, taken bool, err error, what string, args ...any) {
	t.Helper()
	if taken {
		require.NoErrorf(t, err, what, args...)
		return
	}
	require.ErrorIsf(t, err, store.InvalidArgument, what, args...)
	require.Falsef(t, store.OutcomeUnknown(err), what, args...)
}

func TestLimitsAreInclusive(t *testing.T) {
	for n, taken := range map[int]bool{0: false, 1: true, store.MaxKeyBytes: true, store.MaxKeyBytes + 1: false} {
		requireTaken(t, taken, storekit.CheckKey(make([]byte, n)), "a key of %d bytes", n)
		requireTaken(t, taken || n == 0, storekit.CheckBounds(store.Bounds{Start: make([]byte, n)}),
			"a start of %d bytes", n)
		requireTaken(t, taken || n == 0, storekit.CheckBounds(store.Bounds{End: make([]byte, n)}),
			"an end of %d bytes", n)
	}
	for n, taken := range map[int]bool{-1: false, 0: false, 1: true, store.MaxPageRows: true,
		store.MaxPageRows + 1: false} {
		requireTaken(t, taken, storekit.CheckLimit(n), "a limit of %d", n)
		requireTaken(t, taken, storekit.CheckSlice(store.Bounds{}, store.SliceOptions{Limit: n}), "a slice of %d", n)
	}
	for ts, taken := range map[store.Timestamp]bool{-1: false, 0: false, 1: true, 1<<63 - 1: true} {
		requireTaken(t, taken, storekit.CheckTimestamp(ts), "timestamp %d", ts)
	}
	for n, taken := range map[int]bool{0: false, 1: true, store.MaxNodeBytes: true, store.MaxNodeBytes + 1: false} {
		requireTaken(t, taken, storekit.CheckNode(make([]byte, n)), "a node of %d bytes", n)
	}
}

func TestBatches(t *testing.T) {
	good := store.Row{Key: []byte("k"), Value: []byte{}, Timestamp: 1}
	rows := func(n int) []store.Row {
		all := make([]store.Row, n)
		for i := range all {
			all[i] = good
		}
		return all
	}
	requireTaken(t, true, storekit.CheckRows(nil), "no rows")
	requireTaken(t, true, storekit.CheckRows(rows(store.MaxBatchRows)), "the largest batch")
	requireTaken(t, false, storekit.CheckRows(rows(store.MaxBatchRows+1)), "a batch too large")

	// Four rows and one more that fills the batch to its last byte.
	full := rows(5)
	for i := range full[:4] {
		full[i].Value = make([]byte, store.MaxValueBytes-len(full[i].Key))
	}
	full[3].Value = full[3].Value[:len(full[3].Value)-100]
	full[4].Value = make([]byte, 100-len(full[4].Key))
	requireTaken(t, true, storekit.CheckRows(full), "the most bytes")
	full[4].Value = make([]byte, 100)
	requireTaken(t, false, storekit.CheckRows(full), "one byte too many")

	for what, change := range map[string]func(*store.Row){
		"empty key":      func(r *store.Row) { r.Key = nil },
		"nil value":      func(r *store.Row) { r.Value = nil },
		"value too long": func(r *store.Row) { r.Value = make([]byte, store.MaxValueBytes+1) },
		"no timestamp":   func(r *store.Row) { r.Timestamp = 0 },
	} {
		bad := rows(3)
		change(&bad[2])
		requireTaken(t, false, storekit.CheckRows(bad), "%s", what)
	}
	longest := rows(1)
	longest[0].Value = make([]byte, store.MaxValueBytes)
	requireTaken(t, true, storekit.CheckRows(longest), "the longest value")
}

func TestBoundsMayBeEmptyButNotInverted(t *testing.T) {
	for _, c := range []struct {
		start, end string
		taken      bool
	}{
		{"", "", true}, {"b", "", true}, {"", "b", true}, {"a", "b", true}, {"b", "b", true},
		{"b", "a", false}, {"b\x00", "b", false}, {"\xff", "\xfe\xff", false},
	} {
		for _, exclusive := range []bool{false, true} {
			b := store.Bounds{Start: []byte(c.start), StartExclusive: exclusive, End: []byte(c.end)}
			requireTaken(t, c.taken, storekit.CheckBounds(b), "%+v", b)
		}
	}
}

func TestRecords(t *testing.T) {
	key, root := []byte("k"), make([]byte, 16)
	a, b := storekit.NewToken(), storekit.NewToken()
	v := func(epoch uint64, token store.Token) store.Version { return store.Version{Epoch: epoch, Token: token} }
	record := func(v store.Version, bytes int) store.Record {
		return store.Record{Version: v, Blob: make([]byte, bytes)}
	}
	for _, c := range []struct {
		what  string
		table store.Table
		key   []byte
		old   store.Version
		next  store.Record
		taken bool
	}{
		{"the first", store.Clocks, key, store.Version{}, record(v(1, a), 0), true},
		{"the next", store.Clocks, key, v(7, a), record(v(8, b), store.MaxRecordBytes), true},
		{"a root", store.Roots, root, v(7, a), record(v(8, b), 1), true},
		{"a root of no bucket", store.Roots, key, v(7, a), record(v(8, b), 1), false},
		{"a root of a long id", store.Roots, append(root, 0), v(7, a), record(v(8, b), 1), false},
		{"no table", 0, key, v(7, a), record(v(8, b), 1), false},
		{"no key", store.Busy, nil, v(7, a), record(v(8, b), 1), false},
		{"the same epoch", store.Clocks, key, v(7, a), record(v(7, b), 1), false},
		{"an epoch skipped", store.Clocks, key, v(7, a), record(v(9, b), 1), false},
		{"the same token", store.Clocks, key, v(7, a), record(v(8, a), 1), false},
		{"no token", store.Clocks, key, v(7, a), record(v(8, store.Token{}), 1), false},
		{"absent, with a token", store.Clocks, key, v(0, a), record(v(1, b), 1), false},
		{"present, without a token", store.Clocks, key, v(7, store.Token{}), record(v(8, b), 1), false},
		{"too large", store.Clocks, key, v(7, a), record(v(8, b), store.MaxRecordBytes+1), false},
	} {
		requireTaken(t, c.taken, storekit.CheckRecord(c.table, c.key, c.old, c.next), "%s", c.what)
	}
}

func TestErrorsOfLongKeysStayShort(t *testing.T) {
	long := bytes.Repeat([]byte{0xff}, store.MaxKeyBytes+1)
	for _, err := range []error{
		storekit.CheckKey(long),
		storekit.CheckRows([]store.Row{{Key: long[1:], Timestamp: 1}}),
		storekit.CheckBounds(store.Bounds{Start: long[1:], End: []byte("a")}),
	} {
		require.Error(t, err)
		require.Less(t, len(err.Error()), 600)
	}
}
