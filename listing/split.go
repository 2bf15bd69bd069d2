package listing

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"math"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/store"
)

// What SplitPoints reads at most within ranges: for each part so many times, and
// altogether no more than maxProbes times, a run of so many keys, and the one key
// before it.
const (
	partProbes = 16
	maxProbes  = 128
	probeRows  = 128
)

// SplitPoints returns at most n-1 keys that cut what the query lists into parts
// of about equal work, so that they can be listed in parallel: part i is the
// query with From = point i-1 (in place of After, too) and To = point i. The
// points ascend and lie strictly within the query. There are fewer where there
// are too few keys; the limit, direction, delimiter and token do not matter.
//
// With Options.Sizes the largest part is some 1.2 times the mean. Without, the first keys of
// each range are read, to leave out what is empty, and others count the same; what a
// range has to be cut into is estimated by reading some runs of its keys. Ask for
// some times as many parts as there are readers, and let each take the next one,
// where parts have to be read in about the same time. It fails like List; that sizes
// can't be had is no failure.
func (b *Bucket) SplitPoints(ctx context.Context, q Query, n int) ([][]byte, error) {
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
	whole.reverse = false
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
	return slices.DeleteFunc(slices.CompactFunc(points, bytes.Equal), func(p []byte) bool {
		return whole.passed(p) || bytes.Equal(p, whole.lo) || len(whole.hi) > 0 && bytes.Compare(p, whole.hi) >= 0
	}), nil
}

// sampler estimates how keys are spread over a span: what the map and the counters
// of sizes tell of ranges, and within a range, where nobody knows, by short runs of
// keys, each read in the middle of the gap between runs that seems to hold most.
type sampler struct {
	c  *Client
	id store.BucketID
}

// part of a span: a run of keys that is known, or a gap that is not.
type part struct {
	keys [][]byte // of a run
	// Of a gap: its span, which ends right behind an entry, so that the middle
	// of it is where entries are, whatever they have in common.
	gap    span
	weight float64 // how many keys, as far as one can tell
	// urgency is the weight too, but never far below that of the gap of which
	// the gap was a part: how dense keys are at its beginning may say little.
	urgency float64
}

func (s *sampler) read(ctx context.Context, from span, limit int) (keys [][]byte, more bool, err error) {
	page := s.c.load(ctx, s.id, &Query{KeysOnly: true, Reverse: from.reverse}, from, limit, nil)
	for _, item := range page.items {
		keys = append(keys, item.Key)
	}
	return keys, !page.left.done, page.err
}

