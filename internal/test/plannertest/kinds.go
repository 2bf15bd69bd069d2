package plannertest

import (
	"fmt"
	"math/rand/v2"

	"github.com/evenkeel/evenkeel/rebalance"
)

// A Kind is a kind of layout that occurs in real buckets, e.g. many small partitions after deletions. A layout has the
// partitions of a bucket and their sizes.
type Kind struct {
	Name string
	// Why says what makes the kind difficult for planners.
	Why string
	// Uneven is true if load matters, so that planners for the rows objective do not see the problem.
	Uneven bool
	Make   func(r *rand.Rand) (*rebalance.Layout, rebalance.Limits)
}

// defaults are the limits of all kinds that have no limits of their own.
var defaults = rebalance.Limits{MaxRows: 100000, MinRows: 25000, TargetRows: 60000, HorizonS: 86400}

// maker returns a builder of layouts with n partitions. The function rows returns the number of rows and of quanta of
// partition i. The function edit, if not nil, may then change the partition. A quantum is a small interval of keys with
// its number of rows.
func maker(
	n int, rows func(r *rand.Rand, i int) (rows int64, quanta int),
	edit func(r *rand.Rand, i int, p *rebalance.Partition),
) *builder {
	return &builder{n: n, rows: rows, edit: edit}
}

type builder struct {
	n    int
	rows func(r *rand.Rand, i int) (int64, int)
	edit func(r *rand.Rand, i int, p *rebalance.Partition)
}

func (b *builder) make(r *rand.Rand) *rebalance.Layout {
	l := &rebalance.Layout{Bucket: "b"}
	for i := range b.n {
		p := rebalance.Partition{ID: fmt.Sprintf("p%d", i)}
		prefix := fmt.Sprintf("%07d", i)
		if i > 0 {
			p.Start = rebalance.Key(prefix)
		}
		rows, quanta := b.rows(r, i)
		p.Quanta = Spread(r, prefix, rows, quanta)
		if b.edit != nil {
			b.edit(r, i, &p)
		}
		l.Partitions = append(l.Partitions, p)
	}
	return l
}

// Spread divides rows over n quanta, which are small intervals of keys, with keys below prefix. The sizes vary, but no
// quantum is empty if there are enough rows.
func Spread(r *rand.Rand, prefix string, rows int64, n int) []rebalance.Quantum {
	quanta := make([]rebalance.Quantum, n)
	left := rows
	for j := range quanta {
		mean := left / int64(n-j)
		q := mean
		if j < n-1 && mean > 1 {
			q = mean/2 + r.Int64N(mean+1)
		}
		quanta[j] = rebalance.Quantum{Key: rebalance.Key(fmt.Sprintf("%s/%04d", prefix, j)), Rows: q}
		left -= q
	}
	return quanta
}

func between(r *rand.Rand, low, high int64) int64 { return low + r.Int64N(high-low+1) }

// Thousand returns a layout with n partitions of the given number of quanta each. The sizes are from almost nothing to
// three times the maximum, so most partitions need work.
func Thousand(r *rand.Rand, n, quanta int) (*rebalance.Layout, rebalance.Limits) {
	return maker(n, func(r *rand.Rand, _ int) (int64, int) { return between(r, 1000, 300000), quanta }, nil).make(r),
		defaults
}

// Huge returns a layout with n partitions of one quantum each. One partition in a hundred has a hundred quanta and
// needs work: half of these partitions are too large, and half are too small.
func Huge(r *rand.Rand, n int) (*rebalance.Layout, rebalance.Limits) {
	return maker(n, func(r *rand.Rand, i int) (int64, int) {
		switch {
		case i%100 != 50:
			return between(r, 30000, 90000), 1
		case r.IntN(2) == 0:
			return between(r, 1000, 24000), 100
		}
		return between(r, 110000, 400000), 100
	}, nil).make(r), defaults
}

