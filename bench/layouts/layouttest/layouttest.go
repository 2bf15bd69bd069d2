// Package layouttest tests layouts of sorted listings: it compares their pages and scans with a sorted slice.
package layouttest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/bench/layouts"
)

// oracle is the expected content of a layout, as a sorted slice of keys with their values.
type oracle struct {
	keys   []string
	values map[string]string
}

func newOracle(entries []layouts.Entry) *oracle {
	o := &oracle{values: map[string]string{}}
	for _, e := range entries {
		o.values[string(e.Key)] = string(e.Value)
	}
	for k := range o.values {
		o.keys = append(o.keys, k)
	}
	sort.Strings(o.keys)
	return o
}

// list returns the right answer to a query, as lines of text, in the simplest and slowest way.
func (o *oracle) list(q layouts.Query) (lines []string) {
	keys := slices.Clone(o.keys)
	if q.Reverse {
		slices.Reverse(keys)
	}
	limit := q.Limit
	if limit == 0 {
		limit = layouts.DefaultLimit
	}
	for _, k := range keys {
		if !strings.HasPrefix(k, string(q.Prefix)) {
			continue
		}
		if after := string(q.After); after != "" {
			if q.Reverse && k >= after || !q.Reverse && k <= after {
				continue
			}
			folded := false // after is a common prefix
			if rest, within := strings.CutPrefix(after, string(q.Prefix)); within && len(q.Delimiter) > 0 {
				before, beyond, found := strings.Cut(rest, string(q.Delimiter))
				folded = found && beyond == "" && len(before)+len(q.Delimiter) == len(rest)
			}
			if folded && strings.HasPrefix(k, after) {
				continue
			}
		}
		line := k + " = " + o.values[k]
		if len(q.Delimiter) > 0 {
			if at := strings.Index(k[len(q.Prefix):], string(q.Delimiter)); at >= 0 {
				line = k[:len(q.Prefix)+at+len(q.Delimiter)] + " ..."
			}
		}
		if len(lines) > 0 && lines[len(lines)-1] == line {
			continue
		}
		if len(lines) == limit {
			break
		}
		lines = append(lines, line)
	}
	return lines
}

func linesOf(items []layouts.Item) (lines []string) {
	for _, item := range items {
		if item.CommonPrefix {
			lines = append(lines, string(item.Key)+" ...")
		} else {
			lines = append(lines, string(item.Key)+" = "+string(item.Value))
		}
	}
	return lines
}

func value(r *rand.Rand) []byte { return fmt.Appendf(nil, "%x", r.Uint64()) }

// fill puts an entry for each of keys into the layout l, and some entries twice. Most entries are loaded at once, and
// some are put one by one. The result is the expected content of l.
func fill(t *testing.T, r *rand.Rand, l layouts.Layout, keys [][]byte) *oracle {
	var entries []layouts.Entry
	for _, i := range r.Perm(len(keys)) {
		entries = append(entries, layouts.Entry{Key: keys[i], Value: value(r)})
		if r.IntN(10) == 0 {
			entries = append(entries, layouts.Entry{Key: keys[r.IntN(len(keys))], Value: value(r)})
		}
	}
	single := min(len(entries), 200)
	require.NoError(t, l.Load(t.Context(), entries[:len(entries)-single]))
	for _, e := range entries[len(entries)-single:] {
		require.NoError(t, l.Put(t.Context(), e.Key, e.Value))
	}
	return newOracle(entries)
}

// Scanned returns all entries that a scan of the layout l by several readers finds. The test fails if a key is found
// twice.
func Scanned(t *testing.T, l layouts.Layout, readers int) map[string]string {
	var mu sync.Mutex
	found := map[string]string{}
	require.NoError(t, l.Scan(t.Context(), readers, func(entries []layouts.Entry) error {
		mu.Lock()
		defer mu.Unlock()
		for _, e := range entries {
			_, twice := found[string(e.Key)]
			require.False(t, twice, "%q", e.Key)
			found[string(e.Key)] = string(e.Value)
		}
		return nil
	}))
	return found
}

