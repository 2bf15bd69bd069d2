package listing

import (
	"bytes"
	"context"
	"encoding/binary"
	"math"
	"slices"

	"github.com/evenkeel/evenkeel/store"
)

// What SplitPoints reads at most: pages of the listing, and keys of each.
const (
	maxProbes = 128
	probeRows = 128
)

// SplitPoints returns at most n-1 keys that cut what the query lists into parts
// of about equal work, so that they can be listed in parallel: part i is the
// query with From = point i-1 (in place of After, too) and To = point i. The
// points ascend and lie strictly within the query. There are fewer where there
// are too few keys; the limit, direction, delimiter and token do not matter.
//
// Where the map has cuts enough it decides; a range is as much work as another.
// Otherwise keys are sampled, with a bounded number of reads. It fails like List.
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
	// Four ranges per part keep the difference between parts below a quarter.
	const perPart = 4
	id, cuts, err := b.cuts(ctx, whole)
	if err != nil {
		return nil, err
	}
	if len(cuts)+1 >= perPart*n {
		return quantiles(cuts, n), nil
	}
	s := sampler{c: b.c, id: id}
	if err := s.sample(ctx, whole); err != nil {
		return nil, err
	}
	return s.points(whole, n), nil
}

// cuts returns the map's cuts strictly within a span, and whose they are.
func (b *Bucket) cuts(ctx context.Context, s span) (id store.BucketID, cuts [][]byte, err error) {
	const perLease = 4096 // a lease is not held for longer than about a page takes
	for !s.done {
		h, err := b.acquire(ctx)
		if err != nil {
			return id, nil, err
		}
		if id != (store.BucketID{}) && id != h.Root().Bucket {
			h.release()
			return id, nil, ErrNoSuchBucket
		}
		id = h.Root().Bucket
		seen := 0
		for rg, err := range b.c.maps.Ranges(ctx, h.Root(), s.lo) {
			if err != nil {
				h.release()
				return id, nil, err
			}
			if bytes.Compare(rg.Start, s.lo) > 0 && !s.passedRange(&rg) {
				cuts = append(cuts, bytes.Clone(rg.Start))
			}
			s.passRange(&rg)
			if seen++; s.done || seen == perLease {
				break
			}
		}
		h.release()
	}
	return id, cuts, nil
}

// quantiles picks n-1 of sorted keys at equal distances.
func quantiles(keys [][]byte, n int) [][]byte {
	points := make([][]byte, 0, n-1)
	for i := 1; i < n; i++ {
		points = append(points, keys[i*(len(keys)+1)/n-1])
	}
	return points
}

// sampler estimates how keys are spread over a span: it reads short runs of
// keys, each time in the middle of the gap between runs that seems to hold most.
type sampler struct {
	c     *Client
	id    store.BucketID
	parts []part // in order
}

// part of a span: a run of keys that is known, or a gap that is not.
type part struct {
	keys   [][]byte // of a run
	gap    span     // of a gap
	weight float64  // how many keys, as far as one can tell
}

func (s *sampler) read(ctx context.Context, from span, limit int) (keys [][]byte, more bool, err error) {
	page := s.c.load(ctx, s.id, &Query{KeysOnly: true, Reverse: from.reverse}, from, limit)
	for _, item := range page.items {
		keys = append(keys, item.Key)
	}
	return keys, !page.left.done, page.err
}

func (s *sampler) sample(ctx context.Context, whole span) error {
	// The last key first: between real keys the middle is where keys are.
	back := whole
	back.reverse = true
	last, _, err := s.read(ctx, back, 1)
	if err != nil || len(last) == 0 {
		return err
	}
	whole.lower(append(bytes.Clone(last[0]), 0))
	keys, more, err := s.read(ctx, whole, probeRows)
	if err != nil || len(keys) == 0 {
		return err
	}
	s.parts = append(s.parts, part{keys: keys, weight: float64(len(keys))})
	if more {
		rest := whole
		rest.passKey(keys[len(keys)-1])
		s.parts = append(s.parts, part{gap: rest, weight: math.MaxFloat64})
	}
	for range maxProbes {
		widest := -1
		for i := range s.parts {
			if s.parts[i].keys == nil && (widest < 0 || s.parts[i].weight > s.parts[widest].weight) {
				widest = i
			}
		}
		if widest < 0 || s.parts[widest].weight < probeRows/4 {
			return nil
		}
		if err := s.probe(ctx, widest); err != nil {
			return err
		}
	}
	return nil
}

// probe reads a run in the middle of a gap, and guesses from how dense it is
// what is left on both sides.
func (s *sampler) probe(ctx context.Context, i int) error {
	gap := s.parts[i].gap
	middle := between(gap.lo, gap.hi, 0.5)
	upper, lower := gap, gap
	upper.raise(middle, false)
	lower.lower(middle)
	lower.settle()
	keys, more, err := s.read(ctx, upper, probeRows)
	if err != nil {
		return err
	}
	var parts []part
	density := 0.0 // keys per share of the gap
	if len(keys) > 1 {
		density = float64(len(keys)) / max(share(gap.lo, gap.hi, keys[0], keys[len(keys)-1]), 1e-15)
	}
	guess := func(g span) float64 {
		if density == 0 {
			return s.parts[i].weight / 2
		}
		return density * share(gap.lo, gap.hi, g.lo, g.hi)
	}
	if !lower.done && bytes.Compare(middle, gap.lo) > 0 {
		parts = append(parts, part{gap: lower, weight: guess(lower)})
	}
	if len(keys) > 0 {
		parts = append(parts, part{keys: keys, weight: float64(len(keys))})
		upper.passKey(keys[len(keys)-1])
	}
	if more && !upper.done {
		parts = append(parts, part{gap: upper, weight: guess(upper)})
	}
	s.parts = slices.Replace(s.parts, i, i+1, parts...)
	return nil
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

// share is how much of the way from lo to hi lies between a and b.
func share(lo, hi, a, b []byte) float64 {
	common := commonLength(lo, hi)
	end := func(key []byte) uint64 {
		if len(key) == 0 {
			return math.MaxUint64
		}
		return number(key, common)
	}
	from, to, x, y := number(lo, common), end(hi), number(a, common), end(b)
	if to <= from || y <= x {
		return 0
	}
	return float64(y-x) / float64(to-from)
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
