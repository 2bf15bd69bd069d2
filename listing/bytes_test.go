package listing_test

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// measured notes how much one read brought at most, and how many reads there were.
type measured struct {
	store.Store
	mu          sync.Mutex
	most, reads int
}

func (m *measured) Slice(
	ctx context.Context, p store.Partition, b store.Bounds, o store.SliceOptions,
) (store.Page, error) {
	page, err := m.Store.Slice(ctx, p, b, o)
	size := 0
	for _, row := range page.Rows {
		size += len(row.Key) + len(row.Value)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.most = max(m.most, size)
	m.reads++
	return page, err
}

// TestPagesEndByTheirBytes: pages that end by their bytes, or after any of their items,
// show together what one listing shows, and no read brings much more than a page may have.
func TestPagesEndByTheirBytes(t *testing.T) {
	r := seed.New(t)
	s := &measured{Store: memstore.New()}
	c, err := listing.New(s, listing.Options{MaxParallel: 1})
	require.NoError(t, err)
	key := func(i int) []byte { return fmt.Appendf(nil, "%02d/%03d", i/20, i) }
	var cuts [][]byte
	for range 20 {
		cuts = append(cuts, key(r.IntN(400)))
	}
	require.NoError(t, c.CreateBucket(t.Context(), "abc", cuts...))
	b := c.Bucket("abc")
	for i := range 400 {
		require.NoError(t, b.Put(t.Context(), key(i), bytes.Repeat([]byte{'v'}, 1+r.IntN(4000))))
	}
	for _, q := range []listing.Query{
		{}, {Reverse: true}, {Delimiter: []byte("/")}, {Delimiter: []byte("/"), Reverse: true},
		{Prefix: []byte("07/"), Delimiter: []byte("/")},
		{From: key(33), To: key(333), After: key(40)}, {KeysOnly: true}, {Prefix: []byte("19/")},
	} {
		var want, got []listing.Item
		for item, err := range b.All(t.Context(), q) {
			require.NoError(t, err)
			want = append(want, item)
		}
		s.most = 0
		q.Bytes = 20_000
		for pages := 0; ; pages++ {
			page, err := b.List(t.Context(), q)
			require.NoError(t, err)
			size := 0
			for _, item := range page.Items {
				size += len(item.Key) + len(item.Value)
			}
			require.Less(t, size, q.Bytes+max(q.Bytes, 16<<10)+5000)
			require.Less(t, pages, 500)
			next := page.Next
			if n := len(page.Items); n > 0 && r.IntN(2) == 0 {
				at := r.IntN(n)
				page.Items, next = page.Items[:at+1], page.After(at)
			}
			got = append(got, page.Items...)
			if next == "" {
				break
			}
			q.Token = next
		}
		require.Equal(t, want, got, "%+v", q)
		require.Less(t, s.most, q.Bytes+5000)
	}
	_, err = b.List(t.Context(), listing.Query{Bytes: -1})
	require.ErrorIs(t, err, store.InvalidArgument)
}

// TestReadsEndWithTheirContext: nothing more is read for a page or its points when
// nobody waits for them.
func TestReadsEndWithTheirContext(t *testing.T) {
	s := &measured{Store: memstore.New()}
	c, err := listing.New(s, listing.Options{MaxIdleReads: 1 << 20})
	require.NoError(t, err)
	var cuts [][]byte
	for i := range 5000 {
		cuts = append(cuts, fmt.Appendf(nil, "%05d", i))
	}
	require.NoError(t, c.CreateBucket(t.Context(), "abc", cuts...))
	b := c.Bucket("abc")
	_, err = b.List(t.Context(), listing.Query{Delimiter: []byte("/")})
	require.NoError(t, err)
	require.Greater(t, s.reads, 5000)
	for what, read := range map[string]func(ctx context.Context) error{
		"page":   func(ctx context.Context) error { _, err := b.List(ctx, listing.Query{}); return err },
		"points": func(ctx context.Context) error { _, err := b.SplitPoints(ctx, listing.Query{}, 10); return err },
	} {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		s.reads = 0
		require.ErrorIs(t, read(ctx), context.Canceled, what)
		require.Zero(t, s.reads, what)
	}
}
