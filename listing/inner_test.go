package listing

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/cells"
	"github.com/evenkeel/evenkeel/internal/door"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// lookingAgain is a store in which something happens between the reads of both ends of a
// move and the second look at the source.
type lookingAgain struct {
	store.Rows
	src  store.Partition
	late store.Row // what the source has by then
	err  error
}

func (l *lookingAgain) Get(ctx context.Context, p store.Partition, key []byte) (store.Row, bool, error) {
	if l.err != nil {
		return store.Row{}, false, l.err
	}
	if l.late.Key != nil {
		if err := l.Rows.Put(ctx, l.src, l.late); err != nil {
			return store.Row{}, false, err
		}
	}
	return l.Rows.Get(ctx, p, key)
}

// TestCopiesOfADeletedBucket: one that the source has lost is no entry, one that it has
// got meanwhile is, if it is live.
func TestCopiesOfADeletedBucket(t *testing.T) {
	id := store.BucketID{1}
	away := store.Errorf(store.Unavailable, "away")
	row := func(ts store.Timestamp, cell []byte) store.Row {
		return store.Row{Key: []byte("k"), Value: cell, Timestamp: ts}
	}
	for name, c := range map[string]struct {
		late  store.Row
		err   error
		found bool
		kind  store.Kind
	}{
		"lost":         {},
		"the same":     {late: row(5, store.EntryCell(nil)), found: true},
		"a newer one":  {late: row(6, store.EntryCell(nil)), found: true},
		"an older one": {late: row(4, store.EntryCell(nil))},
		"a marker":     {late: row(6, cells.Marker())},
		"damaged":      {late: row(6, []byte{9}), kind: store.Corrupt},
		"away":         {err: away, kind: store.Unavailable},
	} {
		s := memstore.New()
		src := store.Partition{Bucket: id, ID: store.PartitionID{1}}
		dst := store.Partition{Bucket: id, ID: store.PartitionID{2}}
		require.NoError(t, s.Put(t.Context(), dst, row(5, cells.Copied(store.EntryCell(nil)))))
		rg := partmap.Range{Entry: partmap.Entry{Partition: src.ID, To: dst.ID}, Phase: partmap.Copying}
		found, err := hasEntry(t.Context(), &lookingAgain{s, src, c.late, c.err}, id, &rg, &remaining{})
		require.Equal(t, c.kind, store.KindOf(err), "%s: %v", name, err)
		require.Equal(t, c.found, found, name)
	}
}

// TestRowsAreInserted in their order, and in the place of older ones of their keys.
func TestRowsAreInserted(t *testing.T) {
	for _, reverse := range []bool{false, true} {
		var c piece
		for i, k := range []string{"c", "a", "e", "c", "d", "b", "a", "e"} {
			c.insert(store.Row{Key: []byte(k), Timestamp: store.Timestamp(i)}, reverse)
		}
		got := ""
		for _, r := range c.rows {
			got += fmt.Sprintf("%s%d ", r.Key, r.Timestamp)
		}
		require.Equal(t, map[bool]string{false: "a6 b5 c3 d4 e7 ", true: "e7 d4 c3 b5 a6 "}[reverse], got)
	}
}

