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

// What SplitPoints reads at most: for each part so many times, and altogether no
// more than maxProbes times, a run of so many keys, and the one key before it.
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
// Keys are sampled, with a bounded number of reads beside those of empty ranges,
// which are passed once. The map's cuts don't matter, since ranges that were cut
// ahead may be empty. It fails like List.
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
	s := sampler{c: b.c, id: h.Root().Bucket, probes: min(partProbes*n, maxProbes)}
	h.release()
	if err := s.sample(ctx, whole); err != nil {
		return nil, err
	}
	return s.points(whole, n), nil
}

// sampler estimates how keys are spread over a span: it reads short runs of
// keys, each time in the middle of the gaps between runs that seem to hold most.
type sampler struct {
	c      *Client
	id     store.BucketID
	probes int    // how many runs are read at most
	parts  []part // in order
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

func (s *sampler) sample(ctx context.Context, whole span) error {
	found, err := s.tighten(ctx, &whole)
	if err != nil || !found {
		return err
	}
	if s.parts, err = s.explore(ctx, whole, whole.lo, math.MaxFloat64); err != nil {
		return err
	}
	for left := s.probes; left > 0; {
		gaps := s.mostUrgent(min(left, s.c.o.MaxParallel))
		if len(gaps) == 0 {
			return nil
		}
		found := make([][]part, len(gaps))
		g, gctx := errgroup.WithContext(ctx)
		for i, at := range gaps {
			p := s.parts[at]
			g.Go(func() (err error) {
				found[i], err = s.explore(gctx, p.gap, between(p.gap.lo, p.gap.hi, 0.5), p.urgency)
				return err
			})
		}
		if err := g.Wait(); err != nil {
			return err
		}
		for i := len(gaps) - 1; i >= 0; i-- { // from the back, so that places hold
			s.parts = slices.Replace(s.parts, gaps[i], gaps[i]+1, found[i]...)
		}
		left -= len(gaps)
	}
	return nil
}

// mostUrgent returns the places, in order, of at most n gaps: the most urgent one,
// and those at least half as urgent, which would have their turn soon anyway.
func (s *sampler) mostUrgent(n int) []int {
	var gaps []int
	for i := range s.parts {
		if s.parts[i].keys == nil {
			gaps = append(gaps, i)
		}
	}
	slices.SortStableFunc(gaps, func(a, b int) int { return cmp.Compare(s.parts[b].urgency, s.parts[a].urgency) })
	gaps = gaps[:min(n, len(gaps))]
	for i, at := range gaps {
		if s.parts[at].urgency < s.parts[gaps[0]].urgency/2 {
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
	upper := gap
	upper.raise(middle, false)
	keys, more, err := s.read(ctx, upper, probeRows)
	if err != nil {
		return nil, err
	}
	guess := func(g span) part {
		weight := float64(probeRows)
		if len(keys) > 1 {
			weight = float64(len(keys)) * width(keys[0], g) / max(width(keys[0], span{lo: keys[0], hi: keys[len(keys)-1]}), 1)
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

// points cuts the parts into n of equal weight.
func (s *sampler) points(whole span, n int) [][]byte {
	total := 0.0
	for i := range s.parts {
		total += s.parts[i].weight
	}
	var points [][]byte
	sum, want := 0.0, 1
	for _, p := range s.parts {
		for want < n && sum+p.weight > total*float64(want)/float64(n) {
			at := (total*float64(want)/float64(n) - sum) / p.weight
			var point []byte
			if p.keys != nil {
				point = p.keys[min(int(at*float64(len(p.keys))), len(p.keys)-1)]
			} else {
				point = between(p.gap.lo, p.gap.hi, at)
			}
			above := len(points) == 0 && bytes.Compare(point, whole.lo) > 0 ||
				len(points) > 0 && bytes.Compare(point, points[len(points)-1]) > 0
			if above && (len(whole.hi) == 0 || bytes.Compare(point, whole.hi) < 0) {
				points = append(points, point)
			}
			want++
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

// width is how far apart the ends of g are as numbers, on the scale of what
// they and key have in common.
func width(key []byte, g span) float64 {
	common := min(commonLength(key, g.lo), commonLength(key, g.hi), commonLength(g.lo, g.hi))
	return float64(number(g.hi, common)) - float64(number(g.lo, common))
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
