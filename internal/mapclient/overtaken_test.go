package mapclient_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// overtaking does something after a root was read at Serial and before its reader
// has the answer.
type overtaking struct {
	mapclient.Store
	mu        sync.Mutex
	meanwhile func()
}

func (o *overtaking) Read(ctx context.Context, t store.Table, key []byte, l store.Level) (store.Record, error) {
	rec, err := o.Store.Read(ctx, t, key, l)
	if t == store.Roots && l == store.Serial {
		o.mu.Lock()
		f := o.meanwhile
		o.meanwhile = nil
		o.mu.Unlock()
		if f != nil {
			f()
		}
	}
	return rec, err
}

// A wait that has read the root is overtaken by another goroutine of its process
// that reads a newer one, of another process's swap. The map has not gone back.
func TestAWaitIsOvertakenByANewerRoot(t *testing.T) {
	ctx := t.Context()
	plain := memstore.New()
	require.NoError(t, mapclient.InitClocks(ctx, plain, 1))
	open := func(s mapclient.Store) *mapclient.Client {
		c, err := mapclient.NewNetwork(s, mapclient.Options{Clocks: 1, Lease: 50 * time.Millisecond})
		require.NoError(t, err)
		t.Cleanup(c.Close)
		return c
	}
	o := &overtaking{Store: plain}
	mine, other := open(o), open(plain)
	id := store.BucketID(uuid.New())
	_, err := other.Create(ctx, id, cutsOf(1))
	require.NoError(t, err)
	o.meanwhile = func() {
		root, err := other.Load(ctx, id)
		require.NoError(t, err)
		change, err := step(ctx, other, root, rand.New(rand.NewPCG(1, 1)))
		require.NoError(t, err)
		require.NoError(t, other.Swap(ctx, change))
		newer, err := mine.Load(ctx, id)
		require.NoError(t, err)
		require.Equal(t, root.Epoch+1, newer.Epoch)
	}
	require.NoError(t, mine.Wait(ctx, id))
	require.Nil(t, o.meanwhile)
}
