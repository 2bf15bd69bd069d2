package pebblestore

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/store"
)

func newPartition() store.Partition {
	return store.Partition{Bucket: store.BucketID(uuid.New()), ID: store.PartitionID(uuid.New())}
}

func row(key, value string, ts store.Timestamp) store.Row {
	return store.Row{Key: []byte(key), Value: []byte(value), Timestamp: ts}
}

func openMem(t testing.TB, fs vfs.FS, o Options) *directory {
	o.fs = fs
	if o.MemTableBytes == 0 {
		o.MemTableBytes = 1 << 20
	}
	s, err := openDirectory("data", o)
	require.NoError(t, err)
	return s
}

// A clock is a wall clock that tests set.
type clock struct{ now time.Time }

func newClock() *clock { return &clock{now: time.Unix(1_700_000_000, 0)} }

func (c *clock) read() time.Time { return c.now }

// An oracle is the contract put as plainly as possible: the list of all writes.
type oracle struct {
	puts    []store.Row
	deletes []store.Row // key and timestamp
	removes []struct {
		b  store.Bounds
		ts store.Timestamp
	}
}

func (o *oracle) visible() []store.Row {
	best := map[string]store.Row{}
	for _, r := range o.puts {
		b, ok := best[string(r.Key)]
		if !ok || r.Timestamp > b.Timestamp || r.Timestamp == b.Timestamp && bytes.Compare(r.Value, b.Value) > 0 {
			best[string(r.Key)] = r
		}
	}
	rows := []store.Row{}
	for _, r := range best {
		hidden := false
		for _, d := range o.deletes {
			hidden = hidden || bytes.Equal(d.Key, r.Key) && d.Timestamp >= r.Timestamp
		}
		for _, d := range o.removes {
			in := bytes.Compare(r.Key, d.b.Start) >= 0 && (len(d.b.End) == 0 || bytes.Compare(r.Key, d.b.End) < 0)
			if d.b.StartExclusive && len(d.b.Start) > 0 && bytes.Equal(r.Key, d.b.Start) {
				in = false
			}
			hidden = hidden || in && d.ts >= r.Timestamp
		}
		if !hidden {
			rows = append(rows, r)
		}
	}
	slices.SortFunc(rows, func(a, b store.Row) int { return bytes.Compare(a.Key, b.Key) })
	return rows
}

// content reads a partition to its end.
func content(t testing.TB, s *directory, p store.Partition) []store.Row {
	t.Helper()
	rows := []store.Row{}
	b := store.Bounds{}
	for {
		page, err := s.Slice(context.Background(), p, b, store.SliceOptions{Limit: 3, Timestamps: true})
		require.NoError(t, err)
		rows = append(rows, page.Rows...)
		if !page.More {
			return rows
		}
		b = store.Bounds{Start: page.Rows[len(page.Rows)-1].Key, StartExclusive: true}
	}
}

// TestModel applies random writes that meet and tie, with power losses, clean
// restarts, flushes and collections in between, and compares with the oracle
// after each. No time passes, so every tombstone is within its grace.
func TestModel(t *testing.T) {
	r := seed.New(t)
	clock := newClock()
	for range 30 {
		fs := vfs.NewCrashableMem()
		s := openMem(t, fs, Options{now: clock.read})
		s.newest.step = 1
		ps := []store.Partition{newPartition(), newPartition()}
		want := make([]oracle, len(ps))
		key := func() []byte { return fmt.Appendf(nil, "k%02d", r.IntN(12)) }
		ts := func() store.Timestamp { return store.Timestamp(1 + r.IntN(8)) }
		var history []string
		for range 60 {
			n := r.IntN(len(ps))
			p, o := ps[n], &want[n]
			switch d := r.IntN(100); {
			case d < 40:
				rows := make([]store.Row, 1+r.IntN(4))
				if r.IntN(4) == 0 {
					rows = make([]store.Row, wideRows+r.IntN(30))
				}
				for i := range rows {
					rows[i] = store.Row{Key: key(), Value: fmt.Appendf(nil, "v%d", r.IntN(4)), Timestamp: ts()}
				}
				history = append(history, fmt.Sprintf("%d: put %v", n, rows))
				require.NoError(t, s.Put(t.Context(), p, rows...))
				o.puts = append(o.puts, rows...)
			case d < 65:
				k := store.Row{Key: key(), Timestamp: ts()}
				history = append(history, fmt.Sprintf("%d: delete %q@%d", n, k.Key, k.Timestamp))
				require.NoError(t, s.Delete(t.Context(), p, k.Key, k.Timestamp))
				o.deletes = append(o.deletes, k)
			case d < 75:
				b := store.Bounds{Start: key(), StartExclusive: r.IntN(2) == 0, End: key()}
				if bytes.Compare(b.Start, b.End) > 0 {
					b.Start, b.End = b.End, b.Start
				}
				switch r.IntN(5) {
				case 0:
					b = store.Bounds{}
				case 1:
					b.Start = nil
				case 2:
					b.End = nil
				}
				at := ts()
				history = append(history, fmt.Sprintf("%d: remove %v at %d", n, b, at))
				require.NoError(t, s.Remove(t.Context(), p, b, at))
				o.removes = append(o.removes, struct {
					b  store.Bounds
					ts store.Timestamp
				}{b, at})
			case d < 82:
				history = append(history, "crash")
				fs = fs.CrashClone(vfs.CrashCloneCfg{
					UnsyncedDataPercent: r.IntN(101), RNG: rand.New(rand.NewPCG(r.Uint64(), 1)),
				})
				require.NoError(t, s.Close())
				s = openMem(t, fs, Options{now: clock.read})
				s.newest.step = 1
			case d < 86:
				history = append(history, "reopen")
				require.NoError(t, s.Close())
				s = openMem(t, fs, Options{now: clock.read})
				s.newest.step = 1
			case d < 90:
				history = append(history, "flush")
				require.NoError(t, s.db.Flush())
			case d < 94:
				history = append(history, "collect")
				require.NoError(t, s.collect(100))
			}
			for i := range ps {
				require.Equal(t, want[i].visible(), content(t, s, ps[i]), "partition %d after\n%s", i, history)
			}
		}
		require.NoError(t, s.Close())
	}
}
