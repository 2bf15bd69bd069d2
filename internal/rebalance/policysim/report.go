package policysim

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/evenkeel/evenkeel/internal/rebalance/balancer"
	"github.com/evenkeel/evenkeel/internal/rebalance/policy"
)

// Report is the result of a scenario.
type Report struct {
	Scenario string  `json:"scenario"`
	Days     float64 `json:"days"`
	// Steps is the number of moments at which something happened.
	Steps int `json:"steps"`
	// Recounts is the number of recounts. ScannedPerRow is the number of rows that they read, divided by the rows
	// written.
	Recounts      int64    `json:"recounts"`
	ScannedPerRow float64  `json:"scanned_per_row_written"`
	Groups        []Result `json:"tenants"`
	Total         Result   `json:"total"`
	// Missed are sentences about the targets that were missed.
	Missed []string `json:"missed,omitempty"`
}

// Result is the result of a simulation for one group of buckets, or for all buckets together.
type Result struct {
	Name    string `json:"name"`
	Kind    Kind   `json:"kind,omitempty"`
	Buckets int    `json:"buckets"`
	// Written is the number of rows written, New that of rows with new keys, and Deleted that of rows deleted. Rows is
	// the number of rows at the end.
	Written int64 `json:"written"`
	New     int64 `json:"new"`
	Deleted int64 `json:"deleted"`
	Rows    int64 `json:"rows"`
	// Partitions is the number of partitions at the end. Ideal is the smallest number that can hold the rows.
	Partitions int64 `json:"partitions"`
	Ideal      int64 `json:"ideal"`
	// Moved is the number of rows copied by moves. MovedPerRow is Moved per row written, CopiedPerRow is Moved per row
	// written or deleted. ByCause divides Moved by the reasons of the moves.
	Moved        int64                `json:"moved"`
	MovedPerRow  float64              `json:"moved_per_row_written"`
	CopiedPerRow float64              `json:"copied_per_row"`
	ByCause      map[policy.Why]int64 `json:"moved_by_cause,omitempty"`
	// OverShare is the share of partitions with more than max_rows, averaged over time. Worst is the largest partition,
	// as a multiple of max_rows. LongestOver is the longest time that a partition was over max_rows, LongestFar the
	// longest time over 1.2 x max_rows.
	OverShare   float64       `json:"over_share"`
	Worst       float64       `json:"worst"`
	LongestOver time.Duration `json:"longest_over_ns"`
	LongestFar  time.Duration `json:"longest_far_over_ns"`
	// Tombstones is the largest number of tombstones in one partition, as a multiple of max_dead. Hottest is the
	// largest share of a bucket's writes and reads that one partition took in the last tenth of the time.
	Tombstones float64 `json:"tombstones"`
	Hottest    float64 `json:"hottest"`

	Splits    int `json:"splits"`
	Merges    int `json:"merges"`
	Rolls     int `json:"rolls"`
	Refreshes int `json:"refreshes"`
	// MergesUndone is the number of splits that cut a range merged less than an hour before. SplitsUndone is the number
	// of merges across cuts that splits made less than an hour before. Undone is the sum of both per decision carried
	// out.
	MergesUndone int     `json:"merges_undone"`
	SplitsUndone int     `json:"splits_undone"`
	Undone       float64 `json:"undone_per_decision"`
	// ListingCost is the number of reads of partitions that it takes to list everything at the end, per full page.
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

// took adds the figures of a balancer's status to the report of a simulation.
func (r *Report) took(st balancer.Status) {
	r.Recounts = st.Recounts
	if r.Total.Written > 0 {
		r.ScannedPerRow = float64(st.Read) / float64(r.Total.Written)
	}
}

// missed compares the result r of a simulation with the targets of the scenario. It returns a sentence, for people, for
// each target that the result misses.
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

// Print writes the report of a simulation to w, as a table for people.
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
