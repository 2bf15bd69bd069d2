package repair_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/door"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/rebalance/executor"
	"github.com/evenkeel/evenkeel/internal/rebalance/move"
	"github.com/evenkeel/evenkeel/internal/rebalance/repair"
	"github.com/evenkeel/evenkeel/internal/test/faulttest"
	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// event is one write of a key, begun and acknowledged at moments of the journal.
type event struct {
	value        string // empty: it was deleted
	begun, acked int
}

// past is a store's history: every write, with moves going on.
type past struct {
	j      *journal
	id     store.BucketID
	begin  int // the bucket is made and loaded
	swaps  []int
	events map[string][]event
}

// allowed are the values that a key may have in a copy of moments from the first to the last one; the empty one is
// none.
func (p *past) allowed(k string, first, last int) map[string]bool {
	out := map[string]bool{"": true}
	for _, e := range p.events[k] {
		if e.acked <= first {
			clear(out)
		}
		// A deletion that finds nothing is begun and acknowledged at one moment.
		if e.begun < last || e.acked <= first {
			out[e.value] = true
		}
	}
	return out
}

const tick = time.Microsecond // the skew of clocks: there is only one

// live writes such a history: clients put and delete, and in each step of each move
// they get something done.
func live(t *testing.T, s store.Store, r *rand.Rand, large bool, moves int) *past {
	j := newJournal(s)
	c, err := listing.New(j, listing.Options{})
	require.NoError(t, err)
	p := &past{j: j, events: map[string][]event{}}
	n, cuts := 200, [][]byte{key(60), key(120)}
	if large {
		cuts = nil
		for i := range 300 {
			cuts = append(cuts, key(i))
		}
	}
	require.NoError(t, c.CreateBucket(ctx, "b", cuts...))
	owner, err := door.Client(c).Owner(ctx, "b")
	require.NoError(t, err)
	p.id = owner.ID
	b := c.Bucket("b")
	write := func(k []byte, value string) error {
		e := event{value: value, begun: j.now()}
		var err error
		if value == "" {
			err = b.Delete(ctx, k)
		} else {
			err = b.Put(ctx, k, []byte(value))
		}
		e.acked = j.now()
		p.events[string(k)] = append(p.events[string(k)], e)
		return err
	}
	// purge deletes all keys from one up to another, as one call does.
	purge := func(from, to int, do func() error) {
		begun := j.now()
		if err := do(); err != nil {
			t.Errorf("a deletion of a range: %v", err)
		}
		for i := from; i < to; i++ {
			k := string(key(i))
			p.events[k] = append(p.events[k], event{begun: begun, acked: j.now()})
		}
	}
	for i := range n {
		require.NoError(t, write(key(i), "first"))
	}
	p.begin = j.now()
	// One writer: its writes are the steps of this history, and each of the mover's
	// steps waits for some of them.
	over, cancel := context.WithCancel(ctx)
	steps := make(chan struct{})
	var wg sync.WaitGroup
	wr := rand.New(rand.NewPCG(r.Uint64(), 2))
	wg.Go(func() {
		for i := 0; ; i++ {
			select {
			case steps <- struct{}{}:
			case <-over.Done():
				return
			}
			switch from := wr.IntN(n); wr.IntN(120) {
			case 0:
				purge(0, n, func() error { return b.DeletePrefix(ctx, []byte("key-")) })
			case 1:
				purge(from, n, func() error { return b.DeleteRange(ctx, key(from), nil) })
			case 2:
				time.Sleep(time.Millisecond) // all timestamps so far are over
				purge(0, n, func() error {
					_, err := door.Bucket(b).DeleteOlderUntil(ctx, nil, nil, now()-1, time.Time{})
					return err
				})
			}
			value := ""
			if wr.IntN(3) > 0 {
				value = fmt.Sprint(i)
			}
			if err := write(key(wr.IntN(n)), value); err != nil {
				t.Errorf("a write: %v", err)
			}
		}
	})
	f := &fixture{t: t, s: j, c: c}
	for i := range moves {
		x := executor.New(j, mapclient.Of(c), p.id, executor.Options{
			PageRows: 20, BatchRows: 7, CollectAfter: time.Nanosecond,
			Failpoint: func(context.Context, string, string) error {
				for range 3 {
					<-steps
				}
				return nil
			},
		})
		switch {
		case large || i > 3:
			x.Add(f.goals(p.id, r)...)
		case i%2 == 0:
			x.Add(move.Split(key(60), key(120), i/2, key(80), key(100)), move.Split(nil, key(60), -1, key(30)))
		default:
			x.Add(move.Merge(nil, key(60)), move.Merge(key(60), nil))
		}
		require.NoError(t, x.Run(ctx))
		for range 20 {
			<-steps
		}
	}
	cancel()
	wg.Wait()
	for i, o := range j.ops {
		if o.root == p.id && i >= p.begin {
			p.swaps = append(p.swaps, i+1)
		}
	}
	return p
}

