package s3api

import (
	"crypto/md5"
	"encoding/binary"
	"encoding/hex"
	"math"
	"time"

	"github.com/evenkeel/evenkeel/internal/wire"
	"github.com/evenkeel/evenkeel/store"
)

// Object is the value of an entry as s3api stores it: an object's metadata and, if small, its
// body. Programs that write entries through package listing use it to make them look like
// objects over HTTP.
type Object struct {
	// Modified is stored in milliseconds.
	Modified time.Time
	// Size in bytes. That of an inline object is len(Body), whatever is set here.
	Size int64
	// ETag without its quotes. That of an inline object is the body's MD5 in hexadecimal
	// digits, whatever is set here.
	ETag string
	// External: the bytes are stored elsewhere. Size and ETag are as the client sent them,
	// and Body is empty.
	External bool
	// ContentType may be empty.
	ContentType string
	// Headers are other headers, which are returned as they were sent, like user metadata
	// (x-amz-meta-…); names are in lower case and ascending order.
	Headers []Header
	Body    []byte
}

// Header is one header of an Object.
type Header struct{ Name, Value string }

// The record, version 1: recordMark, version, flags, Modified (uvarint, ms since
// 1970), ETag, ContentType, headers (count, then name and value of each), body.
// An external object has its size (uvarint) before its ETag, which is a string;
// an inline one has the 16 bytes of the MD5. Strings are a uvarint length and
// bytes. The part that a listing needs comes first.
const (
	// recordMark occurs in no UTF-8 text, so that a plain value, written through the
	// library, does not look like a record.
	recordMark    = 0xFE
	recordVersion = 1
	flagExternal  = 1
)

// MaxETagBytes bounds the ETag of an external object.
const MaxETagBytes = 256

// seal sets Size and ETag of an inline object.
func (o *Object) seal() {
	sum := md5.Sum(o.Body)
	o.Size, o.ETag = int64(len(o.Body)), hex.EncodeToString(sum[:])
}

// AppendRecord appends the record of o to dst.
func (o *Object) AppendRecord(dst []byte) []byte {
	dst = append(dst, recordMark, recordVersion)
	modified := uint64(max(o.Modified.UnixMilli(), 0))
	if o.External {
		dst = append(dst, flagExternal)
		dst = binary.AppendUvarint(dst, modified)
		dst = binary.AppendUvarint(dst, uint64(o.Size))
		dst = wire.AppendString(dst, o.ETag)
	} else {
		dst = append(dst, 0)
		dst = binary.AppendUvarint(dst, modified)
		sum := md5.Sum(o.Body)
		dst = append(dst, sum[:]...)
	}
	dst = wire.AppendString(dst, o.ContentType)
	dst = binary.AppendUvarint(dst, uint64(len(o.Headers)))
	for _, h := range o.Headers {
		dst = wire.AppendString(wire.AppendString(dst, h.Name), h.Value)
	}
	if o.External {
		return dst
	}
	return append(dst, o.Body...)
}

// ParseRecord reads an entry's value. Body shares the value's memory. A value that is not a
// record is an object of plain bytes, last modified at the start of 1970. The error of a
// damaged record, or of a newer version's, is Corrupt.
func ParseRecord(value []byte) (Object, error) {
	if len(value) == 0 || value[0] != recordMark {
		return plain(value), nil
	}
	d, s, err := openRecord(value)
	if err != nil {
		return Object{}, err
	}
	o := Object{Modified: time.UnixMilli(s.modified).UTC(), External: s.external, ETag: string(s.appendETag(nil))}
	o.ContentType = d.String(math.MaxInt)
	n := d.Uint()
	for i := uint64(0); i < n && !d.Bad; i++ {
		o.Headers = append(o.Headers, Header{d.String(math.MaxInt), d.String(math.MaxInt)})
	}
	o.Size = s.size
	if o.External {
		d.Bad = d.Bad || len(d.Rest()) > 0
	} else {
		o.Body = d.Rest()
		o.Size = int64(len(d.Rest()))
		d.Bad = d.Bad || md5.Sum(o.Body) != s.md5
	}
	if d.Bad {
		return Object{}, damaged(value)
	}
	return o, nil
}

func plain(value []byte) Object {
	o := Object{Modified: time.UnixMilli(0).UTC(), Body: value}
	o.seal()
	return o
}

func damaged(value []byte) error {
	return store.Errorf(store.Corrupt, "the value of %d bytes begins like an object's record but isn't one", len(value))
}

// summary is the part of an object that a listing shows.
type summary struct {
	modified int64 // milliseconds since 1970
	size     int64
	external bool
	etag     []byte // of an external object
	md5      [md5.Size]byte
}

// parseSummary reads the part of a value that a listing shows.
func parseSummary(value []byte) (summary, error) {
	if len(value) == 0 || value[0] != recordMark {
		return summary{size: int64(len(value)), md5: md5.Sum(value)}, nil
	}
	d, s, err := openRecord(value)
	if err != nil {
		return summary{}, err
	}
	if !s.external { // the body follows the headers
		d.Bytes(math.MaxInt)
		for n := d.Uint(); n > 0 && !d.Bad; n-- {
			d.Bytes(math.MaxInt)
			d.Bytes(math.MaxInt)
		}
		s.size = int64(len(d.Rest()))
	}
	if d.Bad {
		return summary{}, damaged(value)
	}
	return s, nil
}

// openRecord reads a record up to its ETag. If that is damaged the reader of the rest is Bad.
func openRecord(value []byte) (wire.Shortest, summary, error) {
	d := wire.Shortest{Of: value, At: 1}
	version, flags := d.Uint(), d.Uint() // a byte each
	switch {
	case d.Bad || flags&^flagExternal != 0:
		return wire.Shortest{}, summary{}, damaged(value)
	case version != recordVersion:
		return wire.Shortest{}, summary{}, store.Errorf(store.Corrupt,
			"an object's record of version %d: this program reads version %d", version, recordVersion)
	}
	s := summary{external: flags&flagExternal != 0, modified: int64(d.Uint())}
	if s.external {
		s.size = int64(d.Uint())
		s.etag = d.Bytes(math.MaxInt)
	} else { // what follows is missing where the digest is cut
		d.At += copy(s.md5[:], d.Rest())
	}
	d.Bad = d.Bad || s.modified < 0 || s.size < 0
	return d, s, nil
}

// appendETag appends the ETag without its quotes.
func (s *summary) appendETag(dst []byte) []byte {
	if s.external {
		return append(dst, s.etag...)
	}
	return hex.AppendEncode(dst, s.md5[:])
}
