package balancer

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/internal/rebalance/move"
	"github.com/evenkeel/evenkeel/internal/rebalance/policy"
	"github.com/evenkeel/evenkeel/internal/rebalance/scheduler"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

const (
	// reasonsKept is the maximum number of reasons in a Status why nothing is done about a range.
	reasonsKept = 100
	// smallAtOnce is the maximum number of nearly empty partitions that are counted exactly before the decisions about
	// one group of neighbouring ranges.
	smallAtOnce = 512
)

// outcome is the result of one check of a bucket (a visit), with the root of the bucket's map that the check used.
type outcome struct {
	*visit
	root    *partmap.Root
	proved  bool     // the root was the newest one when it was read
	whole   bool     // all ranges were checked
	before  sighting // the result of the check before
	first   bool     // there was no check before
	ranges  int
	sizes   Sizes
	rate    float64 // rows per second that moves need to keep up
	traffic float64 // reads and writes per second, of the ranges so far
	puts    bool    // one of the ranges has ever got a put
	spread  bool    // one of the ranges grows all over
	refused int     // ranges that must wait for budget or recounts
	moving  map[store.PartitionID]bool
	missing map[store.PartitionID]bool // partitions to check that were not found in the map yet
}

// errOutdated ends a check of a bucket that used an old root of the bucket's map. The check is repeated with the newest
// root.
var errOutdated = store.Errorf(store.Conflict, "the map has changed")

// lookAt checks a bucket for ranges that must be split, merged, moved or counted. It uses the root of the bucket's map
// that this data centre has. Before rows are moved, it reads the newest root, and repeats the check if this is another
// one.
func (b *Balancer) lookAt(ctx context.Context, v *visit) (*outcome, error) {
	// Most checks find nothing to do, so they need not read the newest root. The newest root is also read before a
	// partition that is missing in the map is forgotten.
	// Two results need no proof. The first is an exact count, as a count is good only for the range that was counted
	// (counter.Stats.Covers). The second is that there is nothing to do. An older root leads to that result only if
	// another process has moved ranges until just now, and the last checks of that process used the newer root. Rows
	// that are written after those checks lead to another check of the partition that gets them.
	root, err := b.maps.Look(ctx, v.id)
	if err != nil || root.State != partmap.Open {
		return nil, err
	}
	_, known := b.seen.Get(v.id)
	o := b.outcome(v, root, false)
	o.first = !known
	err = b.lookBy(ctx, o)
	if err == nil && len(o.missing) > 0 {
		err = b.prove(ctx, o)
	}
	if !errors.Is(err, errOutdated) {
		return o, err
	}
	if root, err = b.maps.Load(ctx, v.id); err != nil || root.State != partmap.Open {
		return nil, err
	}
	o = b.outcome(v, root, true)
	o.first = !known
	return o, b.lookBy(ctx, o)
}

// outcome returns an empty result for a check of a bucket, to be filled in by the check. The parameters are:
//   - v: the check
//   - root: the root of the bucket's map that the check uses
//   - proved: true if root is known to be the newest root
func (b *Balancer) outcome(v *visit, root *partmap.Root, proved bool) *outcome {
	return &outcome{
		visit: v, root: root, proved: proved, moving: map[store.PartitionID]bool{}, missing: maps.Clone(v.parts),
		whole: v.whole || root.Ranges <= wholeUpTo,
	}
}

// prove makes sure that a check of a bucket has used the newest root of the bucket's map. It must succeed before rows
// are moved by the decisions of the check. The parameter o is the result of the check. If the check has used an older
// root, the error is errOutdated.
func (b *Balancer) prove(ctx context.Context, o *outcome) error {
	if o.proved {
		return nil
	}
	newest, err := b.maps.Load(ctx, o.id)
	if err == nil && newest.Version() != o.root.Version() {
		err = errOutdated
	}
	o.proved = err == nil
	return err
}

