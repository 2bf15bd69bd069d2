package repair_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/cells"
	"github.com/evenkeel/evenkeel/internal/door"
	"github.com/evenkeel/evenkeel/internal/hints"
	"github.com/evenkeel/evenkeel/internal/keytext"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/processes"
	"github.com/evenkeel/evenkeel/internal/rebalance/repair"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// damage is something wrong, made by hand, with what a check has to say of it.
type damage struct {
	name string
	do   func(f *fixture)
	// tune the check.
	tune func(o *repair.Options)
	// want are the findings of the check: kind and count.
	want []string
	// mends: a repair mends all of it.
	mends bool
}

func is(k repair.Kind, n int) string { return fmt.Sprintf("%s %d", k, n) }

var ctx = context.Background()

var damages = []damage{
	{name: "none", do: func(*fixture) {}, mends: true},
	{name: "none, with a list of processes, and hints for the cleaner", do: func(f *fixture) {
		p, err := processes.Appear(ctx, f.s, processes.Process{Name: "listd"}, nil)
		require.NoError(f.t, err)
		f.t.Cleanup(p.Close)
		j := hints.New(f.s, nil)
		j.Note(f.b, []byte("key"), 0)
		require.NoError(f.t, j.Flush(ctx))
		f.t.Cleanup(j.Close)
	}, mends: true},

	{name: "a record of the directory is damaged", do: func(f *fixture) {
		f.swap(store.Directory, []byte("broken"), func(store.Version, []byte) []byte { return []byte("junk") })
	}, want: []string{is(repair.BrokenName, 0)}},
	{name: "a name leads to no root", do: func(f *fixture) { f.name("ghost", freshBucket()) },
		want: []string{is(repair.NoRoot, 0)}},
	{name: "two names lead to one bucket", do: func(f *fixture) {
		f.name("b2", f.b)
		f.list("b2", line(f.b))
	}, want: []string{is(repair.SharedBucket, 0)}},
	{name: "the directory has lost a name", do: func(f *fixture) { f.name("b", store.BucketID{}) },
		want: []string{is(repair.NamelessBucket, 0)}, mends: true},
	{name: "a bucket without a name", do: func(f *fixture) {
		_, err := mapclient.Of(f.c).Create(ctx, freshBucket(), nil)
		require.NoError(f.t, err)
	}, tune: later(time.Hour), want: []string{is(repair.NamelessBucket, 0)}, mends: true},
	{name: "a bucket without a name, with rows", do: func(f *fixture) {
		root, err := mapclient.Of(f.c).Create(ctx, freshBucket(), nil)
		require.NoError(f.t, err)
		f.put(f.partition(root.Bucket, 0), key(1), store.EntryCell(nil), now())
	}, tune: later(time.Hour), want: []string{is(repair.NamelessBucket, 0)}},
	{name: "a bucket is being created", do: func(f *fixture) {
		_, err := mapclient.Of(f.c).Create(ctx, freshBucket(), nil)
		require.NoError(f.t, err)
	}, want: []string{is(repair.Young, 0)}, mends: true},
	{name: "a deletion did not free the name", do: func(f *fixture) { f.delete("empty", partmap.Deleted) },
		want: []string{is(repair.DeletedName, 0)}, mends: true},
	{name: "a deletion stopped in the middle", do: func(f *fixture) { f.delete("empty", partmap.Closing) },
		tune: later(time.Hour), want: []string{is(repair.LeftClosing, 0)}, mends: true},
	{name: "a bucket is being deleted", do: func(f *fixture) { f.delete("empty", partmap.Closing) },
		want: []string{is(repair.Young, 0)}, mends: true},
	{name: "a line of the list of buckets is damaged", do: func(f *fixture) { f.list("zz", []byte("junk")) },
		want: []string{is(repair.BrokenList, 0)}},
	{name: "the list lacks a bucket", do: func(f *fixture) {
		p := f.partition(door.ListOfBuckets, 0)
		row, found, err := f.s.Get(ctx, p, []byte("b"))
		require.NoError(f.t, err)
		require.True(f.t, found)
		require.NoError(f.t, f.s.Delete(ctx, p, row.Key, row.Timestamp))
	}, want: []string{is(repair.Unlisted, 0)}, mends: true},
	{name: "the list has a bucket that is deleted", do: func(f *fixture) {
		id := f.id("empty")
		require.NoError(f.t, f.c.DeleteBucket(ctx, "empty"))
		f.list("empty", line(id))
	}, want: []string{is(repair.StaleListing, 0)}, mends: true},
	{name: "the list leads to another bucket", do: func(f *fixture) {
		id := f.id("empty")
		require.NoError(f.t, f.c.DeleteBucket(ctx, "empty"))
		f.list("b", line(id))
	}, want: []string{is(repair.StaleListing, 0)}, mends: true},

	{name: "a root is damaged", do: func(f *fixture) {
		f.swap(store.Roots, f.b[:], func(_ store.Version, old []byte) []byte { return append(old[:40:40], "junk"...) })
	}, want: []string{is(repair.BrokenRoot, 0)}},
	{name: "a root is torn", do: func(f *fixture) {
		f.swap(store.Roots, f.b[:], func(_ store.Version, old []byte) []byte { return old })
	}, want: []string{is(repair.BrokenRoot, 0)}},
	{name: "a segment is missing", do: func(f *fixture) {
		require.NoError(f.t, f.s.DeleteNode(ctx, f.large, f.root(f.large).Children[0].Node))
	}, want: []string{is(repair.BrokenMap, 0)}},
	{name: "a segment is damaged", do: func(f *fixture) {
		id := f.root(f.large).Children[0].Node
		blob, err := f.s.Node(ctx, f.large, id)
		require.NoError(f.t, err)
		blob[len(blob)/2] ^= 1
		require.NoError(f.t, f.s.WriteNode(ctx, f.large, id, blob))
	}, want: []string{is(repair.BrokenMap, 0)}},
	{name: "ranges do not ascend", do: func(f *fixture) {
		f.change(f.b, func(r *partmap.Root) { r.Entries[2].Start = r.Entries[1].Start })
	}, want: []string{is(repair.BrokenRoot, 0)}},
	{name: "a root miscounts its ranges", do: func(f *fixture) {
		f.change(f.b, func(r *partmap.Root) { r.Ranges++ })
	}, want: []string{is(repair.BrokenMap, 0)}},
	{name: "a destination is a home", do: func(f *fixture) {
		f.change(f.b, func(r *partmap.Root) {
			r.Entries[1].To, r.Entries[1].Batch = r.Entries[3].Partition, r.Epoch
			r.Batches = []partmap.Batch{{ID: r.Epoch, Phase: partmap.Copying, Ranges: 1}}
		})
	}, want: []string{is(repair.BrokenMap, 0)}},
	{name: "one partition in two places", do: func(f *fixture) {
		f.change(f.b, func(r *partmap.Root) { r.Entries[3].Partition = r.Entries[1].Partition })
	}, want: []string{is(repair.BrokenMap, 0), is(repair.Orphan, rows/ranges)}},
	{name: "nodes of epochs to come", do: func(f *fixture) {
		for _, n := range f.nodesOf(50) {
			require.NoError(f.t, f.s.WriteNode(ctx, f.large, n.ID, n.Blob))
		}
	}, want: []string{is(repair.RootWentBack, 1)}},
	{name: "nodes of a swap that may come", do: func(f *fixture) {
		for _, n := range f.nodesOf(f.root(f.large).Epoch + 1) {
			require.NoError(f.t, f.s.WriteNode(ctx, f.large, n.ID, n.Blob))
		}
	}, tune: later(24 * time.Hour), want: []string{is(repair.Uncollected, 1)}, mends: true},
	{name: "nodes that wait for their collection", do: func(f *fixture) {
		for _, n := range f.nodesOf(f.root(f.large).Epoch) {
			require.NoError(f.t, f.s.WriteNode(ctx, f.large, n.ID, n.Blob))
		}
	}, want: []string{is(repair.Uncollected, 1)}, mends: true},
	{name: "nodes that nobody collects", do: func(f *fixture) {
		for _, n := range f.nodesOf(f.root(f.large).Epoch) {
			require.NoError(f.t, f.s.WriteNode(ctx, f.large, n.ID, n.Blob))
		}
	}, tune: later(24 * time.Hour), want: []string{is(repair.OrphanNode, 1)}, mends: true},
	{name: "a node that nobody names is damaged", do: func(f *fixture) {
		require.NoError(f.t, f.s.WriteNode(ctx, f.large, store.NodeID(freshBucket()), []byte("junk")))
	}, want: []string{is(repair.BrokenNode, 0)}},
	{name: "a map clock is missing", do: func(f *fixture) {
		f.swap(store.Clocks, []byte{0, 0, 0, 9}, func(store.Version, []byte) []byte { return []byte("some clock") })
	}, want: []string{is(repair.NoClock, 0), is(repair.NoClock, 0), is(repair.NoClock, 0), is(repair.NoClock, 0)}},
	{name: "moves are stuck", do: func(f *fixture) {
		f.begin(partmap.Move{Start: key(100), End: key(200), Parts: []partmap.Part{{Start: key(100), To: fresh()}}})
	}, tune: later(24 * time.Hour), want: []string{is(repair.StuckMove, 1)}},
	{name: "ranges move", do: func(f *fixture) {
		f.begin(partmap.Move{Start: key(100), End: key(300), Parts: []partmap.Part{{Start: key(100), To: fresh()}}})
	}, want: []string{is(repair.Moving, 2)}, mends: true},

	{name: "rows outside of their ranges", do: func(f *fixture) {
		p := f.partition(f.b, 2)
		for i := range 7 {
			f.put(p, fmt.Appendf(key(1), "-%d", i), store.EntryCell(nil), now()-10)
		}
		f.put(p, []byte("zzz"), store.EntryCell(nil), now()-10)
	}, want: []string{is(repair.Misplaced, 8)}},
	{name: "rows that are also where they belong", do: func(f *fixture) {
		for _, i := range []int{0, 10, 450} {
			row, found, err := f.s.Get(ctx, f.partition(f.b, i/100), key(i))
			require.NoError(f.t, err)
			require.True(f.t, found)
			f.put(f.partition(f.b, 2), row.Key, row.Value, row.Timestamp)
		}
		f.put(f.partition(f.b, 2), key(11), store.EntryCell([]byte("older")), 100)
	}, want: []string{is(repair.Duplicate, 4)}, mends: true},
	{name: "a row that is newer than the one where it belongs", do: func(f *fixture) {
		f.put(f.partition(f.b, 2), key(0), store.EntryCell([]byte("newer")), now())
	}, want: []string{is(repair.Misplaced, 1)}},
	{name: "markers are left", do: func(f *fixture) {
		f.put(f.partition(f.b, 0), key(17), cells.Marker(), now())
		f.put(f.partition(f.b, 0), []byte("aaa"), cells.Marker(), now())
		f.put(f.partition(f.b, 4), []byte("zzz"), cells.Marker(), now())
	}, want: []string{is(repair.LeftMarker, 1), is(repair.LeftMarker, 2)}, mends: true},
	{name: "markers of a move", do: func(f *fixture) {
		f.begin(partmap.Move{Start: key(100), End: key(200), Parts: []partmap.Part{{Start: key(100), To: fresh()}}})
		f.put(f.partition(f.b, 1), key(117), cells.Marker(), now())
		f.put(store.Partition{Bucket: f.b, ID: f.root(f.b).Entries[1].To}, key(118), cells.Marker(), now())
	}, want: []string{is(repair.Moving, 1)}, mends: true},
	{name: "rows of a destination outside of its ranges", do: func(f *fixture) {
		f.begin(partmap.Move{Start: key(100), End: key(200), Parts: []partmap.Part{{Start: key(100), To: fresh()}}})
		f.put(store.Partition{Bucket: f.b, ID: f.root(f.b).Entries[1].To}, key(450), store.EntryCell(nil), 100)
	}, want: []string{is(repair.Moving, 1), is(repair.Duplicate, 1)}, mends: true},
	{name: "cells of an unknown kind", do: func(f *fixture) {
		f.put(f.partition(f.b, 0), key(17), []byte("junk"), now())
		f.put(f.partition(f.b, 0), key(18), []byte{}, now())
	}, want: []string{is(repair.UnknownCell, 2)}},
	{name: "rows of the future", do: func(f *fixture) {
		f.put(f.partition(f.b, 0), key(17), store.EntryCell(nil), now()+store.Timestamp(time.Hour/time.Microsecond))
		f.put(f.partition(f.b, 0), key(18), store.EntryCell(nil),
			now()+store.Timestamp(10*time.Second/time.Microsecond))
	}, want: []string{is(repair.FutureRow, 1)}},
	{name: "a partition without a range", do: func(f *fixture) {
		for i := range 3 {
			f.put(store.Partition{Bucket: f.b, ID: fresh()}, key(i), store.EntryCell(nil), 100)
		}
		p := store.Partition{Bucket: f.b, ID: fresh()}
		for i := range rows {
			f.put(p, key(i), store.EntryCell(nil), 100)
		}
		f.put(store.Partition{Bucket: f.large, ID: fresh()}, key(1), store.EntryCell(nil), 100)
	}, tune: func(o *repair.Options) { o.PageRows = 100 },
		want: []string{is(repair.Orphan, 1), is(repair.Orphan, 1), is(repair.Orphan, 1), is(repair.Orphan, 1),
			is(repair.Orphan, rows)}, mends: true},
	{name: "a partition without a range has what is nowhere else", do: func(f *fixture) {
		f.put(store.Partition{Bucket: f.b, ID: fresh()}, key(1), store.EntryCell([]byte("newer")), now()+1000)
		p, at := store.Partition{Bucket: f.large, ID: fresh()}, now()
		for i := range 2500 {
			f.put(p, key(i), store.EntryCell(nil), at)
		}
	}, want: []string{is(repair.Orphan, 1), is(repair.Orphan, 2500)}},
	{name: "a partition of a large map with its first row outside", do: func(f *fixture) {
		var p store.PartitionID
		for rg, err := range partmap.Ranges(f.root(f.large), f.reader(f.large), key(1), nil) {
			require.NoError(f.t, err)
			p = rg.Partition
			break
		}
		f.put(store.Partition{Bucket: f.large, ID: p}, key(0), store.EntryCell(nil), now())
	}, want: []string{is(repair.Misplaced, 1)}},
	{name: "rows of a deleted bucket", do: func(f *fixture) {
		p := f.partition(f.id("empty"), 0)
		require.NoError(f.t, f.c.DeleteBucket(ctx, "empty"))
		f.put(p, key(1), store.EntryCell(nil), now())
	}, want: []string{is(repair.LeftRows, 1)}, mends: true},
	{name: "rows of a bucket without a root", do: func(f *fixture) {
		f.put(store.Partition{Bucket: freshBucket(), ID: fresh()}, key(1), store.EntryCell(nil), now())
	}, want: []string{is(repair.LostBucket, 1)}},
}

