package adminapi

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/processes"
)

// A process that was killed, and started anew in the same container, has its name and its address: what it leads is
// that of its present life, in any order of the list.
func TestAProcessStartedAnewHasWhatItLeads(t *testing.T) {
	now := time.Now()
	const name, admin = "listd on pod-0, process 1", "http://pod-0:7071"
	life := func(id byte, since, seen time.Duration) processes.Process {
		return processes.Process{
			ID: uuid.UUID{id}, Name: name, Admin: admin, Since: now.Add(-since), Seen: now.Add(-seen), NewestSchema: -1,
		}
	}
	dead, alive := life(1, 3*time.Hour, 30*time.Minute), life(2, 20*time.Minute, 0)
	share := &Share{Name: name, Admin: admin, Shards: []int{3}}
	for _, listed := range [][]processes.Process{{dead, alive}, {alive, dead}} {
		all := peers(Peer{Name: "here", Here: true}, nil, processes.Process{}, listed, now)
		require.Len(t, all, 3)
		require.Equal(t, alive.Since.UTC(), peerOf(all, share).Since)
		require.False(t, peerOf(all, share).Silent)
		require.True(t, peerOf(all, &Share{Name: name, Admin: admin, Here: true}).Here)
		require.Nil(t, peerOf(all, &Share{Name: name}))

		all = peers(Peer{Name: "here", Here: true}, &Peer{Name: name, Leads: true, Admin: admin}, processes.Process{}, listed,
			now)
		require.Len(t, all, 3)
		require.True(t, all[1].Leads)
		require.False(t, all[1].Silent)
		require.True(t, all[2].Silent)
		require.Equal(t, &all[1], peerOf(all, share))
	}
	require.Equal(t, []int{1, 3, 4}, joined([]int{3}, []int{1, 4}))
}
