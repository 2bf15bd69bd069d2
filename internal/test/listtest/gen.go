package listtest

import (
	"bytes"
	"math/rand/v2"

	"github.com/evenkeel/evenkeel/listing"
)

// universe is the set of keys that a test uses. The keys are awkward ones: prefixes of each other, bytes 0x00 and 0xFF,
// many delimiters, and keys of the largest size.
type universe struct {
	r    *rand.Rand
	keys [][]byte
}

var pieces = []string{"a", "b", "/", "//", "a/", "ab", "\x00", "\xff", "\xff\xff", "é", "z", "aa/b/", "\x00/", "/\xff",
	"%", " "}

func newUniverse(r *rand.Rand, n, longest int) *universe {
	u := &universe{r: r}
	seen := map[string]bool{}
	for len(u.keys) < n {
		k := u.fresh(longest)
		if len(k) > 0 && len(k) <= longest && !seen[string(k)] {
			seen[string(k)] = true
			u.keys = append(u.keys, k)
		}
	}
	return u
}

func (u *universe) fresh(longest int) []byte {
	var k []byte
	if len(u.keys) > 0 && u.r.IntN(2) == 0 { // akin to another
		k = bytes.Clone(u.key())
		if u.r.IntN(4) == 0 {
			k = k[:u.r.IntN(len(k)+1)]
		}
	}
	switch x := u.r.IntN(400); {
	case x == 0: // the longest
		return append(k, bytes.Repeat([]byte(u.piece()), longest)...)[:longest]
	case x < 20:
		for range u.r.IntN(min(longest, 1024)) {
			k = append(k, byte(u.r.IntN(256)))
		}
	default:
		for range 1 + u.r.IntN(4) {
			k = append(k, u.piece()...)
		}
	}
	return k
}

func (u *universe) piece() string { return pieces[u.r.IntN(len(pieces))] }

// key returns a random one of the keys.
func (u *universe) key() []byte { return u.keys[u.r.IntN(len(u.keys))] }

// near returns one of the keys, or a key that differs only a little from one. Sometimes the result is empty.
func (u *universe) near() []byte {
	k := bytes.Clone(u.key())
	switch u.r.IntN(6) {
	case 0:
		return k[:u.r.IntN(len(k)+1)]
	case 1:
		return append(k, u.piece()...)
	case 2:
		k[len(k)-1]++
	case 3:
		k[len(k)-1]--
	}
	return k[:min(len(k), 65535)]
}

func (u *universe) maybe(p float64, f func() []byte) []byte {
	if u.r.Float64() < p {
		return f()
	}
	return nil
}

// query returns a random query of a listing, without a token.
func (u *universe) query() listing.Query {
	q := listing.Query{
		Prefix:   u.maybe(0.4, func() []byte { k := u.key(); return k[:u.r.IntN(min(len(k), 4)+1)] }),
		From:     u.maybe(0.25, u.near),
		To:       u.maybe(0.25, u.near),
		After:    u.maybe(0.25, u.near),
		Limit:    []int{1, 2, 3, 7, 50, 1000, 0}[u.r.IntN(7)],
		Reverse:  u.r.IntN(2) == 0,
		KeysOnly: u.r.IntN(4) == 0,
	}
	q.Delimiter = u.maybe(0.5, func() []byte {
		if u.r.IntN(3) > 0 {
			return []byte("/")
		}
		return []byte(u.piece())
	})
	if len(q.Prefix)+len(q.From)+len(q.After) > 0 && u.r.IntN(8) == 0 {
		q.After = append(bytes.Clone(q.Prefix), q.Delimiter...) // on or in a common prefix
	}
	for _, part := range []*[]byte{&q.Prefix, &q.From, &q.To, &q.After} {
		*part = (*part)[:min(len(*part), 65535)]
	}
	return q
}
