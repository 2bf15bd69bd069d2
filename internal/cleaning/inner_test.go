package cleaning

import (
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/care"
)

// filled sets each number of the struct x to another multiple of n.
func filled[T any](n int64) (x T) {
	v := reflect.ValueOf(&x).Elem()
	for i := range v.NumField() {
		if f := v.Field(i); f.Kind() == reflect.Int64 {
			f.SetInt(n * int64(i+1))
		}
	}
	return x
}

// A sum has the numbers of both, the earlier times, and the first of the errors.
func TestNumbersAddUp(t *testing.T) {
	a, b, want := filled[Round](100), filled[Round](1), filled[Round](101)
	early, late := time.Unix(1, 0), time.Unix(2, 0)
	a.Began, a.Ended, b.Began, b.Ended, want.Began, want.Ended = early, late, late, early, early, early
	a.Error, b.Error, want.Error = "a", "b", "a"
	require.Equal(t, want, *a.and(&b))
	a.Error, want.Error = "", "b"
	require.Equal(t, want, *a.and(&b))
	b.Error, want.Error = "", "b"
	a.Error = "b"
	require.Equal(t, want, *b.and(&a))
	require.Equal(t, a, *(*Round)(nil).and(&a))
	require.Equal(t, &a, a.and(nil))

	c := filled[Compared](100)
	c.add(&[]Compared{filled[Compared](1)}[0])
	require.Equal(t, filled[Compared](101), c)
}

// What a pass reports counts once, however often it reports what it has done so far.
func TestWhatIsReportedCountsOnce(t *testing.T) {
	c, r, did := New(Options{}), Round{}, care.Cleaned{}
	for n := range int64(4) {
		now := filled[care.Cleaned](n)
		c.count(&r, did, now)
		did = now
	}
	require.Equal(t, Round{
		Rows: did.Rows, Burned: did.Superseded + did.Lapsed, Deleted: did.Finished, Bytes: did.Bytes,
		Waiting: did.Waiting, Remembered: did.Remembered,
	}, r)
	require.Equal(t, map[string]int64{
		"superseded": did.Superseded, "proven": did.Proven, "finished": did.Finished, "unmarked": did.Unmarked,
		"expired": did.Expired, "lapsed": did.Lapsed, "uploads_ended": did.Ended, "uploads_freed": did.Freed,
	}, c.sums.steps)
	require.Equal(t, []int64{did.Rows, did.Bytes}, []int64{c.sums.rows, c.sums.bytes})
}
