package balancer

import (
	"bytes"
	"context"
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
	// Maps of up to wholeUpTo ranges are decided about as a whole; of larger ones the ranges that were written to, with
	// margin neighbours at either side.
	wholeUpTo = 8192
	margin    = 512
	// reasonsKept bounds the reasons of a round.
	reasonsKept = 100
	// smallAtOnce bounds the nearly empty partitions that one look counts.
	smallAtOnce = 512
)

// lookAt looks at the ranges of a bucket.
func (b *Balancer) lookAt(ctx context.Context, r *Round, id store.BucketID, w *watched) error {
	root, err := b.maps.Load(ctx, id)
	if err != nil || root.State != partmap.Open {
		return err
	}
	r.Buckets++
	b.seen.Add(id, struct{}{})
	whole := w.again || root.Ranges <= wholeUpTo
	var run []partmap.Range
	lacks := 0 // neighbours that are still to be added
	hit := false
	r.need = 0
	defer func() { b.mover.KeepUp(id, int(r.need)) }()
	for rg, err := range b.maps.Ranges(ctx, root, nil) {
		if err != nil {
			return err
		}
		touched := w.touched[rg.Partition]
		run = append(run, partmap.Range{Entry: rg.Entry, End: rg.End, Phase: rg.Phase, SweepPending: rg.SweepPending})
		switch {
		case whole && len(run) < wholeUpTo:
			continue
		case whole:
		case touched:
			hit, lacks = true, margin
			continue
		case hit && lacks > 0:
			lacks--
			continue
		case !hit:
			if len(run) > 2*margin {
				run = slices.Delete(run, 0, len(run)-margin)
			}
			continue
		}
		if err := b.ranges(ctx, r, root, run); err != nil {
			return err
		}
		run, hit = run[:0], false
	}
	if len(run) == 0 || !whole && !hit {
		return nil
	}
	return b.ranges(ctx, r, root, run)
}

// ranges decides about neighbouring ranges of a bucket and carries that out.
func (b *Balancer) ranges(ctx context.Context, r *Round, root *partmap.Root, run []partmap.Range) error {
	id := root.Bucket
	r.Ranges += len(run)
	in, decisions, err := b.decide(ctx, id, run)
	if err != nil {
		return err
	}
	b.explain(id, Explained{in, decisions})
	if b.o.Decided != nil {
		b.o.Decided(id, in, decisions)
	}
	r.sizes.add(in, b.o.Policy.MaxRows)
	b.remember(id, in)
	b.confirm(r, id, run, in)
	b.act(r, root, run, in, decisions)
	return nil
}

// decide has the policy decide about neighbouring ranges, and reads what it needs for that. For Run only.
func (b *Balancer) decide(
	ctx context.Context, id store.BucketID, run []partmap.Range,
) (*policy.Input, []policy.Decision, error) {
	var in *policy.Input
	for pass := range 2 {
		var err error
		if in, err = b.input(ctx, id, run); err != nil {
			return nil, nil, err
		}
		for i := range in.Ranges {
			if s := &in.Ranges[i].Stats; b.o.Exact && s.Recounted.Before(b.tick) {
				s.Known = false
			}
		}
		if pass == 0 {
			if counted, err := b.countSmall(ctx, id, run, in); err != nil {
				return nil, nil, err
			} else if !counted {
				break
			}
		}
	}
	decisions, err := b.judge(ctx, id, run, in)
	return in, decisions, err
}

// judge has the policy decide, and reads the newest keys that it needs.
func (b *Balancer) judge(
	ctx context.Context, id store.BucketID, run []partmap.Range, in *policy.Input,
) ([]policy.Decision, error) {
	decisions := policy.Decide(*in)
	again := false
	for i := range decisions {
		if d := &decisions[i]; d.Kind == policy.Need {
			newest, err := b.newest(ctx, id, run[d.Oldest:d.Appended+1], d.Down)
			if err != nil {
				return nil, err
			}
			in.Ranges[d.Appended].Newest, again = newest, true
		}
	}
	if again {
		decisions = policy.Decide(*in)
	}
	return decisions, nil
}

func recountOf(id store.BucketID, rg *partmap.Range, why policy.Why, estimate *counter.Stats) recount {
	return recount{
		partition: store.Partition{Bucket: id, ID: rg.Partition},
		bounds:    store.Bounds{Start: bytes.Clone(rg.Start), End: bytes.Clone(rg.End)},
		why:       why, estimate: *estimate,
	}
}

