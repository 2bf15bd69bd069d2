package repair_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/cells"
	"github.com/evenkeel/evenkeel/internal/door"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/rebalance/executor"
	"github.com/evenkeel/evenkeel/internal/rebalance/move"
	"github.com/evenkeel/evenkeel/internal/rebalance/repair"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// A bucket that was purged has a removal in its home, as one that a move has emptied. It is no proof that the map is
// older than a partition that nobody names.
func TestAPurgeIsNoProof(t *testing.T) {
	for _, purged := range []string{"by a prefix", "by retention", "not at all"} {
		t.Run(purged, func(t *testing.T) {
			f := newFixture(t, memstore.New())
			f.o.Skew = tick
			f.move(move.Merge(nil, nil)) // the range has moved once, so it is no proof that it never did
			require.NoError(t, f.s.Forget(ctx, f.b, f.root(f.b).Epoch))
			p := store.Partition{Bucket: f.b, ID: fresh()} // an old source whose removal was lost
			for i := range 30 {
				f.put(p, append(key(i), '+'), store.EntryCell([]byte("deleted")), now()-store.Timestamp(time.Minute.Microseconds()))
			}
			b, err := f.c.Bucket("b"), error(nil)
			switch purged {
			case "by a prefix":
				err = b.DeletePrefix(ctx, nil)
			case "by retention":
				time.Sleep(time.Millisecond)
				_, err = door.Bucket(b).DeleteOlderUntil(ctx, nil, nil, now()-1, time.Time{})
			}
			require.NoError(t, err)
			require.NoError(t, b.Put(ctx, key(7), []byte("after the purge")))
			before := f.contents()
			require.True(t, ptr(f.one(adopt(repair.AdoptNewer))).Open())
			require.Equal(t, before, f.contents(), "deleted rows are back")
		})
	}
}

// The snapshot of one partition is older than all others, which were made after the move of its range and a purge. What
// was deleted before the older one does not come back. The purge hides all else that is left in the partition, too:
// that it was no move can't be told, so the partition stays until it is discarded.
func TestDeletedBeforeTheOlderCopy(t *testing.T) {
	for _, purged := range []bool{false, true} {
		j := newJournal(memstore.New())
		c, err := listing.New(j, listing.Options{})
		require.NoError(t, err)
		require.NoError(t, c.CreateBucket(ctx, "b"))
		owner, err := door.Client(c).Owner(ctx, "b")
		require.NoError(t, err)
		b := c.Bucket("b")
		for i := range 10 {
			require.NoError(t, b.Put(ctx, key(i), []byte("value")))
		}
		root, err := mapclient.Of(c).Load(ctx, owner.ID)
		require.NoError(t, err)
		rg := partmap.Range{Entry: root.Entries[0]}
		run := func(stop string) error {
			x := executor.New(j, mapclient.Of(c), owner.ID, executor.Options{Failpoint: func(_ context.Context, at, _ string) error {
				if at == stop {
					return errKilled
				}
				return nil
			}})
			if stop != "" {
				x.Add(move.Refresh(&rg))
			}
			return x.Run(ctx)
		}
		require.ErrorIs(t, run("before swap verifying"), errKilled) // all is copied
		require.NoError(t, b.Delete(ctx, key(3)))
		first := j.now()
		require.NoError(t, run("")) // the move ends, and the marker is swept
		if purged {
			require.NoError(t, b.DeletePrefix(ctx, nil))
			for i := range 10 {
				if i != 3 {
					require.NoError(t, b.Put(ctx, key(i), []byte("again")))
				}
			}
		}

		last := j.now()
		restored := memstore.New()
		j.copyApart(t, restored, func(o *op) int {
			if o.at == rg.Partition {
				return first
			}
			return last
		})
		keys := func() (keys []string) {
			c, err := listing.New(restored, listing.Options{})
			require.NoError(t, err)
			for e, err := range c.Bucket("b").All(ctx, listing.Query{}) {
				require.NoError(t, err)
				keys = append(keys, string(e.Key))
			}
			return keys
		}
		found, sum, err := verify(t, restored, repair.Options{Adopt: repair.AdoptAll})
		require.NoError(t, err)
		require.NotContains(t, keys(), string(key(3)), "purged %v: it was deleted before the older copy", purged)
		require.Len(t, keys(), 9)
		if purged {
			require.EqualValues(t, 1, sum.Problems, "%v", found)
			require.Contains(t, found[0].Todo, "--discard")
			_, sum, err = verify(t, restored, repair.Options{Repair: true, Discard: []store.PartitionID{rg.Partition}})
			require.NoError(t, err)
		}
		require.Zero(t, sum.Problems, "%v", found)
		require.Len(t, keys(), 9)
	}
}

