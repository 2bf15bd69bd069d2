package mapcodec

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

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
	// KindRoot, KindIndex and KindSegment are the kinds of encoded parts of a map. The kind is the third byte of the
	// encoding.
	KindRoot    = 'r'
	KindIndex   = 'i'
	KindSegment = 's'

	// Version is the format version of encoded nodes of a map, and of roots without settings.
	Version = 1
	// RootVersion is the format version of an encoded root with settings of at most ShortSettings bytes.
	// LongRootVersion is that of a root with longer settings.
	RootVersion     = 2
	LongRootVersion = 3
	ShortSettings   = 255

	// HeaderBytes and ChecksumBytes are the sizes of the frame before and behind the body.
	HeaderBytes   = 4
	ChecksumBytes = 8
)

// The decoder of a bucket's map accepts nodes up to these limits, which are well above the sizes that are written. The
// limits keep a damaged node from making the decoder allocate more than a few megabytes.
const (
	MaxNodeEntries  = 4096
	MaxNodeKeyBytes = 2 << 20
	MaxHeight       = 32
)

// The limits of the encoded root of a bucket's map: of its bytes, its settings and its batches of moves.
const (
	// MaxRootBytes is the largest size, in bytes, of the encoded root of a bucket's map, without its batches of moves
	// and its settings. A map whose root would be larger gets another level of nodes.
	MaxRootBytes = 4096
	// MaxSettingsBytes is the largest size of the settings of a bucket, in bytes. Every process that has the bucket's
	// map holds the settings in memory, and each change of the root writes them again. Older programs refuse a root
	// with more than 255 bytes of settings.
	MaxSettingsBytes = 16 << 10
	// MaxBatches is the greatest number of batches of moves in the root of a bucket's map: those in flight, and those
	// whose markers are not removed yet. A batch takes at most 26 bytes of the root.
	MaxBatches = 64
)

// ErrNewerVersion is the error of decoding a map that a newer version of evenkeel wrote, in a format that this program
// does not know. Nothing is damaged: upgrade the program. The store.Kind of the error is Unavailable.
var ErrNewerVersion = errors.New(
	"written by a newer evenkeel in a format that this one does not know: upgrade this program",
)

// NewBlob returns the header with which an encoded root or node of the given kind begins. The caller appends the body
// to the header, and then calls Seal.
func NewBlob(kind byte) []byte { return []byte{'e', 'k', kind, Version} }

// Seal returns b with the checksum of b appended. The parameter b is the header and the body of an encoded root or
// node, which is complete afterwards.
func Seal(b []byte) []byte { return binary.LittleEndian.AppendUint64(b, xxhash.Sum64(b)) }

// Unseal checks the frame of blob, an encoded root or node of a map: its header and its checksum. It returns a Decoder
// of the bytes between them. If the check fails, the Decoder has the error: ErrNewerVersion for a format version that
// this program does not know, else Corrupt. The parameter kind is the kind of part that the caller expects.
func Unseal(kind byte, blob []byte) (r Decoder) {
	n := len(blob) - ChecksumBytes
	switch {
	case n < HeaderBytes:
		r.Fail("%d bytes are too few", len(blob))
	case binary.LittleEndian.Uint64(blob[n:]) != xxhash.Sum64(blob[:n]):
		r.Fail("the checksum is wrong")
	case blob[0] != 'e' || blob[1] != 'k' || blob[2] != kind:
		r.Fail("it begins with %q instead of \"ek%c\"", blob[:3], kind)
	case blob[3] > Newest(kind):
		r.Err = store.Errorf(store.Unavailable, "format version %d, known up to %d: %w", blob[3], Newest(kind), ErrNewerVersion)
	case blob[3] == 0:
		r.Fail("format version 0")
	default:
		r.b, r.Version = blob[HeaderBytes:n], blob[3]
	}
	return r
}

// Newest returns the highest format version that this program can decode. The parameter kind is the kind of node that
// is encoded: KindRoot, KindIndex or KindSegment.
func Newest(kind byte) byte {
	if kind == KindRoot {
		return LongRootVersion
	}
	return Version
}

// Decoder decodes the bytes of a root or a node of a map from front to back. It keeps its first error, which the caller
// checks once, at the end. After an error the decoded values mean nothing. Decoded numbers of items are always bounded,
// so that callers may allocate memory for them.
type Decoder struct {
	b []byte
	// Version is the format version of the bytes.
	Version byte
	// Err is the first error, or nil.
	Err error
}

// Fail records an error of kind Corrupt, unless the Decoder has an error already.
func (r *Decoder) Fail(format string, args ...any) {
	if r.Err == nil {
		r.Err = store.Errorf(store.Corrupt, format, args...)
	}
}

