package livemoves

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/cells"
	"github.com/evenkeel/evenkeel/internal/rebalance/executor"
	"github.com/evenkeel/evenkeel/internal/rebalance/move"
	"github.com/evenkeel/evenkeel/internal/test/history"
	"github.com/evenkeel/evenkeel/internal/test/realkeys"
	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
)

// TestMovesUnderLoad splits one partition into twelve, merges neighbours and
// refreshes one, while writers, readers and listers of several sessions go on.
// Nobody meets an error, every history is one of a correct store, and no more
// rows are copied than the plan says and were written meanwhile.
//
// EVENKEEL_LIVE_ROWS is the number of rows (default 60,000), EVENKEEL_LIVE_LEASE
// that of milliseconds of a lease (default 1,000).
func TestMovesUnderLoad(t *testing.T) {
	const parts = 12
	rows := setting(t, "EVENKEEL_LIVE_ROWS", 60_000)
	seed := seed.Number(t)
	t.Logf("%d rows", rows)
	k := newKeyspace(t, time.Duration(setting(t, "EVENKEEL_LIVE_LEASE", 1000))*time.Millisecond)
	first := k.process(t, listing.Options{})
	require.NoError(t, first.client.CreateBucket(t.Context(), bucketName))
	keys := realkeys.Collect(rows, seed)
	begin := time.Now()
	first.load(t, keys, staticValue)
	t.Logf("loaded in %v", time.Since(begin).Round(time.Second))

	w := &world{keys: keys, rec: &history.Recorder{}, seed: seed}
	for i := range 3 { // whose own clocks differ
		p := k.processAt(t, time.Duration(i-1)*300*time.Millisecond, w.rec.Timestamps)
		w.processes = append(w.processes, p)
	}
	r := rand.New(rand.NewPCG(seed, 1))
	for range 400 {
		w.hot = append(w.hot, string(keys[r.IntN(len(keys))])+"~hot")
	}
	slices.Sort(w.hot)
	w.hot = slices.Compact(w.hot)

	mover := k.process(t, listing.Options{})
	x := executor.New(mover.store, mover.maps, mover.id(t), executor.Options{Observe: func(e executor.Event) {
		if e.Kind == executor.GoalRefused {
			t.Errorf("refused: %v", e.Err)
		}
	}})
	moved := func(what string, planned int, goals ...move.Goal) {
		writes, before, begin := w.writes.Load(), x.Progress(), time.Now()
		x.Add(goals...)
		require.NoError(t, x.Run(t.Context()))
		copied := int(x.Progress().Copied - before.Copied)
		meanwhile := int(w.writes.Load() - writes)
		t.Logf("%s: %d rows copied, %d planned, %d writes meanwhile, in %v", what, copied, planned, meanwhile,
			time.Since(begin).Round(10*time.Millisecond))
		require.InDelta(t, planned, copied, float64(meanwhile+len(w.hot)), "%s: rows copied", what)
	}
	stop := w.start(t)
	cuts := realkeys.Cuts(keys, parts-1)
	below := func(key []byte) int {
		return sort.Search(len(keys), func(i int) bool { return bytes.Compare(keys[i], key) >= 0 })
	}
	moved("split", rows-below(cuts[0]), move.Split(nil, nil, 0, cuts...))
	require.Len(t, mover.ranges(t), parts)
	moved("merge", below(cuts[3])-below(cuts[1])+below(cuts[7])-below(cuts[5]), move.Merge(cuts[1], cuts[3]),
		move.Merge(cuts[5], cuts[7]))
	ranges := mover.ranges(t)
	require.Len(t, ranges, parts-2)
	moved("refresh", below(ranges[5].End)-below(ranges[5].Start), move.Refresh(&ranges[5]))
	time.Sleep(k.lease)
	stop()

	require.NotZero(t, w.lists.Load())
	t.Logf("%d writes, %d gets, %d listings of %d pages", w.writes.Load(), w.gets.Load(), w.lists.Load(),
		w.pages.Load())
	h := w.rec.History()
	require.Empty(t, h.Check())
	require.Empty(t, h.Overtaken())
	require.Empty(t, h.Linearizable(history.HighestWins, 20*time.Second))
	w.lastly(t, first)
}

// world is what clients do to a bucket: static keys are there throughout, hot
// ones are put, deleted and read all the time.
type world struct {
	processes []*process
	keys      [][]byte // static, sorted
	hot       []string // sorted
	rec       *history.Recorder
	seed      uint64

	writes, gets, lists, pages atomic.Int64
}

// start lets all clients work until the function that it returns is called.
func (w *world) start(t *testing.T) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var g sync.WaitGroup
	begin := func(n uint64, work func(r *rand.Rand, p *process) error) {
		p := w.processes[int(n)%len(w.processes)]
		g.Go(func() {
			r := rand.New(rand.NewPCG(w.seed, n))
			for ctx.Err() == nil {
				if err := work(r, p); err != nil {
					t.Errorf("client %d: %v", n, err)
					return
				}
			}
		})
	}
	// Calls under way come to their end: an interrupted one would be unknown.
	calls := context.WithoutCancel(ctx)
	for n := range uint64(4) {
		begin(n, func(r *rand.Rand, p *process) error { return w.write(calls, r, p) })
	}
	begin(10, func(r *rand.Rand, p *process) error { return w.get(calls, r, p) })
	for n := range uint64(2) {
		begin(20+n, func(r *rand.Rand, p *process) error { return w.list(calls, r, p) })
	}
	return func() {
		cancel()
		g.Wait()
	}
}

