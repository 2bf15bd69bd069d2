package s3api

import (
	"bytes"
	"cmp"
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"hash"
	"hash/crc32"
	"hash/crc64"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/evenkeel/evenkeel/internal/sigv4"
)

// payload says how the signature of a request protects the request's body from changes.
type payload struct {
	// stands is the text that stands for the body in the signature, e.g. a digest (see package sigv4). If stands is
	// empty, the text is in the header x-amz-content-sha256.
	stands string
	// chain verifies the signatures of the chunks of the body. It is nil without authentication.
	chain *sigv4.Chain
	// open is true if an eavesdropper could send the request again with another body. This is so if no signature covers
	// the body and the connection is not encrypted.
	open bool
}

// body reads and decodes the body of a request while the body arrives. Read returns io.EOF only if the length, the
// digests and the signatures of all chunks are right. Until then the bytes that Read has returned are not verified. If
// something is wrong, Read fails with an *Error.
type body struct {
	r       io.Reader
	request *http.Request
	stands  string
	raw     hash.Hash // SHA-256 of the body before it is decoded; nil if none is needed
	chunks  *chunkedReader
	digests []*digest
	// length is the announced length of the body in bytes, or -1 if it is unknown. limit is the longest allowed length,
	// and n the number of decoded bytes so far.
	length, limit, n int64
	end              error
}

// digest is a checksum of a request's decoded body, computed while the body arrives. Mostly a header or a trailer of
// the request has the value that the digest must have.
type digest struct {
	name string
	hash.Hash
	want []byte // the value that a header announced; nil: no header has one
	// trails is true if the expected value comes in a trailer, behind the body. If neither a header nor a trailer has
	// the value, the digest is computed but not compared.
	trails bool
}

// value returns the computed digest in base64, which is the form in which S3 sends digests.
func (d *digest) value() string { return base64.StdEncoding.EncodeToString(d.Sum(nil)) }

// openBody returns a reader that decodes and verifies the body of the request r. p says how the signature protects the
// body. The reader fails for a body of more than limit bytes.
func openBody(r *http.Request, p payload, limit int64) (*body, *Error) {
	if p.open {
		return nil, accessDenied("The signature does not cover the body (x-amz-content-sha256: %s), "+
			"and the connection is not encrypted: whoever sees the request could send it with another body. "+
			"Use TLS, sign the body, or sign its Content-MD5 or x-amz-checksum-sha256. "+
			"Behind a proxy that ends TLS the server takes --allow-unsigned-payload.", p.stands)
	}
	b := &body{
		r: r.Body, request: r, stands: cmp.Or(p.stands, r.Header.Get("X-Amz-Content-Sha256")), length: r.ContentLength,
		limit: limit,
	}
	if sigv4.IsDigest(b.stands) {
		b.raw = sha256.New()
		b.r = io.TeeReader(b.r, b.raw)
	}
	// Some clients name the coding aws-chunked without using it. They neither sign chunks nor send the decoded length.
	said := r.Header.Get("X-Amz-Decoded-Content-Length")
	if strings.HasPrefix(b.stands, "STREAMING-") || said != "" && isChunked(r.Header) {
		n, err := strconv.ParseInt(said, 10, 64)
		switch {
		case said == "":
			return nil, refuse(http.StatusLengthRequired, "MissingContentLength",
				"An aws-chunked body needs the header x-amz-decoded-content-length.")
		case err != nil || n < 0:
			return nil, invalidArgument("x-amz-decoded-content-length is not a length: %q.", said)
		}
		b.length = n
		b.chunks = newChunkedReader(b.r)
		if b.stands == sigv4.SignedChunks || b.stands == sigv4.SignedChunksTrailer {
			b.chunks.chain, b.chunks.trailers = p.chain, b.stands == sigv4.SignedChunksTrailer
		}
		b.r = b.chunks
	}
	if b.length > limit {
		return nil, tooLarge(limit)
	}
	return b, b.takeDigests()
}

