package scheduler_test

import (
	"encoding/binary"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/keytext"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/mapcodec"
	"github.com/evenkeel/evenkeel/internal/rebalance/move"
	"github.com/evenkeel/evenkeel/internal/rebalance/scheduler"
	"github.com/evenkeel/evenkeel/internal/storekit"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// Names that keep a case of a table on one line.
type ask = scheduler.Ask

const invalid = store.InvalidArgument

func refreshAll(f *fixture, id store.BucketID) move.Goal {
	rg := f.ranges(id)[0]
	return move.Refresh(&rg)
}

func bs(keys ...string) (out [][]byte) {
	for _, k := range keys {
		out = append(out, []byte(k))
	}
	return out
}

func spans(bounds ...string) (out []keytext.Span) {
	for i := 0; i < len(bounds); i += 2 {
		out = append(out, keytext.Span{Start: []byte(bounds[i]), End: []byte(bounds[i+1])})
	}
	return out
}

// What does not fit is refused, says why, and changes nothing.
func TestBadAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memstore.New(), 1, 100) // key-00000 to key-00099
		id := f.ids[0]
		g := scheduler.New(f.s, mapclient.Of(f.c), scheduler.Options{})
		end := runs(t, g)
		f.finished(g, f.ask(g, id, ask{Kind: scheduler.Presplit, Keys: bs("b", "c", "key-00010", "key-00011", "key-00050")}).ID)
		f.finished(g, f.ask(g, id, ask{Kind: scheduler.Presplit, Keys: bs("p"), PinUntil: time.Now().Add(time.Hour)}).ID)
		time.Sleep(time.Second)
		root, err := mapclient.Of(f.c).Load(t.Context(), id)
		require.NoError(t, err)
		long := make([]byte, store.MaxKeyBytes+1)
		for _, c := range []struct {
			name string
			ask  scheduler.Ask
			kind store.Kind
			says string
		}{
			{"split at the empty key", ask{Kind: scheduler.Split, Keys: bs("")}, invalid, "outside the bucket"},
			{"split at a key too long",
				ask{Kind: scheduler.Split, Keys: [][]byte{long}}, invalid, "outside the bucket"},
			{"split at nothing", ask{Kind: scheduler.Split}, invalid, "needs a key"},
			{"split of a range with one key",
				ask{Kind: scheduler.Split, Keys: bs("key-00010a")}, invalid, "one key only"},
			{"presplit out of order", ask{Kind: scheduler.Presplit, Keys: bs("x", "w")}, invalid, "cuts ascend"},
			{"presplit with a repetition", ask{Kind: scheduler.Presplit, Keys: bs("x", "x")}, invalid, "repeats"},
			{"presplit at the empty key",
				ask{Kind: scheduler.Presplit, Keys: bs("", "x")}, invalid, "outside the bucket"},
			{"presplit at nothing", ask{Kind: scheduler.Presplit}, invalid, "needs a cut"},
			{"merge of nothing", ask{Kind: scheduler.Merge}, invalid, "needs a range"},
			{"merge from no cut", ask{Kind: scheduler.Merge, Spans: spans("a", "c")}, invalid, "not cut at a"},
			{"merge to no cut", ask{Kind: scheduler.Merge, Spans: spans("b", "d")}, invalid, "not cut at d"},
			{"merge backwards", ask{Kind: scheduler.Merge, Spans: spans("c", "b")}, invalid, "ends before it begins"},
			{"merge of what lies apart",
				ask{Kind: scheduler.Merge, Spans: spans("", "b", "c", "key-00010")}, invalid, "not neighbours"},
			{"merge of what overlaps",
				ask{Kind: scheduler.Merge, Spans: spans("", "c", "b", "key-00010")}, invalid, "not neighbours"},
			{"merge past the limit",
				ask{Kind: scheduler.Merge, Spans: spans("c", "key-00050"), MaxRows: 20}, invalid, "more than max_rows"},
			{"merge across a pin", ask{Kind: scheduler.Merge, Spans: spans("key-00050", "")}, invalid, "pinned until"},
			{"refresh of no range", ask{Kind: scheduler.Refresh, Spans: spans("b", "bb")}, invalid, "not cut at bb"},
			{"nonsense", ask{Kind: "dance"}, invalid, "dance"},
		} {
			_, err := g.Plan(t.Context(), id, c.ask)
			require.ErrorIs(t, err, c.kind, c.name)
			require.ErrorContains(t, err, c.says, c.name)
		}
		_, err = g.Plan(t.Context(), store.BucketID{1}, ask{Kind: scheduler.Refresh})
		require.ErrorIs(t, err, store.NotFound)

		for _, c := range []struct {
			name string
			ask  scheduler.Ask
			says string
		}{
			{"split at a cut",
				ask{Kind: scheduler.Split, Keys: bs("key-00050")}, "there is a cut at key-00050 already"},
			{"split right behind a cut",
				ask{Kind: scheduler.Split, Keys: bs("key-00011")}, "there is a cut at key-00011 already"},
			{"split where no key is below", ask{Kind: scheduler.Split, Keys: bs("key-00050")}, "already"},
			{"merge of one", ask{Kind: scheduler.Merge, Spans: spans("b", "c")}, "one range already"},
			{"presplit at a cut",
				ask{Kind: scheduler.Presplit, Keys: bs("b", "c")}, "a cut is there already at b and at 1 others"},
		} {
			p, err := g.Plan(t.Context(), id, c.ask)
			require.NoError(t, err, c.name)
			require.Empty(t, p.Moves, c.name)
			require.Len(t, p.Notes, 1, c.name)
			require.Contains(t, p.Notes[0], c.says, c.name)
			require.False(t, g.Submit(id, c.name, p).Ended.IsZero(), "there is nothing to do")
		}
		now, err := mapclient.Of(f.c).Load(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, root.Version(), now.Version(), "nothing was changed")

		p, err := g.Plan(t.Context(), id, ask{Kind: scheduler.Merge, Spans: spans("c", "key-00050"), MaxRows: 20, Force: true})
		require.NoError(t, err)
		require.EqualValues(t, 50, p.Moves[0].Rows)
		end()
	})
}

