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

	"github.com/evenkeel/evenkeel/s3api/sigv4"
)

// Bounds of the framing of aws-chunked bodies.
const (
	maxChunkLine    = 1 << 10
	maxTrailerBytes = 8 << 10
)

// trailerSignature is the trailer with the signature of the others.
const trailerSignature = "x-amz-trailer-signature"

var errFraming = errors.New("the body is not in aws-chunked framing")

// chunkedReader decodes an aws-chunked body: chunks of "hex-size[;extensions]"
// CRLF, data, CRLF, the last of size 0, then trailers, each a line, and an
// empty line. The chain verifies the signatures of chunks and trailers; without it they are
// ignored. Data from Read is verified only at io.EOF.
// https://docs.aws.amazon.com/AmazonS3/latest/API/sigv4-streaming.html
//
// Read fails with io.ErrUnexpectedEOF if the body ends early, with errFraming if
// it is malformed and with a *sigv4.Error if a signature is wrong. Trailer is
// complete after io.EOF.
type chunkedReader struct {
	r *bufio.Reader
	// Trailer has canonical names.
	Trailer http.Header
	// chain, if not nil, verifies each chunk, and trailers if they must be signed; else
	// there may be none.
	chain     *sigv4.Chain
	trailers  bool
	sum       hash.Hash // of the present chunk
	signature string    // of the present chunk
	left      uint64    // of the present chunk
	begun     bool
	bare      bool // the last line ended with a lone LF
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
	c.err = err
	return n, err
}

// nextChunk reads up to the data of the next chunk, or to the end.
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

// verify checks the signature of the chunk that has been read.
func (c *chunkedReader) verify() error {
	if c.chain == nil {
		return nil
	}
	return c.chain.Chunk([sha256.Size]byte(c.sum.Sum(nil)), c.signature)
}

// end reads the trailers. Nothing may come after them.
func (c *chunkedReader) end() error {
	var lines strings.Builder
	signature, swallowed := "", false
	for total := 0; ; {
		if swallowed {
			// The CRLF may have been the empty line after all.
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
		if swallowed, err = c.swallowCRLF(); err != nil {
			return err
		}
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
		return errFraming // nobody has signed them
	}
	switch _, err := c.r.ReadByte(); err {
	case io.EOF:
		return io.EOF
	case nil:
		return errFraming
	default:
		return err
	}
}

// swallowCRLF skips the CRLF that some clients (minio-go) send after a trailer that ends with
// a lone LF, and reports whether there was one.
func (c *chunkedReader) swallowCRLF() (bool, error) {
	if !c.bare {
		return false, nil
	}
	next, err := c.r.Peek(2)
	if string(next) == "\r\n" {
		_, err = c.r.Discard(2)
		return true, err
	}
	if err == io.EOF {
		err = nil // the next line will fail
	}
	return false, err
}

// line reads up to CRLF. Some clients end a trailer with a lone LF.
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