// Bytes returns the next n bytes. They share memory with what is decoded.
func (r *Decoder) Bytes(n uint64) []byte {
	if n > uint64(len(r.b)) {
		r.Fail("it ends too early")
		return nil
	}
	out := r.b[:n]
	r.b = r.b[n:]
	return out
}

// Byte returns the next byte.
func (r *Decoder) Byte() byte {
	var b [1]byte
	copy(b[:], r.Bytes(1))
	return b[0]
}

// ID returns the next 16 bytes, an id.
func (r *Decoder) ID() (id [16]byte) {
	copy(id[:], r.Bytes(16))
	return id
}

// Uvarint returns the next number, which has no sign.
func (r *Decoder) Uvarint() uint64 {
	x, n := binary.Uvarint(r.b)
	r.take(n)
	return x
}

// Varint returns the next number, which has a sign.
func (r *Decoder) Varint() int64 {
	x, n := binary.Varint(r.b)
	r.take(n)
	return x
}

// take moves the Decoder past a number that has just been decoded. n is the length of the number in bytes. If n is 0 or
// less, the bytes were no valid number, and take records an error.
func (r *Decoder) take(n int) {
	if n <= 0 {
		r.Fail("a number is cut short or too large")
	} else {
		r.b = r.b[n:]
	}
}

// count reads the number of items that follow in the encoded node. Each item takes at least size bytes. If the
// remaining bytes are too few for this number of items, count records an error and returns 0.
func (r *Decoder) count(size int) (n int) {
	if claimed := r.Uvarint(); claimed > MaxNodeEntries || claimed > uint64(len(r.b)/size) {
		r.Fail("it claims %d items in %d bytes", claimed, len(r.b))
	} else {
		n = int(claimed)
	}
	return n
}

// Done returns the first error of the decoding, or nil. items is the number of items that were decoded. If items is 0,
// or if bytes are left over, Done returns an error, too.
func (r *Decoder) Done(items int) error {
	if len(r.b) > 0 {
		r.Fail("%d bytes follow its end", len(r.b))
	}
	if items == 0 {
		r.Fail("it is empty")
	}
	return r.Err
}

// keysOf reads the total length in bytes of the n keys that follow in the encoded node. It returns an empty list of
// keys with enough memory for all n keys.
func (r *Decoder) keysOf(n int) Cuts {
	total := r.Uvarint()
	if total > MaxNodeKeyBytes {
		r.Fail("it claims %d bytes of keys", total)
	}
	if r.Err != nil {
		return Cuts{}
	}
	return Cuts{keys: make([]byte, 0, total), ends: make([]uint32, 0, n)}
}

// key reads one key from the encoded node and appends the key to the list c. The encoding leaves out the prefix that
// the key shares with the last key of c. The new key must be above that last key.
func (r *Decoder) key(c *Cuts) {
	same, more := r.Uvarint(), r.Uvarint()
	rest := r.Bytes(more)
	i := len(c.ends)
	var before []byte
	if i > 0 {
		before = c.At(i - 1)
	}
	switch {
	case same > uint64(len(before)):
		r.Fail("cut %d shares %d bytes with one of %d", i, same, len(before))
	case same+more > store.MaxKeyBytes:
		r.Fail("cut %d has %d bytes: at most %d", i, same+more, store.MaxKeyBytes)
	case i > 0 && string(rest) <= string(before[same:]):
		r.Fail("cut %d is not above the one before it", i)
	case len(c.keys)+int(same+more) > cap(c.keys):
		r.Fail("its keys are longer than it claims")
	default:
		c.keys = append(append(c.keys, before[:same]...), rest...)
		c.ends = append(c.ends, uint32(len(c.keys)))
	}
}

// AppendKey appends the encoding of key to b, and returns the extended slice. The parameter before is the key before it
// in the same list. The encoding leaves out the prefix that both keys share.
func AppendKey(b, before, key []byte) []byte {
	same := keyspread.Common(before, key)
	b = binary.AppendUvarint(b, uint64(same))
	b = binary.AppendUvarint(b, uint64(len(key)-same))
	return append(b, key[same:]...)
}

// The flags are in the byte that follows the start in an encoded entry. Each flag that is set means that one optional
// field of the entry follows, such as the destination of a move.
const (
	HasTo = 1 << iota
	HasBatch
	HasPin
	HasCreated

	EntryFlags = 1<<iota - 1
)

// MinEntryBytes and MinChildBytes are the least sizes, in bytes, of an encoded entry and of an encoded reference to a
// node. The decoder uses them to reject impossible numbers of items.
const (
	MinEntryBytes = 1 + 1 + 1 + 16
	MinChildBytes = 1 + 1 + 16
)

