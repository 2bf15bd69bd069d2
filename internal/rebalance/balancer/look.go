package balancer

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/internal/keytext"
	"github.com/evenkeel/evenkeel/internal/rebalance/policy"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/rebalance"
	"github.com/evenkeel/evenkeel/store"
)

// Seen is a range of keys as Balancer.Look passes it to its callback: the range with its counts, its entry in the
// bucket's map, and the decision that the policy would make about it.
type Seen struct {
	policy.Range
	Place   partmap.Range
	Verdict policy.Decision
}

// ErrEnough is the error by which a callback of Balancer.Look says that it wants no more ranges. Look then ends without
// an error.
var ErrEnough = errors.New("enough was seen")

// runRanges is the maximum number of neighbouring ranges of a bucket that are passed to a callback at once.
const runRanges = 8192

// each calls f for all ranges of a bucket, with up to 8,192 neighbouring ranges at a time, and returns the epoch of the
// bucket's map. f may keep the ranges. If f returns ErrEnough, each ends without an error. The error is of kind
// NotFound if the bucket is deleted.
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

// known returns the input for the policy's decisions about run, which are neighbouring ranges of a bucket. known asks
// the counters for the counts of the ranges.
func (b *Balancer) known(ctx context.Context, id store.BucketID, run []partmap.Range) (*policy.Input, error) {
	w := &window{ranges: run}
	if err := b.readStats(ctx, id, []*window{w}); err != nil {
		return nil, err
	}
	in := b.input(run, w.stats)
	in.Moves, in.Rows = b.mover.InFlight()
	return in, nil
}

// Look calls f for the ranges of a bucket, in the order of their keys, with the decision that the policy would make
// about each range now. It changes nothing, so an operator can use it at any time. The first range is the one that
// contains the key `from`. The keys at which ranges would be cut are left out.
//
// The results are the epoch (version) of the bucket's map and the first error, of f or of a read. If f returns
// ErrEnough, Look ends without an error.
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

// Recounted is the result of an exact count of a range that an operator asked for, with the estimate before the count.
// Rows and Bytes are the counted size, and Markers is the number of tombstones.
type Recounted struct {
	keytext.Span
	Partition store.PartitionID `json:"partition"`
	// Moves is true if rows of the range are being moved at present, so that the range was not counted.
	Moves   bool  `json:"moves,omitempty"`
	Rows    int64 `json:"rows"`
	Bytes   int64 `json:"bytes"`
	Markers int64 `json:"markers"`
	// Known is true if the counters had an estimate of the size of the range before the count. Estimate is that
	// estimate, in rows.
	Known    bool  `json:"known"`
	Estimate int64 `json:"estimate"`
}

// Recount counts those ranges of a bucket exactly that have keys within the interval s, corrects the counters, and
// calls f for each of the ranges. The counts read rows at a limited rate. The results are the epoch of the bucket's map
// and the first error.
func (b *Balancer) Recount(
	ctx context.Context, id store.BucketID, s keytext.Span, f func(Recounted) error,
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
				Span: keytext.Span{Start: rg.Start, End: rg.End}, Partition: rg.Partition, Moves: true,
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

// Limits returns the policy's limits on the rows of partitions, in the form that planners take.
func (b *Balancer) Limits() rebalance.Limits {
	p := &b.o.Policy
	return rebalance.Limits{
		MaxRows: p.MaxRows, MinRows: p.MinRows, TargetRows: p.TargetRows, HorizonS: (24 * time.Hour).Seconds(),
	}
}

// Layout calls f for each partition of a bucket, in the form that planners take. The caller makes a plan of the bucket
// from these partitions.
//   - If exact is true, the rows of all partitions are counted one by one.
//   - If exact is false, only partitions of unknown size are counted.
//
// Small partitions that the policy leaves small, e.g. empty ones ahead of appends, are marked as pinned, and plans do
// not merge them. The error is of kind Conflict if a range moves at present.
func (b *Balancer) Layout(
	ctx context.Context, id store.BucketID, exact bool, f func(rebalance.Partition) error,
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
			out := rebalance.Partition{
				ID: rg.Partition.String(), Start: rebalance.Key(rg.Start), Quanta: within(quanta, rg),
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

// within returns the quanta of range rg in the form that planners take. A quantum is a run of neighbouring rows. The
// first quantum of the result begins at the start of the range. If a quantum has a key outside the range, from before
// the range was cut, its rows are taken to lie in the range.
func within(quanta []counter.Quantum, rg *partmap.Range) (out []rebalance.Quantum) {
	for _, q := range quanta {
		inside := bytes.Compare(q.Key, rg.Start) > 0 && (len(rg.End) == 0 || bytes.Compare(q.Key, rg.End) < 0)
		switch {
		case len(out) == 0:
			out = append(out, rebalance.Quantum{Key: rebalance.Key(rg.Start), Rows: q.Rows})
		case q.Rows == 0: // the quantum only marks the end of a stream
		case inside && rebalance.Key(q.Key) > out[len(out)-1].Key:
			out = append(out, rebalance.Quantum{Key: rebalance.Key(q.Key), Rows: q.Rows})
		default:
			out[len(out)-1].Rows += q.Rows
		}
	}
	return out
}
