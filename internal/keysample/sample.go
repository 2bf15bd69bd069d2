package keysample

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

// These constants bound the size of a sample of keys. MaxSampled is the largest number of keys in a sample, and
// MaxSampleBytes the largest number of bytes of its keys together. From 256 sampled keys the number of rows of a
// partition is estimated with an error of about 6 percent. The growth since a recount has an error of about 10 percent
// of the growth.
const (
	MaxSampled     = 256
	MaxSampleBytes = 32 << 10
	// MaxSampledKey is the number of bytes that a sample keeps of a key. The beginning of a longer key still shows
	// where a partition can be cut.
	MaxSampledKey = 512
)

// Of returns the Sample that a counter.Sample contains. Programs can't reach it. The parameter sample is a
// *counter.Sample; anything else panics. Package counter, which lies above this package, sets Of at its start.
var Of func(sample any) *Sample

// A Sample is a set of keys chosen by their hash alone: it has every key of a partition whose hash is below a limit,
// and no other key. So each key has the same chance to be in the sample, however often the key is written. When the
// sample is full, its limit is lowered, so that some keys leave.
//
// The samples of several clients merge into one sample of all writes. The merged limit is the lowest limit, and of each
// key the newest write counts. Merging the same sample again changes nothing. A deleted key stays in the sample for a
// while, marked as deleted. So a late report of an older write does not bring the key back.
//
// A Sample is not safe for concurrent use. The zero Sample is not usable: see New.
type Sample struct {
	// Below is the limit of the hashes.
	Below uint64
	// Slots is a hash table with linear probing. Its length is a power of two, and at least a fourth of its slots are
	// free. A slot with hash 0 is free.
	Slots []Slot
	N     int    // number of keys
	Keys  []byte // the keys of all slots; bytes that no slot uses go when the limit sinks
}

// Slot is an entry of a sample's hash table: one sampled key and its newest write.
type Slot struct {
	Hash  uint64
	At    store.Timestamp // timestamp of the newest write
	key   uint32          // where the key begins in Sample.Keys
	Bytes uint32          // bytes of the row
	len   uint16          // length of the key, bytes
	Is    Flags
}

// Flags are three facts about a sampled key, one bit each: whether the key was put last (not deleted), was seen by the
// last recount, and was put since that recount.
type Flags uint8

const (
	Present Flags = 1 << iota // the newest write was a put
	Counted                   // the last recount saw the key
	Written                   // the key was put since the last recount
)

// New returns an empty sample of keys. At first the sample takes every key, whatever its hash. When the sample is
// full, the limit for hashes is lowered.
func New() Sample { return Sample{Below: math.MaxUint64} }

// Hash returns the hash of a key, which is never 0. A sample of keys takes the keys whose hashes are below its limit.
func Hash(key []byte) uint64 { return max(xxhash.Sum64(key), 1) }

// Reset removes all keys from the sample, and keeps the memory for new keys. The argument below is the new limit: the
// sample takes only keys with a lower hash.
func (s *Sample) Reset(below uint64) {
	clear(s.Slots)
	s.Below, s.N, s.Keys = below, 0, s.Keys[:0]
}

// Size returns the number of bytes of memory that the sample holds, used or not.
func (s *Sample) Size() int { return 32*cap(s.Slots) + cap(s.Keys) }

// Write adds a write of a key to the sample, if the hash of the key is below the sample's limit. The write is of a row
// of `bytes` bytes, with the timestamp `at`. Of several writes of a key the newest write counts. If a put and a
// deletion have the same timestamp, the deletion counts.
func (s *Sample) Write(hash uint64, key []byte, at store.Timestamp, bytes uint32, is Flags) {
	s.Set(hash, key, at, bytes, is)
	s.Bound()
}

// Bound makes a sample smaller that has more than 256 keys or more than 32 KiB of keys: it lowers the limit, so that
// the keys with the highest hashes leave.
func (s *Sample) Bound() {
	if s.N > MaxSampled || len(s.Keys) > MaxSampleBytes {
		s.sink()
	}
}

// Set adds a write of a key to the sample, if the hash of the key is below the sample's limit. The write is of a row of
// `bytes` bytes, with the timestamp `at`. Unlike Write, Set does not keep the sample within its bounds: the caller
// calls Bound after the last Set.
func (s *Sample) Set(hash uint64, key []byte, at store.Timestamp, bytes uint32, is Flags) {
	if hash >= s.Below {
		return
	}
	if len(s.Slots) == 0 {
		s.Slots = make([]Slot, slotsFor(1))
	}
	mask := uint64(len(s.Slots) - 1)
	i := hash & mask
	for ; s.Slots[i].Hash != 0; i = (i + 1) & mask {
		if s.Slots[i].Hash == hash {
			s.Slots[i].rewrite(at, bytes, is)
			return
		}
	}
	key = key[:min(len(key), MaxSampledKey)]
	s.Slots[i] = Slot{Hash: hash, At: at, key: uint32(len(s.Keys)), len: uint16(len(key)), Bytes: bytes, Is: is}
	s.Keys = append(s.Keys, key...)
	s.N++
	if 4*s.N > 3*len(s.Slots) {
		s.rebuild(slotsFor(s.N), s.Below)
	}
}

