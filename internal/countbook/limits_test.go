package countbook

import (
	"context"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/internal/keysample"
	"github.com/evenkeel/evenkeel/internal/test/race"
	"github.com/evenkeel/evenkeel/store"
)

// Each default and limit has the documented value, as far as behaviour shows it.
func TestDefaultsAndLimits(t *testing.T) {
	race.Skip(t)
	start := time.Unix(1_700_000_000, 0)
	micros := func(at time.Time) store.Timestamp { return store.Timestamp(at.UnixMicro()) }
	long := func(i, n int) []byte { return fmt.Appendf(nil, "%0*d", n, i) }
	// held returns the least and the largest number of keys in a sample to which n keys of the given length are written.
	// The least number is that behind the first keys, which fill the sample.
	held := func(n, length, first int) []int {
		s, least, most := keysample.New(), math.MaxInt, 0
		for i := range n {
			key := long(i, length)
			s.Write(keysample.Hash(key), key, 1, 1, keysample.Present)
			if most = max(most, s.N); i > first {
				least = min(least, s.N)
			}
		}
		return []int{least, most}
	}
	for _, test := range []struct {
		name string
		want any
		got  func(t *testing.T) any
	}{
		{"a book forgets clients after more than a day", []int{2, 1}, func(*testing.T) any {
			b := NewBook()
			b.Apply(&counter.Batch{Client: uuid.New(), Seq: 1}, start)
			other := uuid.New()
			b.Apply(&counter.Batch{Client: other, Seq: 1}, start.Add(24*time.Hour))
			then := len(b.clients)
			b.Apply(&counter.Batch{Client: other, Seq: 2}, start.Add(24*time.Hour+1))
			return []int{then, len(b.clients)}
		}},
		{"a sample has 224 to 256 keys when it is full", []int{224, 256}, func(*testing.T) any { return held(10_000, 8, 300) }},
		{"a sample has 512 bytes of a key, and 32 KiB", []int{512, 32 << 10}, func(*testing.T) any {
			s, most, length := keysample.New(), 0, 0
			for i := range 1_000 {
				key := append(long(i, 600), "end"...)
				s.Write(keysample.Hash(key), key, 1, 1, keysample.Present)
				most = max(most, len(s.Keys))
			}
			for _, key := range s.Present() {
				length = max(length, len(key))
			}
			return []int{length, most}
		}},
		{"a sample of long keys has 48 to 64 of them when it is full", []int{48, 64}, func(*testing.T) any {
			return held(1_000, 512, 100)
		}},
		{"a recount keeps 8 seams", 8, func(t *testing.T) any {
			var r timed
			at := 1_000_000_000
			for block := range 12 { // each seam is a smaller step of time than the one before
				at += []int{1, -1}[block%2] * (20 - block) * 1_000_000
				for i := range 1_003 {
					r.add(at, "b%02d/%05d", block, i)
				}
			}
			c, err := NewRecount(r, store.Partition{}, store.Bounds{}, RecountOptions{}).Run(t.Context())
			require.NoError(t, err)
			n := 0
			for _, q := range c.Quanta {
				if len(q.Key) == len("b00") {
					n++
				}
			}
			return n
		}},
		{"a recount reads 1,000 rows at once, and no more than stores allow", []int{1_000, store.MaxPageRows},
			func(t *testing.T) any {
				var got []int
				yield := func(_ context.Context, rows int) error { got = append(got, rows); return nil }
				for _, rows := range []int{0, store.MaxPageRows + 1} {
					_, err := NewRecount(newWorld(t, 1), store.Partition{}, store.Bounds{},
						RecountOptions{PageRows: rows, Yield: yield}).Run(t.Context())
					require.NoError(t, err)
				}
				return got
			}},
		{"a put a second before a recount is news", int64(1), func(t *testing.T) any {
			w := newWorld(t, 1)
			began := w.now.Add(10 * time.Second)
			for i, before := range []time.Duration{time.Second, time.Second + time.Microsecond} {
				w.clients[0].Put(w.p, long(i, 5), 5, micros(began.Add(-before)))
			}
			w.flush()
			w.now = began
			w.recount()
			return w.stats().Distinct
		}},
		{"the share of appends is known from 8 puts on", []float64{0, 1}, func(*testing.T) any {
			s := NewState()
			s.Apply(&counter.Delta{Puts: 7, Above: 7}, start, start)
			few := s.Stats(store.Partition{}, 1, start).AppendShare
			s.Apply(&counter.Delta{Puts: 1, Above: 1}, start, start)
			return []float64{few, s.Stats(store.Partition{}, 1, start).AppendShare}
		}},
		{"64 puts later appends weigh 1/e", 36.8, func(*testing.T) any {
			s := NewState()
			s.Apply(&counter.Delta{Puts: 1_000, Above: 1_000}, start, start)
			s.Apply(&counter.Delta{Puts: 64}, start, start)
			return math.Round(1000*s.share) / 10
		}},
		{"a tombstone weighs 1/e after ten days", int64(367), func(*testing.T) any {
			s := NewState()
			s.Apply(&counter.Delta{Deletes: 1_000}, start, start)
			return s.Stats(store.Partition{}, 1, start.Add(10*24*time.Hour)).Dead
		}},
		{"a deleted key is remembered for 10 minutes", []int{1, 0}, func(*testing.T) any {
			s := NewState()
			d := counter.Delta{Deletes: 1, Sample: noKeys()}
			keysample.Of(&d.Sample).Write(1, []byte("k"), micros(start), 0, 0)
			s.Apply(&d, start, start)
			s.Apply(&counter.Delta{Sample: noKeys()}, start, start.Add(10*time.Minute))
			then := s.sample.N
			s.Apply(&counter.Delta{Sample: noKeys()}, start, start.Add(10*time.Minute+time.Microsecond))
			return []int{then, s.sample.N}
		}},
		{"counts are remembered every 10 s for 80 s", []int64{200, 190, 120, 120, 0}, func(*testing.T) any {
			s := NewState()
			for i := range 200 { // the first of the moments is 1 s, the last one 191 s after the start
				s.Apply(&counter.Delta{Puts: 1}, start, start.Add(time.Duration(i+1)*time.Second))
			}
			var got []int64
			for _, second := range []int{200, 191, 130, 121, 120} {
				puts, _ := s.countsAt(start.Add(time.Duration(second) * time.Second))
				got = append(got, puts)
			}
			return got
		}},
		{"counts of writes are used within 2.5 standard deviations", []int64{1_146, 1_096}, func(*testing.T) any {
			var got []int64
			for _, puts := range []int64{146, 147} { // 50 and 51 more than by the sample
				s := State{puts: puts, base: baseline{rows: 1_000}, sample: keysample.Sample{Below: 1 << 62}}
				for i := range 24 { // each stands for 4
					s.sample.Set(uint64(i+1), long(i, 2), 1, 1, keysample.Present)
				}
				s.now.tally(&s.sample)
				got = append(got, s.rows())
			}
			return got
		}},
		{"200 events show a rate within a second, others within 1/60 of the constant", []float64{3.3, 201},
			func(*testing.T) any {
				var got []float64
				for _, n := range []float64{199, 201} {
					var r rate
					r.add(n, 0, start, time.Hour)
					got = append(got, math.Round(10*r.get(start, time.Hour))/10)
				}
				return got
			}},
		{"a clock that is back by more than 10 s was set", []time.Duration{0, -10*time.Second - time.Millisecond},
			func(*testing.T) any {
				var got []time.Duration
				for _, back := range []time.Duration{10 * time.Second, 10*time.Second + time.Millisecond} {
					var r rate
					r.add(1, 0, start, fast)
					r.add(1, 0, start.Add(-back), fast)
					got = append(got, time.UnixMilli(r.at).Sub(start))
				}
				return got
			}},
		{"rates are those of a minute, and of an hour", []float64{0.37, 0.37}, func(*testing.T) any {
			s := NewState()
			d := counter.Delta{Puts: 1_000_000, Sample: noKeys(), Blind: true}
			s.Apply(&d, start, start)
			later := func(r rate, constant, by time.Duration) float64 {
				share := r.perS * decay(by.Milliseconds(), constant) / (1_000_000 / by.Seconds())
				return math.Round(100*share) / 100
			}
			return []float64{later(s.putRate, fast, time.Minute), later(s.growth, slow, time.Hour)}
		}},
	} {
		t.Run(test.name, func(t *testing.T) { require.Equal(t, test.want, test.got(t)) })
	}
}

