package pebblestore

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/test/race"
	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/store"
)

// holdUp keeps the grouper where it is, with the first put that comes, as Pebble
// does when it holds up writes; the put's timestamp has to be above the ceiling.
func holdUp(s *directory) (release func()) {
	s.newest.mu.Lock()
	return s.newest.mu.Unlock
}

// waitUnderway waits until so many puts are held up. How many of them are in the
// group that was begun depends on when they came.
func waitUnderway(t *testing.T, s *directory, n int) {
	t.Helper()
	require.Eventually(t, func() bool {
		return s.grouper.underway.Load() == int64(n)
	}, time.Minute, time.Millisecond)
}

// TestGroups lets puts of one key, of neighbours, of several rows and of long
// values meet in one group, with removals and tombstones stored before: what is
// left is what the timestamps say.
func TestGroups(t *testing.T) {
	r := seed.New(t)
	s := openMem(t, vfs.NewMem(), Options{MemTableBytes: 16 << 20})
	s.newest.step = 1
	defer s.Close()
	ctx := t.Context()
	rounds := 60
	if race.Enabled {
		rounds = 15
	}
	for round := range rounds {
		base := store.Timestamp(round+1) * 1000
		ps := []store.Partition{newPartition(), newPartition()}
		want := make([]oracle, len(ps))
		key := func() []byte { return fmt.Appendf(nil, "k%02d", r.IntN(30)) }
		for i, p := range ps {
			k := key()
			want[i].deletes = append(want[i].deletes, store.Row{Key: k, Timestamp: base + 50})
			require.NoError(t, s.Delete(ctx, p, k, base+50))
			b := store.Bounds{Start: []byte("k1"), End: []byte("k15")}
			want[i].removes = append(want[i].removes, struct {
				b  store.Bounds
				ts store.Timestamp
			}{b, base + 40})
			require.NoError(t, s.Remove(ctx, p, b, base+40))
		}
		release := sync.OnceFunc(holdUp(s))
		defer release()
		var g sync.WaitGroup
		put := func(i int, rows ...store.Row) {
			want[i].puts = append(want[i].puts, rows...)
			g.Go(func() {
				if err := s.Put(ctx, ps[i], rows...); err != nil {
					t.Error(err)
				}
			})
		}
		put(0, row("first", "v", base+500))
		waitUnderway(t, s, 1)
		n := 1 + r.IntN(2*groupPuts)
		for range n {
			rows := make([]store.Row, 1+r.IntN(3)*r.IntN(5))
			for j := range rows {
				value := fmt.Appendf(nil, "%d", r.IntN(3))
				if r.IntN(50) == 0 {
					value = append(value, bytes.Repeat([]byte{'.'}, r.IntN(store.MaxValueBytes/4))...)
				}
				// Below the slots' bounds nothing is grouped.
				rows[j] = store.Row{Key: key(), Value: value, Timestamp: base + 1 + store.Timestamp(r.IntN(100))}
			}
			put(r.IntN(len(ps)), rows...)
		}
		require.Eventually(t, func() bool { // those that can't win at once are not queued
			return s.grouper.underway.Load() > int64(n)/4
		}, time.Minute, time.Millisecond)
		release()
		g.Wait()
		for i, p := range ps {
			require.Equal(t, want[i].visible(), content(t, s, p), "round %d", round)
		}
		require.Zero(t, s.locks.unsynced.Load(), "all of it is synced")
	}
	for i := range s.locks.stripes {
		require.True(t, s.locks.stripes[i].TryLock(), "a lock was left")
		require.Zero(t, s.locks.stripes[i].unsynced.Load())
	}
	for i := range s.locks.partitions {
		require.True(t, s.locks.partitions[i].TryLock(), "a lock was left")
		require.Zero(t, s.locks.partitions[i].unsynced.Load())
	}
	require.Eventually(t, func() bool { // the last are told before they are counted
		return s.grouper.underway.Load() == 0
	}, time.Minute, time.Millisecond)
	for i := range s.locks.stripes {
		s.locks.stripes[i].Unlock()
	}
	for i := range s.locks.partitions {
		s.locks.partitions[i].Unlock()
	}
}

// An impatient context ends as soon as somebody begins to wait for its end.
type impatient struct {
	context.Context
	end context.CancelFunc
}

