package processes_test

import (
	"context"
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/processes"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// site is the rows of one data centre, in which those of others are missing; EachQuorum are all.
type site struct {
	store.Rows
	all  memstore.Store
	away bool
}

func (s site) Put(ctx context.Context, p store.Partition, rows ...store.Row) error {
	return first(s.Rows.Put(ctx, p, rows...), s.all.Put(ctx, p, rows...))
}

func (s site) Delete(ctx context.Context, p store.Partition, key []byte, ts store.Timestamp) error {
	return first(s.Rows.Delete(ctx, p, key, ts), s.all.Delete(ctx, p, key, ts))
}

func first(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

func (s site) EachQuorum() store.Rows {
	if s.away {
		return gone{}
	}
	return s.all
}

type gone struct{ store.Rows }

func (gone) Slice(context.Context, store.Partition, store.Bounds, store.SliceOptions) (store.Page, error) {
	return store.Page{}, store.Errorf(store.Unavailable, "a data centre is away")
}

func names(t *testing.T, rows store.Rows) (out []string) {
	t.Helper()
	all, err := processes.List(t.Context(), rows)
	require.NoError(t, err)
	for _, p := range all {
		out = append(out, p.Name)
	}
	return out
}

// TestProcessesOfAllDataCentres are listed while they run, and for an hour after they were killed; an entry that is not
// understood is listed as one that knows no schema.
func TestProcessesOfAllDataCentres(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, all := t.Context(), memstore.New()
		east, west := site{Rows: memstore.New(), all: all}, site{Rows: memstore.New(), all: all}
		appear := func(s site, name string) *processes.Presence {
			p, err := processes.Appear(ctx, s, processes.Process{Name: name, NewestSchema: 1}, nil)
			require.NoError(t, err)
			return p
		}
		one, two := appear(east, "one"), appear(west, "two")
		require.ElementsMatch(t, []string{"one", "two"}, names(t, east))
		near, err := processes.Near(ctx, east)
		require.NoError(t, err)
		require.Len(t, near, 1)
		_, err = processes.List(ctx, site{Rows: east.Rows, all: all, away: true})
		require.ErrorIs(t, err, store.Unavailable)

		one.SetAdmin("http://one")
		synctest.Wait()
		for range 3 { // a living one is never silent
			time.Sleep(processes.Gone / 2)
			listed, err := processes.List(ctx, west)
			require.NoError(t, err)
			require.Len(t, listed, 2)
			for _, p := range listed {
				require.Less(t, time.Since(p.Seen), processes.Silent)
				require.Equal(t, p.Name == "one", p.Admin == "http://one")
			}
		}
		self := one.Self()
		one.Close()
		require.Equal(t, []string{"two"}, names(t, east))

		// Killed: its row stays.
		key := self.ID[:]
		partition, err := all.Partitions(ctx, store.Partition{}, 10)
		require.NoError(t, err)
		require.Len(t, partition, 1)
		require.Equal(t, processes.Bucket, partition[0].Bucket)
		at := store.Timestamp(time.Now().UnixMicro())
		row := store.Row{Key: key, Value: store.EntryCell([]byte("x")), Timestamp: at}
		require.NoError(t, east.Put(ctx, partition[0], row))
		listed, err := processes.List(ctx, east)
		require.NoError(t, err)
		require.Len(t, listed, 2)
		for _, p := range listed {
			require.Equal(t, p.ID == self.ID, p.NewestSchema < 0)
		}
		time.Sleep(processes.Gone + time.Second)
		require.Equal(t, []string{"two"}, names(t, east))

		// A day later a process that starts deletes it, and no living one.
		time.Sleep(24 * time.Hour)
		three := appear(east, "three")
		synctest.Wait()
		_, found, err := all.Get(ctx, partition[0], key)
		require.NoError(t, err)
		require.False(t, found)
		require.ElementsMatch(t, []string{"two", "three"}, names(t, east))
		two.Close()
		three.Close()
	})
}

// TestCount: a process is told how many live in its data centre: soon, and when some have come or were killed.
func TestCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		appear := func(near string) *processes.Presence {
			p, err := processes.Appear(t.Context(), s, processes.Process{DataCentre: near}, nil)
			require.NoError(t, err)
			return p
		}
		east, west := appear("east"), appear("west")
		defer east.Close()
		defer west.Close()
		var counted []int
		east.Count(func(processes int) { counted = append(counted, processes) })
		synctest.Wait()
		require.Equal(t, []int{1}, counted)
		for range 2 {
			defer appear("east").Close()
		}
		dead := processes.Process{ID: uuid.New(), DataCentre: "east"}
		value, err := json.Marshal(&dead)
		require.NoError(t, err)
		p, err := s.Partitions(t.Context(), store.Partition{}, 1)
		require.NoError(t, err)
		at := store.Timestamp(time.Now().Add(-processes.Silent).UnixMicro())
		require.NoError(t, s.Put(t.Context(), p[0], store.Row{Key: dead.ID[:], Value: store.EntryCell(value), Timestamp: at}))
		time.Sleep(6 * time.Minute)
		synctest.Wait()
		require.Equal(t, []int{1, 3}, counted)
	})
}

// TestAllHint: a process of before, or whose entry is not understood, counts for as long as it is listed.
func TestAllHint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		all := func() bool {
			t.Helper()
			yes, err := processes.AllHint(t.Context(), s)
			require.NoError(t, err)
			return yes
		}
		one, err := processes.Appear(t.Context(), s, processes.Process{Hints: true}, nil)
		require.NoError(t, err)
		defer one.Close()
		require.True(t, all())
		before, err := processes.Appear(t.Context(), s, processes.Process{}, nil)
		require.NoError(t, err)
		require.False(t, all())
		before.Close()
		require.True(t, all())
		p := store.Partition{Bucket: processes.Bucket, ID: store.PartitionID(processes.Bucket)}
		row := store.Row{Key: make([]byte, 16), Value: store.EntryCell([]byte("x")),
			Timestamp: store.Timestamp(time.Now().UnixMicro())}
		require.NoError(t, s.Put(t.Context(), p, row))
		require.False(t, all())
		time.Sleep(processes.Gone + time.Second)
		require.True(t, all())
		_, err = processes.AllHint(t.Context(), site{Rows: s, all: s, away: true})
		require.ErrorIs(t, err, store.Unavailable)
	})
}
