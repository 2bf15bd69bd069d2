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

// TestTornRecordsAreReadAgain: twice, and nothing else is.
func TestTornRecordsAreReadAgain(t *testing.T) {
	torn, bad := store.Errorf(store.Unavailable, "torn"), store.Errorf(store.Corrupt, "bad")
	away := store.Errorf(store.Unavailable, "away")
	for name, c := range map[string]struct {
		read, decode []error // of each try
		reads        int
		err          error
	}{
		"good":           {decode: []error{nil}, reads: 1},
		"torn once":      {decode: []error{torn, nil}, reads: 2},
		"torn twice":     {decode: []error{torn, torn, nil}, reads: 3},
		"always torn":    {decode: []error{torn, torn, torn}, reads: 3, err: torn},
		"damaged":        {decode: []error{bad}, reads: 1, err: bad},
		"away":           {read: []error{away}, reads: 1, err: away},
		"torn, and away": {read: []error{nil, away}, decode: []error{torn}, reads: 2, err: away},
	} {
		reads, decodes := 0, 0
		got, err := ReadAs(func() (r store.Record, err error) {
			if reads < len(c.read) {
				err = c.read[reads]
			}
			reads++
			return r, err
		}, func(store.Record) (int, error) {
			decodes++
			return decodes, c.decode[decodes-1]
		})
		require.Equal(t, c.err, err, name)
		require.Equal(t, c.reads, reads, name)
		if err == nil {
			require.Equal(t, decodes, got, name)
		}
	}
}
