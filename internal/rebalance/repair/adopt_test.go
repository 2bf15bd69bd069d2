package repair_test

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/care"
	"github.com/evenkeel/evenkeel/internal/cells"
	"github.com/evenkeel/evenkeel/internal/door"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/rebalance/executor"
	"github.com/evenkeel/evenkeel/internal/rebalance/move"
	"github.com/evenkeel/evenkeel/internal/rebalance/repair"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/objects"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

func adopt(a repair.Adopt) func(o *repair.Options) { return func(o *repair.Options) { o.Adopt = a } }

func (f *fixture) move(goals ...move.Goal) {
	x := executor.New(f.s, mapclient.Of(f.c), f.b, executor.Options{})
	x.Add(goals...)
	require.NoError(f.t, x.Run(ctx))
}

// back makes the map of b what it was.
func (f *fixture) back(to *partmap.Root) {
	f.change(f.b, func(r *partmap.Root) {
		v := r.Version()
		*r = *to
		r.Epoch, r.Token = v.Epoch, v.Token
	})
	c, err := listing.New(f.s, listing.Options{})
	require.NoError(f.t, err)
	f.c = c // every process begins anew
}

func (f *fixture) one(tune ...func(o *repair.Options)) repair.Finding {
	found, _ := f.check(both(tune...))
	require.Len(f.t, found, 1, "%v", found)
	f.t.Log(found[0])
	return found[0]
}

// The maps come from a copy that is older than that of the rows: all of them are in a
// partition that the map does not name. A repair keeps them, and says what to do.
func TestRowsThatMovedSince(t *testing.T) {
	overStores(t, func(t *testing.T, s func(t testing.TB) store.Store) {
		f := newFixture(t, s(t))
		f.o.Skew = tick
		old, before := f.root(f.b), f.contents()
		f.move(move.Merge(nil, nil))
		f.back(old)
		require.Empty(t, f.contents()["b"])
		for _, tune := range []func(o *repair.Options){nil, mend} {
			x := f.one(tune)
			require.Equal(t, repair.Orphan, x.Kind)
			require.True(t, x.Open())
			require.EqualValues(t, rows, x.Count)
			require.EqualValues(t, rows, x.Missing)
			require.Contains(t, x.Text, "older than this partition")
			require.Contains(t, x.Todo, "--adopt")
		}
		found, sum := f.check(adopt(repair.AdoptNewer))
		require.Zero(t, sum.Problems, "%v", found)
		require.EqualValues(t, rows, sum.Adopted)
		require.Equal(t, before, f.contents())
		found, sum = f.check(nil)
		require.Empty(t, found)
		require.Zero(t, sum.Adopted)
	})
}

// The rows come from a copy that is older than that of the maps, or deleted rows came
// back: which of both nobody can tell, so it takes the operator's word.
func TestOldSources(t *testing.T) {
	stray := func(t *testing.T) (*fixture, store.Partition) {
		f := newFixture(t, memstore.New())
		f.o.Skew = tick
		p := f.partition(f.b, 1)
		f.move(move.Merge(nil, nil))
		// Above the removal: as if that were gone.
		f.put(p, key(110), store.EntryCell([]byte("old")), now()+100)
		return f, p
	}
	f, p := stray(t)
	before := f.contents()
	for _, tune := range []func(o *repair.Options){nil, mend, adopt(repair.AdoptNewer)} {
		x := f.one(tune)
		require.True(t, x.Open())
		require.Contains(t, x.Text, "old source of a move: the map named it until epoch 5")
		require.Contains(t, x.Todo, "--adopt-all")
		require.Contains(t, x.Todo, "--discard")
		require.Equal(t, before, f.contents())
	}
	x := f.one(mend, func(o *repair.Options) { o.Discard = []store.PartitionID{p.ID} })
	require.Equal(t, "discarded", x.Mended)
	require.Equal(t, before, f.contents())

	f, _ = stray(t)
	require.False(t, ptr(f.one(adopt(repair.AdoptAll))).Open())
	require.Contains(t, f.contents()["b"], string(key(110))+"=old")
	found, _ := f.check(nil)
	require.Empty(t, found)
}