// moment draws one: often one near a swap.
func (p *past) moment(r *rand.Rand) int {
	if r.IntN(4) > 0 {
		return p.near(r, p.swaps[r.IntN(len(p.swaps))])
	}
	return p.begin + r.IntN(len(p.j.ops)-p.begin+1)
}

func (p *past) near(r *rand.Rand, at int) int {
	return min(max(at+r.IntN(9)-4, p.begin), len(p.j.ops))
}

// phases are those in which the bucket was at a moment.
func (p *past) phases(at int) []partmap.Phase {
	for i := at - 1; i >= 0; i-- {
		if p.j.ops[i].root == p.id {
			return p.j.ops[i].phases
		}
	}
	return nil
}

// verify checks as a process that has just started.
func verify(t *testing.T, s store.Store, o repair.Options) ([]repair.Finding, repair.Summary, error) {
	c, err := listing.New(s, listing.Options{})
	require.NoError(t, err)
	var mu sync.Mutex
	var found []repair.Finding
	o.Skew, o.Sleep = tick, func(ctx context.Context, _ time.Duration) error { return ctx.Err() }
	o.Report = func(x repair.Finding) {
		mu.Lock()
		defer mu.Unlock()
		found = append(found, x)
	}
	within, cancel := context.WithCancel(ctx)
	defer cancel()
	if j, ok := s.(*journal); ok {
		j.cancel = cancel
	}
	sum, err := repair.New(s, c, o).All(within)
	return found, sum, err
}

// contains holds a store to what it was from one moment to another.
func (p *past) contains(t *testing.T, s store.Store, first, last int, when string) {
	c, err := listing.New(s, listing.Options{})
	require.NoError(t, err)
	got := map[string]string{}
	for e, err := range c.Bucket("b").All(ctx, listing.Query{}) {
		require.NoError(t, err)
		got[string(e.Key)] = string(e.Value)
	}
	for k := range p.events {
		require.Contains(t, p.allowed(k, first, last), got[k], "%s: %s", when, k)
		delete(got, k)
	}
	require.Empty(t, got)
}

// TestRestored is the matrix of restores: a copy of the registers and nodes of one
// moment beside one of the rows of another, before or after, in every phase of
// splits, merges and refreshes. What is asked for is more than that nothing older
// than both is lost: after the repair the bucket is what its rows were at their
// moment.
func TestRestored(t *testing.T) {
	overStores(t, func(t *testing.T, fresh func(t testing.TB) store.Store) {
		for _, large := range []bool{false, true} {
			t.Run(map[bool]string{false: "Small", true: "Large"}[large], func(t *testing.T) {
				t.Parallel()
				r := seed.New(t)
				s := fresh(t)
				defer s.Close()
				p := live(t, s, r, large, 6)
				met := map[string]int{}
				// Each phase of each move, with rows that are older and newer.
				_, fast := s.(memstore.Store)
				var sample faulttest.Sample
				for i := range 2 * len(p.swaps) {
					if !fast && i%8 > 1 {
						continue // each copy is a directory, and a process that opens it
					}
					var m [allKinds]int
					m[ofRegister] = p.swaps[i/2]
					if !fast || r.IntN(3) == 0 && len(met) == 12 {
						m[ofRegister] = p.near(r, m[ofRegister])
					}
					for m[ofRow] = p.moment(r); (m[ofRow] < m[ofRegister]) != (i%2 == 0) && r.IntN(20) > 0; {
						m[ofRow] = p.moment(r)
					}
					m[ofNode] = m[ofRegister]
					if r.IntN(3) == 0 {
						m[ofNode] = p.moment(r)
					}
					order := "rows older, map "
					if m[ofRow] >= m[ofRegister] {
						order = "rows newer, map "
					}
					phases := p.phases(m[ofRegister])
					for _, ph := range phases {
						met[order+ph.String()]++
					}
					if len(phases) == 0 {
						met[order+"quiet"]++
					}
					if sample.Skips() {
						continue
					}
					if !t.Run("", func(t *testing.T) { p.restored(t, fresh(t), r, m) }) {
						t.Fatalf("rows, registers, nodes of %d", m)
					}
				}
				t.Logf("%d ops, %d swaps, %v", len(p.j.ops), len(p.swaps), met)
				if fast {
					require.Len(t, met, 12, "both orders, in each phase and quiet")
				}
			})
		}
	})
}

