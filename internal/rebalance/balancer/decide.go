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
	// reasonsKept is the maximum number of reasons in a Status.
	reasonsKept = 100
	// smallAtOnce is the maximum number of nearly empty partitions that are counted for one window.
	smallAtOnce = 512
)

// outcome is what one look at a bucket (a visit) finds. It names the root of the bucket's map that the look used.
type outcome struct {
	*visit
	root    *partmap.Root
	proved  bool     // the root was the newest one when it was read
	whole   bool     // all ranges were looked at
	before  sighting // the result of the look before
	first   bool     // there was no look before
	ranges  int
	sizes   Sizes
	rate    float64 // rows per second that moves need to keep up
	traffic float64 // reads and writes per second, of the ranges so far
	puts    bool    // one of the ranges has ever got a put
	spread  bool    // one of the ranges grows all over
	refused int     // ranges that must wait for budget or recounts
	moving  map[store.PartitionID]bool
	missing map[store.PartitionID]bool // partitions to look at that were not found in the map yet
}

// errOutdated ends a look at a bucket that used an old root of its map. The look is repeated with the newest root.
var errOutdated = store.Errorf(store.Conflict, "the map has changed")

// lookAt looks for due work in a bucket, using the root that this data centre has: most looks find nothing to do. Two
// results need a root that is proved to be the newest one: moves (see prove), and forgetting a partition that the map
// does not have. If there is a newer root, the look is repeated with that root.
//
// Two results need no proof. The first is a recount, as a count is good only for the range that was counted
// (counter.Stats.Covers). The second is that there is nothing to do. An older root leads to that result only if another
// process has moved ranges until just now, and the last looks of that process used the newer root. Rows that are
// written after those looks lead to another look, at the partition that they are written to.
func (b *Balancer) lookAt(ctx context.Context, v *visit) (*outcome, error) {
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

// outcome returns the empty result of the visit v, a look at a bucket that uses the given root of its map. proved: the
// root is known to be the newest one.
func (b *Balancer) outcome(v *visit, root *partmap.Root, proved bool) *outcome {
	return &outcome{
		visit: v, root: root, proved: proved, moving: map[store.PartitionID]bool{}, missing: maps.Clone(v.parts),
		whole: v.whole || root.Ranges <= wholeUpTo,
	}
}

// prove checks that the look with the result o uses the newest root of the bucket's map. It fails with errOutdated if
// there is a newer root.
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

// lookBy looks at those parts of a bucket that are due, decides about their ranges, and records the results in o. It
// uses the root of the bucket's map that o names.
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

// decide lets the policy decide about the core of window w, and carries out the decisions. The core has the ranges that
// are due.
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

// judge returns the decisions of the policy about neighbouring ranges. It reads the newest keys if the policy asks for
// them. If there is something to move, it checks that the root of the look is the newest one. The caller holds
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

// prepared returns the input for the decisions about window w, which is a run of neighbouring ranges. Before that it
// counts small ranges of unknown size.
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

// forget marks counts as unknown if they were made before the present look at all buckets began.
func (b *Balancer) forget(in *policy.Input) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range in.Ranges {
		if s := &in.Ranges[i].Stats; s.Recounted.Before(b.scan.Began) {
			s.Known = false
		}
	}
}

// recountOf returns a request to count the range rg of a bucket exactly. why is the reason, estimate the present
// counters.
func recountOf(id store.BucketID, rg *partmap.Range, why policy.Why, estimate *counter.Stats) recount {
	return recount{
		partition: store.Partition{Bucket: id, ID: rg.Partition},
		bounds:    store.Bounds{Start: bytes.Clone(rg.Start), End: bytes.Clone(rg.End)},
		why:       why, estimate: *estimate,
	}
}

// input returns the input for decisions about neighbouring ranges, run. stats are the counts of their partitions.
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

// act carries out the decisions about window w. The core of the window has the ranges that are due. A decision that
// concerns only their neighbours is left out, unless it asks for an exact count.
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
			partmap.Span{Start: m.Start, End: m.End}, bytes.Clone(run[max(0, d.From-margin)].Start),
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

// due plans when the ranges of the decision d are looked at again. run has the ranges of the input in.
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

// inLine is the maximum number of ranges of one bucket that are looked at again in one interval because their moves or
// exact counts had to wait.
const inLine = 4096

// need returns how many rows per second must be copied and compared so that moves keep up with writes. It assumes that
// a full range may grow by a tenth while it is moved. core says which ranges the decisions are for.
func need(l *policy.Input, decisions []policy.Decision, core []bool) (rows float64) {
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

// hurry makes the next turn look at ranges again that will be too large before the next interval ends. Only ranges in
// the core of window w count, which has the ranges that were due.
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

// newest returns the highest keys of neighbouring ranges. It reads from the highest range down until there are enough
// keys. down: keys descend, and it reads the lowest keys of the highest range instead.
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
