package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon"
	"github.com/evenkeel/evenkeel/internal/adopt"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/pebblestore"
)

type adoptFileCmd struct {
	adoptFlags
	File string    `arg:"" help:"The file; - is standard input."`
	Form string    `env:"-" default:"plain" enum:"plain,tsv,jsonl" help:"${adopt_form=}"`
	AsOf time.Time `env:"-" placeholder:"TIME" help:"${adopt_as_of=}"`
	Temp string    `env:"-" placeholder:"DIR" help:"${adopt_temp=}"`
}

// Help returns the detailed help text of the command adopt file, which --help prints.
func (adoptFileCmd) Help() string {
	return `It reads the file once, in any order of lines, and keeps the rows sorted in a temporary store, which takes
about as much space as the file. Nothing is changed if a line can't be read. Then a bucket that is not there is made,
and cut by a sample, and the rows are put into it.

Each row gets one time, that of --as-of: what was put or deleted in the bucket later stays so. A move of a range
forgets deletions: --as-of has to be after the bucket's last move, and less than a day ago, or the bucket less than a
day old and without a move. A move that begins meanwhile ends the copy; pause moves before a long one. Keys are written
as "listd ls" prints them, with \xNN for bytes that are no text, and \\ for a backslash.

Rows that are too large for an entry, and further lines of a key, of which the last counts, are listed and counted, and
the exit code is 1.

Examples:

    rebalancer adopt file photos keys.txt --cassandra 10.0.0.1 --local-dc dc1
    rebalancer adopt file photos export.tsv … --form tsv --as-of 2026-11-01T10:00:00Z
    zcat export.jsonl.gz | rebalancer adopt file photos - … --form jsonl
    rebalancer adopt file photos export.tsv … --form tsv --verify   # reports what differs, and changes nothing

Exit codes: 0 done, or both sides are equal; 1 rows were refused, or differ; 2 bad flags; 3 the keyspace can't be used;
4 the file can't be read, or does not fit the bucket, and nothing changed.`
}

// Validate returns an error if a flag of adopt file has an invalid value. The command-line parser kong calls Validate
// before Run.
func (c *adoptFileCmd) Validate() error {
	if c.File == "-" && c.Checkpoint != "" {
		return errors.New("--checkpoint needs a file that can be read again, not standard input")
	}
	return c.adoptFlags.Validate()
}

// Run copies the rows in the lines of a file into a bucket, or compares the file with the bucket.
func (c *adoptFileCmd) Run(ctx context.Context, std stdio) (err error) {
	in, name, err := daemon.Input(c.File, std.in)
	if err != nil {
		return refused("%w", err)
	}
	defer in.Close()
	task, at := fmt.Sprintf("%s as %s", name, c.Form), std.now()
	if f, ok := in.(*os.File); ok {
		info, err := f.Stat()
		if err != nil {
			return refused("%w", err)
		}
		at = info.ModTime()
		task += fmt.Sprintf(", %d bytes of %s", info.Size(), at.UTC().Format(time.RFC3339Nano))
	}
	if !c.AsOf.IsZero() {
		at = c.AsOf
		task += " as of " + at.UTC().Format(time.RFC3339Nano)
	}
	dir, err := os.MkdirTemp(c.Temp, "evenkeel-adopt-*")
	if err != nil {
		return refused("%w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	rows, err := pebblestore.Open(dir, pebblestore.Options{NoSync: true})
	if err != nil {
		return refused("%w", err)
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	spool := adopt.NewSpool(rows, listing.DefaultMaxValueBytes, store.Timestamp(at.UnixMicro()))
	out := &failing{w: std.out}
	bad := 0
	lines, err := spool.AddLines(ctx, in, adopt.Form(c.Form), func(f adopt.Finding) { bad++; c.finding(out, f) })
	if err != nil {
		if ctx.Err() != nil {
			return err
		}
		if errors.Is(err, store.ErrFull) || errors.Is(err, syscall.ENOSPC) {
			return refused("the temporary store is in %s: %w; nothing was changed: free space, or set --temp", dir, err)
		}
		return refused("%s: %w; nothing was changed", name, err)
	}
	if lines == 0 {
		return refused("%s has no lines", name)
	}
	if err := errors.Join(c.adopt(ctx, std, spool, task), out.err); err != nil || bad == 0 {
		return err
	}
	return daemon.Exit(daemon.ExitFailed, fmt.Errorf("%d of %d lines were refused, or had a key again", bad, lines))
}