func (f *fixture) reader(id store.BucketID) partmap.Reader {
	return func(n store.NodeID) ([]byte, error) { return f.s.Node(ctx, id, n) }
}

// delete brings a bucket into a state by its root alone.
func (f *fixture) delete(name string, to partmap.State) {
	root := f.root(f.id(name))
	for _, state := range []partmap.State{partmap.Closing, partmap.Deleted} {
		change, err := mapclient.WithState(root, state, mapclient.Of(f.c).Stamp())
		require.NoError(f.t, err)
		require.NoError(f.t, mapclient.Of(f.c).Swap(ctx, change))
		if root = change.Next; state == to {
			return
		}
	}
}

// nodesOf makes a segment of the large map as a change to an epoch would.
func (f *fixture) nodesOf(epoch uint64) []partmap.Node {
	root := f.root(f.large)
	root.Epoch = epoch - 1
	edit := partmap.NewEdit(root, mapclient.Of(f.c).Stamp(), f.reader(f.large))
	require.NoError(f.t, edit.Replace(key(0), key(1), []partmap.Entry{{Start: key(0), Partition: fresh()}}))
	change, err := edit.Change()
	require.NoError(f.t, err)
	require.Len(f.t, change.Nodes, 1)
	return change.Nodes
}

// begin puts a move into its first phase.
func (f *fixture) begin(m partmap.Move) {
	edit := mapclient.Of(f.c).Edit(ctx, f.root(f.b))
	_, err := edit.Begin(m)
	require.NoError(f.t, err)
	change, err := edit.Change()
	require.NoError(f.t, err)
	require.NoError(f.t, mapclient.Of(f.c).Swap(ctx, change))
}

