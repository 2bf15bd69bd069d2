package leader_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/rebalance/leader"
	"github.com/evenkeel/evenkeel/internal/rebalance/shard"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// A record of this process names no leader while its term has not begun, or once it is over.
func TestAnOwnRecordWithoutATermNamesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		a := leader.NewShards(s, leader.Options{Name: "a"}, nil)
		var mine leader.Holder
		require.NoError(t, a.Try(t.Context(), func(context.Context) error {
			for n := range shard.Count {
				h, known, leads := a.Leader(t.Context(), n)
				require.True(t, known && leads)
				mine = h
			}
			return nil
		}))
		// The swap that resigned was lost, or another one's answer is still under way.
		mine.Until, mine.Lease = time.Now().Add(time.Minute), time.Minute
		putHolder(t, s, mine)
		_, known, leads := a.Leader(t.Context(), 0)
		require.False(t, known)
		require.False(t, leads)
		mine.ID = uuid.New()
		putHolder(t, s, mine)
		_, known, leads = a.Leader(t.Context(), 0)
		require.True(t, known, "another one's record does name it")
		require.False(t, leads)
	})
}
