package door

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/store"
)

func TestWhatAMarkRemembers(t *testing.T) {
	const hour = store.Timestamp(time.Hour / time.Microsecond)
	const now = 1_000_000 * hour
	for _, c := range []struct {
		settled, since store.Timestamp // hours ago
		first, want    bool
	}{
		{settled: 2, since: 1, want: true},
		{settled: 1, since: 2, want: false},
		{settled: 1, since: 1, want: false},
		{settled: 1000, since: 23, want: true},
		{settled: 1000, since: 25, want: false},
		{settled: 1, since: 1000, first: true, want: true},
		{settled: 1000, since: 1, first: true, want: true},
		{settled: 25, since: 1000, first: true, want: false},
	} {
		m := Mark{Stamp: now, Settled: now - c.settled*hour, First: c.first}
		require.Equal(t, c.want, m.Remembers(now-c.since*hour), "%+v", c)
	}
	require.False(t, Mark{Stamp: now}.Remembers(now), "something moves")
}
