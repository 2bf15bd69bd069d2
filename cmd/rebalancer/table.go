package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/dustin/go-humanize"

	"github.com/evenkeel/evenkeel/internal/adminapi"
	"github.com/evenkeel/evenkeel/internal/keytext"
	"github.com/evenkeel/evenkeel/internal/rebalance/grid"
	"github.com/evenkeel/evenkeel/rebalance"
)

// movesShown is the largest number of moves that a table lists without the flag --all.
const movesShown = 40

// barWidth is the length of the longest bar in a drawing of bars, in characters.
const barWidth = 30

// many returns a number with its noun as text, such as "1 bucket" or "3 buckets".
func many(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// printPlan prints the plan p of splits and merges as text: figures before and after, a histogram of sizes, and the
// first moves. l is the layout for which p was made, limits are the limits of sizes, and shown is the largest number of
// moves to print.
func printPlan(out io.Writer, l *rebalance.Layout, limits rebalance.Limits, p *rebalance.Plan, shown int) error {
	w := &failing{w: out}
	before := grid.New(l, limits)
	today := before.Score(before.Today(), rebalance.Objective{Kind: rebalance.Rows})
	s := &p.Score

	w.printf("Bucket %s: %s rows; max_rows %s, min_rows %s, target_rows %s\n", text(p.Bucket), commas(l.Rows()),
		commas(limits.MaxRows), commas(limits.MinRows), commas(limits.TargetRows))
	w.printf("Planned by %s for the %s objective", p.Planner, s.Kind)
	if p.Seed != nil && p.Generations != nil {
		w.printf("; to repeat it: --planner genetic --seed=%d --generations=%d", *p.Seed, *p.Generations)
	}
	w.printf("\n\n")

	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "rows moved\t%s of %s (%s)\n", commas(p.RowsMoved), commas(l.Rows()), percent(p.RowsMoved, l.Rows()))
	gap := fmt.Sprintf("%.2f %% above it", 100*p.Optimality.Gap)
	switch {
	case p.RowsMoved == p.Optimality.LowerBound:
		gap = "met"
	case p.Optimality.LowerBound == 0:
		gap = "no row has to move"
	}
	fmt.Fprintf(t, "lower bound\t%s (%s)\n", commas(p.Optimality.LowerBound), gap)
	fmt.Fprintf(t, "moves\t%d\n", len(p.Moves))
	fmt.Fprintf(t, "partitions\t%d -> %d\n", today.Partitions, s.Partitions)
	fmt.Fprintf(t, "over max_rows\t%d -> %d\n", today.OverMax+today.Undividable, s.OverMax+s.Undividable)
	fmt.Fprintf(t, "under min_rows\t%d -> %d\n", today.UnderMin, s.UnderMin)
	if s.Kind == rebalance.Full {
		fmt.Fprintf(t, "cost in rows\t%s\n", cost(s))
	}
	t.Flush()

	histogram(w, grid.Histogram(l, limits, p))
	moves(w, p, shown)
	if len(p.Notes) > 0 {
		w.printf("\nNotes\n")
		for _, n := range p.Notes {
			w.printf("  %s\n", n)
		}
	}
	return w.err
}

// cost returns, as text, the cost of a plan in rows, and the terms that add up to the cost, e.g.
// "9 = rows_moved 5 + moves 4".
func cost(s *rebalance.Score) string {
	var terms []string
	for _, term := range s.Terms {
		if term.Cost != 0 {
			terms = append(terms, fmt.Sprintf("%s %s", term.Name, commas(int64(term.Cost))))
		}
	}
	return commas(int64(s.Cost)) + " = " + strings.Join(append(terms, "0")[:max(1, len(terms))], " + ")
}

// histogram draws, as bars of text, how many partitions have which size, before and after a plan.
func histogram(w *failing, bins []grid.Bin) {
	longest := 1
	for _, b := range bins {
		longest = max(longest, b.Before, b.After)
	}
	bar := func(n int) string {
		// A single partition must be visible among thousands.
		return strings.Repeat("#", (n*barWidth+longest-1)/longest)
	}
	w.printf("\n")
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "Rows per partition\tbefore\t\tafter\t\n")
	for _, b := range bins {
		fmt.Fprintf(t, "%s\t%d\t%s\t%d\t%s\n", b.Label, b.Before, bar(b.Before), b.After, bar(b.After))
	}
	t.Flush()
}

func moves(w *failing, p *rebalance.Plan, shown int) {
	if len(p.Moves) == 0 {
		w.printf("\nNothing moves.\n")
		return
	}
	w.printf("\n")
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "From\tto\tstart\tend\trows\twhy\n")
	for i, m := range p.Moves {
		if i == shown {
			break
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", text(m.From), text(m.To),
			startText(adminapi.Key(m.Start)), endText(adminapi.Key(m.End)), commas(m.Rows), m.Reason)
	}
	t.Flush()
	if rest := len(p.Moves) - shown; rest > 0 {
		w.printf("... and %d more: --all or --format json prints them.\n", rest)
	}
}

// failing is a writer that remembers its first error, and drops all writes after it. A function can print several
// times, and check for an error once at the end.
type failing struct {
	w   io.Writer
	err error
}

func (f *failing) Write(b []byte) (int, error) {
	if f.err == nil {
		_, f.err = f.w.Write(b)
	}
	return len(b), f.err
}

func (f *failing) printf(format string, args ...any) { fmt.Fprintf(f, format, args...) }

// text returns s, a name or a key, with escapes, so that s can be printed on a terminal safely.
func text(s string) string { return keytext.Format([]byte(s)) }

func percent(part, whole int64) string {
	return fmt.Sprintf("%.1f %%", 100*float64(part)/float64(max(whole, 1)))
}

// commas returns a number as text, with commas between groups of three digits: 1,234,567.
func commas(n int64) string { return humanize.Comma(n) }