// slotsFor returns the number of slots of a hash table for the given number of keys: a power of two, at least 8, of
// which at most three quarters are used.
func slotsFor(keys int) int {
	n := 8
	for 4*keys > 3*n {
		n *= 2
	}
	return n
}

// rewrite adds one more write of the sampled key in the slot x, with the timestamp `at`. The newer of the writes
// decides whether the key is present (put and not deleted). The other facts in the flags stay once they are set.
func (x *Slot) rewrite(at store.Timestamp, bytes uint32, is Flags) {
	sticky := (x.Is | is) &^ Present
	if at > x.At || at == x.At && is&Present == 0 {
		x.At, x.Bytes = at, bytes
		x.Is = is & Present
	} else {
		x.Is &= Present
	}
	x.Is |= sticky
}

// sink makes a full sample smaller by lowering its limit for the hashes of keys. An eighth of the keys leaves, or more
// if the remaining keys would still take more than seven eighths of the allowed bytes.
func (s *Sample) sink() {
	var all [MaxSampled + 1]uint64 // on the stack
	hashes := all[:0]
	used := 0
	for i := range s.Slots {
		if s.Slots[i].Hash != 0 {
			hashes = append(hashes, s.Slots[i].Hash)
			used += int(s.Slots[i].len)
		}
	}
	slices.Sort(hashes)
	keep := len(hashes)
	if keep > MaxSampled {
		keep = MaxSampled * 7 / 8
	}
	if used > MaxSampleBytes*7/8 {
		keep = min(keep, max(1, len(hashes)*7/8*(MaxSampleBytes*7/8)/used))
	}
	below := s.Below
	if keep < len(hashes) {
		below = hashes[keep]
	}
	s.rebuild(len(s.Slots), below)
}

const (
	// restBytes is the encoded size, in bytes, to which the sample of a partition without requests is reduced.
	// restSampled is the number of keys that stay in any case, however long they are.
	restBytes   = 2800
	restSampled = 32
	// slotBytes is the encoded size, in bytes, of a sampled key without the key's own bytes.
	slotBytes = 8 + 8 + 2 + 1 + 2
)

// Thin makes the sample of a partition without requests smaller. It lowers the limit until the encoded sample has about
// 2,800 bytes, but keeps at least 32 keys.
func (s *Sample) Thin() {
	if n, below := s.Rests(); n < s.N {
		s.rebuild(slotsFor(n), below)
	}
}

// Rests returns what Thin would leave of the sample: the number n of keys, and the limit (below) for their hashes. If
// Thin would drop no keys, the limit is the present one.
func (s *Sample) Rests() (n int, below uint64) {
	all := make([]*Slot, 0, s.N)
	for i := range s.Slots {
		if x := &s.Slots[i]; x.Hash != 0 {
			all = append(all, x)
		}
	}
	slices.SortFunc(all, func(a, b *Slot) int { return cmp.Compare(a.Hash, b.Hash) })
	used := 0
	for i, x := range all {
		if used += slotBytes + int(x.len); used > restBytes && i >= restSampled {
			return i, x.Hash
		}
	}
	return s.N, s.Below
}

// Lower lowers the limit of the sample to `below`, and drops the keys whose hashes are not lower. It does nothing if
// the limit is lower already.
func (s *Sample) Lower(below uint64) {
	if below < s.Below {
		s.rebuild(len(s.Slots), below)
	}
}

// rebuild copies the sampled keys into a new hash table with the given number of slots. The argument `below` is the new
// limit of the sample: keys whose hashes are not below the limit are dropped.
func (s *Sample) rebuild(slots int, below uint64) {
	s.Filter(slots, below, func(*Slot) bool { return true })
}

// Filter copies the sampled keys for which `keep` returns true into a new hash table with the given number of slots.
// The argument `below` is the new limit of the sample: keys whose hashes are not below the limit are dropped, too.
func (s *Sample) Filter(slots int, below uint64, keep func(*Slot) bool) {
	old := rooms.Get().(*[]Slot)
	defer rooms.Put(old)
	*old = append((*old)[:0], s.Slots...)
	if slots == len(s.Slots) {
		clear(s.Slots)
	} else {
		s.Slots = make([]Slot, slots)
	}
	keys := s.Keys // not reused: results of Present may share this memory
	s.Keys, s.N, s.Below = make([]byte, 0, len(keys)), 0, below
	for i := range *old {
		x := &(*old)[i]
		if x.Hash == 0 || x.Hash >= below || !keep(x) {
			continue
		}
		key := keys[x.key : x.key+uint32(x.len)]
		x.key = uint32(len(s.Keys))
		s.Keys = append(s.Keys, key...)
		s.place(*x)
	}
}

// rooms is a pool of memory for copying hash tables of samples. Puts to a new partition cause such copies often.
var rooms = sync.Pool{New: func() any { return new([]Slot) }}

