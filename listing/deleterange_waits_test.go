package listing_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/cells"
	"github.com/evenkeel/evenkeel/internal/door"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/rebalance/executor"
	"github.com/evenkeel/evenkeel/internal/test/listtest"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// newPausing is a bucket with the ranges up to m, from m to n, and from n on. The last one has three entries, the one
// before it has so many.
func newPausing(t *testing.T, o listing.Options, entries int) (*pausing, *world) {
	s := &pausing{Store: memstore.New()}
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	w := &world{t: t, ctx: t.Context(), s: s}
	w.client(o)
	w.fill([]byte("m"), []byte("n"))
	w.entries("m", entries)
	w.entries("n", 3)
	s.limits = nil
	return s, w
}

// entries puts so many keys that begin with a prefix.
func (w *world) entries(prefix string, n int) {
	var all []listing.Entry
	for i := range n {
		all = append(all, listing.Entry{Key: fmt.Appendf(nil, "%s%05d", prefix, i), Value: []byte("v")})
	}
	require.NoError(w.t, w.c.Bucket("b").PutBatch(w.ctx, all))
}

// begin begins to move a range, from a cut on that may be a new one.
func (w *world) begin(start, cut, end string) {
	parts := []partmap.Part{{Start: []byte(cut), To: store.PartitionID{7}}}
	if cut != start {
		parts = append([]partmap.Part{{Start: []byte(start)}}, parts...)
	}
	w.edit(func(e partmap.Edit) {
		_, err := e.Begin(partmap.Move{Start: []byte(start), End: []byte(end), Parts: parts})
		require.NoError(w.t, err)
	})
}

// A range with many entries that moves is waited for, with ten looks a second, until the move or the caller's time
// ends.
func TestDeleteRangeWaitsForAMove(t *testing.T) {
	tired := errors.New("tired")
	for name, x := range map[string]struct {
		// ends is when the move ends, and fails when reads fail; 0: not at all.
		ends, fails time.Duration
		// gives is the key at whose first look, after that time, the caller gives up. Otherwise the call has a minute.
		gives string
		after time.Duration
		looks int      // at the range that moves
		says  []string // of the error
		not   string   // what it does not say
	}{
		"the move ends":           {ends: 1950 * time.Millisecond, looks: 21},
		"the move goes on":        {looks: 600, says: []string{"key m moves", "deadline exceeded"}, not: "tired"},
		"tired at the first look": {gives: "m", looks: 1, says: []string{"canceled"}, not: "moves"},
		"tired at a later look":   {gives: "m", after: time.Second, looks: 11, says: []string{"m moves", "tired"}},
		"tired behind the range": {
			ends: 50 * time.Millisecond, gives: "n", looks: 2, says: []string{"canceled"}, not: "moves",
		},
		"reads fail during the wait": {fails: time.Second, looks: 11, says: []string{"broken"}, not: "moves"},
	} {
		inBubble(t, name, func(t *testing.T) {
			s, w := newPausing(t, listing.Options{}, 1500)
			w.begin("m", "m", "n")
			ctx, stop := context.WithTimeout(t.Context(), time.Minute-50*time.Millisecond)
			defer stop()
			ctx, cancel := context.WithCancelCause(ctx)
			begun, looks := time.Now(), map[time.Duration]bool{}
			s.look = func(start []byte) error {
				at := time.Since(begun)
				if string(start) == "m" {
					looks[at] = true
				}
				if string(start) == x.gives && at >= x.after {
					cancel(tired)
				}
				if x.fails > 0 && at >= x.fails {
					return store.Errorf(store.Corrupt, "broken")
				}
				return nil
			}
			if x.ends > 0 {
				go func() {
					time.Sleep(x.ends)
					require.NoError(t, executor.New(s.Store, mapclient.Of(w.c), w.id, executor.Options{}).Run(t.Context()))
				}()
			}
			err := w.c.Bucket("b").DeleteRange(ctx, []byte("m"), nil)
			require.Len(t, looks, x.looks)
			for _, text := range x.says {
				require.ErrorContains(t, err, text)
			}
			if x.says == nil {
				require.NoError(t, err)
				require.Empty(t, keysOf(t, w.c.Bucket("b")))
				return
			}
			require.NotErrorIs(t, err, listing.ErrOutcomeUnknown)
			if x.not != "" {
				require.NotContains(t, err.Error(), x.not)
			}
		})
	}
}

