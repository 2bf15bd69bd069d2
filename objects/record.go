package objects

import (
	"crypto/md5"
	"encoding/binary"
	"math"

	"github.com/evenkeel/evenkeel/internal/wire"
	"github.com/evenkeel/evenkeel/objects/internal/tidy"
	"github.com/evenkeel/evenkeel/store"
)

type rank = tidy.Rank

const (
	live   = tidy.Live
	kept   = tidy.Kept
	burned = tidy.Burned
	gone   = tidy.Gone
	ranks  = 4
)

// at returns the timestamp of the write of a rank. A version has so many of its own.
func (id ID) at(r rank) store.Timestamp { return id.Stamp + store.Timestamp(r-live) }

// record is the value of a row.
type record struct {
	rank   rank
	marker bool // a delete marker
	null   bool // of a bucket without versions: only the newest one counts
	where  where
	size   int64
	md5    []byte // 16 bytes, or none
	etag   string // where it is not the MD5
	typ    string
	sums   []Pair
	meta   []Pair
	tags   []Pair // that it was made with
	summed bool   // the list of its parts has a checksum of each
	body   []byte // of an inline body
}

// where says where a version's bytes are.
type where byte

const (
	inline where = 0
	inBlob where = 1 // in one blob, by the name of blobName
	// In parts: the record has the manifest in place of a body, or says where it is.
	inParts       where = 2
	inListedParts where = 3
)

// Pair is a name and its value: a header of user metadata, or an algorithm and its checksum.
type Pair struct{ Name, Value string }

// Limits of a record. What is longer is refused at the put, and by the decoder.
const (
	maxTypeBytes = 1024
	maxETagBytes = 256
	maxPairs     = 256
	maxMetaBytes = 8 << 10 // names and values together, of meta and of sums each
	maxTagBytes  = 16 << 10
	// maxRecordBytes is the longest record.
	maxRecordBytes = 48 << 10
)

// The record, version 1: rank, version, flags, where, size (uvarint), then as strings of a
// uvarint length: MD5, ETag, type; sums, meta and, with flagTags, tags (count, then name and value of each); the
// rest is the body, or the manifest. It begins with the rank, as larger values win at equal timestamps. There is
// exactly one encoding of a record: version 2 is for what needs its flags, so that older programs refuse no others.
const (
	recordVersion = 2
	flagMarker    = 1
	flagNull      = 2
	flagTags      = 4
	flagSummed    = 8
)

// check refuses what a record can't hold.
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
		version, flags = recordVersion, flags|flagTags
	}
	if r.summed {
		version, flags = recordVersion, flags|flagSummed
	}
	b := append(make([]byte, 0, 128+len(r.body)), byte(r.rank), version, flags, byte(r.where))
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

func appendPairs(b []byte, pairs []Pair) []byte {
	b = binary.AppendUvarint(b, uint64(len(pairs)))
	for _, p := range pairs {
		b = wire.AppendString(wire.AppendString(b, p.Name), p.Value)
	}
	return b
}

// head is the part of a record that decides whether a version is shown.
type head struct {
	rank         rank
	marker, null bool
}

// visible reports whether readers see the version, as an object or a delete marker.
func (h head) visible() bool { return h.rank.Seen() }

// decodeHead reads the beginning of a record. It is for listings, which look at many.
func decodeHead(b []byte) (head, error) {
	if len(b) < 4 || b[0] < byte(live) || b[0] > byte(burned) || b[1] < 1 || b[1] > recordVersion ||
		b[2] > flagMarker|flagNull|flagTags|flagSummed || (b[1] > 1) != (b[2] >= flagTags) {
		return head{}, damagedRecord(b)
	}
	return head{rank: rank(b[0]), marker: b[2]&flagMarker != 0, null: b[2]&flagNull != 0}, nil
}

// extent says how much of a record there is.
type extent bool

const (
	whole  extent = false
	listed extent = true // without its inline body, which no listing shows: the first bytesToList
)

// bytesToList returns how much of the record of a version that is seen a listing needs, as
// listing.Sifted.ValueBytes: 0 is all. What is no record does not become one by being cut, as each byte before
// the body is needed.
func bytesToList(b []byte) int {
	if where(b[3]) != inline {
		return 0
	}
	d := wire.Shortest{Of: b, At: 4}
	size := d.Uint()
	if rest := len(b) - d.At; d.Bad || size > uint64(rest) || len(b) > maxRecordBytes { //nolint:gosec // not negative
		return 4 // that is no record, either
	}
	return len(b) - int(size) //nolint:gosec // bounded
}

// decode reads a record; md5 and body share the memory of b. The error is Corrupt.
func decode(b []byte) (*record, error) {
	r := new(record)
	if err := r.decode(b, whole); err != nil {
		return nil, err
	}
	return r, nil
}

// decode is decode into a record whose memory the caller has: listings read many. They mostly have
// the content type of the record before, which is kept then.
func (r *record) decode(b []byte, has extent) error {
	h, err := decodeHead(b)
	if err != nil || len(b) > maxRecordBytes {
		return damagedRecord(b)
	}
	typ := r.typ
	*r = record{rank: h.rank, marker: h.marker, null: h.null, where: where(b[3]), summed: b[2]&flagSummed != 0}
	d := decoder{wire.Shortest{Of: b, At: 4, Bad: r.where > inListedParts}}
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

func damagedRecord(b []byte) error {
	if len(b) > 1 && b[0] >= byte(live) && b[0] <= byte(burned) && b[1] > recordVersion {
		return store.Errorf(store.Corrupt, "a record of version %d: a newer program wrote it, this one reads up to %d",
			b[1], recordVersion)
	}
	return store.Errorf(store.Corrupt, "a value of %d bytes is not the record of an object's version", len(b))
}

// decoder reads a record from its beginning.
type decoder struct{ wire.Shortest }

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
