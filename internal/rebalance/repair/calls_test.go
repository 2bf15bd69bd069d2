package repair_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/rebalance/move"
	"github.com/evenkeel/evenkeel/internal/rebalance/repair"
	"github.com/evenkeel/evenkeel/internal/test/faultstore"
	"github.com/evenkeel/evenkeel/internal/test/race"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// restores are stores of which the maps or the rows were restored, with a check that adopts rows.
var restores = []damage{
	{name: "maps are older", do: func(f *fixture) {
		old := f.root(f.b)
		f.move(move.Merge(nil, nil))
		f.back(old)
	}, tune: adopt(repair.AdoptNewer), want: []string{is(repair.Orphan, rows)}},
	{name: "rows are older", do: func(f *fixture) {
		p := f.partition(f.b, 1)
		f.move(move.Merge(nil, nil))
		f.put(p, key(110), store.EntryCell([]byte("old")), now()+100)
	}, tune: adopt(repair.AdoptAll), want: []string{is(repair.Orphan, 1)}},
	{name: "rows are older, and a home is emptied", do: func(f *fixture) {
		f.move(move.Merge(nil, nil)) // the range has moved once, so it is no proof that it never did
		require.NoError(f.t, f.s.Forget(ctx, f.b, f.root(f.b).Epoch))
		old := f.root(f.b)
		rg := partmap.Range{Entry: old.Entries[0]}
		f.move(move.Refresh(&rg))
		f.back(old)
		require.NoError(f.t, f.s.Forget(ctx, f.b, f.root(f.b).Epoch))
	}, tune: adopt(repair.AdoptNewer), want: []string{is(repair.Orphan, rows)}},
	{name: "misplaced rows", do: func(f *fixture) {
		for i := range 3 {
			f.put(f.partition(f.b, 2), fmt.Appendf(key(1), "-%d", i), store.EntryCell(nil), now()-10)
		}
	}, tune: adopt(repair.AdoptAll), want: []string{is(repair.Misplaced, 3)}},
	{name: "a map is taken back", do: func(f *fixture) {
		f.b = f.large
		f.move(move.Merge(nil, key(1)), move.Merge(key(100), key(102)))
		f.move(move.Merge(nil, key(102)))
		for _, c := range f.root(f.large).Children {
			require.NoError(f.t, f.s.DeleteNode(ctx, f.large, c.Node))
		}
	}, tune: adopt(repair.AdoptAll)},
	{name: "a bucket is revived", do: func(f *fixture) {
		id := freshBucket()
		for i := range 3 {
			f.put(store.Partition{Bucket: id, ID: fresh()}, key(i), store.EntryCell([]byte("value")), now())
		}
		f.list("new", line(id))
	}, tune: adopt(repair.AdoptAll)},
}

// place returns the operation and the lines of the package under test that lead to a call of the store.
func place(op faultstore.Op) string {
	pc := make([]uintptr, 64)
	frames := runtime.CallersFrames(pc[:runtime.Callers(3, pc)])
	at := []string{op.String()}
	for {
		frame, more := frames.Next()
		if _, name, found := strings.Cut(frame.Function, "/rebalance/repair."); found {
			at = append(at, fmt.Sprintf("%s:%d", name, frame.Line))
		}
		if !more {
			return strings.Join(at, " ")
		}
	}
}