// takeDigests finds the digests to compute over the body, from the request's headers: one for each header with a
// digest, and one for each trailer that the request announces. It returns an error for a digest that this server does
// not know.
func (b *body) takeDigests() *Error {
	for name := range b.request.Header {
		if err := checkDigestName(name); err != nil {
			return err
		}
		if digests[name] == nil {
			continue
		}
		d := &digest{name: name, Hash: digests[name]()}
		var refusal *Error
		if d.want, refusal = d.parse(b.request.Header.Get(name)); refusal != nil {
			return refusal
		}
		b.digests = append(b.digests, d)
	}
	if b.chunks == nil {
		return b.oneChecksum()
	}
	for _, name := range b.announced() {
		if err := checkDigestName(name); err != nil {
			return err
		}
		if digests[name] == nil {
			continue
		}
		at := slices.IndexFunc(b.digests, func(d *digest) bool { return d.name == name })
		if at < 0 {
			at = len(b.digests)
			b.digests = append(b.digests, &digest{name: name, Hash: digests[name]()})
		}
		b.digests[at].trails = true
	}
	return b.oneChecksum()
}

// oneChecksum returns an error if the headers and trailers of the request have checksums by more than one algorithm.
func (b *body) oneChecksum() *Error {
	n := 0
	for _, d := range b.digests {
		if strings.HasPrefix(d.name, checksumPrefix) {
			n++
		}
	}
	if n > 1 {
		return twoChecksums()
	}
	return nil
}

func twoChecksums() *Error {
	return invalidRequest("Expecting a single x-amz-checksum- header. Multiple checksum Types are not allowed.")
}

// announced returns the canonical names of the trailers that the request announces in the header x-amz-trailer. A
// trailer is a header line behind the body. Some clients announce a trailer and then send it as a header, as their form
// of body can't have trailers. Those names are left out.
func (b *body) announced() []string {
	names := elements(b.request.Header.Get("X-Amz-Trailer"))
	for i := range names {
		names[i] = http.CanonicalHeaderKey(names[i])
	}
	return slices.DeleteFunc(names, func(name string) bool {
		return b.stands == sigv4.SignedChunks && b.request.Header.Get(name) != ""
	})
}

// checkDigestName returns an error if name is the name of a header with a checksum that this server can't compute. It
// accepts all other headers.
func checkDigestName(name string) *Error {
	if digests[name] == nil && strings.HasPrefix(name, checksumPrefix) && name != "X-Amz-Checksum-Algorithm" &&
		name != "X-Amz-Checksum-Type" && name != "X-Amz-Checksum-Mode" {
		return notImplemented(name)
	}
	return nil
}

// parse decodes value, the value of a header with the digest d, from base64. It returns an error if value is not
// base64, or if its length is wrong for this digest.
func (d *digest) parse(value string) ([]byte, *Error) {
	want, err := base64.StdEncoding.DecodeString(value)
	switch {
	case err == nil && len(want) == d.Size():
		return want, nil
	case d.name == "Content-Md5":
		return nil, refuse(http.StatusBadRequest, "InvalidDigest", "The Content-MD5 you specified is not valid.")
	}
	return nil, invalidRequest("The value of %s is not valid.", d.name)
}

func (b *body) Read(p []byte) (int, error) {
	if b.end != nil {
		return 0, b.end
	}
	n, err := b.r.Read(p)
	b.n += int64(n)
	for _, d := range b.digests {
		_, _ = d.Write(p[:n])
	}
	switch {
	case b.n > b.limit:
		b.end = tooLarge(b.limit)
	case b.length >= 0 && b.n > b.length:
		b.end = incomplete()
	case errors.Is(err, io.EOF):
		if b.end = io.EOF; b.length >= 0 && b.n != b.length {
			b.end = incomplete()
		} else if refusal := b.verify(); refusal != nil {
			b.end = refusal
		}
	case err != nil:
		b.end = broken(err)
	}
	return n, b.end
}

// broken returns the error answer for a request whose body could not be read to its end. err is the error of the read,
// e.g. a timeout.
func broken(err error) *Error {
	var forged *sigv4.Error
	switch {
	case errors.As(err, &forged):
		return refuse(http.StatusForbidden, forged.Code, "%s (A chunk of the body, or its trailers.)", forged.Message)
	case errors.Is(err, errFraming):
		return refuse(http.StatusBadRequest, "IncompleteBody", "The body is not framed as aws-chunked is.")
	case errors.Is(err, os.ErrDeadlineExceeded):
		e := refuse(http.StatusBadRequest, "RequestTimeout",
			"Your socket connection to the server was not read from or written to within the timeout period: "+
				"the body came too slowly.")
		e.Cause = err
		return e
	}
	e := incomplete()
	e.Cause = err
	return e
}

