// Package keyspread estimates where keys lie, from some keys that are known. It reads keys as numbers in two ways:
//
//   - [Predict] reads neighbouring keys that end in something like a counter: each place of a key has its own digits.
//   - [Between] and [Width] read any two keys as fractions whose digits are their bytes. [Estimate], [MostUrgent] and
//     [CutParts] build on them: they tell how many keys a gap between known keys has, which gaps to read next, and
//     where shares of all keys end.
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

// Common returns the length, in bytes, of the longest common prefix of the keys a and b.
func Common(a, b []byte) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// Between returns a key between the keys lo and hi, at about the given share of the way (0: lo, 1: hi). Each key counts
// as a fraction whose digits are its bytes. An empty hi is plus infinity. Between returns lo itself if it finds no key
// between them.
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

// Width returns the distance from the key lo to the key hi, as a binary logarithm. Each key counts as a fraction whose
// digits are its bytes. lo must be below hi; an empty hi is plus infinity. The distance from the empty key to plus
// infinity is 2^64, so its Width is 64.
func Width(lo, hi []byte) float64 {
	common, top := 0, float64(math.MaxUint64)
	if len(hi) > 0 {
		common = Common(lo, hi)
		top = float64(number(hi, common))
	}
	return math.Log2(max(top-float64(number(lo, common)), 1)) - 8*float64(common)
}

// number returns the eight bytes of the key behind its first n bytes, as a big-endian integer. If the key is too short,
// the missing bytes are zero.
func number(key []byte, n int) uint64 {
	var b [8]byte
	copy(b[:], key[min(n, len(key)):])
	return binary.BigEndian.Uint64(b[:])
}

// Estimate returns an estimate of the number of keys in a gap, an interval of unread keys from lo to hi. The parameter
// run has neighbouring keys beside the gap that were read. If run has fewer than two keys, the result is the parameter
// unknown.
func Estimate(lo, hi []byte, run [][]byte, unknown float64) float64 {
	// The keys of the gap are taken to be as dense as those of the run. If the gap is more than four times as wide as
	// the run, the density says next to nothing, since names form clusters. So from that width on the estimate grows
	// slowly.
	const farRuns = 2 // binary logarithm of four
	if len(run) < 2 {
		return unknown
	}
	runs := Width(lo, hi) - Width(run[0], run[len(run)-1])
	return float64(len(run)) * math.Exp2(min(runs, farRuns+(runs-farRuns)/100))
}

// A Part is a piece of an interval of keys, of which only some keys were read. It is either a run of neighbouring keys
// that were read, or a gap whose keys were not read.
type Part struct {
	// Keys are the keys of a run, neighbouring keys that were read, in ascending order. Keys is nil for a gap, an
	// interval of keys that were not read.
	Keys [][]byte
	// Gap has the bounds of a gap, which is an interval of keys that were not read. A gap should end right behind its
	// last key. Otherwise the middle of the gap lies where no keys are.
	Gap store.Bounds
	// Weight is the number of keys in the part. For a gap, whose keys were not read, it is an estimate.
	Weight float64
	// Urgency orders the gaps, which are intervals of unread keys: the gap with the highest urgency is read next. The
	// urgency is the estimated number of keys in the gap. If the gap was cut from a larger gap, it is never far below
	// the urgency of the larger gap, as the density of the keys read there may say little.
	Urgency float64
}

// MostUrgent returns the indexes in parts, ascending, of the gaps in which keys should be read next. A gap is a part
// whose keys were not read. At most n gaps are chosen: the gap of the highest urgency, and gaps that are at least half
// as urgent.
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

// CutParts returns one key for each of the given shares (0 to 1, ascending): about that share of the keys in all parts
// lies below the key. A caller splits an interval at these keys. The parts are neighbours; their weights, the numbers
// of their keys, may be estimates. In a gap, a part whose keys were not read, the key is computed.
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

// At returns the key at the given share (0: the first, 1: the last) of a list of keys. The list must not be empty.
func At(keys [][]byte, share float64) []byte {
	return keys[min(int(share*float64(len(keys))), len(keys)-1)]
}
