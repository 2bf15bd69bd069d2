package policysim

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"iter"
	"math"
	"math/rand/v2"
	"slices"
	"sort"
	"time"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/internal/rebalance/balancer"
	"github.com/evenkeel/evenkeel/internal/rebalance/policy"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// Run plays a scenario. It fails when ctx ends. The same scenario gives the same result.
func Run(ctx context.Context, s *Scenario) (*Report, error) { return run(ctx, s, nil) }

// observer gets what a balancer decides; see balancer.Options.Decided.
type observer func(store.BucketID, *policy.Input, []policy.Decision)

func run(ctx context.Context, s *Scenario, observe observer) (*Report, error) {
	w := newWorld(s, observe)
	b := balancer.New(w, w, w, w.counts, w.options())
	for w.step < w.steps {
		w.advance()
		// All recounts end, and are looked at, within the step.
		for again := true; again; {
			b.Step(ctx)
			for again = false; b.Count(ctx, false); again = true {
			}
		}
		w.watch()
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := b.Status().Round.Err; err != nil {
			return nil, err
		}
	}
	return w.report(b.Status()), nil
}

// world is what a balancer works on: the buckets, their maps and the moves, all in memory. Moves take one step.
type world struct {
	s           *Scenario
	r, ids      *rand.Rand
	begin, now  time.Time
	day         float64
	step, steps int
	recorder    *counter.Recorder
	counts      *counter.Memory
	groups      []*group
	buckets     []*bucket
	roots       [][]byte // ids of the buckets, sorted
	of          map[store.BucketID]*bucket
	parts       map[store.PartitionID]*part
	observe     observer
	mover
}

// group is the buckets of one Tenant, with what is reported of them.
type group struct {
	*Tenant
	Result
}

type bucket struct {
	g         *group
	id        store.BucketID
	parts     []*part
	due       float64 // rows to write that are not whole yet
	low, high uint64  // of Reversed, Append and Queue
	keys      []uint64
	waves     int
	over      int // parts over the limit
	changed   bool
	todo      []task
}

// part is a range with its partition.
type part struct {
	id       store.PartitionID
	start    []byte
	rows     []row
	unsorted bool
	created  int64
	moves    bool
	overFrom time.Time // since when it is over the limit
	merged   time.Time // when it came out of a merge
	split    time.Time // or of a split
}

// row is a key with when it was written (Unix microseconds).
type row struct {
	key uint64
	at  int64
}

func newWorld(s *Scenario, observe observer) *world {
	w := &world{
		s: s, r: rand.New(rand.NewPCG(s.Seed, 0x73696d)), ids: rand.New(rand.NewPCG(s.Seed, 0x696473)),
		begin: time.Unix(1_700_000_000, 0).UTC(), observe: observe,
		of: map[store.BucketID]*bucket{}, parts: map[store.PartitionID]*part{},
	}
	w.now = w.begin
	w.steps = max(1, int(math.Round(s.Days*24*float64(time.Hour)/float64(s.Step))))
	w.counts = counter.NewMemory(w.clock)
	w.recorder = counter.NewRecorder(w, counter.RecorderOptions{Every: -1, MaxPartitions: math.MaxInt, Now: w.clock})
	for i := range s.Tenants {
		t := &s.Tenants[i]
		g := &group{Tenant: t, Result: Result{Name: t.Name, Kind: t.Kind, Buckets: t.Count}}
		w.groups = append(w.groups, g)
		for range g.Count {
			const middle = math.MaxUint64 / 2
			b := &bucket{g: g, id: store.BucketID(w.uuid()), due: w.r.Float64(), low: middle, high: middle}
			b.parts = []*part{w.part(nil, nil)}
			b.parts[0].created = 0
			w.buckets, w.of[b.id] = append(w.buckets, b), b
			w.roots = append(w.roots, b.id[:])
		}
	}
	slices.SortFunc(w.roots, bytes.Compare)
	return w
}

// options are those of a balancer of this world.
func (w *world) options() balancer.Options {
	return balancer.Options{Policy: w.s.policy(), Every: w.s.Step, Now: w.clock, Decided: w.decided}
}

func (w *world) clock() time.Time { return w.now }

func (w *world) uuid() (id [16]byte) {
	binary.BigEndian.PutUint64(id[:], w.ids.Uint64())
	binary.BigEndian.PutUint64(id[8:], w.ids.Uint64())
	return id
}

// part makes a fresh one.
func (w *world) part(start []byte, rows []row) *part {
	x := &part{id: store.PartitionID(w.uuid()), start: start, rows: slices.Clone(rows), created: w.now.Unix()}
	w.parts[x.id] = x
	return x
}