// A split keeps the largest part where it is, cuts by the shortest separators, and
// asked for again does nothing.
func TestSplitsAreShortAndOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memstore.New(), 1, 100)
		id := f.ids[0]
		g := scheduler.New(f.s, mapclient.Of(f.c), scheduler.Options{})
		end := runs(t, g)
		ask := scheduler.Ask{Kind: scheduler.Split, Keys: bs("key-00010x", "key-00030", "key-00029x", "z")}
		p, err := g.Plan(t.Context(), id, ask)
		require.NoError(t, err)
		require.Len(t, p.Moves, 1)
		require.EqualValues(t, 100, p.Moves[0].Rows)
		require.EqualValues(t, 11+19, p.Moves[0].Copies)
		require.Equal(t, 2, p.Moves[0].Stay)
		require.Len(t, p.Notes, 1, "no key lies between key-00029x and key-00030")
		home := f.ranges(id)[0].Partition
		j := f.finished(g, g.Submit(id, "split", p).ID)
		require.NoError(t, j.Err())
		require.Equal(t, []string{"key-00010x", "key-00029x", "z"}, f.cuts(id))
		require.Equal(t, home, f.ranges(id)[2].Partition)
		time.Sleep(time.Second)

		p, err = g.Plan(t.Context(), id, ask)
		require.NoError(t, err)
		require.Empty(t, p.Moves)
		end()
	})
}

func TestNothingIsPlannedOnARangeThatMoves(t *testing.T) {
	f := newFixture(t, memstore.New(), 1, 100)
	id := f.ids[0]
	root, err := mapclient.Of(f.c).Load(t.Context(), id)
	require.NoError(t, err)
	edit := mapclient.Of(f.c).Edit(t.Context(), root)
	_, err = edit.Begin(partmap.Move{Parts: []partmap.Part{{To: store.PartitionID{1}}}})
	require.NoError(t, err)
	change, err := edit.Change()
	require.NoError(t, err)
	require.NoError(t, mapclient.Of(f.c).Swap(t.Context(), change))
	g := scheduler.New(f.s, mapclient.Of(f.c), scheduler.Options{})
	for _, a := range []ask{
		{Kind: scheduler.Split, Keys: bs("m")}, {Kind: scheduler.Presplit, Keys: bs("m")}, {Kind: scheduler.Refresh},
	} {
		_, err := g.Plan(t.Context(), id, a)
		require.ErrorIs(t, err, store.Conflict)
		require.ErrorContains(t, err, "moves at present")
	}
}

// A map that a newer program has written is refused, and left alone.
func TestAMapFromANewerVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		f := newFixture(t, s, 1, 1)
		id := f.ids[0]
		rec, err := s.Read(t.Context(), store.Roots, id[:], store.Serial)
		require.NoError(t, err)
		rec.Blob[3] += 100 // the version of the encoding
		version := store.Version{Epoch: rec.Epoch + 1, Token: storekit.NewToken()}
		next := store.Record{Version: version, Blob: reseal(rec.Blob)}
		require.NoError(t, s.Swap(t.Context(), store.Roots, id[:], rec.Version, next))
		g := scheduler.New(s, mapclient.Of(f.c), scheduler.Options{})
		end := runs(t, g)
		_, err = g.Plan(t.Context(), id, ask{Kind: scheduler.Refresh})
		require.ErrorIs(t, err, mapcodec.ErrNewerVersion)
		j := g.Submit(id, "refresh", &scheduler.Plan{Bucket: id, Moves: []move.Goal{{Leave: store.PartitionID{1}, Stay: -1}}})
		require.True(t, errors.Is(f.finished(g, j.ID).Err(), mapcodec.ErrNewerVersion))
		time.Sleep(time.Hour)
		now, err := s.Read(t.Context(), store.Roots, id[:], store.Serial)
		require.NoError(t, err)
		require.Equal(t, next, now)
		end()
	})
}

// reseal makes the checksum of an encoded part of a map right again.
func reseal(blob []byte) []byte {
	n := len(blob) - 8
	return binary.LittleEndian.AppendUint64(blob[:n:n], xxhash.Sum64(blob[:n]))
}
