package store_test

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/store"
)

// shortKey draws a key of up to three bytes, often the highest or the lowest ones.
func shortKey(rng *rand.Rand) []byte {
	key := make([]byte, rng.IntN(4))
	for i := range key {
		key[i] = []byte{0, 1, 0xfe, 0xff}[rng.IntN(4)]
	}
	return key
}

func TestPrefixEnd(t *testing.T) {
	rng := seed.New(t)
	for range 5000 {
		prefix, key := shortKey(rng), shortKey(rng)
		end := store.PrefixEnd(prefix)
		within := string(key) >= string(prefix) && (end == nil || string(key) < string(end))
		require.Equal(t, bytes.HasPrefix(key, prefix), within, "key %q, prefix %q, end %q", key, prefix, end)
	}
}
