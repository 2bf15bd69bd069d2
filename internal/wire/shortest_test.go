package wire

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEachNumberHasOneForm(t *testing.T) {
	for bits := range 64 {
		for _, v := range []uint64{1 << bits, 1<<bits - 1, 1<<bits + 1} {
			b := binary.AppendUvarint(nil, v)
			d := Shortest{Of: b}
			require.Equal(t, v, d.Uint())
			require.False(t, d.Bad)
			require.Empty(t, d.Rest())

			longer := append(append([]byte(nil), b[:len(b)-1]...), b[len(b)-1]|0x80, 0)
			d = Shortest{Of: append(longer, 'x')}
			require.Zero(t, d.Uint(), "%d", v)
			require.True(t, d.Bad, "%d with a zero behind it", v)
			require.Empty(t, d.Rest())

			d = Shortest{Of: b[:len(b)-1]}
			require.Zero(t, d.Uint())
			require.True(t, d.Bad, "%d without its end", v)
		}
	}
}

func TestBytesAreBounded(t *testing.T) {
	b := AppendString(AppendString(nil, "four"), "")
	d := Shortest{Of: b}
	require.Equal(t, "four", d.String(4))
	require.Empty(t, d.Bytes(0))
	require.False(t, d.Bad)

	d = Shortest{Of: b}
	require.Nil(t, d.Bytes(3))
	require.True(t, d.Bad, "more than the most")
	require.Empty(t, d.Rest())

	d = Shortest{Of: b[:4]}
	require.Nil(t, d.Bytes(4))
	require.True(t, d.Bad, "cut")
}
