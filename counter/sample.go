package counter

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"math"
	"slices"
	"sync"

	"github.com/cespare/xxhash/v2"

	"github.com/evenkeel/evenkeel/store"
)

// Bounds of a sample. 256 keys tell a number of rows to about 6 percent, and the
// growth since a recount to about 10 percent of that growth.
const (
	maxSampled     = 256
	maxSampleBytes = 32 << 10
	// maxSampledKey is how much of a key a sample keeps. What is left of a longer
	// one still is a place for a cut.
	maxSampledKey = 512
)

// A Sample is a set of keys chosen by their hash alone: every key whose hash is
// below a limit is in it, and no other. So each key of a partition is in it with
// the same chance, however often it is written, and the samples of several
// clients merge into the sample of all: the lower limit, and of each key the
// newest write. Merging the same again changes nothing.
//
// A deleted key stays in it for a while as such, so that an older write of it
// that is told late does not bring it back. The limit sinks when the sample is
// full. A Sample is not safe for concurrent use. The zero Sample is of no use:
// see newSample.
type Sample struct {
	below uint64
	// slots is a hash table with linear probing; its length is a power of two, at
	// least a fourth of it free. A slot with hash 0 is free.
	slots []slot
	n     int
	keys  []byte // of all slots; what no slot refers to goes when the limit sinks
}

// slot is one sampled key.
type slot struct {
	hash  uint64
	at    store.Timestamp // of the newest write
	key   uint32          // where its key begins in keys
	bytes uint32          // of the row
	len   uint16          // of the key
	is    flags
}

type flags uint8

const (
	present flags = 1 << iota // the newest write was a put
	counted                   // the last recount saw it
	written                   // put since the last recount
)

func newSample() Sample { return Sample{below: math.MaxUint64} }

// hashOf is what decides whether a key is sampled; never 0.
func hashOf(key []byte) uint64 { return max(xxhash.Sum64(key), 1) }

// reset empties a sample and keeps its memory.
func (s *Sample) reset(below uint64) {
	clear(s.slots)
	s.below, s.n, s.keys = below, 0, s.keys[:0]
}

// size is the memory that a sample holds, bytes.
func (s *Sample) size() int { return 32*cap(s.slots) + cap(s.keys) }

// write takes in a write of a key at a time. The newest counts; of the same time
// the deletion.
func (s *Sample) write(hash uint64, key []byte, at store.Timestamp, bytes uint32, is flags) {
	s.set(hash, key, at, bytes, is)
	s.bound()
}

// bound sinks the limit if the sample has become too large.
func (s *Sample) bound() {
	if s.n > maxSampled || len(s.keys) > maxSampleBytes && s.n > 1 {
		s.sink()
	}
}

// set is write without a bound.
func (s *Sample) set(hash uint64, key []byte, at store.Timestamp, bytes uint32, is flags) {
	if hash >= s.below {
		return
	}
	if len(s.slots) == 0 {
		s.slots = make([]slot, slotsFor(1))
	}
	mask := uint64(len(s.slots) - 1)
	i := hash & mask
	for ; s.slots[i].hash != 0; i = (i + 1) & mask {
		if s.slots[i].hash == hash {
			s.slots[i].rewrite(at, bytes, is)
			return
		}
	}
	key = key[:min(len(key), maxSampledKey)]
	s.slots[i] = slot{hash: hash, at: at, key: uint32(len(s.keys)), len: uint16(len(key)), bytes: bytes, is: is}
	s.keys = append(s.keys, key...)
	s.n++
	if 4*s.n > 3*len(s.slots) {
		s.rebuild(slotsFor(s.n), s.below)
	}
}

// slotsFor is how long a table for so many keys is.
func slotsFor(keys int) int {
	n := 8
	for 4*keys > 3*n {
		n *= 2
	}
	return n
}

func (x *slot) rewrite(at store.Timestamp, bytes uint32, is flags) {
	sticky := (x.is | is) &^ present
	if at > x.at || at == x.at && is&present == 0 {
		x.at, x.bytes = at, bytes
		x.is = is & present
	} else {
		x.is &= present
	}
	x.is |= sticky
}

