package mapclient

import (
	"bytes"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// thing is an item of some size that may refuse to go.
type thing struct {
	used    atomic.Bool
	bytes   int64
	refuses bool
	asked   int
}

func (x *thing) mark() *atomic.Bool { return &x.used }
func (x *thing) size() int64        { return x.bytes }
func (x *thing) evict() bool        { x.asked++; return !x.refuses }

func kept(l *lru[int, *thing]) (out []int) { return l.order.Keys() }

// TestWhatGoesAndWhatStays: the oldest that was not used since, as few as need be.
func TestWhatGoesAndWhatStays(t *testing.T) {
	const each = 40 + 160
	l := newLRU[int, *thing](4 * each)
	things := map[int]*thing{}
	add := func(k int, bytes int64) {
		things[k] = &thing{bytes: bytes}
		l.add(k, things[k])
	}
	for k := range 4 {
		add(k, 40)
	}
	n, bytes := l.usage()
	require.EqualValues(t, 4, n)
	require.EqualValues(t, 4*each, bytes)
	require.Equal(t, []int{0, 1, 2, 3}, kept(l), "at the bound nothing goes")
	things[0].used.Store(true)
	add(4, 40)
	require.Equal(t, []int{2, 3, 4, 0}, kept(l), "0 was used: it gets a second chance")
	require.False(t, things[0].used.Load())
	add(5, 41)
	require.Equal(t, []int{4, 0, 5}, kept(l), "a byte too many for four")
	_, bytes = l.usage()
	require.EqualValues(t, 3*each+1, bytes)
	things[4].refuses = true
	add(6, 40)
	require.Equal(t, []int{5, 6, 4}, kept(l), "4 refuses, and moves on")
	require.Equal(t, 1, things[4].asked)
	l.remove(5)
	l.remove(99)
	require.Equal(t, []int{6, 4}, kept(l))
	_, bytes = l.usage()
	require.EqualValues(t, 2*each, bytes)
	require.Zero(t, things[5].asked)
	_, ok := l.peek(5)
	require.False(t, ok)
	got, ok := l.peek(6)
	require.True(t, ok)
	require.Same(t, things[6], got)
	things[4].refuses = false
	add(7, 100*each)
	require.Equal(t, []int{7}, kept(l), "the newest stays, however large")
}

// TestRefusalsAreBounded: an add asks 64 of many that refuse, the next one goes on.
func TestRefusalsAreBounded(t *testing.T) {
	l := newLRU[int, *thing](1)
	var all []*thing
	asked := func() (n int) {
		for _, x := range all {
			n += x.asked
		}
		return n
	}
	for k := range 200 {
		all = append(all, &thing{refuses: true})
		before := asked()
		l.add(k, all[k])
		require.Equal(t, min(64, 2*(k+1), map[bool]int{true: 0, false: 64}[k == 0]), asked()-before, "item %d", k)
	}
	require.Len(t, kept(l), 200)
	for _, x := range all {
		x.refuses = false
	}
	l.add(200, &thing{})
	require.Equal(t, []int{200}, kept(l))
}

// TestLinksRemember: what was got through a link counts as used.
func TestLinksRemember(t *testing.T) {
	l := make(links, 2)
	require.Nil(t, l.get(1))
	s, n := &slot{bytes: 7}, &node{}
	s.node.Store(n)
	l[1].Store(s)
	require.Same(t, n, l.get(1))
	require.True(t, s.mark().Load())
	require.EqualValues(t, 7, s.size())
	require.True(t, s.evict())
	require.Nil(t, l.get(1))
}

// TestRootsAreCounted: by their entries, children and batches.
func TestRootsAreCounted(t *testing.T) {
	r := &partmap.Root{Entries: make([]partmap.Entry, 3), Batches: make([]partmap.Batch, 2)}
	r.Entries[1].Start, r.Entries[2].Start = []byte("a"), []byte("b")
	cuts := newView(r).cuts.Bytes()
	require.Positive(t, cuts)
	require.Equal(t, 240+2*cuts+3*96+2*24, newView(r).size())
	r = &partmap.Root{Height: 1, Children: []partmap.Child{{}, {Start: []byte("a"), Node: store.NodeID{1}}}}
	require.Equal(t, 240+2*newView(r).cuts.Bytes()+2*48, newView(r).size())

	es := epochs{buckets: newLRU[store.BucketID, *bucket](1 << 20)}
	b := es.begin(store.BucketID{1})
	r.Epoch, r.State = 1, partmap.Open
	size := newView(r).size()
	es.publish(b, r)
	_, bytes := es.buckets.usage()
	require.Equal(t, size+192+64+160, bytes)
	larger := *r
	larger.Epoch, larger.Batches = 2, make([]partmap.Batch, 3)
	es.publish(b, &larger)
	n, bytes := es.buckets.usage()
	require.Equal(t, size+3*24+192+64+160, bytes)
	require.EqualValues(t, 1, n)
	es.end(b)
	other := es.begin(store.BucketID{2})
	again := es.begin(store.BucketID{2})
	require.Same(t, other, again)
	es.end(again)
	_, there := es.buckets.peek(other.id)
	require.True(t, there, "a call is under way")
	es.end(other)
	_, there = es.buckets.peek(other.id)
	require.False(t, there, "nothing is known of it")
}

// longCuts make a map of three levels.
func longCuts() [][]byte {
	cuts := make([][]byte, 400)
	for i := range cuts {
		cuts[i] = fmt.Appendf(bytes.Repeat([]byte{'a'}, 2000), "%03d", i)
		cuts[i][i%50] = 'b' // so that they have little in common
	}
	slices.SortFunc(cuts, bytes.Compare)
	return cuts
}

// TestNodesAreCounted: with their slots, and index nodes with their links.
func TestNodesAreCounted(t *testing.T) {
	s, id := memstore.New(), store.BucketID{1}
	embedded := NewEmbedded(s, Options{})
	root, err := embedded.Create(t.Context(), id, longCuts())
	require.NoError(t, err)
	require.Equal(t, uint8(2), root.Height)
	index, bytes, err := embedded.nodes.read(t.Context(), id, root.Children[0].Node, 1)
	require.NoError(t, err)
	require.Positive(t, index.index.Len())
	require.Len(t, index.links, index.index.Len())
	require.Equal(t, index.index.Bytes()+256+40+8*int64(index.index.Len()), bytes)
	segment, bytes, err := embedded.nodes.read(t.Context(), id, index.index.Node(0), 0)
	require.NoError(t, err)
	require.Positive(t, segment.segment.Len())
	require.Equal(t, segment.segment.Bytes()+256+40, bytes)
}

// TestPresets: what holds where nothing is said, or nothing that makes sense.
func TestPresets(t *testing.T) {
	for _, o := range []Options{{}, {CacheBytes: -1}} {
		c := NewEmbedded(nil, o)
		require.EqualValues(t, 67_108_864, c.opts.CacheBytes)
		require.Equal(t, c.opts.CacheBytes, c.nodes.cache.limit)
		require.EqualValues(t, 33_554_432, c.epochs.buckets.limit)
		require.WithinDuration(t, time.Now(), c.opts.Now(), time.Hour)
		require.NotEqual(t, c.opts.NewID(), c.opts.NewID())
	}
	small := NewEmbedded(nil, Options{CacheBytes: 1})
	require.EqualValues(t, 1, small.CacheBytes())
	require.EqualValues(t, 1<<20, small.epochs.buckets.limit)
	c, err := NewNetwork(nil, Options{})
	require.NoError(t, err)
	require.Equal(t, 3*time.Second, c.net.lease)
	require.Equal(t, 16, c.opts.Clocks)
	j := c.net.jitter()
	require.True(t, j >= 0 && j < 1)
	require.Equal(t, []time.Duration{50 * time.Millisecond, 10 * time.Minute}, []time.Duration{MinLease, MaxLease})
	require.Equal(t, 65536, MaxClocks)
	require.Equal(t, 3*time.Second+30*time.Millisecond+100*time.Millisecond, WaitFor(3*time.Second))
	require.Equal(t, loadTimeout, 10*time.Second)
}