func ptr(x repair.Finding) *repair.Finding { return &x }

// Where the history of a bucket has been forgotten, a partition is proven to be newer
// than the map by rows written since, or by a home that a later move has emptied.
func TestProof(t *testing.T) {
	forgotten := func(t *testing.T) *fixture {
		f := newFixture(t, memstore.New())
		f.o.Skew = tick
		f.move(move.Merge(nil, nil)) // the range has moved once, so it is no proof that it never did
		require.NoError(t, f.s.Forget(ctx, f.b, f.root(f.b).Epoch))
		return f
	}
	t.Run("rows written since", func(t *testing.T) {
		f := forgotten(t)
		f.put(store.Partition{Bucket: f.b, ID: fresh()}, key(3), store.EntryCell([]byte("new")), now()+1000)
		require.Contains(t, f.one(nil).Text, "rows were written to it at")
		require.NotEmpty(t, f.one(adopt(repair.AdoptNewer)).Mended)
		require.Contains(t, f.contents()["b"], string(key(3))+"=new")
	})
	t.Run("none", func(t *testing.T) {
		f := forgotten(t)
		p := store.Partition{Bucket: f.b, ID: fresh()}
		for i := range 30 {
			f.put(p, append(key(i), '+'), store.EntryCell(nil), now()-store.Timestamp(time.Minute.Microseconds()))
		}
		before, home := f.contents(), f.partition(f.b, 0)
		for _, tune := range []func(o *repair.Options){nil, adopt(repair.AdoptNewer)} {
			x := f.one(tune)
			require.True(t, x.Open())
			require.Contains(t, x.Text, "can't be told")
			require.Contains(t, x.Todo, "--adopt-all")
			require.Equal(t, before, f.contents())
		}
		page, err := f.s.Slice(ctx, home, store.Bounds{}, store.SliceOptions{Limit: 1000})
		require.NoError(t, err)
		require.Len(t, page.Rows, rows, "what was tried at home is gone")
		require.NotEmpty(t, f.one(adopt(repair.AdoptAll)).Mended)
		require.Len(t, f.contents()["b"], rows+30)
	})
	t.Run("a home that was emptied", func(t *testing.T) {
		f := forgotten(t)
		old, before := f.root(f.b), f.contents()
		rg := partmap.Range{Entry: old.Entries[0]}
		f.move(move.Refresh(&rg))
		f.back(old)
		require.NoError(t, f.s.Forget(ctx, f.b, f.root(f.b).Epoch)) // of the test's own making
		require.Contains(t, f.one(nil).Text, "can't be told")
		require.NotEmpty(t, f.one(adopt(repair.AdoptNewer)).Mended)
		require.Equal(t, before, f.contents())
	})
}

// What was deleted at home stays deleted, though the row that is adopted is older and
// nothing is to be seen of it there; also next to rows that a removal hides.
func TestAdoptedRowsStayDeleted(t *testing.T) {
	f := newFixture(t, memstore.New())
	f.o.Skew = tick
	stray := store.Partition{Bucket: f.b, ID: fresh()}
	for _, i := range []int{20, 120, 121} {
		row, found, err := f.s.Get(ctx, f.partition(f.b, i/100), key(i))
		require.NoError(t, err)
		require.True(t, found)
		f.put(stray, row.Key, row.Value, row.Timestamp)
	}
	require.NoError(t, f.c.Bucket("b").Delete(ctx, key(20)))
	home := f.partition(f.b, 1) // is left as a mover does
	at := now()
	f.put(home, key(100), cells.NewNote(fresh(), key(200)), at+1)
	require.NoError(t, f.s.Remove(ctx, home, store.Bounds{}, at))
	x := f.one(adopt(repair.AdoptNewer))
	require.EqualValues(t, 3, x.Count)
	require.EqualValues(t, 3, x.Missing)
	require.Contains(t, x.Mended, "2 rows were copied")
	got := f.contents()["b"]
	require.Len(t, got, rows-100-1+2)
	require.NotContains(t, got, string(key(20))+"=value")
	require.Contains(t, got, string(key(120))+"=value")
	found, _ := f.check(nil)
	require.Empty(t, found)
}

