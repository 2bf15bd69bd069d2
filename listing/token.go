package listing

import (
	"encoding/base64"
	"encoding/binary"

	"github.com/cespare/xxhash/v2"

	"github.com/evenkeel/evenkeel/store"
)

// Token is the place where a listing continues: opaque text, safe in URLs, at most 87,400
// bytes long. It stays valid across restarts and moves of ranges, for the bucket and query
// that it came from. With another query or bucket, also a later one of the same name, it is
// refused with ErrBadToken.
type Token string

// A token's bytes, before base64url: form (1), flags (1), the bound, xxhash64 (8)
// of the query's shape and all before.
const (
	tokenForm     = 1
	tokenHead     = 2
	tokenSum      = 8
	flagExclusive = 1
	tokenBytes    = tokenHead + store.MaxKeyBytes + tokenSum // at most
)

// token encodes the near end of the span.
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

// resume moves the near end of the span to the place of a token.
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

// tokenCheck binds a token to its bucket and to the parts of the query that must stay the
// same from page to page. Near bounds are not among them: the token has passed them.
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
