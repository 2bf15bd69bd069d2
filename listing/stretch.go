package listing

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/partmap/keyspread"
	"github.com/evenkeel/evenkeel/partmap/mapclient"
	"github.com/evenkeel/evenkeel/store"
)

const (
	// minStretches is the number of ranges above which neighbours are combined.
	minStretches = 4096
	// maxQuanta bounds the partitions whose quanta SplitPoints reads.
	maxQuanta = 256
	// sizesTimeout bounds a read of sizes.
	sizesTimeout = time.Second
)

// A stretch is the part of a span in one range, or in several neighbouring ones.
type stretch struct {
	span   span
	ranges int // 1, except in maps of thousands
	// rg is the first of them; the others are assumed to be like it.
	rg partmap.Range
	// weight is the estimated number of rows; below 0: unknown.
	weight float64
	keys   [][]byte          // all its keys, if they are few
	quanta []counter.Quantum // those of rg within the span; the first begins at its start
}

// alone reports whether the stretch is one range, all of it.
func (x *stretch) alone() bool {
	return x.ranges == 1 && bytes.Equal(x.span.lo, x.rg.Start) && !x.span.exclusive && bytes.Equal(x.span.hi, x.rg.End)
}

// home returns the partition in which most rows of the first range are counted.
func (x *stretch) home(id store.BucketID) store.Partition {
	if x.rg.Phase.Rules().ReadSource {
		return store.Partition{Bucket: id, ID: x.rg.Partition}
	}
	return store.Partition{Bucket: id, ID: x.rg.To}
}

// stretches returns at most that many stretches of a span, and at least half as many where
// there are enough ranges. The map is that of a lease, as for a page: reading the newest one
// would need an answer from all data centres.
func (s *sampler) stretches(ctx context.Context, whole span, most int) ([]stretch, error) {
	for {
		h, err := s.c.acquire(ctx, s.id)
		if err != nil {
			return nil, err
		}
		found, err := s.stretchesOf(ctx, h.Root(), whole, most)
		h.release()
		if !errors.Is(err, mapclient.ErrStale) || ctx.Err() != nil {
			return found, err
		}
	}
}

func (s *sampler) stretchesOf(
	ctx context.Context, root *partmap.Root, whole span, most int,
) (all []stretch, err error) {
	each := 1
	for rg, err := range s.c.maps.Ranges(ctx, root, whole.lo) {
		if err = cmp.Or(err, ctx.Err()); err != nil {
			return nil, err
		}
		if len(whole.hi) > 0 && bytes.Compare(rg.Start, whole.hi) >= 0 {
			break
		}
		if n := len(all); n > 0 && all[n-1].ranges < each {
			all[n-1].span.hi, all[n-1].ranges = whole.within(&rg).End, all[n-1].ranges+1
			continue
		}
		if len(all) == most {
			for i := range all[:most/2] { // most is even
				all[i] = all[2*i]
				all[i].span.hi, all[i].ranges = all[2*i+1].span.hi, 2*each
			}
			all, each = all[:most/2], 2*each
		}
		all = append(all, stretch{span: spanOf(whole.within(&rg)), ranges: 1, rg: rg, weight: -1})
	}
	return all, nil
}

// count sets weights from the counters of sizes. If those fail weights stay unknown, and
// parts are less even.
func (s *sampler) count(ctx context.Context, all []stretch) {
	if s.c.o.Sizes == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, sizesTimeout)
	defer cancel()
	partitions := make([]store.Partition, len(all))
	for i := range all {
		partitions[i] = all[i].home(s.id)
	}
	stats, err := s.c.o.Sizes.Stats(ctx, partitions)
	if err != nil || len(stats) != len(all) {
		return
	}
	ask := map[store.Partition][]*stretch{}
	for i := range all {
		x := &all[i]
		switch {
		case !stats[i].Known:
		case stats[i].Rows == 0:
			x.weight = 0
		case x.ranges > 1 || x.alone() && stats[i].Covers(x.rg.Start, x.rg.End):
			x.weight = float64(stats[i].Rows) * float64(x.ranges)
		case len(ask) < maxQuanta: // the count may include rows of other ranges
			ask[partitions[i]] = append(ask[partitions[i]], x)
		}
	}
	var g errgroup.Group
	g.SetLimit(s.c.o.MaxParallel)
	for p, of := range ask {
		g.Go(func() error {
			quanta, err := s.c.o.Sizes.Quanta(ctx, p)
			for _, x := range of {
				if err == nil && len(quanta) > 0 {
					x.takeQuanta(quanta)
				}
			}
			return nil
		})
	}
	_ = g.Wait()
}

