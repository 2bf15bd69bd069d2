// Package grid has a layout in the form in which planners compute: keys are small numbers, and rows are prefix sums. It
// makes the plan from a planner's choice of ranges, and the score of the plan.
//
// The package is pure, and its values may be used from several goroutines at once as long as nobody changes them.
package grid

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"

	"github.com/evenkeel/evenkeel/internal/keytext"
	"github.com/evenkeel/evenkeel/rebalance"
)

// Plan returns the complete plan for the draft d, which has only the bounds of the new ranges, and which of them keep
// the ids of old partitions. The plan adds the ids of all ranges, the moves with their reasons, the score under the
// objective o, and notes for people. The caller fills in the planner's name and Optimality.
func (g *Grid) Plan(d Draft, o rebalance.Objective) *rebalance.Plan {
	taken := make(map[string]bool, len(g.Layout.Partitions))
	for i := range g.Layout.Partitions {
		taken[g.Layout.Partitions[i].ID] = true
	}
	p := &rebalance.Plan{
		Bucket: g.Layout.Bucket, Ranges: make([]rebalance.Range, len(d)), Moves: []rebalance.Move{}, Notes: []string{},
	}
	fresh := 0
	for i, piece := range d {
		end := d.End(g, i)
		owner := g.Owner[piece.Start]
		r := rebalance.Range{Start: g.Keys[piece.Start], Rows: g.RowsIn(piece.Start, end)}
		r.Pinned = g.Pinned(owner) && g.First[owner] == piece.Start
		if piece.Keep {
			r.ID = g.Layout.Partitions[owner].ID
		} else {
			for r.ID == "" || taken[r.ID] {
				fresh++
				r.ID = "new-" + strconv.Itoa(fresh)
			}
		}
		p.Ranges[i] = r
		if piece.Keep {
			continue
		}
		for start := piece.Start; start < end; {
			from := g.Owner[start]
			stop := min(end, g.First[from+1])
			m := rebalance.Move{
				From: g.Layout.Partitions[from].ID, To: r.ID, Start: g.Keys[start], Rows: g.RowsIn(start, stop),
			}
			if int(stop) < g.N {
				m.End = g.Keys[stop]
			}
			m.Reason = g.reason(d, i, from)
			p.RowsMoved += m.Rows
			p.Moves = append(p.Moves, m)
			start = stop
		}
	}
	p.Score = g.Score(d, o)
	g.note(d, p)
	return p
}

// reason returns, for people, why a plan moves rows from an old partition to a range. `from` is the index of the old
// partition. The range has the number i in the draft d, which is the plan in the form that planners use.
func (g *Grid) reason(d Draft, i int, from int32) rebalance.Reason {
	lim := &g.Limits
	first, last := g.Owner[d[i].Start], g.Owner[d.End(g, i)-1]
	whole := d[i].Start <= g.First[from] && d.End(g, i) >= g.First[from+1]
	rows := func(p int32) int64 { return g.RowsIn(g.First[p], g.First[p+1]) }
	id := func(p int32) string { return text(g.Layout.Partitions[p].ID) }
	writes, grown := g.WritesIn(g.First[from], g.First[from+1]), g.GrowthIn(g.First[from], g.First[from+1])*lim.HorizonS
	because := func(cause, format string, args ...any) rebalance.Reason {
		return rebalance.Reason{Cause: cause, Text: fmt.Sprintf(format, args...)}
	}

	if first != last && whole && rows(from) < lim.MinRows {
		return because("merge", "%s has %s rows, under min_rows %s: joined with its neighbours",
			id(from), commas(rows(from)), commas(lim.MinRows))
	}
	switch {
	case rows(from) > lim.MaxRows && g.Divisible(g.First[from], g.First[from+1]):
		return because("split", "%s has %s rows, over max_rows %s", id(from), commas(rows(from)),
			commas(lim.MaxRows))
	case first != last:
		for p := first; p <= last; p++ {
			if p != from && rows(p) < lim.MinRows {
				return because("merge", "makes room for %s, which has %s rows, under min_rows %s",
					id(p), commas(rows(p)), commas(lim.MinRows))
			}
		}
	case lim.MaxWritesPerS > 0 && writes > lim.MaxWritesPerS && !whole:
		return because("load", "%s takes %s writes/s, over max_writes_per_s %s", id(from), short(writes),
			short(lim.MaxWritesPerS))
	case float64(rows(from))+grown > float64(lim.MaxRows) && grown > 0 && !whole:
		return because("forecast", "%s has %s rows and will have %s in %s s, over max_rows %s",
			id(from), commas(rows(from)), commas(rows(from)+int64(grown)), short(lim.HorizonS), commas(lim.MaxRows))
	}
	return because("even", "%s rows come nearer to target_rows %s, or let a neighbour do so",
		commas(g.RowsIn(max(d[i].Start, g.First[from]), min(d.End(g, i), g.First[from+1]))), commas(lim.TargetRows))
}

// noted is the largest number of ranges that a note lists by name; further ranges are only counted. A note is a
// sentence of a plan for people, about a limit that the plan cannot meet.
const noted = 5

// note adds notes to the plan p, which are sentences for people about limits that the plan cannot meet. The draft d is
// the same plan in the form that planners use.
func (g *Grid) note(d Draft, p *rebalance.Plan) {
	say := func(format string, args ...any) { p.Notes = append(p.Notes, fmt.Sprintf(format, args...)) }
	lim, asked := &g.Limits, g.askedMin
	if asked > lim.MinRows {
		say("The bucket has %s rows, fewer than min_rows %s: no minimum applies.", commas(g.Rows[g.N]), commas(asked))
	}
	if lim.TargetRows > lim.MaxRows || lim.TargetRows < lim.MinRows {
		say("target_rows %s is not between min_rows %s and max_rows %s: ranges come as near to it as the limits allow.",
			commas(lim.TargetRows), commas(lim.MinRows), commas(lim.MaxRows))
	}
	var over, under []string
	for i := range d {
		r := &p.Ranges[i]
		name := fmt.Sprintf(`%s from "%s" with %s rows`, text(r.ID), text(string(r.Start)), commas(r.Rows))
		if r.Rows > lim.MaxRows {
			over = append(over, name)
		}
		if r.Rows < lim.MinRows && !(d[i].Keep && g.Pinned(g.Owner[d[i].Start])) {
			under = append(under, name)
		}
	}
	list := func(names []string) string {
		if rest := len(names) - noted; rest > 0 {
			names = append(names[:noted:noted], fmt.Sprintf("and %d more", rest))
		}
		return strings.Join(names, "; ")
	}
	if len(over) > 0 {
		say("%d ranges stay over max_rows %s, since all their rows lie in one quantum, which nothing can divide: %s.",
			len(over), commas(lim.MaxRows), list(over))
	}
	if len(under) > 0 {
		say("%d ranges stay under min_rows %s: %s.", len(under), commas(lim.MinRows), list(under))
	}
}

// text returns a name or a key in printable form, in which bytes that are not printable are escaped, such as \x00.
func text(s string) string { return keytext.Format([]byte(s)) }

func commas(n int64) string { return humanize.Comma(n) }

func short(f float64) string { return strconv.FormatFloat(f, 'g', 6, 64) }
