package s3api

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"hash/fnv"
)

// tokenSum is the length of the sum in a token.
const tokenSum = 8

// sealToken makes a token of the place where a listing continues: text, safe in URLs. What it belongs
// to, such as the bucket and the query, is in its sum.
func sealToken(place []byte, of ...[]byte) string {
	return base64.RawURLEncoding.EncodeToString(append(sumToken(place, of), place...))
}

// openToken returns the place in a token. It reports false for a token that was cut or altered, and
// for one that belongs to something else: the place would be another one, and keys were lost or
// listed again without a word.
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
