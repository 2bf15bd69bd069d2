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

// Object is an object of a plain bucket, with its metadata and, if small, its body. It is stored in the value of an
// entry of package listing. A program that writes entries through package listing encodes an Object, so that S3 clients
// see the entry as an object.
type Object struct {
	// Modified is the time of the last modification, stored in milliseconds.
	Modified time.Time
	// Size is the size of the object in bytes. For an object that is not External, len(Body) is stored in place of
	// Size.
	Size int64
	// ETag is the entity tag without its quotes. For an object that is not External, the MD5 of Body in hexadecimal
	// digits is stored in place of ETag.
	ETag string
	// External is true if the bytes of the object are stored elsewhere. Then Size and ETag are as the client sent them,
	// and Body is empty.
	External bool
	// ContentType is the value of the header Content-Type, or empty.
	ContentType string
	// Headers are further headers, such as user metadata (x-amz-meta-…), which are returned to readers as they were
	// sent. Their names are in lower case and in ascending order.
	Headers []Header
	Body    []byte
}

// Header is a name and a value: a header of an Object, or a further element in the XML of an Error.
type Header struct{ Name, Value string }

// These constants belong to the encoded form of an Object in the value of an entry, which is called a record. A record
// of version 1 has
//
//	recordMark, version, flags   one byte each
//	Modified                     uvarint, milliseconds since 1970
//	Size                         uvarint, of an external object only
//	ETag                         a string, or of an inline object the 16 bytes of the MD5
//	ContentType                  a string
//	Headers                      their number, a uvarint, then name and value of each, strings
//	Body                         all further bytes, of an inline object only
//
// A string is a uvarint length and bytes. The part that a listing needs comes first.
const (
	// recordMark is the first byte of an encoded Object. It occurs in no UTF-8 text, so a plain text value that was
	// written through package listing is not mistaken for an encoded Object.
	recordMark    = 0xFE
	recordVersion = 1
	flagExternal  = 1
)

// maxETagBytes is the largest length in bytes of the ETag of an object whose bytes are stored elsewhere.
const maxETagBytes = 256

// seal computes the Size and the ETag of an object from its Body. The ETag is the MD5 of the Body. seal is not called
// for an object whose bytes are stored elsewhere.
func (o *Object) seal() {
	sum := md5.Sum(o.Body)
	o.Size, o.ETag = int64(len(o.Body)), hex.EncodeToString(sum[:])
}

// AppendRecord appends the encoded form of the object to dst. The result is the value of an entry of package listing.
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

// ParseRecord decodes an object from the value of an entry of package listing. The Body of the result shares the memory
// of value. If value does not have the form that AppendRecord writes, value itself is the body of the object, last
// modified at the start of 1970. For a damaged value, or a newer version of the form, the error has the kind
// store.Corrupt.
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

// plain returns the object that S3 clients see for a value that is not an encoded Object: the value is its body.
func plain(value []byte) Object {
	o := Object{Modified: time.UnixMilli(0).UTC(), Body: value}
	o.seal()
	return o
}

func damaged(value []byte) error {
	return store.Errorf(store.Corrupt, "the value of %d bytes begins like an object's record but isn't one", len(value))
}

// summary is those fields of an object's metadata that a listing shows: time, size and ETag.
type summary struct {
	modified int64 // milliseconds since 1970
	size     int64
	external bool
	etag     []byte // of an external object
	md5      [md5.Size]byte
}

// parseSummary decodes the time, the size and the ETag of an object from the value of an entry. A listing shows only
// these fields, so parseSummary saves the time to decode the others.
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

// openRecord decodes the first fields of an encoded Object, up to the ETag, into a summary. It also returns a reader of
// the fields that follow. If one of the first fields is damaged, the reader is Bad. The error is for damage in the
// first bytes, or for an unknown version of the encoding.
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
	} else { // if the digest is cut short, the reader becomes Bad at the next field
		d.At += copy(s.md5[:], d.Rest())
	}
	d.Bad = d.Bad || s.modified < 0 || s.size < 0
	return d, s, nil
}

// appendETag appends the object's ETag to dst, without quotes.
func (s *summary) appendETag(dst []byte) []byte {
	if s.external {
		return append(dst, s.etag...)
	}
	return hex.AppendEncode(dst, s.md5[:])
}
