package faultstore_test

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/record"
	"github.com/evenkeel/evenkeel/internal/storekit"
	"github.com/evenkeel/evenkeel/internal/test/faultstore"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
	"github.com/evenkeel/evenkeel/store/storetest"
)

// twoCentres is a memstore that claims to have a wider level.
type twoCentres struct{ memstore.Store }

func (s twoCentres) EachQuorum() store.Rows { return s.Store }

func TestConformanceWithoutFaults(t *testing.T) {
	storetest.Run(t, func(*testing.T) store.Store {
		s, _ := faultstore.New(memstore.New(), faultstore.Options{})
		return s
	})
}

// Short pages, delays and repeated writes are within the contract's letter.
func unnoticeable(seed uint64) faultstore.Options {
	return faultstore.Options{
		Seed:  seed,
		Rates: faultstore.Rates{Repeat: 0.3, Delay: 0.2, Short: 0.3},
		Sleep: func(ctx context.Context, _ time.Duration) error {
			runtime.Gosched()
			return ctx.Err()
		},
	}
}

func TestConformanceWithFaultsThatNobodyMayNotice(t *testing.T) {
	var all []*faultstore.Faults
	storetest.RunWith(t, func(*testing.T) store.Store {
		s, f := faultstore.New(memstore.New(), unnoticeable(uint64(len(all))))
		all = append(all, f)
		return s
	}, storetest.Options{ShortPages: true})
	c := all[0].Counts()
	require.Positive(t, c.Repeated)
	require.Positive(t, c.Landed)
	require.Positive(t, c.Delayed)
	require.Positive(t, c.Short)
	require.Zero(t, c.Refused+c.Lost)
}

func TestConformanceInTwoCentres(t *testing.T) {
	storetest.RunWith(t, func(*testing.T) store.Store {
		s, _ := faultstore.New(twoCentres{memstore.New()}, unnoticeable(1))
		return s
	}, storetest.Options{ShortPages: true, Slow: true})
}

// bare hides the optional powers of a store.
type bare struct{ store.Store }

func TestPowersAreThoseOfTheInnerStore(t *testing.T) {
	m := memstore.New()
	for name, inner := range map[string]store.Store{
		"none":                bare{m},
		"listing, a memstore": m,
		"all":                 twoCentres{m},
		"wide": struct {
			bare
			quorum
		}{bare{m}, quorum{m}},
		"listing": struct {
			bare
			store.PartitionLister
		}{bare{m}, m},
		"wide and listing": struct {
			bare
			quorum
			store.PartitionLister
		}{bare{m}, quorum{m}, m},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := faultstore.New(inner, faultstore.Options{})
			_, want := inner.(store.EachQuorum)
			e, got := s.(store.EachQuorum)
			require.Equal(t, want, got)
			if got {
				require.NoError(t, e.EachQuorum().Put(t.Context(), store.Partition{}, row("k", "v", 1)))
			}
			_, want = inner.(store.PartitionLister)
			_, got = s.(store.PartitionLister)
			require.Equal(t, want, got)
			require.Implements(t, (*store.Acknowledger)(nil), s)
		})
	}
}

// lagging is a memstore whose local reads lag until Acknowledge is called.
type lagging struct {
	memstore.Store
	acknowledged int
}

func (s *lagging) Acknowledge(ctx context.Context, t store.Table, key []byte) (store.Record, error) {
	s.acknowledged++
	return s.Read(ctx, t, key, store.Serial)
}

func TestAcknowledgeIsTheInnerStores(t *testing.T) {
	inner := &lagging{Store: memstore.New()}
	s, f := faultstore.New(inner,
		faultstore.Options{PerOp: map[faultstore.Op]faultstore.Rates{faultstore.Acknowledge: {Lose: 1}}})
	key := []byte("clock")
	next := store.Record{Version: store.Version{Epoch: 1, Token: storekit.NewToken()}}
	require.NoError(t, s.Swap(t.Context(), store.Clocks, key, store.Version{}, next))
	_, err := record.Acknowledge(t.Context(), s, store.Clocks, key)
	requireInjected(t, err, store.Timeout, store.Unavailable)
	f.Enable(false)
	got, err := record.Acknowledge(t.Context(), s, store.Clocks, key)
	require.NoError(t, err)
	require.Equal(t, next.Version, got.Version)
	require.Equal(t, 2, inner.acknowledged)
	require.Equal(t, faultstore.Counts{Calls: 2, Lost: 1}, f.Counts(faultstore.Acknowledge))
	require.Zero(t, f.Counts(faultstore.Read).Calls)
}

type quorum struct{ rows store.Rows }

func (q quorum) EachQuorum() store.Rows { return q.rows }

func row(key, value string, ts store.Timestamp) store.Row {
	return store.Row{Key: []byte(key), Value: []byte(value), Timestamp: ts}
}
