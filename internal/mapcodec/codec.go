package partmap

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cespare/xxhash/v2"

	"github.com/evenkeel/evenkeel/internal/keyspread"
	"github.com/evenkeel/evenkeel/store"
)

// The tree of a bucket's map consists of a root, index nodes and segments. Their encodings have the same frame in all
// versions of the format. So a reader can distinguish damage from a newer version:
//
//	"ek", kind (1 byte), version (1 byte), the body, xxhash64
//
// The checksum is the xxhash64 of all bytes before it, little-endian. Undetected damage of a map misroutes the writes
// of a whole bucket, so 32 bits are not enough (CRC-32C misses one damaged blob in four billion).
//
// Numbers are varints, ids 16 bytes. Keys are front-coded. An encoded key is the number of bytes that the key shares
// with the key before it, the number of bytes that follow, and those bytes. After "src/net", the key "src/os" is 4, 2,
// "os". The bodies:
//
//	root     in version 2 the length of the settings (1 byte) and the settings, in
//	         version 3 the same with the length as a number;
//	         bucket, epoch, token, state (1 byte), clock, changed at (signed), ranges,
//	         count and batches {id, phase (1 byte), ranges},
//	         height (1 byte), then entries (height 0) or children
//	index    bucket, node id, epoch, height (1 byte), children
//	segment  bucket, node id, epoch, entries
//	children count, bytes of all keys together, {key, node id}
//	entries  count, bytes of all keys together, {key, flags (1 byte), partition,
//	         and as the flags say: destination, batch, pin until, created (signed)}
const (
	kindRoot    = 'r'
	kindIndex   = 'i'
	kindSegment = 's'

	// version is the format version of encoded nodes of a map, and of roots without settings.
	version = 1
	// rootVersion is the format version of an encoded root with settings of at most shortSettings bytes.
	// longRootVersion is that of a root with longer settings.
	rootVersion     = 2
	longRootVersion = 3
	shortSettings   = 255

	headerBytes   = 4
	checksumBytes = 8
)

// The decoder of a bucket's map accepts nodes up to these limits, which are well above the sizes that are written. The
// limits keep a damaged node from making the decoder allocate more than a few megabytes.
const (
	maxNodeEntries  = 4096
	maxNodeKeyBytes = 2 << 20
	maxHeight       = 32
)

// ErrNewerVersion is the error of decoding a map that a newer version of evenkeel wrote, in a format that this program
// does not know. Nothing is damaged: upgrade the program. The store.Kind of the error is Unavailable.
var ErrNewerVersion = errors.New(
	"written by a newer evenkeel in a format that this one does not know: upgrade this program",
)

func newBlob(kind byte) []byte { return []byte{'e', 'k', kind, version} }

func seal(b []byte) []byte { return binary.LittleEndian.AppendUint64(b, xxhash.Sum64(b)) }

// unseal checks the frame of blob, an encoded root or node of a map: its header and its checksum. It returns a reader
// of the bytes between them. If the check fails, the reader has the error. kind is the kind of node that the caller
// expects.
func unseal(kind byte, blob []byte) (r reader) {
	n := len(blob) - checksumBytes
	switch {
	case n < headerBytes:
		r.fail("%d bytes are too few", len(blob))
	case binary.LittleEndian.Uint64(blob[n:]) != xxhash.Sum64(blob[:n]):
		r.fail("the checksum is wrong")
	case blob[0] != 'e' || blob[1] != 'k' || blob[2] != kind:
		r.fail("it begins with %q instead of \"ek%c\"", blob[:3], kind)
	case blob[3] > newest(kind):
		r.err = store.Errorf(store.Unavailable, "format version %d, known up to %d: %w", blob[3], newest(kind), ErrNewerVersion)
	case blob[3] == 0:
		r.fail("format version 0")
	default:
		r.b, r.version = blob[headerBytes:n], blob[3]
	}
	return r
}

// newest returns the highest format version that this program can decode. The parameter kind is the kind of node that
// is encoded: kindRoot, kindIndex or kindSegment.
func newest(kind byte) byte {
	if kind == kindRoot {
		return longRootVersion
	}
	return version
}

