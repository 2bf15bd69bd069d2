package heat

import (
	"errors"
	"slices"
	"time"

	"github.com/evenkeel/evenkeel/store"
)

// Window selects the part of the history of a bucket that a picture shows: an interval of time, an interval of keys,
// and the kinds of numbers, e.g. writes per second.
type Window struct {
	Bucket   store.BucketID
	From, To time.Time
	// Start and End are the bounds of the keys in the picture. An empty End is plus infinity.
	Start, End string
	// Width and Height are the maximum numbers of columns and rows of the picture.
	Width, Height int
	Metrics       []Metric
}

// Picture is the history of a bucket as a table to be drawn as a heat map. Columns are intervals of time, rows are
// intervals of keys, and cells have numbers such as writes per second.
type Picture struct {
	// Times are the edges of the columns in Unix seconds, one more than there are columns. Step is the width of a
	// column in seconds.
	Times []int64
	Step  int64
	// Starts are the lowest keys of the rows. End is the end of the last row, and an empty End is plus infinity. A row
	// has whole intervals of keys from the history, so the first and last row may reach beyond the window.
	Starts []string
	End    string
	// Spans has, for each row, the number of intervals of keys that the history told apart at some time of the window.
	Spans []int
	// Cells has, for each metric of the window, a number for each cell, column by column. The number is Unknown (-1) if
	// nothing is known of the time. Writes and reads are means over the known seconds of a column. Rows and bytes are
	// the sizes at its end.
	Cells map[Metric][]float64
}

// Unknown is the number in a cell of a picture if the history knows nothing of the time and the keys of the cell.
const Unknown = -1

// Finest is the least width of a column of a picture, in seconds. Columns wider than half a minute are widened to whole
// minutes.
const Finest = 10

// MostWidth, MostHeight and MostCells are the greatest numbers of columns, rows and cells that a picture may have.
const (
	MostWidth  = 1440
	MostHeight = 1024
	MostCells  = 1 << 18
)

// Check returns an error if the window, which is the part of a history to be drawn, is not valid, e.g. if its time is
// longer than 14 days or its picture has too many cells.
func (w *Window) Check() error {
	switch {
	case !w.From.Before(w.To):
		return errors.New("the window's time is empty: to is after from")
	case w.To.Sub(w.From) > 2*Kept:
		return errors.New("the window's time is longer than what is kept: 7 days")
	case w.End != "" && w.Start >= w.End:
		return errors.New("the window has no keys: end is above start")
	case w.Width < 1 || w.Width > MostWidth || w.Height < 1 || w.Height > MostHeight || w.Width*w.Height > MostCells:
		return errors.New("width is from 1 to 1440, height from 1 to 1024, and both together 262,144 cells at most")
	}
	return nil
}

// axis divides the keys of a bucket into intervals for a picture. An interval begins at each key at which the history
// had a cut at some time. The intervals are numbered from 0.
type axis struct {
	starts []string
	at     map[uint32]int // the interval that begins at a key, by the key's number in the book
}

// axis returns the division of the keys of a bucket into intervals. An interval begins at the lowest key, and at each
// key whose number in the book's table of keys is in ids.
func (b *Book) axis(ids map[uint32]bool) axis {
	a := axis{starts: make([]string, 0, len(ids)+1), at: make(map[uint32]int, len(ids))}
	for id := range ids {
		a.starts = append(a.starts, b.keys.texts[id])
	}
	a.starts = append(a.starts, "")
	slices.Sort(a.starts)
	a.starts = slices.Compact(a.starts)
	for id := range ids {
		a.at[id], _ = slices.BinarySearch(a.starts, b.keys.texts[id])
	}
	return a
}

// spread calls f for each interval of keys in p, which is the history of a bucket in one interval of time. The axis
// divides the keys more finely, so an interval of p may have several intervals of the axis. The parameters of f are:
//   - from and to: the index of the first of these intervals, and the index after the last
//   - figures: the numbers of the interval of p
func (a *axis) spread(p *part, f func(from, to int, figures *Figures)) {
	for i := range p.starts {
		to := len(a.starts)
		if i+1 < len(p.starts) {
			to = a.at[p.starts[i+1]]
		}
		f(a.at[p.starts[i]], to, &p.figures[i])
	}
}

