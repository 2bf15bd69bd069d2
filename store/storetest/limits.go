package storetest

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/store"
)

func (s *suite) runLimits(t *testing.T) {
	t.Run("what breaks a limit is refused and nothing is done", s.refusals)
	t.Run("what just keeps a limit is taken", s.justWithin)
}

// A refusedCall is a call of a store with an argument that breaks one documented limit, such as a key that is too long.
// The store must refuse the call.
type refusedCall struct {
	name string
	call func(ctx context.Context) error
}

func (s *suite) refusals(t *testing.T) {
	p, b := newPartition(), newBucket()
	good := store.Row{Key: []byte("good"), Value: []byte("v"), Timestamp: 1}
	require.NoError(t, s.store.Put(t.Context(), p, good))
	root := newRegister(t.Context(), t, s.store, store.Roots)

	long := make([]byte, store.MaxKeyBytes+1)
	long[0] = 'l'
	var calls []refusedCall
	add := func(name string, call func(ctx context.Context) error) {
		calls = append(calls, refusedCall{name, call})
	}

	badRows := map[string]store.Row{
		"empty key":          {Value: []byte("v"), Timestamp: 9},
		"long key":           {Key: long, Value: []byte("v"), Timestamp: 9},
		"nil value":          {Key: []byte("k"), Timestamp: 9},
		"long value":         {Key: []byte("k"), Value: make([]byte, store.MaxValueBytes+1), Timestamp: 9},
		"no timestamp":       {Key: []byte("k"), Value: []byte("v")},
		"negative timestamp": {Key: []byte("k"), Value: []byte("v"), Timestamp: -1},
	}
	for name, row := range badRows {
		beside := store.Row{Key: []byte("beside"), Value: []byte("v"), Timestamp: 9}
		add("put "+name, func(ctx context.Context) error { return s.store.Put(ctx, p, beside, row) })
	}
	many := make([]store.Row, store.MaxBatchRows+1)
	for i := range many {
		many[i] = store.Row{Key: fmt.Append(nil, i), Value: []byte{}, Timestamp: 9}
	}
	add("put too many rows", func(ctx context.Context) error { return s.store.Put(ctx, p, many...) })
	big := make([]store.Row, store.MaxBatchBytes/store.MaxValueBytes+1)
	for i := range big {
		big[i] = store.Row{Key: fmt.Append(nil, i), Value: make([]byte, store.MaxValueBytes), Timestamp: 9}
	}
	big[0].Value = big[0].Value[:0]
	add("put too many bytes", func(ctx context.Context) error { return s.store.Put(ctx, p, big...) })

	add("delete the empty key", func(ctx context.Context) error { return s.store.Delete(ctx, p, nil, 9) })
	add("delete a long key", func(ctx context.Context) error { return s.store.Delete(ctx, p, long, 9) })
	add("delete at no timestamp", func(ctx context.Context) error { return s.store.Delete(ctx, p, good.Key, 0) })
	add("delete at a negative timestamp",
		func(ctx context.Context) error { return s.store.Delete(ctx, p, good.Key, -1) })
	add("remove at no timestamp", func(ctx context.Context) error { return s.store.Remove(ctx, p, store.Bounds{}, 0) })
	add("remove at a negative timestamp",
		func(ctx context.Context) error { return s.store.Remove(ctx, p, store.Bounds{}, -1) })
	add("get the empty key", func(ctx context.Context) error { _, _, err := s.store.Get(ctx, p, nil); return err })
	add("get a long key", func(ctx context.Context) error { _, _, err := s.store.Get(ctx, p, long); return err })
	for name, bad := range map[string]store.Bounds{
		"start above end": {Start: []byte("h"), End: []byte("g")},
		"long start":      {Start: long},
		"long end":        {End: long},
	} {
		add("remove with "+name, func(ctx context.Context) error { return s.store.Remove(ctx, p, bad, 9) })
		add("slice with "+name, func(ctx context.Context) error {
			_, err := s.store.Slice(ctx, p, bad, store.SliceOptions{Limit: 1})
			return err
		})
	}
	for _, n := range []int{-1, 0, store.MaxPageRows + 1} {
		add(fmt.Sprint("slice limit ", n), func(ctx context.Context) error {
			_, err := s.store.Slice(ctx, p, store.Bounds{}, store.SliceOptions{Limit: n})
			return err
		})
		add(fmt.Sprint("scan limit ", n), func(ctx context.Context) error {
			_, err := s.store.Scan(ctx, store.Clocks, nil, n)
			return err
		})
		add(fmt.Sprint("history limit ", n), func(ctx context.Context) error {
			_, err := s.store.History(ctx, b, 0, n)
			return err
		})
		add(fmt.Sprint("scan nodes limit ", n), func(ctx context.Context) error {
			_, err := s.store.ScanNodes(ctx, b, store.NodeID{}, n)
			return err
		})
		if l, ok := s.store.(store.PartitionLister); ok {
			add(fmt.Sprint("partitions limit ", n), func(ctx context.Context) error {
				_, err := l.Partitions(ctx, store.Partition{}, n)
				return err
			})
		}
	}
	for name, at := range map[string]struct {
		table store.Table
		key   []byte
	}{
		"no table":                 {0, []byte("k")},
		"unknown table":            {99, []byte("k")},
		"empty key":                {store.Clocks, nil},
		"long key":                 {store.Clocks, long},
		"root key that is no UUID": {store.Roots, []byte("short")},
	} {
		add("read with "+name, func(ctx context.Context) error {
			_, err := s.store.Read(ctx, at.table, at.key, store.Serial)
			return err
		})
		add("swap with "+name, func(ctx context.Context) error {
			return s.store.Swap(ctx, at.table, at.key, store.Version{}, nextRecord(store.Version{}, "v"))
		})
	}
	add("scan no table", func(ctx context.Context) error { _, err := s.store.Scan(ctx, 0, nil, 1); return err })
	add("scan an unknown table",
		func(ctx context.Context) error { _, err := s.store.Scan(ctx, 99, nil, 1); return err })
	next := nextRecord(root.Version, "v")
	for name, bad := range map[string]struct {
		old  store.Version
		next store.Record
	}{
		"the same epoch": {root.Version, store.Record{Version: store.Version{Epoch: root.Epoch, Token: next.Token}}},
		"an epoch left out": {root.Version,
			store.Record{Version: store.Version{Epoch: root.Epoch + 2, Token: next.Token}}},
		"a lower epoch": {root.Version, store.Record{Version: store.Version{Epoch: root.Epoch - 1, Token: next.Token}}},
		"no token":      {root.Version, store.Record{Version: store.Version{Epoch: root.Epoch + 1}}},
		"the same token": {root.Version,
			store.Record{Version: store.Version{Epoch: root.Epoch + 1, Token: root.Token}}},
		"a long blob": {root.Version, store.Record{Version: next.Version, Blob: make([]byte, store.MaxRecordBytes+1)}},
		"absent with a token": {store.Version{Token: root.Token},
			store.Record{Version: store.Version{Epoch: 1, Token: next.Token}}},
		"an epoch and no token": {store.Version{Epoch: root.Epoch}, next},
	} {
		add("swap with "+name, func(ctx context.Context) error {
			return s.store.Swap(ctx, store.Roots, root.key, bad.old, bad.next)
		})
	}
	add("write an empty node", func(ctx context.Context) error { return s.store.WriteNode(ctx, b, newNodeID(), nil) })
	add("write a large node", func(ctx context.Context) error {
		return s.store.WriteNode(ctx, b, newNodeID(), make([]byte, store.MaxNodeBytes+1))
	})

	for _, c := range calls {
		t.Run(c.name, func(t *testing.T) {
			err := c.call(t.Context())
			requireKind(t, store.InvalidArgument, err)
			require.False(t, store.OutcomeUnknown(err))
		})
	}
	require.Equal(t, []store.Row{good}, s.all(t, s.rows, p))
	root.requireIs(t, s.store)
	ids, err := s.store.ScanNodes(t.Context(), b, store.NodeID{}, 10)
	require.NoError(t, err)
	require.Empty(t, ids)
}

