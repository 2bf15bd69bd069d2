package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon"
	"github.com/evenkeel/evenkeel/internal/adminapi"
	"github.com/evenkeel/evenkeel/internal/rebalance/balancer"
	"github.com/evenkeel/evenkeel/rebalance"
)

// printSizes prints the size of each range of a bucket, and what will be done with the range next: a split, a merge or
// nothing. format is table or json.
func printSizes(ctx context.Context, std stdio, in wayIn, bucket, format string) error {
	if format == "json" {
		return printArray(std.out, bucket, "ranges", func(put func(v any) error) (adminapi.End, error) {
			return in.Sizes(ctx, bucket, func(s adminapi.Size) error { return put(s) })
		})
	}
	now := std.now()
	t := tabwriter.NewWriter(std.out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "start\tend\trows\tcounted\tputs/s\trows/s\tverdict\twhy\n")
	ranges, rows, unknown := 0, int64(0), 0
	end, err := in.Sizes(ctx, bucket, func(s adminapi.Size) error {
		ranges++
		rows += s.Rows
		size, counted := "about "+commas(s.Rows), "never"
		if !s.Recounted.IsZero() {
			counted = fmt.Sprintf("%s, %s", commas(s.Counted), ago(now, s.Recounted))
		}
		switch {
		case !s.Known:
			size = "unknown"
			unknown++
		case !s.Recounted.IsZero() && s.Rows == s.Counted:
			size = commas(s.Rows)
		}
		why := s.Why
		if s.Text != "" {
			why += ": " + s.Text
		}
		if !s.Pinned.IsZero() {
			why += "; pinned until " + s.Pinned.Format(time.RFC3339)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%.1f\t%+.1f\t%s\t%s\n", startText(s.Start), endText(s.End), size, counted,
			s.Puts, s.Growth, s.Verdict, why)
		return nil
	})
	if err != nil {
		return err
	}
	t.Flush()
	_, err = fmt.Fprintf(std.out, "%s at epoch %d: %d ranges, about %s rows; max_rows %s, min_rows %s\n",
		text(bucket), end.Epoch, ranges, commas(rows), commas(end.MaxRows), commas(end.MinRows))
	if unknown > 0 && err == nil {
		_, err = fmt.Fprintf(std.out, "of %d ranges the size is not known: rebalancer recount %s counts them\n", unknown, text(bucket))
	}
	return err
}

// printArray prints the JSON {"version":…,"bucket":…,"NAME":[…],"epoch":…}, where NAME is the parameter name. The
// function each calls put with each value of the array. Each value is printed at once, so the array can be large.
func printArray(out io.Writer, bucket, name string, each func(put func(v any) error) (adminapi.End, error)) error {
	w := &failing{w: out}
	encode := func(v any) error {
		data, err := json.Marshal(v)
		if err == nil {
			_, err = w.Write(data)
		}
		return errors.Join(err, w.err)
	}
	separator := "\n"
	begun := false
	begin := func() error {
		begun = true
		w.printf(`{"version":%d,"bucket":`, daemon.JSONVersion)
		err := encode(bucket)
		w.printf(`,"%s":[`, name)
		return err
	}
	end, err := each(func(v any) error {
		if !begun {
			if err := begin(); err != nil {
				return err
			}
		}
		w.printf("%s", separator)
		separator = ",\n"
		return encode(v)
	})
	if err == nil && !begun {
		err = begin()
	}
	if err != nil {
		return err
	}
	w.printf("\n],\"epoch\":%d}\n", end.Epoch)
	return w.err
}

type recountCmd struct {
	Bucket string   `arg:"" help:"Name of the bucket."`
	Range  []string `sep:"none" placeholder:"START..END" help:"Only ranges that have keys in this one; may be repeated."`
	adminFlags
}

func (recountCmd) Help() string {
	return `Reads all rows of a bucket, or of some ranges, at the pace of --move-rate, corrects the
counters, and prints their drift, each range as soon as it is counted. Ranges that move at
present are not counted.

` + rangeHelp + `

Examples:

    rebalancer recount photos
    rebalancer recount photos --range 2024/..2025/ --format json`
}

