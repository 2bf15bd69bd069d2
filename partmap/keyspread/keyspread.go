// Package keyspread estimates where keys lie, from the keys that are known. It reads
// keys as numbers in two ways:
//
//   - [Predict] reads keys in a row that end in something like a counter: each place has
//     digits of its own.
//   - [Between] and [Width] read any two keys as fractions whose digits are their bytes.
//     [Estimate], [MostUrgent] and [CutParts] build on them: how many keys a gap between
//     known keys has, which gaps to read next, and where shares of all keys end.
//
// A wrong estimate costs reads, never a wrong answer. The package is pure.
package keyspread

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"math"
	"slices"

	"github.com/evenkeel/evenkeel/store"
)

// Common returns the length of the longest common prefix of two keys.
func Common(a, b []byte) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// Between returns a key at about that share (0 to 1) of the way from lo to hi, not
// below lo; an empty hi is plus infinity. It returns lo where it finds none above.
func Between(lo, hi []byte, share float64) []byte {
	common := Common(lo, hi)
	a, b := number(lo, common), number(hi, common)
	if len(hi) == 0 {
		b = math.MaxUint64
	}
	v := a
	if b > a {
		v += uint64(float64(b-a) * share)
	}
	if v <= a || common+8 > store.MaxKeyBytes {
		return lo
	}
	return binary.BigEndian.AppendUint64(bytes.Clone(lo[:common]), v)
}

// Width returns the binary logarithm of the distance from lo to hi, where lo < hi and
// an empty hi is plus infinity. The distance of all keys together is 2^64.
func Width(lo, hi []byte) float64 {
	common, top := 0, float64(math.MaxUint64)
	if len(hi) > 0 {
		common = Common(lo, hi)
		top = float64(number(hi, common))
	}
	return math.Log2(max(top-float64(number(lo, common)), 1)) - 8*float64(common)
}

// number is the eight bytes of a key after the first n, as a big-endian integer.
func number(key []byte, n int) uint64 {
	var b [8]byte
	copy(b[:], key[min(n, len(key)):])
	return binary.BigEndian.Uint64(b[:])
}

// Estimate returns how many keys lie in a gap, from a run of neighbouring keys beside
// it: as dense as the run. Beyond four times the run's width the density says next to
// nothing, since names form clusters; there the estimate grows slowly. A run of fewer
// than two keys gives unknown.
func Estimate(lo, hi []byte, run [][]byte, unknown float64) float64 {
	const farRuns = 2 // binary logarithm of four
	if len(run) < 2 {
		return unknown
	}
	runs := Width(lo, hi) - Width(run[0], run[len(run)-1])
	return float64(len(run)) * math.Exp2(min(runs, farRuns+(runs-farRuns)/100))
}

// A Part is what is known of one part of a span: a run of keys that was read, or a gap
// that was not.
type Part struct {
	// Keys of a run, ascending; nil for a gap.
	Keys [][]byte
	// Gap should end right behind its last key, or its middle lies where no keys are.
	Gap store.Bounds
	// Weight is the number of keys, estimated for a gap.
	Weight float64
	// Urgency says which gap to read next: the highest. It is the weight, but never far
	// below that of the larger gap that this one was part of, since the density at the
	// beginning of a gap may say little.
	Urgency float64
}

// MostUrgent returns the indexes, ascending, of at most n gaps: the most urgent one and
// those at least half as urgent.
func MostUrgent(parts []Part, n int) []int {
	var gaps []int
	for i := range parts {
		if parts[i].Keys == nil {
			gaps = append(gaps, i)
		}
	}
	slices.SortStableFunc(gaps, func(a, b int) int { return cmp.Compare(parts[b].Urgency, parts[a].Urgency) })
	gaps = gaps[:min(n, len(gaps))]
	for i, at := range gaps {
		if parts[at].Urgency < parts[gaps[0]].Urgency/2 {
			gaps = gaps[:i]
			break
		}
	}
	slices.Sort(gaps)
	return gaps
}

// CutParts returns the keys at the given shares (0 to 1, ascending) of the weight of
// neighbouring parts.
func CutParts(parts []Part, shares []float64) (keys [][]byte) {
	total := 0.0
	for i := range parts {
		total += parts[i].Weight
	}
	sum := 0.0
	for _, p := range parts {
		for len(shares) > 0 && sum+p.Weight > total*shares[0] {
			share := (total*shares[0] - sum) / p.Weight
			if p.Keys != nil {
				keys = append(keys, At(p.Keys, share))
			} else {
				keys = append(keys, Between(p.Gap.Start, p.Gap.End, share))
			}
			shares = shares[1:]
		}
		sum += p.Weight
	}
	return keys
}

// At returns the key at a share (0 to 1) of a run of keys.
func At(keys [][]byte, share float64) []byte {
	return keys[min(int(share*float64(len(keys))), len(keys)-1)]
}