// TestEachPlaceThatCallsTheStoreFails: in a check of each damage, each place of the code that calls the store fails,
// four times and always. Four times change nothing: a check of hours does not end with answers that are late. Always
// is the error of the check, or is said in a finding: nobody takes what was not read for sound, and nobody for damaged.
func TestEachPlaceThatCallsTheStoreFails(t *testing.T) {
	known, cases := map[string]bool{}, 0
	for _, d := range append(slices.Clone(damages), restores...) {
		for _, mends := range []bool{false, true} {
			if strings.Contains(d.name, "processes") || !mends && d.want == nil {
				continue
			}
			want := failAt(t, &d, mends, "", 0)
			require.NoError(t, want.err)
			for _, at := range want.places {
				id := at
				if strings.Contains(at, "unname") { // what a map that could not be read names depends on the damage
					id += d.name
				}
				if known[id] {
					continue
				}
				known[id] = true
				if cases++; race.Enabled && cases%10 > 0 { // one goroutine; make test also runs it without the race detector
					continue
				}
				for _, times := range []int{4, 1000} {
					got := failAt(t, &d, mends, at, times)
					told := got.err != nil
					for _, x := range got.found {
						told = told || strings.Contains(x.Text+x.Todo, faultstore.ErrInjected.Error())
					}
					if told && (times > 1 || got.err == nil) { // what can't be mended now is said in a finding
						require.True(t, got.err == nil || errors.Is(got.err, faultstore.ErrInjected), "%v", got.err)
						for _, x := range got.found {
							is := func(w repair.Finding) bool { return w.Kind == x.Kind }
							left := x.Kind == repair.NoRoot && strings.Contains(at, "revive") // its root was not made
							told = left || slices.ContainsFunc(want.found, is)
							require.True(t, told, "%s: %d at %s: %s", d.name, times, at, x)
						}
						continue
					}
					// Movers try again by themselves; of a map clock all processes hear sooner or later.
					patient := !strings.Contains(at, ":") || strings.HasPrefix(at, "acknowledge") ||
						strings.Contains(at, "renew") || strings.Contains(at, "endMoves")
					require.True(t, times == 4 || patient, "%s: at %s", d.name, at)
					require.NoError(t, got.err, "%s: %d at %s", d.name, times, at)
					require.Equal(t, said(want.found), said(got.found), "%s: %d at %s", d.name, times, at)
				}
			}
		}
	}
	t.Logf("%d places", cases)
	require.Greater(t, cases, 100)
}

