package policysim

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/evenkeel/evenkeel/internal/rebalance/balancer"
	"github.com/evenkeel/evenkeel/internal/rebalance/policy"
)

// Report is the result of a simulation: figures for each group of buckets, and for all buckets together.
type Report struct {
	Scenario string  `json:"scenario"`
	Days     float64 `json:"days"`
	// Steps is the number of simulated moments at which something happened, such as a request or a step of a move.
	Steps int `json:"steps"`
	// Recounts is the number of exact counts of ranges. ScannedPerRow is the number of rows that these counts read,
	// divided by the number of rows written.
	Recounts      int64    `json:"recounts"`
	ScannedPerRow float64  `json:"scanned_per_row_written"`
	Groups        []Result `json:"tenants"`
	Total         Result   `json:"total"`
	// Missed has a sentence for each target that the result misses.
	Missed []string `json:"missed,omitempty"`
}

// Result has the figures of a simulation for one group of buckets, or for all buckets together, e.g. the number of rows
// written and the number of rows that moves copied.
type Result struct {
	Name    string `json:"name"`
	Kind    Kind   `json:"kind,omitempty"`
	Buckets int    `json:"buckets"`
	// Written is the number of rows written. New is the number of rows written with new keys. Deleted is the number of
	// rows deleted. Rows is the number of rows at the end.
	Written int64 `json:"written"`
	New     int64 `json:"new"`
	Deleted int64 `json:"deleted"`
	Rows    int64 `json:"rows"`
	// Partitions is the number of partitions at the end. Ideal is the smallest number of partitions that can hold the
	// rows.
	Partitions int64 `json:"partitions"`
	Ideal      int64 `json:"ideal"`
	// Moved is the number of rows that moves copied. MovedPerRow is Moved divided by the number of rows written.
	// CopiedPerRow is Moved divided by the number of rows written or deleted. ByCause has the parts of Moved by the
	// reasons of the moves.
	Moved        int64                `json:"moved"`
	MovedPerRow  float64              `json:"moved_per_row_written"`
	CopiedPerRow float64              `json:"copied_per_row"`
	ByCause      map[policy.Why]int64 `json:"moved_by_cause,omitempty"`
	// OverShare is the share of partitions with more than max_rows, as a mean over time. Worst is the size of the
	// largest partition, as a multiple of max_rows. LongestOver is the longest time for which a partition had more than
	// max_rows, and LongestFar the longest time for which one had more than 1.2 x max_rows.
	OverShare   float64       `json:"over_share"`
	Worst       float64       `json:"worst"`
	LongestOver time.Duration `json:"longest_over_ns"`
	LongestFar  time.Duration `json:"longest_far_over_ns"`
	// Tombstones is the largest number of tombstones in one partition, as a multiple of the limit max_dead. Hottest is
	// the largest share of a bucket's writes and reads that went to one partition in the last tenth of the simulated
	// time.
	Tombstones float64 `json:"tombstones"`
	Hottest    float64 `json:"hottest"`

	Splits    int `json:"splits"`
	Merges    int `json:"merges"`
	Rolls     int `json:"rolls"`
	Refreshes int `json:"refreshes"`
	// MergesUndone is the number of splits of a range that was merged less than an hour before. SplitsUndone is the
	// number of merges across a cut that a split made less than an hour before. Undone is the sum of both, divided by
	// the number of decisions carried out.
	MergesUndone int     `json:"merges_undone"`
	SplitsUndone int     `json:"splits_undone"`
	Undone       float64 `json:"undone_per_decision"`
	// ListingCost is the number of reads of partitions that list all rows at the end, divided by the number of full
	// pages of rows.
	ListingCost float64 `json:"listing_cost"`

	reads                                int64
	rangeSeconds, overSeconds, fullPages float64
}

func (r *Result) cause(why policy.Why, rows int64) {
	if r.ByCause == nil {
		r.ByCause = map[policy.Why]int64{}
	}
	r.ByCause[why] += rows
}