// Draw returns the picture of the part w of a bucket's history. The caller has checked w by Window.Check. If an
// interval of keys was divided into smaller ones at another time, its numbers are taken to be spread evenly over the
// smaller ones.
func (b *Book) Draw(w Window) Picture {
	from, to := w.From.Unix(), max(w.To.Unix(), w.From.Unix()+1)
	grain := int64(Minute.Seconds())
	if (to-from)/int64(w.Width) <= grain/2 {
		grain = Finest
	}
	from = from / grain * grain
	step := (to - from + int64(w.Width) - 1) / int64(w.Width)
	step = (step + grain - 1) / grain * grain
	width := int((to - from + step - 1) / step)
	pic := Picture{Step: step, Cells: map[Metric][]float64{}}
	for x := range width + 1 {
		pic.Times = append(pic.Times, from+int64(x)*step)
	}
	end := pic.Times[width]

	// The columns of the window, and before them the last column that knows the bucket.
	first, last := 0, len(b.columns)
	for last > 0 && b.columns[last-1].from >= end {
		last--
	}
	for first < last && b.columns[first].to <= from {
		first++
	}
	ids := map[uint32]bool{}
	collect := func(c *column) *part {
		p, _ := c.of(w.Bucket)
		if p != nil {
			for _, id := range p.starts {
				ids[id] = true
			}
		}
		return p
	}
	var held *part
	for i := first - 1; i >= 0 && held == nil; i-- {
		held = collect(&b.columns[i])
	}
	for i := first; i < last; i++ {
		collect(&b.columns[i])
	}
	g := grid{axis: b.axis(ids)}
	low, exact := slices.BinarySearch(g.starts, w.Start)
	if g.low, g.high = low, len(g.starts); !exact {
		g.low--
	}
	if w.End != "" {
		g.high, _ = slices.BinarySearch(g.starts, w.End)
	}
	if g.high < len(g.starts) {
		pic.End = g.starts[g.high]
	}
	g.rows = min(w.Height, g.high-g.low)
	for y := range g.rows {
		pic.Starts = append(pic.Starts, g.starts[g.edge(y)])
		pic.Spans = append(pic.Spans, g.edge(y+1)-g.edge(y))
	}

	var all [metrics][]float64
	for _, m := range w.Metrics {
		all[m] = make([]float64, width*g.rows)
		pic.Cells[m] = all[m]
	}
	g.paint(b.columns[first:last], held, w.Bucket, &pic, &all)
	return pic
}

// grid maps the intervals into which the keys of a bucket are divided to the rows of a picture. Each row shows one or
// several intervals.
type grid struct {
	axis
	low, high int // the first interval of the window, and the one after the last
	rows      int
}

// edge returns the index of the first interval of keys in row y of the picture.
func (g *grid) edge(y int) int { return g.low + int(int64(y)*int64(g.high-g.low)/int64(g.rows)) }

// row returns the number of the row of the picture that shows the interval of keys with the index i.
func (g *grid) row(i int) int {
	y := int(int64(i-g.low) * int64(g.rows) / int64(g.high-g.low))
	for y+1 < g.rows && g.edge(y+1) <= i {
		y++
	}
	return y
}

// each calls f for each interval of keys in p, once for each row y of the picture that the interval touches. p is the
// history of a bucket in one interval of time. share is the share of the interval that lies in the row, from 0 to 1.
func (g *grid) each(p *part, f func(y int, share float64, figures *Figures)) {
	g.spread(p, func(from, to int, figures *Figures) {
		n := float64(to - from)
		from, to = max(from, g.low), min(to, g.high)
		if from >= to {
			return
		}
		for y := g.row(from); from < to; y++ {
			until := min(to, g.edge(y+1))
			f(y, float64(until-from)/n, figures)
			from = until
		}
	})
}

// paint computes the cells of the picture pic from the given columns (intervals of time) of the history of a bucket. id
// is the bucket. The parameter `now` has what the history knows of the bucket before these columns, or is nil if
// nothing is known. The bucket's sizes in now apply until a column has newer sizes.
func (g *grid) paint(columns []column, now *part, id store.BucketID, pic *Picture, cells *[metrics][]float64) {
	width := len(pic.Times) - 1
	known := make([]float64, width) // known seconds of each column of the picture
	held := make([]*part, width)    // the bucket's part at the end of each column
	at := 0
	for i := range columns {
		c := &columns[i]
		p, of := c.of(id)
		if of == 0 {
			continue
		}
		if p != nil {
			now = p
		}
		for at < width && pic.Times[at+1] <= c.from {
			at++
		}
		for x := at; x < width && pic.Times[x] < c.to; x++ {
			overlap := min(c.to, pic.Times[x+1]) - max(c.from, pic.Times[x])
			seconds := float64(overlap) * float64(of) / float64(c.to-c.from)
			known[x] += seconds
			held[x] = now
			if p == nil {
				continue
			}
			g.each(p, func(y int, share float64, f *Figures) {
				for _, m := range [...]Metric{Writes, Reads} {
					if cells[m] != nil {
						cells[m][x*g.rows+y] += float64(f[m]) * share * seconds
					}
				}
			})
		}
	}
	for x := range width {
		if held[x] != nil {
			g.each(held[x], func(y int, share float64, f *Figures) {
				for _, m := range [...]Metric{Rows, Bytes} {
					if cells[m] != nil {
						cells[m][x*g.rows+y] += float64(f[m]) * share
					}
				}
			})
		}
		for m, column := range cells {
			if column == nil {
				continue
			}
			for y := range g.rows {
				switch v := &column[x*g.rows+y]; {
				case known[x] == 0, !Metric(m).rate() && held[x] == nil:
					*v = Unknown
				case Metric(m).rate():
					*v /= known[x]
				}
			}
		}
	}
}
