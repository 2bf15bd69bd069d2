package listing_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/cells"
	"github.com/evenkeel/evenkeel/internal/door"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// centres is a store with another data centre, from which this one lacks rows and deletes of
// one partition.
type centres struct {
	store.Store
	behind store.Partition
	lacks  map[string]bool
	gone   map[string]bool         // deleted in the other one
	away   bool                    // the other one
	look   func()                  // called before each read everywhere
	read   func()                  // called after each other read
	put    func(p store.Partition) // called before each put
}

func (c *centres) EachQuorum() store.Rows { return everywhere{c.Store, c} }

func (c *centres) Get(ctx context.Context, p store.Partition, key []byte) (store.Row, bool, error) {
	if c.read != nil {
		defer c.read()
	}
	if p == c.behind && c.lacks[string(key)] {
		return store.Row{}, false, nil
	}
	return c.Store.Get(ctx, p, key)
}

func (c *centres) Slice(
	ctx context.Context, p store.Partition, b store.Bounds, o store.SliceOptions,
) (store.Page, error) {
	if c.read != nil {
		defer c.read()
	}
	page, err := c.Store.Slice(ctx, p, b, o)
	if p == c.behind {
		var rows []store.Row
		for _, row := range page.Rows {
			if !c.lacks[string(row.Key)] {
				rows = append(rows, row)
			}
		}
		page.Rows = rows
	}
	return page, err
}

func (c *centres) Put(ctx context.Context, p store.Partition, rows ...store.Row) error {
	if c.put != nil {
		c.put(p)
	}
	return c.Store.Put(ctx, p, rows...)
}

type everywhere struct {
	store.Rows
	c *centres
}

func (e everywhere) Get(ctx context.Context, p store.Partition, key []byte) (store.Row, bool, error) {
	if e.c.look != nil {
		e.c.look()
	}
	if e.c.away {
		return store.Row{}, false, store.Errorf(store.Unavailable, "a data centre is away")
	}
	if p == e.c.behind && e.c.gone[string(key)] {
		return store.Row{}, false, nil
	}
	return e.Rows.Get(ctx, p, key)
}

// halfway is a bucket whose only range is in some phase of its move.
type halfway struct {
	*testing.T
	s        *centres
	c        *listing.Client
	b        *listing.Bucket
	src, dst store.Partition
}

func inPhase(t *testing.T, phase partmap.Phase, client func(s store.Store) *listing.Client) *halfway {
	s := &centres{Store: memstore.New(), lacks: map[string]bool{}, gone: map[string]bool{}}
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	c := client(s)
	x := &halfway{T: t, s: s, c: c, b: c.Bucket("b")}
	x.src, x.dst = bucketInPhase(t, c, phase)
	s.behind = x.src
	return x
}

// bucketInPhase makes the bucket "b", whose only range is in a phase of its move, and returns the source and
// destination.
func bucketInPhase(t *testing.T, c *listing.Client, phase partmap.Phase) (src, dst store.Partition) {
	ctx := t.Context()
	require.NoError(t, c.CreateBucket(ctx, "b"))
	owner, err := door.Client(c).Owner(ctx, "b")
	require.NoError(t, err)
	root, err := mapclient.Of(c).Load(ctx, owner.ID)
	require.NoError(t, err)
	src = store.Partition{Bucket: owner.ID, ID: root.Entries[0].Partition}
	dst = store.Partition{Bucket: owner.ID, ID: store.PartitionID(uuid.New())}
	batch := uint64(0)
	for at := partmap.Settled; at != phase; at++ {
		e := mapclient.Of(c).Edit(ctx, root)
		if at == partmap.Settled {
			batch, err = e.Begin(partmap.Move{Parts: []partmap.Part{{To: dst.ID}}})
		} else {
			err = e.Advance(batch)
		}
		require.NoError(t, err)
		change, err := e.Change()
		require.NoError(t, err)
		require.NoError(t, mapclient.Of(c).Swap(ctx, change))
		require.NoError(t, mapclient.Of(c).Wait(ctx, owner.ID))
		root = change.Next
	}
	return src, dst
}

func entry(key, value string, ts store.Timestamp) store.Row {
	return store.Row{Key: []byte(key), Value: store.EntryCell([]byte(value)), Timestamp: ts}
}

func copied(row store.Row) store.Row {
	row.Value = cells.Copied(row.Value)
	return row
}

