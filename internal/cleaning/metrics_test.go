package cleaning_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/care"
	"github.com/evenkeel/evenkeel/internal/cleaning"
	"github.com/evenkeel/evenkeel/internal/rebalance/leader"
	"github.com/evenkeel/evenkeel/internal/rebalance/pause"
	"github.com/evenkeel/evenkeel/store"
)

// scrape returns the values of all metrics, by their names without the prefix and by their labels.
func scrape(t *testing.T, c *cleaning.Cleaning) map[string]float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(c))
	families, err := registry.Gather()
	require.NoError(t, err)
	all := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := strings.TrimPrefix(f.GetName(), "evenkeel_objects_")
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			all[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return all
}

// TestMetricsAndStatusOfRounds: what rounds have done, of one process that cleans all, and of shards of a shared store
// together.
func TestMetricsAndStatusOfRounds(t *testing.T) {
	for name, elect := range map[string]*leader.Options{"embedded": nil, "shared": {Name: "a"}} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.every = time.Hour
			begin := time.Now()
			c, stop := w.run(elect)
			defer stop()
			time.Sleep(20 * time.Minute)
			s, got := c.Status(t.Context()), scrape(t, c)
			age := got["cleaner_round_age_seconds"]
			require.InDelta(t, 19*60, age, 30, name)
			delete(got, "cleaner_round_age_seconds")
			want := map[string]float64{
				"audit_bodies_total": 0, "audit_rows_total": 0, "scrubbed_total": 0,
				"cleaned_total expired": 0, "cleaned_total finished": 0, "cleaned_total lapsed": 0, "cleaned_total proven": 0,
				"cleaned_total superseded": 2, "cleaned_total unmarked": 0, "cleaned_total uploads_ended": 0,
				"cleaned_total uploads_freed": 0, "cleaner_deleted_bytes_total": 0, "cleaner_leading": 1,
				"cleaner_paused": 0, "cleaner_rounds_total": 1, "cleaner_rows_total": 4, "cleaner_shards": 16,
			}
			require.Equal(t, want, got, name)
			require.WithinRange(t, s.Since, begin, begin.Add(time.Minute), name)
			require.WithinRange(t, s.Last.Began, begin.Add(time.Minute), begin.Add(2*time.Minute))
			require.WithinRange(t, s.Last.Ended, s.Last.Began, begin.Add(2*time.Minute))
			round := *s.Last
			round.Began, round.Ended = time.Time{}, time.Time{}
			require.Equal(t, cleaning.Round{Buckets: 2, Rows: 4, Burned: 2, Remembered: 2}, round, name)
			require.Nil(t, s.Now)
			require.False(t, s.Paused)
			require.Len(t, s.Shards, 16)

			if elect != nil {
				return
			}
			time.Sleep(15 * 24 * time.Hour)
			got = scrape(t, c)
			require.Equal(t, []float64{2, 2, 8, 15*24 + 1}, []float64{
				got["cleaned_total superseded"], got["cleaned_total finished"], got["cleaner_deleted_bytes_total"],
				got["cleaner_rounds_total"]})
			stop()
			got = scrape(t, c)
			require.NotContains(t, got, "cleaner_round_age_seconds", "it does not clean any more")
		})
	}
}

// TestMetricsOfAPause: rounds that leave buckets out are none, and their age grows; a bucket that is cleaned beside is
// counted.
func TestMetricsOfAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.every = time.Hour
		id, err := w.c.BucketID(t.Context(), "photos")
		require.NoError(t, err)
		now := time.Now()
		_, _, err = pause.Set(t.Context(), w.s, &id, pause.Pause{Since: now, Until: now.Add(5 * time.Hour)}, now)
		require.NoError(t, err)
		c, stop := w.run(nil)
		time.Sleep(4 * time.Hour)
		s, got := c.Status(t.Context()), scrape(t, c)
		require.True(t, s.Paused)
		require.Nil(t, s.Last)
		require.Equal(t, []float64{1, 0, 1, 4 * 60 * 60}, []float64{
			got["cleaner_paused"], got["cleaner_rounds_total"], got["cleaned_total superseded"],
			got["cleaner_round_age_seconds"]})
		time.Sleep(4 * time.Hour)
		s, got = c.Status(t.Context()), scrape(t, c)
		require.False(t, s.Paused)
		require.Equal(t, []float64{0, 2}, []float64{got["cleaner_paused"], got["cleaned_total superseded"]})
		require.EqualValues(t, 2, s.Last.Buckets)
		require.Less(t, got["cleaner_round_age_seconds"], 3601.0)
		stop()
		require.Equal(t, 1, strings.Count(w.lines.String(), "buckets of objects are not cleaned while moves are paused"))
	})
}

// TestTheOldestRoundCounts: of shards of which one could not be cleaned lately the status has the times of its round.
func TestTheOldestRoundCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.every = time.Hour
		id, err := w.c.BucketID(t.Context(), "photos")
		require.NoError(t, err)
		begin := time.Now()
		c, stop := w.run(&leader.Options{Name: "a"})
		defer stop()
		time.Sleep(90 * time.Minute)
		now := time.Now()
		_, _, err = pause.Set(t.Context(), w.s, &id, pause.Pause{Since: now, Until: now.Add(3 * time.Hour)}, now)
		require.NoError(t, err)
		time.Sleep(150 * time.Minute)
		s := c.Status(t.Context())
		require.True(t, s.Paused)
		for _, at := range []time.Time{s.Last.Began, s.Last.Ended} {
			require.WithinRange(t, at, begin.Add(time.Hour), begin.Add(90*time.Minute))
		}
		require.InDelta(t, (3 * time.Hour).Seconds(), scrape(t, c)["cleaner_round_age_seconds"], 300)
		time.Sleep(2 * time.Hour)
		s = c.Status(t.Context())
		require.False(t, s.Paused)
		require.Less(t, time.Since(s.Last.Began), time.Hour+time.Minute)
	})
}

