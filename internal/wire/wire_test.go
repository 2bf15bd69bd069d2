package wire

import (
	"bytes"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRoundTrip(t *testing.T) {
	var e Encoder
	numbers := []int64{0, 1, -1, 127, 128, math.MinInt64, math.MaxInt64}
	for _, n := range numbers {
		e.Int(n)
		e.Uint(uint64(n))
	}
	e.Bytes(nil)
	e.Bytes([]byte("text"))
	e.Raw('r', 'a', 'w')
	d := Decoder{Rest: bytes.Clone(e.B)}
	for _, n := range numbers {
		require.Equal(t, n, d.Int())
		require.Equal(t, uint64(n), d.Uint())
	}
	require.Nil(t, d.Bytes())
	text := d.Bytes()
	require.Equal(t, "text", string(text))
	require.Equal(t, 4, cap(text), "what appends to a part changes nothing that follows")
	require.Equal(t, "raw", string(d.Raw(3)))
	require.False(t, d.Bad)
	require.Empty(t, d.Rest)
}

// What does not fit makes everything zero from there on.
func TestDamage(t *testing.T) {
	long := append(bytes.Repeat([]byte{0xff}, 10), 1)
	for name, c := range map[string]struct {
		input []byte
		read  func(d *Decoder) any
		want  any
	}{
		"no number":                  {nil, func(d *Decoder) any { return d.Uint() }, uint64(0)},
		"a number that is cut short": {[]byte{0x80}, func(d *Decoder) any { return d.Int() }, int64(0)},
		"a number that is too large": {long, func(d *Decoder) any { return d.Uint() }, uint64(0)},
		"too few bytes":              {[]byte{1, 2}, func(d *Decoder) any { return d.Raw(3) }, []byte{0, 0, 0}},
		"a string that is cut short": {[]byte{2, 'x'}, func(d *Decoder) any { return d.Bytes() }, []byte(nil)},
		"too many things":            {[]byte{2, 1, 1, 1}, func(d *Decoder) any { return d.Count(2) }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			d := Decoder{Rest: c.input}
			require.Equal(t, c.want, c.read(&d))
			require.True(t, d.Bad)
			require.Empty(t, d.Rest)
			require.Zero(t, d.Int())
			require.Zero(t, d.Count(1))
		})
	}
	d := Decoder{Rest: []byte{2, 1, 1, 1, 1}}
	require.Equal(t, 2, d.Count(2), "as many as fit")
	require.False(t, d.Bad)
}
