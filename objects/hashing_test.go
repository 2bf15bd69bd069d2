package objects

import (
	"crypto/md5"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/test/seed"
)

func TestHashingIsMD5HoweverABodyIsCut(t *testing.T) {
	r := seed.New(t)
	for _, size := range []int{0, 1, hashedAtOnce - 1, hashedAtOnce, hashedAtOnce + 1, 5*hashedAtOnce + 77, r.IntN(9 * hashedAtOnce)} {
		body := make([]byte, size)
		for i := range body {
			body[i] = byte(r.Uint32())
		}
		want := md5.Sum(body)
		var h hashing
		most := 1 + r.IntN(3*hashedAtOnce)
		for rest := body; len(rest) > 0; {
			n := min(1+r.IntN(most), len(rest))
			piece := append([]byte(nil), rest[:n]...)
			h.write(piece)
			clear(piece) // who gave it may use it again
			rest = rest[n:]
		}
		require.Equal(t, want[:], h.end(), "%d bytes", size)
	}
}
