package record_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/record"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// awkward is a store whose scans fail as often as fail says.
type awkward struct {
	store.Store
	fail  int
	calls int
}

func (s *awkward) Scan(ctx context.Context, t store.Table, after []byte, limit int) ([][]byte, error) {
	if s.calls++; s.fail > 0 {
		s.fail--
		return nil, store.Errorf(store.Unavailable, "away")
	}
	return s.Store.Scan(ctx, t, after, limit)
}

func TestKeyPages(t *testing.T) {
	s := &awkward{Store: memstore.New()}
	defer func() { require.NoError(t, s.Close()) }()
	const n = 2500
	for i := range n {
		rec := record.Seal(1, record.Next(store.Version{}), nil)
		require.NoError(t, s.Swap(t.Context(), store.Directory, fmt.Appendf(nil, "name%d", i), store.Version{}, rec))
	}
	all := func(ctx context.Context, goOn bool) (pages []int, keys map[string]bool, errs int) {
		keys = map[string]bool{}
		for page, err := range record.KeyPages(ctx, s, store.Directory) {
			if err != nil {
				require.Empty(t, page)
				if errs++; !goOn {
					break
				}
				continue
			}
			pages = append(pages, len(page))
			for _, key := range page {
				keys[string(key)] = true
			}
		}
		return pages, keys, errs
	}
	pages, keys, _ := all(t.Context(), false)
	require.Equal(t, []int{1000, 1000, 500}, pages)
	require.Len(t, keys, n)

	s.fail = 3
	pages, keys, errs := all(t.Context(), true)
	require.Equal(t, []int{1000, 1000, 500}, pages, "the loop goes on after an error: the same page again")
	require.Len(t, keys, n)
	require.Equal(t, 3, errs)

	s.fail = 3
	pages, _, errs = all(t.Context(), false)
	require.Empty(t, pages)
	require.Equal(t, 1, errs)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s.fail, s.calls = 3, 0
	_, _, errs = all(ctx, true)
	require.Equal(t, 1, errs, "the context has ended: nothing is tried again")
	require.Equal(t, 1, s.calls)
}
