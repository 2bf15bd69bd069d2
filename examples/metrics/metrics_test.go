package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

const day = 24 * time.Hour

var start = time.Date(2026, 2, 25, 0, 0, 0, 0, time.UTC)

func newMetrics(t *testing.T, st store.Store) *Metrics {
	t.Helper()
	c, err := listing.New(st, listing.Options{})
	require.NoError(t, err)
	m, err := NewMetrics(t.Context(), c)
	require.NoError(t, err)
	return m
}

func collect(t *testing.T, samples iter.Seq2[Sample, error]) (out []Sample) {
	t.Helper()
	for s, err := range samples {
		require.NoError(t, err)
		out = append(out, s)
	}
	return out
}

// oracle has each sample that was added, by series and time.
type oracle map[string]map[time.Time]float64

func (o oracle) add(samples ...Sample) {
	for _, s := range samples {
		if o[s.Series] == nil {
			o[s.Series] = map[time.Time]float64{}
		}
		o[s.Series][s.At] = s.Value
	}
}

// scan returns what a scan has to find if slices before first have been dropped.
func (o oracle) scan(series string, from, to time.Time, first Slice) (out []Sample) {
	for at, value := range o[series] {
		if !at.Before(from) && at.Before(to) && sliceOf(at) >= first {
			out = append(out, Sample{series, at, value})
		}
	}
	slices.SortFunc(out, func(a, b Sample) int { return a.At.Compare(b.At) })
	return out
}

// slice returns all samples of a slice in order.
func (o oracle) slice(s Slice) (out []Sample) {
	for _, series := range slices.Sorted(maps.Keys(o)) {
		out = append(out, o.scan(series, s.Begin(), (s+1).Begin(), s)...)
	}
	return out
}

// someSamples are of the day before now, as far as that takes samples.
func someSamples(rnd *rand.Rand, now time.Time) []Sample {
	names := []string{"a", "ab", "a\x00", "", "ä", "\xff"}
	out := make([]Sample, 1+rnd.IntN(60))
	for i := range out {
		at := now.Add(-time.Duration(rnd.IntN(int(day/time.Microsecond))) * time.Microsecond)
		if slice := sliceOf(at); !now.Before((slice + 1).Begin().Add(late)) {
			at = now
		}
		out[i] = Sample{names[rnd.IntN(len(names))], at, rnd.Float64()}
	}
	return out
}

// A month with retention that is interrupted: each sample is in the store or in the archive, the
// store has no more than it should, scans are those of a sorted list.
func TestAMonth(t *testing.T) {
	st := &stopping{Store: memstore.New()}
	m, rnd, want, stopped := newMetrics(t, st), seed.New(t), oracle{}, 0
	a, err := OpenArchive(filepath.Join(t.TempDir(), "archive"))
	require.NoError(t, err)
	const days, keep = 30, 3 * day
	now := start
	for now.Before(start.Add(days * day)) {
		now = now.Add(time.Duration(rnd.IntN(int(10*time.Hour/time.Microsecond))) * time.Microsecond)
		samples := someSamples(rnd, now)
		require.NoError(t, m.Add(t.Context(), now, samples...))
		want.add(samples...)

		if rnd.IntN(2) == 0 {
			// stopped anywhere, perhaps not at all
			ctx, stop := context.WithCancel(t.Context())
			st.stop = stop
			st.left.Store(1 + rnd.Int64N(100))
			if _, err := m.Retain(ctx, now, keep, a); err != nil {
				require.ErrorIs(t, err, context.Canceled)
				stopped++
			}
			st.left.Store(0)
			stop()
		}
		if rnd.IntN(3) > 0 {
			continue
		}
		_, err := m.Retain(t.Context(), now, keep, a)
		require.NoError(t, err)
		first := sliceOf(now.Add(-keep))
		for s := sliceOf(start); s < first; s++ {
			kept, err := a.Has(s)
			require.NoError(t, err)
			expected := want.slice(s)
			require.Equal(t, len(expected) > 0, kept)
			if kept {
				require.Equal(t, expected, collect(t, a.Read(s)), "the file of %v", s.Begin())
			}
		}
		for series := range want {
			from := start.Add(time.Duration(rnd.IntN(int(days * day))))
			to := from.Add(time.Duration(rnd.IntN(int(5 * day)))).Truncate(time.Microsecond)
			from = from.Truncate(time.Microsecond)
			require.Equal(t, want.scan(series, from, to, first), collect(t, m.Scan(t.Context(), series, from, to)),
				"%q from %v to %v", series, from, to)
			require.Equal(t, want.scan(series, start.Add(-day), now.Add(day), first),
				collect(t, m.Scan(t.Context(), series, start.Add(-day), now.Add(day))), "all of %q", series)
		}
		var stored []Sample
		for s := first; s <= sliceOf(now); s++ {
			stored = append(stored, want.slice(s)...)
		}
		require.Equal(t, stored, collect(t, m.read(t.Context(), listing.Query{})))
	}
	t.Log(stopped, "calls of Retain were stopped")
	require.NotZero(t, stopped)
}

