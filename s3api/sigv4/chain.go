package sigv4

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"time"
)

// Chain verifies the chunks of a body: each signature covers the one before, the first one
// that of the request. It is not safe for concurrent use.
// https://docs.aws.amazon.com/AmazonS3/latest/API/sigv4-streaming.html
type Chain struct {
	key   []byte
	at    time.Time
	scope Scope
	last  string
}

// Chunk verifies the signature of the next chunk, given the SHA-256 of its data. An error is
// an *Error.
func (c *Chain) Chunk(sum [sha256.Size]byte, signature string) error {
	return c.next(signature, Algorithm+"-PAYLOAD", hexSum("")+"\n"+hex.EncodeToString(sum[:]))
}

// Trailer verifies the signature of the trailers: lines of name:value, each
// ended by a line feed.
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
