package listing_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/timestamps"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// A row that only the source of a move has here, in verifying, is shown and written to the destination only if no data
// centre has deleted it: a delete from before the move may be on its way from another one, and no copy would hear of
// it.
func TestRowsOfTheSourceAreConfirmed(t *testing.T) {
	for _, how := range []string{"get", "list", "reverse"} {
		t.Run(how, func(t *testing.T) {
			ctx := t.Context()
			here, there := twoSites(t)
			c, err := listing.New(here, listing.Options{Timestamps: timestamps.New(nil)})
			require.NoError(t, err)
			src, dst := bucketInPhase(t, c, partmap.Verifying)
			b := c.Bucket("b")
			put := func(p store.Partition, rows ...store.Row) {
				require.NoError(t, here.Put(ctx, p, rows...))
				require.NoError(t, here.deliver(ctx))
			}
			shown := func() map[string]string {
				all := map[string]string{}
				if how == "get" {
					for _, key := range []string{"a", "changed", "gone", "late", "older", "z"} {
						if e, err := b.Get(ctx, []byte(key)); err == nil {
							all[key] = string(e.Value)
						} else {
							require.ErrorIs(t, err, listing.ErrNotFound)
						}
					}
					return all
				}
				page, err := b.List(ctx, listing.Query{Reverse: how == "reverse"})
				require.NoError(t, err)
				for _, item := range page.Items {
					all[string(item.Key)] = string(item.Value)
				}
				return all
			}
			in := func(s *site, p store.Partition, key string) string {
				row, found, err := s.rows.Get(ctx, p, []byte(key))
				require.NoError(t, err)
				if !found {
					return ""
				}
				value, _, err := store.EntryValue(row.Value)
				require.NoError(t, err)
				return string(value)
			}

			put(src, entry("a", "first", 3), entry("gone", "deleted", 3), entry("late", "came late", 5),
				entry("changed", "before", 3), entry("older", "deleted", 4), entry("z", "last", 3))
			put(dst, copied(entry("a", "first", 3)), copied(entry("older", "an older copy", 2)), copied(entry("z", "last", 3)))
			// The other data centre has acknowledged these, before the move; the link is slow.
			require.NoError(t, there.Delete(ctx, src, []byte("gone"), 7))
			require.NoError(t, there.Delete(ctx, src, []byte("older"), 4))
			require.NoError(t, there.Put(ctx, src, entry("changed", "after", 8)))

			// While it can't be asked nothing is hidden, and nothing is written.
			here.cut = true
			require.Equal(t, map[string]string{"a": "first", "changed": "before", "gone": "deleted", "late": "came late",
				"older": "deleted", "z": "last"}, shown())
			require.Empty(t, in(here, dst, "gone"))
			require.Equal(t, "an older copy", in(here, dst, "older"))
			here.cut = false

			for range 2 {
				require.Equal(t, map[string]string{"a": "first", "changed": "after", "late": "came late", "z": "last"}, shown())
			}
			require.Equal(t, "came late", in(here, dst, "late"), "what was shown stays")
			require.Equal(t, "after", in(here, dst, "changed"))
			require.NoError(t, here.deliver(ctx))
			for _, s := range []*site{here, there} {
				require.Empty(t, in(s, dst, "gone"), "a deleted key would be back once the source is removed")
				require.Empty(t, in(s, dst, "older"))
			}
		})
	}
}