// Run asks the leader, the process that carries out moves, to count the rows of the bucket's ranges and to correct the
// counters of sizes. Run prints the result for each range.
func (c *recountCmd) Run(ctx context.Context, std stdio) error {
	spans, err := parseSpans(c.Range)
	if err != nil {
		return err
	}
	ask := adminapi.Recount{Bucket: c.Bucket, Spans: spans}
	return c.asksLeader(ctx, std, func(ctx context.Context, in wayIn) error {
		if c.Format == "json" {
			return printArray(std.out, c.Bucket, "recounts", func(put func(v any) error) (adminapi.End, error) {
				return in.Recount(ctx, ask, func(r balancer.Recounted) error { return put(r) })
			})
		}
		w := &failing{w: std.out}
		ranges, moving := 0, 0
		var rows, drift int64
		_, err := in.Recount(ctx, ask, func(r balancer.Recounted) error {
			where := fmt.Sprintf("[%s, %s)", startText(r.Start), endText(r.End))
			if r.Moves {
				moving++
				w.printf("%s moves: not counted\n", where)
				return w.err
			}
			ranges++
			rows += r.Rows
			was := "its size was not known"
			if r.Known {
				drift += max(r.Rows-r.Estimate, r.Estimate-r.Rows)
				was = fmt.Sprintf("drift %+d", r.Estimate-r.Rows)
			}
			w.printf("%s has %s rows, %s bytes, %s deletion markers; %s\n", where, commas(r.Rows), commas(r.Bytes), commas(r.Markers), was)
			return w.err
		})
		if err != nil {
			return err
		}
		w.printf("%s rows in %d ranges; the counters were off by %s altogether", commas(rows), ranges, commas(drift))
		if moving > 0 {
			w.printf("; %d ranges move and were not counted", moving)
		}
		w.printf("\n")
		return w.err
	})
}

type layoutCmd struct {
	Export layoutExportCmd `cmd:"" help:"Print the layout of a bucket, as plan --layout reads it."`
}

type layoutExportCmd struct {
	Bucket string `arg:"" help:"Name of the bucket."`
	Exact  bool   `help:"Count every row, at the pace of --move-rate, instead of only partitions of unknown size."`
	adminFlags
}

func (layoutExportCmd) Help() string {
	return `Prints the input of planners: the partitions of a bucket, where their rows lie, pins, and
rates of writes and growth. docs/planners.md describes the format; it is always JSON. Fails
while ranges move.

Examples:

    rebalancer layout export photos > layout.json
    rebalancer layout export photos --exact | rebalancer plan --layout -`
}

// Run prints the layout of a bucket as JSON: the bucket's partitions, and where their rows lie. The layout is the input
// of planners, which plan splits and merges.
func (c *layoutExportCmd) Run(ctx context.Context, std stdio) error {
	return c.asksLeader(ctx, std, func(ctx context.Context, in wayIn) error {
		l, limits, err := fetchLayout(ctx, in, c.Bucket, c.Exact)
		if err != nil {
			return err
		}
		data, err := rebalance.EncodeLayout(&l, limits)
		if err != nil {
			return err
		}
		_, err = std.out.Write(data)
		return err
	})
}

// fetchLayout requests the layout of a bucket, which has its partitions and their sizes, and the limits of sizes. The
// request goes to the leader, the process that carries out moves. If exact is true, the leader counts all rows first.
func fetchLayout(
	ctx context.Context, in wayIn, bucket string, exact bool,
) (l rebalance.Layout, limits rebalance.Limits, err error) {
	l.Bucket = bucket
	end, err := in.Layout(ctx, bucket, exact, func(p rebalance.Partition) error {
		l.Partitions = append(l.Partitions, p)
		return nil
	})
	limits = end.Limits
	if err == nil {
		if problems := rebalance.Validate(&l, limits); len(problems) > 0 {
			err = fmt.Errorf("the map of %s is no layout: rebalancer verify %s says more: %w", text(bucket), text(bucket), problems)
		}
	}
	return l, limits, err
}