// advance goes on by a step: moves end, and tenants write.
func (w *world) advance() {
	w.step++
	w.now = w.now.Add(w.s.Step)
	w.day = w.now.Sub(w.begin).Hours() / 24
	for _, b := range w.buckets {
		w.execute(b)
	}
	for _, b := range w.buckets {
		w.write(b)
	}
	_ = w.recorder.Flush(context.Background()) // never fails here
}

// Flush implements counter.Flusher.
func (w *world) Flush(ctx context.Context, b *counter.Batch) ([]counter.Hint, error) {
	if w.s.Counter.Lost > 0 && w.r.Float64() < w.s.Counter.Lost {
		return nil, nil
	}
	return w.counts.Flush(ctx, b)
}

func keyOf(k uint64) []byte { return binary.BigEndian.AppendUint64(nil, k) }

// number is the lowest key from a cut on.
func number(cut []byte) uint64 {
	var b [8]byte
	n := copy(b[:], cut)
	k := binary.BigEndian.Uint64(b[:])
	if n < len(cut) {
		k++
	}
	return k
}

func (b *bucket) find(k []byte) *part {
	above := sort.Search(len(b.parts), func(i int) bool { return bytes.Compare(b.parts[i].start, k) > 0 })
	return b.parts[above-1]
}

// Load implements balancer.Maps.
func (w *world) Load(_ context.Context, id store.BucketID) (*partmap.Root, error) {
	return &partmap.Root{Bucket: id, State: partmap.Open, Ranges: uint64(len(w.of[id].parts))}, nil
}

// Ranges implements balancer.Maps.
func (w *world) Ranges(_ context.Context, r *partmap.Root, from []byte) iter.Seq2[partmap.Range, error] {
	return func(yield func(partmap.Range, error) bool) {
		parts := w.of[r.Bucket].parts
		for i, x := range parts {
			rg := partmap.Range{Entry: partmap.Entry{Start: x.start, Partition: x.id, Created: x.created}, SweepPending: x.moves}
			if i+1 < len(parts) {
				rg.End = parts[i+1].start
			}
			if (len(rg.End) == 0 || bytes.Compare(rg.End, from) > 0) && !yield(rg, nil) {
				return
			}
		}
	}
}

// Scan implements balancer.Store.
func (w *world) Scan(_ context.Context, _ store.Table, after []byte, limit int) ([][]byte, error) {
	i := sort.Search(len(w.roots), func(i int) bool { return bytes.Compare(w.roots[i], after) > 0 })
	return w.roots[i:min(len(w.roots), i+limit)], nil
}

// cell is what every row holds.
var cell = store.EntryCell(make([]byte, 92))

// Slice implements balancer.Store.
func (w *world) Slice(_ context.Context, p store.Partition, b store.Bounds, o store.SliceOptions) (store.Page, error) {
	rows := w.parts[p.ID].sorted()
	if from := number(b.Start); from > 0 {
		if b.StartExclusive {
			from++
		}
		rows = rows[sort.Search(len(rows), func(i int) bool { return rows[i].key >= from }):]
	}
	n := min(len(rows), o.Limit)
	page := store.Page{More: len(rows) > n, Rows: make([]store.Row, n)}
	if o.Reverse {
		rows = slices.Clone(rows[len(rows)-n:])
		slices.Reverse(rows)
	}
	keys := make([]byte, 8*n)
	for i, x := range rows[:n] {
		key := keys[8*i : 8*i+8 : 8*i+8]
		binary.BigEndian.PutUint64(key, x.key)
		page.Rows[i] = store.Row{Key: key, Value: cell, Timestamp: store.Timestamp(x.at)}
	}
	return page, nil
}

// sorted are the rows in the order of their keys.
func (x *part) sorted() []row {
	if x.unsorted {
		slices.SortFunc(x.rows, func(a, b row) int { return cmp.Compare(a.key, b.key) })
		x.unsorted = false
	}
	return x.rows
}

// write lets a bucket write what is due.
func (w *world) write(b *bucket) {
	t := b.g.Tenant
	if w.day >= t.From && w.day <= t.To {
		for range b.owed(w.s.Step) {
			w.put(b)
		}
	}
	for b.waves < len(t.DeleteAt) && w.day >= t.DeleteAt[b.waves] {
		b.waves++
		for _, x := range b.parts {
			x.rows = slices.DeleteFunc(x.rows, func(r row) bool {
				gone := w.r.Float64() >= t.DeleteKeep
				if gone {
					w.recorder.Delete(b.partition(x), keyOf(r.key), w.stamp(), false)
				}
				return gone
			})
		}
	}
}

