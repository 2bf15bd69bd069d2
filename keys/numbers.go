package keys

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
)

// BigEndian returns the eight bytes of a number, the most significant one first: the form
// without a type that other programs often have in their keys.
func BigEndian(v uint64) []byte { return binary.BigEndian.AppendUint64(nil, v) }

// BigEndianInt is BigEndian for signed numbers: the sign bit is inverted, so that negative
// ones come first.
func BigEndianInt(v int64) []byte { return BigEndian(uint64(v) ^ 1<<63) }

// FromBigEndian returns the number of the first eight bytes.
func FromBigEndian(b []byte) (uint64, error) {
	if len(b) < 8 {
		return 0, fmt.Errorf("keys: a number has 8 bytes, these are %d", len(b))
	}
	return binary.BigEndian.Uint64(b), nil
}

// FromBigEndianInt returns the number that BigEndianInt made the first eight bytes of.
func FromBigEndianInt(b []byte) (int64, error) {
	v, err := FromBigEndian(b)
	if err != nil {
		return 0, err
	}
	return int64(v ^ 1<<63), nil
}

// MaxSalts is the greatest number of salts.
const MaxSalts = 1 << 16

// Salted returns the key behind one of n salts, two bytes that its hash decides. Salts
// spread what would be written at one place, at the price of n listings that have to be
// merged. evenkeel cuts ahead of appends by itself, so salt only if a single partition can't
// take the writes of one moment. It panics unless n is from 1 to MaxSalts.
func Salted(n int, key []byte) []byte {
	h := fnv.New64a()
	_, _ = h.Write(key)
	salt := scramble(h.Sum64()) % uint64(checked(n))
	return append(binary.BigEndian.AppendUint16(make([]byte, 0, 2+len(key)), uint16(salt)), key...)
}

// Salts returns the prefixes of all keys that are salted by n, in order: the prefixes of
// the listings to merge, and cuts for a bucket that is new.
func Salts(n int) [][]byte {
	out := make([][]byte, checked(n))
	for i := range out {
		out[i] = binary.BigEndian.AppendUint16(nil, uint16(i))
	}
	return out
}

// Unsalted returns the key that was salted.
func Unsalted(key []byte) ([]byte, error) {
	if len(key) < 2 {
		return nil, fmt.Errorf("keys: a salt has 2 bytes, the key has %d", len(key))
	}
	return key[2:], nil
}

func checked(n int) int {
	if n < 1 || n > MaxSalts {
		panic(fmt.Sprintf("keys: %d salts: 1 to %d are possible", n, MaxSalts))
	}
	return n
}

// scramble spreads the bits of FNV, whose lower ones are poor for short keys (the finalizer of MurmurHash3).
func scramble(h uint64) uint64 {
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}
