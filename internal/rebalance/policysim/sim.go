package policysim

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sort"
	"time"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/internal/rebalance/cut"
	"github.com/evenkeel/evenkeel/internal/rebalance/planner"
	"github.com/evenkeel/evenkeel/internal/rebalance/policy"
	"github.com/evenkeel/evenkeel/store"
)

// Run plays a scenario. It fails when ctx ends. The same scenario gives the same
// result.
func Run(ctx context.Context, s *Scenario) (*Report, error) {
	w := &world{
		s: s, p: s.policy(), r: rand.New(rand.NewPCG(s.Seed, 0x73696d)), book: counter.NewBook(),
		now: time.Unix(1_700_000_000, 0).UTC(), trail: cut.NewTrail(trails),
	}
	var err error
	if w.cutter, err = planner.Cutter(s.Planner, int64(s.Seed)); err != nil {
		return nil, err
	}
	w.recorder = counter.NewRecorder(w, counter.RecorderOptions{Every: -1, MaxPartitions: math.MaxInt, Now: func() time.Time { return w.now }})
	begin := w.now
	for i := range s.Tenants {
		g := &group{Tenant: &s.Tenants[i], Result: Result{Name: s.Tenants[i].Name, Kind: s.Tenants[i].Kind, Buckets: s.Tenants[i].Count}}
		w.groups = append(w.groups, g)
		for range g.Count {
			b := &bucket{g: g, id: store.BucketID(w.uuid()), due: w.r.Float64(), low: math.MaxUint64 / 2, high: math.MaxUint64 / 2}
			b.parts = []*part{w.part(0, time.Time{}, b)}
			w.buckets = append(w.buckets, b)
		}
	}
	steps := max(1, int(math.Round(s.Days*24*float64(time.Hour)/float64(s.Step))))
	for i := range steps {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		w.now = w.now.Add(s.Step)
		w.day = w.now.Sub(begin).Hours() / 24
		if err := w.step(ctx, i); err != nil {
			return nil, err
		}
	}
	return w.report(steps), nil
}

// trails is how many partitions are remembered for where they grow.
const trails = 100_000

type world struct {
	s        *Scenario
	p        policy.Policy
	r        *rand.Rand
	now      time.Time
	day      float64
	recorder *counter.Recorder
	book     *counter.Book
	trail    *cut.Trail
	cutter   cut.Cutter
	groups   []*group
	buckets  []*bucket
	recounts int64
	scanned  int64
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
	dirty     bool // something was written, or is to be done
	todo      []task
}

// task is something that was decided: a roll or a refresh as it was judged, splits and
// merges as they are to be cut.
type task struct {
	policy.Verdict
	cut *cut.Move
}

// part is a range with its partition. Its keys are in no order.
type part struct {
	p        store.Partition
	lo       uint64
	keys     []uint64
	quanta   []counter.Quantum // as last counted
	created  time.Time
	moves    bool
	overFrom time.Time // since when it is over the limit
	merged   time.Time // when it came out of a merge
	split    time.Time // or of a split
}

func (w *world) uuid() (id [16]byte) {
	binary.BigEndian.PutUint64(id[:], w.r.Uint64())
	binary.BigEndian.PutUint64(id[8:], w.r.Uint64())
	return id
}

// part makes a fresh one, which is known to be empty.
func (w *world) part(lo uint64, created time.Time, b *bucket) *part {
	x := &part{p: store.Partition{Bucket: b.id, ID: store.PartitionID(w.uuid())}, lo: lo, created: created}
	w.correct(x, false)
	return x
}

// Flush implements counter.Flusher.
func (w *world) Flush(_ context.Context, b *counter.Batch) ([]counter.Hint, error) {
	if w.s.Counter.Lost > 0 && w.r.Float64() < w.s.Counter.Lost {
		return nil, nil
	}
	w.book.Apply(b)
	return w.book.Hints(b), nil
}

func keyOf(k uint64) []byte { return binary.BigEndian.AppendUint64(nil, k) }

func (b *bucket) find(k uint64) *part {
	return b.parts[sort.Search(len(b.parts), func(i int) bool { return b.parts[i].lo > k })-1]
}

