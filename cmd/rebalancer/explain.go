package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/internal/adminapi"
	"github.com/evenkeel/evenkeel/internal/keytext"
	"github.com/evenkeel/evenkeel/internal/rebalance/balancer"
	"github.com/evenkeel/evenkeel/internal/rebalance/policy"
)

type explainCmd struct {
	Bucket string `arg:"" help:"Name of the bucket."`
	adminFlags
}

func (explainCmd) Help() string {
	return `Prints the last decisions about the ranges of a bucket with their input, and, if these move
nothing, also the last ones that moved something: for each the ranges that were looked at, the
cuts, the partitions afterwards, the cost in rows with and without (docs/planners.md), how many
more rows are copied than must be, and what is not done and why. Ranges within the limits are
only counted.
With --format json it prints the whole input of the decisions, which can be stored and
replayed; keys are base64.

Examples:

    rebalancer explain photos
    rebalancer explain photos --format json`
}

// Run prints the last decisions to split, to merge or to leave ranges of a bucket, and the figures behind each
// decision.
func (c *explainCmd) Run(ctx context.Context, std stdio) error {
	return c.asksLeader(ctx, std, func(ctx context.Context, in wayIn) error {
		e, err := in.Explain(ctx, c.Bucket)
		if err != nil {
			return err
		}
		return c.print(std, e, func(w *failing) {
			for i := range e.Looks {
				explainLook(w, std.now(), &e.Looks[i])
			}
		})
	})
}

// explainLook prints, as text, what one check of a bucket's sizes has decided about the bucket's ranges. l is the
// check, and now the current time, from which ages are printed.
func explainLook(w *failing, now time.Time, l *balancer.Explained) {
	in, p := l.Input, &l.Input.Policy
	first, last := in.Ranges[0].Start, in.Ranges[len(in.Ranges)-1].End
	w.printf("%s: %d ranges of [%s, %s); max_rows %s, min_rows %s; %d moves of %s rows in flight\n", ago(now, in.Now),
		len(in.Ranges), startText(adminapi.Key(first)), endText(adminapi.Key(last)), commas(p.MaxRows), commas(p.MinRows),
		in.Moves, commas(in.Rows))
	within := 0
	refused := map[policy.Why]int{}
	for _, d := range l.Decisions {
		if d.Why == policy.Within {
			within += d.To - d.From
			continue
		}
		if d.Kind == policy.None {
			refused[d.Why] += d.To - d.From
		}
		start, end := in.Ranges[d.From].Start, in.Ranges[d.To-1].End
		w.printf("  [%s, %s): %s\n", startText(adminapi.Key(start)), endText(adminapi.Key(end)), d)
		if len(d.Cuts) > 0 {
			cuts := make([]string, len(d.Cuts))
			for i, c := range d.Cuts {
				cuts[i] = keytext.Format(c)
			}
			w.printf("    cut at %s; %s of %s rows are copied\n", strings.Join(cuts, ", "), commas(d.Copies), commas(d.Rows))
		}
		if price, known := in.Price(&d); known {
			w.printf("    %s\n", priced(&d, &price))
		}
		for _, x := range d.Streams {
			w.printf("    %.0f %% of the newest rows lie in [%s, %s), %s\n", 100*x.Share, startText(adminapi.Key(x.Start)),
				endText(adminapi.Key(x.End)), directions[x.Dir])
		}
		if d.Gap != nil {
			w.printf("    copies at most %.1f %% more rows than any cuts must\n", 100**d.Gap)
		}
		for i := d.From; i < d.To; i++ {
			w.printf("    %s\n", knownOf(in.Now, &in.Ranges[i]))
		}
	}
	w.printf("  %d ranges: within limits\n", within)
	for _, why := range slices.Sorted(maps.Keys(refused)) {
		w.printf("  %d ranges: nothing is done: %s\n", refused[why], why)
	}
}

// priced returns a text with the sizes of the partitions that the decision d would make, and with the costs p of the
// decision, both in rows.
func priced(d *policy.Decision, p *policy.Price) string {
	parts := make([]string, len(p.Parts))
	for i, n := range p.Parts {
		parts[i] = commas(n)
		if i == d.Stay {
			parts[i] += " (stay)"
		}
	}
	least := ""
	if p.Least > 0 {
		least = fmt.Sprintf(" (the cheapest cuts: %s)", commas(int64(p.Least)))
	}
	return fmt.Sprintf("partitions afterwards: %s rows; cost in rows: %s%s; as it is: %s", strings.Join(parts, ", "),
		cost(&p.After), least, cost(&p.Today))
}

var directions = map[int]string{-1: "descending", 0: "in no order", 1: "ascending"}

// knownOf returns a text with what was known about a range when a decision was made: the range's size, rates of puts
// and growth, and tombstones.
func knownOf(now time.Time, r *policy.Range) string {
	s := &r.Stats
	rows := "size unknown"
	if s.Known {
		rows = "about " + commas(s.Rows) + " rows"
	}
	if !s.Recounted.IsZero() {
		rows += fmt.Sprintf(", %s by a recount %s", commas(s.RecountedRows), ago(now, s.Recounted))
	}
	if !r.Small.IsZero() {
		rows += ", small since " + ago(now, r.Small)
	}
	return fmt.Sprintf("%s; %.1f puts/s, %+.1f rows/s over the last hour, appends %.0f %%, spread %.2f, %s tombstones",
		rows, s.PutsPerS, s.GrowthRowsPerS, 100*s.AppendShare, s.Spread, commas(s.Dead))
}
