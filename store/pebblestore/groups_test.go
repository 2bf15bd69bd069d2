package pebblestore

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/store"
)

// likeEnds returns a few bytes of those by which groups begin and end.
func likeEnds(r *rand.Rand, most int) []byte {
	b := make([]byte, r.IntN(most+1))
	for i := range b {
		b[i] = []byte{0, 0, 1, 1, 2, 0xff}[r.IntN(6)]
	}
	return b
}

// TestGroupsKeepTheOrderOfBytes: what Pebble asks of a Split and of an ImmediateSuccessor, for keys of any bytes.
func TestGroupsKeepTheOrderOfBytes(t *testing.T) {
	r := seed.New(t)
	c := comparerOf(formatGroups)
	var all [][]byte
	for range 400 {
		key := likeEnds(r, prefixBytes) // as keys of other tables; and partitions whose address has the same bytes
		if r.IntN(4) > 0 {
			key = append(bytes.Repeat([]byte{byte(r.IntN(2))}, prefixBytes), likeEnds(r, 6)...)
		}
		all = append(all, key)
	}
	split := func(k []byte) (group, rest []byte) { n := c.Split(k); return k[:n], k[n:] }
	for _, a := range all {
		group, rest := split(a)
		again, none := split(group)
		require.Equal(t, group, again, "%x: the group of a group", a)
		require.Empty(t, none)
		next := c.ImmediateSuccessor(nil, group)
		require.Positive(t, c.Compare(next, a), "%x: the next group %x", a, next)
		_, none = split(next)
		require.Empty(t, none, "%x: the next group %x", a, next)
		for _, b := range all {
			groupB, restB := split(b)
			want := bytes.Compare(group, groupB)
			if want == 0 {
				want = bytes.Compare(rest, restB)
			}
			require.Equal(t, want, c.Compare(a, b), "%x and %x", a, b)
			if want < 0 && !bytes.Equal(group, groupB) {
				require.LessOrEqual(t, c.Compare(next, groupB), 0, "%x lies between %x and %x", groupB, group, next)
			}
		}
	}
}

// TestListingsGoFromGroupToGroup, in memory and in tables, also where bounds cut groups, as if Pebble knew of none:
// of each stretch that is passed over the first row comes. Stretches are groups, parts of them, and more than them.
func TestListingsGoFromGroupToGroup(t *testing.T) {
	r := seed.New(t)
	for _, format := range []int{formatGroups, formatGroups - 1} {
		dir := t.TempDir()
		text := fmt.Appendf(nil, "%s%d\n", formatMagic, format)
		require.NoError(t, os.WriteFile(filepath.Join(dir, FormatFile), text, 0o600))
		s, err := openDirectory(dir, Options{NoSync: true})
		require.NoError(t, err)
		p := newPartition()
		var all []store.Row // sorted
		for range 3000 {
			key := append([]byte{byte('a' + r.IntN(3))}, likeEnds(r, 8)...)
			all = append(all, store.Row{Key: key, Value: []byte{1}, Timestamp: 1})
		}
		all = winners(all)
		for rows := all; len(rows) > 0; rows = rows[min(len(rows), 500):] {
			require.NoError(t, s.Put(t.Context(), p, rows[:min(len(rows), 500)]...))
			if r.IntN(2) == 0 {
				require.NoError(t, s.db.Flush())
			}
		}
		for range 300 {
			b := store.Bounds{StartExclusive: r.IntN(2) == 0}
			if r.IntN(2) == 0 {
				b.Start = all[r.IntN(len(all))].Key
			}
			if end := all[r.IntN(len(all))].Key; r.IntN(2) == 0 && bytes.Compare(b.Start, end) <= 0 {
				b.End = end
			}
			cut := r.IntN(4) // to more than a group, a group, a part of one, and one that ends as a group does
			sift := func(key, value []byte) (pass, keep int) {
				i := bytes.Index(key, groupEnd)
				if cut == 3 {
					i = bytes.LastIndex(key, groupEnd) - 2
				}
				if i >= 0 {
					return min(i+1+cut, len(key)), len(value)
				}
				return 0, len(value)
			}
			var want, got [][]byte
			var passed []byte
			for _, row := range all {
				if !store.Within(row.Key, b) || passed != nil && bytes.HasPrefix(row.Key, passed) {
					continue
				}
				want, passed = append(want, row.Key), nil
				if pass, _ := sift(row.Key, nil); pass > 0 {
					passed = row.Key[:pass]
				}
			}
			page, err := s.Slice(t.Context(), p, b, store.SliceOptions{Limit: 5000, Sift: sift})
			require.NoError(t, err)
			require.False(t, page.More)
			for _, row := range page.Rows {
				got = append(got, row.Key)
			}
			require.Equal(t, want, got, "%+v, cut %d", b, cut)
		}
		require.NoError(t, s.Close())
	}
}

// TestDirectoriesKeepTheirFormat as to groups, and so do backups of them, and what is restored from those. Programs of
// before refuse all of them.
func TestDirectoriesKeepTheirFormat(t *testing.T) {
	old := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(old, FormatFile), []byte(formatMagic+"1\n"), 0o600))
	for _, dir := range []string{old, t.TempDir()} {
		at := func(name string) string { return filepath.Join(t.TempDir(), name) }
		backup, restored := at("backup"), at("restored")
		p := newPartition()
		s, err := openDirectory(dir, Options{})
		require.NoError(t, err)
		require.NoError(t, s.Put(t.Context(), p, row("k", "v", 1)))
		_, err = s.Backup(t.Context(), backup, nil)
		require.NoError(t, err)
		require.NoError(t, s.Close())
		_, err = Restore(t.Context(), backup, restored, Options{}, nil)
		require.NoError(t, err)
		for _, copied := range []string{dir, backup, restored} {
			s, err := openDirectory(copied, Options{})
			require.NoError(t, err)
			require.Equal(t, map[bool]int{true: 3, false: formatCurrent}[dir == old], s.format, copied)
			_, found, err := s.Get(t.Context(), p, []byte("k"))
			require.NoError(t, err)
			require.True(t, found)
			require.NoError(t, s.Close())
		}
	}
}
