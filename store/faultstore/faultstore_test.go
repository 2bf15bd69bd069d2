package faultstore_test

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/faultstore"
	"github.com/evenkeel/evenkeel/store/memstore"
	"github.com/evenkeel/evenkeel/store/storetest"
)

// twoCentres is a memstore that claims to have a wider level.
type twoCentres struct{ *memstore.Store }

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
		"none":                 bare{m},
		"listing and swapping": m,
		"all":                  twoCentres{m},
		"wide": struct {
			bare
			quorum
		}{bare{m}, quorum{m}},
		"listing": struct {
			bare
			store.PartitionLister
		}{bare{m}, m},
		"swapping": struct {
			bare
			store.ComparePutter
		}{bare{m}, m},
		"wide and listing": struct {
			bare
			quorum
			store.PartitionLister
		}{bare{m}, quorum{m}, m},
		"wide and swapping": struct {
			bare
			quorum
			store.ComparePutter
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
			_, want = inner.(store.ComparePutter)
			_, got = s.(store.ComparePutter)
			require.Equal(t, want, got)
		})
	}
}

type quorum struct{ rows store.Rows }

func (q quorum) EachQuorum() store.Rows { return q.rows }

func row(key, value string, ts store.Timestamp) store.Row {
	return store.Row{Key: []byte(key), Value: []byte(value), Timestamp: ts}
}
