package balancer

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/internal/rebalance/cut"
	"github.com/evenkeel/evenkeel/internal/rebalance/forecast"
	"github.com/evenkeel/evenkeel/internal/rebalance/move"
	"github.com/evenkeel/evenkeel/internal/rebalance/policy"
	"github.com/evenkeel/evenkeel/internal/rebalance/scheduler"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

const (
	// Maps of up to so many ranges are judged whole; of larger ones what was written
	// to, with so many neighbours at either side.
	wholeUpTo = 8192
	margin    = 512
	// reasonsKept bounds the reasons of a round.
	reasonsKept = 100
	// In a look at most so many presumably empty partitions are counted at once.
	smallAtOnce = 512
)

// judge looks at the ranges of a bucket.
func (b *Balancer) judge(ctx context.Context, r *Round, id store.BucketID, w *watched) error {
	root, err := b.maps.Load(ctx, id)
	if err != nil || root.State != partmap.Open {
		return err
	}
	r.Buckets++
	b.seen.Add(id, struct{}{})
	whole := w.again || root.Ranges <= wholeUpTo
	var run []partmap.Range
	lacks := 0 // neighbours that the run still wants
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

// ranges judges neighbouring ranges of a bucket and has done what is to be done.
func (b *Balancer) ranges(ctx context.Context, r *Round, root *partmap.Root, run []partmap.Range) error {
	id := root.Bucket
	r.Ranges += len(run)
	l, err := b.layout(ctx, id, run)
	if err != nil {
		return err
	}
	verdicts := b.o.Policy.Judge(l, b.o.Now())
	// What was cut ahead of appends is empty: that is found out at once, for whether
	// more is to be cut depends on it.
	again := false
	for n := 0; n < len(verdicts); n++ {
		v := &verdicts[n]
		if n >= smallAtOnce || v.Kind != policy.Recount || v.Why != policy.Unknown || l.Ranges[v.From].Stats.Rows > small {
			continue
		}
		done, err := b.countSmall(ctx, recountOf(id, &run[v.From], v.Why, &l.Ranges[v.From].Stats))
		if err != nil {
			return err
		}
		again = again || done
	}
	if again {
		if l, err = b.layout(ctx, id, run); err != nil {
			return err
		}
		verdicts = b.o.Policy.Judge(l, b.o.Now())
	}
	r.sizes.add(l, b.o.Policy.MaxRows)
	return b.act(ctx, r, root, run, l, verdicts)
}

func recountOf(id store.BucketID, rg *partmap.Range, why policy.Why, estimate *counter.Stats) recount {
	return recount{
		partition: store.Partition{Bucket: id, ID: rg.Partition},
		bounds:    store.Bounds{Start: bytes.Clone(rg.Start), End: bytes.Clone(rg.End)},
		why:       why, estimate: *estimate,
	}
}

// layout is what is known of neighbouring ranges, and remembered of where they grow.
// For Run only.
func (b *Balancer) layout(ctx context.Context, id store.BucketID, run []partmap.Range) (*policy.Layout, error) {
	l, err := b.known(ctx, id, run)
	if err != nil {
		return nil, err
	}
	for i := range run {
		s := &l.Ranges[i].Stats
		if b.o.Exact && s.Recounted.Before(b.tick) {
			s.Known = false
		}
		if s.Known && !b.o.Exact {
			b.trail.Note(run[i].Partition, s.Rows, func() []counter.Quantum {
				q, _ := b.counts.Quanta(ctx, store.Partition{Bucket: id, ID: run[i].WriteTo()}) // a hint: none is as good
				return q
			})
		}
	}
	return l, nil
}

// known is what is known of neighbouring ranges.
func (b *Balancer) known(ctx context.Context, id store.BucketID, run []partmap.Range) (*policy.Layout, error) {
	parts := make([]store.Partition, len(run))
	for i := range run {
		// Where a range moves, what comes now is counted with its new partition.
		parts[i] = store.Partition{Bucket: id, ID: run[i].WriteTo()}
	}
	stats, err := b.counts.Stats(ctx, parts)
	if err != nil {
		return nil, err
	}
	l := &policy.Layout{Ranges: make([]policy.Range, len(run))}
	l.Moves, l.Rows = b.mover.InFlight()
	// What stays in a partition that others leave can't begin to move before they have:
	// a goal for it would only wait, and with it all that is judged in the bucket.
	left := map[store.PartitionID]bool{}
	for i := range run {
		if run[i].Phase != partmap.Settled {
			left[run[i].Partition] = true
		}
	}
	for i := range run {
		rg, s := &run[i], &stats[i]
		// A count of other bounds tells nothing of the rows that are here.
		s.Known = s.Known && s.Covers(rg.Start, rg.End)
		l.Ranges[i] = policy.Range{
			Start: rg.Start, End: rg.End, Stats: *s, Moves: moves(rg) || left[rg.Partition],
			Created: time.Unix(rg.Created, 0), PinUntil: time.Unix(rg.PinUntil, 0),
		}
	}
	return l, nil
}

// act has done what verdicts say.
func (b *Balancer) act(ctx context.Context, r *Round, root *partmap.Root, run []partmap.Range, l *policy.Layout, verdicts []policy.Verdict) error {
	id := root.Bucket
	plan := &scheduler.Plan{Bucket: id, Epoch: root.Epoch}
	x := &job{bucket: id}
	var reasons []Reason
	again := false
	decided := map[Decision]int64{}
	ask := func(v *policy.Verdict, from, to int, m move.Goal) {
		if m.Stay >= 0 && len(m.Cuts) == 0 {
			return // there is nowhere to cut
		}
		a := asked{kind: v.Kind, rows: m.Copies}
		if m.Stay < 0 {
			for k := from; k < to; k++ {
				a.leaving = append(a.leaving, store.Partition{Bucket: id, ID: run[k].Partition})
			}
		}
		plan.Moves = append(plan.Moves, m)
		x.moves = append(x.moves, a)
		b.o.Logger.Info("balancing", "bucket", id.String(), "kind", string(v.Kind), "start", string(m.Start), "cuts", len(m.Cuts), "copies", m.Copies, "why", v.Text)
	}
	r.need += need(l, verdicts)
	for i := range verdicts {
		v := &verdicts[i]
		decided[Decision{v.Kind, v.Why}]++
		again = again || v.Kind != policy.None
		switch v.Kind {
		case policy.None:
			if v.Why != policy.Within {
				again = again || v.Why != policy.Broken && v.Why != policy.OneKey
				if len(reasons) < reasonsKept {
					reasons = append(reasons, Reason{Bucket: id, Start: bytes.Clone(run[v.From].Start), End: bytes.Clone(run[v.To-1].End), Verdict: *v})
				}
			}
		case policy.Recount:
			b.queue.add(recountOf(id, &run[v.From], v.Why, &l.Ranges[v.From].Stats))
		case policy.Split, policy.Merge:
			cuts, err := b.recut(ctx, id, run, l, v)
			if err != nil {
				return err
			}
			for k := range cuts {
				m := &cuts[k]
				ask(v, m.From, m.To, m.Goal())
			}
		case policy.Refresh:
			goal := move.Refresh(&run[v.From])
			goal.Start, goal.End = bytes.Clone(goal.Start), bytes.Clone(goal.End)
			goal.Rows, goal.Copies = v.Rows, v.Rows
			ask(v, v.From, v.To, goal)
		case policy.Roll:
			m, err := b.roll(ctx, id, run, l, v)
			if err != nil {
				return err
			}
			ask(v, v.From, v.To, m)
		}
	}
	if hurry := b.o.Next == nil && b.hurry(l); again || hurry {
		b.again(id, hurry)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for d, n := range decided {
		b.state.Decided[d] += n
	}
	if n := min(len(reasons), reasonsKept-len(r.Why)); n > 0 {
		r.Why = append(r.Why, reasons[:n]...)
	}
	if len(plan.Moves) > 0 {
		b.jobs[b.mover.Submit(id, "balance", plan).ID] = x
	}
	return nil
}

// need is how many rows per second have to be copied and compared for moves to keep up
// with what is written: so many that a full range grows by a tenth, not more, while it
// is moved. Each of its rows is copied and compared.
func need(l *policy.Layout, verdicts []policy.Verdict) (rows float64) {
	for i := range verdicts {
		v := &verdicts[i]
		split := v.Kind == policy.Split && v.Why != policy.Load
		for k := v.From; k < v.To; k++ {
			if split || v.Kind == policy.None && (v.Why == policy.Moving || v.Why == policy.Spent) {
				rows += 2 * 10 * l.Ranges[k].Stats.PutsPerS
			}
		}
	}
	return rows
}

// hurry says whether a range will be too large before the next look at an interval.
func (b *Balancer) hurry(l *policy.Layout) bool {
	for i := range l.Ranges {
		s := &l.Ranges[i].Stats
		grown := s.PutsPerS * b.o.Every.Seconds()
		if float64(s.Rows)+2*grown > float64(b.o.Policy.MaxRows) && grown >= 1 && s.GrowthRowsPerS > 0 {
			return true
		}
	}
	return false
}

// recut finds the cuts of a split, or what a merge joins. Where the exact quanta of a
// range are not known here, or not any more, it is counted again, and nothing is cut.
func (b *Balancer) recut(ctx context.Context, id store.BucketID, run []partmap.Range, l *policy.Layout, v *policy.Verdict) ([]cut.Move, error) {
	z := &cut.Zone{First: max(0, v.From-1)}
	for i := z.First; i < min(len(run), v.To+1); i++ {
		rg, known := &run[i], &l.Ranges[i]
		x := cut.Range{Start: bytes.Clone(rg.Start), End: bytes.Clone(rg.End), Stats: known.Stats, Pinned: known.PinUntil.After(b.o.Now()), Fixed: true}
		if i >= v.From && i < v.To {
			c, ok := b.counted.Get(rg.Partition)
			if !ok || !bytes.Equal(c.Start, rg.Start) || !bytes.Equal(c.End, rg.End) || !c.Started.Equal(known.Stats.Recounted) {
				b.queue.add(recountOf(id, rg, policy.Suspect, &known.Stats))
				return nil, nil
			}
			x.Quanta, x.Fixed = c.Quanta, false
			x.Earlier = b.trail.Earlier(rg.Partition, known.Stats.Rows)
		}
		z.Ranges = append(z.Ranges, x)
	}
	return b.o.Cutter.Cut(ctx, z, v, &b.o.Policy)
}

// finer is how many times finer than wanted keys ahead are foreseen.
const finer = 4

// newest is how many of the highest keys are read to foresee the next ones.
const newest = 1000

// newest reads the highest keys of a range, and where those are few, of the ranges
// through which the same appends have come before; with the times at which they were
// written. They ascend.
func (b *Balancer) newest(ctx context.Context, id store.BucketID, run []partmap.Range, l *policy.Layout, i int) (keys [][]byte, written []int64, err error) {
	for k := i; k >= 0 && len(keys) < newest/4; k-- {
		rg := &run[k]
		if k < i && (moves(rg) || l.Ranges[k].Stats.AppendShare < b.o.Policy.AppendShare) {
			break
		}
		page, err := b.store.Slice(ctx, store.Partition{Bucket: id, ID: rg.Partition}, store.Bounds{Start: rg.Start, End: rg.End},
			store.SliceOptions{Limit: newest - len(keys), Reverse: true, Timestamps: true})
		if err != nil {
			return nil, nil, err
		}
		for j := range page.Rows {
			keys, written = append(keys, page.Rows[j].Key), append(written, int64(page.Rows[j].Timestamp))
		}
	}
	slices.Reverse(keys)
	slices.Reverse(written)
	return keys, written, nil
}

// roll cuts ahead of the highest key, where the keys that come are foreseen; else
// right above it.
func (b *Balancer) roll(ctx context.Context, id store.BucketID, run []partmap.Range, l *policy.Layout, v *policy.Verdict) (move.Goal, error) {
	tail := &run[v.From]
	keys, written, err := b.newest(ctx, id, run, l, v.Appended)
	if err != nil || len(keys) == 0 {
		return move.Goal{}, err
	}
	s := &l.Ranges[v.Appended].Stats
	each := policy.Fill * float64(b.o.Policy.MaxRows)
	o := forecast.Options{
		// The first cut is not below what comes until it takes puts.
		First: max(each-float64(s.Rows), v.Rate*b.o.Effect.Seconds()), Each: each / finer, N: finer * (v.Ahead + v.From - v.Appended + 1),
		RowsPerSecond: v.Rate, Now: b.o.Now(), Written: written,
	}
	var cuts [][]byte
	how := "right above the highest key"
	var unforeseeable *forecast.Unforeseeable
	if f, err := forecast.Ahead(keys, o); err == nil {
		cuts, how = f.Cuts, f.How
		// Where a range begins ahead of the appends already, at a place among the cuts, it
		// is to become as full as the others.
		if v.From > v.Appended {
			for len(cuts) > 0 && bytes.Compare(cuts[0], tail.Start) <= 0 {
				cuts = cuts[1:]
			}
			cuts = cuts[min(len(cuts), finer-1):]
		}
		for i := range cuts {
			if i*finer >= len(cuts) {
				cuts = cuts[:i]
				break
			}
			cuts[i] = cuts[i*finer]
		}
	} else if k := keys[len(keys)-1]; errors.As(err, &unforeseeable) && len(keys) >= forecast.Fewest && v.From == v.Appended && float64(s.Rows)+v.Rate*b.o.Policy.Lead.Seconds() >= float64(b.o.Policy.MaxRows) && len(k) < store.MaxKeyBytes {
		// As late as possible: what comes until the cut takes puts lies above it, and is
		// copied.
		cuts, how = [][]byte{append(bytes.Clone(k), 0)}, how+": "+err.Error()
	}
	b.o.Logger.Debug("cutting ahead", "bucket", id.String(), "cuts", len(cuts), "how", how, "rate", v.Rate)
	m := move.Goal{Start: bytes.Clone(tail.Start), End: bytes.Clone(tail.End), Rows: l.Ranges[v.From].Stats.Rows}
	for _, c := range cuts {
		if bytes.Compare(c, tail.Start) > 0 && (len(tail.End) == 0 || bytes.Compare(c, tail.End) < 0) && len(m.Cuts) < v.Ahead {
			m.Cuts = append(m.Cuts, c)
		}
	}
	return m, nil
}
