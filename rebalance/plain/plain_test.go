package plain_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/evenkeel/evenkeel/rebalance/plain"
)

var now = time.Unix(1_800_000_000, 0)

// bucket makes neighbours of so many rows, with a cut each step rows.
func bucket(step int64, rows ...int64) (out []plain.Range) {
	for i, n := range rows {
		r := plain.Range{Rows: n, Start: fmt.Appendf(nil, "%03d", i), End: fmt.Appendf(nil, "%03d", i+1)}
		if i == 0 {
			r.Start = nil
		}
		if i == len(rows)-1 {
			r.End = nil
		}
		for below := step; step > 0 && below < n; below += step {
			r.Cuts = append(r.Cuts, plain.Cut{At: fmt.Appendf(nil, "%03d/%09d", i, below), Below: below})
		}
		out = append(out, r)
	}
	return out
}

var limits = plain.Limits{MaxRows: 100, MinRows: 25, TargetRows: 60}

func show(verdicts []plain.Verdict) (out []string) {
	for _, v := range verdicts {
		s := string(v.Kind)
		if v.Kind != plain.None {
			s += fmt.Sprintf(" [%s, %s)", v.Goal.Start, v.Goal.End)
			for _, c := range v.Goal.Cuts {
				s += fmt.Sprintf(" %s", c)
			}
			s += fmt.Sprintf(" copies %d", v.Copies)
		}
		out = append(out, s+": "+v.Reason)
	}
	return out
}

func TestJudge(t *testing.T) {
	for _, c := range []struct {
		name   string
		ranges []plain.Range
		want   []string
	}{
		{"within the limits", bucket(1, 100, 25, 60), nil},
		{"a small bucket of one range", bucket(1, 3), nil},
		{"an empty bucket", bucket(1, 0), nil},
		{"one row too many", bucket(1, 101), []string{"split [, ) 000/000000050 copies 50: 101 rows, more than max_rows (100)"}},
		{"far too many", bucket(10, 300), []string{
			"split [, ) 000/000000060 000/000000120 000/000000180 000/000000240 copies 240: 300 rows, more than max_rows (100)"}},
		{"nowhere to cut", bucket(0, 300), []string{"none: 300 rows, more than max_rows (100), but there is nowhere to cut"}},
		{"one cut where many are wanted", bucket(290, 300), []string{"split [, ) 000/000000290 copies 10: 300 rows, more than max_rows (100)"}},
		{"a small one goes to the smaller neighbour", bucket(1, 40, 10, 30), []string{"merge [001, ) copies 40: 10 rows, fewer than min_rows (25); with its neighbours 40"}},
		{"none fits", bucket(1, 90, 10, 90), []string{"none: 10 rows, fewer than min_rows (25), but with its neighbour it would come above the target (60)"}},
		{"many small ones", bucket(1, 9, 9, 9, 9, 9, 9, 9), []string{
			"merge [, 003) copies 27: 9 rows, fewer than min_rows (25); with its neighbours 27",
			"merge [003, 006) copies 27: 9 rows, fewer than min_rows (25); with its neighbours 27",
			"none: 9 rows, fewer than min_rows (25), but it has no neighbour to be merged with"}},
		{"empty ones", bucket(1, 0, 0, 50), []string{"merge [, ) copies 50: 0 rows, fewer than min_rows (25); with its neighbours 50"}},
		{"not with one that is split", bucket(1, 120, 10), []string{
			"split [, 001) 000/000000060 copies 60: 120 rows, more than max_rows (100)",
			"none: 10 rows, fewer than min_rows (25), but it has no neighbour to be merged with"}},
	} {
		require.Equal(t, c.want, show(plain.Judge(c.ranges, limits, now)), c.name)
	}

	pinned := bucket(1, 10, 10)
	pinned[1].PinUntil = now.Unix() + 1
	require.Contains(t, show(plain.Judge(pinned, limits, now))[0], "none: 10 rows, fewer than min_rows (25), but the cut beside it is pinned")
	require.Len(t, show(plain.Judge(pinned, limits, now.Add(time.Second))), 1)
	require.Contains(t, show(plain.Judge(pinned, limits, now.Add(time.Second)))[0], "merge")

	moves := bucket(1, 10, 10, 200)
	moves[1].Moves, moves[2].Moves = true, true
	for _, v := range plain.Judge(moves, limits, now) {
		require.Equal(t, plain.None, v.Kind)
		require.Contains(t, v.Reason, "moves at present")
	}

	young, cool := bucket(1, 10, 10), limits
	cool.MergeAfter = time.Hour
	young[1].Created = now.Unix() - 60
	require.Contains(t, show(plain.Judge(young, cool, now))[0], "cools down")
	require.Contains(t, show(plain.Judge(young, cool, now.Add(time.Hour)))[0], "merge")

	apart := bucket(1, 10, 10)
	apart[0].End = []byte("000x")
	for _, v := range plain.Judge(apart, limits, now) {
		require.Contains(t, v.Reason, "no neighbour")
	}
	none := limits
	none.MinRows = 0
	require.Empty(t, plain.Judge(bucket(1, 1, 1, 1), none, now))
}

// Whatever the sizes are: what is done leads to ranges within the limits where the
// keys allow it, and doing it again asks for nothing; no range is in two verdicts.
func TestJudgeComesToRest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := plain.Limits{MaxRows: rapid.Int64Range(10, 500).Draw(t, "max")}
		l.MinRows, l.TargetRows = l.MaxRows/4, plain.DefaultTarget(l.MaxRows)
		rows := rapid.SliceOfN(rapid.Int64Range(0, 2000), 1, 30).Draw(t, "rows")
		ranges := bucket(1, rows...)
		total := int64(0)
		for _, n := range rows {
			total += n
		}
		for round := 0; ; round++ {
			if round > 10 {
				t.Fatalf("it does not come to rest")
			}
			var next []int64
			at, acts := 0, 0
			verdicts := map[string]plain.Verdict{}
			for _, v := range plain.Judge(ranges, l, now) {
				if v.Kind == plain.None {
					continue
				}
				acts++
				if _, twice := verdicts[string(v.Goal.Start)]; twice {
					t.Fatalf("two verdicts from %q", v.Goal.Start)
				}
				verdicts[string(v.Goal.Start)] = v
			}
			for at < len(ranges) {
				v, some := verdicts[string(ranges[at].Start)]
				switch {
				case !some:
					next = append(next, ranges[at].Rows)
					at++
				case v.Kind == plain.Split:
					below := int64(0)
					for _, c := range v.Goal.Cuts {
						for _, k := range ranges[at].Cuts {
							if string(k.At) == string(c) {
								next = append(next, k.Below-below)
								below = k.Below
							}
						}
					}
					next = append(next, ranges[at].Rows-below)
					at++
				default:
					sum := int64(0)
					for ; at < len(ranges) && (len(v.Goal.End) == 0 || string(ranges[at].Start) < string(v.Goal.End)); at++ {
						sum += ranges[at].Rows
					}
					if sum != v.Rows || sum > l.TargetRows {
						t.Fatalf("a merge to %d, said to be %d", sum, v.Rows)
					}
					next = append(next, sum)
				}
			}
			sum := int64(0)
			for _, n := range next {
				sum += n
				if acts > 0 && n > l.MaxRows {
					t.Fatalf("%d rows after a round", n)
				}
			}
			if sum != total {
				t.Fatalf("%d rows of %d", sum, total)
			}
			if acts == 0 {
				return
			}
			ranges = bucket(1, next...)
		}
	})
}
