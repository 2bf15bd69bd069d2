package repair_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/cells"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/rebalance/repair"
	"github.com/evenkeel/evenkeel/internal/test/faultstore"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// TestWhenThingsBecomeProblems: what is under way is no problem up to a time, to the microsecond.
func TestWhenThingsBecomeProblems(t *testing.T) {
	minutes := func(n time.Duration) *time.Duration { n *= time.Minute; return &n }
	begin := func(f *fixture) store.BucketID {
		f.begin(partmap.Move{Start: key(100), End: key(200), Parts: []partmap.Part{{Start: key(100), To: fresh()}}})
		return f.b
	}
	for _, c := range []struct {
		name        string
		do          func(f *fixture) store.BucketID // whose root was changed at the time that counts
		last        *time.Duration                  // after the change
		before, now string
		tune        func(o *repair.Options)
	}{
		{"no name", func(f *fixture) store.BucketID {
			root, err := mapclient.Of(f.c).Create(ctx, freshBucket(), nil)
			require.NoError(f.t, err)
			return root.Bucket
		}, minutes(10), is(repair.Young, 0), is(repair.NamelessBucket, 0), nil},
		{"closing", func(f *fixture) store.BucketID {
			id := f.id("empty")
			f.delete("empty", partmap.Closing)
			return id
		}, minutes(10), is(repair.Young, 0), is(repair.LeftClosing, 0), nil},
		{"moves", begin, minutes(60), is(repair.Moving, 1), is(repair.StuckMove, 1), nil},
		{"moves, as told", begin, minutes(3), is(repair.Moving, 1), is(repair.StuckMove, 1),
			func(o *repair.Options) { o.StuckAfter = 3 * time.Minute }},
		{"nodes", func(f *fixture) store.BucketID {
			for _, n := range f.nodesOf(f.root(f.large).Epoch) {
				require.NoError(f.t, f.s.WriteNode(ctx, f.large, n.ID, n.Blob))
			}
			return f.large
		}, minutes(120), is(repair.Uncollected, 1), is(repair.OrphanNode, 1), nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, memstore.New())
				changed := time.UnixMicro(f.root(c.do(f)).ChangedAt)
				end := *c.last
				if c.before == is(repair.Young, 0) {
					end -= time.Microsecond // ten minutes are too long
				}
				for d, want := range map[time.Duration]string{end: c.before, end + time.Microsecond: c.now} {
					found, _ := f.check(both(c.tune, func(o *repair.Options) {
						o.Now = func() time.Time { return changed.Add(d) }
					}))
					require.Equal(t, []string{want}, kinds(found), "after %s", d)
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) { // rows of the future, and notes of which nobody needs the proof
		f := newFixture(t, memstore.New())
		at := now()
		f.put(f.partition(f.b, 0), key(17), store.EntryCell(nil), at+store.Timestamp(time.Minute.Microseconds()))
		p := store.Partition{Bucket: f.b, ID: fresh()}
		f.put(p, key(0), cells.NewNote(fresh(), key(9)), at)
		look := func(at time.Time, tune func(o *repair.Options)) []string {
			found, _ := f.check(both(tune, func(o *repair.Options) { o.Now = func() time.Time { return at } }))
			return kinds(found)
		}
		require.Empty(t, look(time.UnixMicro(int64(at)), nil))
		require.Equal(t, []string{is(repair.FutureRow, 1)}, look(time.UnixMicro(int64(at)-1), nil))
		for i, left := range []int{1, 1, 0} {
			tenDays := time.UnixMicro(int64(at)).Add(10*24*time.Hour + time.Duration(i/2)*time.Microsecond)
			require.Empty(t, look(tenDays, func(o *repair.Options) { o.Repair = i > 0 }))
			page, err := f.s.Slice(ctx, p, store.Bounds{}, store.SliceOptions{Limit: 9})
			require.NoError(t, err)
			require.Len(t, page.Rows, left)
		}
	})
}

// TestHowOftenACheckTriesAgain: five times in all, with pauses that grow. Names that look wrong get ten seconds.
func TestHowOftenACheckTriesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memstore.New())
		f.name("ghost", freshBucket())
		const ms = time.Millisecond
		for failures, pauses := range map[int][]time.Duration{
			0: {10_000 * ms}, 1: {50 * ms, 10_000 * ms}, 4: {50 * ms, 100 * ms, 200 * ms, 400 * ms, 10_000 * ms},
			5: {50 * ms, 100 * ms, 200 * ms, 400 * ms},
		} {
			for _, op := range []faultstore.Op{faultstore.Scan, faultstore.ScanNodes, faultstore.Partitions} {
				left := failures
				choose := func(o faultstore.Op, _ int) faultstore.Fault {
					if o != op || left == 0 {
						return faultstore.Fault{}
					}
					left--
					return faultstore.Fault{Ending: faultstore.Refused, Kind: store.Timeout}
				}
				s, faults := faultstore.New(f.s, faultstore.Options{Choose: choose})
				faults.Enable(false)
				c, err := listing.New(s, listing.Options{})
				require.NoError(t, err)
				o, slept := f.o, []time.Duration(nil)
				o.Parallel = 1
				o.Sleep = func(_ context.Context, d time.Duration) error { slept = append(slept, d); return nil }
				faults.Enable(true)
				_, err = repair.New(s, c, o).All(ctx)
				require.Equal(t, failures == 5, err != nil, "%s: %v", op, err)
				require.Equal(t, pauses, slept, op)
			}
		}
	})
}

// TestManyProblemsOfOneMap: twenty are said one by one.
func TestManyProblemsOfOneMap(t *testing.T) {
	for n, want := range map[int]int{20: 20, 21: 21, 30: 21} {
		f := newFixture(t, memstore.New())
		var cuts [][]byte
		for i := range 2*n - 1 {
			cuts = append(cuts, key(i))
		}
		require.NoError(t, f.c.CreateBucket(ctx, "many", cuts...))
		f.change(f.id("many"), func(r *partmap.Root) {
			for i := range n { // each partition is in two places
				r.Entries[n+i].Partition = r.Entries[i].Partition
			}
		})
		found, _ := f.check(func(o *repair.Options) { o.SkipOrphans = true })
		require.Len(t, found, want, "%v", found)
		if n > 20 {
			require.Contains(t, found[20].Text, fmt.Sprintf("and %d more", n-20))
		}
	}
}