// Few entries of a range that moves are deleted by their keys, and of one that is settled if it is not deleted as a
// whole.
func TestDeleteRangeDeletesFewByTheirKeys(t *testing.T) {
	for _, x := range []struct {
		entries  int
		from, to string
		moves    bool
		deletes  int // by a key; else by one removal
	}{
		{0, "m", "n", false, 0},
		{1, "m", "n", false, -1},
		{1, "m", "n", true, 1},
		{1, "m0", "n", false, 1},
		{1, "m", "m1", false, 1},
		{1000, "m0", "n", false, 1000},
		{1000, "m", "m1", false, 1000},
		{1000, "m0", "m1", false, 1000},
		{1000, "m", "n", true, 1000},
		{1001, "m", "m1", false, -1},
		{1001, "m0", "n", false, -1},
		{1001, "m", "n", false, -1},
	} {
		what := fmt.Sprintf("%+v", x)
		s, told := &tombstones{Store: memstore.New()}, newBook()
		w := &world{t: t, ctx: t.Context(), s: s}
		w.client(listing.Options{Recorder: told})
		w.fill([]byte("m"), []byte("n"))
		w.entries("m", x.entries)
		w.entries("n", 3)
		home := w.ranges()[1].Partition
		if x.moves {
			w.begin("m", "m", "n")
		}
		s.deletes.Store(0)
		require.NoError(t, w.c.Bucket("b").DeleteRange(t.Context(), []byte(x.from), []byte(x.to)))
		if x.deletes < 0 {
			require.EqualValues(t, 1, s.removals.Load(), what)
			require.Zero(t, s.deletes.Load(), what)
			require.Equal(t, map[store.Partition]int{{Bucket: w.id, ID: home}: 1}, told.removed, what)
		} else {
			require.Zero(t, s.removals.Load(), what)
			require.EqualValues(t, x.deletes, int(s.deletes.Load())+told.markers, what)
			require.Equal(t, x.moves, told.markers > 0, what)
			require.Empty(t, told.removed, what)
		}
		require.Len(t, keysOf(t, w.c.Bucket("b")), 3, what)
	}
}

// A range that changes while it is looked at is looked at again: nothing is removed from one that moves.
func TestDeleteRangeLooksAgain(t *testing.T) {
	for name, x := range map[string]struct {
		start, cut, end string // of the move that begins
		removed         []store.Bounds
	}{
		"the range moves": {start: "m", cut: "m", end: "n"},
		"a part of it moves": {
			start: "m", cut: "m00001", end: "n",
			removed: []store.Bounds{{Start: []byte("m"), End: []byte("m00001")}},
		},
		"another range moves": {start: "n", cut: "n", removed: []store.Bounds{{Start: []byte("m"), End: []byte("n")}}},
	} {
		t.Run(name, func(t *testing.T) {
			s, w := newPausing(t, listing.Options{}, 3)
			s.look = func([]byte) error {
				s.look = nil
				w.begin(x.start, x.cut, x.end)
				return nil
			}
			require.NoError(t, w.c.Bucket("b").DeleteRange(t.Context(), []byte("m"), []byte("n")))
			require.Equal(t, x.removed, s.removed)
			require.Len(t, keysOf(t, w.c.Bucket("b")), 3)
		})
	}
}

// The first range changes while all of the bucket is deleted, which has no bounds: it is not taken for its end.
func TestDeleteRangeOfAllLooksAgain(t *testing.T) {
	s, w := newPausing(t, listing.Options{}, 3)
	w.entries("a", 3)
	s.look = func([]byte) error {
		s.look = nil
		w.begin("", "a00001", "m")
		return nil
	}
	require.NoError(t, w.c.Bucket("b").DeletePrefix(t.Context(), nil))
	require.Empty(t, keysOf(t, w.c.Bucket("b")))
}

// A bucket that closes during the look loses nothing, whether entries were found or not.
func TestDeleteRangeOfABucketThatCloses(t *testing.T) {
	for _, from := range []string{"", "m"} {
		s, w := newPausing(t, listing.Options{}, 3)
		s.look = func([]byte) error {
			s.look = nil
			w.state(w.id, partmap.Closing)
			return nil
		}
		require.ErrorIs(t, w.c.Bucket("b").DeleteRange(t.Context(), []byte(from), nil), listing.ErrBucketClosing)
		w.state(w.id, partmap.Open)
		require.Len(t, keysOf(t, w.c.Bucket("b")), 6)
	}
}

