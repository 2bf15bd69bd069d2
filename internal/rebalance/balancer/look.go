package balancer

import (
	"bytes"
	"context"
	"errors"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/internal/rebalance/plan"
	"github.com/evenkeel/evenkeel/internal/rebalance/policy"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/keytext"
)

// Seen is a range as a look from outside found it.
type Seen struct {
	policy.Range
	Place   partmap.Range
	Verdict policy.Decision
}

// ErrEnough ends a look without an error.
var ErrEnough = errors.New("enough was seen")

// runRanges bounds a run of ranges that is looked at from outside.
const runRanges = 8192

// each calls f for runs of neighbouring ranges of a bucket, and returns the epoch of its map. f may keep the ranges.
func (b *Balancer) each(
	ctx context.Context, id store.BucketID, f func(run []partmap.Range) error,
) (epoch uint64, err error) {
	root, err := b.maps.Load(ctx, id)
	if err != nil {
		return 0, err
	}
	if root.State != partmap.Open {
		return 0, store.Errorf(store.NotFound, "the bucket is deleted, or about to be")
	}
	var run []partmap.Range
	for rg, err := range b.maps.Ranges(ctx, root, nil) {
		if err != nil {
			return 0, err
		}
		rg.Start, rg.End = bytes.Clone(rg.Start), bytes.Clone(rg.End)
		if run = append(run, rg); len(run) == runRanges {
			if err := f(run); errors.Is(err, ErrEnough) {
				return root.Epoch, nil
			} else if err != nil {
				return 0, err
			}
			run = nil
		}
	}
	if len(run) > 0 {
		err = f(run)
	}
	if errors.Is(err, ErrEnough) {
		err = nil
	}
	return root.Epoch, err
}

// known is what is known of a run of ranges.
func (b *Balancer) known(ctx context.Context, id store.BucketID, run []partmap.Range) (*policy.Input, error) {
	w := &window{ranges: run}
	if err := b.readStats(ctx, id, []*window{w}); err != nil {
		return nil, err
	}
	in := b.input(run, w.stats)
	in.Moves, in.Rows = b.mover.InFlight()
	return in, nil
}