// stopping is a store that ends a context once it has been read or written so many times.
type stopping struct {
	store.Store
	left atomic.Int64
	stop context.CancelFunc
}

func (s *stopping) count() {
	if s.left.Add(-1) == 0 {
		s.stop()
	}
}

func (s *stopping) Slice(
	ctx context.Context, p store.Partition, b store.Bounds, o store.SliceOptions,
) (store.Page, error) {
	s.count()
	return s.Store.Slice(ctx, p, b, o)
}

func (s *stopping) Delete(ctx context.Context, p store.Partition, key []byte, at store.Timestamp) error {
	s.count()
	return s.Store.Delete(ctx, p, key, at)
}

func TestLateSamplesAreRefused(t *testing.T) {
	m := newMetrics(t, memstore.New())
	end := start.Add(day)
	s := Sample{"a", end.Add(-time.Second), 1}
	require.NoError(t, m.Add(t.Context(), end.Add(late-1), s))
	err := m.Add(t.Context(), end.Add(late), Sample{"a", end, 2}, s)
	require.ErrorIs(t, err, ErrTooLate)
	require.Equal(t, []Sample{s}, collect(t, m.read(t.Context(), listing.Query{})))
	_, err = m.Retain(t.Context(), end, 2*late-1, Archive{})
	require.ErrorContains(t, err, "too short")
}

func TestWhatAFileLacksIsNotDropped(t *testing.T) {
	m := newMetrics(t, memstore.New())
	a, err := OpenArchive(t.TempDir())
	require.NoError(t, err)
	samples := []Sample{{"a", start, 1}, {"a", start.Add(time.Second), 2}, {"b", start, math.Inf(1)}}
	require.NoError(t, m.Add(t.Context(), start, samples...))
	of := func(samples []Sample) iter.Seq2[Sample, error] {
		return func(yield func(Sample, error) bool) {
			for _, s := range samples {
				if !yield(s, nil) {
					return
				}
			}
		}
	}
	changed := slices.Clone(samples)
	changed[1].Value++
	for what, file := range map[string][]Sample{"the first": samples[1:], "the last": samples[:2], "a value": changed} {
		require.NoError(t, a.Keep(sliceOf(start), of(file)))
		_, err = m.Retain(t.Context(), start.Add(2*day), day/2, a)
		require.ErrorContains(t, err, "the file lacks", what)
		require.Equal(t, samples, collect(t, m.read(t.Context(), listing.Query{})))
	}
	require.NoError(t, a.Keep(sliceOf(start), of(samples)))
	n, err := m.Retain(t.Context(), start.Add(2*day), day/2, a)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.Empty(t, collect(t, m.read(t.Context(), listing.Query{})))
}

// A slice that can't be read to its end leaves no file.
func TestNoHalfFiles(t *testing.T) {
	dir := t.TempDir()
	a, err := OpenArchive(dir)
	require.NoError(t, err)
	broken := errors.New("broken")
	err = a.Keep(sliceOf(start), func(yield func(Sample, error) bool) {
		_ = yield(Sample{"a", start, 1}, nil) && yield(Sample{}, broken)
	})
	require.ErrorIs(t, err, broken)
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestSlices(t *testing.T) {
	for _, c := range []struct {
		at    time.Time
		slice Slice
	}{
		{time.Unix(0, 0), 0}, {time.Unix(0, -1), -1}, {time.Unix(-86400, 0), -1}, {time.Unix(86399, 999_999_999), 0},
		{time.Date(1970, 1, 5, 23, 59, 0, 0, time.FixedZone("west", -3600)), 5},
	} {
		require.Equal(t, c.slice, sliceOf(c.at), c.at)
		require.Equal(t, c.slice, sliceOf(c.slice.Begin()))
		require.Equal(t, c.slice-1, sliceOf(c.slice.Begin().Add(-1)))
	}
}

func TestTheDemo(t *testing.T) {
	var out bytes.Buffer
	dir := filepath.Join(t.TempDir(), "archive")
	require.NoError(t, demo(t.Context(), &out, dir))
	require.Contains(t, out.String(), "23 days exported and dropped")
	require.Contains(t, out.String(), fmt.Sprintf("has %d samples left", 7*24))
	require.Contains(t, out.String(), "2026-11-01.parquet has the 480 samples")
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, files, 23)
}