// Markers hide rows of partitions that nobody has adopted yet: they are not swept.
func TestMarkersStayAsLongAsTheyMayHide(t *testing.T) {
	f := newFixture(t, memstore.New())
	f.o.Skew = tick
	p := f.partition(f.b, 1)
	f.move(move.Merge(nil, nil))
	f.put(p, key(110), store.EntryCell([]byte("deleted")), now()+100)
	f.put(f.partition(f.b, 0), key(110), cells.Marker(), now()+200)
	f.put(p, []byte("key-00111+"), store.EntryCell([]byte("wanted")), now()+100)
	found, _ := f.check(mend)
	require.Equal(t, []string{is(repair.LeftMarker, 1), is(repair.Orphan, 2)}, kinds(found))
	for _, x := range found {
		require.True(t, x.Open(), "%s", x)
		require.NotEmpty(t, x.Todo)
	}
	found, sum := f.check(adopt(repair.AdoptAll))
	require.Zero(t, sum.Problems, "%v", found)
	got := f.contents()["b"]
	require.NotContains(t, got, string(key(110))+"=deleted")
	require.Contains(t, got, "key-00111+=wanted")
	found, _ = f.check(nil)
	require.Empty(t, found)
}

// A nameless bucket whose rows are in partitions without a range does not pass for
// empty.
func TestABucketWithRowsElsewhereIsNotEmpty(t *testing.T) {
	f := newFixture(t, memstore.New())
	root, err := mapclient.Of(f.c).Create(ctx, freshBucket(), nil)
	require.NoError(t, err)
	f.put(store.Partition{Bucket: root.Bucket, ID: fresh()}, key(1), store.EntryCell(nil), now())
	found, _ := f.check(both(mend, later(time.Hour)))
	require.Equal(t, []string{is(repair.NamelessBucket, 0), is(repair.Orphan, 1)}, kinds(found))
	for _, x := range found {
		require.True(t, x.Open(), "%s", x)
	}
	require.Equal(t, partmap.Open, f.root(root.Bucket).State)
}

// TestWhatIsDiscardedStaysSo: also what a server still writes whose clock is ahead by as much as the store's processes
// have agreed on.
func TestWhatIsDiscardedStaysSo(t *testing.T) {
	const skew = time.Minute
	f := newFixture(t, memstore.New())
	maps, err := mapclient.Join(ctx, f.s, mapclient.Options{MaxClockSkew: skew, Clocks: 1}, false)
	require.NoError(t, err)
	defer maps.Close()
	c, err := listing.New(mapclient.With(f.s, maps), listing.Options{})
	require.NoError(t, err)
	p := store.Partition{Bucket: f.b, ID: fresh()}
	f.put(p, key(1), []byte("junk"), now())
	f.o.Repair, f.o.Discard = true, []store.PartitionID{p.ID}
	sum, err := repair.New(f.s, c, f.o).All(ctx)
	require.NoError(t, err)
	require.EqualValues(t, 1, sum.Mended)
	f.put(p, key(1), []byte("late"), now()+store.Timestamp((skew-time.Second).Microseconds()))
	_, there, err := f.s.Get(ctx, p, key(1))
	require.NoError(t, err)
	require.False(t, there)
}

// What evenkeel has not written is not adopted.
func TestForeignCellsAreNotAdopted(t *testing.T) {
	f := newFixture(t, memstore.New())
	p := store.Partition{Bucket: f.b, ID: fresh()}
	f.put(p, key(1), []byte("junk"), now()+1000)
	x := f.one(adopt(repair.AdoptAll))
	require.True(t, x.Open())
	require.Contains(t, x.Todo, "neither entries nor markers")
	require.Equal(t, "discarded", f.one(mend, func(o *repair.Options) { o.Discard = []store.PartitionID{p.ID} }).Mended)
}

