package pebblestore

import (
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/storetest"
)

// TestConformance runs the suite on a disk, with real syncs. Reopening is a
// clean restart.
func TestConformance(t *testing.T) {
	open := func(t *testing.T, dir string) *directory {
		s, err := openDirectory(dir, Options{})
		require.NoError(t, err)
		return s
	}
	storetest.RunWith(t, func(t *testing.T) store.Store { return open(t, t.TempDir()) }, storetest.Options{
		Slow: true,
		Reopen: func(t *testing.T, old store.Store) store.Store {
			require.NoError(t, old.Close())
			return open(t, old.(*directory).dir)
		},
	})
}

// TestConformanceAcrossPowerLoss runs it in memory. Reopening
// is a power loss that keeps a random half of what was not synced.
func TestConformanceAcrossPowerLoss(t *testing.T) {
	storetest.RunWith(t, func(t *testing.T) store.Store {
		return openMem(t, vfs.NewCrashableMem(), Options{})
	}, storetest.Options{
		Slow: true,
		Reopen: func(t *testing.T, old store.Store) store.Store {
			s := old.(*directory)
			after := s.o.fs.(*vfs.MemFS).CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 50, RNG: rand.New(rand.NewPCG(1, 1))})
			require.NoError(t, s.Close())
			return openMem(t, after, Options{})
		},
	})
}