// TestCopiesAndTheirSources: which of them counts, and what is left to look at again.
func TestCopiesAndTheirSources(t *testing.T) {
	entry := func(ts store.Timestamp, value string) *store.Row {
		return &store.Row{Key: []byte("k"), Value: store.EntryCell([]byte(value)), Timestamp: ts}
	}
	copied := func(ts store.Timestamp, value string) *store.Row {
		r := entry(ts, value)
		r.Value = cells.Copied(r.Value)
		return r
	}
	for name, c := range map[string]struct {
		src, dst *store.Row
		shows    *store.Row
		orphan   bool
		through  string
	}{
		"a copy alone":               {dst: copied(5, "v"), orphan: true},
		"an entry alone":             {dst: entry(5, "v"), shows: entry(5, "v")},
		"not yet copied":             {src: entry(5, "v"), shows: entry(5, "v"), through: "copied"},
		"its copy":                   {src: entry(5, "v"), dst: copied(5, "v"), shows: copied(5, "v")},
		"a newer copy":               {src: entry(5, "v"), dst: copied(6, "w"), shows: entry(5, "v"), orphan: true},
		"a newer entry":              {src: entry(5, "v"), dst: entry(6, "w"), shows: entry(6, "w")},
		"an older copy":              {src: entry(5, "v"), dst: copied(4, "w"), shows: entry(5, "v"), through: "copied"},
		"a smaller copy, a tie":      {src: entry(5, "v"), dst: copied(5, "a"), shows: entry(5, "v"), through: "copied"},
		"a smaller entry, a tie":     {src: entry(5, "v"), dst: entry(5, "a"), shows: entry(5, "v"), through: "tied"},
		"a smaller entry, no tie":    {src: entry(5, "v"), dst: entry(4, "a"), shows: entry(5, "v"), through: "copied"},
		"a larger entry, a tie":      {src: entry(5, "v"), dst: entry(5, "w"), shows: entry(5, "w")},
		"a larger copy, a tie, kept": {src: entry(5, "v"), dst: copied(5, "w"), shows: copied(5, "w")},
	} {
		var src, dst store.Page
		if c.src != nil {
			src.Rows = []store.Row{*c.src}
		}
		if c.dst != nil {
			dst.Rows = []store.Row{*c.dst}
		}
		got := merge(src, dst, false)
		if c.shows == nil {
			require.Empty(t, got.rows, name)
		} else {
			require.Equal(t, []store.Row{*c.shows}, got.rows, name)
		}
		if c.orphan {
			require.Equal(t, []store.Row{*c.dst}, got.orphans, name)
		} else {
			require.Empty(t, got.orphans, name)
		}
		if c.through == "" {
			require.Empty(t, got.through, name)
			continue
		}
		require.Len(t, got.through, 1, name)
		require.Equal(t, c.through == "tied", got.through[0].tied, name)
		require.Equal(t, c.through == "copied", cells.IsCopied(got.through[0].cell()), name)
	}
	for name, other := range map[string]late{
		"another key":       {Row: store.Row{Key: []byte("l"), Value: []byte("v"), Timestamp: 5}},
		"another value":     {Row: store.Row{Key: []byte("k"), Value: []byte("w"), Timestamp: 5}},
		"another timestamp": {Row: store.Row{Key: []byte("k"), Value: []byte("v"), Timestamp: 6}},
	} {
		one := late{Row: store.Row{Key: []byte("k"), Value: []byte("v"), Timestamp: 5}}
		require.False(t, sameVersion(one, other), name)
		require.True(t, sameVersion(one, one))
	}
}

// TestErrorsOfWrites that carry a cause, and states that no bucket goes to.
func TestErrorsOfWrites(t *testing.T) {
	cause := errors.New("cause")
	require.ErrorIs(t, unknown(cause), cause)
	require.ErrorIs(t, unknown(cause), ErrOutcomeUnknown)
	const text = "outcome unknown: it may have happened, or may yet; do it again to be sure: "
	require.EqualError(t, unknown(cause), "timeout: "+text+"cause")
	require.EqualError(t, unknown(context.Canceled), text+"context canceled", "an end that the caller asked for")
	c, err := New(memstore.New(), Options{})
	require.NoError(t, err)
	_, mine, err := c.setState(t.Context(), &partmap.Root{State: partmap.Deleted}, partmap.Open)
	require.ErrorIs(t, err, store.InvalidArgument)
	require.False(t, mine)
	s := &noSwaps{Store: memstore.New()}
	c, err = New(s, Options{})
	require.NoError(t, err)
	root, err := c.maps.Create(t.Context(), store.BucketID{1}, nil)
	require.NoError(t, err)
	s.on = true
	now, mine, err := c.setState(t.Context(), root, partmap.Closing)
	require.ErrorIs(t, err, ErrOutcomeUnknown)
	require.False(t, mine)
	require.Nil(t, now)
}

// noSwaps is a store that loses swaps once it is on.
type noSwaps struct {
	store.Store
	on bool
}

