package bench

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/bench/layouts"
)

// shape is the state of an engine, as far as it decides what a read costs: files in
// each level, and whether more than a little is in none yet.
func shape(m *pebble.Metrics) (out []string) {
	for i, l := range m.Levels {
		if l.TablesCount > 0 {
			out = append(out, fmt.Sprintf("L%d in %d", i, l.Sublevels))
		}
	}
	if m.WAL.Size > 10_000 {
		out = append(out, "a log")
	}
	return out
}

// Engines are apart, of the same options, and in the same state when they are
// measured: in one level, with all that was loaded and nothing else.
func TestEnginesAreTreatedAlike(t *testing.T) {
	x := &runner{
		o: Options{Keys: 4000}, r: newReport(Options{}), store: Pebble, deadline: time.Now().Add(time.Hour),
		loaded: map[string]*loaded{},
	}
	s := sets()[slices.IndexFunc(sets(), func(s set) bool { return s.name == setMD5 })]
	w, err := openEmbedded(true, x.embedded(s))
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, w.close())
		_, err := os.Stat(w.dir)
		require.ErrorIs(t, err, os.ErrNotExist)
	})
	x.w = w
	require.NoError(t, x.load(t.Context(), s))
	require.NoError(t, w.spill(t.Context()))
	again := s.entries(x.o.Keys)[:500] // over what is in files already
	cuts := x.cuts(x.loaded[s.name].oracle)
	for _, name := range w.layouts {
		l, err := x.layout(s, name, w.rows(name), cuts)
		require.NoError(t, err)
		require.NoError(t, l.Load(t.Context(), again))
	}
	require.NoError(t, w.bare().load(t.Context(), s.name, again))
	require.NoError(t, w.settle(t.Context()))
	require.Equal(t, []string{"L6 in 1"}, shape(w.db.Metrics()), nameBare)
	require.ElementsMatch(t, []string{layouts.NameEvenkeel, layouts.NameWide, layouts.NameHash, layouts.NamePrefix},
		w.layouts)
	require.Len(t, w.engines, len(w.layouts))
	for name, e := range w.engines {
		require.Equal(t, []string{"L6 in 1"}, shape(e.Metrics()), name)
	}
	complete(t, x, x.loaded[s.name])
}

// complete reads a set from every layout, and bare.
func complete(t *testing.T, x *runner, l *loaded) {
	t.Helper()
	require.NoError(t, x.build(t.Context(), l))
	for name, timed := range l.timed {
		var found pages
		require.NoError(t, timed.Scan(t.Context(), 2, found.add))
		require.NoError(t, l.oracle.complete(found.all), name)
	}
	var found pages
	require.NoError(t, x.bareScan(t.Context(), l, 2, found.add))
	require.NoError(t, l.oracle.complete(found.all))
}

// A set that is overwritten ends as the last writes leave it, in every layout, with
// each write done.
func TestOverwritten(t *testing.T) {
	x := &runner{
		o: Options{Keys: 8000}, r: newReport(Options{}), store: Pebble, deadline: time.Now().Add(time.Hour),
		loaded: map[string]*loaded{},
	}
	s := sets()[slices.IndexFunc(sets(), func(s set) bool { return s.overwritten })]
	w, err := openEmbedded(true, x.embedded(s))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.close()) })
	x.w = w
	require.NoError(t, x.overwrite(t.Context(), s))
	l := x.loaded[s.name]
	complete(t, x, l)

	entries := s.entries(8000)
	var mu sync.Mutex
	last, writes := map[string]string{}, 0
	require.NoError(t, inOrderOfKeys(t.Context(), entries, 7, func(_ context.Context, key, value []byte) error {
		mu.Lock()
		defer mu.Unlock()
		last[string(key)] = string(value)
		writes++
		return nil
	}))
	require.Equal(t, len(entries), writes)
	for i, k := range l.oracle.keys {
		require.Equal(t, string(l.oracle.values[i]), last[string(k)])
	}
}
