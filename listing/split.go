package listing

import (
	"bytes"
	"context"
	"math"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/internal/keyspread"
	"github.com/evenkeel/evenkeel/store"
)

// partProbes, maxProbes and probeRows bound the reads of SplitPoints within ranges of the map. A probe reads a run of
// probeRows neighbouring keys, and the last key before the run. SplitPoints makes partProbes probes for each part into
// which it splits the listing, but at most maxProbes in all.
const (
	partProbes = 16
	maxProbes  = 128
	probeRows  = 128
)

// SplitPoints returns at most n-1 keys that divide the entries of the query q into parts of about equal size, to be
// listed in parallel. Part i is the query with From = point i-1 (also in place of After) and To = point i. The points
// ascend and lie strictly within the query. If there are too few keys, there are fewer points. Limit, direction,
// delimiter and token of the query are ignored.
//
// With Options.Sizes, the largest part has some 1.2 times the mean size. If the readers should end at about the same
// time, ask for several parts per reader. SplitPoints fails like List.
func (b *Bucket) SplitPoints(ctx context.Context, q Query, n int) ([][]byte, error) {
	// Without sizes, or if they can't be read, empty ranges are found by reading their first keys, and all other ranges
	// count the same. Within a range, runs of keys are read to estimate how the keys are spread.
	points, err := b.splitPoints(ctx, q, n)
	return points, wrap("split points", b.name, err)
}

func (b *Bucket) splitPoints(ctx context.Context, q Query, n int) ([][]byte, error) {
	if err := q.check(); err != nil {
		return nil, err
	}
	if n < 1 || n > store.MaxPageRows {
		return nil, invalid("%d parts: 1 to %d", n, store.MaxPageRows)
	}
	whole := q.span()
	if n == 1 || whole.done {
		return nil, nil
	}
	h, err := b.acquire(ctx)
	if err != nil {
		return nil, err
	}
	s := sampler{c: b.c, id: h.Root().Bucket}
	h.release()
	all, err := s.stretches(ctx, whole, max(minStretches, 8*n))
	if err != nil {
		return nil, err
	}
	s.count(ctx, all)
	if err := s.probe(ctx, all); err != nil {
		return nil, err
	}
	points, err := s.points(ctx, all, n)
	if err != nil {
		return nil, err
	}
	// A sample of a range's keys may lie below the span; none lies above.
	return slices.DeleteFunc(slices.CompactFunc(points, bytes.Equal), func(p []byte) bool {
		return bytes.Compare(p, whole.lo) <= 0
	}), nil
}

// A sampler estimates how the keys of a bucket are spread, for SplitPoints. It uses the map of the bucket and the
// counts of rows per partition. Within a range of unknown spread, it reads short runs of keys, each in the middle of
// the gap that seems to hold most keys.
type sampler struct {
	c  *Client
	id store.BucketID
}

// read returns the first keys of an interval, at most limit of them. The parameter from is the interval of keys. The
// result more is true if the interval has further keys.
func (s *sampler) read(ctx context.Context, from span, limit int) (keys [][]byte, more bool, err error) {
	page := s.c.load(ctx, s.id, &Query{KeysOnly: true, Reverse: from.reverse}, from, limit, nil)
	for _, item := range page.items {
		keys = append(keys, item.Key)
	}
	return keys, !page.left.done, page.err
}

// tighten lowers the upper bound of gap, an interval of keys, to right behind the last existing key in the interval. It
// returns false, and changes nothing, if no key exists in the interval.
func (s *sampler) tighten(ctx context.Context, gap *span) (bool, error) {
	back := *gap
	back.reverse = true
	for !back.done {
		page := s.c.load(ctx, s.id, &Query{Reverse: true}, back, 1, nil)
		if page.err != nil {
			return false, page.err
		}
		if len(page.items) > 0 {
			last := page.items[0].Key
			if len(last) < store.MaxKeyBytes {
				gap.lower(append(last[:len(last):len(last)], 0))
			}
			return true, nil
		}
		back = page.left
	}
	return false, nil
}

// sample reads some keys of an interval, and returns the parts of the interval in order. The parameter whole is the
// interval. A part is a run of neighbouring keys that were read, or a gap between such runs with an estimate of the
// number of its keys. probes is the number of runs to read after the first run.
func (s *sampler) sample(ctx context.Context, whole span, probes int) ([]keyspread.Part, error) {
	found, err := s.tighten(ctx, &whole)
	if err != nil || !found {
		return nil, err
	}
	parts, err := s.explore(ctx, whole, whole.lo, math.MaxFloat64)
	if err != nil {
		return nil, err
	}
	for left := probes; left > 0; {
		gaps := keyspread.MostUrgent(parts, min(left, s.c.o.MaxParallel))
		if len(gaps) == 0 {
			break
		}
		found := make([][]keyspread.Part, len(gaps))
		g, gctx := errgroup.WithContext(ctx)
		for i, at := range gaps {
			p := parts[at]
			g.Go(func() (err error) {
				middle := keyspread.Between(p.Gap.Start, p.Gap.End, 0.5)
				found[i], err = s.explore(gctx, spanOf(p.Gap), middle, p.Urgency)
				return err
			})
		}
		if err := g.Wait(); err != nil {
			return nil, err
		}
		for i := len(gaps) - 1; i >= 0; i-- { // from the back, so that indexes stay valid
			parts = slices.Replace(parts, gaps[i], gaps[i]+1, found[i]...)
		}
		left -= len(gaps)
	}
	return parts, nil
}

// explore reads a run of neighbouring keys inside a gap, an interval of keys not yet read. The run begins at the key
// middle. The result is the parts of the gap in order: what is left before the run, the run, and what is left
// behind it. The density of the run gives an estimate of the number of keys in the rests. The parameter urgency says
// how important it was to read the gap.
func (s *sampler) explore(
	ctx context.Context, gap span, middle []byte, urgency float64,
) (parts []keyspread.Part, err error) {
	const fade = 4 // a remaining gap is at most 4 times less urgent than the whole gap
	upper := gap
	upper.raise(middle, false)
	keys, more, err := s.read(ctx, upper, probeRows)
	if err != nil {
		return nil, err
	}
	left := func(g span) keyspread.Part {
		weight := min(keyspread.Estimate(g.lo, g.hi, keys, probeRows), urgency)
		return keyspread.Part{Gap: g.bounds(), Weight: weight, Urgency: max(weight, urgency/fade)}
	}
	if bytes.Compare(middle, gap.lo) > 0 {
		lower := gap
		lower.lower(middle)
		found, err := s.tighten(ctx, &lower)
		if err != nil {
			return nil, err
		}
		if found {
			parts = append(parts, left(lower))
		}
	}
	if len(keys) > 0 {
		parts = append(parts, keyspread.Part{Keys: keys, Weight: float64(len(keys))})
		upper.passKey(keys[len(keys)-1])
	}
	if more && !upper.done {
		parts = append(parts, left(upper))
	}
	return parts, nil
}
