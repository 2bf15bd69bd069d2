package pebblestore

import (
	"bytes"

	"github.com/cockroachdb/pebble/v2"
)

// groupEnd ends the part of a key that the rows of a group have in common. A group is the rows whose keys are the same
// up to and including their first bytes 00 01, e.g. the versions of one object (package objects):
//
//	photo.jpg 00 01 a     one group
//	photo.jpg 00 01 b
//	readme.md 00 01 a     the next group
//
// Pebble knows groups as prefixes (Comparer.Split), and stores in each block where they begin. So it goes from one
// group to the next (Iterator.NextPrefix) in a fraction of the time of a search.
//
// All groups end with the same two bytes, so no group's common part begins with that of another group, and the order of
// all keys is that of their bytes. The address of the partition, which comes before the common part, may contain any
// bytes.
var groupEnd = []byte{0, 1}

// groupLen returns the length in bytes of the group prefix of phys, a key that is stored in Pebble. The prefix ends
// with the first bytes 00 01 behind the address of the partition. Rows with the same prefix are a group, such as the
// versions of one object. If the key has no such bytes, groupLen returns the length of the key.
func groupLen(phys []byte) int {
	if len(phys) > prefixBytes {
		if i := bytes.Index(phys[prefixBytes:], groupEnd); i >= 0 {
			return prefixBytes + i + len(groupEnd)
		}
	}
	return len(phys)
}

// endsGroup reports whether key ends with the bytes 00 01. These bytes end the prefix that all rows of a group, such as
// the versions of one object, have in common.
func endsGroup(key []byte) bool {
	n := len(key)
	return n >= 2 && key[n-1] == groupEnd[1] && key[n-2] == groupEnd[0]
}

// appendNextGroup appends to dst the lowest key that is above all keys of a group, and returns the extended slice. The
// group is all keys with the prefix group, which ends with the bytes 00 01, e.g. the versions of one object. A key
// without these bytes is a group of its own.
func appendNextGroup(dst, group []byte) []byte {
	dst = append(dst, group...)
	if len(group) >= prefixBytes+len(groupEnd) && endsGroup(group) {
		dst[len(dst)-1]++
		return dst
	}
	return append(dst, 0)
}

// hasGroups reports whether Pebble knows the groups of rows in a data directory of the given format. A group is the
// rows whose keys are the same up to their first bytes 00 01. Pebble knows the groups in the even formats.
func hasGroups(format int) bool { return format%2 == 0 }

// comparerOf returns the Comparer with which Pebble opens a data directory of the given format. It defines the order of
// the keys, which is bytewise in every format, and in some formats the groups of rows (see hasGroups). Pebble stores
// the name of the Comparer, so the name is a part of the format.
func comparerOf(format int) *pebble.Comparer {
	if !hasGroups(format) {
		return pebble.DefaultComparer
	}
	c := *pebble.DefaultComparer
	c.Name = "evenkeel.groups"
	c.Split, c.ImmediateSuccessor = groupLen, appendNextGroup
	return &c
}
