package listtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/cells"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// model tests random operations, queries and steps of moves, one after the other. So the ranges of the bucket are in
// all phases of moves, half copied or overwritten. model compares each answer with the right one.
func model(t *testing.T, e *Env, r *rand.Rand, o Options) {
	newModel(t, e, r, o.Keys).run(o.Steps)
}

type modelTest struct {
	t   *testing.T
	ctx context.Context
	e   *Env
	r   *rand.Rand
	u   *universe
	o   *oracle
	b   *listing.Bucket
	m   *mover
	// late are writes that an expired client began while the range was in the phase marking. They go to the source of
	// the move, whenever they arrive.
	late []lateWrite
	// fallback has the state of each key before a late write arrived at its source. Until a client has read the key,
	// the late write may vanish together with the source.
	fallback map[string]state
	// The counters of what the run did, for the log.
	lists, gets, puts, failed, arrived int
}

type lateWrite struct {
	key  string
	from store.PartitionID
	row  store.Row
}

func newModel(t *testing.T, e *Env, r *rand.Rand, keys int) *modelTest {
	x := &modelTest{t: t, ctx: context.Background(), e: e, r: r, o: newOracle(), fallback: map[string]state{}}
	x.u = newUniverse(r, keys, 1024)
	x.u.keys = append(x.u.keys, bytes.Repeat([]byte("a/"), 32767), bytes.Repeat([]byte{0xff}, store.MaxKeyBytes))
	var cuts [][]byte
	for range r.IntN(8) {
		cuts = append(cuts, x.u.key())
	}
	require.NoError(t, e.Client.CreateBucket(x.ctx, "model", cuts...))
	x.b = e.Client.Bucket("model")
	x.m = newMover(e, bucketID(t, e, "model"), r)
	x.m.onDraining = x.settleLate
	return x
}

// bucketID returns the id of the bucket called name, from the list of buckets.
func bucketID(t *testing.T, e *Env, name string) store.BucketID {
	for info, err := range e.Client.Buckets(context.Background(), name, "") {
		require.NoError(t, err)
		if info.Name == name {
			return info.ID
		}
	}
	t.Fatalf("the bucket %q is not on the list", name)
	return store.BucketID{}
}

func (x *modelTest) run(steps int) {
	for range steps {
		x.faults(true)
		switch p := x.r.IntN(100); {
		case p < 15:
			x.put()
		case p < 25:
			x.delete()
		case p < 28:
			x.putBatch()
		case p < 35:
			x.get(string(x.u.key()))
		case p < 65:
			x.list(x.u.query())
		case p < 95:
			x.move()
		default:
			x.deliver()
		}
	}
	x.faults(false)
	require.NoError(x.t, x.m.finish(x.ctx))
	x.list(listing.Query{})
	x.list(listing.Query{Reverse: true})
	x.t.Logf("%d puts and deletes, %d gets, %d lists, %d failed, %d late writes; steps by phase: %v", x.puts, x.gets,
		x.lists, x.failed, x.arrived, x.m.reached)
}

func (x *modelTest) faults(on bool) {
	if x.e.Faults != nil {
		x.e.Faults(on)
	}
}

// mayFail reports whether err is an error that the faults of the store explain. Any other error fails the test.
func (x *modelTest) mayFail(err error) bool {
	if err == nil {
		return false
	}
	if x.e.Faults == nil {
		require.NoError(x.t, err)
	}
	if k := store.KindOf(err); k != store.Unavailable && k != store.Timeout {
		require.NoError(x.t, err)
	}
	x.failed++
	return true
}

func (x *modelTest) value() string {
	switch x.r.IntN(10) {
	case 0:
		return ""
	case 1:
		return string(bytes.Repeat([]byte{0}, x.r.IntN(300)))
	}
	return fmt.Sprint("v", x.r.Uint32())
}

func (x *modelTest) put() {
	key, value := string(x.u.key()), x.value()
	x.write(key, state{live: true, value: value}, func() error { return x.b.Put(x.ctx, []byte(key), []byte(value)) })
}

func (x *modelTest) delete() {
	key := string(x.u.key())
	x.write(key, state{}, func() error { return x.b.Delete(x.ctx, []byte(key)) })
}

// write does one write. If the outcome is unknown, the key has its old or its new state, and the write is then done
// again.
func (x *modelTest) write(key string, next state, do func() error) {
	x.puts++
	err := do()
	if x.mayFail(err) {
		x.faults(false)
		got, old := x.read(key), x.o.keys[key]
		if !same(got, old) && !(errors.Is(err, listing.ErrOutcomeUnknown) && same(got, next)) {
			x.t.Fatalf("%q is %v after a write that failed (%v); it was %v and would have become %v", key, got, err,
				old, next)
		}
		require.NoError(x.t, do())
	}
	next.ts = x.e.Clock.Last()
	x.o.keys[key] = next
	delete(x.fallback, key)
}