func newImpatient(ctx context.Context) *impatient {
	ctx, end := context.WithCancel(ctx)
	return &impatient{ctx, end}
}

func (c *impatient) Done() <-chan struct{} {
	c.end()
	return c.Context.Done()
}

// TestPutThenGivesUp gives up puts that are held up, each kind of them, and uses
// their memory for something else: the puts go on, with what they were given, and
// tell when they end.
func TestPutThenGivesUp(t *testing.T) {
	many := make([]store.Row, wideRows)
	for i := range many {
		many[i] = row(fmt.Sprintf("m%02d", i), "v", 10)
	}
	for name, test := range map[string]struct {
		rows []store.Row
		hold func(s *directory, p store.Partition) (release func())
	}{
		"by Pebble": {[]store.Row{row("k", "v", 10), row("l", "v", 10)},
			func(s *directory, _ store.Partition) func() { return holdUp(s) }},
		"by another write of its key": {[]store.Row{row("k", "v", 10), row("l", "v", 10)},
			func(s *directory, p store.Partition) func() {
				return s.lockKeys(p, [][]byte{rowKey(p, []byte("l"))}).unlock
			}},
		"by a removal": {[]store.Row{row("k", "v", 10)},
			func(s *directory, p store.Partition) func() { return s.lockPartition(p).unlock }},
		"of many rows": {many, func(s *directory, p store.Partition) func() { return s.lockPartition(p).unlock }},
		"of an old row": {[]store.Row{row("old", "v", 3)}, func(s *directory, p store.Partition) func() {
			return s.lockKeys(p, [][]byte{rowKey(p, []byte("old"))}).unlock
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := openMem(t, vfs.NewMem(), Options{})
			s.newest.step = 1
			defer s.Close()
			p := newPartition()
			require.NoError(t, s.Put(t.Context(), p, row("old", "v", 2)))
			var want oracle
			want.puts = append(want.puts, row("old", "v", 2))
			rows := make([]store.Row, len(test.rows))
			for i, r := range test.rows {
				want.puts = append(want.puts, r)
				rows[i] = store.Row{Key: bytes.Clone(r.Key), Value: bytes.Clone(r.Value), Timestamp: r.Timestamp}
			}
			release := sync.OnceFunc(test.hold(s, p))
			defer release()
			ended, times := make(chan struct{}), atomic.Int64{}
			err := s.PutThen(newImpatient(t.Context()), p, func() {
				if times.Add(1) == 1 {
					close(ended)
				}
			}, rows...)
			require.ErrorIs(t, err, context.Canceled)
			require.True(t, store.OutcomeUnknown(err))
			for i := range rows {
				clear(rows[i].Key)
				clear(rows[i].Value)
			}
			require.Zero(t, times.Load(), "it is still held up")
			release()
			<-ended
			require.Equal(t, want.visible(), content(t, s, p), "what has ended is seen by all who come later")
			require.EqualValues(t, 1, times.Load())
		})
	}
}

// TestPutThenEndsOnce: also where nothing is written, and where somebody waits.
func TestPutThenEndsOnce(t *testing.T) {
	for _, noSync := range []bool{false, true} {
		s := openMem(t, vfs.NewMem(), Options{NoSync: noSync})
		p := newPartition()
		over, end := context.WithCancel(t.Context())
		end()
		require.NoError(t, s.Remove(t.Context(), p, store.Bounds{Start: []byte("removed")}, 100))
		put := func(ctx context.Context, rows ...store.Row) error {
			ended := 0
			err := s.PutThen(ctx, p, func() { ended++ }, rows...)
			require.Equal(t, 1, ended)
			return err
		}
		require.NoError(t, put(t.Context()))
		require.NoError(t, put(t.Context(), row("k", "v", 5)))
		require.NoError(t, put(t.Context(), row("k", "late", 4)))
		require.NoError(t, put(t.Context(), row("removed", "late", 100)))
		require.ErrorIs(t, put(t.Context(), row("", "v", 1)), store.InvalidArgument)
		require.ErrorIs(t, put(over, row("k", "v", 6)), context.Canceled)
		require.Equal(t, []store.Row{row("k", "v", 5)}, content(t, s, p))
		require.NoError(t, s.Close())
		require.ErrorIs(t, put(t.Context(), row("k", "v", 7)), store.Unavailable)
	}
}