// reader decodes the bytes of a root or a node of a map from front to back. It keeps its first error, which the caller
// checks once, at the end. After an error the decoded values mean nothing. Decoded numbers of items are always bounded,
// so that callers may allocate memory for them.
type reader struct {
	b       []byte
	version byte
	err     error
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = corrupt(format, args...)
	}
}

func (r *reader) bytes(n uint64) []byte {
	if n > uint64(len(r.b)) {
		r.fail("it ends too early")
		return nil
	}
	out := r.b[:n]
	r.b = r.b[n:]
	return out
}

func (r *reader) byte() byte {
	var b [1]byte
	copy(b[:], r.bytes(1))
	return b[0]
}

func (r *reader) id() (id [16]byte) {
	copy(id[:], r.bytes(16))
	return id
}

func (r *reader) uvarint() uint64 {
	x, n := binary.Uvarint(r.b)
	r.take(n)
	return x
}

func (r *reader) varint() int64 {
	x, n := binary.Varint(r.b)
	r.take(n)
	return x
}

// take goes on behind a number that has just been decoded. n is the length of the number in bytes. If n is 0 or less,
// the bytes were no valid number, and take records an error.
func (r *reader) take(n int) {
	if n <= 0 {
		r.fail("a number is cut short or too large")
	} else {
		r.b = r.b[n:]
	}
}

// count reads the number of items that follow in the encoded node. Each item takes at least size bytes. If the
// remaining bytes are too few for that many items, count records an error and returns 0.
func (r *reader) count(size int) (n int) {
	if claimed := r.uvarint(); claimed > maxNodeEntries || claimed > uint64(len(r.b)/size) {
		r.fail("it claims %d items in %d bytes", claimed, len(r.b))
	} else {
		n = int(claimed)
	}
	return n
}

// done returns the first error of the decoding, or nil. items is the number of items that were decoded. If items is 0,
// or if bytes are left over, done returns an error, too.
func (r *reader) done(items int) error {
	if len(r.b) > 0 {
		r.fail("%d bytes follow its end", len(r.b))
	}
	if items == 0 {
		r.fail("it is empty")
	}
	return r.err
}

// keysOf reads the total length in bytes of the n keys that follow in the encoded node. It returns an empty list of
// keys with enough memory for all n keys.
func (r *reader) keysOf(n int) Cuts {
	total := r.uvarint()
	if total > maxNodeKeyBytes {
		r.fail("it claims %d bytes of keys", total)
	}
	if r.err != nil {
		return Cuts{}
	}
	return Cuts{keys: make([]byte, 0, total), ends: make([]uint32, 0, n)}
}

// key reads one key from the encoded node and appends the key to the list c. The encoding leaves out the prefix that
// the key shares with the last key of c. The new key must be above that last key.
func (r *reader) key(c *Cuts) {
	same, more := r.uvarint(), r.uvarint()
	rest := r.bytes(more)
	i := len(c.ends)
	var before []byte
	if i > 0 {
		before = c.At(i - 1)
	}
	switch {
	case same > uint64(len(before)):
		r.fail("cut %d shares %d bytes with one of %d", i, same, len(before))
	case same+more > store.MaxKeyBytes:
		r.fail("cut %d has %d bytes: at most %d", i, same+more, store.MaxKeyBytes)
	case i > 0 && string(rest) <= string(before[same:]):
		r.fail("cut %d is not above the one before it", i)
	case len(c.keys)+int(same+more) > cap(c.keys):
		r.fail("its keys are longer than it claims")
	default:
		c.keys = append(append(c.keys, before[:same]...), rest...)
		c.ends = append(c.ends, uint32(len(c.keys)))
	}
}

// appendKeysOf appends to b the total length in bytes of n keys, and returns the extended slice. The function at
// returns the i-th key.
func appendKeysOf(b []byte, n int, at func(i int) []byte) []byte {
	total := 0
	for i := range n {
		total += len(at(i))
	}
	return binary.AppendUvarint(b, uint64(total))
}

func appendKey(b, before, key []byte) []byte {
	same := keyspread.Common(before, key)
	b = binary.AppendUvarint(b, uint64(same))
	b = binary.AppendUvarint(b, uint64(len(key)-same))
	return append(b, key[same:]...)
}

// The flags are in the byte that follows the start in an encoded entry. Each flag that is set means that one optional
// field of the entry follows, such as the destination of a move.
const (
	hasTo = 1 << iota
	hasBatch
	hasPin
	hasCreated

	entryFlags = 1<<iota - 1
)

