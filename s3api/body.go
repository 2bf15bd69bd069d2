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

	"github.com/evenkeel/evenkeel/s3api/sigv4"
)

// payload is what a request's signature covers of its body.
type payload struct {
	// stands for the body in the signature, see package sigv4; empty: the header does.
	stands string
	// chain verifies chunks; nil without authentication.
	chain *sigv4.Chain
	// open: an eavesdropper could send the request with another body.
	open bool
}

// readBody reads and decodes the body of a request, at most limit bytes, and verifies its
// length, its digests and the signatures of its chunks.
func readBody(r *http.Request, p payload, limit int64) ([]byte, *Error) {
	if p.open {
		return nil, accessDenied("The signature does not cover the body (x-amz-content-sha256: %s), "+
			"and the connection is not encrypted: whoever sees the request could send it with another body. "+
			"Use TLS, sign the body, or sign its Content-MD5 or x-amz-checksum-sha256. "+
			"Behind a proxy that ends TLS the server takes --allow-unsigned-payload.", p.stands)
	}
	length := r.ContentLength // -1: not said
	p.stands = cmp.Or(p.stands, r.Header.Get("X-Amz-Content-Sha256"))
	var body io.Reader = r.Body
	digest := sha256.New()
	if sigv4.IsDigest(p.stands) {
		body = io.TeeReader(body, digest)
	}
	var chunks *chunkedReader
	if strings.HasPrefix(p.stands, "STREAMING-") || isChunked(r.Header) {
		said := r.Header.Get("X-Amz-Decoded-Content-Length")
		n, err := strconv.ParseInt(said, 10, 64)
		switch {
		case said == "":
			return nil, refuse(http.StatusLengthRequired, "MissingContentLength",
				"An aws-chunked body needs the header x-amz-decoded-content-length.")
		case err != nil || n < 0:
			return nil, invalidArgument("x-amz-decoded-content-length is not a length: %q.", said)
		}
		length = n
		chunks = newChunkedReader(body)
		if p.stands == sigv4.SignedChunks || p.stands == sigv4.SignedChunksTrailer {
			chunks.chain, chunks.trailers = p.chain, p.stands == sigv4.SignedChunksTrailer
		}
		body = chunks
	}
	if length > limit {
		return nil, tooLarge(limit)
	}
	data, err := readAll(body, length, limit)
	var forged *sigv4.Error
	switch {
	case err == nil && int64(len(data)) > limit:
		return nil, tooLarge(limit)
	case errors.As(err, &forged):
		return nil, refuse(http.StatusForbidden, forged.Code, "%s (A chunk of the body, or its trailers.)", forged.Message)
	case errors.Is(err, errFraming):
		return nil, refuse(http.StatusBadRequest, "IncompleteBody", "The body is not framed as aws-chunked is.")
	case errors.Is(err, os.ErrDeadlineExceeded):
		e := refuse(http.StatusBadRequest, "RequestTimeout",
			"Your socket connection to the server was not read from or written to within the timeout period: "+
				"the body came too slowly.")
		e.Cause = err
		return nil, e
	case err != nil:
		e := incomplete()
		e.Cause = err
		return nil, e
	case length >= 0 && int64(len(data)) != length:
		return nil, incomplete()
	case sigv4.IsDigest(p.stands) && hex.EncodeToString(digest.Sum(nil)) != p.stands:
		return nil, refuse(http.StatusBadRequest, "XAmzContentSHA256Mismatch",
			"The provided 'x-amz-content-sha256' header does not match what was computed.")
	}
	if e := verifyDigests(data, r.Header); e != nil {
		return nil, e
	}
	if chunks != nil {
		for _, name := range elements(r.Header.Get("X-Amz-Trailer")) {
			if chunks.Trailer.Get(name) == "" {
				return nil, refuse(http.StatusBadRequest, "MalformedTrailerError", "The trailer %s was announced and did not come.",
					name)
			}
		}
		if e := verifyDigests(data, chunks.Trailer); e != nil {
			return nil, e
		}
	}
	return data, nil
}

// readAll reads up to one byte more than limit, into a buffer for the announced length; -1: none.
func readAll(r io.Reader, length, limit int64) ([]byte, error) {
	buf := bytes.NewBuffer(make([]byte, 0, length+bytes.MinRead)) // room to find the end without growing
	_, err := buf.ReadFrom(io.LimitReader(r, limit+1))
	return buf.Bytes(), err
}

func isChunked(h http.Header) bool {
	return slices.Contains(elements(h.Get("Content-Encoding")), "aws-chunked")
}

// elements returns the elements of a header that is a list.
func elements(value string) (all []string) {
	for one := range strings.SplitSeq(value, ",") {
		if one = strings.TrimSpace(one); one != "" {
			all = append(all, one)
		}
	}
	return all
}

func tooLarge(limit int64) *Error {
	return refuse(http.StatusBadRequest, "EntityTooLarge",
		"Your body is larger than %d bytes. Values are metadata here: keep the object's bytes elsewhere, and send its "+
			"size and ETag in %s and %s with an empty body.", limit, headerSize, headerETag)
}

func incomplete() *Error {
	return refuse(http.StatusBadRequest, "IncompleteBody", "You did not provide the number of bytes that you said.")
}

// crc64NVME is the table of CRC-64/NVME (its polynomial, reflected).
var crc64NVME = crc64.MakeTable(0x9a6c9329ac4bc9b5)

// digests are the headers and trailers with a digest of the body.
var digests = map[string]func() hash.Hash{
	"Content-Md5":              md5.New,
	"X-Amz-Checksum-Crc32":     func() hash.Hash { return crc32.NewIEEE() },
	"X-Amz-Checksum-Crc32c":    func() hash.Hash { return crc32.New(crc32.MakeTable(crc32.Castagnoli)) },
	"X-Amz-Checksum-Crc64nvme": func() hash.Hash { return crc64.New(crc64NVME) },
	"X-Amz-Checksum-Sha1":      sha1.New,
	"X-Amz-Checksum-Sha256":    sha256.New,
}

// verifyDigests compares body with every digest in h, in S3's base64 form.
func verifyDigests(body []byte, h http.Header) *Error {
	for name := range h {
		newHash := digests[name]
		if newHash == nil {
			if strings.HasPrefix(name, "X-Amz-Checksum-") && name != "X-Amz-Checksum-Algorithm" &&
				name != "X-Amz-Checksum-Type" {
				return notImplemented(name)
			}
			continue
		}
		sum := newHash()
		want, err := base64.StdEncoding.DecodeString(h.Get(name))
		if err != nil || len(want) != sum.Size() {
			if name == "Content-Md5" {
				return refuse(http.StatusBadRequest, "InvalidDigest", "The Content-MD5 you specified is not valid.")
			}
			return refuse(http.StatusBadRequest, "InvalidRequest", "The value of %s is not valid.", name)
		}
		sum.Write(body)
		if !bytes.Equal(sum.Sum(nil), want) {
			return refuse(http.StatusBadRequest, "BadDigest", "The %s you specified is not that of the body that arrived.", name)
		}
	}
	return nil
}
