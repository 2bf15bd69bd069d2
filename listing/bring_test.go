package listing_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/door"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/rebalance/executor"
	"github.com/evenkeel/evenkeel/internal/rebalance/move"
	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// What was read elsewhere before a delete here does not come back, not even where the delete's partition is gone.
func TestBroughtRowsNeverBeatWhatIsNewer(t *testing.T) {
	ctx := t.Context()
	s := memstore.New()
	c, err := listing.New(s, listing.Options{})
	require.NoError(t, err)
	require.NoError(t, c.CreateBucket(ctx, "b"))
	b := c.Bucket("b")
	row := func(key, value string, at store.Timestamp) store.Row {
		r := store.Row{Key: []byte(key), Timestamp: at}
		if value != "" {
			r.Value = []byte(value)
		}
		return r
	}
	get := func(key string) string {
		e, err := b.Get(ctx, []byte(key))
		if errors.Is(err, listing.ErrNotFound) {
			return ""
		}
		require.NoError(t, err)
		return string(e.Value)
	}
	m, err := door.Bucket(b).Mark(ctx)
	require.NoError(t, err)
	require.NoError(t, b.Put(ctx, []byte("overwritten"), []byte("new")))
	require.NoError(t, b.Put(ctx, []byte("deleted"), []byte("new")))
	require.NoError(t, b.Delete(ctx, []byte("deleted")))
	require.NoError(t, b.Put(ctx, []byte("put"), []byte("new")))
	// The writes of the other place are ahead of this one's clock.
	ahead := m.At() + 1e12
	require.NoError(t, door.Bucket(b).Bring(ctx, m, []store.Row{
		row("deleted", "old", ahead), row("dropped", "", 0), row("overwritten", "old", ahead), row("put", "", 0),
		row("untouched", "old", 17),
	}))
	require.Equal(t, []string{"", "", "new", "new", "old"},
		[]string{get("deleted"), get("dropped"), get("overwritten"), get("put"), get("untouched")})
	id, err := c.BucketID(ctx, "b")
	require.NoError(t, err)
	root, err := mapclient.Of(c).Load(ctx, id)
	require.NoError(t, err)
	for rg, err := range mapclient.Of(c).Ranges(ctx, root, nil) {
		require.NoError(t, err)
		kept, found, err := s.Get(ctx, store.Partition{Bucket: id, ID: rg.Partition}, []byte("untouched"))
		require.NoError(t, err)
		require.True(t, found)
		require.EqualValues(t, 17, kept.Timestamp)
	}

	m, err = door.Bucket(b).Mark(ctx)
	require.NoError(t, err)
	require.NoError(t, b.Delete(ctx, []byte("untouched")))
	x := executor.New(s, mapclient.Of(c), id, executor.Options{})
	for rg, err := range mapclient.Of(c).Ranges(ctx, root, nil) {
		require.NoError(t, err)
		x.Add(move.Refresh(&rg))
	}
	require.NoError(t, x.Run(ctx))
	old := []store.Row{row("untouched", "old", 17)}
	require.ErrorIs(t, door.Bucket(b).Bring(ctx, m, old), door.ErrMoved)
	require.Empty(t, get("untouched"))

	m, err = door.Bucket(b).Mark(ctx)
	require.NoError(t, err)
	require.ErrorIs(t, door.Bucket(b).Bring(ctx, m, append(old, row("a", "x", 1))), store.InvalidArgument, "unsorted")
	require.NoError(t, c.CreateBucket(ctx, "other"))
	require.ErrorIs(t, door.Bucket(c.Bucket("other")).Bring(ctx, m, old), door.ErrMoved, "the mark of another bucket")
}

