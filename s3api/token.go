package s3api

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"hash/fnv"
)

// tokenSum is the length in bytes of the checksum at the beginning of each continuation token of a listing.
const tokenSum = 8

// sealToken returns a continuation token, by which a client continues a listing. place is the position at which the
// listing continues. The parameter `of` has texts that identify the listing, e.g. its bucket and its prefix. The token
// has a checksum of the position and these texts, and is safe in URLs.
func sealToken(place []byte, of ...[]byte) string {
	return base64.RawURLEncoding.EncodeToString(append(sumToken(place, of), place...))
}

// openToken returns the position at which a listing continues, from a continuation token. The parameter `of` has texts
// that identify the listing, e.g. its bucket and its prefix. The result ok is false if the token was cut or altered, or
// was made for another listing: with such a token the client would miss keys or get keys twice.
func openToken(token string, of ...[]byte) (place []byte, ok bool) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil || len(b) < tokenSum {
		return nil, false
	}
	place = b[tokenSum:]
	return place, bytes.Equal(b[:tokenSum], sumToken(place, of))
}

func sumToken(place []byte, of [][]byte) []byte {
	sum := fnv.New64a()
	for _, part := range append(of[:len(of):len(of)], place) {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(part)))
		_, _ = sum.Write(n[:])
		_, _ = sum.Write(part)
	}
	return sum.Sum(nil)
}

func badToken() *Error { return invalidArgument("The continuation token provided is incorrect.") }