// The source of a move is of an earlier moment than its destination. What was acknowledged before the earlier one is
// listed, or a later value; what was deleted before is not. So it is at once, and when the move has ended.
func TestTheSourceIsOlder(t *testing.T) {
	for _, stop := range []string{"before swap copying", "before swap verifying", "before swap draining"} {
		for _, over := range []bool{false, true} {
			t.Run(fmt.Sprint(stop, over), func(t *testing.T) {
				j := newJournal(memstore.New())
				c, err := listing.New(j, listing.Options{})
				require.NoError(t, err)
				require.NoError(t, c.CreateBucket(ctx, "b"))
				owner, err := door.Client(c).Owner(ctx, "b")
				require.NoError(t, err)
				b := c.Bucket("b")
				put := func(i int, value string) { require.NoError(t, b.Put(ctx, key(i), []byte(value))) }
				put(1, "replaced")
				put(2, "deleted")
				root, err := mapclient.Of(c).Load(ctx, owner.ID)
				require.NoError(t, err)
				rg := partmap.Range{Entry: root.Entries[0]}
				run := func(stop string) error {
					x := executor.New(j, mapclient.Of(c), owner.ID, executor.Options{Failpoint: func(_ context.Context, at, _ string) error {
						if at == stop {
							return errKilled
						}
						return nil
					}})
					if stop != "" {
						x.Add(move.Refresh(&rg))
					}
					return x.Run(ctx)
				}
				first := j.now()
				if !over {
					put(1, "again") // and is copied
				}
				require.ErrorIs(t, run(stop), errKilled)
				maps := j.now()
				if over {
					require.NoError(t, b.Delete(ctx, key(2)))
					first = j.now()
					require.NoError(t, run("")) // and the marker is swept
				}
				last := j.now()
				restored := memstore.New()
				j.copyApart(t, restored, func(o *op) int {
					switch {
					case o.kind == ofRegister || o.kind == ofNode:
						return maps
					case o.at == rg.Partition:
						return first
					}
					return last
				})
				found, sum, err := verify(t, restored, repair.Options{})
				require.NoError(t, err)
				if !over && stop != "before swap copying" {
					require.Contains(t, kinds(found), is(repair.OutrunCopy, 1))
				}
				_, sum, err = verify(t, restored, repair.Options{Adopt: repair.AdoptAll})
				require.NoError(t, err)
				require.Zero(t, sum.Problems)
				for range 2 {
					c, err := listing.New(restored, listing.Options{})
					require.NoError(t, err)
					e, err := c.Bucket("b").Get(ctx, key(1))
					require.NoError(t, err)
					if over {
						_, err = c.Bucket("b").Get(ctx, key(2))
						require.ErrorIs(t, err, listing.ErrNotFound)
					} else {
						require.Contains(t, []string{"replaced", "again"}, string(e.Value))
					}
					require.NoError(t, executor.New(restored, mapclient.Of(c), owner.ID, executor.Options{}).Run(ctx))
				}
			})
		}
	}
}