// A counted context counts who has begun to wait for its end.
type counted struct {
	context.Context
	waiting *atomic.Int64
}

func (c counted) Done() <-chan struct{} {
	c.waiting.Add(1)
	return c.Context.Done()
}

// TestCloseEndsPuts closes the store while puts are under way that nobody waits
// for any more: they come to their end before.
func TestCloseEndsPuts(t *testing.T) {
	fs := vfs.NewMem()
	s := openMem(t, fs, Options{})
	s.newest.step = 1
	p := newPartition()
	release := sync.OnceFunc(holdUp(s))
	defer release()
	var want oracle
	var ended, waiting atomic.Int64
	var g sync.WaitGroup
	ctx, giveUp := context.WithCancel(t.Context())
	const n = 50
	for i := range n {
		r := row(fmt.Sprint(i), "v", 10)
		want.puts = append(want.puts, r)
		g.Go(func() {
			if err := s.PutThen(counted{ctx, &waiting}, p, func() { ended.Add(1) },
				r); store.KindOf(err) != store.Timeout {
				t.Error(err)
			}
		})
	}
	require.Eventually(t, func() bool { return waiting.Load() == n }, time.Minute, time.Millisecond)
	giveUp()
	g.Wait()
	require.Zero(t, ended.Load())
	closed := make(chan error)
	go func() { closed <- s.Close() }()
	release()
	require.NoError(t, <-closed)
	require.EqualValues(t, n, ended.Load())
	s = openMem(t, fs, Options{})
	defer s.Close()
	require.Equal(t, want.visible(), content(t, s, p))
}

// heldSyncs keeps the syncs of the log back.
type heldSyncs struct{ sync.RWMutex }

func (h *heldSyncs) String() string { return "held syncs" }

func (h *heldSyncs) MaybeError(op errorfs.Op) error {
	if op.Kind == errorfs.OpFileSyncData && filepath.Ext(op.Path) == ".log" {
		h.RLock()
		defer h.RUnlock()
	}
	return nil
}

// TestUnsyncedGroupIsNotShown reads what a group has put while its sync is under
// way: no read answers before.
func TestUnsyncedGroupIsNotShown(t *testing.T) {
	var held heldSyncs
	mem := vfs.NewCrashableMem()
	s := openMem(t, errorfs.Wrap(mem, &held), Options{})
	defer s.Close()
	p, q, quiet := newPartition(), newPartition(), newPartition()
	require.NoError(t, s.Put(t.Context(), quiet, row("k", "v", 1)))
	held.Lock()
	release := sync.OnceFunc(held.Unlock)
	defer release()
	var applied sync.WaitGroup
	for _, at := range []store.Partition{p, q} {
		applied.Add(1)
		err := s.PutThen(newImpatient(t.Context()), at, applied.Done, row("k", "v", 1), row("l", "v", 1))
		require.ErrorIs(t, err, context.Canceled)
	}
	applied.Wait()
	for _, at := range []store.Partition{p, q} {
		for _, key := range []string{"k", "l"} {
			_, _, err := s.Get(newImpatient(t.Context()), at, []byte(key))
			require.ErrorIs(t, err, context.Canceled, key)
		}
		_, err := s.Slice(newImpatient(t.Context()), at, store.Bounds{}, store.SliceOptions{Limit: 1})
		require.ErrorIs(t, err, context.Canceled)
	}
	_, err := s.Partitions(newImpatient(t.Context()), store.Partition{}, 10)
	require.ErrorIs(t, err, context.Canceled)
	_, err = s.Slice(newImpatient(t.Context()), quiet, store.Bounds{}, store.SliceOptions{Limit: 1})
	require.NoError(t, err, "others are read as ever")
	lost := openMem(t, mem.CrashClone(vfs.CrashCloneCfg{}), Options{})
	require.Empty(t, content(t, lost, p), "a crash would take it back")
	require.NoError(t, lost.Close())
	release()
	for _, at := range []store.Partition{p, q} {
		require.Equal(t, []store.Row{row("k", "v", 1), row("l", "v", 1)}, content(t, s, at))
	}
}