func (x *halfway) put(p store.Partition, rows ...store.Row) {
	require.NoError(x, x.s.Store.Put(x.Context(), p, rows...))
}

// shows holds gets and listings in both directions to what is there; "" is nothing. Each
// asks a client of its own state of the store, so a mend of one helps the next: which
// of them is first is given.
func (x *halfway) shows(how string, key, value string) {
	ctx := x.Context()
	if how == "get" {
		e, err := x.b.Get(ctx, []byte(key))
		if value == "" {
			require.ErrorIs(x, err, listing.ErrNotFound)
			return
		}
		require.NoError(x, err)
		require.Equal(x, value, string(e.Value))
		return
	}
	page, err := x.b.List(ctx, listing.Query{Reverse: how == "reverse"})
	require.NoError(x, err)
	found := ""
	last := ""
	for i, item := range page.Items {
		if i > 0 {
			require.Equal(x, how == "reverse", last > string(item.Key), "order")
		}
		if last = string(item.Key); last == key {
			found = string(item.Value)
		}
	}
	require.Equal(x, value, found)
}

// destination is what is at a key of the destination, and whether as a copy.
func (x *halfway) destination(key string) (value string, isCopy bool) {
	row, found, err := x.s.Store.Get(x.Context(), x.dst, []byte(key))
	require.NoError(x, err)
	if !found {
		return "", false
	}
	v, _, err := store.EntryValue(row.Value)
	require.NoError(x, err)
	return string(v), cells.IsCopied(row.Value)
}

// both runs f in both phases in which there are copies, for each way to read.
func both(t *testing.T, f func(x *halfway, verifying bool, how string)) {
	bothBy(t, func(t *testing.T, s store.Store) *listing.Client {
		c, err := listing.New(s, listing.Options{})
		require.NoError(t, err)
		return c
	}, f)
}

func bothBy(
	t *testing.T, client func(*testing.T, store.Store) *listing.Client, f func(x *halfway, verifying bool, how string),
) {
	for _, phase := range []partmap.Phase{partmap.Copying, partmap.Verifying} {
		for _, how := range []string{"get", "list", "reverse"} {
			inBubble(t, phase.String()+"/"+how, func(t *testing.T) {
				x := inPhase(t, phase, func(s store.Store) *listing.Client { return client(t, s) })
				x.put(x.src, entry("a", "first", 3), entry("z", "last", 3))
				x.put(x.dst, copied(entry("a", "first", 3)), copied(entry("z", "last", 3)))
				f(x, phase == partmap.Verifying, how)
				x.shows(how, "a", "first")
				x.shows(how, "z", "last")
			})
		}
	}
}

// The source has lost a row whose copy is in the destination. In verifying the reader
// sees to it that the copy does not come back.
func TestCopyThatTheSourceHasLost(t *testing.T) {
	both(t, func(x *halfway, verifying bool, how string) {
		row := copied(entry("k", "gone", 5))
		x.put(x.dst, row)
		x.shows(how, "k", "")
		if value, _ := x.destination("k"); verifying {
			require.Empty(x, value, "the copy is left")
			x.put(x.dst, row)
			value, _ := x.destination("k")
			require.Empty(x, value, "the copy came again")
		} else {
			require.Equal(x, "gone", value, "only comparing, and readers then, delete")
		}
		x.shows(how, "k", "")
		// What a client writes to the destination needs no source.
		x.put(x.dst, entry("k", "fresh", 6))
		x.shows(how, "k", "fresh")
	})
}

// Only this data centre lacks the row: it is shown, and stays.
func TestCopyThatThisDataCentreLacks(t *testing.T) {
	both(t, func(x *halfway, _ bool, how string) {
		x.put(x.src, entry("k", "there", 5))
		x.put(x.dst, copied(entry("k", "there", 5)))
		x.s.lacks["k"] = true
		x.shows(how, "k", "there")
		value, isCopy := x.destination("k")
		require.Equal(x, "there", value)
		require.True(x, isCopy)
	})
}

// The other data centre has a newer one, or an older one that came back to light.
func TestOtherVersionInTheOtherDataCentre(t *testing.T) {
	both(t, func(x *halfway, verifying bool, how string) {
		x.put(x.dst, copied(entry("k", "old", 5)))
		x.put(x.src, entry("k", "new", 7))
		x.s.lacks["k"] = true
		x.shows(how, "k", "new")
		if verifying {
			value, isCopy := x.destination("k")
			require.Equal(x, "new", value, "it was shown, and not written through")
			require.True(x, isCopy)
		}
	})
}