// Many rows over several ranges come in batches, and bringing them again changes nothing.
func TestBringManyRows(t *testing.T) {
	ctx := t.Context()
	c, err := listing.New(memstore.New(), listing.Options{})
	require.NoError(t, err)
	require.NoError(t, c.CreateBucket(ctx, "b", []byte("k0300"), []byte("k0301"), []byte("k0777")))
	b, random := c.Bucket("b"), rand.New(rand.NewPCG(seed.Number(t), 1))
	want := map[string]string{}
	for round := range 3 {
		m, err := door.Bucket(b).Mark(ctx)
		require.NoError(t, err)
		var rows []store.Row
		for i := range 1000 {
			r := store.Row{Key: fmt.Appendf(nil, "k%04d", i), Timestamp: store.Timestamp(round + 1)}
			if random.IntN(10) > 0 || round == 0 {
				r.Value = fmt.Append(nil, random.Uint64())
				want[string(r.Key)] = string(r.Value)
			} else {
				delete(want, string(r.Key))
			}
			rows = append(rows, r)
		}
		for range 2 {
			require.NoError(t, door.Bucket(b).Bring(ctx, m, rows))
			got := map[string]string{}
			for item, err := range b.All(ctx, listing.Query{}) {
				require.NoError(t, err)
				got[string(item.Key)] = string(item.Value)
			}
			require.Equal(t, want, got)
		}
	}
}

// Marks and rows that are refused; nothing is written.
func TestWhatIsNotBrought(t *testing.T) {
	source := &badTime{}
	s := &scripted{Store: memstore.New()}
	w := &world{t: t, ctx: t.Context(), s: s}
	w.client(listing.Options{Timestamps: source, MaxValueBytes: 20})
	w.fill()
	b, v := w.c.Bucket("b"), []byte("v")
	m, err := door.Bucket(b).Mark(t.Context())
	require.NoError(t, err)
	s.writes = 0
	for what, rows := range map[string][]store.Row{
		"no key":           {{Value: v}},
		"a key too long":   {{Key: []byte("a"), Value: v}, {Key: make([]byte, store.MaxKeyBytes+1), Value: v}},
		"a value too long": {{Key: []byte("a"), Value: v}, {Key: []byte("b"), Value: make([]byte, 21)}},
		"a key twice":      {{Key: []byte("a"), Value: v}, {Key: []byte("a")}},
		"no order":         {{Key: []byte("b"), Value: v}, {Key: []byte("a"), Value: v}},
	} {
		require.ErrorIs(t, door.Bucket(b).Bring(t.Context(), m, rows), store.InvalidArgument, what)
	}
	require.NoError(t, door.Bucket(b).Bring(t.Context(), m, nil))
	no := w.c.Bucket("none")
	require.ErrorIs(t, door.Bucket(no).Bring(t.Context(), m, []store.Row{{Key: []byte("a")}}), listing.ErrNoSuchBucket)
	_, err = door.Bucket(no).Mark(t.Context())
	require.ErrorIs(t, err, listing.ErrNoSuchBucket)
	noTime := store.Errorf(store.Corrupt, "no time")
	for _, bad := range []*badTime{{next: noTime}, {passed: noTime}} {
		source.next, source.passed = bad.next, bad.passed
		_, err = door.Bucket(b).Mark(t.Context())
		require.ErrorIs(t, err, noTime)
	}
	source.next, source.passed = nil, nil
	w.state(w.id, partmap.Closing)
	_, err = door.Bucket(b).Mark(t.Context())
	require.ErrorIs(t, err, listing.ErrBucketClosing)
	require.ErrorIs(t, door.Bucket(b).Bring(t.Context(), m, []store.Row{{Key: []byte("a")}}), listing.ErrBucketClosing)
	require.Zero(t, s.writes)
}