// A deletion that is heard of after a recount counts if it is newer than the row that the recount has read, however far
// the clock of its client is behind; of a row without a time the recount proves that it was there when it began.
func TestADeletionAfterARecount(t *testing.T) {
	start := time.Unix(1_700_000_000, 0)
	at := func(d time.Duration) int { return int(start.Add(d).UnixMicro()) }
	for _, c := range []struct{ put, deleted, rows int }{
		{at(-time.Hour), at(-time.Minute), 2}, {at(-time.Hour), at(-2 * time.Hour), 3}, {0, at(-time.Minute), 3},
		{0, at(-time.Second), 2}, {0, at(-time.Second) - 2, 3}, {at(0), at(0), 2},
	} {
		var r timed
		for i := range 3 {
			r.add(c.put, "%d", i)
		}
		now := func() time.Time { return start }
		count, err := NewRecount(r, store.Partition{}, store.Bounds{}, RecountOptions{Now: now}).Run(t.Context())
		require.NoError(t, err)
		s, d := NewState(), counter.Delta{Deletes: 1, Sample: noKeys()}
		s.Correct(count, 1)
		keysample.Of(&d.Sample).Write(keysample.Hash([]byte("1")), []byte("1"), store.Timestamp(c.deleted), 0, 0)
		s.Apply(&d, start, start.Add(time.Second))
		require.EqualValues(t, c.rows, s.Stats(store.Partition{}, 1, start).Rows, "%v", c)
	}
}
