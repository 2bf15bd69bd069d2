package policysim

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/evenkeel/evenkeel/internal/rebalance/policy"
)

// Report is what came of a scenario.
type Report struct {
	Scenario string  `json:"scenario"`
	Days     float64 `json:"days"`
	Steps    int     `json:"steps"`
	// Recounts, and the rows that they read per row written.
	Recounts      int64    `json:"recounts"`
	ScannedPerRow float64  `json:"scanned_per_row_written"`
	Groups        []Result `json:"tenants"`
	Total         Result   `json:"total"`
}

// Result is what came of one kind of tenants.
type Result struct {
	Name    string `json:"name"`
	Kind    Kind   `json:"kind,omitempty"`
	Buckets int    `json:"buckets"`
	// Written rows, those of new keys, and Rows at the end.
	Written    int64 `json:"written"`
	New        int64 `json:"new"`
	Rows       int64 `json:"rows"`
	Partitions int64 `json:"partitions"`
	// Moved rows; MovedPerRow is per row written; ByCause tells why.
	Moved       int64                `json:"moved"`
	MovedPerRow float64              `json:"moved_per_row_written"`
	ByCause     map[policy.Why]int64 `json:"moved_by_cause,omitempty"`
	// OverShare of partitions, averaged over time, were over max_rows; the worst by how many times, and for how long at
	// most.
	OverShare   float64       `json:"over_share"`
	Worst       float64       `json:"worst"`
	LongestOver time.Duration `json:"longest_over_ns"`

	Splits    int `json:"splits"`
	Merges    int `json:"merges"`
	Rolls     int `json:"rolls"`
	Refreshes int `json:"refreshes"`
	// MergesUndone were split again within a day; SplitsUndone are ranges that were merged within a day of the split
	// that made them.
	MergesUndone int `json:"merges_undone"`
	SplitsUndone int `json:"splits_undone"`
	// ListingCost is how many reads of a partition it takes to list everything at the end, per full page.
	ListingCost float64 `json:"listing_cost"`

	partSteps, overSteps, reads int64
	fullPages                   float64
}

func (r *Result) moved(why policy.Why, rows int64) {
	if r.ByCause == nil {
		r.ByCause = map[policy.Why]int64{}
	}
	r.ByCause[why] += rows
	r.Moved += rows
}

func (r *Result) add(o *Result) {
	r.Buckets += o.Buckets
	r.Written += o.Written
	r.New += o.New
	r.Rows += o.Rows
	r.Partitions += o.Partitions
	for why, n := range o.ByCause {
		r.moved(why, n)
	}
	r.partSteps += o.partSteps
	r.overSteps += o.overSteps
	r.Worst = max(r.Worst, o.Worst)
	r.LongestOver = max(r.LongestOver, o.LongestOver)
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
	if r.partSteps > 0 {
		r.OverShare = float64(r.overSteps) / float64(r.partSteps)
	}
	if r.fullPages > 0 {
		r.ListingCost = float64(r.reads) / r.fullPages
	}
}

// Print writes a report as a table.
func (r *Report) Print(w io.Writer) error {
	fmt.Fprintf(w, "%s: %g days in %d steps; %d recounts read %.2f rows per row written\n", r.Scenario, r.Days, r.Steps, r.Recounts, r.ScannedPerRow)
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "tenant\tbuckets\twritten\trows\tpartitions\tmoved/row\tover\tworst\tlongest\tsplits\tmerges\trolls\trefreshes\tundone\tlisting\t")
	for _, g := range append(r.Groups[:len(r.Groups):len(r.Groups)], r.Total) {
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\t%.3f\t%.3f%%\t%.2f\t%v\t%d\t%d\t%d\t%d\t%d+%d\t%.2f\t\n", g.Name, g.Buckets, g.Written, g.Rows, g.Partitions,
			g.MovedPerRow, 100*g.OverShare, g.Worst, g.LongestOver, g.Splits, g.Merges, g.Rolls, g.Refreshes, g.MergesUndone, g.SplitsUndone, g.ListingCost)
	}
	return t.Flush()
}