func (r *Result) add(o *Result) {
	r.Buckets += o.Buckets
	r.Written += o.Written
	r.New += o.New
	r.Deleted += o.Deleted
	r.Rows += o.Rows
	r.Partitions += o.Partitions
	r.Ideal += o.Ideal
	r.Moved += o.Moved
	for why, n := range o.ByCause {
		r.cause(why, n)
	}
	r.rangeSeconds += o.rangeSeconds
	r.overSeconds += o.overSeconds
	r.Worst = max(r.Worst, o.Worst)
	r.LongestOver = max(r.LongestOver, o.LongestOver)
	r.LongestFar = max(r.LongestFar, o.LongestFar)
	r.Tombstones = max(r.Tombstones, o.Tombstones)
	r.Hottest = max(r.Hottest, o.Hottest)
	r.Splits += o.Splits
	r.Merges += o.Merges
	r.Rolls += o.Rolls
	r.Refreshes += o.Refreshes
	r.MergesUndone += o.MergesUndone
	r.SplitsUndone += o.SplitsUndone
	r.reads += o.reads
	r.fullPages += o.fullPages
}

func (r *Result) finish() {
	if r.Written > 0 {
		r.MovedPerRow = float64(r.Moved) / float64(r.Written)
	}
	if n := r.Written + r.Deleted; n > 0 {
		r.CopiedPerRow = float64(r.Moved) / float64(n)
	}
	if r.rangeSeconds > 0 {
		r.OverShare = r.overSeconds / r.rangeSeconds
	}
	if n := r.Splits + r.Merges + r.Rolls + r.Refreshes; n > 0 {
		r.Undone = float64(r.MergesUndone+r.SplitsUndone) / float64(n)
	}
	if r.fullPages > 0 {
		r.ListingCost = float64(r.reads) / r.fullPages
	}
}

// took adds figures from the status of the balancer to the report: the number of exact counts, and the number of rows
// that they read.
func (r *Report) took(st balancer.Status) {
	r.Recounts = st.Recounts
	if r.Total.Written > 0 {
		r.ScannedPerRow = float64(st.Read) / float64(r.Total.Written)
	}
}

// missed returns a sentence for people for each target of the scenario that the result r of a simulation misses.
func (s *Scenario) missed(r *Result) (out []string) {
	t := s.Targets
	if t == nil {
		return nil
	}
	above := func(what string, is float64, most *float64) {
		if most != nil && is > *most {
			out = append(out, fmt.Sprintf("%s is %.3g, not %.3g at most", what, is, *most))
		}
	}
	limit := allowedUndone
	if t.Undone == nil {
		t = &Targets{t.Copied, t.Largest, t.Over, t.Ranges, t.ByIdeal, t.Tombstones, t.Hottest, &limit}
	}
	above("rows copied per row", r.CopiedPerRow, t.Copied)
	above("the largest partition, x max_rows,", r.Worst, t.Largest)
	if t.Over != nil && r.LongestFar > *t.Over {
		out = append(out, fmt.Sprintf("a partition was over 1.2 x max_rows for %v, not %v at most", r.LongestFar, *t.Over))
	}
	if t.Ranges != nil && r.Partitions > *t.Ranges {
		out = append(out, fmt.Sprintf("%d ranges at the end, not %d at most", r.Partitions, *t.Ranges))
	}
	if r.Ideal > 0 {
		above("ranges at the end, x the fewest,", float64(r.Partitions)/float64(r.Ideal), t.ByIdeal)
	}
	above("tombstones in a partition, x max_dead,", r.Tombstones, t.Tombstones)
	above("the share of requests to one range", r.Hottest, t.Hottest)
	above("splits and merges undone per decision", r.Undone, t.Undone)
	return out
}

// Print writes the report to w as a table for people, with a line for each missed target.
func (r *Report) Print(w io.Writer) error {
	fmt.Fprintf(w, "%s: %g days in %d steps; %d recounts read %.2f rows per row written\n", r.Scenario, r.Days, r.Steps,
		r.Recounts, r.ScannedPerRow)
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "tenant\tbuckets\twritten\tdeleted\trows\tpartitions\tideal\tmoved/row\tover\tworst\tlongest\t"+
		"splits\tmerges\trolls\trefreshes\tundone\tlisting\t")
	for _, g := range append(r.Groups[:len(r.Groups):len(r.Groups)], r.Total) {
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%.3f\t%.3f%%\t%.2f\t%v\t%d\t%d\t%d\t%d\t%d+%d\t%.2f\t\n", g.Name,
			g.Buckets, g.Written, g.Deleted, g.Rows, g.Partitions, g.Ideal, g.CopiedPerRow, 100*g.OverShare, g.Worst,
			g.LongestOver, g.Splits, g.Merges, g.Rolls, g.Refreshes, g.MergesUndone, g.SplitsUndone, g.ListingCost)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, m := range r.Missed {
		fmt.Fprintln(w, "MISSED:", m)
	}
	return nil
}
