package s3api

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"errors"
	"hash"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/evenkeel/evenkeel/internal/sigv4"
)

// These constants limit a body in S3's encoding aws-chunked, in bytes: the length of one line, and the length of all
// trailers, which are header lines after the last chunk.
const (
	maxChunkLine    = 1 << 10
	maxTrailerBytes = 8 << 10
)

// trailerSignature is the name of the trailer that has the signature of all other trailers. Trailers are header lines
// after a chunked body.
const trailerSignature = "x-amz-trailer-signature"

// errFraming says that a body does not have the form of S3's encoding aws-chunked.
var errFraming = errors.New("the body is not in aws-chunked framing")

// chunkedReader is a reader that decodes a body in S3's encoding aws-chunked: chunks, then trailers (header lines),
// then an empty line. Each chunk is "hex-size[;extensions]" CRLF, data, CRLF. The last chunk has size 0. Each trailer
// is one line. For example:
//
//	5;chunk-signature=…
//	hello
//	0;chunk-signature=…
//	x-amz-checksum-crc32:…
//
// The field chain verifies the signatures of chunks and trailers. If chain is nil, signatures are ignored. Data from
// Read is verified only at io.EOF. https://docs.aws.amazon.com/AmazonS3/latest/API/sigv4-streaming.html
//
// Read fails with io.ErrUnexpectedEOF if the body ends early, with errFraming if it is malformed and with a
// *sigv4.Error if a signature is wrong. Trailer is complete after io.EOF.
type chunkedReader struct {
	r *bufio.Reader
	// Trailer has the values of the trailers by their canonical names.
	Trailer http.Header
	// chain, if not nil, verifies the signature of each chunk. If trailers is true, chain also verifies the trailers.
	// Otherwise a signed body may have no trailers.
	chain     *sigv4.Chain
	trailers  bool
	sum       hash.Hash // SHA-256 of the present chunk
	signature string    // that the present chunk came with
	left      uint64    // bytes of the present chunk that were not read
	begun     bool      // the first chunk has begun
	bare      bool      // the last line ended with a lone LF
	err       error
}

func newChunkedReader(r io.Reader) *chunkedReader {
	return &chunkedReader{r: bufio.NewReaderSize(r, maxChunkLine), Trailer: http.Header{}, sum: sha256.New()}
}

func (c *chunkedReader) Read(p []byte) (int, error) {
	for c.err == nil && c.left == 0 {
		c.err = c.nextChunk()
	}
	if c.err != nil {
		return 0, c.err
	}
	p = p[:min(uint64(len(p)), c.left)]
	n, err := c.r.Read(p)
	c.left -= uint64(n)
	if c.chain != nil {
		c.sum.Write(p[:n])
	}
	if err == io.EOF {
		err = io.ErrUnexpectedEOF // the last chunk has not come
	}
	return n, err
}

// nextChunk verifies the chunk that was read last, and reads the size and the signature of the next chunk. After the
// last chunk it reads the trailers, which are the header lines that follow, and returns io.EOF.
func (c *chunkedReader) nextChunk() error {
	if c.begun {
		if line, err := c.line(); err != nil {
			return err
		} else if line != "" {
			return errFraming
		}
		if err := c.verify(); err != nil {
			return err
		}
	}
	c.begun = true
	line, err := c.line()
	if err != nil {
		return err
	}
	digits, extensions, _ := strings.Cut(line, ";")
	size, err := strconv.ParseUint(strings.TrimSpace(digits), 16, 63)
	if err != nil {
		return errFraming
	}
	c.signature, _ = strings.CutPrefix(strings.TrimSpace(extensions), "chunk-signature=")
	c.sum.Reset()
	if size > 0 {
		c.left = size
		return nil
	}
	if err := c.verify(); err != nil {
		return err
	}
	return c.end()
}

// verify returns an error if the signature of the chunk that was just read is wrong. It returns nil if chunks are not
// signed.
func (c *chunkedReader) verify() error {
	if c.chain == nil {
		return nil
	}
	return c.chain.Chunk([sha256.Size]byte(c.sum.Sum(nil)), c.signature)
}

// end reads the trailers, which are header lines after the last chunk, and verifies their signature. It returns io.EOF
// if the body ends behind the trailers, and another error if more bytes follow or something is wrong.
func (c *chunkedReader) end() error {
	var lines strings.Builder
	signature, swallowed := "", false
	for total := 0; ; {
		if swallowed {
			// The CRLF that was skipped may have been the empty line at the end.
			if _, err := c.r.Peek(1); err == io.EOF {
				break
			}
		}
		line, err := c.line()
		if err != nil {
			return err
		}
		if line == "" {
			break
		}
		if total += len(line); total > maxTrailerBytes {
			return errFraming
		}
		swallowed = c.swallowCRLF()
		name, value, found := strings.Cut(line, ":")
		if !found {
			return errFraming
		}
		name, value = strings.ToLower(strings.TrimSpace(name)), strings.TrimSpace(value)
		if name == trailerSignature {
			signature = value
			continue
		}
		lines.WriteString(name + ":" + value + "\n")
		c.Trailer.Add(name, value)
	}
	if c.chain != nil && c.trailers {
		if err := c.chain.Trailer(lines.String(), signature); err != nil {
			return err
		}
	} else if c.chain != nil && lines.Len() > 0 {
		return errFraming // no signature covers these trailers
	}
	if _, err := c.r.ReadByte(); err != nil {
		return err // io.EOF, as it should be
	}
	return errFraming
}

// swallowCRLF skips a CRLF behind a trailer whose line ended with LF alone, as minio-go sends it. It returns true if it
// has skipped a CRLF.
func (c *chunkedReader) swallowCRLF() bool {
	if !c.bare {
		return false
	}
	if next, _ := c.r.Peek(2); string(next) != "\r\n" { // the next read returns any error again
		return false
	}
	_, _ = c.r.Discard(2)
	return true
}

// line reads one line of a chunked body, and returns the line without its CRLF. It also accepts a line that ends with
// LF alone, as some clients send it for a trailer.
func (c *chunkedReader) line() (string, error) {
	line, err := c.r.ReadSlice('\n')
	c.bare = err == nil && !bytes.HasSuffix(line, []byte("\r\n"))
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		return "", errFraming
	case err == io.EOF:
		return "", io.ErrUnexpectedEOF
	case err != nil:
		return "", err
	}
	return strings.TrimSuffix(strings.TrimSuffix(string(line), "\n"), "\r"), nil
}