func kinds(found []repair.Finding) []string {
	out := []string{}
	for _, x := range found {
		out = append(out, is(x.Kind, int(x.Count)))
	}
	slices.Sort(out)
	return out
}

// TestEachDamageIsFound: each damage, made by hand, gives its findings and no
// others; a repair mends what can be mended, and then nothing is found.
func TestEachDamageIsFound(t *testing.T) {
	overStores(t, func(t *testing.T, s func(t testing.TB) store.Store) {
		for _, d := range damages {
			t.Run(d.name, func(t *testing.T) {
				t.Parallel()
				f := newFixture(t, s(t))
				d.do(f)
				want := append([]string{}, d.want...)
				slices.Sort(want)
				found, sum := f.check(d.tune)
				require.Equal(t, want, kinds(found), "%v", found)
				problems := 0
				for _, x := range found {
					require.Empty(t, x.Mended)
					require.NotEmpty(t, x.Text)
					if x.Severity == repair.Problem {
						problems++
						require.NotEmpty(t, x.Todo, "%s", x)
					}
					t.Log(x)
				}
				require.EqualValues(t, problems, sum.Problems)
				before := f.contents()

				found, sum = f.check(both(d.tune, mend))
				require.Equal(t, want, kinds(found), "%v", found)
				require.Equal(t, d.mends, sum.Problems == 0, "%v", found)
				after := f.contents()
				for name, listed := range before {
					require.Equal(t, listed, after[name], "a repair shows and hides nothing in %s", name)
				}
				found, sum = f.check(d.tune)
				require.Equal(t, d.mends, sum.Problems == 0, "%v", found)
			})
		}
	})
}

