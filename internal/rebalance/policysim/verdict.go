package policysim

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// Verdict is the result of a scenario that was simulated several times, with different seeds. It has the worst value of
// each figure over all runs, and the targets that these values miss.
type Verdict struct {
	Scenario string `json:"scenario"`
	Text     string `json:"text"`
	Runs     int    `json:"runs"`
	// Days is the sum of the simulated days of all runs.
	Days float64 `json:"days"`
	// CopiedPerRow and the fields below have the same meanings as in Result, e.g. the number of rows copied per row
	// written or deleted.
	CopiedPerRow float64       `json:"copied_per_row"`
	Worst        float64       `json:"worst"`
	LongestFar   time.Duration `json:"longest_far_over_ns"`
	Partitions   int64         `json:"partitions"`
	Ideal        int64         `json:"ideal"`
	Tombstones   float64       `json:"tombstones"`
	Hottest      float64       `json:"hottest"`
	Undone       float64       `json:"undone_per_decision"`
	Targets      *Targets      `json:"targets,omitempty"`
	// Missed has a sentence for each target that a run of the simulation missed, e.g. for too many copied rows.
	Missed []string `json:"missed,omitempty"`

	s        *Scenario
	requests float64 // rows written and deleted, of one run
}

// NewVerdict returns a Verdict for the scenario s that has no results yet. The method Add adds the result of one
// simulation.
func NewVerdict(s *Scenario) *Verdict {
	return &Verdict{Scenario: s.Name, Text: s.Text, Targets: s.Targets, s: s}
}

// Add adds the report of one simulation to the verdict, which keeps the worst value of each figure.
func (v *Verdict) Add(r *Report) {
	t := &r.Total
	v.Runs++
	v.requests = float64(t.Written + t.Deleted)
	v.Days += r.Days
	v.CopiedPerRow = max(v.CopiedPerRow, t.CopiedPerRow)
	v.Worst = max(v.Worst, t.Worst)
	v.LongestFar = max(v.LongestFar, t.LongestFar)
	if v.Runs == 1 || t.Partitions*v.Ideal > v.Partitions*t.Ideal {
		v.Partitions, v.Ideal = t.Partitions, t.Ideal
	}
	v.Tombstones = max(v.Tombstones, t.Tombstones)
	v.Hottest = max(v.Hottest, t.Hottest)
	v.Undone = max(v.Undone, t.Undone)
	v.Missed = v.s.missed(&Result{
		CopiedPerRow: v.CopiedPerRow, Worst: v.Worst, LongestFar: v.LongestFar, Partitions: v.Partitions,
		Ideal: v.Ideal, Tombstones: v.Tombstones, Hottest: v.Hottest, Undone: v.Undone,
	})
}

// verdictHead is the head of the Markdown table in which PrintVerdicts writes the results of simulations.
const verdictHead = `| scenario | copied per row | largest | over 1.2 × | ranges / ideal | tombstones | hottest | undone | |
|---|---|---|---|---|---|---|---|---|
`

// PrintVerdicts writes the results of simulations to w as a Markdown table, with a row for each verdict. Each figure
// has its target beside it, in brackets.
func PrintVerdicts(w io.Writer, verdicts []*Verdict) error {
	if _, err := io.WriteString(w, verdictHead); err != nil {
		return err
	}
	for _, v := range verdicts {
		if _, err := fmt.Fprintln(w, v.Row()); err != nil {
			return err
		}
	}
	return nil
}

// Row returns the verdict as a row of a Markdown table: the name of the scenario, each figure with its target, and "ok"
// or "MISSED".
func (v *Verdict) Row() string {
	t := v.Targets
	if t == nil {
		t = &Targets{}
	}
	cell := func(is string, target string) string {
		if target == "" {
			return is
		}
		return is + " (" + target + ")"
	}
	number := func(most *float64) string {
		if most == nil {
			return ""
		}
		return fmt.Sprintf("%g", *most)
	}
	ranges, over := "", ""
	if t.Ranges != nil {
		ranges = fmt.Sprint(*t.Ranges)
	} else if t.ByIdeal != nil {
		ranges = number(t.ByIdeal) + " ×"
	}
	if t.Over != nil {
		over = t.Over.String()
	}
	end := "ok"
	if len(v.Missed) > 0 {
		end = "MISSED"
	}
	return "| " + strings.Join([]string{
		v.Scenario, cell(fmt.Sprintf("%.3f", v.CopiedPerRow), number(t.Copied)),
		cell(fmt.Sprintf("%.2f", v.Worst), number(t.Largest)), cell(v.LongestFar.Round(time.Second).String(), over),
		cell(fmt.Sprintf("%d / %d", v.Partitions, v.Ideal), ranges),
		cell(fmt.Sprintf("%.2f", v.Tombstones), number(t.Tombstones)),
		cell(fmt.Sprintf("%.2f", v.Hottest), number(t.Hottest)), cell(fmt.Sprintf("%.2f", v.Undone), number(t.Undone)), end,
	}, " | ") + " |"
}