// A map with missing nodes is taken back to the newest one that is whole, and what
// has moved since is adopted.
func TestAMapIsTakenBack(t *testing.T) {
	overStores(t, func(t *testing.T, s func(t testing.TB) store.Store) {
		f := newFixture(t, s(t))
		f.o.Skew = tick
		before := f.contents()
		f.b = f.large
		f.move(move.Merge(nil, key(1)), move.Merge(key(100), key(102)))
		f.move(move.Merge(nil, key(102)))
		merged := f.root(f.large)
		settings := []byte("later than the map that is whole")
		require.NoError(t, door.Bucket(f.c.Bucket("large")).ChangeSettings(ctx,
			func([]byte) ([]byte, error) { return settings, nil }))
		for _, c := range f.root(f.large).Children {
			require.NoError(t, f.s.DeleteNode(ctx, f.large, c.Node))
		}
		found, sum := f.check(mend)
		require.Contains(t, kinds(found), is(repair.BrokenMap, 0))
		require.Contains(t, found[0].Todo, "--adopt-all")
		require.Positive(t, sum.Problems)
		found, sum = f.check(adopt(repair.AdoptAll))
		require.Zero(t, sum.Problems, "%v", found)
		require.Equal(t, before, f.contents())
		found, sum = f.check(nil)
		require.Zero(t, sum.Problems, "%v", found)
		require.Equal(t, merged.Ranges, f.root(f.large).Ranges, "the move that the older map has in flight has ended")
		require.Equal(t, settings, f.root(f.large).Settings, "what users have said last holds")
	})
}

// A bucket was made after the copy of the maps was: its rows, and its line in the list
// of buckets, are all that is left of it.
func TestABucketIsRevived(t *testing.T) {
	overStores(t, func(t *testing.T, s func(t testing.TB) store.Store) {
		f := newFixture(t, s(t))
		id := freshBucket()
		for i := range 3 {
			f.put(store.Partition{Bucket: id, ID: fresh()}, key(i), store.EntryCell([]byte("value")), now())
		}
		f.list("new", line(id))
		found, sum := f.check(mend)
		require.Equal(t, []string{is(repair.LostBucket, 1), is(repair.LostBucket, 1), is(repair.LostBucket, 1),
			is(repair.NoRoot, 0)}, kinds(found))
		require.EqualValues(t, 4, sum.Problems)
		found, sum = f.check(adopt(repair.AdoptAll))
		require.Zero(t, sum.Problems, "%v", found)
		n := 0
		for _, err := range f.c.Bucket("new").All(ctx, listing.Query{}) {
			require.NoError(t, err)
			n++
		}
		require.Equal(t, 3, n)
		require.NotEqual(t, uint64(1), f.root(id).Epoch, "it looks like a bucket whose rows never were elsewhere")
		found, _ = f.check(nil)
		require.Empty(t, found)
	})
}

// A bucket of objects whose root is lost is revived as one, so that its objects are found again with all versions, and
// no purge takes them for entries. The rows tell: those of versions and of uploads. A plain bucket stays one.
func TestABucketOfObjectsIsRevived(t *testing.T) {
	overStores(t, func(t *testing.T, s func(t testing.TB) store.Store) {
		f := newFixture(t, s(t))
		f.o.LostSettings = care.LostSettings
		o, err := objects.New(f.c, nil, objects.Options{}) // all bodies are in rows
		require.NoError(t, err)
		for _, name := range []string{"versions", "marker", "upload", "nothing"} {
			require.NoError(t, o.CreateBucket(ctx, name))
		}
		versions := o.Bucket("versions", objects.Enabled)
		_, err = versions.Put(ctx, []byte("k"), strings.NewReader("body"), objects.Meta{Size: 4})
		require.NoError(t, err)
		_, err = o.Bucket("marker", objects.Enabled).Delete(ctx, []byte("k"))
		require.NoError(t, err)
		_, err = o.Bucket("upload", objects.Never).CreateUpload(ctx, []byte("k"), objects.Meta{})
		require.NoError(t, err)

		// Buckets with the same rows, but without roots.
		lost := map[string]store.BucketID{}
		for _, name := range []string{"versions", "marker", "upload", "b"} {
			id := freshBucket()
			lost[name] = id
			page, err := f.s.Slice(ctx, f.partition(f.id(name), 0), store.Bounds{},
				store.SliceOptions{Limit: 10, Timestamps: true})
			require.NoError(t, err)
			require.NotEmpty(t, page.Rows)
			p := store.Partition{Bucket: id, ID: fresh()}
			for _, r := range page.Rows {
				f.put(p, r.Key, r.Value, r.Timestamp)
			}
			f.list("lost-"+name, line(id))
		}
		_, sum := f.check(adopt(repair.AdoptAll))
		require.Zero(t, sum.Problems)
		for _, name := range []string{"versions", "marker", "upload"} {
			_, settings, err := o.Open(ctx, "lost-"+name)
			require.NoError(t, err, name)
			require.Equal(t, objects.Settings{Status: objects.Enabled}, settings, name)
		}
		require.Empty(t, f.root(lost["b"]).Settings)
		object, err := o.Bucket("lost-versions", objects.Enabled).Get(ctx, []byte("k"), objects.ID{}, objects.All)
		require.NoError(t, err)
		body, err := io.ReadAll(object.Body)
		require.NoError(t, err)
		require.Equal(t, "body", string(body))
	})
}

