package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"math"
	"time"

	"github.com/evenkeel/evenkeel/keys"
	"github.com/evenkeel/evenkeel/listing"
)

// Sample is the value of a series, e.g. of a sensor, at one time. The time is in UTC, in whole microseconds.
type Sample struct {
	Series string    `parquet:"series,dict"`
	At     time.Time `parquet:"at,timestamp(microsecond)"`
	Value  float64   `parquet:"value"`
}

// Slice is a day in UTC, as the number of days since 1970. All samples of a slice are exported and dropped together.
type Slice int64

// sliceOf returns the slice, which is a day, of the time at.
func sliceOf(at time.Time) Slice {
	begin := at.UTC().Truncate(24 * time.Hour) // days since year 1 begin when those since 1970 do
	return Slice(begin.Unix() / (24 * 3600))
}

// Begin returns the first moment of the day s. The day ends with the first moment of the next slice.
func (s Slice) Begin() time.Time { return time.Unix(int64(s)*24*3600, 0).UTC() }

// late is the time after the end of a day during which samples of the day are still accepted.
const late = time.Hour

// ErrTooLate is the error for a sample whose day ended too long ago. The day may already be exported, so it accepts no
// more samples.
var ErrTooLate = errors.New("the sample's day has ended too long ago")

// Metrics keeps samples in one bucket. The key of a sample is its slice (a day), its series and its time. So a day is
// one interval of keys, and a series within a day is one, too. The methods are safe for concurrent use.
type Metrics struct{ samples *listing.Bucket }

// NewMetrics returns metrics that are kept in the bucket "samples", and creates the bucket if it does not exist.
func NewMetrics(ctx context.Context, c *listing.Client) (*Metrics, error) {
	if err := c.CreateBucket(ctx, "samples"); err != nil && !errors.Is(err, listing.ErrBucketExists) {
		return nil, err
	}
	return &Metrics{samples: c.Bucket("samples")}, nil
}

// Add stores samples, and replaces earlier samples of the same series and time. If the day of a sample ended an hour or
// more before now, Add stores nothing, and the error is ErrTooLate.
func (m *Metrics) Add(ctx context.Context, now time.Time, samples ...Sample) error {
	entries := make([]listing.Entry, len(samples))
	for i, s := range samples {
		slice := sliceOf(s.At)
		if end := (slice + 1).Begin(); !now.Before(end.Add(late)) {
			return fmt.Errorf("%s at %v: %w", s.Series, s.At, ErrTooLate)
		}
		entries[i] = listing.Entry{Key: key(slice, s.Series, s.At), Value: keys.BigEndian(math.Float64bits(s.Value))}
	}
	return m.samples.PutBatch(ctx, entries)
}

// Scan returns the samples of a series with from <= time < to, in the order of time. A scan costs two reads per day, or
// more if a day has many samples.
func (m *Metrics) Scan(ctx context.Context, series string, from, to time.Time) iter.Seq2[Sample, error] {
	return func(yield func(Sample, error) bool) {
		last := sliceOf(to.Add(-time.Microsecond))
		for slice, err := range m.slices(ctx, sliceOf(from), last) {
			if err != nil {
				yield(Sample{}, err)
				return
			}
			q := listing.Query{From: key(slice, series, from), To: key(slice, series, to)}
			for s, err := range m.read(ctx, q) {
				if !yield(s, err) || err != nil {
					return
				}
			}
		}
	}
}

// Retain exports the slices (days) that ended longer than keep before now to the archive a, and then drops them from
// the bucket. It may be interrupted and repeated, as a slice is dropped only after the archive has the slice. Only one
// Retain may run at a time. dropped is the number of dropped slices.
func (m *Metrics) Retain(ctx context.Context, now time.Time, keep time.Duration, a Archive) (dropped int, err error) {
	// What was added before the slice was closed has arrived by then, or has failed.
	if keep < 2*late {
		return 0, fmt.Errorf("%v is too short to keep samples: at least %v", keep, 2*late)
	}
	last := sliceOf(now.Add(-keep)) - 1
	for slice, err := range m.slices(ctx, math.MinInt32, last) {
		if err != nil {
			return dropped, err
		}
		if err := m.retire(ctx, slice, a); err != nil {
			return dropped, fmt.Errorf("the samples of %s: %w", slice.Begin().Format(time.DateOnly), err)
		}
		dropped++
	}
	return dropped, nil
}