func (p *past) restored(t *testing.T, s store.Store, r *rand.Rand, m [allKinds]int) {
	defer s.Close()
	rows := m[ofRow]
	p.j.copy(t, s, m)
	j := newJournal(s)
	wanted := repair.Options{PageRows: []int{7, 1000}[r.IntN(2)], Adopt: repair.AdoptNewer}
	if m[ofRegister] > rows || m[ofRegister] > m[ofNode] {
		wanted.Adopt = repair.AdoptAll
	}

	found, _, err := verify(t, j, repair.Options{})
	require.NoError(t, err)
	require.Zero(t, j.now(), "a look changes nothing")
	for _, x := range found {
		t.Log(x)
	}
	if r.IntN(3) == 0 {
		j.last = r.IntN(200)
		_, _, err = verify(t, j, wanted)
		t.Logf("interrupted after %d: %v", j.last, err)
		j.last = -1
	}
	found, sum, err := verify(t, j, wanted)
	require.NoError(t, err)
	for _, x := range found {
		t.Log("repair: ", x)
	}
	require.Zero(t, sum.Problems, "all is mended")
	p.contains(t, j, rows, rows, "repaired")
	before := j.now()
	found, sum, err = verify(t, j, wanted)
	require.NoError(t, err)
	require.Zero(t, sum.Problems+sum.Mended, "%v", found)
	require.Equal(t, before, j.now(), "a second repair changes nothing")

	// What moves goes on to its end.
	c, err := listing.New(j, listing.Options{})
	require.NoError(t, err)
	require.NoError(t, executor.New(j, mapclient.Of(c), p.id, executor.Options{}).Run(ctx))
	p.contains(t, j, rows, rows, "moved")
	for i := range 5 {
		require.NoError(t, c.Bucket("b").Put(ctx, key(i), []byte("again")))
		e, err := c.Bucket("b").Get(ctx, key(i))
		require.NoError(t, err)
		require.Equal(t, "again", string(e.Value))
	}
	require.NoError(t, executor.New(j, mapclient.Of(c), p.id, executor.Options{}).Run(ctx))
	found, sum, err = verify(t, j, repair.Options{})
	require.NoError(t, err)
	require.Zero(t, sum.Problems, "%v", found)
}

// TestRestoredApart is TestRestored with partitions that are of two moments each, as their nodes made their snapshots
// one after the other, without a pause: within the time in which no range is both copied and removed from its source,
// and only one move drains (docs/model/restore.pml). What was acknowledged before the first snapshot is there, and what
// was deleted before is not.
func TestRestoredApart(t *testing.T) {
	r := seed.New(t)
	s := memstore.New()
	defer s.Close()
	p := live(t, s, r, false, 6)
	for tried := 0; tried < 60; {
		first := p.moment(r)
		last := min(first+r.IntN(150), len(p.j.ops))
		if !p.together(first, last) {
			continue
		}
		tried++
		later := map[store.PartitionID]bool{}
		maps := []int{first, last}[r.IntN(2)]
		restored := newJournal(memstore.New())
		p.j.copyApart(t, restored.Store, func(o *op) int {
			switch {
			case o.kind == ofRegister:
				return maps
			case o.kind == ofNode:
				return last
			}
			if _, drawn := later[o.at]; !drawn {
				later[o.at] = r.IntN(2) == 0
			}
			if later[o.at] {
				return last
			}
			return first
		})
		found, _, err := verify(t, restored, repair.Options{Adopt: repair.AdoptAll})
		require.NoError(t, err)
		var kept []store.PartitionID
		for _, x := range found {
			if x.Open() { // a removal without a note hides its rows, and markers may have to hide them
				kinds := []repair.Kind{repair.Orphan, repair.Uncopied, repair.Misplaced, repair.LeftMarker}
				require.Contains(t, kinds, x.Kind, "%s", x)
				kept = append(kept, x.Partition)
			}
		}
		p.contains(t, restored, first, last, fmt.Sprintf("from %d to %d, maps of %d", first, last, maps))
		c, err := listing.New(restored, listing.Options{})
		require.NoError(t, err)
		require.NoError(t, executor.New(restored, mapclient.Of(c), p.id, executor.Options{}).Run(ctx))
		p.contains(t, restored, first, last, "moves ended")
		found, sum, err := verify(t, restored, repair.Options{Adopt: repair.AdoptAll, Discard: kept})
		require.NoError(t, err)
		require.Zero(t, sum.Problems, "%v", found)
		p.contains(t, restored, first, last, "what a deletion of a range hides was discarded")
		require.NoError(t, restored.Store.Close())
	}
}

// together reports whether two moments are as near to each other as TestRestoredApart says: what drains between them
// had been copied before.
func (p *past) together(first, last int) bool {
	before := p.phases(first)
	copied := !slices.Contains(before, partmap.Marking) && !slices.Contains(before, partmap.Copying) &&
		slices.Contains(before, partmap.Verifying)
	drains := 0
	if slices.Contains(before, partmap.Draining) {
		drains = 1
	}
	for _, at := range p.swaps {
		if at > first && at <= last && slices.Contains(p.phases(at), partmap.Draining) {
			if drains++; !copied {
				return false
			}
		}
	}
	return drains <= 1
}