// silent are registers that do not answer for a time.
type silent struct {
	store.Registers
	away atomic.Bool
}

func (s *silent) Read(ctx context.Context, t store.Table, key []byte, l store.Level) (store.Record, error) {
	if s.away.Load() {
		return store.Record{}, store.Errorf(store.Unavailable, "the registers are away")
	}
	return s.Registers.Read(ctx, t, key, l)
}

// TestWorkEndsWhereAPauseCannotBeSeen: while it is not known whether moves are paused, nothing is begun; what is under
// way goes on for a minute.
func TestWorkEndsWhereAPauseCannotBeSeen(t *testing.T) {
	for _, c := range []struct {
		away time.Duration
		ends bool
	}{{30 * time.Second, false}, {90 * time.Second, true}} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.every, w.rate = time.Hour, 5
			w.large("photos")
			regs := &silent{Registers: w.s}
			w.regs = regs
			cleaner, stop := w.run(nil)
			defer stop()
			time.Sleep(70 * time.Second) // a round is under way for many minutes
			regs.away.Store(true)
			time.Sleep(c.away)
			regs.away.Store(false)
			time.Sleep(time.Second)
			got := scrape(t, cleaner)
			if c.ends {
				require.Equal(t, 1.0, got["cleaner_failures_total unavailable"])
				require.Nil(t, cleaner.Status(t.Context()).Now)
				require.Contains(t, w.lines.String(), "clean bucket photos")
			} else {
				require.NotContains(t, got, "cleaner_failures_total unavailable")
				require.NotNil(t, cleaner.Status(t.Context()).Now)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		regs := &silent{Registers: w.s}
		regs.away.Store(true)
		w.regs = regs
		c, stop := w.run(nil)
		defer stop()
		time.Sleep(90 * time.Second)
		require.Equal(t, untouched, w.ranks("photos"), "nothing is begun")
		require.Positive(t, scrape(t, c)["cleaner_failures_total unavailable"])
		require.Nil(t, c.Status(t.Context()).Last)
	})
}

// TestMetricsOfHints: what was written and followed, and nothing without hints.
func TestMetricsOfHints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHinted(t)
		c, stop := h.run(nil)
		defer stop()
		time.Sleep(3 * time.Hour)
		names := []string{
			"cleaner_hinted_total", "cleaner_overdue_total", "hints_written_total", "hints_dropped_total",
		}
		values := func() (out []float64) {
			got := scrape(t, c)
			for _, name := range names {
				require.Contains(t, got, name)
				out = append(out, got[name])
			}
			return out
		}
		require.Equal(t, []float64{0, 0, 0, 0}, values())
		for range 3 {
			h.put(h.b, "key")
		}
		h.put(h.b, "another")
		time.Sleep(3 * time.Hour)
		first := values()
		require.Positive(t, first[2])
		require.GreaterOrEqual(t, first[0], 2.0)
		time.Sleep(30 * 24 * time.Hour)
		last := values()
		require.Greater(t, last[0], first[0], "what is due later is looked at again")
		require.Equal(t, []float64{0, 0}, []float64{last[1], last[3]})
		counts := h.world.hints.Counts()
		require.Equal(t, []float64{float64(counts.Written), float64(counts.Dropped)}, []float64{last[2], last[3]})
		require.Equal(t, 2, h.stored())
	})
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		c, stop := w.run(nil)
		defer stop()
		for name := range scrape(t, c) {
			require.NotContains(t, name, "hint")
			require.NotContains(t, name, "overdue")
		}
	})
}

// TestHintsThatCannotBeFollowed: the failure is counted, and they are followed later.
func TestHintsThatCannotBeFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHinted(t)
		c, stop := h.run(nil)
		defer stop()
		time.Sleep(3*time.Hour + time.Minute)
		h.put(h.b, "key")
		h.put(h.b, "key")
		require.NoError(t, h.world.hints.Flush(t.Context()))
		h.s.away.Store(true)
		time.Sleep(5 * time.Hour)
		got := scrape(t, c)
		require.InDelta(t, 5, got["cleaner_failures_total unavailable"], 1, "once an hour")
		require.Zero(t, got["cleaner_hinted_total"])
		require.Greater(t, got["cleaner_round_age_seconds"], 4*60*60.0)
		h.s.away.Store(false)
		time.Sleep(3 * time.Hour)
		require.Positive(t, scrape(t, c)["cleaner_hinted_total"])
		require.Less(t, scrape(t, c)["cleaner_round_age_seconds"], 3700.0)
	})
}

// TestPartsOfAnAuditAddUp: each number of the parts is in the sum.
func TestPartsOfAnAuditAddUp(t *testing.T) {
	var sum cleaning.Compared
	for range 3 {
		sum.Take(&care.Audited{
			Rows: 1, Blobs: 2, Findings: make([]care.Finding, 3), InUse: 4, Waiting: 5, Young: 6, Unjudged: 7, Checked: 8,
			Unchecked: 9,
		})
	}
	require.Equal(t, cleaning.Compared{
		Rows: 3, Blobs: 6, Problems: 9, InUse: 12, Waiting: 15, Young: 18, Unjudged: 21, Checked: 24, Unchecked: 27,
	}, sum)
}
