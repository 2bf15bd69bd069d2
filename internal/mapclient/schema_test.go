package mapclient_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/store"
)

func readyAtOnce(context.Context) error { return nil }

// TestTheVersionOfAStore: the first process writes it, and a store of a time before versions stays without, until it is
// upgraded.
func TestTheVersionOfAStore(t *testing.T) {
	ctx := t.Context()
	s := newSites()
	for at := range s.shown {
		v, err := mapclient.AgreeOnSchema(ctx, &site{sites: s, at: at})
		require.NoError(t, err)
		require.Equal(t, mapclient.NewestSchema, v)
	}

	old := newSites()
	require.NoError(t, agreeOnLease(ctx, &site{sites: old}, time.Second, false))
	for at := range old.shown {
		v, err := mapclient.AgreeOnSchema(ctx, &site{sites: old, at: at})
		require.NoError(t, err)
		require.Equal(t, mapclient.Unversioned, v)
	}
	left := errors.New("an old program is left")
	_, err := mapclient.UpgradeSchema(ctx, &site{sites: old}, func(context.Context) error { return left })
	require.ErrorIs(t, err, left)
	for _, before := range []mapclient.Schema{mapclient.Unversioned, mapclient.NewestSchema} { // again
		v, err := mapclient.UpgradeSchema(ctx, &site{sites: old}, readyAtOnce)
		require.NoError(t, err)
		require.Equal(t, before, v)
	}
	for at := range old.shown {
		v, err := mapclient.AgreeOnSchema(ctx, &site{sites: old, at: at})
		require.NoError(t, err)
		require.Equal(t, mapclient.NewestSchema, v)
	}
}

// TestAnUpgradeThatEndsAnywhere: at each call, done or not, the process that upgrades the schema dies. Whatever the
// data centres show by then, no program that does not know the new version starts after the check for live ones by
// which the upgrade ended. The upgrade can be repeated, and after it nothing else starts.
func TestAnUpgradeThatEndsAnywhere(t *testing.T) {
	starts := func(s *sites, newest mapclient.Schema) (n int) {
		for at := range s.shown {
			_, err := mapclient.AgreeOnSchemaAs(t.Context(), &site{sites: s, at: at}, newest)
			if err == nil {
				n++
				continue
			}
			require.ErrorIs(t, err, store.InvalidArgument)
			require.ErrorContains(t, err, "this program knows versions up to 1")
		}
		return n
	}
	synctest.Test(t, func(t *testing.T) {
		for cut := 1; ; cut++ {
			ended := false
			for n := range 2 * 4 {
				lost, behind := n%2 == 0, n/2
				s := newSites()
				require.Equal(t, 2, starts(s, 1), "it is new, and of version 1")
				checked := func(ctx context.Context) error {
					if rec, _, err := readSchema(ctx, s); err == nil && rec == 2 { // announced
						require.Zero(t, starts(s, 1), "one that starts now would not be found by the check")
					}
					return nil
				}
				_, err := mapclient.UpgradeSchemaTo(t.Context(), &site{sites: s, cut: cut, lost: lost}, 2, checked)
				ended = ended || err == nil
				for at := range s.shown {
					if behind>>at&1 == 0 {
						require.NoError(t, s.catchUp(at, store.Process, []byte("schema")))
					}
				}
				require.Equal(t, 2, starts(s, 2))
				if inForce, _, err := readSchema(t.Context(), s); err == nil && inForce == 1 {
					rec, err := s.Store.Read(t.Context(), store.Process, []byte("schema"), store.Serial)
					require.NoError(t, err)
					if rec.Epoch == 3 { // of the change, after the announcement
						require.Zero(t, starts(s, 1), "call %d, lost %t, behind %02b", cut, lost, behind)
					}
				}
				_, err = mapclient.UpgradeSchemaTo(t.Context(), &site{sites: s, at: 1}, 2, checked)
				require.NoError(t, err)
				require.Zero(t, starts(s, 1))
				require.Equal(t, 2, starts(s, 2))
				_, err = mapclient.UpgradeSchemaTo(t.Context(), &site{sites: s}, 1, readyAtOnce)
				require.ErrorContains(t, err, "of version 2, and this program knows versions up to 1: install a newer program")
			}
			if ended {
				return
			}
		}
	})
}

// readSchema returns the form of the newest record of the version, 2 for an announcement.
func readSchema(ctx context.Context, s *sites) (form byte, v store.Version, err error) {
	rec, err := s.Store.Read(ctx, store.Process, []byte("schema"), store.Serial)
	if err != nil {
		return 0, v, err
	}
	return rec.Blob[0], rec.Version, nil
}