// minEntryBytes and minChildBytes are the least sizes, in bytes, of an encoded entry and of an encoded reference to a
// node. The decoder uses them to reject impossible numbers of items.
const (
	minEntryBytes = 1 + 1 + 1 + 16
	minChildBytes = 1 + 1 + 16
)

// appendEntries appends the encoded entries of a map to b, after their number and the total length of their keys. It
// returns the extended slice.
func appendEntries(b []byte, entries []Entry) []byte {
	b = binary.AppendUvarint(b, uint64(len(entries)))
	b = appendKeysOf(b, len(entries), func(i int) []byte { return entries[i].Start })
	var before []byte
	for i := range entries {
		b = appendEntry(b, before, &entries[i])
		before = entries[i].Start
	}
	return b
}

func appendEntry(b, before []byte, e *Entry) []byte {
	b = appendKey(b, before, e.Start)
	var flags byte
	if !e.To.IsZero() {
		flags |= hasTo
	}
	if e.Batch != 0 {
		flags |= hasBatch
	}
	if e.PinUntil != 0 {
		flags |= hasPin
	}
	if e.Created != 0 {
		flags |= hasCreated
	}
	b = append(append(b, flags), e.Partition[:]...)
	if flags&hasTo != 0 {
		b = append(b, e.To[:]...)
	}
	if flags&hasBatch != 0 {
		b = binary.AppendUvarint(b, e.Batch)
	}
	if flags&hasPin != 0 {
		b = binary.AppendVarint(b, e.PinUntil)
	}
	if flags&hasCreated != 0 {
		b = binary.AppendVarint(b, e.Created)
	}
	return b
}

// wheres holds all fields of a list of map entries except their starts, in compact form. Fields that most entries lack,
// such as the destination of a move, are in a list of their own. So an entry takes 32 bytes, half a cache line.
type wheres struct {
	common []commonWhere
	moved  []movedWhere
}

// commonWhere has the fields that every entry of a map has, such as its partition.
type commonWhere struct {
	partition store.PartitionID
	created   int64
	// moved is the index of the entry's further fields in wheres.moved, plus 1. It is 0 if the entry has no further
	// fields.
	moved int32
}

// movedWhere has the fields that most entries of a map lack, such as the destination of a move.
type movedWhere struct {
	to       store.PartitionID
	batch    uint64
	pinUntil int64
}

// where reads the encoded fields of one entry of a map and appends them to w. The start of the entry is not among these
// fields: the caller has read the start before.
func (r *reader) where(w *wheres) {
	var c commonWhere
	var m movedWhere
	flags := r.byte()
	if flags > entryFlags {
		r.fail("an entry has unknown flags %#x", flags)
	}
	c.partition = r.id()
	if flags&hasTo != 0 {
		m.to = r.id()
	}
	if flags&hasBatch != 0 {
		m.batch = r.uvarint()
	}
	if flags&hasPin != 0 {
		m.pinUntil = r.varint()
	}
	if flags&hasCreated != 0 {
		c.created = r.varint()
	}
	if (m != movedWhere{}) {
		w.moved = append(w.moved, m)
		c.moved = int32(len(w.moved))
	}
	w.common = append(w.common, c)
}

// entry sets *e to the i-th entry of the list. Its first key, which the list does not have, is the parameter start. *e
// must be zero before the call: entry leaves fields without a value as they are.
func (w *wheres) entry(i int, start []byte, e *Entry) {
	c := &w.common[i]
	e.Start, e.Partition, e.Created = start, c.partition, c.created
	if c.moved > 0 {
		m := &w.moved[c.moved-1]
		e.To, e.Batch, e.PinUntil = m.to, m.batch, m.pinUntil
	}
}

func (w *wheres) bytes() int64 {
	return allocated(cap(w.common)*commonWhereBytes) + allocated(cap(w.moved)*movedWhereBytes)
}

// nodeOp returns words that name the node id in the map of bucket b, for the beginning of an error's text. The
// parameter what is the kind of the node, or the action that failed, such as "read segment".
func nodeOp(what string, b store.BucketID, id store.NodeID) string {
	return fmt.Sprintf("%s %s of bucket %s", what, id, b)
}
