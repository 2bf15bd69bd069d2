package cassandrastore

import (
	"errors"
	"fmt"
	"testing"

	"github.com/gocql/gocql"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/store"
)

// Each level is the driver's of the same name; none other is taken.
func TestLevelsOfTheDriver(t *testing.T) {
	for l, want := range map[Level]gocql.Consistency{
		"": gocql.LocalQuorum, LocalQuorum: gocql.LocalQuorum, Quorum: gocql.Quorum,
		Each: gocql.EachQuorum, LocalOne: gocql.LocalOne,
	} {
		got, err := l.driver()
		require.NoError(t, err)
		require.Equal(t, want, got)
		if l != "" {
			require.Equal(t, string(l), got.String())
		}
	}
	_, err := Level("ONE").driver()
	require.ErrorIs(t, err, store.InvalidArgument)
}

// So many cuts of a partition are remembered, then all are forgotten.
func TestCutsAreBounded(t *testing.T) {
	k := &partitionMemory{}
	for round := range 2 {
		for i := range cutsPerPartition {
			k.cut(fmt.Appendf(nil, "%d-%04d", round, i))
			require.Len(t, k.cuts(), i+1)
		}
	}
	k.cut([]byte("1-0000")) // it is known, but there is no telling without a look
	require.Len(t, k.cuts(), 1)
}

// An error without a code is none of the server's.
func TestCodesOfErrors(t *testing.T) {
	c, fromServer := code(errors.New("no connection"))
	require.Zero(t, c)
	require.False(t, fromServer)
	c, fromServer = code(&gocql.RequestErrWriteTimeout{})
	require.Zero(t, c)
	require.True(t, fromServer)
}

// Both sides of a cut are together what was cut, wherever it begins and ends.
func TestHalvesOfOpenIntervals(t *testing.T) {
	for _, c := range []struct{ start, end, cut string }{
		{"", "", "\x80"}, {"a", "", "\xb0\x80"}, {"ab", "", "b"}, {"a\xffb", "", "b"},
		{"\xff\xffb", "", "\xff\xff\xb1\x00"},
		{"a", "b", "a\x80"}, {"", "b", "1\x00"},
	} {
		b := store.Bounds{Start: []byte(c.start), End: []byte(c.end)}
		low, high, ok := halve(b)
		require.True(t, ok)
		require.Equal(t, c.start, string(low.Start))
		require.Equal(t, c.end, string(high.End))
		require.Equal(t, string(low.End), string(high.Start))
		require.Equal(t, c.cut, string(low.End), "%q to %q", c.start, c.end)
	}
}