// sink lowers the limit so that an eighth of the keys leaves, or as many as fill
// an eighth of the bytes.
func (s *Sample) sink() {
	var all [maxSampled + 1]uint64 // on the stack
	hashes := all[:0]
	used := 0
	for i := range s.slots {
		if s.slots[i].hash != 0 {
			hashes = append(hashes, s.slots[i].hash)
			used += int(s.slots[i].len)
		}
	}
	slices.Sort(hashes)
	keep := len(hashes)
	if keep > maxSampled {
		keep = maxSampled * 7 / 8
	}
	if used > maxSampleBytes*7/8 {
		keep = min(keep, max(1, len(hashes)*7/8*(maxSampleBytes*7/8)/used))
	}
	below := s.below
	if keep < len(hashes) {
		below = hashes[keep]
	}
	s.rebuild(len(s.slots), below)
}

const (
	// restBytes is how many bytes the keys of a sample of a partition at rest take, encoded; restSampled is how many
	// keys stay however long they are.
	restBytes   = 2800
	restSampled = 32
	// slotBytes is what a sampled key takes, encoded, beside its own bytes.
	slotBytes = 8 + 8 + 2 + 1 + 2
)

// thin lowers the limit to that of a partition at rest, if the sample has more keys.
func (s *Sample) thin() {
	if n, below := s.rests(); n < s.n {
		s.rebuild(slotsFor(n), below)
	}
}

// rests returns how many keys the sample of a partition at rest keeps, and its limit if that is not all of them.
func (s *Sample) rests() (n int, below uint64) {
	all := make([]*slot, 0, s.n)
	for i := range s.slots {
		if x := &s.slots[i]; x.hash != 0 {
			all = append(all, x)
		}
	}
	slices.SortFunc(all, func(a, b *slot) int { return cmp.Compare(a.hash, b.hash) })
	used := 0
	for i, x := range all {
		if used += slotBytes + int(x.len); used > restBytes && i >= restSampled {
			return i, x.hash
		}
	}
	return s.n, s.below
}

// lower drops the keys that a lower limit leaves out.
func (s *Sample) lower(below uint64) {
	if below < s.below {
		s.rebuild(len(s.slots), below)
	}
}

// rebuild makes a new table of so many slots for the keys below a limit.
func (s *Sample) rebuild(slots int, below uint64) {
	s.filter(slots, below, func(*slot) bool { return true })
}

func (s *Sample) filter(slots int, below uint64, keep func(*slot) bool) {
	old := rooms.Get().(*[]slot)
	defer rooms.Put(old)
	*old = append((*old)[:0], s.slots...)
	if slots == len(s.slots) {
		clear(s.slots)
	} else {
		s.slots = make([]slot, slots)
	}
	keys := s.keys // others may share their memory: see present
	s.keys, s.n, s.below = make([]byte, 0, len(keys)), 0, below
	for i := range *old {
		x := &(*old)[i]
		if x.hash == 0 || x.hash >= below || !keep(x) {
			continue
		}
		key := keys[x.key : x.key+uint32(x.len)]
		x.key = uint32(len(s.keys))
		s.keys = append(s.keys, key...)
		s.place(*x)
	}
}

// rooms pools memory for the slots of samples that are rebuilt, as many puts to a new partition have them.
var rooms = sync.Pool{New: func() any { return new([]slot) }}

// place puts a slot that is not there yet into the table, which has room.
func (s *Sample) place(x slot) {
	mask := uint64(len(s.slots) - 1)
	i := x.hash & mask
	for s.slots[i].hash != 0 {
		i = (i + 1) & mask
	}
	s.slots[i] = x
	s.n++
}

// merge takes in another sample of the same partition. What comes of it does not
// depend on the order in which the other's keys lie.
func (s *Sample) merge(o *Sample) {
	s.lower(o.below)
	for i := range o.slots {
		x := &o.slots[i]
		if x.hash != 0 {
			s.set(x.hash, o.keyOf(x), x.at, x.bytes, x.is)
		}
	}
	s.bound()
}