func (s *suite) justWithin(t *testing.T) {
	ctx := t.Context()
	t.Run("batch rows and page rows", func(t *testing.T) {
		p := newPartition()
		all := make([]store.Row, store.MaxBatchRows)
		for i := range all {
			all[i] = store.Row{Key: fmt.Appendf(nil, "%05d", i), Value: []byte{}, Timestamp: 1}
		}
		require.NoError(t, s.store.Put(ctx, p, all...))
		o := store.SliceOptions{Limit: store.MaxPageRows, Timestamps: true}
		require.NoError(t, s.checkPages(ctx, s.store, p, all, store.Bounds{}, o))
		_, err := s.store.Scan(ctx, store.Clocks, nil, store.MaxPageRows)
		require.NoError(t, err)
	})
	t.Run("batch bytes, long key and long value", func(t *testing.T) {
		p := newPartition()
		key := bytes.Repeat([]byte{0xff}, store.MaxKeyBytes)
		all := []store.Row{{Key: key, Value: bytes.Repeat([]byte{7}, store.MaxValueBytes), Timestamp: 1}}
		for left := store.MaxBatchBytes - len(all[0].Key) - len(all[0].Value); left > 0; {
			size := min(left-1, store.MaxValueBytes)
			all = append([]store.Row{{Key: []byte{byte(0xf0 - len(all))}, Value: make([]byte, size), Timestamp: 1}},
				all...)
			left -= 1 + size
		}
		require.NoError(t, s.store.Put(ctx, p, all...))
		o := store.SliceOptions{Limit: 100, Timestamps: true}
		require.NoError(t, s.checkPages(ctx, s.store, p, all, store.Bounds{}, o))
		o.Reverse = true
		require.NoError(t, s.checkPages(ctx, s.store, p, all, store.Bounds{Start: key}, o))
		require.NoError(t, s.checkPages(ctx, s.store, p, all, store.Bounds{End: key}, o))
		require.NoError(t, checkGet(ctx, s.store, p, all, key))
		require.NoError(t, s.store.Remove(ctx, p, store.Bounds{Start: key}, 2))
		require.NoError(t, checkGet(ctx, s.store, p, nil, key))
		require.NoError(t, s.store.Delete(ctx, p, key, 3))
	})
	t.Run("node and record", func(t *testing.T) {
		b, id := newBucket(), newNodeID()
		blob := bytes.Repeat([]byte("n"), store.MaxNodeBytes)
		require.NoError(t, s.store.WriteNode(ctx, b, id, blob))
		got, err := s.store.Node(ctx, b, id)
		require.NoError(t, err)
		require.True(t, bytes.Equal(blob, got))
		root := newRegister(ctx, t, s.store, store.Roots)
		root.swap(ctx, t, s.store, string(bytes.Repeat([]byte("r"), store.MaxRecordBytes)))
		root.requireIs(t, s.store)
	})
}
