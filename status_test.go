package evenkeel_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel"
	"github.com/evenkeel/evenkeel/internal/test/e2e/harness"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
)

// openDB opens a new directory, for the time of the test.
func openDB(t testing.TB, o evenkeel.Options) *evenkeel.DB {
	t.Helper()
	db, err := evenkeel.Open(t.TempDir(), o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

// fill puts n entries of 10 bytes (keys and values) in an order in which no cuts ahead of appends help.
func fill(t testing.TB, db *evenkeel.DB, bucket string, n int) {
	t.Helper()
	for i := range n {
		require.NoError(t, db.Bucket(bucket).Put(t.Context(), fmt.Appendf(nil, "%05d", i*7919%100_000), []byte("12345")))
	}
}

// sizes returns all sizes of a bucket. It checks that the ranges follow each other.
func sizes(t testing.TB, db *evenkeel.DB, bucket string) (all []evenkeel.Size) {
	t.Helper()
	for s, err := range db.Sizes(t.Context(), bucket, nil) {
		require.NoError(t, err)
		if len(all) == 0 {
			require.Empty(t, s.Start)
		} else {
			require.Equal(t, all[len(all)-1].End, s.Start)
		}
		all = append(all, s)
	}
	require.NotEmpty(t, all)
	require.Empty(t, all[len(all)-1].End)
	return all
}

// firstError returns the error with which an iteration over the sizes of a bucket ends.
func firstError(ctx context.Context, db *evenkeel.DB, bucket string) (err error) {
	for _, err = range db.Sizes(ctx, bucket, nil) {
	}
	return err
}

// TestStatusMovesAndSizesWhileABucketGrows: what is split is seen in all three, with its name, and in the end the sizes
// add up.
func TestStatusMovesAndSizesWhileABucketGrows(t *testing.T) {
	t.Parallel() // it mostly waits
	ctx, db := t.Context(), openDB(t, evenkeel.Options{MaxRows: 500})
	require.NoError(t, db.CreateBucket(ctx, "photos"))
	const n = 3000
	fill(t, db, "photos", n)
	phases, busy, moving := map[string]bool{}, false, false
	harness.Eventually(t, "a split that ends", func() bool {
		moves, err := db.Moves(ctx)
		require.NoError(t, err)
		for _, m := range moves {
			require.Equal(t, "photos", m.Bucket)
			require.Equal(t, "split", m.Kind)
			require.NotEmpty(t, m.Why)
			require.NotEmpty(t, m.Cuts)
			require.NotZero(t, m.Asked)
			require.Contains(t,
				[]string{"waiting", "marking", "copying", "verifying", "draining", "sweeping"}, m.Phase)
			require.GreaterOrEqual(t, m.Copied, int64(0))
			require.Positive(t, m.Rows)
			phases[m.Phase] = true
		}
		s, err := db.Status(ctx)
		require.NoError(t, err)
		for _, b := range s.Buckets {
			require.Equal(t, "photos", b.Name)
			busy = busy || b.Moves > 0
			require.Empty(t, b.Failures)
		}
		ranges := sizes(t, db, "photos")
		for _, r := range ranges {
			moving = moving || r.Moving
		}
		return len(ranges) >= 5 && len(moves) == 0
	})
	require.Greater(t, len(phases), 1, "%v", phases)
	require.True(t, busy)
	require.True(t, moving)
	harness.Eventually(t, "sizes", func() bool {
		var rows, bytes int64
		known := true
		for _, s := range sizes(t, db, "photos") {
			rows, bytes, known = rows+s.Rows, bytes+s.Bytes, known && s.Known
		}
		return known && rows == n && bytes == 10*n
	})
	s, err := db.Status(ctx)
	require.NoError(t, err)
	require.True(t, s.Leading)
	require.Len(t, s.Leaders, 1)
	require.Contains(t, s.Leaders[0], "evenkeel on ")
	require.Empty(t, s.Problems)
}

// TestSizesOfAPart: an iteration begins at any key, and may end at any range.
func TestSizesOfAPart(t *testing.T) {
	ctx, db := t.Context(), openDB(t, evenkeel.Options{})
	const ranges = 2500 // several requests to the counters
	var cuts [][]byte
	for i := 1; i < ranges; i++ {
		cuts = append(cuts, fmt.Appendf(nil, "%04d", i))
	}
	require.NoError(t, db.CreateBucket(ctx, "b", cuts...))
	require.Len(t, sizes(t, db, "b"), ranges)
	var seen []string
	for s, err := range db.Sizes(ctx, "b", []byte("1042/x")) {
		require.NoError(t, err)
		if seen = append(seen, string(s.Start)); len(seen) == 3 {
			break
		}
	}
	require.Equal(t, []string{"1042", "1043", "1044"}, seen)
	last := 0
	for s, err := range db.Sizes(ctx, "b", []byte("zzz")) {
		require.NoError(t, err)
		require.Equal(t, "2499", string(s.Start))
		last++
	}
	require.Equal(t, 1, last)
}

// TestSizesEndWithTheBucket: a bucket that is deleted during an iteration ends it with an error.
func TestSizesEndWithTheBucket(t *testing.T) {
	ctx, db := t.Context(), openDB(t, evenkeel.Options{})
	require.ErrorIs(t, firstError(ctx, db, "b"), listing.ErrNoSuchBucket)
	require.ErrorIs(t, firstError(ctx, db, ""), store.InvalidArgument)
	require.NoError(t, db.CreateBucket(ctx, "b"))
	require.NoError(t, firstError(ctx, db, "b"))
	require.NoError(t, db.DeleteBucket(ctx, "b"))
	require.ErrorIs(t, firstError(ctx, db, "b"), listing.ErrNoSuchBucket)
	ended, end := context.WithCancel(ctx)
	end()
	require.ErrorIs(t, firstError(ended, db, "b"), context.Canceled)
	_, err := db.Status(ended)
	require.ErrorIs(t, err, context.Canceled)
	_, err = db.Moves(ended)
	require.ErrorIs(t, err, context.Canceled)
}

// TestNothingIsKnownOfAnUnbalancedDirectory: its ranges are there, but nobody counts or moves them, and that is said.
func TestNothingIsKnownOfAnUnbalancedDirectory(t *testing.T) {
	ctx, db := t.Context(), openDB(t, evenkeel.Options{Unbalanced: true})
	require.NoError(t, db.CreateBucket(ctx, "b", []byte("0")))
	fill(t, db, "b", 10)
	all := sizes(t, db, "b")
	require.Len(t, all, 2)
	for _, s := range all {
		require.False(t, s.Known)
		require.Zero(t, s.Rows)
	}
	moves, err := db.Moves(ctx)
	require.NoError(t, err)
	require.Empty(t, moves)
	s, err := db.Status(ctx)
	require.NoError(t, err)
	require.False(t, s.Leading)
	require.Empty(t, s.Leaders)
	require.Len(t, s.Problems, 1)
	require.Contains(t, s.Problems[0], "Unbalanced")
}

// TestAClosedDBSaysSo, also in the middle of an iteration.
func TestAClosedDBSaysSo(t *testing.T) {
	for _, unbalanced := range []bool{false, true} {
		ctx := t.Context()
		db, err := evenkeel.Open(t.TempDir(), evenkeel.Options{Unbalanced: unbalanced})
		require.NoError(t, err)
		var cuts [][]byte
		for i := range 1500 {
			cuts = append(cuts, fmt.Appendf(nil, "%04d", i))
		}
		require.NoError(t, db.CreateBucket(ctx, "b", cuts...))
		n := 0
		for _, err = range db.Sizes(ctx, "b", nil) {
			if n++; n == 1 {
				require.NoError(t, db.Close())
			}
		}
		require.Equal(t, 1001, n, "the ranges that were read, and an error")
		for what, err := range map[string]error{
			"sizes during Close": err,
			"sizes":              firstError(ctx, db, "b"),
			"status":             second(db.Status(ctx)),
			"moves":              second(db.Moves(ctx)),
		} {
			require.ErrorIs(t, err, store.Unavailable, what)
			require.ErrorContains(t, err, "closed", what)
		}
		require.NoError(t, db.Close())
	}
}

func second[T any](_ T, err error) error { return err }

// BenchmarkSizes reads the sizes of a bucket of many ranges, each with one row.
func BenchmarkSizes(b *testing.B) {
	db := openDB(b, evenkeel.Options{})
	const ranges = 100_000
	var cuts [][]byte
	rows := []listing.Entry{{Key: []byte("tenant-000000/")}}
	for i := 1; i < ranges; i++ {
		cuts = append(cuts, fmt.Appendf(nil, "tenant-%06d/", i))
		rows = append(rows, listing.Entry{Key: cuts[i-1]})
	}
	require.NoError(b, db.CreateBucket(b.Context(), "b", cuts...))
	require.NoError(b, db.Bucket("b").PutBatch(b.Context(), rows))
	time.Sleep(2 * time.Second) // until the counters have them
	for b.Loop() {
		begun, first, n, rows := time.Now(), time.Duration(0), 0, int64(0)
		for s, err := range db.Sizes(b.Context(), "b", nil) {
			require.NoError(b, err)
			rows += s.Rows
			if n++; n == 1 {
				first = time.Since(begun)
			}
		}
		b.ReportMetric(float64(n), "ranges") // small ones are merged meanwhile
		b.ReportMetric(float64(first.Microseconds()), "µs-to-first")
		b.ReportMetric(float64(rows), "rows")
	}
}