func (w *world) step(ctx context.Context, i int) error {
	for _, b := range w.buckets {
		w.execute(b)
	}
	for _, b := range w.buckets {
		w.write(b)
	}
	_ = w.recorder.Flush(context.Background()) // never fails here
	hourly := i%max(1, int(time.Hour/w.s.Step)) == 0
	for _, b := range w.buckets {
		if b.dirty || hourly && len(b.parts) > 1 {
			if err := w.judge(ctx, b); err != nil {
				return err
			}
		}
		w.watch(b)
	}
	return nil
}

// write lets a bucket write what is due.
func (w *world) write(b *bucket) {
	t := b.g.Tenant
	if w.day >= t.From && w.day <= t.To {
		b.due += t.PerMinute * w.s.Step.Minutes()
		n := int(b.due)
		b.due -= float64(n)
		for range n {
			w.put(b)
		}
	}
	for b.waves < len(t.DeleteAt) && w.day >= t.DeleteAt[b.waves] {
		b.waves++
		for _, x := range b.parts {
			x.keys = slices.DeleteFunc(x.keys, func(k uint64) bool {
				gone := w.r.Float64() >= t.DeleteKeep
				if gone {
					w.recorder.Delete(x.p, keyOf(k), w.stamp(), false)
				}
				return gone
			})
		}
		b.dirty = true
	}
}

func (w *world) stamp() store.Timestamp { return store.Timestamp(w.now.UnixMicro()) }

