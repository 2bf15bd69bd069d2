package scheduler_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/rebalance/scheduler"
	"github.com/evenkeel/evenkeel/internal/test/faultstore"
	"github.com/evenkeel/evenkeel/internal/test/faulttest"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// counted is a store that notes how the reads of rows are made.
type counted struct {
	store.Store
	mu    sync.Mutex
	pages []store.SliceOptions
	fails []error // the next ones, then none
}

func (c *counted) Slice(
	ctx context.Context, p store.Partition, b store.Bounds, o store.SliceOptions,
) (store.Page, error) {
	c.mu.Lock()
	c.pages = append(c.pages, o)
	var err error
	if len(c.fails) > 0 {
		err, c.fails = c.fails[0], c.fails[1:]
	}
	c.mu.Unlock()
	if err != nil {
		return store.Page{}, err
	}
	return c.Store.Slice(ctx, p, b, o)
}

func (c *counted) since() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, c.pages = len(c.pages), nil
	return n
}

// asks are one of each kind, on a bucket with 2,500 keys and cuts at key-00100 and zz.
func asks(now time.Time) map[string]scheduler.Ask {
	return map[string]scheduler.Ask{
		"split":      {Kind: scheduler.Split, Keys: [][]byte{key(50), key(1200), key(1201), key(2000)}},
		"presplit":   {Kind: scheduler.Presplit, Keys: [][]byte{key(50), key(100), key(2000), []byte("zzz")}},
		"merge":      {Kind: scheduler.Merge, Spans: spans("", "key-00100", "key-00100", "zz")},
		"merge all":  {Kind: scheduler.Merge, Spans: spans("key-00100", "zz", "zz", "", "", "key-00100")},
		"refresh":    {Kind: scheduler.Refresh},
		"refresh it": {Kind: scheduler.Refresh, Spans: spans("key-00100", "zz")},
		"append": {
			Kind: scheduler.Presplit, PinUntil: now.Add(time.Hour),
			Append: &scheduler.Append{RowsPerSecond: 100, ForS: 100, MaxRows: 1000},
		},
	}
}

// planned is a bucket as asks means it.
func planned(t *testing.T, s store.Store) *fixture {
	f := newFixture(t, s, 1, 2500)
	g := scheduler.New(f.s, mapclient.Of(f.c), scheduler.Options{})
	end := runs(t, g)
	cuts := scheduler.Ask{Kind: scheduler.Presplit, Keys: bs("key-00100", "zz")}
	require.NoError(t, f.finished(g, f.ask(g, f.ids[0], cuts).ID).Err())
	time.Sleep(time.Second)
	end()
	return f
}