var names = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f-]{27}|[0-9T:+.-]*[0-9][0-9T:Z+.-]*`)

// said is what findings say, but for ids, times and numbers.
func said(found []repair.Finding) (out []string) {
	for _, x := range found {
		out = append(out, names.ReplaceAllString(fmt.Sprint(is(x.Kind, int(x.Count)), x.Text, x.Todo, x.Mended), "#"))
	}
	slices.Sort(out)
	return out
}

type outcome struct {
	found  []repair.Finding
	err    error
	places []string // that called the store
}

// failAt checks a store with a damage while the calls at one place fail so many times. Then it checks the store again
// without failures: what a mending check has left is mended, and nothing that clients have written is lost.
func failAt(t *testing.T, d *damage, mends bool, target string, times int) (r outcome) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memstore.New())
		d.do(f)
		before := f.contents()
		seen, inner := map[string]bool{}, f.s
		s, faults := faultstore.New(inner, faultstore.Options{Choose: func(op faultstore.Op, _ int) faultstore.Fault {
			at := place(op)
			if !seen[at] {
				seen[at], r.places = true, append(r.places, at)
			}
			if at != target || times == 0 {
				return faultstore.Fault{}
			}
			times--
			return faultstore.Fault{Ending: faultstore.Refused, Kind: store.Unavailable}
		}})
		faults.Enable(false)
		c, err := listing.New(s, listing.Options{})
		require.NoError(t, err)
		o := f.o
		o.Skew = tick
		both(d.tune)(&o)
		o.Repair, o.Parallel = o.Repair || mends, 1
		var mu sync.Mutex
		o.Report = func(x repair.Finding) {
			mu.Lock()
			defer mu.Unlock()
			r.found = append(r.found, x)
		}
		over, cancel := context.WithTimeout(t.Context(), 24*time.Hour)
		defer cancel()
		faults.Enable(true)
		_, r.err = repair.New(s, c, o).All(over)
		faults.Enable(false)
		if !mends || target == "" {
			return
		}
		found, sum := f.check(both(d.tune, mend))
		if d.mends {
			require.Zero(t, sum.Problems, "%s: %s: %v", d.name, target, found)
		}
		after := f.contents()
		for name, listed := range before {
			require.Subset(t, after[name], listed, "%s: %s: in %s", d.name, target, name)
		}
	})
	return r
}

// TestRowsThatADrainingMoveLacks: readers look at the destination alone, and the next step removes the rows from the
// source. A repair copies what is in the source only.
func TestRowsThatADrainingMoveLacks(t *testing.T) {
	f := newFixture(t, memstore.New())
	f.o.Skew = tick
	before := f.contents()
	f.begin(partmap.Move{Start: key(100), End: key(200), Parts: []partmap.Part{{Start: key(100), To: fresh()}}})
	for f.root(f.b).Batches[0].Phase != partmap.Draining {
		root := f.root(f.b)
		edit := mapclient.Of(f.c).Edit(ctx, root)
		require.NoError(t, edit.Advance(root.Batches[0].ID))
		change, err := edit.Change()
		require.NoError(t, err)
		require.NoError(t, mapclient.Of(f.c).Swap(ctx, change))
	}
	require.Len(t, f.contents()["b"], rows-rows/ranges)
	found, sum := f.check(nil)
	require.Equal(t, []string{is(repair.Moving, 1), is(repair.Uncopied, rows/ranges)}, kinds(found))
	require.EqualValues(t, 1, sum.Problems)
	found, sum = f.check(mend)
	require.Equal(t, []string{is(repair.Moving, 1), is(repair.Uncopied, rows/ranges)}, kinds(found))
	require.Zero(t, sum.Problems)
	require.EqualValues(t, rows/ranges, sum.Adopted)
	require.Equal(t, before, f.contents())
	found, _ = f.check(nil)
	require.Equal(t, []string{is(repair.Moving, 1)}, kinds(found))
}

// TestLargeRowsAreAdopted: rows that together are more than a store takes at once.
func TestLargeRowsAreAdopted(t *testing.T) {
	f := newFixture(t, memstore.New())
	f.o.Skew = tick
	p := store.Partition{Bucket: f.b, ID: fresh()}
	value := make([]byte, 60<<10)
	for i := range 100 {
		f.put(p, append(key(i), '+'), store.EntryCell(value), now())
	}
	found, sum := f.check(adopt(repair.AdoptAll))
	require.Zero(t, sum.Problems, "%v", found)
	require.EqualValues(t, 100, sum.Adopted)
	require.Len(t, f.contents()["b"], rows+100)
}

// TestHistoriesThatAreDamaged: an old root that can't be read hides those before it, which would show that a partition
// is the source of a move. What is left is the time of its rows.
func TestHistoriesThatAreDamaged(t *testing.T) {
	f := newFixture(t, memstore.New())
	f.o.Skew = tick
	p := f.partition(f.b, 1)
	f.move(move.Merge(nil, nil))
	f.swap(store.Roots, f.b[:], func(store.Version, []byte) []byte { return []byte("junk") })
	old, err := f.s.History(ctx, f.b, 1<<62, 100)
	require.NoError(t, err)
	require.NotEmpty(t, old)
	for _, rec := range old {
		root, err := partmap.DecodeRoot(f.b, rec)
		if err != nil {
			continue
		}
		f.swap(store.Roots, f.b[:], func(v store.Version, _ []byte) []byte {
			root.Epoch, root.Token = v.Epoch, v.Token
			again, err := partmap.EncodeRoot(root)
			require.NoError(t, err)
			return again.Blob
		})
		break
	}
	require.NotZero(t, f.root(f.b).Ranges, "the present root is whole again")
	f.put(p, key(110), store.EntryCell([]byte("old")), now()+100)
	found, _ := f.check(nil)
	for _, x := range found {
		if x.Kind == repair.Orphan {
			require.Contains(t, x.Text, "rows were written to it at")
			return
		}
	}
	t.Fatalf("%v", found)
}