// Between two copies a partition lost its range, and the range moved on. While that
// second move is marked in the map, the row goes to its destination or, where a later
// move has emptied that, to a fresh partition; never to the source, from where the move
// would copy it under a removal.
func TestAdoptedInTheMiddleOfAMove(t *testing.T) {
	f := newFixture(t, memstore.New())
	f.o.Skew = tick
	b := f.c.Bucket("b")
	f.move(move.Merge(nil, nil))
	refresh := func(stop string) error {
		x := executor.New(f.s, mapclient.Of(f.c), f.b, executor.Options{Failpoint: func(_ context.Context, point,
			_ string) error {
			if point == stop {
				return errKilled
			}
			return nil
		}})
		if root := f.root(f.b); len(root.Batches) == 0 {
			rg := partmap.Range{Entry: root.Entries[0]}
			x.Add(move.Refresh(&rg))
		}
		return x.Run(ctx)
	}
	require.ErrorIs(t, refresh("before swap copying"), errKilled)
	old := f.root(f.b)
	require.NoError(t, refresh(""))
	for i := range rows {
		require.NoError(t, b.Put(ctx, key(i), []byte("above the first removal"))) // in the second partition
	}
	require.NoError(t, refresh(""))
	before := f.contents()
	f.back(old)
	found, sum := f.check(adopt(repair.AdoptAll))
	require.Zero(t, sum.Problems, "%v", found)
	require.Equal(t, before, f.contents())
	require.NoError(t, refresh(""))
	require.Equal(t, before, f.contents())
}

// The map says that rows are copied or compared, and the source was emptied since: what
// the source lacks was not deleted. The map is brought to where the rows are.
func TestAMoveThatTheRowsAreAheadOf(t *testing.T) {
	for _, point := range []string{"before swap copying", "before swap verifying", "before swap draining"} {
		t.Run(point, func(t *testing.T) {
			f := newFixture(t, memstore.New())
			f.o.Skew = tick
			x := executor.New(f.s, mapclient.Of(f.c), f.b, executor.Options{Failpoint: func(_ context.Context, at,
				_ string) error {
				if at == point {
					return errKilled
				}
				return nil
			}})
			x.Add(move.Merge(nil, key(200)), move.Split(key(300), key(400), -1, key(350)))
			require.ErrorIs(t, x.Run(ctx), errKilled)
			found, sum := f.check(nil)
			require.Zero(t, sum.Problems, "%v", found)
			old := f.root(f.b)
			f.move()
			before := f.contents()
			f.back(old)
			for _, tune := range []func(o *repair.Options){nil, mend} {
				found, sum := f.check(tune)
				require.Equal(t, []string{is(repair.Moving, 4), is(repair.OutrunMove, 4)}, kinds(found))
				require.EqualValues(t, 1, sum.Problems)
			}
			found, sum = f.check(adopt(repair.AdoptNewer))
			require.Zero(t, sum.Problems, "%v", found)
			require.Equal(t, partmap.Draining, f.root(f.b).Batches[0].Phase)
			require.Equal(t, before, f.contents())
			f.move()
			require.Equal(t, before, f.contents())
		})
	}
}