// TestPlansOfAsks are these: what they move, how many rows that are, which part stays, and what is not moved.
func TestPlansOfAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := planned(t, memstore.New())
		g := scheduler.New(f.s, mapclient.Of(f.c), scheduler.Options{})
		look := func(a scheduler.Ask) (out []string) {
			p, err := g.Plan(t.Context(), f.ids[0], a)
			require.NoError(t, err)
			for _, m := range p.Moves {
				out = append(out, fmt.Sprintf("[%s, %s) at %q: %d rows, %d move, part %d stays", m.Start, m.End, m.Cuts,
					m.Rows, m.Copies, m.Stay))
			}
			return append(out, p.Notes...)
		}
		for name, want := range map[string][]string{
			"split": {
				`[, key-00100) at ["key-0005"]: 100 rows, 50 move, part 0 stays`,
				`[key-00100, zz) at ["key-012" "key-01201" "key-02"]: 2400 rows, 1300 move, part 0 stays`,
			},
			"presplit": {
				`[, key-00100) at ["key-00050"]: 100 rows, 50 move, part 0 stays`,
				`[key-00100, zz) at ["key-02000"]: 2400 rows, 500 move, part 0 stays`,
				`[zz, ) at ["zzz"]: 0 rows, 0 move, part 0 stays`,
				"a cut is there already at key-00100",
			},
			"merge":     {`[, zz) at []: 2500 rows, 2500 move, part -1 stays`},
			"merge all": {`[, ) at []: 2500 rows, 2500 move, part -1 stays`},
			"refresh": {
				`[, key-00100) at []: 100 rows, 100 move, part -1 stays`,
				`[key-00100, zz) at []: 2400 rows, 2400 move, part -1 stays`,
				`[zz, ) at []: 0 rows, 0 move, part -1 stays`,
			},
			"refresh it": {`[key-00100, zz) at []: 2400 rows, 2400 move, part -1 stays`},
		} {
			require.Equal(t, want, look(asks(time.Now())[name]), name)
		}
		split := func(keys ...string) []string { return look(scheduler.Ask{Kind: scheduler.Split, Keys: bs(keys...)}) }
		below := []string{`[, key-00100) at ["a"]: 100 rows, 0 move, part 1 stays`}
		require.Equal(t, below, split("a"), "below the first key")
		require.Equal(t, []string{
			`[, key-00100) at ["a"]: 100 rows, 0 move, part 1 stays`,
			"no key lies between two of the given ones, b being the higher: one cut is enough",
		}, split("a", "b"))
		require.Equal(t, []string{"there is a cut at key-00100 already"}, split("key-00100", "key-00100"))
		require.Equal(t, []string{`[zz, ) at ["zzz"]: 0 rows, 0 move, part 0 stays`}, split("zzz"), "an empty range")

		longest := strings.Repeat("z", store.MaxKeyBytes)
		require.Len(t, look(scheduler.Ask{Kind: scheduler.Presplit, Keys: bs(longest)}), 1, "the longest key")

		// One that is pinned, and kept by a presplit; the limit of a merge is its own.
		pin := scheduler.Ask{Kind: scheduler.Presplit, Keys: bs("key-00100", "zz"), PinUntil: time.Now().Add(time.Hour)}
		kept := []string{"a cut is there already at key-00100 and at 1 others, and keeps the pin that it has"}
		require.Equal(t, kept, look(pin))
		merge := scheduler.Ask{Kind: scheduler.Merge, Spans: spans("", "zz"), MaxRows: 2500}
		require.Len(t, look(merge), 1)
		merge.MaxRows--
		_, err := g.Plan(t.Context(), f.ids[0], merge)
		require.ErrorIs(t, err, invalid)
		merge.Force = true
		require.Len(t, look(merge), 1)
		for what, until := range map[string]time.Time{"now": time.Now(), "over": time.Now().Add(-1)} {
			pin.PinUntil = until
			_, err = g.Plan(t.Context(), f.ids[0], pin)
			require.ErrorIs(t, err, invalid, what)
			require.ErrorContains(t, err, "is over already", what)
		}
	})
}

// TestAsksOfBucketsThatGo are refused, and say whether it is worth to ask again.
func TestAsksOfBucketsThatGo(t *testing.T) {
	f := newFixture(t, memstore.New(), 1, 1)
	g := scheduler.New(f.s, mapclient.Of(f.c), scheduler.Options{})
	for _, c := range []struct {
		state partmap.State
		kind  store.Kind
	}{{partmap.Closing, store.Unavailable}, {partmap.Deleted, store.NotFound}} {
		root, err := mapclient.Of(f.c).Load(t.Context(), f.ids[0])
		require.NoError(t, err)
		change, err := mapclient.WithState(root, c.state, mapclient.Of(f.c).Stamp())
		require.NoError(t, err)
		require.NoError(t, mapclient.Of(f.c).Swap(t.Context(), change))
		_, err = g.Plan(t.Context(), f.ids[0], scheduler.Ask{Kind: scheduler.Refresh})
		require.Equal(t, c.kind, store.KindOf(err), err)
	}
}

// TestEachReadOfAPlanFails in turn: the plan is then the one that there is without a failure, or there is none.
func TestEachReadOfAPlanFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := memstore.New()
		f := planned(t, inner)
		for name, a := range asks(time.Now()) {
			failed := 0
			plan := func(c faulttest.Case) (string, map[faultstore.Op]int) {
				s, faults := c.Store(inner)
				client, err := listing.New(s, listing.Options{})
				require.NoError(t, err)
				defer mapclient.Of(client).Close()
				faults.Enable(true)
				p, err := scheduler.New(s, mapclient.Of(client), scheduler.Options{}).Plan(t.Context(), f.ids[0], a)
				faults.Enable(false)
				if err != nil {
					failed++
					require.ErrorIs(t, err, faultstore.ErrInjected, name)
					require.Nil(t, p)
					return "", nil
				}
				text, err := json.Marshal(p)
				require.NoError(t, err)
				return string(text), faulttest.Calls(faults)
			}
			want, calls := plan(faulttest.Case{})
			require.Zero(t, failed, name)
			for op, n := range calls {
				for _, way := range faulttest.Ways() {
					for nth := 1; nth <= n && way.Only == nil && !way.Passing(); nth++ {
						if got, _ := plan(faulttest.Case{Op: op, Nth: nth, Way: &way}); got != "" {
							require.Equal(t, want, got, name)
						}
					}
				}
			}
			require.Positive(t, failed, name)
		}
	})
}

