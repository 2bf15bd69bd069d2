package balancer

import (
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"reflect"
	"slices"
	"sort"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/internal/countbook"
	"github.com/evenkeel/evenkeel/internal/rebalance/policy"
	"github.com/evenkeel/evenkeel/internal/test/race"
	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// plainMap is a map of one bucket, which counts the ranges that are read.
type plainMap struct {
	root   partmap.Root
	ranges []partmap.Range
	read   int
	fresh  uint64
}

func (m *plainMap) partition() (id store.PartitionID) {
	m.fresh++
	copy(id[:], fmt.Appendf(nil, "%016d", m.fresh))
	return id
}

func newPlainMap(n int) *plainMap {
	m := &plainMap{root: partmap.Root{State: partmap.Open, Ranges: uint64(n)}}
	for i := range n {
		rg := partmap.Range{Entry: partmap.Entry{Partition: m.partition()}}
		if i > 0 {
			rg.Start = fmt.Appendf(nil, "k%09d", i*1000)
			m.ranges[i-1].End = rg.Start
		}
		m.ranges = append(m.ranges, rg)
	}
	return m
}

func (m *plainMap) Look(ctx context.Context, id store.BucketID) (*partmap.Root, error) {
	return m.Load(ctx, id)
}

func (m *plainMap) Load(context.Context, store.BucketID) (*partmap.Root, error) {
	r := m.root
	return &r, nil
}

func (m *plainMap) Ranges(_ context.Context, _ *partmap.Root, from []byte) iter.Seq2[partmap.Range, error] {
	return func(yield func(partmap.Range, error) bool) {
		i := sort.Search(len(m.ranges), func(i int) bool { return string(m.ranges[i].Start) > string(from) }) - 1
		for ; i < len(m.ranges); i++ {
			m.read++
			if !yield(m.ranges[i], nil) {
				return
			}
		}
	}
}

// split cuts a range in two; merge joins it with the next one.
func (m *plainMap) split(i int) {
	rg := m.ranges[i]
	cut := append(slices.Clone(rg.Start), fmt.Appendf(nil, "-%03d", m.fresh)...)
	if len(rg.Start) == 0 {
		cut = []byte("a")
	}
	if len(rg.End) > 0 && string(cut) >= string(rg.End) {
		return
	}
	high := partmap.Range{Entry: partmap.Entry{Start: cut, Partition: m.partition()}, End: rg.End}
	m.ranges[i].End = cut
	m.ranges = slices.Insert(m.ranges, i+1, high)
	m.root.Ranges++
}

func (m *plainMap) merge(i int) {
	if i+1 < len(m.ranges) {
		m.ranges[i].End, m.ranges[i].Partition = m.ranges[i+1].End, m.partition()
		m.ranges = slices.Delete(m.ranges, i+1, i+2)
		m.root.Ranges--
	}
}

func overMap(m *plainMap, counts counter.Backend) *Balancer {
	return New(memstore.New(), m, nil, counts, Options{Policy: policy.Default(1000)})
}

// Each range that is wanted is in the core of one window, with its neighbours, whether its place is known, has changed
// or was never known; nothing else is in a core.
func TestWindowsHoldWhatIsWanted(t *testing.T) {
	race.Skip(t)
	r := rand.New(rand.NewPCG(seed.Number(t), 1))
	for range 30 {
		m := newPlainMap(1 + r.IntN(4000))
		b := overMap(m, countbook.NewMemory(nil))
		for range 5 {
			v := &visit{parts: map[store.PartitionID]bool{}, whole: r.IntN(10) == 0}
			some := r.IntN(60)
			if r.IntN(5) == 0 {
				some = len(m.ranges)
			}
			for range some {
				v.parts[m.ranges[r.IntN(len(m.ranges))].Partition] = true
			}
			if r.IntN(3) == 0 {
				v.parts[m.partition()] = true // it is gone
			}
			for range r.IntN(3) {
				i := r.IntN(len(m.ranges))
				k := min(len(m.ranges)-1, i+r.IntN(40))
				v.spans = append(v.spans, span{
					store.Bounds{Start: m.ranges[i].Start, End: m.ranges[k].End}, m.ranges[max(0, i-margin)].Start,
				})
			}
			requireWindows(t, b, m, v)
			for range r.IntN(200) {
				if i := r.IntN(len(m.ranges)); r.IntN(2) == 0 {
					m.split(i)
				} else {
					m.merge(i)
				}
			}
		}
	}
}

func requireWindows(t *testing.T, b *Balancer, m *plainMap, v *visit) {
	t.Helper()
	root, _ := m.Load(t.Context(), v.id)
	at := map[store.PartitionID]int{}
	for i := range m.ranges {
		at[m.ranges[i].Partition] = i
	}
	last := -1
	core := map[int]bool{}
	require.NoError(t, b.windows(t.Context(), root, v, func(w *window) error {
		require.LessOrEqual(t, len(w.ranges), max(wholeUpTo, windowRanges+2*margin))
		require.Len(t, w.core, len(w.ranges))
		from := at[w.ranges[0].Partition]
		for k := range w.ranges {
			if !reflect.DeepEqual(m.ranges[from+k], w.ranges[k]) { // millions of them: an assertion takes ten times as long
				require.Equal(t, m.ranges[from+k], w.ranges[k])
			}
			if w.core[k] {
				i := from + k
				require.Greater(t, i, last, "cores are in order, and apart")
				last, core[i] = i, true
				require.True(t, k >= margin || from == 0, "%d neighbours below range %d of %d", k, i, len(m.ranges))
				above := len(w.ranges) - 1 - k
				require.True(t, above >= margin || from+len(w.ranges) == len(m.ranges), "%d neighbours above", above)
			}
		}
		return nil
	}))
	for i := range m.ranges {
		rg := &m.ranges[i]
		want := v.whole || len(m.ranges) <= wholeUpTo || v.parts[rg.Partition] ||
			slices.ContainsFunc(v.spans, func(s span) bool { return overlap(rg, &s.Bounds) })
		if want != core[i] {
			require.Equal(t, want, core[i], "range %d of %d", i, len(m.ranges))
		}
	}
}

// What was written to is found without going through the map, also after a part of it has changed.
func TestPlacesAreRemembered(t *testing.T) {
	race.Skip(t)
	m := newPlainMap(20_000)
	b := overMap(m, countbook.NewMemory(nil))
	requireWindows(t, b, m, &visit{whole: true})
	v := &visit{parts: map[store.PartitionID]bool{}}
	for i := range 10 {
		v.parts[m.ranges[1_000+1_800*i].Partition] = true
	}
	for range 3 {
		m.read = 0
		requireWindows(t, b, m, v)
		require.Less(t, m.read, 10*64)
		for i := range 4 {
			m.split(990 + i)
			m.merge(2_790)
		}
		requireWindows(t, b, m, v)
	}
	require.LessOrEqual(t, len(b.places.of), placesKept)
}

// A window shows the range that is appended to beside the ones that were cut ahead of it, however many they are.
func TestWindowsReachOverEmptyRanges(t *testing.T) {
	m := newPlainMap(3000)
	counts := countbook.NewMemory(nil)
	b := overMap(m, counts)
	for i := range m.ranges {
		rg := &m.ranges[i]
		c := &counter.Count{Started: time.Now(), Start: rg.Start, End: rg.End}
		if i <= 1000 || i > 1300 {
			c.Rows = 500
		}
		require.NoError(t, counts.Correct(t.Context(), store.Partition{ID: rg.Partition}, c))
	}
	requireWindows(t, b, m, &visit{whole: true})
	for _, i := range []int{1001, 1150, 1300} {
		v := &visit{parts: map[store.PartitionID]bool{m.ranges[i].Partition: true}}
		root, _ := m.Load(t.Context(), v.id)
		windows := 0
		require.NoError(t, b.batches(t.Context(), root, v, func(ws []*window) error {
			for _, w := range ws {
				windows++
				for k, rg := range w.ranges {
					require.Equal(t, rg.Partition == m.ranges[i].Partition, w.core[k])
					require.Equal(t, rg.Partition, w.stats[k].Partition.ID)
				}
				require.LessOrEqual(t, string(w.ranges[0].Start), string(m.ranges[1000].Start))
				require.GreaterOrEqual(t, string(w.ranges[len(w.ranges)-1].Start), string(m.ranges[1301].Start))
			}
			return nil
		}))
		require.Equal(t, 1, windows)
	}
}