// clone copies a sample, so that it shares no memory.
func (s *Sample) clone() Sample {
	c := *s
	c.slots, c.keys = slices.Clone(s.slots), slices.Clone(s.keys)
	return c
}

func (s *Sample) keyOf(x *slot) []byte {
	return s.keys[x.key : x.key+uint32(x.len) : x.key+uint32(x.len)]
}

// scale is how many keys of the partition each sampled one stands for; at
// least 1.
func (s *Sample) scale() float64 {
	if s.below == math.MaxUint64 {
		return 1
	}
	return math.Ldexp(1, 64) / float64(s.below)
}

// present returns the keys that are there, ascending, sharing the sample's
// memory.
func (s *Sample) present() [][]byte {
	keys := make([][]byte, 0, s.n)
	for i := range s.slots {
		if x := &s.slots[i]; x.hash != 0 && x.is&present != 0 {
			keys = append(keys, s.keyOf(x))
		}
	}
	slices.SortFunc(keys, bytes.Compare)
	return slices.CompactFunc(keys, bytes.Equal)
}

// known gives a key that a recount saw the time of its last write.
func (s *Sample) known(hash uint64, at store.Timestamp) {
	if len(s.slots) == 0 || hash >= s.below {
		return
	}
	mask := uint64(len(s.slots) - 1)
	for i := hash & mask; s.slots[i].hash != 0; i = (i + 1) & mask {
		if s.slots[i].hash == hash {
			s.slots[i].at = min(s.slots[i].at, at)
			return
		}
	}
}

// spread compares where the newest quarter of the keys lies with where all lie: 1
// less the largest difference of their distributions (the statistic of Kolmogorov
// and Smirnov), 0 with too few keys to tell.
func (s *Sample) spread() float64 {
	const least = 16
	var room [maxSampled]store.Timestamp // on the stack
	times := room[:0]
	for i := range s.slots {
		if x := &s.slots[i]; x.hash != 0 && x.is&present != 0 {
			times = append(times, x.at)
		}
	}
	if len(times) < 2*least {
		return 0
	}
	slices.Sort(times)
	slices.Reverse(times)
	newest := max(least, len(times)/4)
	limit := times[newest-1]
	for newest > 0 && times[newest-1] == times[len(times)-1] {
		newest-- // as old as the oldest: what a recount or a copy brought
	}
	if newest < least {
		return 0
	}
	for newest < len(times) && times[newest] == limit {
		newest++
	}
	var places [maxSampled]place
	most, seen := 0.0, 0
	for i, x := range s.ordered(places[:0]) {
		if s.slots[x.slot].at >= limit {
			seen++
		}
		most = max(most, math.Abs(float64(seen)/float64(newest)-float64(i+1)/float64(len(times))))
	}
	return max(0, 1-most)
}

// place is that of a key in the order of all: head is what follows the bytes that all keys begin with, so that most
// comparisons read no key.
type place struct {
	head uint64
	slot uint32
}

// ordered appends the places of the keys that are there to room, which is empty, in the order of the keys. Each flush
// of a partition that is written to needs them.
func (s *Sample) ordered(room []place) []place {
	var first []byte
	common := 0 // bytes of first that all begin with
	for i := range s.slots {
		if x := &s.slots[i]; x.hash != 0 && x.is&present != 0 {
			key := s.keyOf(x)
			if len(room) == 0 {
				first, common = key, len(key)
			}
			n := 0
			for n < min(common, len(key)) && key[n] == first[n] {
				n++
			}
			common = n
			room = append(room, place{slot: uint32(i)})
		}
	}
	for i := range room {
		var head [8]byte
		copy(head[:], s.keyOf(&s.slots[room[i].slot])[common:])
		room[i].head = binary.BigEndian.Uint64(head[:])
	}
	slices.SortFunc(room, func(a, b place) int {
		if a.head != b.head {
			return cmp.Compare(a.head, b.head)
		}
		return bytes.Compare(s.keyOf(&s.slots[a.slot]), s.keyOf(&s.slots[b.slot]))
	})
	return room
}