// Look calls f for each range of a bucket, from the one that holds a key on, with what Run would decide now, without
// cuts. It changes nothing. It returns the epoch of the map, or the error of f, which is ErrEnough if no more is wanted.
func (b *Balancer) Look(ctx context.Context, id store.BucketID, from []byte, f func(Seen) error) (epoch uint64, err error) {
	return b.each(ctx, id, func(run []partmap.Range) error {
		below := func(rg *partmap.Range) bool { return len(rg.End) > 0 && bytes.Compare(rg.End, from) <= 0 }
		if below(&run[len(run)-1]) {
			return nil
		}
		l, err := b.known(ctx, id, run)
		if err != nil {
			return err
		}
		for _, v := range policy.Judge(l) {
			for i := v.From; i < v.To; i++ {
				if below(&run[i]) {
					continue
				}
				if err := f(Seen{Range: l.Ranges[i], Place: run[i], Verdict: v}); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// Recounted is a range that was counted on request.
type Recounted struct {
	partmap.Span
	Partition store.PartitionID `json:"partition"`
	// Moves: it moves at present and was not counted.
	Moves   bool  `json:"moves,omitempty"`
	Rows    int64 `json:"rows"`
	Bytes   int64 `json:"bytes"`
	Markers int64 `json:"markers"`
	// Known: the counters' estimate was Estimate rows.
	Known    bool  `json:"known"`
	Estimate int64 `json:"estimate"`
}

// Recount counts the ranges of a bucket that have keys in a span, at the pace of moves, corrects the counters, and
// calls f for each.
func (b *Balancer) Recount(
	ctx context.Context, id store.BucketID, s partmap.Span, f func(Recounted) error,
) (epoch uint64, err error) {
	return b.each(ctx, id, func(run []partmap.Range) error {
		for i := range run {
			rg := &run[i]
			if len(s.End) > 0 && bytes.Compare(rg.Start, s.End) >= 0 || len(rg.End) > 0 && bytes.Compare(rg.End, s.Start) <= 0 {
				continue
			}
			l, err := b.known(ctx, id, run[i:i+1])
			if err != nil {
				return err
			}
			before := &l.Ranges[0].Stats
			out := Recounted{
				Span: partmap.Span{Start: rg.Start, End: rg.End}, Partition: rg.Partition, Moves: true,
				Known: before.Known, Estimate: before.Rows,
			}
			if !moves(rg) {
				c, err := b.recount(ctx, recountOf(id, rg, policy.Unknown, before), func() error { return nil })
				if err != nil {
					return err
				}
				if c != nil {
					out.Moves, out.Rows, out.Bytes, out.Markers = false, c.Rows, c.Bytes, c.Markers
				}
			}
			if err := f(out); err != nil {
				return err
			}
		}
		return nil
	})
}

// Limits returns the limits of partitions, as planners take them.
func (b *Balancer) Limits() plan.Limits {
	p := &b.o.Policy
	return plan.Limits{MaxRows: p.MaxRows, MinRows: p.MinRows, TargetRows: p.TargetRows, HorizonS: plan.DefaultHorizonS}
}

// Layout calls f for the partitions of a bucket as planners take them: exact, by recounts, or by the counters; unknown
// ones are counted. What the policy leaves as it is although it is too small, as what is cut ahead of a stream, counts as
// pinned: plans neither join it nor find it too small. It fails with Conflict if a range moves.
func (b *Balancer) Layout(
	ctx context.Context, id store.BucketID, exact bool, f func(plan.Partition) error,
) (epoch uint64, err error) {
	return b.each(ctx, id, func(run []partmap.Range) error {
		l, err := b.known(ctx, id, run)
		if err != nil {
			return err
		}
		stays := make([]bool, len(run))
		for _, v := range policy.Judge(l) {
			for i := v.From; i < v.To; i++ {
				stays[i] = v.Stays()
			}
		}
		for i := range run {
			rg, s := &run[i], &l.Ranges[i].Stats
			moving := store.Errorf(store.Conflict, "the range [%s, %s) moves at present: wait until it has ended",
				keytext.Format(rg.Start), keytext.Format(rg.End))
			if moves(rg) {
				return moving
			}
			p := store.Partition{Bucket: id, ID: rg.Partition}
			var quanta []counter.Quantum
			if exact || !s.Known {
				c, err := b.recount(ctx, recountOf(id, rg, policy.Unknown, s), func() error { return nil })
				if err != nil {
					return err
				}
				if c == nil {
					return moving
				}
				quanta = c.Quanta
			} else if quanta, err = b.counts.Quanta(ctx, p); err != nil {
				return err
			}
			out := plan.Partition{
				ID: rg.Partition.String(), Start: plan.Key(rg.Start), Quanta: within(quanta, rg),
				Pinned: l.Ranges[i].PinUntil.After(b.o.Now()), WritesPerS: s.PutsPerS + s.DeletesPerS,
				GrowthRowsPerS: policy.Growth(s, b.o.Now()),
			}
			out.Pinned = out.Pinned || stays[i] && out.Rows() < b.o.Policy.MinRows
			if err := f(out); err != nil {
				return err
			}
		}
		return nil
	})
}

// within returns quanta as layouts have them: the first begins at the range's start. A sample may have keys outside the
// range, from before it was cut: their rows are taken to lie in it.
func within(quanta []counter.Quantum, rg *partmap.Range) (out []plan.Quantum) {
	for _, q := range quanta {
		inside := bytes.Compare(q.Key, rg.Start) > 0 && (len(rg.End) == 0 || bytes.Compare(q.Key, rg.End) < 0)
		switch {
		case len(out) == 0:
			out = append(out, plan.Quantum{Key: plan.Key(rg.Start), Rows: q.Rows})
		case q.Rows == 0: // it says only where a stream ends
		case inside && plan.Key(q.Key) > out[len(out)-1].Key:
			out = append(out, plan.Quantum{Key: plan.Key(q.Key), Rows: q.Rows})
		default:
			out[len(out)-1].Rows += q.Rows
		}
	}
	return out
}