func (s *noSwaps) Swap(ctx context.Context, t store.Table, key []byte, old store.Version, next store.Record) error {
	if s.on {
		return store.Errorf(store.Timeout, "lost")
	}
	return s.Store.Swap(ctx, t, key, old, next)
}

// TestWhereStretchesAreCounted: at home, and at the destination once nobody reads the
// source any more.
func TestWhereStretchesAreCounted(t *testing.T) {
	id := store.BucketID{1}
	x := stretch{rg: partmap.Range{Entry: partmap.Entry{Partition: store.PartitionID{1}, To: store.PartitionID{2}}}}
	for p := partmap.Settled; p <= partmap.Draining; p++ {
		x.rg.Phase = p
		want := store.Partition{Bucket: id, ID: store.PartitionID{1}}
		if p == partmap.Draining {
			want.ID = store.PartitionID{2}
		}
		require.Equal(t, want, x.home(id), p)
	}
	// Of neighbouring ranges that are taken together the first is asked.
	s := memstore.New()
	c, err := New(s, Options{})
	require.NoError(t, err)
	require.NoError(t, c.CreateBucket(t.Context(), "b", []byte("b"), []byte("c")))
	for _, k := range []string{"a1", "a2", "b1", "b2", "b3", "c1"} {
		require.NoError(t, c.Bucket("b").Put(t.Context(), []byte(k), nil))
	}
	sm := sampler{c: c}
	sm.id, err = c.BucketID(t.Context(), "b")
	require.NoError(t, err)
	all, err := sm.stretches(t.Context(), span{}, 2)
	require.NoError(t, err)
	require.Len(t, all, 2)
	require.Equal(t, []int{2, 1}, []int{all[0].ranges, all[1].ranges})
	require.NoError(t, sm.probe(t.Context(), all))
	require.Equal(t, []float64{4, 1}, []float64{all[0].weight, all[1].weight})
	require.Nil(t, all[0].keys)
	require.Equal(t, [][]byte{[]byte("c1")}, all[1].keys)
	_, err = (&sampler{c: c, id: store.BucketID{9}}).stretches(t.Context(), span{}, 2)
	require.ErrorIs(t, err, store.Unavailable)
}

// failingNodes is a store that fails to read a node of a map, once or from then on.
type failingNodes struct {
	store.Store
	reads, fails atomic.Int64
	forever      bool
}

func (s *failingNodes) Node(ctx context.Context, b store.BucketID, id store.NodeID) ([]byte, error) {
	if n := s.reads.Add(1); n == s.fails.Load() || s.forever && n > s.fails.Load() {
		return nil, store.Errorf(store.Unavailable, "away")
	}
	return s.Store.Node(ctx, b, id)
}

// overNodes makes a client that keeps one node of its maps in memory, and a bucket b with
// these cuts, which are made so long that its map has nodes of at most three of them.
func overNodes(t *testing.T, o Options, cuts ...string) (*failingNodes, *Client) {
	s := &failingNodes{Store: memstore.New()}
	o.CacheBytes = 1
	c, err := New(s, o)
	require.NoError(t, err)
	var long [][]byte
	for _, cut := range cuts {
		long = append(long, append([]byte(cut), make([]byte, 65_000)...))
	}
	require.NoError(t, c.CreateBucket(t.Context(), "b", long...))
	return s, c
}

// TestRangesThatCantBeListed: without them there are no split points, and no bucket is empty.
func TestRangesThatCantBeListed(t *testing.T) {
	s, c := overNodes(t, Options{}, "b", "c", "d", "e", "f", "g", "h", "i", "j")
	for nth := int64(1); ; nth++ {
		s.reads.Store(0)
		s.fails.Store(nth)
		_, err := c.Bucket("b").SplitPoints(t.Context(), Query{}, 3)
		if s.reads.Load() < nth {
			require.NoError(t, err)
			require.Greater(t, nth, int64(3))
			break
		}
		require.ErrorIs(t, err, store.Unavailable)
	}
	for nth := int64(1); ; nth++ {
		s.reads.Store(0)
		s.fails.Store(nth)
		err := c.DeleteBucket(t.Context(), "b")
		if s.reads.Load() < nth {
			require.NoError(t, err)
			require.Greater(t, nth, int64(6), "it was looked through when open, and when closed")
			break
		}
		require.ErrorIs(t, err, store.Unavailable)
		require.NotErrorIs(t, err, ErrNoSuchBucket)
	}
}