// place puts the slot x, which has a sampled key, into a free entry of the sample's hash table. The table must have a
// free entry, and must not have the key yet.
func (s *Sample) place(x Slot) {
	mask := uint64(len(s.Slots) - 1)
	i := x.Hash & mask
	for s.Slots[i].Hash != 0 {
		i = (i + 1) & mask
	}
	s.Slots[i] = x
	s.N++
}

// Merge adds the keys of the sample o, which is of the same partition, to this sample. The lower limit of the two
// becomes the limit of the result: keys whose hashes are not below it are dropped. The result does not depend on the
// order of the slots in o.
func (s *Sample) Merge(o *Sample) {
	s.Lower(o.Below)
	for i := range o.Slots {
		x := &o.Slots[i]
		if x.Hash != 0 {
			s.Set(x.Hash, o.KeyOf(x), x.At, x.Bytes, x.Is)
		}
	}
	s.Bound()
}

// Clone returns a copy of the sample, with memory of its own.
func (s *Sample) Clone() Sample {
	c := *s
	c.Slots, c.Keys = slices.Clone(s.Slots), slices.Clone(s.Keys)
	return c
}

// KeyOf returns the key in the slot x of the sample, or the first 512 bytes of a longer key. The result shares memory
// with the sample, and is read-only.
func (s *Sample) KeyOf(x *Slot) []byte {
	return s.Keys[x.key : x.key+uint32(x.len) : x.key+uint32(x.len)]
}

// Scale returns the number of keys of the partition for which each sampled key stands, at least 1. It is the inverse of
// the fraction of all hashes that are below the limit.
func (s *Sample) Scale() float64 {
	if s.Below == math.MaxUint64 {
		return 1
	}
	return math.Ldexp(1, 64) / float64(s.Below)
}

// Present returns the sampled keys that are not deleted, in ascending order. The returned keys share memory with the
// sample.
func (s *Sample) Present() [][]byte {
	keys := make([][]byte, 0, s.N)
	for i := range s.Slots {
		if x := &s.Slots[i]; x.Hash != 0 && x.Is&Present != 0 {
			keys = append(keys, s.KeyOf(x))
		}
	}
	slices.SortFunc(keys, bytes.Compare)
	return slices.CompactFunc(keys, bytes.Equal)
}

// Known sets the time of a sampled key's last write back to `at`. It undoes a later time that a recount has given to
// the key. The parameter hash is the hash of the key. Keys that are not in the sample are ignored.
func (s *Sample) Known(hash uint64, at store.Timestamp) {
	if len(s.Slots) == 0 || hash >= s.Below {
		return
	}
	mask := uint64(len(s.Slots) - 1)
	for i := hash & mask; s.Slots[i].Hash != 0; i = (i + 1) & mask {
		if s.Slots[i].Hash == hash {
			s.Slots[i].At = min(s.Slots[i].At, at)
			return
		}
	}
}

// Spread tells how the newest quarter of the sampled keys is distributed among all sampled keys, as a number from 0 to
// 1. It is 1 if the newest keys are everywhere among the others, and near 0 if they are all in one place. It is also 0
// if the sample has too few keys to tell.
//
// The value is 1 less the largest difference of the two distributions (the statistic of Kolmogorov and Smirnov).
func (s *Sample) Spread() float64 {
	const least = 16
	var room [MaxSampled]store.Timestamp // on the stack
	times := room[:0]
	for i := range s.Slots {
		if x := &s.Slots[i]; x.Hash != 0 && x.Is&Present != 0 {
			times = append(times, x.At)
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
		newest-- // not counted as new: as old as the oldest keys, which a recount or a copy brought
	}
	if newest < least {
		return 0
	}
	for newest < len(times) && times[newest] == limit {
		newest++
	}
	var places [MaxSampled]place
	most, seen := 0.0, 0
	for i, x := range s.ordered(places[:0]) {
		if s.Slots[x.slot].At >= limit {
			seen++
		}
		most = max(most, math.Abs(float64(seen)/float64(newest)-float64(i+1)/float64(len(times))))
	}
	return max(0, 1-most)
}

// place is an element of a list of sampled keys that is sorted by key. slot is the key's index in the hash table of the
// sample. head is the first 8 bytes of the key after the prefix that all keys share; most comparisons need only these
// bytes.
type place struct {
	head uint64
	slot uint32
}

// ordered returns the sampled keys that are not deleted, sorted by key. It appends the result to room, an empty slice
// whose memory is reused. Each flush of a partition with writes sorts the keys, so ordered has to be fast.
func (s *Sample) ordered(room []place) []place {
	var first []byte
	common := 0 // length of the prefix of first that all keys share
	for i := range s.Slots {
		if x := &s.Slots[i]; x.Hash != 0 && x.Is&Present != 0 {
			key := s.KeyOf(x)
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
		copy(head[:], s.KeyOf(&s.Slots[room[i].slot])[common:])
		room[i].head = binary.BigEndian.Uint64(head[:])
	}
	slices.SortFunc(room, func(a, b place) int {
		if a.head != b.head {
			return cmp.Compare(a.head, b.head)
		}
		return bytes.Compare(s.KeyOf(&s.Slots[a.slot]), s.KeyOf(&s.Slots[b.slot]))
	})
	return room
}
