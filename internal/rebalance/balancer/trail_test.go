package balancer

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/store"
)

func TestTrail(t *testing.T) {
	id := func(n int) store.PartitionID { return store.PartitionID{byte(n)} }
	tr := newTrail(2)
	asked := 0
	note := func(n int, rows int64) {
		tr.note(id(n), rows, func() []counter.Quantum {
			asked++
			return []counter.Quantum{{Rows: rows}}
		})
	}
	for rows := range int64(1000) {
		note(1, rows)
	}
	require.Less(t, asked, 40, "asked for at each tenth only")
	got := tr.earlier(id(1), 1000)
	require.Len(t, got, 1)
	require.InDelta(t, 900, got[0].Rows, 60)
	require.Nil(t, tr.earlier(id(1), 500), "that was forgotten")
	note(1, 300)
	require.Nil(t, tr.earlier(id(1), 300), "it shrank: nothing is known of before")
	require.NotNil(t, tr.earlier(id(1), 350))
	note(2, 100)
	note(3, 100)
	require.Nil(t, tr.earlier(id(1), 350), "the oldest is forgotten")
	require.NotNil(t, tr.earlier(id(3), 200))
}
