package store_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/cells"
	"github.com/evenkeel/evenkeel/internal/storekit"
	"github.com/evenkeel/evenkeel/store"
)

func TestCells(t *testing.T) {
	for _, value := range [][]byte{nil, {}, {0}, {2}, []byte("value"), bytes.Repeat([]byte{0xff}, 70_000)} {
		cell := store.EntryCell(value)
		require.Equal(t, cell, cells.AppendEntry(nil, value))
		require.Equal(t, append([]byte("before"), cell...), cells.AppendEntry([]byte("before"), value))
		require.False(t, cells.IsMarker(cell))
		got, live, err := store.EntryValue(cell)
		require.NoError(t, err)
		require.True(t, live)
		require.True(t, bytes.Equal(value, got))
		require.Positive(t, bytes.Compare(cells.Marker(), cell),
			"at a tie the larger value wins: it must be the marker")
	}
	for _, value := range [][]byte{{}, {0}, {1}, []byte("value")} {
		cell := store.EntryCell(value)
		copied := cells.Copied(cell)
		require.True(t, cells.IsCopied(copied))
		require.False(t, cells.IsCopied(cell))
		require.False(t, cells.IsMarker(copied))
		got, live, err := store.EntryValue(copied)
		require.NoError(t, err)
		require.True(t, live)
		require.Equal(t, value, got)
		require.Equal(t, store.EntryCell(value), cell, "the original is as it was")
		require.Equal(t, copied, cells.Copied(copied))
		require.Equal(t, cell, cells.Original(copied))
		require.Negative(t, bytes.Compare(copied, store.EntryCell(nil)),
			"at a tie a copy hides nothing that a client wrote")
	}
	require.True(t, cells.IsMarker(cells.Copied(cells.Marker())))
	require.False(t, cells.IsCopied(nil))

	value := []byte("value")
	cell := store.EntryCell(value)
	value[0] = '#'
	got, _, _ := store.EntryValue(cell)
	require.Equal(t, "value", string(got), "a cell has memory of its own")

	require.True(t, cells.IsMarker(cells.Marker()))
	got, live, err := store.EntryValue(cells.Marker())
	require.NoError(t, err)
	require.False(t, live)
	require.Nil(t, got)
	cells.Marker()[0] = 0
	require.True(t, cells.IsMarker(cells.Marker()), "no two markers share memory")

	for _, foreign := range [][]byte{nil, {}, {3}, []byte("text"), {2, 0}} {
		require.False(t, cells.IsMarker(foreign))
		_, live, err := store.EntryValue(foreign)
		require.Equal(t, store.Corrupt, store.KindOf(err))
		require.False(t, live)
	}
}

func TestBeats(t *testing.T) {
	a, b, tombstone := []byte("a"), []byte("b"), []byte(nil)
	for _, c := range []struct {
		name       string
		value, old []byte
		wins       bool // at the same timestamp
	}{
		{"the same value", a, a, false},
		{"a larger value", b, a, true},
		{"a smaller value", a, b, false},
		{"a longer value", []byte("a\x00"), a, true},
		{"a value over the empty one", a, []byte{}, true},
		{"the empty value", []byte{}, a, false},
		{"a tombstone", tombstone, b, true},
		{"a tombstone over the empty value", tombstone, []byte{}, true},
		{"a value over a tombstone", b, tombstone, false},
		{"the empty value over a tombstone", []byte{}, tombstone, false},
		{"a tombstone over a tombstone", tombstone, tombstone, true},
	} {
		require.True(t, store.Beats(6, c.value, 5, c.old), c.name)
		require.False(t, store.Beats(4, c.value, 5, c.old), c.name)
		require.Equal(t, c.wins, store.Beats(5, c.value, 5, c.old), c.name)
	}
}

func TestErrorsAreToldApartByKind(t *testing.T) {
	cause := errors.New("the cause")
	deep := store.Wrap("outer", fmt.Errorf("between: %w", store.Errorf(store.Conflict, "inner: %w", cause)))
	require.Equal(t, store.Conflict, store.KindOf(deep))
	require.ErrorIs(t, deep, store.Conflict)
	require.NotErrorIs(t, deep, store.Timeout)
	require.ErrorIs(t, deep, cause)
	require.Equal(t, "outer: conflict: between: conflict: inner: the cause", deep.Error())

	require.NoError(t, store.Wrap("nothing", nil))
	for err, kind := range map[error]store.Kind{
		nil:                      store.Other,
		cause:                    store.Other,
		context.Canceled:         store.Timeout,
		context.DeadlineExceeded: store.Timeout,
		store.NotFound:           store.NotFound,
		fmt.Errorf("x: %w", store.TooMuchDeadData):                               store.TooMuchDeadData,
		fmt.Errorf("x: %w", context.Canceled):                                    store.Timeout,
		store.Wrap("get", context.Canceled):                                      store.Timeout,
		store.Wrap("get", cause):                                                 store.Other,
		store.Errorf(store.Unavailable, "down: %w", context.Canceled):            store.Unavailable,
		store.Errorf(store.Corrupt, "%w", store.Errorf(store.NotFound, "below")): store.Corrupt,
	} {
		require.Equal(t, kind, store.KindOf(err), "%v", err)
	}
	require.ErrorIs(t, store.Wrap("get", context.Canceled), context.Canceled)
}

func TestOnlyKindsThatSayNothingWasDoneAreKnownOutcomes(t *testing.T) {
	unknown := map[store.Kind]bool{
		store.Other: true, store.Unavailable: true, store.Timeout: true, store.Corrupt: true,
		store.TooMuchDeadData: true,
		store.InvalidArgument: false, store.Conflict: false, store.NotFound: false,
	}
	for kind, want := range unknown {
		require.Equal(t, want, store.OutcomeUnknown(store.Wrap("swap", store.Errorf(kind, "failed"))), "%s", kind)
		require.NotContains(t, kind.Error(), "kind ", "every kind has a name")
	}
	require.Len(t, unknown, int(store.TooMuchDeadData)+1, "a new kind needs its place here")
	require.Equal(t, "kind 200", store.Kind(200).Error())
	require.False(t, store.OutcomeUnknown(nil))
	require.True(t, store.OutcomeUnknown(errors.New("foreign")))
	require.True(t, store.OutcomeUnknown(context.Canceled))
}

func TestNames(t *testing.T) {
	id := uuid.MustParse("0f0e0d0c-0b0a-4908-8706-050403020100")
	require.Equal(t, id.String(), store.BucketID(id).String())
	require.Equal(t, id.String(), store.NodeID(id).String())
	p := store.Partition{Bucket: store.BucketID(id), ID: store.PartitionID(id)}
	require.Equal(t, id.String()+"/"+id.String(), p.String())
	require.False(t, p.ID.IsZero())
	require.True(t, store.PartitionID{}.IsZero())

	seen := map[string]bool{}
	for _, table := range store.Tables() {
		require.NoError(t, storekit.CheckTable(table))
		require.False(t, seen[table.String()])
		require.False(t, strings.Contains(table.String(), "unknown"))
		seen[table.String()] = true
	}
	last := store.Tables()[len(seen)-1]
	require.Error(t, storekit.CheckTable(last+1), "Tables lists every table")
	require.Equal(t, "unknown table", (last + 1).String())
	require.Equal(t, "unknown table", store.Table(255).String())
}