func both(fs ...func(o *repair.Options)) func(o *repair.Options) {
	return func(o *repair.Options) {
		for _, f := range fs {
			if f != nil {
				f(o)
			}
		}
	}
}

// contents are the listings of all buckets that can be read.
func (f *fixture) contents() map[string][]string {
	c, err := listing.New(f.s, listing.Options{})
	require.NoError(f.t, err)
	all := map[string][]string{}
	for _, name := range []string{"b", "large"} {
		for e, err := range c.Bucket(name).All(ctx, listing.Query{}) {
			if err != nil {
				break
			}
			all[name] = append(all[name], string(e.Key)+"="+string(e.Value))
		}
	}
	return all
}

// TestOneBucket looks at one bucket only, wherever else the damage is.
func TestOneBucket(t *testing.T) {
	overStores(t, func(t *testing.T, s func(t testing.TB) store.Store) {
		f := newFixture(t, s(t))
		f.put(store.Partition{Bucket: f.large, ID: fresh()}, key(1), store.EntryCell(nil), now())
		f.put(f.partition(f.b, 0), key(17), cells.Marker(), now())
		check := func(name string) ([]string, error) {
			c, err := listing.New(f.s, listing.Options{})
			require.NoError(t, err)
			var found []repair.Finding
			o := f.o
			o.Report = func(x repair.Finding) { found = append(found, x) }
			_, err = repair.New(f.s, c, o).Bucket(ctx, name)
			return kinds(found), err
		}
		for name, want := range map[string][]string{"b": {is(repair.LeftMarker, 1)}, "large": {is(repair.Orphan, 1)},
			"empty": {}} {
			got, err := check(name)
			require.NoError(t, err)
			require.Equal(t, want, got, name)
		}
		_, err := check("nothing")
		require.ErrorIs(t, err, listing.ErrNoSuchBucket)
		f.name("ghost", freshBucket())
		got, err := check("ghost")
		require.NoError(t, err)
		require.Equal(t, []string{is(repair.NoRoot, 0)}, got)
	})
}