// DeleteRangeUntil deletes from one range at least, goes on where it stopped, and waits for a move no longer than it
// may.
func TestDeleteRangeUntil(t *testing.T) {
	past := time.Unix(1, 0)
	inBubble(t, "the time is over", func(t *testing.T) {
		s, w := newPausing(t, listing.Options{}, 3)
		b := w.c.Bucket("b")
		left := []int{6, 3, 0}
		for i, next := range []string{"m", "n", ""} {
			from := []string{"", "m", "n"}[i]
			got, err := b.DeleteRangeUntil(t.Context(), []byte(from), nil, past)
			require.NoError(t, err)
			require.Equal(t, next, string(got))
			require.Equal(t, next == "", got == nil)
			require.Len(t, keysOf(t, b), left[i])
		}
		require.Len(t, s.removed, 2, "the range without entries takes no tombstone")
	})
	inBubble(t, "there is time", func(t *testing.T) {
		_, w := newPausing(t, listing.Options{}, 3)
		got, err := w.c.Bucket("b").DeleteRangeUntil(t.Context(), nil, nil, time.Now().Add(time.Second))
		require.NoError(t, err)
		require.Nil(t, got)
		require.Empty(t, keysOf(t, w.c.Bucket("b")))
	})
	inBubble(t, "the time ends at the second range", func(t *testing.T) {
		s, w := newPausing(t, listing.Options{}, 3)
		s.look = func(start []byte) error {
			if string(start) == "m" {
				time.Sleep(2 * time.Second)
			}
			return nil
		}
		got, err := w.c.Bucket("b").DeleteRangeUntil(t.Context(), nil, nil, time.Now().Add(time.Second))
		require.NoError(t, err)
		require.Equal(t, "n", string(got))
		require.Len(t, keysOf(t, w.c.Bucket("b")), 3)
	})
	inBubble(t, "a range moves", func(t *testing.T) {
		_, w := newPausing(t, listing.Options{}, 1500)
		w.begin("m", "m", "n")
		begun := time.Now()
		until := begun.Add(2 * time.Second)
		got, err := w.c.Bucket("b").DeleteRangeUntil(t.Context(), []byte("l"), nil, until)
		require.NoError(t, err)
		require.Equal(t, "m", string(got), "to go on there")
		require.Equal(t, 2*time.Second, time.Since(begun))
		_, err = w.c.Bucket("b").DeleteRangeUntil(t.Context(), got, nil, time.Now().Add(time.Second))
		require.ErrorIs(t, err, store.Unavailable)
		require.ErrorContains(t, err, "the range of key m moves")
		require.Equal(t, 3*time.Second, time.Since(begun))
		require.Len(t, keysOf(t, w.c.Bucket("b")), 1503)
	})
}

// Few entries are few, however long their values are.
func TestDeleteRangeReadsNoValues(t *testing.T) {
	s, w := newPausing(t, listing.Options{}, 0)
	for i := range 140 { // more than a page of values
		require.NoError(t, w.c.Bucket("b").Put(t.Context(), fmt.Appendf(nil, "m%03d", i), make([]byte, 64<<10)))
	}
	require.NoError(t, w.c.Bucket("b").DeleteRange(t.Context(), []byte("m0"), []byte("n")))
	require.Empty(t, s.removed)
	require.Len(t, keysOf(t, w.c.Bucket("b")), 3)
}

// A look may take longer than a lease lasts; a removal may not. Then an attempt that failed is not repeated.
func TestDeleteRangeRemovesUnderALease(t *testing.T) {
	late := store.Errorf(store.Timeout, "late")
	for name, x := range map[string]struct {
		look, removal bool    // they take longer
		script        []error // what becomes of removals
		tries         int
		unknown       bool
	}{
		"a long look":                    {look: true, tries: 1},
		"a long removal":                 {removal: true, tries: 1, unknown: true},
		"a long removal, without answer": {removal: true, script: []error{late}, tries: 1, unknown: true},
		"a short one, without answer":    {script: []error{late}, tries: 2},
	} {
		inBubble(t, name, func(t *testing.T) {
			told := newBook()
			inner := &scripted{Store: memstore.New()}
			s := &pausing{Store: inner}
			c := leased(t, s, inner, listing.Options{Recorder: told})
			w := &world{t: t, ctx: t.Context(), s: s, c: c}
			w.fill()
			w.entries("k", 3)
			if x.look {
				s.look = func([]byte) error { s.look = nil; expire(); return nil }
			}
			if x.removal {
				s.before = expire
			}
			inner.script = x.script
			err := c.Bucket("b").DeleteRange(t.Context(), nil, nil)
			require.Len(t, s.removed, x.tries)
			if x.unknown {
				require.ErrorIs(t, err, listing.ErrOutcomeUnknown)
				require.Empty(t, told.removed)
				if x.script == nil {
					require.ErrorContains(t, err, "the lease ended while")
				}
				return
			}
			require.NoError(t, err)
			require.Len(t, told.removed, 1)
			require.Empty(t, keysOf(t, c.Bucket("b")))
		})
	}
}