// TestRangesThatAreNotFound: a page that needs one fails, and one that was only read ahead
// it can do without.
func TestRangesThatAreNotFound(t *testing.T) {
	var cuts []string
	var entries []Entry
	for i := range 60 {
		if i%3 == 1 {
			cuts = append(cuts, fmt.Sprintf("k%03d", i))
		}
		for j := range 9 {
			entries = append(entries, Entry{Key: fmt.Appendf(nil, "k%03d/%d", i, j)})
		}
	}
	s, c := overNodes(t, Options{RowsPerRead: 8, ReadAhead: 8, ReadAheadAfter: 2}, cuts...)
	b := c.Bucket("b")
	require.NoError(t, b.PutBatch(t.Context(), entries))
	failed, most := 0, int64(0)
	for nth := int64(0); nth <= most; nth++ {
		s.reads.Store(0)
		s.fails.Store(nth)
		page, err := b.List(t.Context(), Query{Delimiter: []byte("/"), Limit: 54})
		if nth == 0 {
			most = s.reads.Load()
		}
		if err != nil {
			failed++
			require.ErrorIs(t, err, store.Unavailable)
			require.Empty(t, page)
			continue
		}
		require.Len(t, page.Items, 54)
		for i, item := range page.Items {
			require.Equal(t, fmt.Sprintf("k%03d/", i), string(item.Key))
		}
	}
	require.Greater(t, failed, 2)
	require.Greater(t, most-int64(failed), int64(2))
	s.forever = true
	s.reads.Store(0)
	s.fails.Store(most / 4)
	_, err := b.List(t.Context(), Query{Delimiter: []byte("/"), Limit: 54})
	require.ErrorIs(t, err, store.Unavailable)
}

// TestRowsOfPagesAreForgotten when their memory goes back to the pool: it would keep what
// they point to.
func TestRowsOfPagesAreForgotten(t *testing.T) {
	row := store.Row{Key: []byte("k"), Value: []byte("v"), Timestamp: 1}
	for n, own := range []bool{false, true, false} {
		into := new(rowsOfPage)
		rows := append(into[:0], row, row)[:2-n/2]
		if own { // of a store that did not use it
			rows = []store.Row{row, row}
		}
		r := &read{into: into, got: piece{rows: rows, more: true}}
		r.free()
		require.Nil(t, r.into)
		require.Equal(t, piece{}, r.got)
		want := store.Row{}
		if own {
			want = row
		}
		require.Equal(t, []store.Row{want, want}[:len(rows)], rows)
	}
}

// TestNamesAreForgotten when their bucket is gone: it would be asked for each time.
func TestNamesAreForgotten(t *testing.T) {
	s := memstore.New()
	c, err := New(s, Options{})
	require.NoError(t, err)
	other, err := New(mapclient.With(s, mapclient.Of(c)), Options{Timestamps: c.stamps})
	require.NoError(t, err)
	require.NoError(t, c.CreateBucket(t.Context(), "b"))
	_, err = c.Bucket("b").Get(t.Context(), []byte("k"))
	require.ErrorIs(t, err, ErrNotFound)
	require.True(t, c.names.Contains("b"))
	require.NoError(t, other.DeleteBucket(t.Context(), "b"))
	_, err = c.Bucket("b").Get(t.Context(), []byte("k"))
	require.ErrorIs(t, err, ErrNoSuchBucket)
	require.False(t, c.names.Contains("b"))
	require.NoError(t, other.CreateBucket(t.Context(), "b"))
	_, err = c.Bucket("b").Get(t.Context(), []byte("k"))
	require.ErrorIs(t, err, ErrNotFound)
	require.NoError(t, c.DeleteBucket(t.Context(), "b"))
	require.False(t, c.names.Contains("b"))
}