// TestRowsAreCountedInPages, of a thousand; of a page that fails in passing three more tries are made.
func TestRowsAreCountedInPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &counted{Store: memstore.New()}
		f := planned(t, s)
		g := scheduler.New(f.s, mapclient.Of(f.c), scheduler.Options{})
		refresh := asks(time.Now())["refresh it"]
		away, slow := store.Errorf(store.Unavailable, "it is away"), store.Errorf(store.Timeout, "it is slow")
		damaged := store.Errorf(store.Corrupt, "it is damaged")
		for _, c := range []struct {
			fails []error
			pages int
			err   error
		}{
			{nil, 3, nil},
			{[]error{away}, 4, nil},
			{[]error{away, slow, away}, 6, nil},
			{[]error{nil, slow, nil, away}, 5, nil},
			{[]error{away, slow, away, slow}, 4, slow},
			{[]error{damaged}, 1, damaged},
			{[]error{nil, away, damaged}, 3, damaged},
		} {
			s.since()
			s.fails = c.fails
			p, err := g.Plan(t.Context(), f.ids[0], refresh)
			require.ErrorIs(t, err, c.err)
			if err == nil {
				require.EqualValues(t, 2400, p.Moves[0].Rows)
			}
			require.Equal(t, c.pages, s.since(), "%v", c.fails)
			require.Empty(t, s.fails)
		}
		p, err := g.Plan(t.Context(), f.ids[0], asks(time.Now())["append"])
		require.NoError(t, err)
		require.Equal(t, 2500, p.Learned.Keys)
	})
}

// rangeless is the maps of a store in which a map names no range.
type rangeless struct{ scheduler.Maps }

func (rangeless) Ranges(context.Context, *partmap.Root, []byte) iter.Seq2[partmap.Range, error] {
	return func(func(partmap.Range, error) bool) {}
}

// TestAMapWithoutRangesIsDamaged, and no range of it is taken for one.
func TestAMapWithoutRangesIsDamaged(t *testing.T) {
	f := newFixture(t, memstore.New(), 1, 1)
	g := scheduler.New(f.s, rangeless{mapclient.Of(f.c)}, scheduler.Options{})
	for _, kind := range []scheduler.Kind{scheduler.Split, scheduler.Presplit} {
		_, err := g.Plan(t.Context(), f.ids[0], scheduler.Ask{Kind: kind, Keys: bs("m")})
		require.Equal(t, store.Corrupt, store.KindOf(err), kind)
	}
	load := &scheduler.Append{RowsPerSecond: 1, ForS: 100, MaxRows: 1000}
	_, err := g.Plan(t.Context(), f.ids[0], scheduler.Ask{Kind: scheduler.Presplit, Append: load})
	require.Equal(t, store.Corrupt, store.KindOf(err))
}

// TestPinsEnd at their second: then what they kept apart is merged again.
func TestPinsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memstore.New(), 1, 10)
		g := scheduler.New(f.s, mapclient.Of(f.c), scheduler.Options{})
		end := runs(t, g)
		until := time.Now().Add(time.Minute).Truncate(time.Second)
		pin := scheduler.Ask{Kind: scheduler.Presplit, Keys: bs("key-00005"), PinUntil: until}
		require.NoError(t, f.finished(g, f.ask(g, f.ids[0], pin).ID).Err())
		merge := scheduler.Ask{Kind: scheduler.Merge, Spans: spans("", "")}
		time.Sleep(time.Until(until) - 1)
		_, err := g.Plan(t.Context(), f.ids[0], merge)
		require.ErrorContains(t, err, "pinned until")
		time.Sleep(time.Nanosecond)
		p, err := g.Plan(t.Context(), f.ids[0], merge)
		require.NoError(t, err)
		require.Len(t, p.Moves, 1)
		end()
	})
}
