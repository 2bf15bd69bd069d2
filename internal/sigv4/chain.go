package sigv4

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"time"
)

// Chain verifies the signatures of the chunks of a body, in order. Each signature covers the signature before it. The
// signature of the first chunk covers the signature of the request. A Chain is not safe for concurrent use.
// https://docs.aws.amazon.com/AmazonS3/latest/API/sigv4-streaming.html
type Chain struct {
	key   []byte
	at    time.Time
	scope Scope
	last  string
}

// Chunk returns an error if signature is not the right signature for the next chunk of the body. sum is the SHA-256 of
// the chunk's data. Any error is an *Error.
func (c *Chain) Chunk(sum [sha256.Size]byte, signature string) error {
	return c.next(signature, Algorithm+"-PAYLOAD", hexSum("")+"\n"+hex.EncodeToString(sum[:]))
}

// Trailer returns an error if signature is not the right signature for the trailers, which are the header lines after a
// chunked body. lines has one line for each trailer: name:value and a line feed. Any error is an *Error.
func (c *Chain) Trailer(lines, signature string) error {
	return c.next(signature, Algorithm+"-TRAILER", hexSum(lines))
}

func (c *Chain) next(signature, what, sums string) error {
	text := what + "\n" + c.at.UTC().Format(timeFormat) + "\n" + c.scope.String() + "\n" + c.last + "\n" + sums
	want := hex.EncodeToString(mac(c.key, text))
	if !hmac.Equal([]byte(want), []byte(signature)) {
		return mismatch()
	}
	c.last = want
	return nil
}