// TestRangesOfTheListThatAreNotFound: a bucket whose line in the list of buckets can't be
// found is not said to be deleted.
func TestRangesOfTheListThatAreNotFound(t *testing.T) {
	s, c := overNodes(t, Options{})
	root, err := c.maps.Load(t.Context(), door.ListOfBuckets)
	require.NoError(t, err)
	e := c.maps.Edit(t.Context(), root)
	entries := slices.Clone(root.Entries)
	for _, cut := range []string{"c", "d", "e"} {
		part := entries[0]
		part.Start = append([]byte(cut), make([]byte, 65_000)...)
		entries = append(entries, part)
	}
	require.NoError(t, e.Replace(nil, nil, entries))
	change, err := e.Change()
	require.NoError(t, err)
	require.NoError(t, c.maps.Swap(t.Context(), change))
	require.NoError(t, c.maps.Wait(t.Context(), door.ListOfBuckets))
	s.fails.Store(1)
	require.ErrorIs(t, c.DeleteBucket(t.Context(), "b"), store.Unavailable)
	_, err = c.BucketID(t.Context(), "b")
	require.NoError(t, err, "its name is not free before it is off the list")
	require.ErrorIs(t, c.DeleteBucket(t.Context(), "b"), ErrNoSuchBucket)
	_, err = c.BucketID(t.Context(), "b")
	require.ErrorIs(t, err, ErrNoSuchBucket)
}

// TestLooksAtAnOpenBucket begin where one that was given up has stopped, which is a hint only, and
// remember nothing once they have an answer.
func TestLooksAtAnOpenBucket(t *testing.T) {
	away := store.Version{Epoch: 1}
	for name, x := range map[string]struct {
		was     *emptied
		entry   string
		closing bool
		givesUp bool
		empty   bool
		hint    string
	}{
		"empty":                       {empty: true},
		"an entry":                    {entry: "a"},
		"an entry before the hint":    {was: &emptied{next: []byte("b")}, entry: "a", empty: true},
		"an entry behind the hint":    {was: &emptied{next: []byte("b")}, entry: "b"},
		"the hint of a closed bucket": {was: &emptied{version: away, next: []byte("b")}, entry: "a"},
		"closed by another call":      {entry: "a", closing: true, empty: true},
		"given up":                    {was: &emptied{next: []byte("b")}, givesUp: true, hint: "b"},
		"given up at once":            {givesUp: true},
	} {
		_, c, id := overSeen(t, Options{}, []byte("b"), []byte("c"))
		if x.entry != "" {
			require.NoError(t, c.Bucket("b").Put(t.Context(), []byte(x.entry), nil))
		}
		if x.was != nil {
			c.emptied.Add(id, *x.was)
		}
		if x.closing {
			root, err := c.maps.Load(t.Context(), id)
			require.NoError(t, err)
			_, _, err = c.setState(t.Context(), root, partmap.Closing)
			require.NoError(t, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		if x.givesUp {
			cancel()
		}
		root, err := c.maps.Load(t.Context(), id)
		require.NoError(t, err)
		empty, err := c.looksEmpty(ctx, root, &remaining{})
		cancel()
		require.Equal(t, x.givesUp, errors.Is(err, context.Canceled), "%s: %v", name, err)
		require.Equal(t, x.givesUp, err != nil, name)
		require.Equal(t, x.empty, empty, name)
		left, remembered := c.emptied.Peek(id)
		require.Equal(t, x.hint != "", remembered, name)
		require.Equal(t, x.hint, string(left.next), name)
		require.Equal(t, store.Version{}, left.version, name)
	}
}

// TestRenewingEndsWithItsContext: a read that is repeated again and again ends with its caller, who keeps the lease
// that there was.
func TestRenewingEndsWithItsContext(t *testing.T) {
	_, c, id := overSeen(t, Options{})
	h, err := c.acquire(t.Context(), id)
	require.NoError(t, err)
	defer h.release()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	n, err := c.renew(ctx, h)
	require.ErrorIs(t, err, context.Canceled)
	require.Same(t, h, n)
}