// takeQuanta keeps the quanta of a partition that lie within the span.
func (x *stretch) takeQuanta(quanta []counter.Quantum) {
	x.weight, x.quanta = 0, nil
	for i, q := range quanta {
		if len(x.span.hi) > 0 && bytes.Compare(q.Key, x.span.hi) >= 0 {
			break
		}
		if i+1 < len(quanta) && bytes.Compare(quanta[i+1].Key, x.span.lo) <= 0 {
			continue
		}
		x.quanta = append(x.quanta, q)
		x.weight += float64(q.Rows)
	}
}

// probe reads the first keys of stretches of unknown weight. Those without more keys are
// known then; the others are assumed to have the average size, since a rebalancer keeps
// ranges at about one size.
func (s *sampler) probe(ctx context.Context, all []stretch) error {
	const least = 2
	var ask []*stretch
	sum, known := 0.0, 0
	for i := range all {
		switch x := &all[i]; {
		case x.weight < 0:
			ask = append(ask, x)
		case x.weight > 0:
			sum += x.weight / float64(x.ranges)
			known++
		}
	}
	rows := min(max(maxProbes*probeRows/2/max(len(ask), 1), least), probeRows)
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(s.c.o.MaxParallel)
	for _, x := range ask {
		g.Go(func() error {
			first := x.span
			first.lower(x.rg.End)
			keys, more, err := s.read(gctx, first, rows)
			if err == nil && !more {
				x.weight = float64(len(keys)) * float64(x.ranges)
				if x.ranges == 1 {
					x.keys = keys
				}
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	average := float64(probeRows)
	if known > 0 {
		average = max(average, sum/float64(known))
	}
	for _, x := range ask {
		if x.weight < 0 {
			x.weight = average * float64(x.ranges)
			if !x.alone() && x.ranges == 1 {
				x.weight /= 2 // one end of the whole span lies in it
			}
		}
	}
	return nil
}

// points returns at most n-1 keys that divide the stretches into n parts of about the same
// weight. A point lies at the beginning of a range where that changes a part by an eighth at
// most, otherwise within the range.
func (s *sampler) points(ctx context.Context, all []stretch, n int) ([][]byte, error) {
	total := 0.0
	for i := range all {
		total += all[i].weight
	}
	part := total / float64(n)
	type cut struct {
		at    []float64 // shares of the stretch's weight, ascending
		found [][]byte
	}
	cuts := make([]cut, len(all))
	sum, want, inner := 0.0, 1, 0.0
	for i := range all {
		x, c := &all[i], &cuts[i]
		for ; want < n && part*float64(want) < sum+x.weight; want++ {
			at := part*float64(want) - sum
			switch {
			case at <= part/8: // not of the first one
				c.found = append(c.found, x.span.lo)
			case x.weight-at <= part/8: // nor of the last one
				c.found = append(c.found, x.span.hi) // where the next one begins
			default:
				c.at = append(c.at, at/x.weight)
			}
		}
		if c.at != nil {
			inner += x.weight
		}
		sum += x.weight
	}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(s.c.o.MaxParallel)
	for i := range cuts {
		x, c := &all[i], &cuts[i]
		if c.at == nil {
			continue
		}
		// The more parts a stretch has, the better its keys have to be known.
		probes := min(partProbes*x.weight/part, maxProbes*x.weight/inner)
		g.Go(func() error {
			within, err := s.within(gctx, x, c.at, max(int(probes), 1))
			c.found = append(c.found, within...)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	var points [][]byte
	for _, c := range cuts {
		points = append(points, c.found...)
	}
	slices.SortFunc(points, bytes.Compare)
	return points, nil
}

// within returns the keys at shares of a stretch's weight.
func (s *sampler) within(ctx context.Context, x *stretch, at []float64, probes int) (points [][]byte, err error) {
	if x.keys != nil {
		for _, share := range at {
			points = append(points, keyspread.At(x.keys, share))
		}
		return points, nil
	}
	if x.quanta == nil && x.alone() && s.c.o.Sizes != nil {
		sctx, cancel := context.WithTimeout(ctx, sizesTimeout)
		quanta, err := s.c.o.Sizes.Quanta(sctx, x.home(s.id))
		cancel()
		if err == nil {
			x.takeQuanta(quanta)
		}
	}
	if len(x.quanta) > len(at) {
		return quantiles(x.quanta, x.weight, at), nil
	}
	parts, err := s.sample(ctx, x.span, probes)
	if err != nil {
		return nil, err
	}
	return keyspread.CutParts(parts, at), nil
}

// quantiles returns the keys nearest to shares of the rows of quanta.
func quantiles(quanta []counter.Quantum, rows float64, at []float64) (points [][]byte) {
	sum, i := 0.0, 0
	for _, share := range at {
		for i < len(quanta)-1 && sum+float64(quanta[i].Rows)/2 < share*rows {
			sum += float64(quanta[i].Rows)
			i++
		}
		points = append(points, quanta[i].Key)
	}
	return points
}
