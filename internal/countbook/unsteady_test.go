package countbook

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/store"
)

// unsteady has two groups of buckets, each with a book of its own, as in a cluster. Calls fail at times: some before
// they were applied, and some after it.
type unsteady struct {
	groups [2]counter.Backend
	draw   *rand.Rand
	fails  float64 // the share of its calls that fail
}

func newUnsteady(draw *rand.Rand, now func() time.Time) *unsteady {
	return &unsteady{groups: [2]counter.Backend{NewMemory(now), NewMemory(now)}, draw: draw}
}

func (u *unsteady) Group(id store.BucketID) int { return int(id[0]) % 2 }

func (u *unsteady) of(p store.Partition) counter.Backend { return u.groups[u.Group(p.Bucket)] }

func (u *unsteady) do(f func() error) error {
	fails := u.draw.Float64() < u.fails
	if fails && u.draw.IntN(2) == 0 {
		return errors.New("away")
	}
	if err := f(); err != nil || !fails {
		return err
	}
	return errors.New("away after all was done")
}

func (u *unsteady) Flush(ctx context.Context, b *counter.Batch) (hints []counter.Hint, err error) {
	err = u.do(func() error {
		hints, err = u.of(b.Deltas[0].Partition).Flush(ctx, b)
		return err
	})
	return hints, err
}

func (u *unsteady) Forget(ctx context.Context, all ...store.Partition) error {
	return u.do(func() error {
		for _, p := range all {
			if err := u.of(p).Forget(ctx, p); err != nil {
				return err
			}
		}
		return nil
	})
}

func (u *unsteady) stats(t *testing.T, p store.Partition) counter.Stats {
	t.Helper()
	all, err := u.of(p).Stats(t.Context(), []store.Partition{p})
	require.NoError(t, err)
	return all[0]
}

// correct makes a partition Known, of no rows.
func (u *unsteady) correct(t *testing.T, p store.Partition, now time.Time) {
	t.Helper()
	require.NoError(t, u.of(p).Correct(t.Context(), p, &counter.Count{Started: now}))
}

// Whatever is written to however many partitions, over a backend that is away for a while: each partition either has
// all its puts or is not Known.
func TestWhatIsNotCountedIsUnknown(t *testing.T) {
	for name, most := range map[string]int{"few partitions in memory": 8, "enough": 400} {
		t.Run(name, func(t *testing.T) {
			draw := seed.New(t)
			lost := int64(0)
			for range 20 {
				lost += oneOracleRun(t, draw, most)
			}
			if most > 300 {
				require.Zero(t, lost)
			} else {
				require.Positive(t, lost)
			}
		})
	}
}

func oneOracleRun(t *testing.T, draw *rand.Rand, most int) (lost int64) {
	t.Helper()
	now := time.Unix(1e9, 0)
	clock := func() time.Time { return now }
	u := newUnsteady(draw, clock)
	r := counter.NewRecorder(u, counter.RecorderOptions{Every: -1, MaxPartitions: most, Now: clock})
	all := make([]store.Partition, 20+draw.IntN(280))
	puts := map[store.Partition]int64{}
	removed := map[store.Partition]bool{}
	for i := range all {
		all[i] = store.Partition{Bucket: store.BucketID{byte(draw.IntN(4))}, ID: store.PartitionID(uuid.New())}
		u.correct(t, all[i], now)
	}
	now = now.Add(time.Minute)
	for range 30 {
		u.fails = []float64{0, 0, 0.3, 1}[draw.IntN(4)]
		some := all[draw.IntN(len(all)):]
		for range draw.IntN(40) {
			p := some[draw.IntN(len(some))]
			if draw.IntN(100) == 0 {
				removed[p] = true
				r.Removed(p)
				continue
			}
			puts[p]++
			r.Put(p, fmt.Appendf(nil, "%d", puts[p]), 10, store.Timestamp(now.UnixMicro()))
		}
		now = now.Add(time.Duration(1+draw.IntN(600)) * time.Second)
		_ = r.Flush(t.Context())
		require.LessOrEqual(t, r.Counts().Partitions, int64(most))
	}
	u.fails = 0
	require.NoError(t, r.Close(t.Context()))
	named := map[store.Partition]bool{}
	for _, g := range u.groups {
		written, _, err := g.Written(t.Context(), 0)
		require.NoError(t, err)
		for _, p := range written {
			named[p] = true
		}
	}
	// Where a generation ended all were made unknown, without their names.
	flooded := func(p store.Partition) bool { return u.of(p).(*memory).book.Generation > 1 }
	exact := 0
	for _, p := range all {
		st := u.stats(t, p)
		switch {
		case removed[p]:
			require.False(t, st.Known)
			require.True(t, named[p] || flooded(p))
		case st.Known:
			require.Equal(t, puts[p], st.Puts, "of a partition that is Known")
			require.Equal(t, puts[p], st.Rows)
			exact++
		case !flooded(p):
			require.Positive(t, puts[p], "nothing was written to a partition that is unknown")
			require.True(t, named[p], "it is not among what was written, so nobody looks at it")
		}
	}
	if r.Counts().Lost == 0 {
		require.Equal(t, len(all), exact+len(removed))
	}
	return r.Counts().Lost
}

// Beyond the partitions whose names it keeps a recorder makes all those of their group of buckets unknown, also if it
// has never sent a batch of that group.
func TestTooManyUncountedMakeAllUnknown(t *testing.T) {
	for _, before := range []bool{false, true} {
		t.Run(fmt.Sprintf("batches were sent before: %v", before), func(t *testing.T) {
			const most = 10
			now := time.Unix(1e9, 0)
			clock := func() time.Time { return now }
			u := newUnsteady(seed.New(t), clock)
			r := counter.NewRecorder(u, counter.RecorderOptions{Every: -1, MaxPartitions: most, Now: clock})
			in := func(group byte) store.Partition {
				return store.Partition{Bucket: store.BucketID{group}, ID: store.PartitionID(uuid.New())}
			}
			quiet := []store.Partition{in(0), in(1)}
			for _, p := range quiet {
				u.correct(t, p, now)
				if before {
					r.Read(p, nil)
				}
			}
			require.NoError(t, r.Flush(t.Context()))
			for range most + 4*most {
				r.Put(in(0), []byte("k"), 1, 1)
			}
			r.Put(in(1), []byte("k"), 1, 1)
			require.Equal(t, int64(4*most+1), r.Counts().Lost)
			require.NoError(t, r.Close(t.Context()))
			require.True(t, u.stats(t, quiet[0]).Known)
			require.False(t, u.stats(t, quiet[1]).Known)
		})
	}
}