// A range in which nothing but markers is found gets no tombstone, however many reads it takes to know.
func TestDeleteRangeReadsThroughMarkers(t *testing.T) {
	s := &pausing{Store: &listtest.Morsels{Store: memstore.New(), Rows: 2}}
	w := &world{t: t, ctx: t.Context(), s: s}
	w.client(listing.Options{MaxIdleReads: 1})
	w.fill()
	home := store.Partition{Bucket: w.id, ID: w.ranges()[0].Partition}
	for i := range 9 {
		require.NoError(t, s.Put(t.Context(), home, store.Row{
			Key: fmt.Appendf(nil, "k%d", i), Value: cells.Marker(), Timestamp: store.Timestamp(i + 1),
		}))
	}
	require.NoError(t, w.c.Bucket("b").DeleteRange(t.Context(), nil, nil))
	require.Empty(t, s.removed)
	w.put("k8", "v")
	require.NoError(t, w.c.Bucket("b").DeleteRange(t.Context(), nil, nil))
	require.Len(t, s.removed, 1)
	require.Empty(t, keysOf(t, w.c.Bucket("b")))
}

// A look at a whole range reads few rows, and there is one look at each range.
func TestLooksOfDeleteRange(t *testing.T) {
	s, w := newPausing(t, listing.Options{}, 1500)
	require.NoError(t, w.c.Bucket("b").DeleteRange(t.Context(), []byte("m"), []byte("n")))
	require.Len(t, s.removed, 1)
	require.Equal(t, []int{4}, s.limits, "the least of a read")
	s.limits = nil
	require.NoError(t, w.c.Bucket("b").DeleteRange(t.Context(), nil, nil))
	require.Len(t, s.limits, 3)
	require.Empty(t, keysOf(t, w.c.Bucket("b")))
}

// What DeleteRange refuses costs no timestamp, and deletes nothing.
func TestDeleteRangeRefuses(t *testing.T) {
	source := &stamps{}
	s := &tombstones{Store: memstore.New()}
	w := &world{t: t, ctx: t.Context(), s: s}
	w.client(listing.Options{Timestamps: source})
	w.fill()
	w.entries("k", 3)
	drawn := source.drawn
	b := w.c.Bucket("b")
	for _, bounds := range [][2]string{{"k", "k"}, {"l", "k"}, {"k0", "k"}} {
		err := b.DeleteRange(t.Context(), []byte(bounds[0]), []byte(bounds[1]))
		require.ErrorIs(t, err, store.InvalidArgument)
		text := fmt.Sprintf("the range ends at %s, not above its first key %s", bounds[1], bounds[0])
		require.ErrorContains(t, err, text)
	}
	require.Equal(t, drawn, source.drawn)
	long := make([]byte, store.MaxKeyBytes+1)
	require.ErrorIs(t, b.DeleteRange(t.Context(), long, nil), store.InvalidArgument)
	require.ErrorIs(t, b.DeletePrefix(t.Context(), long), store.InvalidArgument)
	require.ErrorIs(t, w.c.Bucket("none").DeleteRange(t.Context(), nil, nil), listing.ErrNoSuchBucket)
	w.state(w.id, partmap.Closing)
	require.ErrorIs(t, b.DeleteRange(t.Context(), nil, nil), listing.ErrBucketClosing)
	w.state(w.id, partmap.Open)
	require.Len(t, keysOf(t, b), 3)
	require.Zero(t, s.deletes.Load()+s.removals.Load())
}

// Deletions that the caller gave up are under way until the last one has ended.
func TestDeletionsOfARangeAreUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c, b, id := newSlow(t)
		for _, k := range []string{"k", "k1", "k2"} {
			require.NoError(t, b.Put(t.Context(), []byte(k), nil))
		}
		s.leave = make(chan struct{})
		ctx, giveUp := context.WithCancel(t.Context())
		answer := make(chan error)
		go func() { answer <- b.DeletePrefix(ctx, []byte("k")) }()
		synctest.Wait()
		giveUp()
		err := <-answer
		require.ErrorIs(t, err, listing.ErrOutcomeUnknown)
		waited, ended := nextEpoch(t, s, c, id), door.UnderWay(err)
		require.NotNil(t, ended)
		for range 3 {
			synctest.Wait()
			require.Empty(t, waited)
			select {
			case <-ended:
				require.FailNow(t, "a deletion is still on its way")
			default:
			}
			s.leave <- struct{}{}
		}
		require.NoError(t, <-waited)
		<-ended
		require.Empty(t, keysOf(t, b))
	})
}