// Kinds returns the kinds of layouts by which planners are judged.
func Kinds() []Kind {
	plain := func(name, why string, b *builder) Kind {
		return Kind{
			Name: name, Why: why,
			Make: func(r *rand.Rand) (*rebalance.Layout, rebalance.Limits) { return b.make(r), defaults },
		}
	}
	fine := func(r *rand.Rand, _ int) (int64, int) { return between(r, 30000, 90000), 40 }
	hot := defaults
	hot.MaxWritesPerS = 500
	return []Kind{
		plain("even", "nothing to do", maker(60, fine, nil)),
		plain("one giant", "a bucket that was loaded before anyone looked",
			maker(1, func(r *rand.Rand, _ int) (int64, int) { return 3000000, 1000 }, nil)),
		plain("some over", "one partition in five over the maximum", maker(60, func(r *rand.Rand, i int) (int64, int) {
			if i%5 == 2 {
				return between(r, 105000, 260000), 60
			}
			return fine(r, i)
		}, nil)),
		plain("crumbs", "many small partitions after a wave of deletions",
			maker(150, func(r *rand.Rand, _ int) (int64, int) { return between(r, 500, 30000), 10 }, nil)),
		plain("mixed", "crumbs and giants side by side", maker(60, func(r *rand.Rand, _ int) (int64, int) {
			if r.IntN(2) == 0 {
				return between(r, 1000, 24000), 20
			}
			return between(r, 90000, 250000), 80
		}, nil)),
		plain("coarse", "few quanta, some over the maximum by themselves",
			maker(50, func(r *rand.Rand, _ int) (int64, int) { return between(r, 5000, 350000), 1 + r.IntN(4) }, nil)),
		plain("pinned", "a presplit, empty and pinned, between full partitions",
			maker(80, func(r *rand.Rand, i int) (int64, int) {
				if i%4 != 0 {
					return 0, 0
				}
				return between(r, 60000, 240000), 50
			}, func(_ *rand.Rand, i int, p *rebalance.Partition) { p.Pinned = i%4 != 0 && i%8 < 4 })),
		plain("lumpy", "a few keys hold nearly all rows",
			maker(40, func(r *rand.Rand, _ int) (int64, int) { return between(r, 20000, 200000), 30 },
				func(r *rand.Rand, _ int, p *rebalance.Partition) {
					at := r.IntN(len(p.Quanta))
					for j := range p.Quanta {
						if j != at {
							p.Quanta[at].Rows += p.Quanta[j].Rows * 3 / 4
							p.Quanta[j].Rows -= p.Quanta[j].Rows * 3 / 4
						}
					}
				})),
		plain("appends", "the tail grows by a partition every few minutes",
			maker(50, fine, func(r *rand.Rand, i int, p *rebalance.Partition) {
				if i >= 45 {
					p.GrowthRowsPerS = float64(1 + r.IntN(3))
				}
			})),
		{Name: "hotspot", Why: "few partitions take most writes, all within the limits of rows", Uneven: true,
			Make: func(r *rand.Rand) (*rebalance.Layout, rebalance.Limits) {
				l := maker(60, func(r *rand.Rand, _ int) (int64, int) { return between(r, 55000, 95000), 40 },
					func(r *rand.Rand, i int, p *rebalance.Partition) {
						p.WritesPerS = float64(r.IntN(100))
						if i%10 == 3 {
							p.WritesPerS = 900 + float64(r.IntN(500))
						}
					}).make(r)
				return l, hot
			}},
		{Name: "hot, over", Why: "partitions to split, which are heavy, too", Uneven: true,
			Make: func(r *rand.Rand) (*rebalance.Layout, rebalance.Limits) {
				l := maker(60, func(r *rand.Rand, i int) (int64, int) {
					if i%4 == 1 {
						return between(r, 105000, 220000), 50
					}
					return fine(r, i)
				}, func(r *rand.Rand, i int, p *rebalance.Partition) {
					p.WritesPerS = 10 + float64(r.IntN(50))
					if i%4 == 1 {
						p.WritesPerS = 600 + float64(r.IntN(900))
					}
				}).make(r)
				return l, hot
			}},
	}
}