// A mark serves for five minutes, and as long as the map is the same. It is taken under a lease, with a timestamp that
// no write after it gets.
func TestMarks(t *testing.T) {
	inBubble(t, "age", func(t *testing.T) {
		c := over(t, memstore.New(), listing.Options{})
		row := []store.Row{{Key: []byte("k"), Value: []byte("v")}}
		m, err := door.Bucket(c.Bucket("b")).Mark(t.Context())
		require.NoError(t, err)
		time.Sleep(5 * time.Minute)
		require.NoError(t, door.Bucket(c.Bucket("b")).Bring(t.Context(), m, row))
		time.Sleep(time.Nanosecond)
		require.ErrorIs(t, door.Bucket(c.Bucket("b")).Bring(t.Context(), m, row), door.ErrMoved)
	})
	t.Run("map", func(t *testing.T) {
		c := over(t, memstore.New(), listing.Options{})
		id, err := c.BucketID(t.Context(), "b")
		require.NoError(t, err)
		m, err := door.Bucket(c.Bucket("b")).Mark(t.Context())
		require.NoError(t, err)
		root, err := mapclient.Of(c).Load(t.Context(), id)
		require.NoError(t, err)
		require.NoError(t, mapclient.Of(c).Swap(t.Context(), partmap.Again(root, mapclient.Of(c).Stamp())))
		for _, row := range []store.Row{{Key: []byte("k"), Value: []byte("v")}, {Key: []byte("k")}} {
			require.ErrorIs(t, door.Bucket(c.Bucket("b")).Bring(t.Context(), m, []store.Row{row}), door.ErrMoved)
		}
	})
	inBubble(t, "lease", func(t *testing.T) {
		source, s := &stamps{}, memstore.New()
		c := leased(t, s, s, listing.Options{Timestamps: source})
		require.NoError(t, c.CreateBucket(t.Context(), "b"))
		drawn := source.drawn
		source.first = expire
		m, err := door.Bucket(c.Bucket("b")).Mark(t.Context())
		require.NoError(t, err)
		require.Equal(t, 2, source.drawn-drawn, "the lease has ended during the first draw")
		require.EqualValues(t, source.last, m.At(), "of the last draw, and not to be drawn again")
	})
}

// What a recorder is told of rows that are brought, and at which timestamps: none is above the mark's.
func TestARecorderLearnsOfBroughtRows(t *testing.T) {
	s, told := memstore.New(), newBook()
	w := &world{t: t, ctx: t.Context(), s: s}
	w.client(listing.Options{Recorder: told})
	w.fill([]byte("m"))
	b := w.c.Bucket("b")
	m, err := door.Bucket(b).Mark(t.Context())
	require.NoError(t, err)
	clear(told.at)
	var rows []store.Row
	want := map[string]map[string]store.Timestamp{}
	for _, prefix := range []string{"a", "n"} {
		want[prefix] = map[string]store.Timestamp{}
		for key, at := range map[string][2]store.Timestamp{
			"0": {-1, m.At()}, "1": {0, m.At()}, "2": {1, 1}, "3": {m.At() - 1, m.At() - 1}, "4": {m.At(), m.At()},
			"5": {m.At() + 1, m.At()},
		} {
			rows = append(rows, store.Row{Key: []byte(prefix + key), Value: []byte("v"), Timestamp: at[0]})
			want[prefix][prefix+key] = at[1]
		}
	}
	slices.SortFunc(rows, func(x, y store.Row) int { return bytes.Compare(x.Key, y.Key) })
	require.NoError(t, door.Bucket(b).Bring(t.Context(), m, rows))
	require.Len(t, told.at, 2)
	require.Equal(t, 2, told.requireRows(t, s, w.id))
	for _, rg := range w.ranges() {
		prefix := map[bool]string{true: "a", false: "n"}[len(rg.Start) == 0]
		require.Equal(t, want[prefix], told.at[store.Partition{Bucket: w.id, ID: rg.Partition}])
	}
	require.NoError(t, door.Bucket(b).Bring(t.Context(), m, []store.Row{{Key: []byte("a0")}, {Key: []byte("a2"), Timestamp: 1}}))
	require.Equal(t, 2, told.requireRows(t, s, w.id))
}
