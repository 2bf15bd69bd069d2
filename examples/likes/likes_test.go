package main

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// layoutsInMemory are those that a test compares with its oracle.
func layoutsInMemory(t *testing.T) []layout {
	t.Helper()
	out := []layout{
		{"hash buckets", newHashSets(memstore.New(), 7)}, {"one hash bucket", newHashSets(memstore.New(), 1)},
	}
	for _, salts := range []int{0, 5} {
		out = append(out, layout{fmt.Sprint("sorted with salts: ", salts), sortedInMemory(t, salts)})
	}
	return out
}

func sortedInMemory(t *testing.T, salts int) *sortedSets {
	t.Helper()
	c, err := listing.New(memstore.New(), listing.Options{})
	require.NoError(t, err)
	s, err := newSortedSets(t.Context(), c, salts)
	require.NoError(t, err)
	return s
}

// Each layout behaves like a map of maps, for names that begin with each other's.
func TestLayoutsAreSets(t *testing.T) {
	for _, l := range layoutsInMemory(t) {
		t.Run(l.name, func(t *testing.T) {
			rnd, ctx := seed.New(t), t.Context()
			names := []string{"a", "ab", "a\x00", "a\x00b", "b", "ä", "\xff", "\xff\xff"}
			pick := func() string { return names[rnd.IntN(len(names))] }
			want := map[string]map[string]bool{}
			for _, set := range names {
				want[set] = map[string]bool{}
			}
			for range 2000 {
				set, member := pick(), pick()
				switch rnd.IntN(5) {
				case 0, 1:
					require.NoError(t, l.sets.Add(ctx, set, member))
					want[set][member] = true
				case 2:
					require.NoError(t, l.sets.Remove(ctx, set, member))
					delete(want[set], member)
				case 3:
					there, err := l.sets.Has(ctx, set, member)
					require.NoError(t, err)
					require.Equal(t, want[set][member], there, "%q in %q", member, set)
				default:
					check(t, l.sets, set, want[set])
				}
			}
		})
	}
}

// check compares all that is read of a set with what it has.
func check(t *testing.T, s Sets, set string, want map[string]bool) {
	t.Helper()
	var got []string
	for member, err := range s.All(t.Context(), set) {
		require.NoError(t, err)
		got = append(got, member)
	}
	slices.Sort(got)
	var all []string
	for member := range want {
		all = append(all, member)
	}
	slices.Sort(all)
	require.Equal(t, all, got, "%q", set)
	n, err := s.Count(t.Context(), set)
	require.NoError(t, err)
	require.Equal(t, len(want), n, "%q", set)
	some, err := first(t.Context(), s, set, 2)
	require.NoError(t, err)
	require.Len(t, some, min(2, len(want)))
}

// Sets of several pages per partition, beside a neighbour.
func TestLargeSets(t *testing.T) {
	for _, l := range layoutsInMemory(t) {
		t.Run(l.name, func(t *testing.T) {
			const n = 8_000
			require.NoError(t, fill(t.Context(), l.sets, "many", n))
			require.NoError(t, fill(t.Context(), l.sets, "man", 1))
			want := map[string]bool{}
			for i := range n {
				want[member(i)] = true
			}
			require.Len(t, want, n)
			check(t, l.sets, "many", want)
		})
	}
}

// A set spreads over all its partitions, and a salted one over all its ranges.
func TestSpread(t *testing.T) {
	const n, members = 16, 4_000
	h, s := newHashSets(memstore.New(), n), sortedInMemory(t, n)
	require.NoError(t, fill(t.Context(), h, "post", members))
	require.NoError(t, fill(t.Context(), s, "post", members))
	for bucket := range n {
		all := store.SliceOptions{Limit: members}
		page, err := h.rows.Slice(t.Context(), h.partition("post", bucket), store.Bounds{}, all)
		require.NoError(t, err)
		require.InDelta(t, members/n, len(page.Rows), members/n/2)
		salted, err := s.likes.List(t.Context(), listing.Query{Prefix: s.prefixes("post")[bucket], Limit: members})
		require.NoError(t, err)
		require.InDelta(t, members/n, len(salted.Items), members/n/2)
	}
}

func TestKeysOfOthersAreReported(t *testing.T) {
	for _, salts := range []int{0, 3} {
		s := sortedInMemory(t, salts)
		require.NoError(t, s.likes.Put(t.Context(), append(s.prefixes("post")[0], 0x7F), nil))
		_, err := first(t.Context(), s, "post", 10)
		require.ErrorContains(t, err, "no member's")
	}
}

func TestTheDemo(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, demo(t.Context(), &out, 300))
	require.Equal(t, 6, strings.Count(out.String(), "another is there: true"), out.String())
	require.Equal(t, 3, strings.Count(out.String(), " 299 counted"), out.String())
	require.Equal(t, 3, strings.Count(out.String(), "  2 counted"), out.String())
}