func same(a, b state) bool { return a.live == b.live && a.value == b.value }

func (x *modelTest) putBatch() {
	var entries []listing.Entry
	for range x.r.IntN(40) {
		entries = append(entries, listing.Entry{Key: x.u.key(), Value: []byte(x.value())})
	}
	x.puts += len(entries)
	if err := x.b.PutBatch(x.ctx, entries); err != nil {
		var batch *listing.BatchError
		require.ErrorAs(x.t, err, &batch)
		require.Len(x.t, batch.Outcomes, len(entries))
		x.mayFail(err)
		x.faults(false)
		require.NoError(x.t, x.b.PutBatch(x.ctx, entries))
	}
	for _, e := range entries {
		x.o.put(string(e.Key), string(e.Value), x.e.Clock.Last())
		delete(x.fallback, string(e.Key))
	}
}

// read returns the state of a key, as the client reads it.
func (x *modelTest) read(key string) state {
	e, err := x.b.Get(x.ctx, []byte(key))
	if errors.Is(err, listing.ErrNotFound) {
		return state{}
	}
	require.NoError(x.t, err)
	require.Equal(x.t, key, string(e.Key))
	return state{live: true, value: string(e.Value)}
}

func (x *modelTest) get(key string) {
	x.gets++
	e, err := x.b.Get(x.ctx, []byte(key))
	got := state{live: err == nil, value: string(e.Value)}
	if err != nil && !errors.Is(err, listing.ErrNotFound) && x.mayFail(err) {
		return
	}
	if want := x.o.keys[key]; !same(got, want) {
		x.t.Fatalf("get %q: %v, want %v", key, got, want)
	}
	delete(x.fallback, key) // shown: it stays
}

// list reads all pages of a listing and checks them. Between two pages it may do a step of a move.
func (x *modelTest) list(q listing.Query) {
	x.lists++
	want := x.o.list(q)
	limit := q.Limit
	if limit == 0 {
		limit = 1000
	}
	for at := 0; ; {
		page, err := x.b.List(x.ctx, q)
		if x.mayFail(err) {
			return
		}
		require.LessOrEqual(x.t, len(page.Items), limit)
		for i, item := range page.Items {
			if at+i >= len(want) {
				x.t.Fatalf("%s: %q is too much", show(q), item.Key)
			}
			if got := lineOf(item); got != want[at+i] {
				x.t.Fatalf("%s: item %d is %s, want %s", show(q), at+i, clip(got), clip(want[at+i]))
			}
			if !item.CommonPrefix {
				delete(x.fallback, string(item.Key))
			}
		}
		at += len(page.Items)
		if page.Next == "" {
			if at < len(want) {
				x.t.Fatalf("%s: it ends before %s", show(q), clip(want[at]))
			}
			return
		}
		q.Token = page.Next
		if x.r.IntN(3) == 0 { // the token knows
			q.After = nil
			if q.Reverse {
				q.To = nil
			} else {
				q.From = nil
			}
		}
		if x.r.IntN(2) == 0 && x.e.Faults == nil && len(x.fallback) == 0 {
			x.move()
		}
	}
}

func show(q listing.Query) string {
	return fmt.Sprintf("prefix %.40q delimiter %q from %.40q to %.40q after %.40q limit %d reverse %v", q.Prefix,
		q.Delimiter, q.From, q.To, q.After, q.Limit, q.Reverse)
}

func clip(l line) string { return fmt.Sprintf("%.60q=%.20q (prefix %v)", l.key, l.value, l.prefix) }

// move begins a move of ranges, or does a step of one.
func (x *modelTest) move() {
	x.faults(false)
	if len(x.m.moves) < 3 && x.r.IntN(10) == 0 {
		_, err := x.m.begin(x.ctx, x.u.key)
		require.NoError(x.t, err)
	}
	if _, err := x.m.step(x.ctx); err != nil {
		require.NoError(x.t, err)
	}
	if len(x.m.moves) > 0 && x.r.IntN(2) == 0 {
		x.sendLate()
	}
}

// rangeOf returns the range of a key in the newest map.
func (x *modelTest) rangeOf(key string) partmap.Range {
	root, err := x.e.Maps.Load(x.ctx, x.m.id)
	require.NoError(x.t, err)
	for rg, err := range x.e.Maps.Ranges(x.ctx, root, []byte(key)) {
		require.NoError(x.t, err)
		return rg
	}
	panic("a map without ranges")
}

// sendLate begins a write of a client that never continues, in a range that is in the phase marking. The write is a put
// or a marker of a delete, on its way to the source of the move.
func (x *modelTest) sendLate() {
	if len(x.late) > 30 {
		return
	}
	var key string
	var rg partmap.Range
	for range 20 {
		key = string(x.u.key())
		if rg = x.rangeOf(key); rg.Phase == partmap.Marking {
			break
		}
	}
	if rg.Phase != partmap.Marking {
		return
	}
	row := store.Row{
		Key: []byte(key), Value: store.EntryCell([]byte("late " + fmt.Sprint(x.r.Uint32()))),
		Timestamp: x.e.Clock.Draw(),
	}
	if x.r.IntN(3) == 0 {
		row.Value = cells.Marker()
	}
	x.late = append(x.late, lateWrite{key: key, from: rg.Partition, row: row})
}

