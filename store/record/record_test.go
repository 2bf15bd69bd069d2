package record

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/store"
)

func TestRoundTrip(t *testing.T) {
	v := Next(store.Version{})
	require.EqualValues(t, 1, v.Epoch)
	for _, payload := range []string{"", "x", "a longer payload\x00\xff"} {
		got, err := Open(3, Seal(3, v, []byte(payload)))
		require.NoError(t, err)
		require.Equal(t, payload, string(got))
	}
}

func TestDamageIsCorrupt(t *testing.T) {
	r := Seal(1, Next(store.Version{}), []byte("payload"))
	for i := range r.Blob {
		r.Blob[i] ^= 0x10
		_, err := Open(1, r)
		require.ErrorIs(t, err, store.Corrupt, "byte %d", i)
		r.Blob[i] ^= 0x10
	}
	for n := range r.Blob {
		_, err := Open(1, store.Record{Version: r.Version, Blob: r.Blob[:n]})
		require.ErrorIs(t, err, store.Corrupt, "cut to %d", n)
	}
	_, err := Open(2, r)
	require.ErrorIs(t, err, store.Corrupt)
}

func TestTornIsUnavailable(t *testing.T) {
	v := Next(store.Version{})
	r := Seal(1, v, nil)
	r.Version = Next(v)
	_, err := Open(1, r)
	require.ErrorIs(t, err, store.Unavailable)
}