// Notes are kept as long as copies of before a move may be restored. A bucket whose rows are all where the map says
// needs none that are older.
func TestOldNotesAreCollected(t *testing.T) {
	overStores(t, func(t *testing.T, s func(t testing.TB) store.Store) {
		f := newFixture(t, s(t))
		f.o.Skew = tick
		old := f.partition(f.b, 1)
		f.move(move.Merge(nil, nil))
		noted := func() bool {
			row, found, err := f.s.Get(ctx, old, key(100))
			require.NoError(t, err)
			return found && cells.IsNote(row.Value)
		}
		const day = 24 * time.Hour
		for _, tune := range []func(o *repair.Options){nil, mend, later(11 * day), both(mend, later(9*day))} {
			found, sum := f.check(tune)
			require.Zero(t, sum.Problems, "%v", found)
			require.True(t, noted())
		}
		stray := store.Partition{Bucket: f.b, ID: fresh()}
		f.put(stray, []byte("stray"), store.EntryCell(nil), now())
		f.check(both(mend, later(11*day)))
		require.True(t, noted(), "rows of the bucket are nowhere else")
		require.NoError(t, f.s.Remove(ctx, stray, store.Bounds{}, now()))
		f.check(both(mend, later(11*day)))
		require.False(t, noted())
	})
}

// The parts of a partition leave it one after the other. The removal of the last one leaves the notes of those before.
func TestNotesOfAllPartsStay(t *testing.T) {
	overStores(t, func(t *testing.T, s func(t testing.TB) store.Store) {
		f := newFixture(t, s(t))
		f.o.Skew = tick
		f.move(move.Merge(nil, nil)) // the range has moved once, so it is no proof that it never did
		f.move(move.Split(nil, nil, -1, key(100), key(200)))
		old := f.root(f.b)
		f.move(move.Split(key(100), key(200), 0, key(150)))
		require.NoError(t, f.c.Bucket("b").Put(ctx, key(120), []byte("later")))
		before := f.contents()
		left := f.root(f.b)
		rg := partmap.Range{Entry: left.Entries[1], End: key(150)}
		f.move(move.Refresh(&rg))
		f.back(old)
		require.NoError(t, f.s.Forget(ctx, f.b, f.root(f.b).Epoch)) // of the test's own making
		found, sum := f.check(adopt(repair.AdoptNewer))
		require.Zero(t, sum.Problems, "%v", found)
		require.Equal(t, before, f.contents())
	})
}

// The note of a range at the beginning of the bucket lies in no other range.
func TestANoteIsWithinItsRange(t *testing.T) {
	f := newFixture(t, memstore.New())
	require.NoError(t, f.c.CreateBucket(ctx, "zero"))
	b := f.c.Bucket("zero")
	require.NoError(t, b.Put(ctx, []byte{0}, []byte("value")))
	x := executor.New(f.s, mapclient.Of(f.c), f.id("zero"), executor.Options{})
	x.Add(move.Split(nil, nil, 1, []byte{0}))
	require.NoError(t, x.Run(ctx))
	e, err := b.Get(ctx, []byte{0})
	require.NoError(t, err)
	require.Equal(t, "value", string(e.Value))
}

// A home that has nothing but an old note is a home: what is put there after the check is not removed with the note.
func TestNotesInHomesAreNotCollected(t *testing.T) {
	f := newFixture(t, memstore.New())
	x := executor.New(f.s, mapclient.Of(f.c), f.large, executor.Options{})
	x.Add(move.Split(key(10), key(11), 0, append(key(10), 'm')))
	require.NoError(t, x.Run(ctx))
	require.NotZero(t, f.root(f.large).Height)
	f.check(both(mend, later(11*24*time.Hour)))
	require.NoError(t, f.c.Bucket("large").Put(ctx, key(10), []byte("value")))
	_, err := f.c.Bucket("large").Get(ctx, key(10))
	require.NoError(t, err)
}

// The notes of a deleted bucket are of no use to anybody, and go as well.
func TestNotesOfADeletedBucketAreCollected(t *testing.T) {
	f := newFixture(t, memstore.New())
	f.move(move.Split(key(400), nil, 0, key(450)))
	home := f.partition(f.b, 4)
	require.NoError(t, f.c.Bucket("b").DeletePrefix(ctx, nil))
	require.NoError(t, f.c.DeleteBucket(ctx, "b"))
	for _, after := range []time.Duration{9 * 24 * time.Hour, 11 * 24 * time.Hour} {
		_, noted, err := f.s.Get(ctx, home, key(450))
		require.NoError(t, err)
		require.True(t, noted)
		f.check(both(mend, later(after)))
	}
	_, noted, err := f.s.Get(ctx, home, key(450))
	require.NoError(t, err)
	require.False(t, noted)
}
