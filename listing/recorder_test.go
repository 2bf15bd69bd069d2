package listing_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/cells"
	"github.com/evenkeel/evenkeel/internal/door"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/test/faultstore"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// book keeps what a Recorder is told.
type book struct {
	mu      sync.Mutex
	at      map[store.Partition]map[string]store.Timestamp // entries
	size    map[store.Partition]int
	markers int
	reads   map[store.Partition]int
	from    []string // keys of reads
	removed map[store.Partition]int
}

func newBook() *book {
	return &book{
		at: map[store.Partition]map[string]store.Timestamp{}, size: map[store.Partition]int{},
		reads: map[store.Partition]int{}, removed: map[store.Partition]int{},
	}
}

func (b *book) Put(p store.Partition, key []byte, size int, at store.Timestamp) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.at[p] == nil {
		b.at[p] = map[string]store.Timestamp{}
	}
	b.at[p][string(key)] = at
	b.size[p] += size
}

func (b *book) Delete(p store.Partition, key []byte, at store.Timestamp, marker bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.at[p], string(key))
	if marker {
		b.markers++
	}
}

func (b *book) Removed(p store.Partition) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.removed[p]++
}

func (b *book) Read(p store.Partition, key []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reads[p]++
	b.from = append(b.from, string(key))
}

// requireRows compares what a book was told with what the store holds.
func (b *book) requireRows(t *testing.T, s store.Rows, id store.BucketID) (partitions int) {
	t.Helper()
	for p, want := range b.at {
		if p.Bucket != id {
			continue
		}
		partitions++
		page, err := s.Slice(
			context.Background(), p, store.Bounds{}, store.SliceOptions{Limit: store.MaxPageRows, Timestamps: true},
		)
		require.NoError(t, err)
		got := map[string]store.Timestamp{}
		for _, row := range page.Rows {
			if !cells.IsMarker(row.Value) {
				got[string(row.Key)] = row.Timestamp
			}
		}
		require.Equal(t, want, got)
	}
	return partitions
}

func TestARecorderLearnsOfAcknowledgedWrites(t *testing.T) {
	ctx := context.Background()
	s := memstore.New()
	defer s.Close()
	told := newBook()
	c, err := listing.New(s, listing.Options{Recorder: told})
	require.NoError(t, err)
	require.NoError(t, c.CreateBucket(ctx, "b", []byte("k1"), []byte("k2")))
	b := c.Bucket("b")
	var batch []listing.Entry
	for i := range 300 {
		batch = append(batch, listing.Entry{
			Key: fmt.Appendf(nil, "k%d/%03d", i%3, i), Value: bytes.Repeat([]byte("v"), i),
		})
	}
	require.NoError(t, b.PutBatch(ctx, batch))
	for i := range 30 {
		require.NoError(t, b.Put(ctx, fmt.Appendf(nil, "k%d/%03d", i%3, i*20), []byte("single")))
		require.NoError(t, b.Delete(ctx, fmt.Appendf(nil, "k%d/%03d", i%3, i*7)))
	}
	var id store.BucketID
	for info, err := range c.Buckets(ctx, "", "") {
		require.NoError(t, err)
		id = info.ID
	}
	require.Equal(t, 3, told.requireRows(t, s, id))
	require.Zero(t, told.markers)

	// A range that moves: deletions are markers, and they are told as such.
	root, err := mapclient.Of(c).Load(ctx, id)
	require.NoError(t, err)
	edit := partmap.NewEdit(root, mapclient.Of(c).Stamp(), func(n store.NodeID) ([]byte, error) { return s.Node(ctx, id, n) })
	_, err = edit.Begin(
		partmap.Move{
			Start: []byte("k1"), End: []byte("k2"), Parts: []partmap.Part{{Start: []byte("k1"), To: store.PartitionID{7}}},
		},
	)
	require.NoError(t, err)
	change, err := edit.Change()
	require.NoError(t, err)
	require.NoError(t, mapclient.Of(c).Swap(ctx, change))
	require.NoError(t, b.Delete(ctx, []byte("k1/100")))
	clear(told.reads)
	_, err = b.Get(ctx, []byte("k1/103"))
	require.NoError(t, err)
	require.Equal(t, 1, told.markers)
	require.Len(t, told.reads, 2, "both sides were read")
	told.requireRows(t, s, id)
}

// A read begins at a key: that of the entry, or where the page begins in its direction.
func TestARecorderIsToldWhereReadsBegin(t *testing.T) {
	told := newBook()
	c := over(t, memstore.New(), listing.Options{Recorder: told})
	b := c.Bucket("b")
	told.from = nil
	_, err := b.Get(t.Context(), []byte("k"))
	require.ErrorIs(t, err, listing.ErrNotFound)
	for _, reverse := range []bool{false, true} {
		_, err := b.List(t.Context(), listing.Query{From: []byte("c"), To: []byte("x"), Reverse: reverse})
		require.NoError(t, err)
	}
	require.Equal(t, []string{"k", "c", "x"}, told.from)
}

// The size of an entry is that of its key and value.
func TestARecorderIsToldSizes(t *testing.T) {
	told := newBook()
	c := over(t, memstore.New(), listing.Options{Recorder: told})
	b, entry := c.Bucket("b"), listing.Entry{Key: []byte("key"), Value: []byte("value")}
	for _, put := range []func() error{
		func() error { return b.Put(t.Context(), entry.Key, entry.Value) },
		func() error { return b.PutBatch(t.Context(), []listing.Entry{entry}) },
		func() error {
			m, err := door.Bucket(b).Mark(t.Context())
			require.NoError(t, err)
			return door.Bucket(b).Bring(t.Context(), m, []store.Row{{Key: entry.Key, Value: entry.Value}})
		},
	} {
		clear(told.size)
		require.NoError(t, put())
		require.Equal(t, []int{8}, slices.Collect(maps.Values(told.size)))
	}
}

// Only what is acknowledged is told: neither what was refused nor what is unknown.
func TestARecorderLearnsOfNothingElse(t *testing.T) {
	ctx := context.Background()
	inner := memstore.New()
	s, faults := faultstore.New(inner, faultstore.Options{Seed: 3, PerOp: map[faultstore.Op]faultstore.Rates{
		faultstore.Put: {Refuse: 0.5, Lose: 0.3}, faultstore.Delete: {Refuse: 0.5, Lose: 0.3},
	}})
	faults.Enable(false)
	defer s.Close()
	told := newBook()
	c, err := listing.New(s, listing.Options{Recorder: told, WriteAttempts: 1})
	require.NoError(t, err)
	require.NoError(t, c.CreateBucket(ctx, "b"))
	clear(told.at) // the list of buckets
	faults.Enable(true)
	acked := map[string]bool{}
	for i := range 500 {
		key := fmt.Sprintf("k%03d", i)
		if c.Bucket("b").Put(ctx, []byte(key), []byte("v")) == nil {
			acked[key] = true
		}
		_ = c.Bucket("b").PutBatch(ctx, []listing.Entry{{Key: []byte("x"), Value: nil}})
		if i%3 == 0 && c.Bucket("b").Delete(ctx, []byte(key)) == nil {
			delete(acked, key)
		}
	}
	require.NotEmpty(t, acked)
	require.Less(t, len(acked), 400)
	require.Len(t, told.at, 1)
	for _, keys := range told.at {
		delete(keys, "x")
		require.Len(t, keys, len(acked))
		for key := range keys {
			require.True(t, acked[key], key)
		}
	}
}
