package keys

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
)

// BigEndian returns the eight bytes of the number v, the most significant byte first, for use in a key. The order of
// the bytes is the order of the numbers. Unlike Uint, BigEndian writes no byte for the type before the number: many
// other programs write numbers in their keys in the same way. encoding/binary reads them.
func BigEndian(v uint64) []byte { return binary.BigEndian.AppendUint64(nil, v) }

// maxSalts is the greatest number of different salts. A salt is two bytes that Salted puts before a key.
const maxSalts = 1 << 16

// Salted returns the key with a salt before it: two bytes, one of n values, that depend on a hash of the key. Salts
// spread neighbouring keys over n separate intervals, so that n partitions share the writes. The price is that a reader
// has to merge n listings, one for each salt. Use salts only if a single partition can't take the writes of one moment.
// Keys that are appended need no salts, as evenkeel makes partitions for such keys ahead. Salted panics if n is below 1
// or above 65,536.
func Salted(n int, key []byte) []byte {
	h := fnv.New64a()
	_, _ = h.Write(key)
	salt := scramble(h.Sum64()) % uint64(checked(n))
	return append(binary.BigEndian.AppendUint16(make([]byte, 0, 2+len(key)), uint16(salt)), key...)
}

// Salts returns the n salts that Salted may put before a key, in ascending order. A reader lists each salt as a prefix
// and merges the n listings. Salts are also good keys at which to split a new bucket into partitions. Salts panics if n
// is below 1 or above 65,536.
func Salts(n int) [][]byte {
	out := make([][]byte, checked(n))
	for i := range out {
		out[i] = binary.BigEndian.AppendUint16(nil, uint16(i))
	}
	return out
}

// Unsalted returns the key without its first two bytes, the salt that Salted has put before the key. The result shares
// memory with the key. Unsalted fails if the key has fewer than two bytes.
func Unsalted(key []byte) ([]byte, error) {
	if len(key) < 2 {
		return nil, fmt.Errorf("keys: a salt has 2 bytes, the key has %d", len(key))
	}
	return key[2:], nil
}

// checked returns n, the number of salts. It panics if n is not from 1 to maxSalts.
func checked(n int) int {
	if n < 1 || n > maxSalts {
		panic(fmt.Sprintf("keys: %d salts: 1 to %d are possible", n, maxSalts))
	}
	return n
}

// scramble returns a hash in which every bit depends on all bits of the hash h. The function is the finalizer of
// MurmurHash3. Salted needs it because the lower bits of an FNV hash are poor for short keys.
func scramble(h uint64) uint64 {
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}