// AppendEntry appends to b the encoding of an entry of a map, and returns the extended slice. The parameter before is
// the start of the entry before it in the list. The other parameters are the fields of a partmap.Entry.
func AppendEntry(
	b, before, start []byte, partition, to store.PartitionID, batch uint64, pinUntil, created int64,
) []byte {
	b = AppendKey(b, before, start)
	var flags byte
	if !to.IsZero() {
		flags |= HasTo
	}
	if batch != 0 {
		flags |= HasBatch
	}
	if pinUntil != 0 {
		flags |= HasPin
	}
	if created != 0 {
		flags |= HasCreated
	}
	b = append(append(b, flags), partition[:]...)
	if flags&HasTo != 0 {
		b = append(b, to[:]...)
	}
	if flags&HasBatch != 0 {
		b = binary.AppendUvarint(b, batch)
	}
	if flags&HasPin != 0 {
		b = binary.AppendVarint(b, pinUntil)
	}
	if flags&HasCreated != 0 {
		b = binary.AppendVarint(b, created)
	}
	return b
}

// Entries is a decoded list of entries of a map, in compact form. The embedded Cuts are the starts of the entries.
// Fields that most entries lack, such as the destination of a move, are in a list of their own. So an entry takes 32
// bytes, half a cache line, besides its start.
type Entries struct {
	Cuts
	common []commonWhere
	moved  []movedWhere
}

// commonWhere has the fields that every entry of a map has, such as its partition.
type commonWhere struct {
	partition store.PartitionID
	created   int64
	// moved is the index of the entry's further fields in Entries.moved, plus 1. It is 0 if the entry has no further
	// fields.
	moved int32
}

// movedWhere has the fields that most entries of a map lack, such as the destination of a move.
type movedWhere struct {
	to       store.PartitionID
	batch    uint64
	pinUntil int64
}

// Entry returns the fields of the i-th entry of the list, counted from 0: those of a partmap.Entry. The start shares
// memory with the list and is read-only.
func (s *Entries) Entry(i int) (
	start []byte, partition, to store.PartitionID, batch uint64, pinUntil, created int64,
) {
	c := &s.common[i]
	if c.moved > 0 {
		m := &s.moved[c.moved-1]
		to, batch, pinUntil = m.to, m.batch, m.pinUntil
	}
	return s.At(i), c.partition, to, batch, pinUntil, c.created
}

// Entries returns the list of entries that comes next. The list begins with the number of entries.
func (r *Decoder) Entries() (s Entries) {
	n := r.count(MinEntryBytes)
	s.Cuts, s.common = r.keysOf(n), make([]commonWhere, 0, n)
	for range n {
		r.key(&s.Cuts)
		r.where(&s)
	}
	s.moved = slices.Clip(slices.Clone(s.moved))
	return s
}

// where reads the encoded fields of one entry of a map and appends them to s. The start of the entry is not among these
// fields: the caller has read the start before.
func (r *Decoder) where(s *Entries) {
	var c commonWhere
	var m movedWhere
	flags := r.Byte()
	if flags > EntryFlags {
		r.Fail("an entry has unknown flags %#x", flags)
	}
	c.partition = r.ID()
	if flags&HasTo != 0 {
		m.to = r.ID()
	}
	if flags&HasBatch != 0 {
		m.batch = r.Uvarint()
	}
	if flags&HasPin != 0 {
		m.pinUntil = r.Varint()
	}
	if flags&HasCreated != 0 {
		c.created = r.Varint()
	}
	if (m != movedWhere{}) {
		s.moved = append(s.moved, m)
		c.moved = int32(len(s.moved))
	}
	s.common = append(s.common, c)
}

// Children returns the list of references to nodes of a map that comes next: the lowest key (the start) and the id of
// each node. The list begins with the number of references.
func (r *Decoder) Children() (Cuts, []store.NodeID) {
	n := r.count(MinChildBytes)
	cuts := r.keysOf(n)
	nodes := make([]store.NodeID, 0, n)
	for range n {
		r.key(&cuts)
		id := store.NodeID(r.ID())
		if r.Err != nil {
			return Cuts{}, nil
		}
		nodes = append(nodes, id)
	}
	return cuts, nodes
}

// NodeOp returns words that name the node id in the map of bucket b, for the beginning of an error's text. The
// parameter what is the kind of the node, or the action that failed, such as "read segment".
func NodeOp(what string, b store.BucketID, id store.NodeID) string {
	return fmt.Sprintf("%s %s of bucket %s", what, id, b)
}

// Clip returns at most the first 64 bytes of the key, for an error message. If the key is longer, an ellipsis follows.
func Clip(key []byte) []byte {
	const most = 64
	if len(key) > most {
		return append(append([]byte(nil), key[:most]...), "…"...)
	}
	return key
}
