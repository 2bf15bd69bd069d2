package objects

import (
	"crypto/md5"
	"encoding/binary"
	"math"

	"github.com/evenkeel/evenkeel/internal/wire"
	"github.com/evenkeel/evenkeel/objects/internal/tidy"
	"github.com/evenkeel/evenkeel/store"
)

// rank is the state of a version of an object: live, kept, burned or gone. It only grows. Readers see the first two. A
// kept version is one on which a cleaner relies when it deletes something else, such as an older version. A burned
// version is deleted, but its row is still stored.
type rank = tidy.Rank

const (
	live   = tidy.Live
	kept   = tidy.Kept
	burned = tidy.Burned
	gone   = tidy.Gone
	ranks  = 4
)

// at returns the timestamp at which the version's row is written for the rank r. The rank is the state of the version,
// from live to burned (deleted) and gone, and only grows. The timestamp is the version's own plus 0 to 3: the higher
// the rank, the later. So the write with the highest rank wins, in whatever order the writes arrive.
func (id ID) at(r rank) store.Timestamp { return id.Stamp + store.Timestamp(r-live) }

// record is the content of the row of a version: its state, its metadata, and its body or where the body is stored. The
// rows of multipart uploads and of their parts have records, too.
type record struct {
	rank   rank
	marker bool // it is a delete marker
	null   bool // written while the bucket kept no versions: of these only the newest counts
	where  where
	size   int64
	md5    []byte // 16 bytes, or none if it is not known
	etag   string // of a version in parts, whose ETag is no MD5 of the body
	typ    string
	sums   []Pair
	meta   []Pair
	tags   []Pair // the tags that the version was made with
	summed bool   // the list of its parts has a checksum of each part
	home   ID     // the ID in the names of the blobs; zero: the version's own ID
	body   []byte // an inline body; of a version in parts the manifest, or where it is
}

// where says where the body of a version is stored: in its row, in one blob, or in parts, each of which is a blob.
type where byte

const (
	inline where = 0
	inBlob where = 1 // in one blob, whose name blobName returns
	// inParts means that the body is stored in parts, each of which is a blob. The record has the manifest, which is
	// the list of the parts, in place of a body. inListedParts means that the manifest is a blob, too, and that the
	// record has the ID of this blob.
	inParts       where = 2
	inListedParts where = 3
)

// Pair is a name and its value, e.g. a header of user metadata, a tag, or an algorithm and its checksum.
type Pair struct{ Name, Value string }

// Limits of a record, the content of the row of a version. Those of names with Bytes are in bytes. A put refuses longer
// values, and the decoder refuses longer values, too.
const (
	maxTypeBytes = 1024
	maxETagBytes = 256
	maxPairs     = 256
	maxMetaBytes = 8 << 10 // of all names and values together: of meta, and again of sums
	maxTagBytes  = 16 << 10
	// maxRecordBytes is the length in bytes of the longest encoded record.
	maxRecordBytes = 48 << 10
)

// A record is encoded as
//
//	rank | version | flags | where | home | size | MD5 | ETag | type | sums | meta | tags | body or manifest
//
// The first four are a byte each, and home, an ID, is in version 3 only. size is a uvarint. MD5, ETag and type are
// strings behind their length (uvarint). Sums, meta and tags are lists of pairs: their count, then the name and the
// value of each; tags are there with flagTags only. The body is the rest.
//
// The rank comes first because at equal timestamps the larger value wins. There is exactly one encoding of a record.
// The version is the lowest that has all fields, so that an older program refuses only records that it can't read:
//
//   - version 1 has no flags except flagMarker and flagNull;
//   - version 2 has flagTags or flagSummed, too;
//   - version 3 has a home, and any flags.
const (
	flagsVersion  = 2
	recordVersion = 3
	flagMarker    = 1
	flagNull      = 2
	flagTags      = 4
	flagSummed    = 8
)

