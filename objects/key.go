package objects

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"time"

	"github.com/evenkeel/evenkeel/store"
)

// MaxKeyBytes is the longest key of an object.
const MaxKeyBytes = 1024

// ID identifies a version of an object. Of two versions the one with the higher stamp is the
// newer one; the salt tells versions apart whose writers drew the same stamp.
type ID struct {
	Stamp store.Timestamp
	Salt  [saltBytes]byte
}

const (
	saltBytes = 6
	idBytes   = 8 + saltBytes
)

func newID(stamp store.Timestamp) ID {
	id := ID{Stamp: stamp}
	var salt [8]byte
	binary.BigEndian.PutUint64(salt[:], rand.Uint64())
	copy(id.Salt[:], salt[:])
	return id
}

// IsZero reports whether the ID is zero: no version.
func (id ID) IsZero() bool { return id == ID{} }

// time is when the version began.
func (id ID) time() time.Time { return time.UnixMicro(int64(id.Stamp)).UTC() }

// append appends the ID in the order of rows: newest first.
func (id ID) append(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint64(dst, ^uint64(id.Stamp))
	return append(dst, id.Salt[:]...)
}

func parseID(b []byte) (id ID, ok bool) {
	if len(b) != idBytes {
		return ID{}, false
	}
	id = ID{Stamp: stampAt(b), Salt: [saltBytes]byte(b[8:])}
	return id, id.Stamp > 0
}

// String is 28 hexadecimal digits, in the order of rows.
func (id ID) String() string { return hex.EncodeToString(id.append(nil)) }

// ParseID is the inverse of ID.String. It fails with InvalidArgument.
func ParseID(text string) (ID, error) {
	if b, err := hex.DecodeString(text); err == nil {
		if id, ok := parseID(b); ok && id.String() == text {
			return id, nil
		}
	}
	return ID{}, store.Errorf(store.InvalidArgument,
		"%.64q is not the id of a version: %d hexadecimal digits", text, 2*idBytes)
}

// A row's key is the object's key, escaped, the end of the key, and the version. A zero byte of
// the key is escaped as 00 FF; the end is 00 01. So rows are in the order of keys, and no group
// of rows (an object's versions) begins with what another one begins with. Tags and a note have one
// more byte than the row that they stand beside: the tags come right behind it.
const (
	zero       = 0x00
	escapedBy  = 0xFF
	endsKey    = 0x01
	tagsSuffix = 0x00
	noteSuffix = 0x01 // the last
)

// escape appends the escaped key. What begins with a prefix has rows that begin with the escaped
// prefix, and nothing else has.
func escape(dst, key []byte) []byte {
	for {
		at := bytes.IndexByte(key, zero)
		if at < 0 {
			return append(dst, key...)
		}
		dst = append(append(dst, key[:at]...), zero, escapedBy)
		key = key[at+1:]
	}
}

// groupOf returns what all rows of an object begin with.
func groupOf(key []byte) []byte {
	return append(escape(make([]byte, 0, len(key)+2+idBytes), key), zero, endsKey)
}

// rowKey returns the key of a version's row.
func rowKey(key []byte, id ID) []byte { return id.append(groupOf(key)) }

// row is what the key of a row says.
type row struct {
	key   []byte // of the object; may share the row key's memory
	group []byte // shares the row key's memory
	id    ID
	tags  bool // it has the version's tags
	note  bool
}

// beside reports whether it is no row of a version, but stands beside one.
func (r *row) beside() bool { return r.tags || r.note }

// cutKey takes an escaped key and its end off; n is how many bytes that are. The key may share the
// memory of b.
func cutKey(b []byte) (key []byte, n int, ok bool) {
	at, escaped := 0, false
	for {
		i := bytes.IndexByte(b[at:], zero)
		if i < 0 || at+i+1 >= len(b) {
			return nil, 0, false
		}
		at += i + 1
		if b[at] == endsKey {
			break
		}
		if b[at] != escapedBy {
			return nil, 0, false
		}
		at++
		escaped = true
	}
	key = b[: at-1 : at-1]
	if escaped {
		key = unescape(key)
	}
	return key, at + 1, true
}

// unescape is the inverse of escape.
func unescape(b []byte) []byte { return bytes.ReplaceAll(b, []byte{zero, escapedBy}, []byte{zero}) }

// plainGroup returns the length of the group in the key of a version's row, where the object's key has
// no zero byte: as almost all have that listings look at. Else it returns 0.
func plainGroup(b []byte) int {
	n := len(b) - idBytes
	if n <= 2 || bytes.IndexByte(b, zero) != n-2 || b[n-1] != endsKey || stampAt(b[n:]) <= 0 {
		return 0
	}
	return n
}

// stampAt reads the stamp at the beginning of an ID.
func stampAt(b []byte) store.Timestamp { return store.Timestamp(^binary.BigEndian.Uint64(b)) }

// parseRow takes the key of a row apart. The error is Corrupt.
func parseRow(b []byte) (r row, err error) {
	if n := plainGroup(b); n > 0 {
		r.key, r.group = b[:n-2:n-2], b[:n:n]
		r.id, _ = parseID(b[n:])
		return r, nil
	}
	key, n, ok := cutKey(b)
	if !ok || len(key) == 0 {
		return row{}, damagedKey(b)
	}
	r.key, r.group = key, b[:n:n]
	rest := b[n:]
	if len(rest) == idBytes+1 && rest[idBytes] <= noteSuffix {
		r.tags, r.note = rest[idBytes] == tagsSuffix, rest[idBytes] == noteSuffix
		rest = rest[:idBytes]
	}
	if r.id, ok = parseID(rest); !ok {
		return row{}, damagedKey(b)
	}
	return r, nil
}

func damagedKey(b []byte) error {
	return store.Errorf(store.Corrupt, "the key %.128q of %d bytes is not that of an object's version: "+
		"something else was written into the bucket of objects", b, len(b))
}

func checkKey(key []byte) error {
	if len(key) == 0 || len(key) > MaxKeyBytes {
		return store.Errorf(store.InvalidArgument, "the key has %d bytes: 1 to %d", len(key), MaxKeyBytes)
	}
	return nil
}