// deliver lets a random late write arrive.
func (x *modelTest) deliver() {
	x.faults(false)
	if len(x.late) == 0 {
		return
	}
	i := x.r.IntN(len(x.late))
	for range 10 { // rather when the range is verifying: then it matters most
		if x.rangeOf(x.late[i].key).Phase == partmap.Verifying {
			break
		}
		i = x.r.IntN(len(x.late))
	}
	w := x.late[i]
	x.late = append(x.late[:i], x.late[i+1:]...)
	rg := x.rangeOf(w.key)
	require.NoError(x.t, x.e.Store.Put(x.ctx, store.Partition{Bucket: x.m.id, ID: w.from}, w.row))
	x.arrived++
	old := x.o.keys[w.key]
	if rg.Partition != w.from || !rg.Phase.Rules().ReadSource || old.ts > w.row.Timestamp {
		return // nobody will see it
	}
	if _, ok := x.fallback[w.key]; !ok {
		x.fallback[w.key] = old
	}
	value, live, err := store.EntryValue(w.row.Value)
	require.NoError(x.t, err)
	x.o.keys[w.key] = state{live: live, value: string(value), ts: w.row.Timestamp}
	switch x.r.IntN(3) { // who reads it makes it stay
	case 0:
		x.get(w.key)
	case 1:
		x.list(listing.Query{From: []byte(w.key), Limit: 1000})
	}
}

// settleLate finds out the outcome of the late writes that no client had read before reads of their source ended. moved
// has the ranges of the move.
func (x *modelTest) settleLate(ctx context.Context, moved []partmap.Range) error {
	for key, old := range x.fallback {
		for i := range moved {
			if !moved[i].Contains([]byte(key)) {
				continue
			}
			got := x.read(key)
			if same(got, old) {
				x.o.keys[key] = old
			} else if !same(got, x.o.keys[key]) {
				return fmt.Errorf("%q is %v, neither %v nor %v", key, got, old, x.o.keys[key])
			}
			delete(x.fallback, key)
		}
	}
	return nil
}

// shownStays tests late writes into a source that was already compared with the destination. Once any client has seen
// such a write, also a deletion, the write stays.
func shownStays(t *testing.T, e *Env, r *rand.Rand, o Options) {
	ctx := context.Background()
	require.NoError(t, e.Client.CreateBucket(ctx, "stays"))
	b, id := e.Client.Bucket("stays"), bucketID(t, e, "stays")
	require.NoError(t, b.Put(ctx, []byte("deleted"), nil))
	see := map[string]func(key string) bool{
		"get": func(key string) bool {
			_, err := b.Get(ctx, []byte(key))
			return err == nil
		},
		"list": func(key string) bool {
			return len(first(t, b, listing.Query{From: []byte(key), Prefix: []byte(key)})) > 0
		},
		"reverse": func(key string) bool {
			return len(first(t, b, listing.Query{Prefix: []byte(key), Reverse: true})) > 0
		},
		"prefix": func(key string) bool {
			return len(first(t, b, listing.Query{Prefix: []byte(key), Delimiter: []byte("/")})) > 0
		},
	}
	m := newMover(e, id, r)
	for name, seen := range see {
		_, err := m.begin(ctx, func() []byte { return nil })
		require.NoError(t, err)
		const restLeft = 8 // the comparison is over, draining has not begun
		for len(m.moves[0].todo) > restLeft {
			_, err := m.step(ctx)
			require.NoError(t, err)
		}
		source := m.partition(m.moves[0].ranges[0].Partition)
		for key, row := range map[string]store.Row{
			"late " + name + "/": {Key: []byte("late " + name + "/"), Value: store.EntryCell(nil)},
			"deleted":            {Key: []byte("deleted"), Value: cells.Marker()},
		} {
			row.Timestamp = e.Clock.Draw()
			require.NoError(t, e.Store.Put(ctx, source, row))
			require.Equal(t, key != "deleted", seen(key), "%s %q while verifying", name, key)
		}
		require.NoError(t, m.finish(ctx))
		for other, seen := range see {
			require.True(t, seen("late "+name+"/"), "%s after %s has shown it", other, name)
			require.False(t, seen("deleted"), "%s after %s has shown that it is deleted", other, name)
		}
		require.NoError(t, b.Put(ctx, []byte("deleted"), nil))
	}
}

// first returns the items of the first page of a listing.
func first(t *testing.T, b *listing.Bucket, q listing.Query) []listing.Item {
	page, err := b.List(context.Background(), q)
	require.NoError(t, err)
	return page.Items
}