// input is what is known of neighbouring ranges.
func (b *Balancer) input(ctx context.Context, id store.BucketID, run []partmap.Range) (*policy.Input, error) {
	parts := make([]store.Partition, len(run))
	for i := range run {
		// While a range moves, new rows are counted with its new partition.
		parts[i] = store.Partition{Bucket: id, ID: run[i].WriteTo()}
	}
	stats, err := b.counts.Stats(ctx, parts)
	if err != nil {
		return nil, err
	}
	in := &policy.Input{Now: b.o.Now(), Policy: b.o.Policy, Ranges: make([]policy.Range, len(run))}
	in.Moves, in.Rows = b.mover.InFlight()
	// What stays in a partition that others leave can't move before they have left: a goal for it would only wait, and
	// the whole bucket with it.
	left := map[store.PartitionID]bool{}
	for i := range run {
		if run[i].Phase != partmap.Settled {
			left[run[i].Partition] = true
		}
	}
	for i := range run {
		rg, s := &run[i], &stats[i]
		// A count of other bounds says nothing about the rows in these.
		s.Known = s.Known && s.Covers(rg.Start, rg.End)
		r := &in.Ranges[i]
		*r = policy.Range{
			Start: rg.Start, End: rg.End, Stats: *s, Moves: moves(rg) || left[rg.Partition],
			Created: time.Unix(rg.Created, 0), PinUntil: time.Unix(rg.PinUntil, 0),
			Small: b.smallSince(rg.Partition, s, in.Now),
		}
		if in.Now.Sub(s.Recounted) > b.o.Policy.Fresh || !s.Known {
			continue // nothing is cut by it
		}
		if c, ok := b.counted.Get(rg.Partition); ok && bytes.Equal(c.Start, rg.Start) && bytes.Equal(c.End, rg.End) &&
			c.Started.Equal(s.Recounted) {
			r.Quanta = c.Quanta
		}
	}
	return in, nil
}

// act carries decisions out.
func (b *Balancer) act(
	r *Round, root *partmap.Root, run []partmap.Range, in *policy.Input, decisions []policy.Decision,
) {
	id := root.Bucket
	plan := &scheduler.Plan{Bucket: id, Epoch: root.Epoch}
	x := &job{bucket: id}
	var reasons []Reason
	again := false
	decided := map[Decision]int64{}
	r.need += need(in, decisions)
	for i := range decisions {
		d := &decisions[i]
		decided[Decision{d.Kind, d.Why}]++
		again = again || d.Kind != policy.None
		switch d.Kind {
		case policy.None:
			if d.Why != policy.Within {
				again = again || d.Why != policy.OneKey
				if len(reasons) < reasonsKept {
					reasons = append(reasons, Reason{Bucket: id, Start: bytes.Clone(run[d.From].Start),
						End: bytes.Clone(run[d.To-1].End), Verdict: *d})
				}
			}
		case policy.Recount:
			b.queue.add(recountOf(id, &run[d.From], d.Why, &in.Ranges[d.From].Stats))
		default:
			m := move.Goal{
				Start: bytes.Clone(run[d.From].Start), End: bytes.Clone(run[d.To-1].End), Cuts: d.Cuts, Stay: d.Stay,
				Rows: d.Rows, Copies: d.Copies, Why: d.Text,
			}
			if d.Kind == policy.Refresh {
				m.Leave = run[d.From].Partition
			}
			a := submitted{kind: d.Kind}
			if d.Stay < 0 {
				for k := d.From; k < d.To; k++ {
					a.leaving = append(a.leaving, store.Partition{Bucket: id, ID: run[k].Partition})
				}
			}
			plan.Moves = append(plan.Moves, m)
			x.moves = append(x.moves, a)
			b.o.Logger.Info("balancing", "bucket", id.String(), "kind", string(d.Kind), "start", string(m.Start),
				"cuts", len(d.Cuts), "copies", d.Copies, "why", d.Text)
		}
	}
	if hurry := b.o.Next == nil && b.hurry(in); again || hurry {
		b.again(id, hurry)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for d, n := range decided {
		b.state.Decided[d] += n
	}
	for i := range decisions {
		if gap := decisions[i].Gap; gap != nil {
			b.state.Plans++
			b.state.Gap = *gap
		}
	}
	if n := min(len(reasons), reasonsKept-len(r.Why)); n > 0 {
		r.Why = append(r.Why, reasons[:n]...)
	}
	if len(plan.Moves) > 0 {
		b.jobs[b.mover.Submit(id, "balance", plan).ID] = x
	}
}

// need is how many rows per second must be copied and compared for moves to keep up with writes: a full range may grow
// by a tenth while it is moved.
func need(l *policy.Input, decisions []policy.Decision) (rows float64) {
	for i := range decisions {
		v := &decisions[i]
		split := v.Kind == policy.Split && v.Why != policy.Load
		for k := v.From; k < v.To; k++ {
			if split || v.Kind == policy.None && (v.Why == policy.Moving || v.Why == policy.Spent) {
				rows += 2 * 10 * l.Ranges[k].Stats.PutsPerS
			}
		}
	}
	return rows
}

// hurry reports whether a range will be too large before the next interval ends.
func (b *Balancer) hurry(l *policy.Input) bool {
	for i := range l.Ranges {
		s := &l.Ranges[i].Stats
		grown := s.PutsPerS * b.o.Every.Seconds()
		if float64(s.Rows)+2*grown > float64(b.o.Policy.MaxRows) && grown >= 1 && s.GrowthRowsPerS > 0 {
			return true
		}
	}
	return false
}

// newest reads the highest keys of neighbouring ranges, from the top, until there are enough; or, where keys descend,
// the lowest ones of the last range.
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
