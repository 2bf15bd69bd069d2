package listing

import (
	"encoding/base64"
	"encoding/binary"

	"github.com/cespare/xxhash/v2"

	"github.com/evenkeel/evenkeel/store"
)

// Token is a position in a listing, from which the next page continues: opaque text, safe in URLs, at most 87,400 bytes
// long. A token stays valid across restarts and moves of ranges. It is valid only for the bucket and the query that it
// came from. Any other bucket, also a later bucket of the same name, and any other query refuse it with ErrBadToken.
type Token string

// A token says where a listing continues. Before its encoding by base64url it consists of
//   - the form (1 byte) and the flags (1 byte),
//   - the bound at which the listing continues, and
//   - an xxhash64 (8 bytes) of the bucket, the fixed parts of the query and all bytes before.
const (
	tokenForm     = 1
	tokenHead     = 2
	tokenSum      = 8
	flagExclusive = 1
	tokenBytes    = tokenHead + store.MaxKeyBytes + tokenSum // at most
)

// token returns the token with which a listing continues at the near end of the span, the interval of keys that are
// still to be listed. The token is valid for the bucket id and the query q only.
func (s *span) token(id store.BucketID, q *Query) Token {
	b := []byte{tokenForm, 0}
	if s.reverse {
		b = append(b, s.hi...)
	} else {
		if s.exclusive {
			b[1] |= flagExclusive
		}
		b = append(b, s.lo...)
	}
	b = binary.BigEndian.AppendUint64(b, tokenCheck(id, q, b))
	return Token(base64.RawURLEncoding.EncodeToString(b))
}

// resume continues a listing at the position that the token t has recorded: it shortens the span, the interval of keys
// to list, to what is left. It fails with ErrBadToken if t is not a token of the bucket id and the query q.
func (s *span) resume(t Token, id store.BucketID, q *Query) error {
	if len(t) > base64.RawURLEncoding.EncodedLen(tokenBytes) {
		return ErrBadToken
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(string(t))
	if err != nil || len(b) < tokenHead+tokenSum {
		return ErrBadToken
	}
	body := b[:len(b)-tokenSum]
	if body[0] != tokenForm || tokenCheck(id, q, body) != binary.BigEndian.Uint64(b[len(body):]) {
		return ErrBadToken
	}
	bound := body[tokenHead:]
	if s.reverse {
		if len(bound) == 0 {
			return ErrBadToken
		}
		s.lower(bound)
	} else {
		s.raise(bound, body[1]&flagExclusive != 0)
	}
	return nil
}

// tokenCheck returns the checksum in a token, by which a token of another bucket or query is refused. It covers
//   - the bucket,
//   - the parts of the query that must stay the same from page to page, and
//   - body, the other bytes of the token.
//
// It leaves out those bounds of the query that the listing has passed already.
func tokenCheck(id store.BucketID, q *Query, body []byte) uint64 {
	far, direction := q.To, byte('>')
	if q.Reverse {
		far, direction = q.From, '<'
	}
	d := xxhash.New()
	_, _ = d.Write(id[:])
	_, _ = d.Write([]byte{direction})
	for _, part := range [][]byte{q.Prefix, q.Delimiter, far, body} {
		var n [4]byte
		binary.BigEndian.PutUint32(n[:], uint32(len(part)))
		_, _ = d.Write(n[:])
		_, _ = d.Write(part)
	}
	return d.Sum64()
}