// owed is how many whole rows a bucket writes in a step.
func (b *bucket) owed(step time.Duration) int {
	b.due += b.g.PerMinute * step.Minutes()
	n := int(b.due)
	b.due -= float64(n)
	return n
}

func (w *world) stamp() store.Timestamp { return store.Timestamp(w.now.UnixMicro()) }

// next is the key that a bucket writes next, and whether it is a new one.
func (w *world) next(b *bucket) (k uint64, fresh bool) {
	const gap = 1 << 20 // between neighbours of an ordered tenant
	fresh = true
	switch b.g.Tenant.Kind {
	case Random:
		k = w.r.Uint64()
	case Append, Queue:
		if b.g.Opaque { // gaps without a mean: no line fits
			b.high += uint64(min(math.Pow(1-w.r.Float64(), -3), 1<<52))
		} else {
			b.high += 1 + w.r.Uint64N(2*gap)
		}
		k = b.high
	case Reversed:
		b.low -= 1 + w.r.Uint64N(2*gap)
		k = b.low
	case Dates:
		k = uint64(w.day)<<48 | w.r.Uint64N(1<<48)
	case Hotspot:
		if k = w.r.Uint64(); w.r.IntN(5) > 0 {
			k = math.MaxUint64/3 + k/100
		}
	case Overwrite:
		if n := len(b.keys); n == b.g.Keys {
			k, fresh = b.keys[w.r.IntN(n)], false
		} else {
			k = w.r.Uint64()
			b.keys = append(b.keys, k)
		}
	}
	return k, fresh
}

func (w *world) put(b *bucket) {
	k, fresh := w.next(b)
	key := keyOf(k)
	x := b.find(key)
	p := b.partition(x)
	b.g.Written++
	b.changed = true
	w.recorder.Put(p, key, 100, w.stamp())
	for range w.s.Counter.Times - 1 {
		w.recorder.Put(p, keyOf(w.r.Uint64()), 100, w.stamp())
	}
	if !fresh {
		return
	}
	b.g.New++
	x.unsorted = x.unsorted || len(x.rows) > 0 && x.rows[len(x.rows)-1].key > k
	x.rows = append(x.rows, row{k, w.now.UnixMicro()})
	if b.g.Tenant.Kind == Queue && b.g.New > int64(b.g.Count)*w.s.MaxRows/4 {
		x := b.parts[0]
		for i := 1; len(x.rows) == 0 && i < len(b.parts); i++ {
			x = b.parts[i]
		}
		if len(x.rows) > 0 { // in the order in which they came
			w.recorder.Delete(b.partition(x), keyOf(x.rows[0].key), w.stamp(), false)
			x.rows = x.rows[1:]
		}
	}
}

func (b *bucket) partition(x *part) store.Partition { return store.Partition{Bucket: b.id, ID: x.id} }

// watch adds up what buckets are like at the end of a step.
func (w *world) watch() {
	for _, b := range w.buckets {
		w.watchOne(b)
	}
}

func (w *world) watchOne(b *bucket) {
	b.g.partSteps += int64(len(b.parts))
	if !b.changed && b.over == 0 {
		return
	}
	b.over, b.changed = 0, false
	for _, x := range b.parts {
		n := int64(len(x.rows))
		if n <= w.s.MaxRows {
			x.overFrom = time.Time{}
			continue
		}
		if x.overFrom.IsZero() {
			x.overFrom = w.now
		}
		b.over++
		b.g.overSteps++
		b.g.LongestOver = max(b.g.LongestOver, w.now.Sub(x.overFrom)+w.s.Step)
		b.g.Worst = max(b.g.Worst, float64(n)/float64(w.s.MaxRows))
	}
}

func (w *world) report(st balancer.Status) *Report {
	rep := &Report{Scenario: w.s.Name, Days: w.s.Days, Steps: w.steps, Recounts: st.Recounts}
	total := Result{Name: "all"}
	for _, b := range w.buckets {
		g := b.g
		for _, x := range b.parts {
			n := int64(len(x.rows))
			g.Rows += n
			g.Partitions++
			page := max(1, w.s.MaxRows/100)
			g.reads += max(1, (n+page-1)/page)
			g.fullPages += float64(n) / float64(page)
		}
	}
	for _, g := range w.groups {
		g.finish()
		rep.Groups = append(rep.Groups, g.Result)
		total.add(&g.Result)
	}
	total.finish()
	rep.Total = total
	if total.Written > 0 {
		rep.ScannedPerRow = float64(st.Read) / float64(total.Written)
	}
	return rep
}