// TestFindingsForPrograms: keys that are not text survive.
func TestFindingsForPrograms(t *testing.T) {
	x := repair.Finding{
		Severity: repair.Problem, Kind: repair.Misplaced, Bucket: keytext.Key("b"), ID: freshBucket(), Key: []byte{0xff},
		Count: 3, Text: "text", Todo: "todo",
	}
	b, err := json.Marshal(x)
	require.NoError(t, err)
	require.JSONEq(t, fmt.Sprintf(`{"severity":"problem","kind":"misplaced rows","bucket":"b","bucket_id":%q,"key":{"b64":"/w=="},"count":3,"text":"text","todo":"todo"}`, x.ID), string(b))
	var back repair.Finding
	require.NoError(t, json.Unmarshal(b, &back))
	require.Equal(t, x, back)

	// What does not apply is left out; an empty key is a key.
	x = repair.Finding{
		Severity: repair.Info, Kind: repair.Young, Partition: store.PartitionID(freshBucket()), Node: store.NodeID(freshBucket()),
		Key: keytext.Key{}, Missing: 2, Text: "text", Mended: "done",
	}
	b, err = json.Marshal(x)
	require.NoError(t, err)
	require.JSONEq(t, fmt.Sprintf(`{"severity":"info","kind":"young bucket","partition":%q,"node":%q,"key":"","missing":2,`+
		`"text":"text","mended":"done"}`, x.Partition, x.Node), string(b))
	back = repair.Finding{}
	require.NoError(t, json.Unmarshal(b, &back))
	require.Equal(t, x, back)
	b, err = json.Marshal(repair.Finding{})
	require.NoError(t, err)
	require.JSONEq(t, `{"severity":"","kind":"","text":""}`, string(b))
}