// tighten ends a gap right behind its last key; false: it has none.
func (s *sampler) tighten(ctx context.Context, gap *span) (bool, error) {
	back := *gap
	back.reverse = true
	for !back.done {
		page := s.c.load(ctx, s.id, &Query{KeysOnly: true, Reverse: true}, back, 1, nil)
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

// sample reads so many runs of keys of a span.
func (s *sampler) sample(ctx context.Context, whole span, probes int) ([]part, error) {
	found, err := s.tighten(ctx, &whole)
	if err != nil || !found {
		return nil, err
	}
	parts, err := s.explore(ctx, whole, whole.lo, math.MaxFloat64)
	if err != nil {
		return nil, err
	}
	for left := probes; left > 0; {
		gaps := mostUrgent(parts, min(left, s.c.o.MaxParallel))
		if len(gaps) == 0 {
			break
		}
		found := make([][]part, len(gaps))
		g, gctx := errgroup.WithContext(ctx)
		for i, at := range gaps {
			p := parts[at]
			g.Go(func() (err error) {
				found[i], err = s.explore(gctx, p.gap, between(p.gap.lo, p.gap.hi, 0.5), p.urgency)
				return err
			})
		}
		if err := g.Wait(); err != nil {
			return nil, err
		}
		for i := len(gaps) - 1; i >= 0; i-- { // from the back, so that places hold
			parts = slices.Replace(parts, gaps[i], gaps[i]+1, found[i]...)
		}
		left -= len(gaps)
	}
	return parts, nil
}

// mostUrgent returns the places, in order, of at most n gaps: the most urgent one,
// and those at least half as urgent, which would have their turn soon anyway.
func mostUrgent(parts []part, n int) []int {
	var gaps []int
	for i := range parts {
		if parts[i].keys == nil {
			gaps = append(gaps, i)
		}
	}
	slices.SortStableFunc(gaps, func(a, b int) int { return cmp.Compare(parts[b].urgency, parts[a].urgency) })
	gaps = gaps[:min(n, len(gaps))]
	for i, at := range gaps {
		if parts[at].urgency < parts[gaps[0]].urgency/2 {
			gaps = gaps[:i]
			break
		}
	}
	slices.Sort(gaps)
	return gaps
}

// explore reads a run of keys from the middle of a gap on, and guesses from how
// dense it is what is left on both sides.
func (s *sampler) explore(ctx context.Context, gap span, middle []byte, urgency float64) (parts []part, err error) {
	const fade = 4 // at most so much less urgent than the whole
	// Beyond four times a run's width the width says next to nothing: in a tree of
	// names keys lie in heaps, whose distance tells nothing of what is between them.
	const farRuns = 2
	upper := gap
	upper.raise(middle, false)
	keys, more, err := s.read(ctx, upper, probeRows)
	if err != nil {
		return nil, err
	}
	guess := func(g span) part {
		weight := float64(probeRows)
		if len(keys) > 1 {
			runs := logWidth(g.lo, g.hi) - logWidth(keys[0], keys[len(keys)-1]) // binary logarithm of how many
			weight = float64(len(keys)) * math.Exp2(min(runs, farRuns+(runs-farRuns)/100))
		}
		weight = min(weight, urgency)
		return part{gap: g, weight: weight, urgency: max(weight, urgency/fade)}
	}
	if bytes.Compare(middle, gap.lo) > 0 {
		lower := gap
		lower.lower(middle)
		found, err := s.tighten(ctx, &lower)
		if err != nil {
			return nil, err
		}
		if found {
			parts = append(parts, guess(lower))
		}
	}
	if len(keys) > 0 {
		parts = append(parts, part{keys: keys, weight: float64(len(keys))})
		upper.passKey(keys[len(keys)-1])
	}
	if more && !upper.done {
		parts = append(parts, guess(upper))
	}
	return parts, nil
}

// cutParts returns the keys at shares, ascending, of the parts' weight.
func cutParts(parts []part, at []float64) (points [][]byte) {
	total := 0.0
	for i := range parts {
		total += parts[i].weight
	}
	sum := 0.0
	for _, p := range parts {
		for len(at) > 0 && sum+p.weight > total*at[0] {
			share := (total*at[0] - sum) / p.weight
			if p.keys != nil {
				points = append(points, p.keys[min(int(share*float64(len(p.keys))), len(p.keys)-1)])
			} else {
				points = append(points, between(p.gap.lo, p.gap.hi, share))
			}
			at = at[1:]
		}
		sum += p.weight
	}
	return points
}

// between returns a key at about that share (0 to 1) of the way from lo to hi,
// not below lo; the share is that of the keys' bytes as numbers.
func between(lo, hi []byte, at float64) []byte {
	common := commonLength(lo, hi)
	a, b := number(lo, common), number(hi, common)
	if len(hi) == 0 {
		b = math.MaxUint64
	}
	v := a
	if b > a {
		v += uint64(float64(b-a) * at)
	}
	if v <= a || common+8 > store.MaxKeyBytes {
		return lo
	}
	return binary.BigEndian.AppendUint64(bytes.Clone(lo[:common]), v)
}

// logWidth is the binary logarithm of how far apart two keys are, lo below hi, as
// fractions whose digits are their bytes; the empty hi stands for 1.
func logWidth(lo, hi []byte) float64 {
	common, top := 0, float64(math.MaxUint64)
	if len(hi) > 0 {
		common = commonLength(lo, hi)
		top = float64(number(hi, common))
	}
	return math.Log2(max(top-float64(number(lo, common)), 1)) - 8*float64(common)
}

func commonLength(a, b []byte) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// number is the eight bytes of a key after the first n, as a big-endian integer.
func number(key []byte, n int) uint64 {
	var b [8]byte
	copy(b[:], key[min(n, len(key)):])
	return binary.BigEndian.Uint64(b[:])
}