// check fails with InvalidArgument if a field of the record is longer than its limit, e.g. the content type.
func (r *record) check() error {
	if len(r.md5) > 0 && len(r.md5) != md5.Size {
		return store.Errorf(store.InvalidArgument, "an MD5 has %d bytes, not %d", md5.Size, len(r.md5))
	}
	if len(r.typ) > maxTypeBytes || len(r.etag) > maxETagBytes {
		return store.Errorf(store.InvalidArgument, "the content type has %d bytes, the ETag %d: at most %d and %d",
			len(r.typ), len(r.etag), maxTypeBytes, maxETagBytes)
	}
	for i, pairs := range [][]Pair{r.sums, r.meta, r.tags} {
		size, most := 0, []int{maxMetaBytes, maxMetaBytes, maxTagBytes}[i]
		for _, p := range pairs {
			size += len(p.Name) + len(p.Value)
		}
		if len(pairs) > maxPairs || size > most {
			return store.Errorf(store.InvalidArgument, "%d headers of metadata, or tags, with %d bytes: at most %d with %d",
				len(pairs), size, maxPairs, most)
		}
	}
	return nil
}

// encode returns the encoded record, in the lowest version that has all its fields.
func (r *record) encode() []byte {
	flags := byte(0)
	if r.marker {
		flags |= flagMarker
	}
	if r.null {
		flags |= flagNull
	}
	version := byte(1)
	if len(r.tags) > 0 {
		version, flags = flagsVersion, flags|flagTags
	}
	if r.summed {
		version, flags = flagsVersion, flags|flagSummed
	}
	if !r.home.isZero() {
		version = recordVersion
	}
	b := append(make([]byte, 0, 128+len(r.body)), byte(r.rank), version, flags, byte(r.where))
	if version == recordVersion {
		b = r.home.append(b)
	}
	b = binary.AppendUvarint(b, uint64(r.size))
	b = wire.AppendString(b, string(r.md5))
	b = wire.AppendString(b, r.etag)
	b = wire.AppendString(b, r.typ)
	b = appendPairs(appendPairs(b, r.sums), r.meta)
	if len(r.tags) > 0 {
		b = appendPairs(b, r.tags)
	}
	return append(b, r.body...)
}

// appendPairs appends the encoded pairs to b: their number, then the name and the value of each.
func appendPairs(b []byte, pairs []Pair) []byte {
	b = binary.AppendUvarint(b, uint64(len(pairs)))
	for _, p := range pairs {
		b = wire.AppendString(wire.AppendString(b, p.Name), p.Value)
	}
	return b
}

// head is the decoded beginning of a record. A listing needs only the head to decide whether to show the version.
type head struct {
	rank         rank
	marker, null bool
}

// visible reports whether readers see the version, as an object or as a delete marker. It returns false for a deleted
// version.
func (h head) visible() bool { return h.rank.Seen() }

// decodeHead decodes only the beginning of the encoded record b of a version, as listings look at many records. The
// result says whether the version is deleted, is a delete marker, or is a null version. (Null versions were written
// while the bucket kept no versions.) decodeHead fails with Corrupt if b does not begin like a record.
func decodeHead(b []byte) (head, error) {
	if len(b) < 4 || b[0] < byte(live) || b[0] > byte(burned) || b[1] < 1 || b[1] > recordVersion ||
		b[2] > flagMarker|flagNull|flagTags|flagSummed || b[1] < recordVersion && (b[1] > 1) != (b[2] >= flagTags) {
		return head{}, damagedRecord(b)
	}
	return head{rank: rank(b[0]), marker: b[2]&flagMarker != 0, null: b[2]&flagNull != 0}, nil
}

// homeIn returns the ID in the names of a version's blobs from the encoded record b of the version. The second result
// is false if b has no such ID: then it is the version's own ID.
func homeIn(b []byte) (ID, bool) {
	if len(b) < 4+idBytes || b[1] != recordVersion {
		return ID{}, false
	}
	return parseID(b[4 : 4+idBytes])
}

// bodies returns the ID that is in the names of the version's blobs. Mostly this is r.home, an ID that was drawn before
// the body arrived, or the ID of the upload. If r.home is zero, it is version, the version's own ID.
func (r *record) bodies(version ID) ID {
	if r.home.isZero() {
		return version
	}
	return r.home
}

// extent says whether the whole encoded record is given to the decoder, or only those first bytes that a listing needs.
type extent bool

const (
	whole  extent = false
	listed extent = true // without an inline body, which no listing shows: the first bytesToList bytes
)

