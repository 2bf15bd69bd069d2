package pebblestore

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/store"
)

// TestShortagesPass: while no file can be made for lack of descriptors or memory
// writes are refused, with the cause, and afterwards everything goes on.
func TestShortagesPass(t *testing.T) {
	for lack, says := range map[syscall.Errno]string{
		syscall.EMFILE: "ulimit -n", syscall.ENFILE: "fs.file-max", syscall.ENOMEM: "resumes automatically",
		syscall.EDQUOT: "disk full",
	} {
		t.Run(lack.Error(), func(t *testing.T) {
			f := &faults{err: lack, match: func(op errorfs.Op) bool {
				return op.Kind == errorfs.OpCreate || op.Kind == errorfs.OpReuseForWrite || op.Kind == errorfs.OpOpen
			}}
			mem := vfs.NewCrashableMem()
			s := openMem(t, errorfs.Wrap(mem, f), Options{MemTableBytes: 256 << 10})
			ctx, p, acked := t.Context(), newPartition(), 0
			value := make([]byte, 4<<10)
			put := func() error {
				// Each is newer than the ones before, so that none has to look at them.
				err := s.Put(
					ctx, p, store.Row{Key: fmt.Appendf(nil, "%06d", acked), Value: value, Timestamp: store.Timestamp(acked + 1)},
				)
				if err == nil {
					acked++
				}
				return err
			}
			for range 2 {
				require.NoError(t, put())
				f.on.Store(true)
				var err error
				for err == nil { // until the log is full and a new one is needed
					err = put()
				}
				require.ErrorIs(t, err, store.Unavailable)
				require.ErrorContains(t, err, says)
				if says != "disk full" {
					require.ErrorIs(t, err, lack)
				}
				require.ErrorContains(t, s.Writable(), says)
				f.on.Store(false)
				require.Eventually(t, func() bool { return s.Writable() == nil && put() == nil }, time.Minute,
					5*time.Millisecond)
			}
			after := mem.CrashClone(vfs.CrashCloneCfg{})
			require.NoError(t, s.Close())
			s = openMem(t, after, Options{})
			require.GreaterOrEqual(t, len(content(t, s, p)), acked)
			require.NoError(t, s.Close())
		})
	}
}

// TestShortagesOfSyncsDoNotPass: what a sync could not write may be lost, whatever
// was lacking.
func TestShortagesOfSyncsDoNotPass(t *testing.T) {
	for _, lack := range []syscall.Errno{syscall.ENOMEM, syscall.ENOSPC} {
		f := &faults{err: lack, match: logSync}
		s := openMem(t, errorfs.Wrap(vfs.NewMem(), f), Options{})
		p := newPartition()
		f.on.Store(true)
		require.ErrorContains(t, s.Put(t.Context(), p, row("k", "v", 1)), "restart the process")
		f.on.Store(false)
		require.ErrorContains(t, s.Put(t.Context(), p, row("k", "v", 1)), "restart the process")
		require.Error(t, s.Close())
	}
}

// TestOpenTables bounds what it may be.
func TestOpenTables(t *testing.T) {
	_, err := openDirectory("data", Options{fs: vfs.NewMem(), OpenTables: 63})
	require.ErrorIs(t, err, store.InvalidArgument)
	require.ErrorContains(t, err, "at least 64")
	s := openMem(t, vfs.NewMem(), Options{OpenTables: 64})
	require.Equal(t, 64, s.pebbleOptions().MaxOpenFiles)
	require.NoError(t, s.Close())
	s = openMem(t, vfs.NewMem(), Options{})
	require.Equal(t, 1000, s.pebbleOptions().MaxOpenFiles)
	require.NoError(t, s.Close())
}
