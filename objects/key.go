package objects

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"time"

	"github.com/evenkeel/evenkeel/internal/care"
	"github.com/evenkeel/evenkeel/store"
)

// ID identifies a version of an object. Of two versions the version with the higher Stamp, a time in microseconds, is
// newer. Salt is random, and distinguishes versions whose writers drew the same Stamp.
type ID struct {
	Stamp store.Timestamp
	Salt  [saltBytes]byte
}

const (
	saltBytes = 6
	idBytes   = 8 + saltBytes
)

// newID returns an ID with the given timestamp and a random salt.
func newID(stamp store.Timestamp) ID {
	id := ID{Stamp: stamp}
	var salt [8]byte
	binary.BigEndian.PutUint64(salt[:], rand.Uint64())
	copy(id.Salt[:], salt[:])
	return id
}

// isZero reports whether the ID is the zero ID, which no version has.
func (id ID) isZero() bool { return id == ID{} }

// time returns the Stamp of the ID, which counts microseconds since 1970, as a time in UTC.
func (id ID) time() time.Time { return time.UnixMicro(int64(id.Stamp)).UTC() }

// append appends the ID to dst, encoded in 14 bytes. The Stamp is inverted, so that in bytewise order the newest ID
// comes first.
func (id ID) append(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint64(dst, ^uint64(id.Stamp))
	return append(dst, id.Salt[:]...)
}

// parseID decodes the 14 bytes that ID.append has appended. The result ok is false if b is no valid ID.
func parseID(b []byte) (id ID, ok bool) {
	if len(b) != idBytes {
		return ID{}, false
	}
	id = ID{Stamp: stampAt(b), Salt: [saltBytes]byte(b[8:])}
	return id, id.Stamp > 0
}

// String returns the ID as 28 hexadecimal digits. When these texts are sorted, the newest version comes first.
func (id ID) String() string { return hex.EncodeToString(id.append(nil)) }

// ParseID returns the ID that the text stands for; it is the inverse of ID.String. It fails with InvalidArgument if
// text is not 28 hexadecimal digits of a valid ID.
func ParseID(text string) (ID, error) {
	if b, err := hex.DecodeString(text); err == nil {
		if id, ok := parseID(b); ok && id.String() == text {
			return id, nil
		}
	}
	return ID{}, store.Errorf(store.InvalidArgument,
		"%.64q is not the id of a version: %d hexadecimal digits", text, 2*idBytes)
}

// Suffixes and escapes in the key of a version's row, which has four parts:
//
//	key of the object, 00 as 00 FF | 00 01 | ID: stamp inverted, salt | nothing, or one byte
//
// Every zero byte of the object's key is escaped as 00 FF, and 00 01 ends the key. So rows are in the order of the
// objects' keys. The rows of one object are a group, and no group begins with the bytes with which another group
// begins.
//
// Two more rows may belong to a version: its tags and a cleaner's note. Their keys have one byte more, so the row of
// tags comes right behind the row of the version, and then the note.
const (
	zero       = 0x00
	escapedBy  = 0xFF
	endsKey    = 0x01
	tagsSuffix = 0x00
	noteSuffix = 0x01 // the last of a version's rows
)

// escape appends the key to dst, with each zero byte replaced by the two bytes 00 FF. A key begins with a certain
// prefix if, and only if, the escaped key begins with the escaped prefix.
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

// groupOf returns the first bytes of the keys of all rows of one object. These are the object's key, escaped, and the
// two bytes 00 01, which mark its end.
func groupOf(key []byte) []byte {
	return append(escape(make([]byte, 0, len(key)+2+idBytes), key), zero, endsKey)
}

// rowKey returns the key of the row that contains the version id of the object key.
func rowKey(key []byte, id ID) []byte { return id.append(groupOf(key)) }

// row is the decoded key of a row: the object's key, the version's ID, and whether the row contains the version itself,
// the version's tags, or a cleaner's note about the version.
type row struct {
	key   []byte // the object's key; may share the memory of the row's key
	group []byte // the beginning of the row's key that all rows of the object have; shares its memory
	id    ID
	tags  bool // the row has the tags of the version
	note  bool
}

// beside reports whether the row only belongs to a version: the row contains the version's tags, or a cleaner's note
// about the version. It returns false for the row of the version itself.
func (r *row) beside() bool { return r.tags || r.note }

// cutKey decodes the escaped key of an object, with which b begins. In escaped keys, 00 FF stands for a zero byte, and
// 00 01 marks the end. The results are
//
//   - key: the object's key, which may share the memory of b;
//   - n: the number of bytes of b that were decoded, including the end;
//   - ok: false if b does not begin with an escaped key.
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

// unescape returns b with each pair of bytes 00 FF replaced by a zero byte; it is the inverse of escape.
func unescape(b []byte) []byte { return bytes.ReplaceAll(b, []byte{zero, escapedBy}, []byte{zero}) }

// plainGroup returns how many bytes of b, the key of a version's row, are the same in the keys of all rows of the
// object: the object's key and its end. It is a fast path for object keys without a zero byte. It returns 0 for other
// keys and other rows, for which the caller uses parseRow.
func plainGroup(b []byte) int {
	n := len(b) - idBytes
	if n <= 2 || bytes.IndexByte(b, zero) != n-2 || b[n-1] != endsKey || stampAt(b[n:]) <= 0 {
		return 0
	}
	return n
}

// stampAt returns the timestamp of a version from b, which begins with the version's encoded ID. The first 8 bytes of
// the encoded ID are the inverted timestamp.
func stampAt(b []byte) store.Timestamp { return store.Timestamp(^binary.BigEndian.Uint64(b)) }

// parseRow decodes the key b of a row: the object's key, the version's ID, and whether the row contains the version
// itself, the version's tags, or a cleaner's note about the version. It fails with Corrupt if b does not have the form
// of such a key.
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

// damagedKey returns a Corrupt error, which says that b is not the key of a row of package objects.
func damagedKey(b []byte) error {
	return store.Errorf(store.Corrupt, "the key %.128q of %d bytes is not that of an object's version: "+
		"something else was written into the bucket of objects", b, len(b))
}

// checkKey fails with InvalidArgument if the key of an object is empty or longer than 1,024 bytes.
func checkKey(key []byte) error {
	if len(key) == 0 || len(key) > care.MaxKeyBytes {
		return store.Errorf(store.InvalidArgument, "the key has %d bytes: 1 to %d", len(key), care.MaxKeyBytes)
	}
	return nil
}