// An older one that came back to light is not what the copy was made of: neither counts.
func TestOlderVersionInTheOtherDataCentre(t *testing.T) {
	both(t, func(x *halfway, _ bool, how string) {
		x.put(x.dst, copied(entry("k", "copy", 5)))
		x.put(x.src, entry("k", "older", 3))
		x.s.lacks["k"] = true
		x.shows(how, "k", "")
	})
}

// Nobody can say whether the source has the row: the copy counts, and stays.
func TestCopyCountsWhileADataCentreIsAway(t *testing.T) {
	both(t, func(x *halfway, _ bool, how string) {
		x.put(x.dst, copied(entry("k", "copy", 5)))
		x.s.away = true
		x.shows(how, "k", "copy")
		x.s.away = false
		x.shows(how, "k", "")
	})
}

// A delete that another data centre has acknowledged has not come here when the range is compared. A reader that wrote
// the row through would bring it back for good.
func TestRowThatAnotherDataCentreHasDeleted(t *testing.T) {
	both(t, func(x *halfway, verifying bool, how string) {
		x.put(x.src, entry("k", "deleted", 5))
		x.s.gone["k"] = true
		if verifying {
			x.shows(how, "k", "")
		} else {
			x.shows(how, "k", "deleted") // as before the move
		}
		value, _ := x.destination("k")
		require.Empty(x, value, "the row is back")
	})
}

// The delete hides what the row has hidden, but for what a client wrote to the destination: that stays after the move.
func TestWhatARowHidThatAnotherDataCentreHasDeleted(t *testing.T) {
	for _, isCopy := range []bool{true, false} {
		both(t, func(x *halfway, verifying bool, how string) {
			older, want := entry("k", "older", 4), "older"
			if isCopy {
				older, want = copied(older), ""
			}
			x.put(x.src, entry("k", "deleted", 5))
			x.put(x.dst, older)
			x.s.gone["k"] = true
			if !verifying {
				x.shows(how, "k", "deleted")
				return
			}
			x.shows(how, "k", want)
			value, _ := x.destination("k")
			require.Equal(x, want, value)
		})
	}
}

// Nobody can say whether another data centre has deleted the row: it is shown, and not written.
func TestRowIsNotWrittenWhileADataCentreIsAway(t *testing.T) {
	both(t, func(x *halfway, verifying bool, how string) {
		x.put(x.src, entry("k", "row", 5))
		x.s.away = true
		x.shows(how, "k", "row")
		value, _ := x.destination("k")
		require.Empty(x, value)
		x.s.away = false
		x.shows(how, "k", "row")
		if verifying {
			value, isCopy := x.destination("k")
			require.Equal(x, "row", value)
			require.True(x, isCopy)
		}
	})
}

// A page in verifying pays the distance for what only the source has, all rows at a time: before it is written through,
// and afterwards. Nobody else is asked about rows that both sides have.
func TestJourneysOfAPageInVerifying(t *testing.T) {
	const journey = 80 * time.Millisecond
	both(t, func(x *halfway, verifying bool, how string) {
		took := func() time.Duration {
			begun := time.Now() // of the bubble
			x.shows(how, "a", "first")
			x.shows(how, "k", "late")
			return time.Since(begun)
		}
		x.s.look = func() { time.Sleep(journey) }
		x.put(x.src, entry("k", "late", 5), entry("l", "late", 5))
		switch {
		case !verifying:
			require.Zero(x, took())
		default:
			require.Equal(x, 2*journey, took())
			require.Zero(x, took(), "the rows are in the destination")
		}
	})
}

// Another data centre deletes the row while its copy is on its way: nobody there finds the copy, or deletes it.
func TestWrittenThroughAndDeletedElsewhereOnItsWay(t *testing.T) {
	both(t, func(x *halfway, verifying bool, how string) {
		if !verifying {
			return
		}
		x.put(x.src, entry("k", "late", 5))
		x.s.put = func(store.Partition) { x.s.gone["k"] = true }
		x.shows(how, "k", "")
		value, _ := x.destination("k")
		require.Empty(x, value, "the copy is left")
	})
}