func (m *Metrics) retire(ctx context.Context, slice Slice, a Archive) error {
	// If the archive has it, an earlier call was interrupted while it dropped the slice, and
	// perhaps only a part of that is left.
	kept, err := a.Has(slice)
	if err != nil {
		return err
	}
	if !kept {
		if err := a.Keep(slice, m.read(ctx, listing.Query{Prefix: prefix(slice)})); err != nil {
			return err
		}
	}
	left := m.read(ctx, listing.Query{Prefix: prefix(slice)})
	if err := lacks(a.Read(slice), left); err != nil {
		return err
	}
	return m.drop(ctx, slice)
}

// lacks returns an error if a sample in left is missing in file, the samples of an archive file. Both sequences are in
// the order of series and time. So no sample is dropped that is not archived.
func lacks(file, left iter.Seq2[Sample, error]) error {
	next, stop := iter.Pull2(file)
	defer stop()
	for s, err := range left {
		if err != nil {
			return err
		}
		for {
			kept, err, more := next()
			if err != nil {
				return err
			}
			if !more {
				return fmt.Errorf("the file lacks a sample of %s at %v, so nothing is dropped", s.Series, s.At)
			}
			if kept.Series == s.Series && kept.At.Equal(s.At) &&
				math.Float64bits(kept.Value) == math.Float64bits(s.Value) {
				break
			}
		}
	}
	return nil
}

// drop deletes all samples of a slice, which is a day. All keys of the slice, and no other keys, have the same prefix,
// and nobody adds samples to the slice any more.
func (m *Metrics) drop(ctx context.Context, slice Slice) error {
	return m.samples.DeletePrefix(ctx, prefix(slice))
}

// slices returns the slices (days) from first to last that have samples. Each step skips the days without samples.
func (m *Metrics) slices(ctx context.Context, first, last Slice) iter.Seq2[Slice, error] {
	return func(yield func(Slice, error) bool) {
		for next := first; next <= last; {
			found := false
			for s, err := range m.read(ctx, listing.Query{From: prefix(next), To: prefix(last + 1), Limit: 1}) {
				if err != nil {
					yield(0, err)
					return
				}
				found, next = true, sliceOf(s.At)
			}
			if !found || !yield(next, nil) {
				return
			}
			next++
		}
	}
}

func (m *Metrics) read(ctx context.Context, q listing.Query) iter.Seq2[Sample, error] {
	return func(yield func(Sample, error) bool) {
		for item, err := range m.samples.All(ctx, q) {
			if err != nil {
				yield(Sample{}, err)
				return
			}
			r := keys.Read(item.Key)
			slice := Slice(r.Int())
			s := Sample{Series: r.String(), At: r.Time().UTC()}
			err := r.End()
			if err == nil && slice != sliceOf(s.At) {
				err = errors.New("its time is not in its slice")
			}
			if err == nil && len(item.Value) != 8 {
				err = fmt.Errorf("its value has %d bytes", len(item.Value))
			}
			if err != nil {
				yield(Sample{}, fmt.Errorf("the bucket has an entry that is no sample: %q: %w", item.Key, err))
				return
			}
			s.Value = math.Float64frombits(binary.BigEndian.Uint64(item.Value))
			if !yield(s, nil) {
				return
			}
		}
	}
}

func prefix(s Slice) []byte { return keys.Of(keys.Int(int64(s))) }

func key(s Slice, series string, at time.Time) []byte {
	return keys.Of(keys.Int(int64(s)), keys.String(series), keys.Time(at))
}
