package main

import (
	"time"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon"
	"github.com/evenkeel/evenkeel/internal/adopt"
)

type adoptStatusCmd struct {
	File   string      `arg:"" help:"The file that --checkpoint named."`
	Format string      `default:"text" enum:"text,json" help:"text or json."`
	JSON   daemon.JSON `name:"json" env:"-" help:"Short for --format json."`
}

// Help returns the detailed help text of the command adopt status, which --help prints.
func (adoptStatusCmd) Help() string {
	return `It reads the file alone: what is copied to where, whether all of it is copied, how many rows were read of about
how many, the rate over all runs, and the rows that were refused, with the first twenty. The file is written about every
second while a copy runs.

Examples:

    rebalancer adopt status photos.json
    rebalancer adopt status photos.json --json

Exit codes: 0 shown; 2 bad flags; 4 there is no such file, or it is none of a copy.`
}

// Run prints how far a copy into a bucket is, according to the file of the copy's --checkpoint.
func (c *adoptStatusCmd) Run(std stdio) error {
	done, err := adopt.ReadDone(c.File)
	if err != nil {
		return refused("%w", err)
	}
	s := done.Status()
	if c.Format == "json" {
		return daemon.PrintJSON(std.out, s)
	}
	out := &failing{w: std.out}
	out.printf("%s\n%s: %s of about %s rows", s.Task, s.Phase, commas(s.Read), commas(max(s.Rows, s.Read)))
	if s.Phase == "copying" {
		out.printf(" (%s), %d of %d streams have ended", percent(s.Read, max(s.Rows, s.Read)), s.StreamsEnded, s.Streams)
	}
	out.printf("; %s rows/s", commas(int64(s.RowsPerSecond)))
	if left := s.Rows - s.Read; s.Phase == "copying" && left > 0 && s.RowsPerSecond > 0 {
		out.printf(", %v left at that rate", (time.Duration(float64(left)/s.RowsPerSecond) * time.Second).Round(time.Second))
	}
	if !s.Saved.IsZero() { // an older release wrote the file
		out.printf("\nsaved %s, %v ago", s.Saved.Format(time.RFC3339), max(std.now().Sub(s.Saved), 0).Round(time.Second))
	}
	out.printf("\n%s rows refused\n", commas(s.Refused))
	for _, r := range s.Refusals {
		out.printf("%s: %s\n", shownKey(r.Key), r.Fault)
	}
	if left := s.Refused - int64(len(s.Refusals)); left > 0 {
		out.printf("and %s more\n", commas(left))
	}
	return out.err
}