// bytesToList returns how many of the first bytes of the encoded record b a listing needs; 0 means all bytes. A listing
// needs all fields, so that it notices damage, but no body. So the bytes of a body in the row are left out
// (listing.Sifted.ValueBytes).
func bytesToList(b []byte) int {
	if where(b[3]) != inline {
		return 0
	}
	d := wire.Shortest{Of: b, At: 4}
	size := d.Uint()
	if rest := len(b) - d.At; d.Bad || size > uint64(rest) || len(b) > maxRecordBytes { //nolint:gosec // not negative
		return 4 // too few bytes for a record, so that an error is found
	}
	return len(b) - int(size) //nolint:gosec // bounded
}

// decode returns the record that the bytes b encode. They are the content of a version's row. The fields md5 and body
// of the record share the memory of b. decode fails with Corrupt if b is not a record.
func decode(b []byte) (*record, error) {
	r := new(record)
	if err := r.decode(b, whole); err != nil {
		return nil, err
	}
	return r, nil
}

// decode decodes the bytes b into r, which may be used again and again for many records. If has is listed, b was cut
// off for a listing, and a body in the row must be missing (bytesToList). decode fails with Corrupt. Most records of a
// page have the same content type, so decode keeps the old string of r if the new one is equal.
func (r *record) decode(b []byte, has extent) error {
	h, err := decodeHead(b)
	if err != nil || len(b) > maxRecordBytes {
		return damagedRecord(b)
	}
	typ := r.typ
	*r = record{rank: h.rank, marker: h.marker, null: h.null, where: where(b[3]), summed: b[2]&flagSummed != 0}
	d := decoder{wire.Shortest{Of: b, At: 4, Bad: r.where > inListedParts}}
	if b[1] == recordVersion {
		var ok bool
		if r.home, ok = homeIn(b); !ok || r.where == inline {
			return damagedRecord(b)
		}
		d.At += idBytes
	}
	size := d.Uint()
	r.md5 = d.Bytes(md5.Size)
	r.etag = d.String(maxETagBytes)
	if text := d.Bytes(maxTypeBytes); string(text) == typ {
		r.typ = typ
	} else {
		r.typ = string(text)
	}
	r.sums, r.meta = d.pairs(maxMetaBytes), d.pairs(maxMetaBytes)
	if b[2]&flagTags != 0 {
		r.tags = d.pairs(maxTagBytes)
		d.Bad = d.Bad || len(r.tags) == 0
	}
	if body := d.Rest(); len(body) > 0 {
		r.body = body
	}
	d.Bad = d.Bad || size > math.MaxInt64 || len(r.md5) != 0 && len(r.md5) != md5.Size
	r.size = int64(size)
	switch {
	case r.rank == burned || r.where == inBlob:
		d.Bad = d.Bad || len(r.body) > 0
	case r.where == inline && has == listed:
		d.Bad = d.Bad || len(r.body) > 0
	case r.where == inline:
		d.Bad = d.Bad || r.size != int64(len(r.body))
	default:
		d.Bad = d.Bad || !r.checkParts()
	}
	d.Bad = d.Bad || r.summed && r.parts() == 0
	if d.Bad || r.marker && (r.size > 0 || r.where != inline) {
		return damagedRecord(b)
	}
	return nil
}

// damagedRecord returns a Corrupt error, which says that b is not a record that this program can read.
func damagedRecord(b []byte) error {
	if len(b) > 1 && b[0] >= byte(live) && b[0] <= byte(burned) && b[1] > recordVersion {
		return store.Errorf(store.Corrupt, "a record of version %d: a newer program wrote it, this one reads up to %d",
			b[1], recordVersion)
	}
	return store.Errorf(store.Corrupt, "a value of %d bytes is not the record of an object's version", len(b))
}

// decoder reads the fields of an encoded record one after the other. Its field Bad is true once a field was damaged.
type decoder struct{ wire.Shortest }

// pairs returns the next list of pairs. Names and values may have at most most bytes together.
func (d *decoder) pairs(most int) (pairs []Pair) {
	n := d.Uint()
	if n > maxPairs {
		d.Bad = true
		return nil
	}
	size := 0
	for range n {
		p := Pair{Name: d.String(most), Value: d.String(most)}
		if size += len(p.Name) + len(p.Value); d.Bad || size > most {
			d.Bad = true
			return nil
		}
		pairs = append(pairs, p)
	}
	return pairs
}
