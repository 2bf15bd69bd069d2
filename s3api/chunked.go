package s3api

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// Bounds of the framing of aws-chunked bodies.
const (
	maxChunkLine    = 1 << 10
	maxTrailerBytes = 8 << 10
)

var errFraming = errors.New("the body is not in aws-chunked framing")

// chunkedReader decodes an aws-chunked body: chunks of "hex-size[;extensions]"
// CRLF, data, CRLF, the last of size 0, then trailers, each a line, and an
// empty line. Signatures of chunks and trailers are read over, as all are.
// https://docs.aws.amazon.com/AmazonS3/latest/API/sigv4-streaming.html
//
// Read fails with io.ErrUnexpectedEOF if the body ends early and with
// errFraming if it is malformed. Trailer is complete after io.EOF.
type chunkedReader struct {
	r *bufio.Reader
	// Trailer has canonical names.
	Trailer http.Header
	left    uint64 // of the present chunk
	begun   bool
	err     error
}

func newChunkedReader(r io.Reader) *chunkedReader {
	return &chunkedReader{r: bufio.NewReaderSize(r, maxChunkLine), Trailer: http.Header{}}
}

func (c *chunkedReader) Read(p []byte) (int, error) {
	for c.err == nil && c.left == 0 {
		c.err = c.nextChunk()
	}
	if c.err != nil {
		return 0, c.err
	}
	if uint64(len(p)) > c.left {
		p = p[:c.left]
	}
	n, err := c.r.Read(p)
	c.left -= uint64(n)
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
	}
	c.begun = true
	line, err := c.line()
	if err != nil {
		return err
	}
	digits, _, _ := strings.Cut(line, ";")
	size, err := strconv.ParseUint(strings.TrimSpace(digits), 16, 63)
	if err != nil {
		return errFraming
	}
	if size > 0 {
		c.left = size
		return nil
	}
	return c.end()
}

// end reads the trailers. Nothing may come after them.
func (c *chunkedReader) end() error {
	for total := 0; ; {
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
		name, value, found := strings.Cut(line, ":")
		if !found {
			return errFraming
		}
		c.Trailer.Add(strings.TrimSpace(name), strings.TrimSpace(value))
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

// line reads up to CRLF. Some clients end a trailer with a lone LF.
func (c *chunkedReader) line() (string, error) {
	line, err := c.r.ReadSlice('\n')
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