// ByKey tests a layout that keeps keys in order. It fills the empty layout l with keys, and compares the answers to
// random queries with the right ones. bytewise is true if a delimiter may consist of any bytes.
func ByKey(t *testing.T, r *rand.Rand, l layouts.Layout, keys [][]byte, bytewise bool) {
	o := fill(t, r, l, keys)
	for range 60 {
		q := someQuery(r, o, bytewise)
		items, err := l.List(t.Context(), q)
		require.NoError(t, err)
		require.Equal(t, o.list(q), linesOf(items), "%v", q)
	}
	var all []layouts.Item
	for item, err := range layouts.All(t.Context(), l, layouts.Query{Limit: 97}) {
		require.NoError(t, err)
		all = append(all, item)
	}
	require.Equal(t, o.list(layouts.Query{Limit: 1 << 30}), linesOf(all))
	for _, readers := range []int{1, 8} {
		require.Equal(t, o.values, Scanned(t, l, readers))
	}
	for range 50 {
		k := o.keys[r.IntN(len(o.keys))]
		v, found, err := l.Get(t.Context(), []byte(k))
		require.NoError(t, err)
		require.True(t, found)
		require.Equal(t, o.values[k], string(v))
		_, found, err = l.Get(t.Context(), []byte("no such key "+k))
		require.NoError(t, err)
		require.False(t, found)
		p, err := l.Partition(t.Context(), []byte(k))
		require.NoError(t, err)
		require.NotEmpty(t, p)
	}
}

func someQuery(r *rand.Rand, o *oracle, bytewise bool) (q layouts.Query) {
	key := o.keys[r.IntN(len(o.keys))]
	if r.IntN(2) == 0 {
		q.Prefix = []byte(key[:r.IntN(min(len(key), 12)+1)])
	}
	if r.IntN(2) == 0 {
		delimiters := []string{"/", "a", "//", "\xff"}
		if !bytewise {
			delimiters = delimiters[:3]
		}
		q.Delimiter = []byte(delimiters[r.IntN(len(delimiters))])
	} else {
		q.Reverse = r.IntN(2) == 0
	}
	q.Limit = r.IntN(60)
	switch r.IntN(4) {
	case 0:
		q.After = []byte(o.keys[r.IntN(len(o.keys))])
	case 1:
		q.After = append(bytes.Clone(q.Prefix), key[len(q.Prefix):]...)[:r.IntN(len(key))+1]
	case 2:
		// a page's last line
		if items := o.list(layouts.Query{Prefix: q.Prefix, Delimiter: q.Delimiter}); len(items) > 0 {
			last := items[r.IntN(len(items))]
			if p, folded := strings.CutSuffix(last, " ..."); folded {
				q.After = []byte(p)
			}
		}
	}
	return q
}

// FeedKeys returns n ascending Snowflake ids as keys, from some weeks. Some days have no ids, and one day has half of
// all ids.
func FeedKeys(t testing.TB, r *rand.Rand, n int) (keys [][]byte) {
	g, err := layouts.NewGenerator(3, 7)
	require.NoError(t, err)
	var at []time.Duration
	for range n {
		day := []int{0, 1, 2, 9, 30, 31, 31, 31, 31, 31}[r.IntN(10)]
		at = append(at, time.Duration(day)*24*time.Hour+time.Duration(r.Int64N(int64(24*time.Hour))))
	}
	slices.Sort(at)
	for _, d := range at {
		id, err := g.Next(layouts.Epoch.AddDate(1, 2, 3).Add(d))
		require.NoError(t, err)
		keys = append(keys, id.Key())
	}
	return keys
}

// Feed tests a layout for feeds. It fills the empty layout l with ids, and compares listings of the newest entries with
// the right ones.
func Feed(t *testing.T, r *rand.Rand, l layouts.Layout, keys [][]byte) {
	o := fill(t, r, l, keys)
	for range 50 {
		q := layouts.Query{Reverse: true, Limit: 1 + r.IntN(900)}
		if r.IntN(4) > 0 {
			q.After = []byte(o.keys[r.IntN(len(o.keys))])
		}
		items, err := l.List(t.Context(), q)
		require.NoError(t, err)
		require.Equal(t, o.list(q), linesOf(items), "%v", q)
	}
	require.Equal(t, o.values, Scanned(t, l, 1))
	require.Equal(t, o.values, Scanned(t, l, 4))
	for _, k := range o.keys[:50] {
		v, found, err := l.Get(t.Context(), []byte(k))
		require.NoError(t, err)
		require.True(t, found)
		require.Equal(t, o.values[k], string(v))
	}
}