// verify compares the digests of the complete body with the values in the request's headers and trailers. It returns an
// error if a digest has another value, or if an announced trailer is missing.
func (b *body) verify() *Error {
	if b.raw != nil && hex.EncodeToString(b.raw.Sum(nil)) != b.stands {
		return refuse(http.StatusBadRequest, "XAmzContentSHA256Mismatch",
			"The provided 'x-amz-content-sha256' header does not match what was computed.")
	}
	if b.chunks != nil {
		announced := b.announced()
		for _, name := range announced {
			if b.chunks.Trailer.Get(name) == "" {
				return refuse(http.StatusBadRequest, "MalformedTrailerError", "The trailer %s was announced and did not come.",
					name)
			}
		}
		for name := range b.chunks.Trailer {
			if digests[name] != nil && !slices.Contains(announced, name) {
				return refuse(http.StatusBadRequest, "MalformedTrailerError", "The trailer %s came and was not announced.", name)
			}
			if err := checkDigestName(name); err != nil {
				return err
			}
		}
	}
	for _, d := range b.digests {
		right := d.want == nil || bytes.Equal(d.Sum(nil), d.want)
		if d.trails {
			want, refusal := d.parse(b.chunks.Trailer.Get(d.name))
			if refusal != nil {
				return refusal
			}
			right = right && bytes.Equal(d.Sum(nil), want)
		}
		if !right {
			return refuse(http.StatusBadRequest, "BadDigest", "The %s you specified is not that of the body that arrived.",
				d.name)
		}
	}
	return nil
}

// all reads the whole body of a request into memory, verifies the body, and returns it.
func (b *body) all() ([]byte, *Error) {
	var refusal *Error
	// bytes.MinRead is room for the last read, which finds the end: the buffer need not grow.
	buf := bytes.NewBuffer(make([]byte, 0, b.length+bytes.MinRead))
	if _, err := buf.ReadFrom(b); errors.As(err, &refusal) {
		return nil, refusal
	}
	return buf.Bytes(), nil
}

func isChunked(h http.Header) bool {
	return slices.Contains(elements(h.Get("Content-Encoding")), "aws-chunked")
}

// elements splits a header value at commas into a list. It removes blanks around the elements, and leaves out empty
// elements.
func elements(value string) (all []string) {
	for one := range strings.SplitSeq(value, ",") {
		if one = strings.TrimSpace(one); one != "" {
			all = append(all, one)
		}
	}
	return all
}

func tooLarge(limit int64) *Error {
	if limit == maxObjectBytes {
		return refuse(http.StatusBadRequest, "EntityTooLarge",
			"Your proposed upload exceeds the maximum allowed object size: %d bytes in one request.", limit)
	}
	return refuse(http.StatusBadRequest, "EntityTooLarge",
		"Your body is larger than %d bytes. Values are metadata here: keep the object's bytes elsewhere, and send its "+
			"size and ETag in %s and %s with an empty body.", limit, headerSize, headerETag)
}

func incomplete() *Error {
	return refuse(http.StatusBadRequest, "IncompleteBody", "You did not provide the number of bytes that you said.")
}

// crc64NVME is the table with which hash/crc64 computes the checksum CRC-64/NVME. It is made from the reflected
// polynomial.
var crc64NVME = crc64.MakeTable(crc64NVMEPolynomial)

const crc64NVMEPolynomial = 0x9a6c9329ac4bc9b5

// checksumPrefix is the beginning of the names of all headers with checksums, such as X-Amz-Checksum-Sha256.
const checksumPrefix = "X-Amz-Checksum-"

// digests has the hash functions for the digests of a request's body. The index of the map is the name of the header or
// trailer that has the digest.
var digests = map[string]func() hash.Hash{
	"Content-Md5":              md5.New,
	"X-Amz-Checksum-Crc32":     func() hash.Hash { return crc32.NewIEEE() },
	"X-Amz-Checksum-Crc32c":    func() hash.Hash { return crc32.New(crc32.MakeTable(crc32.Castagnoli)) },
	"X-Amz-Checksum-Crc64nvme": func() hash.Hash { return crc64.New(crc64NVME) },
	"X-Amz-Checksum-Sha1":      sha1.New,
	"X-Amz-Checksum-Sha256":    sha256.New,
}
