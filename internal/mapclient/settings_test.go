package mapclient_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

func bareRoot(state partmap.State) *partmap.Root {
	return &partmap.Root{
		Bucket: store.BucketID{1}, Epoch: 9, Token: store.Token{2}, State: state, Ranges: 1,
		Entries: []partmap.Entry{{Partition: store.PartitionID{3}}},
	}
}

// TestStates: open to closing and back, closing to deleted, nothing else.
func TestStates(t *testing.T) {
	for from := partmap.State(0); from <= partmap.Deleted+1; from++ {
		for to := partmap.State(0); to <= partmap.Deleted+1; to++ {
			r := bareRoot(from)
			c, err := mapclient.WithState(r, to, partmap.Stamp{Token: store.Token{4}, Now: time.Unix(5, 0)})
			if legal := from == partmap.Open && to == partmap.Closing ||
				from == partmap.Closing && (to == partmap.Open || to == partmap.Deleted); !legal {
				require.Equal(t, store.InvalidArgument, store.KindOf(err))
				require.ErrorContains(t, err, fmt.Sprintf("can't go from %s to %s", from, to))
				require.Nil(t, c.Next)
				continue
			}
			require.NoError(t, err)
			require.Equal(t, r.Version(), c.Old)
			require.Equal(t, []any{to, uint64(10), store.Token{4}, int64(5e6)},
				[]any{c.Next.State, c.Next.Epoch, c.Next.Token, c.Next.ChangedAt})
			require.Equal(t, bareRoot(from), r)
		}
	}
}

// TestSettings change until the bucket is deleted.
func TestSettings(t *testing.T) {
	for state, changes := range map[partmap.State]bool{
		partmap.Open: true, partmap.Closing: true, partmap.Deleted: false,
	} {
		r := bareRoot(state)
		c, err := mapclient.WithSettings(r, []byte{7, 0}, partmap.Stamp{})
		require.Equal(t, bareRoot(state), r)
		if !changes {
			require.Equal(t, store.InvalidArgument, store.KindOf(err))
			require.Nil(t, c.Next)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, r.Version(), c.Old)
		require.Equal(t, []any{uint64(10), []byte{7, 0}}, []any{c.Next.Epoch, c.Next.Settings})
	}
}
