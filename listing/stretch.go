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
	"github.com/evenkeel/evenkeel/internal/keyspread"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

const (
	// minStretches is the number of ranges up to which SplitPoints considers each range of the map by itself. In maps
	// with more ranges, neighbouring ranges are combined.
	minStretches = 4096
	// maxQuanta bounds the number of partitions for which SplitPoints reads how many rows lie between which keys.
	maxQuanta = 256
	// sizesTimeout bounds the time of a read of the numbers of rows of partitions.
	sizesTimeout = time.Second
)

// A stretch is the part of a listed interval of keys that lies in one range of the map. In maps of thousands of ranges,
// it may be several neighbouring ranges. SplitPoints divides the interval along stretches.
type stretch struct {
	span   span
	ranges int // number of ranges: 1, except in maps of thousands of ranges
	// rg is the first of the ranges of the map in the stretch. The other ranges are assumed to be like rg.
	rg partmap.Range
	// weight is the estimated number of rows in the stretch. A weight below 0 means that the number is unknown.
	weight float64
	keys   [][]byte          // all keys of the stretch, if they are few
	quanta []counter.Quantum // the quanta of rg that overlap the span; the first may begin before the span
}

// alone reports whether the stretch, an interval of keys that SplitPoints treats as a unit, is exactly one range of the
// map from its start to its end.
func (x *stretch) alone() bool {
	return x.ranges == 1 && bytes.Equal(x.span.lo, x.rg.Start) && !x.span.exclusive && bytes.Equal(x.span.hi, x.rg.End)
}

// home returns the partition whose count of rows stands for the first range of the stretch, an interval of keys. While
// the range moves, it is the source of the move as long as the source is read, and then the destination.
func (x *stretch) home(id store.BucketID) store.Partition {
	if x.rg.Phase.Rules().ReadSource {
		return store.Partition{Bucket: id, ID: x.rg.Partition}
	}
	return store.Partition{Bucket: id, ID: x.rg.To}
}

// stretches divides an interval of keys, the parameter whole, into stretches: each is one range of the map or several
// neighbouring ranges. It returns no more stretches than the parameter most. If there are enough ranges, it returns at
// least half that number.
func (s *sampler) stretches(ctx context.Context, whole span, most int) ([]stretch, error) {
	// The map is that of a lease, as for a page: a read of the newest map would need an answer from all data centres.
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

// stretchesOf divides an interval of keys, the parameter whole, into stretches by the map with the given root. A
// stretch is one range of the map. If there would be more stretches than the parameter most, a stretch is several
// neighbouring ranges.
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

// count sets the weights of stretches, their numbers of rows, from the counts of rows per partition. A stretch is an
// interval of keys: one range of the map or several. If the counts can't be read, the weights stay unknown, and the
// parts that SplitPoints makes are less even.
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
		case len(ask) < maxQuanta: // the partition's count may include rows of other ranges
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

// takeQuanta stores the given counts of rows in the stretch, an interval of keys. Each quantum counts the rows from its
// key up to the key of the next quantum; only quanta that overlap the stretch are stored. Their sum becomes the weight
// of the stretch.
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

// probe estimates the number of rows of each stretch, an interval of keys, that has no count of rows. It reads the
// first keys of the first range of the stretch. If these are all keys of that range, the other ranges of the stretch
// are assumed to have as many. Otherwise each range is assumed to have the average number of rows: a rebalancer keeps
// all ranges at about the same size.
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
				x.weight /= 2 // an end of the whole span lies in the range
			}
		}
	}
	return nil
}

// points returns at most n-1 keys that divide neighbouring intervals of keys (stretches) into n parts with about the
// same number of rows. A point should lie at the exact share of the rows. If the border of a stretch is near, within an
// eighth of a part, the border is taken: it needs no reads.
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
			case at <= part/8: // never in the first stretch, as at is a whole part there
				c.found = append(c.found, x.span.lo)
			case x.weight-at <= part/8: // never in the last stretch
				c.found = append(c.found, x.span.hi) // where the next stretch begins
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

// within returns keys that divide the stretch x, an interval of keys. For each share in the list at (0 to 1, ascending)
// the result has one key: about that share of the rows of x lies below it. With at = {0.5}, the result is the middle
// key. If neither the keys of x nor counts of its rows by key are known, within reads some runs of keys; probes is the
// number of runs.
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

// quantiles returns keys that divide counted rows in given proportions. For each share in the list at (0 to 1,
// ascending) the result has one key: about that share of all rows lies below it. Each element of quanta counts the rows
// from its key up to the key of the next element. The parameter rows is the sum of these counts.
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