func (w *world) write(ctx context.Context, r *rand.Rand, p *process) error {
	key := w.hot[r.IntN(len(w.hot))]
	w.writes.Add(1)
	time.Sleep(time.Millisecond) // others have to get on, too
	if r.IntN(3) == 0 {
		return w.rec.Delete(ctx, "", key, func(ctx context.Context) error { return p.bucket.Delete(ctx, []byte(key)) })
	}
	return w.rec.Put(ctx, "", key,
		func(ctx context.Context, value []byte) error { return p.bucket.Put(ctx, []byte(key), value) })
}

func (w *world) get(_ context.Context, r *rand.Rand, p *process) error {
	w.gets.Add(1)
	if r.IntN(2) == 0 {
		key := w.keys[r.IntN(len(w.keys))]
		e, err := p.bucket.Get(context.Background(), key)
		if err == nil && !bytes.Equal(e.Value, staticValue(key)) {
			err = fmt.Errorf("get %q: another value: %.80q", key, e.Value)
		}
		return err
	}
	key := w.hot[r.IntN(len(w.hot))]
	return w.rec.Get("", key, func() ([]byte, bool, error) {
		e, err := p.bucket.Get(context.Background(), []byte(key))
		if errors.Is(err, listing.ErrNotFound) {
			return nil, false, nil
		}
		return e.Value, err == nil, err
	})
}

// list reads a span of keys to its end. Hot keys go to the history; of static ones
// every one has to be there.
func (w *world) list(ctx context.Context, r *rand.Rand, p *process) error {
	span := min(len(w.keys), 200+r.IntN(8000))
	from := r.IntN(len(w.keys) - span + 1)
	static := slices.Clone(w.keys[from : from+span])
	q := listing.Query{
		From: static[0], To: slices.Concat(static[span-1], []byte{0}), Limit: 100 + r.IntN(900),
		Reverse: r.IntN(3) == 0,
	}
	if q.Reverse {
		slices.Reverse(static)
	}
	w.lists.Add(1)
	l := history.Listing{From: string(q.From), To: string(q.To), Reverse: q.Reverse}
	err := w.rec.List(l, func() ([]history.Item, bool, error) {
		page, err := p.bucket.List(ctx, q)
		if err != nil {
			return nil, false, err
		}
		w.pages.Add(1)
		var hot []history.Item
		for _, item := range page.Items {
			if key := string(item.Key); strings.HasSuffix(key, "~hot") {
				hot = append(hot, history.Item{Key: key, Value: string(item.Value)})
				continue
			}
			if len(static) == 0 || !bytes.Equal(item.Key, static[0]) ||
				!bytes.Equal(item.Value, staticValue(item.Key)) {
				return nil, false, fmt.Errorf("listed %q as %.80q; next is %q", item.Key, item.Value,
					static[:min(1, len(static))])
			}
			static = static[1:]
		}
		q.Token = page.Next
		return hot, q.Token != "", nil
	}, nil)
	if err == nil && len(static) > 0 {
		err = fmt.Errorf("a listing from %q to %q ended before %q", q.From, q.To, static[0])
	}
	return err
}

// lastly compares the whole listing with what has to be there, and each partition
// with the map.
func (w *world) lastly(t *testing.T, p *process) {
	ctx := t.Context()
	var want [][]byte
	for _, key := range w.hot {
		if _, err := p.bucket.Get(ctx, []byte(key)); err == nil {
			want = append(want, []byte(key))
		} else {
			require.ErrorIs(t, err, listing.ErrNotFound)
		}
	}
	want = append(want, w.keys...)
	slices.SortFunc(want, bytes.Compare)
	i := 0
	for item, err := range p.bucket.All(ctx, listing.Query{KeysOnly: true}) {
		require.NoError(t, err)
		if i >= len(want) || !bytes.Equal(item.Key, want[i]) {
			t.Fatalf("item %d of the whole listing is %q", i, item.Key)
		}
		i++
	}
	require.Equal(t, len(want), i)
	id, rows := p.id(t), 0
	entries := executor.WithoutNotes(p.store) // ranges that have left a partition leave notes there
	for _, rg := range p.ranges(t) {
		require.True(t, rg.To.IsZero(), "still moving")
		b := store.Bounds{}
		for {
			page, err := entries.Slice(ctx, store.Partition{Bucket: id, ID: rg.Partition}, b,
				store.SliceOptions{Limit: 5000})
			require.NoError(t, err)
			for _, row := range page.Rows {
				require.True(t, rg.Contains(row.Key), "%q is in a partition of another range", row.Key)
				require.False(t, cells.IsMarker(row.Value), "%q: a marker was left behind", row.Key)
			}
			rows += len(page.Rows)
			if !page.More {
				break
			}
			b = store.Bounds{Start: page.Rows[len(page.Rows)-1].Key, StartExclusive: true}
		}
	}
	require.Equal(t, len(want), rows, "rows in all partitions")
}