// The lease ends while a reader looks at the source again, which others empty then: it
// deletes nothing, and reads again.
func TestNothingIsDeletedWithoutALease(t *testing.T) {
	client := func(t *testing.T, s store.Store) *listing.Client { return leased(t, s, s, listing.Options{}) }
	bothBy(t, client, func(x *halfway, verifying bool, how string) {
		if !verifying {
			return
		}
		x.put(x.dst, copied(entry("k", "kept", 5)))
		x.s.look = func() {
			x.s.look = func() { x.put(x.src, entry("k", "kept", 5)) }
			expire()
		}
		x.shows(how, "k", "kept")
		value, _ := x.destination("k")
		require.Equal(x, "kept", value)
	})
}

// Nor does it write anything through: what it has read may be in no partition of the range by then.
func TestNothingIsWrittenThroughWithoutALease(t *testing.T) {
	client := func(t *testing.T, s store.Store) *listing.Client { return leased(t, s, s, listing.Options{}) }
	bothBy(t, client, func(x *halfway, verifying bool, how string) {
		if !verifying {
			return
		}
		x.put(x.src, entry("k", "late", 5))
		var reads atomic.Int64
		x.s.read = func() {
			if reads.Add(1) == 2 {
				expire()
			}
		}
		x.s.put = func(store.Partition) { require.EqualValues(x, 4, reads.Load(), "both sides were read again") }
		x.shows(how, "k", "late")
		x.s.put = nil
		value, _ := x.destination("k")
		require.Equal(x, "late", value)
	})
}

// A late put is written through, and deleted in the source while its copy is on its way.
func TestWrittenThroughAndDeletedOnItsWay(t *testing.T) {
	both(t, func(x *halfway, verifying bool, how string) {
		x.put(x.src, entry("k", "late", 5))
		if !verifying {
			x.shows(how, "k", "late")
			return
		}
		x.s.put = func(p store.Partition) {
			require.Equal(x, x.dst, p)
			require.NoError(x, x.s.Delete(x.Context(), x.src, []byte("k"), 5))
		}
		x.shows(how, "k", "")
		value, _ := x.destination("k")
		require.Empty(x, value, "the copy is left")
	})
}

// A put in the source and one in the destination have the same timestamp: the larger
// one wins, in the destination alone as well.
func TestTieBetweenSourceAndDestination(t *testing.T) {
	for _, late := range []string{"a", "z"} {
		both(t, func(x *halfway, verifying bool, how string) {
			x.put(x.src, entry("k", late, 5))
			x.put(x.dst, entry("k", "m", 5))
			x.shows(how, "k", max(late, "m"))
			if value, isCopy := x.destination("k"); verifying {
				require.Equal(x, max(late, "m"), value)
				require.False(x, isCopy)
			}
		})
	}
}

// undeletable is a store in which nothing can be deleted.
type undeletable struct{ store.Store }

func (undeletable) Delete(context.Context, store.Partition, []byte, store.Timestamp) error {
	return store.Errorf(store.Unavailable, "away")
}

// What the source has lost is not shown to be gone before its copy is.
func TestCopyThatCantBeDeleted(t *testing.T) {
	both(t, func(x *halfway, verifying bool, how string) {
		x.put(x.dst, copied(entry("k", "gone", 5)))
		inner := x.s.Store
		x.s.Store = undeletable{inner}
		_, err := x.b.List(x.Context(), listing.Query{Reverse: how == "reverse"})
		if how == "get" {
			_, err = x.b.Get(x.Context(), []byte("k"))
		}
		if verifying {
			require.ErrorIs(x, err, store.Unavailable)
			require.ErrorContains(x, err, "delete through")
		}
		x.s.Store = inner
		x.shows(how, "k", "")
	})
}

// A row that the destination hides, since it was deleted there at its own timestamp, is written through
// once, and the read ends.
func TestRowsThatTheDestinationHides(t *testing.T) {
	both(t, func(x *halfway, verifying bool, how string) {
		x.put(x.src, entry("k", "v", 5))
		require.NoError(x, x.s.Store.Delete(x.Context(), x.dst, []byte("k"), 5))
		puts, want := 0, 0
		x.s.put = func(store.Partition) { puts++ }
		x.shows(how, "k", "v")
		if verifying {
			want = 1
		}
		require.Equal(x, want, puts)
	})
}
