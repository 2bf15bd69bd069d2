package counter

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/keysample"
	"github.com/evenkeel/evenkeel/internal/test/race"
	"github.com/evenkeel/evenkeel/store"
)

// flushes notes how a recorder calls its backend.
type flushes struct {
	batches []*Batch
	at      []time.Time
	timeout time.Duration
}

func (f *flushes) Flush(ctx context.Context, b *Batch) ([]Hint, error) {
	f.batches, f.at = append(f.batches, b), append(f.at, time.Now())
	if end, ok := ctx.Deadline(); ok {
		f.timeout = time.Until(end)
	}
	return nil, nil
}

// A put is an append if it is above the keys of 512 puts before at most 1,024 ones.
func TestAppendsSideBySide(t *testing.T) {
	f := &flushes{}
	r := NewRecorder(f, RecorderOptions{Every: -1})
	p := store.Partition{}
	for i := range 2 * 512 {
		r.Put(p, fmt.Appendf(nil, "%05d", 10_000+i), 1, 1)
	}
	above := func() int64 {
		s := r.shard(p.ID)
		return s.all[p.ID].Above
	}
	before := above()
	r.Put(p, []byte("10511"), 1, 1) // the highest of the first 512
	require.Equal(t, before, above())
	r.Put(p, []byte("10512"), 1, 1)
	require.Equal(t, before+1, above())
}

func (*flushes) Forget(context.Context, ...store.Partition) error { return nil }

// TestLimitsOfARecorder: each default and limit has the documented value, as far as behaviour shows it.
func TestLimitsOfARecorder(t *testing.T) {
	race.Skip(t)
	start := time.Unix(1_700_000_000, 0)
	long := func(i, n int) []byte { return fmt.Appendf(nil, "%0*d", n, i) }
	flush := func(t *testing.T, r *Recorder) { require.NoError(t, r.Flush(t.Context())) }
	manual := func(to Flusher, now *time.Time) *Recorder {
		return NewRecorder(to, RecorderOptions{Every: -1, Now: func() time.Time { return *now }})
	}
	for _, test := range []struct {
		name string
		want any
		got  func(t *testing.T) any
	}{
		{"a recorder flushes once a second, for 5 s at most", []time.Duration{time.Second, 5 * time.Second},
			func(t *testing.T) any {
				var got []time.Duration
				synctest.Test(t, func(t *testing.T) {
					f, begun := &flushes{}, time.Now()
					r := NewRecorder(f, RecorderOptions{})
					r.Read(store.Partition{}, nil)
					time.Sleep(10 * time.Second)
					require.NoError(t, r.Close(t.Context()))
					got = []time.Duration{f.at[0].Sub(begun), f.timeout}
				})
				return got
			}},
		{"a recorder has 65,536 partitions", []int64{65_536, 1}, func(t *testing.T) any {
			r := manual(&flushes{}, &start)
			for _, p := range partitions(65_537) {
				r.Read(p, nil)
			}
			return []int64{r.Counts().Partitions, r.Counts().Lost}
		}},
		{"a recorder samples keys of 64 MiB", int64(64), func(t *testing.T) any {
			r := manual(&flushes{}, &start)
			for _, p := range partitions(3_000) {
				for i := range 60 {
					if r.Put(p, long(i, keysample.MaxSampledKey), 1, 1); r.Counts().Blind > 0 {
						return r.bytes.Load() >> 20
					}
				}
			}
			return nil
		}},
		{"a batch ends above 256 KiB", 413, func(t *testing.T) any { // deltas of 100 + 512 + 24 bytes
			f := &flushes{}
			r := manual(f, &start)
			for _, p := range partitions(2_000) {
				r.Put(p, long(1, 512), 1, 1)
			}
			flush(t, r)
			return len(f.batches[0].Deltas)
		}},
		{"a batch names 2,000 partitions that were not counted", []int{2000, 1}, func(t *testing.T) any {
			f := &flushes{}
			r := NewRecorder(f, RecorderOptions{Every: -1, MaxPartitions: 2001})
			for _, p := range partitions(2 * 2001) {
				r.Put(p, nil, 1, 1)
			}
			flush(t, r)
			last := f.batches[len(f.batches)-2:]
			return []int{len(last[0].Deltas), len(last[1].Deltas)}
		}},
		{"a partition without writes is dropped after 600 flushes", []int64{1, 0}, func(t *testing.T) any {
			r := manual(&flushes{}, &start)
			for range 599 {
				flush(t, r)
			}
			r.Read(store.Partition{}, nil)
			flush(t, r)
			for range 599 {
				flush(t, r)
			}
			before := r.Counts().Partitions
			flush(t, r)
			return []int64{before, r.Counts().Partitions}
		}},
		{"a recorder has a new id after more than an hour", []bool{true, false}, func(t *testing.T) any {
			f, now := &flushes{}, start
			r := manual(f, &now)
			for _, later := range []time.Duration{0, time.Hour, time.Hour + 1} {
				now = now.Add(later)
				r.Read(store.Partition{}, nil)
				flush(t, r)
			}
			id := func(i int) uuid.UUID { return f.batches[i].Client }
			return []bool{id(0) == id(1), id(1) == id(2)}
		}},
		{"the highest key has 1,024 bytes", 1024, func(t *testing.T) any {
			f := &flushes{}
			r := manual(f, &start)
			r.Put(store.Partition{}, long(1, 2_000), 1, 1)
			flush(t, r)
			return len(f.batches[0].Deltas[0].Top)
		}},
	} {
		t.Run(test.name, func(t *testing.T) { require.Equal(t, test.want, test.got(t)) })
	}
}