func (w *world) put(b *bucket) {
	const gap = 1 << 20 // between neighbours of an ordered tenant
	var k uint64
	fresh := true
	switch b.g.Tenant.Kind {
	case Random:
		k = w.r.Uint64()
	case Append, Queue:
		b.high += 1 + w.r.Uint64N(2*gap)
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
	x := b.find(k)
	b.g.Written++
	b.dirty, b.changed = true, true
	w.recorder.Put(x.p, keyOf(k), 100, w.stamp())
	for range w.s.Counter.Times - 1 {
		w.recorder.Put(x.p, keyOf(w.r.Uint64()), 100, w.stamp())
	}
	if !fresh {
		return
	}
	b.g.New++
	x.keys = append(x.keys, k)
	if b.g.Tenant.Kind == Queue && b.g.New > int64(b.g.Count)*w.s.MaxRows/4 {
		x := b.parts[0]
		for i := 1; len(x.keys) == 0 && i < len(b.parts); i++ {
			x = b.parts[i]
		}
		if len(x.keys) > 0 { // in the order in which they came
			w.recorder.Delete(x.p, keyOf(x.keys[0]), w.stamp(), false)
			x.keys = x.keys[1:]
		}
	}
}

// judge asks the policy, counts at once what it wants counted, and leaves the rest to
// be done in the next step. It fails when ctx ends.
func (w *world) judge(ctx context.Context, b *bucket) error {
	b.dirty = false
	if len(b.parts) == 1 && int64(len(b.parts[0].keys)) < min(w.p.EarlyRows, w.s.MaxRows/2) && w.s.Counter.Times < 2 {
		return nil // what all small buckets are
	}
	l := policy.Layout{Ranges: make([]policy.Range, len(b.parts))}
	for pass := range 2 {
		recounted := false
		for i, x := range b.parts {
			state := w.book.State(x.p)
			r := policy.Range{Created: x.created, Moves: x.moves, Stats: state.Stats(x.p, w.book.Generation, w.now)}
			w.trail.Note(x.p.ID, r.Stats.Rows, state.Quanta)
			if i > 0 {
				r.Start = keyOf(x.lo)
				l.Ranges[i-1].End = r.Start
			}
			l.Ranges[i] = r
		}
		verdicts := w.p.Judge(&l, w.now)
		for _, v := range verdicts {
			switch {
			case v.Kind == policy.Recount && pass == 0:
				w.correct(b.parts[v.From], true)
				recounted = true
			case v.Kind == policy.Recount || v.Why == policy.Backing:
				b.dirty = true
			}
		}
		if recounted {
			continue
		}
		return w.decide(ctx, b, &l, verdicts)
	}
	return nil
}

// decide cuts what is to be split and merged.
func (w *world) decide(ctx context.Context, b *bucket, l *policy.Layout, verdicts []policy.Verdict) error {
	taken := make([]bool, len(b.parts))
	for _, v := range verdicts {
		for i := v.From; i < v.To; i++ {
			taken[i] = v.Kind != policy.None || v.Why != policy.Within
		}
	}
	take := func(from, to int) {
		for i := from; i < to; i++ {
			taken[i], b.parts[i].moves = true, true
		}
	}
	for _, v := range verdicts {
		switch v.Kind {
		case policy.Roll, policy.Refresh:
			take(v.From, v.To)
			b.todo = append(b.todo, task{Verdict: v})
		case policy.Split, policy.Merge:
			for i := v.From; i < v.To; i++ {
				// The last count is young, but much may have come since.
				if x := b.parts[i]; l.Ranges[i].Stats.Rows > x.counted()*5/4 {
					w.correct(x, true)
				}
			}
			// A neighbour on each side, for a planner that can make use of them.
			z := cut.Zone{First: max(0, v.From-1)}
			for i := z.First; i < min(v.To+1, len(b.parts)); i++ {
				x, r := b.parts[i], &l.Ranges[i]
				z.Ranges = append(z.Ranges, cut.Range{
					Start: r.Start, End: r.End, Quanta: x.quanta, Earlier: w.trail.Earlier(x.p.ID, r.Stats.Rows), Stats: r.Stats,
					Fixed: (i < v.From || i >= v.To) && (taken[i] || w.now.Sub(r.Stats.Recounted) > w.p.Fresh),
				})
			}
			moves, err := w.cutter.Cut(ctx, &z, &v, &w.p)
			if err != nil {
				return err
			}
			for _, m := range moves {
				take(m.From, m.To)
				b.todo = append(b.todo, task{Verdict: v, cut: &m})
			}
		}
	}
	slices.SortFunc(b.todo, func(a, b task) int { return cmp.Compare(a.from(), b.from()) })
	return nil
}

// counted is how many rows the last count found.
func (x *part) counted() (n int64) {
	for _, q := range x.quanta {
		n += q.Rows
	}
	return n
}

func (t *task) from() int {
	if t.cut != nil {
		return t.cut.From
	}
	return t.From
}

// correct recounts a part, the way it is done in life.
func (w *world) correct(x *part, counted bool) {
	slices.Sort(x.keys)
	c, err := counter.NewRecount(x, x.p, store.Bounds{}, counter.RecountOptions{PageRows: store.MaxPageRows, Now: func() time.Time { return w.now }}).Run(context.Background())
	if err != nil {
		panic(err) // it reads memory
	}
	c.Fine = counted && c.Rows <= w.p.MaxRows && c.Rows >= w.p.MinRows
	w.book.State(x.p).Correct(c, w.book.Generation)
	x.quanta = c.Quanta
	if counted {
		w.recounts++
		w.scanned += c.Rows
	}
}

// Slice implements counter.Slicer.
func (x *part) Slice(_ context.Context, _ store.Partition, b store.Bounds, o store.SliceOptions) (store.Page, error) {
	keys := x.keys
	if len(b.Start) > 0 {
		from := binary.BigEndian.Uint64(b.Start)
		keys = keys[sort.Search(len(keys), func(i int) bool { return keys[i] > from }):]
	}
	page := store.Page{More: len(keys) > o.Limit, Rows: make([]store.Row, 0, min(len(keys), o.Limit))}
	cell := store.EntryCell(make([]byte, 92))
	for _, k := range keys[:min(len(keys), o.Limit)] {
		page.Rows = append(page.Rows, store.Row{Key: keyOf(k), Value: cell})
	}
	return page, nil
}

// execute does what was decided in the step before.
func (w *world) execute(b *bucket) {
	if len(b.todo) == 0 {
		return
	}
	todo := b.todo
	b.todo, b.dirty, b.changed = nil, true, true
	var parts []*part
	at := 0
	for _, t := range todo {
		from, to := t.From, t.To
		if t.cut != nil {
			from, to = t.cut.From, t.cut.To
		}
		parts = append(parts, b.parts[at:from]...)
		at = to
		olds := b.parts[from:to]
		for _, x := range olds {
			x.moves = false
			slices.Sort(x.keys)
		}
		switch t.Kind {
		case policy.Split, policy.Merge:
			parts = append(parts, w.recut(b, olds, t.cut)...)
		case policy.Roll:
			end := uint64(math.MaxUint64)
			if to < len(b.parts) {
				end = b.parts[to].lo
			}
			parts = append(parts, w.roll(b, b.parts[t.Appended], olds[0], end, t.Verdict)...)
		case policy.Refresh:
			b.g.Refreshes++
			parts = append(parts, w.take(b, olds[0].lo, olds[0].keys, t.Why))
			w.gone(olds[0])
		}
	}
	b.parts = append(parts, b.parts[at:]...)
}

// take makes a fresh part of keys that move into it.
func (w *world) take(b *bucket, lo uint64, keys []uint64, why policy.Why) *part {
	x := w.part(lo, w.now, b)
	x.keys = slices.Clone(keys)
	w.correct(x, false) // a move counts what it copies
	b.g.moved(why, int64(len(keys)))
	return x
}

// gone forgets a part.
func (w *world) gone(x *part) {
	delete(w.book.States, x.p.ID)
	w.trail.Forget(x.p.ID)
}

// number is the lowest key of those above a cut.
func number(cut []byte) uint64 {
	var b [8]byte
	copy(b[:], cut)
	return binary.BigEndian.Uint64(b[:])
}

// recut cuts a span anew.
func (w *world) recut(b *bucket, olds []*part, m *cut.Move) []*part {
	split := len(olds) == 1
	if split {
		b.g.Splits++
	} else {
		b.g.Merges++
	}
	var keys []uint64
	for _, x := range olds {
		keys = append(keys, x.keys...)
		switch {
		case split && !x.merged.IsZero() && w.now.Sub(x.merged) < undone:
			b.g.MergesUndone++
		case !split && !x.split.IsZero() && w.now.Sub(x.split) < undone:
			b.g.SplitsUndone++
		}
		w.trail.Forget(x.p.ID)
	}
	var out []*part
	for k := range len(m.Cuts) + 1 {
		lo := olds[0].lo
		if k > 0 {
			lo = number(m.Cuts[k-1])
		}
		n := len(keys)
		if k < len(m.Cuts) {
			end := number(m.Cuts[k])
			n = sort.Search(len(keys), func(i int) bool { return keys[i] >= end })
		}
		x := olds[0]
		if split && k == m.Stay {
			x.keys, x.lo = slices.Clone(keys[:n]), lo
			w.correct(x, false) // what is left of it was counted before
		} else {
			x = w.take(b, lo, keys[:n], m.Why)
		}
		x.split, x.merged, x.overFrom = time.Time{}, time.Time{}, time.Time{}
		if split {
			x.split = w.now
		} else {
			x.merged = w.now
		}
		out = append(out, x)
		keys = keys[n:]
	}
	if !split || m.Stay < 0 {
		for _, x := range olds {
			w.gone(x)
		}
	}
	return out
}

// roll cuts a tail ahead of the highest key: where it can be foreseen which keys come,
// so that the ranges are just filled; else right above the highest key of now.
func (w *world) roll(b *bucket, appended, tail *part, end uint64, v policy.Verdict) []*part {
	b.g.Rolls++
	n := len(appended.keys)
	if n == 0 {
		return []*part{tail}
	}
	slices.Sort(appended.keys)
	top := appended.keys[n-1]
	cut, each := top+1, float64(0)
	if back := n - 1; !b.g.Opaque && back > 0 {
		back = min(back, 500)
		each = float64(top-appended.keys[n-1-back]) / float64(back)
		cut += uint64(each * max(0, policy.Fill*float64(w.s.MaxRows)-float64(n)))
	}
	out := []*part{tail}
	for len(out) <= v.Ahead && cut < end {
		if cut > tail.lo {
			out = append(out, w.part(cut, w.now, b))
		}
		if each == 0 {
			break
		}
		cut += uint64(each * policy.Fill * float64(w.s.MaxRows))
	}
	return out
}

// undone is within what time the reverse of a split or merge counts as undoing it.
const undone = 24 * time.Hour

// watch adds up what a bucket is like at the end of a step.
func (w *world) watch(b *bucket) {
	b.g.partSteps += int64(len(b.parts))
	if !b.changed && b.over == 0 {
		return
	}
	b.over, b.changed = 0, false
	for _, x := range b.parts {
		n := int64(len(x.keys))
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

func (w *world) report(steps int) *Report {
	rep := &Report{Scenario: w.s.Name, Days: w.s.Days, Steps: steps, Recounts: w.recounts}
	total := Result{Name: "all"}
	for _, b := range w.buckets {
		g := b.g
		for _, x := range b.parts {
			n := int64(len(x.keys))
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
		rep.ScannedPerRow = float64(w.scanned) / float64(total.Written)
	}
	return rep
}

// String names the world's moment, for panics.
func (w *world) String() string { return fmt.Sprintf("%s at day %.2f", w.s.Name, w.day) }
