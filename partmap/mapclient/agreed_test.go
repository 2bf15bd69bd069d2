package mapclient_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/partmap/mapclient"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/faultstore"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// Of many that begin at once with leases of their own exactly one lease is agreed on,
// whatever becomes of single calls.
func TestOneLeaseIsAgreedOn(t *testing.T) {
	for seed := range uint64(20) {
		mem := memstore.New()
		s, _ := faultstore.New(mem, faultstore.Options{Seed: seed, Rates: faultstore.Rates{Refuse: 0.1, Lose: 0.1, Late: 0.1}})
		var wg sync.WaitGroup
		errs := make([]error, 8)
		for i := range errs {
			wg.Go(func() {
				for {
					errs[i] = mapclient.AgreeLease(t.Context(), s, time.Duration(1+i%2)*time.Second)
					if k := store.KindOf(errs[i]); errs[i] == nil || k == store.InvalidArgument {
						return
					}
				}
			})
		}
		wg.Wait()
		agreed, err := mapclient.AgreedLease(t.Context(), mem)
		require.NoError(t, err)
		for i, err := range errs {
			if time.Duration(1+i%2)*time.Second == agreed {
				require.NoError(t, err, "seed %d", seed)
			} else {
				require.ErrorIs(t, err, store.InvalidArgument, "seed %d", seed)
				require.ErrorContains(t, err, agreed.String())
			}
		}
	}
}

func TestSetLease(t *testing.T) {
	s := memstore.New()
	agreed, err := mapclient.AgreedLease(t.Context(), s)
	require.NoError(t, err)
	require.Zero(t, agreed)
	require.NoError(t, mapclient.AgreeLease(t.Context(), s, time.Second))
	require.NoError(t, mapclient.SetLease(t.Context(), s, 2*time.Second))
	require.ErrorIs(t, mapclient.AgreeLease(t.Context(), s, time.Second), store.InvalidArgument)
	require.NoError(t, mapclient.AgreeLease(t.Context(), s, 2*time.Second))
	require.ErrorIs(t, mapclient.SetLease(t.Context(), s, time.Millisecond), store.InvalidArgument)
}