// lookBy checks those ranges of a bucket whose check is due, and makes and carries out the decisions about them. The
// parameter o is the outcome of the check: it has the root of the bucket's map to use, and gets the results.
func (b *Balancer) lookBy(ctx context.Context, o *outcome) error {
	v, root, now := o.visit, o.root, b.o.Now()
	o.before, _ = b.seen.Get(v.id)
	b.seen.Add(v.id, o.before) // the bucket is not new any more
	defer func() {
		v.need = max(v.need, o.rate)
		b.mover.KeepUp(v.id, int(v.need))
	}()
	err := b.batches(ctx, root, v, func(ws []*window) error {
		for _, w := range ws {
			for i := range w.stats {
				delete(o.missing, w.ranges[i].Partition)
				delete(o.missing, w.ranges[i].To)
				if s := &w.stats[i]; w.core[i] {
					o.traffic += s.PutsPerS + s.DeletesPerS + s.ReadsPerS
					o.puts = o.puts || s.Puts > 0
					o.spread = o.spread || s.Spread >= b.o.Policy.Spread
				}
			}
		}
		for _, w := range ws {
			if err := b.decide(ctx, o, w); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	seen := sighting{traffic: o.traffic, whole: o.before.whole, blank: o.whole && !o.puts, begun: o.before.begun}
	if o.first { // the bucket may have been created just now, and written to
		o.before.blank = root.Ranges == 1 && now.Sub(time.UnixMicro(root.ChangedAt)) < youngFor
	}
	if o.puts && o.before.blank {
		seen.begun = now
	}
	seen.spread = o.spread
	switch {
	case o.whole:
		seen.whole = now
	case v.class == hot: // the look did not cover all ranges that are written to
		seen.traffic = max(o.traffic, o.before.traffic)
	}
	b.seen.Add(v.id, seen)
	return nil
}

// decide lets the policy decide about the ranges of w, which are neighbours, and carries out the decisions. Only the
// check of the ranges marked in w.core is due. The other ranges show the policy what lies beside them.
func (b *Balancer) decide(ctx context.Context, o *outcome, w *window) error {
	id := o.id
	in, err := b.prepared(ctx, o, w)
	if err != nil {
		return err
	}
	if !w.whole() {
		in.Traffic = max(o.traffic, o.before.traffic)
	}
	// The budget is shared by all buckets: moves decided here are in flight before the next window is decided about.
	b.deciding.Lock()
	defer b.deciding.Unlock()
	decisions, err := b.judge(ctx, o, w.ranges, in)
	if err != nil {
		return err
	}
	b.explain(id, Explained{in, decisions})
	if b.o.Decided != nil {
		b.o.Decided(id, in, decisions)
	}
	b.remember(id, in)
	b.confirm(o, w, in)
	b.act(o, w, in, decisions)
	return nil
}

// judge returns the decisions of the policy about run, which are neighbouring ranges of a bucket. The parameter `in`
// has the counts of these ranges. judge reads the newest keys of a range if the policy needs them. If it reads keys, or
// if a decision changes ranges, judge checks that the bucket's map in o is the newest. The caller holds the mutex
// Balancer.deciding, which judge releases while it reads.
func (b *Balancer) judge(
	ctx context.Context, o *outcome, run []partmap.Range, in *policy.Input,
) ([]policy.Decision, error) {
	in.Moves, in.Rows = b.mover.InFlight()
	decisions := policy.Decide(*in)
	needs, moves := false, false
	for i := range decisions {
		kind := decisions[i].Kind
		needs = needs || kind == policy.Need
		moves = moves || kind != policy.None && kind != policy.Recount
	}
	if !needs && (!moves || o.proved) {
		return decisions, nil
	}
	b.deciding.Unlock()
	err := b.prove(ctx, o)
	for i := range decisions {
		if d := &decisions[i]; d.Kind == policy.Need && err == nil {
			in.Ranges[d.Appended].Newest, err = b.newest(ctx, o.id, run[d.Oldest:d.Appended+1], d.Down)
		}
	}
	b.deciding.Lock()
	if err != nil {
		return nil, err
	}
	in.Moves, in.Rows = b.mover.InFlight()
	return policy.Decide(*in), nil
}

// prepared returns the input for the policy's decisions about w, which are neighbouring ranges of a bucket. Small
// ranges of unknown size are first counted exactly.
func (b *Balancer) prepared(ctx context.Context, o *outcome, w *window) (*policy.Input, error) {
	id, run := o.id, w.ranges
	in := b.input(run, w.stats)
	if b.o.Exact {
		b.forget(in)
	}
	counted, err := b.countSmall(ctx, o.root, w, in)
	if err != nil {
		return nil, err
	}
	if counted {
		w.stats = nil
		if err := b.readStats(ctx, id, []*window{w}); err != nil {
			return nil, err
		}
		if in = b.input(run, w.stats); b.o.Exact {
			b.forget(in)
		}
	}
	for i := range run {
		r := &in.Ranges[i]
		r.Moves = r.Moves || o.moving[run[i].Partition]
	}
	return in, nil
}

// forget marks counts of ranges as unknown if they were made before the present check of all buckets began. If
// Options.Exact asks for exact counts, this makes the check count these ranges again. The parameter `in` has the ranges
// with their counts.
func (b *Balancer) forget(in *policy.Input) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range in.Ranges {
		if s := &in.Ranges[i].Stats; s.Recounted.Before(b.scan.Began) {
			s.Known = false
		}
	}
}

// recountOf returns a request to count the range rg of a bucket exactly. The parameter why is the reason for the count.
// estimate are the counters of the range before the count.
func recountOf(id store.BucketID, rg *partmap.Range, why policy.Why, estimate *counter.Stats) recount {
	return recount{
		partition: store.Partition{Bucket: id, ID: rg.Partition},
		bounds:    store.Bounds{Start: bytes.Clone(rg.Start), End: bytes.Clone(rg.End)},
		why:       why, estimate: *estimate,
	}
}

// input returns the input for the policy's decisions about run, which are neighbouring ranges of a bucket. stats are
// the counts of the ranges' partitions, in the same order.
func (b *Balancer) input(run []partmap.Range, stats []counter.Stats) *policy.Input {
	// Without its monotonic reading, so that a stored input gives the same decisions.
	in := &policy.Input{Now: b.o.Now().Round(0), Policy: b.o.Policy, Ranges: make([]policy.Range, len(run))}
	// A range that stays in a partition can't move before the ranges that leave the partition are gone. A goal for it
	// would only wait, and hold up the whole bucket.
	left := map[store.PartitionID]bool{}
	for i := range run {
		if run[i].Phase != partmap.Settled {
			left[run[i].Partition] = true
		}
	}
	for i := range run {
		rg, s := &run[i], stats[i]
		// A count of other bounds says nothing about the rows in these.
		s.Known = s.Known && s.Covers(rg.Start, rg.End)
		r := &in.Ranges[i]
		*r = policy.Range{
			Start: rg.Start, End: rg.End, Stats: s, Moves: moves(rg) || left[rg.Partition],
			Created: time.Unix(rg.Created, 0), PinUntil: time.Unix(rg.PinUntil, 0),
			Small: b.smallSince(beginningOf(s.Partition.Bucket, rg), &s, in.Now),
		}
		if in.Now.Sub(s.Recounted) > b.o.Policy.Fresh || !s.Known {
			continue // the recount is too old to cut by
		}
		if c, ok := b.counted.Get(rg.Partition); ok && bytes.Equal(c.Start, rg.Start) && bytes.Equal(c.End, rg.End) &&
			c.Started.Equal(s.Recounted) {
			r.Quanta = c.Quanta
		}
	}
	return in
}

// act carries out the decisions about the ranges of w, which are neighbours: it submits moves, queues exact counts, and
// plans the next checks. It carries out the decisions about the ranges marked in w.core, and the cuts of empty ranges
// for appends to these ranges. Of the decisions about the other ranges, it carries out only exact counts.
func (b *Balancer) act(o *outcome, w *window, in *policy.Input, decisions []policy.Decision) {
	id, run := o.id, w.ranges
	plan := &scheduler.Plan{Bucket: id, Epoch: o.root.Epoch}
	x := &job{bucket: id}
	decided := map[Decision]int64{}
	o.rate += need(in, decisions, w.core)
	for i, r := range in.Ranges {
		if w.core[i] {
			o.ranges++
			o.sizes.add(&r.Stats, b.o.Policy.MaxRows)
		}
	}
	if b.o.Next == nil {
		b.hurry(o, in, w)
	}
	for i := range decisions {
		d := &decisions[i]
		core := w.core[d.From:d.To]
		mine := slices.Contains(core, true) || d.Kind == policy.Roll && w.core[d.Appended]
		// Neighbours that are to be merged with the core are counted, too.
		if !mine && d.Kind != policy.Recount {
			continue
		}
		decided[Decision{d.Kind, d.Why}]++
		if d.Kind == policy.Recount {
			if _, there := b.queue.add(recountOf(id, &run[d.From], d.Why, &in.Ranges[d.From].Stats), in.Policy.MinRows); !there {
				b.due(o, in, d, run)
			}
			continue
		}
		b.due(o, in, d, run)
		if d.Kind == policy.None {
			continue
		}
		m := move.Goal{
			Start: bytes.Clone(run[d.From].Start), End: bytes.Clone(run[d.To-1].End), Cuts: d.Cuts, Stay: d.Stay,
			Rows: d.Rows, Copies: d.Copies, Kind: string(d.Kind), Cause: string(d.Why), Why: d.Text,
		}
		if d.Kind == policy.Refresh {
			m.Leave = run[d.From].Partition
		}
		a := submitted{kind: d.Kind, span: span{
			store.Bounds{Start: m.Start, End: m.End}, bytes.Clone(run[max(0, d.From-margin)].Start),
		}}
		for k := d.From; k < d.To; k++ {
			if k > d.From {
				b.small.Remove(beginningOf(id, &run[k])) // a range that begins there later is a new one
			}
			o.moving[run[k].Partition] = true
			if d.Stay < 0 {
				a.leaving = append(a.leaving, store.Partition{Bucket: id, ID: run[k].Partition})
			}
		}
		plan.Moves = append(plan.Moves, m)
		x.moves = append(x.moves, a)
		b.o.Logger.Info("balancing", "bucket", id.String(), "kind", string(d.Kind), "start", string(m.Start),
			"cuts", len(d.Cuts), "copies", d.Copies, "why", d.Text)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reasons(w, in, decisions, id)
	for d, n := range decided {
		b.state.Decided[d] += n
	}
	for i := range decisions {
		if gap := decisions[i].Gap; gap != nil {
			b.state.Plans++
			b.state.Gap = *gap
		}
	}
	if len(plan.Moves) > 0 {
		b.jobs[b.mover.Submit(id, "balance", plan).ID] = x
	}
}

// due plans the next check of the ranges of the decision d. If many ranges of the bucket wait for moves or exact
// counts, the next check comes later. The parameter `in` is the input of the decision, and run has the ranges of in.
func (b *Balancer) due(o *outcome, in *policy.Input, d *policy.Decision, run []partmap.Range) {
	at, yes := again(in, d)
	if !yes {
		return
	}
	if d.Kind == policy.Recount || d.Why == policy.Spent {
		// These ranges wait for budget or a recount. Looks at all of them at each interval would not end the wait
		// sooner.
		o.refused++
		at = in.Now.Add(b.o.Every * time.Duration(o.refused/inLine))
	}
	for i := d.From; i < d.To; i++ {
		b.agenda.look(store.Partition{Bucket: o.id, ID: run[i].Partition}, at)
	}
}

// inLine is the maximum number of ranges of one bucket that are checked again in one interval because their moves or
// exact counts had to wait. Further ranges are checked in later intervals.
const inLine = 4096

// need returns how many rows per second must be copied and compared, so that moves of rows keep up with writes. The
// parameters are:
//   - l: the ranges with their counts
//   - decisions: the policy's decisions about these ranges
//   - core: true for each range whose moves count
func need(l *policy.Input, decisions []policy.Decision, core []bool) (rows float64) {
	// A full range is assumed to grow by at most a tenth while it is moved.
	for i := range decisions {
		v := &decisions[i]
		split := v.Kind == policy.Split && v.Why != policy.Load
		for k := v.From; k < v.To; k++ {
			if core[k] && (split || v.Kind == policy.None && (v.Why == policy.Moving || v.Why == policy.Spent)) {
				rows += 2 * 10 * l.Ranges[k].Stats.PutsPerS
			}
		}
	}
	return rows
}

// hurry plans a check, about a second later, of ranges that may be too large before the next interval ends. The
// parameter w has a run of neighbouring ranges. Only those marked in w.core count, which have just been checked. In a
// bucket that has just begun to be written to, ranges that grow all over do not count.
func (b *Balancer) hurry(o *outcome, in *policy.Input, w *window) {
	id, begun := o.id, in.Now.Sub(o.before.begun) < youngFor || o.before.blank
	for i := range in.Ranges {
		s := &in.Ranges[i].Stats
		grown := s.PutsPerS * b.o.Every.Seconds()
		full := float64(s.Rows)+2*grown > float64(b.o.Policy.MaxRows) && grown >= 1 && s.GrowthRowsPerS > 0
		if begun && s.Spread >= in.Policy.Spread {
			continue // growth that is spread is not cut ahead, and may have ended soon
		}
		if w.core[i] && full {
			b.agenda.look(store.Partition{Bucket: id, ID: w.ranges[i].Partition}, time.Time{})
			b.agenda.hurry(id)
		}
	}
}

// newest returns the highest keys of run, which are neighbouring ranges of a bucket, for a forecast of the next keys.
// It reads from the highest range downwards until there are 250 keys (policy.EnoughKeys). If down is true, new keys are
// lower than old ones, and the result has the lowest keys of the highest range.
func (b *Balancer) newest(
	ctx context.Context, id store.BucketID, run []partmap.Range, down bool,
) (*policy.Newest, error) {
	n := &policy.Newest{}
	for k := len(run) - 1; k >= 0 && len(n.Keys) < policy.EnoughKeys; k-- {
		rg := &run[k]
		page, err := b.store.Slice(ctx, store.Partition{Bucket: id, ID: rg.Partition},
			store.Bounds{Start: rg.Start, End: rg.End},
			store.SliceOptions{Limit: policy.NewestKeys - len(n.Keys), Reverse: !down, Timestamps: true})
		if err != nil {
			return nil, err
		}
		for i := range page.Rows {
			n.Keys, n.Written = append(n.Keys, page.Rows[i].Key), append(n.Written, int64(page.Rows[i].Timestamp))
		}
	}
	if !down {
		slices.Reverse(n.Keys)
		slices.Reverse(n.Written)
	}
	return n, nil
}
