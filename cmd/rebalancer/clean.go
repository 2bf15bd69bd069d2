package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon"
	"github.com/evenkeel/evenkeel/internal/care"
	"github.com/evenkeel/evenkeel/internal/wait"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/objects"
	"github.com/evenkeel/evenkeel/store"
)

// cleanCmd is the command that shows what the servers' cleaner would do next, or cleans a bucket at once. The cleaner
// is the background work that deletes what buckets of objects no longer need.
type cleanCmd struct {
	objectsFlags
	DryRun bool `env:"-" help:"${clean_dry_run=}"`
	Now    bool `env:"-" help:"${clean_now=}"`
}

// Help returns the detailed help text of the command clean, which --help prints.
func (cleanCmd) Help() string {
	return `Prints a line for each step that the cleaner of listd would take now, with its reason, and changes nothing:

    supersede  a newer version has taken the place of this one: it is burned, so that nobody sees it
    prove      it is burned; the burning is repeated until every data centre has acknowledged it
    finish     that was acknowledged a day ago: the version is deleted with its body
    unmark     a delete marker that hides nothing is removed
    expire     a lifecycle rule lets the object expire: a delete marker hides it
    settle     an upload has ended

Noncurrent versions that rules let expire are not listed: a cleaner has to know the rules for some minutes first.

With --now it does these steps in one bucket, without the day: for a disk that is full. It deletes the bodies of
versions that nobody sees any more, if they are older than an hour, two minutes after every data centre has
acknowledged that. Whoever began to read such a version before, and still does, gets an error in the middle of the
body; a client that has listed it and asks for it later finds it gone, as it would anyway. Uploads keep the day.

Examples:

    rebalancer clean --dry-run --data ./evenkeel-data                      # listd does not run
    rebalancer clean --dry-run photos --cassandra 10.0.0.1 --local-dc dc1 --bodies file:///srv/bodies --json
    rebalancer clean --now photos --data ./evenkeel-data                   # the disk is full; listd does not run

Exit codes: 0 done; 1 some steps failed; 2 bad flags; 3 the store can't be used; 4 there is no such bucket.`
}

// Validate returns an error if a flag of the command clean has an invalid value. The command-line parser kong calls
// Validate before Run.
func (c *cleanCmd) Validate() error {
	switch {
	case c.DryRun == c.Now:
		return errors.New("--dry-run or --now is missing, one of them: servers clean by themselves (listd serve " +
			"--clean-every)")
	case c.Now && c.Bucket == "":
		return errors.New("--now has bodies deleted that somebody may still read: name the bucket")
	}
	return c.validate()
}

// Run prints the steps that the servers' cleaner would take now, or takes these steps in one bucket if --now is given.
func (c *cleanCmd) Run(ctx context.Context, std stdio) error {
	w, pacer, steps := &failing{w: std.out}, wait.NewPacer(c.Rate), map[string]int64{}
	err := c.open(ctx, c.DryRun, func(o care.Objects, all *listing.Client) error {
		if c.Now {
			return c.now(ctx, w, o, pacer)
		}
		if c.Bucket != "" {
			return c.bucket(ctx, w, o, c.Bucket, pacer, steps)
		}
		for info, err := range all.Buckets(ctx, "", "") {
			if err == nil {
				err = c.bucket(ctx, w, o, info.Name, pacer, steps)
			}
			if err != nil && !errors.Is(err, objects.ErrPlain) {
				return err
			}
		}
		return nil
	})
	if err != nil {
		var exit *daemon.ExitError
		if err = refusal(err); errors.As(err, &exit) {
			return err
		}
		return daemon.Exit(daemon.ExitUnusable, err)
	}
	if c.Now {
		return w.err
	}
	if c.Format == "json" {
		printLine(w, map[string]any{"version": daemon.JSONVersion, "steps": steps})
		return w.err
	}
	if len(steps) == 0 {
		w.printf("nothing to do\n")
	}
	for _, do := range slices.Sorted(maps.Keys(steps)) {
		w.printf("%s: %s\n", do, commas(steps[do]))
	}
	return w.err
}

func (c *cleanCmd) bucket(
	ctx context.Context, w *failing, o care.Objects, name string, pacer *wait.Pacer, steps map[string]int64,
) error {
	cleaner, err := o.BucketOf(listing.BucketInfo{Name: name}).Cleaner(care.CleanOptions{
		Pacer: pacer,
		Before: func(d care.Deed) bool {
			steps[d.Do]++
			key, id := text(string(d.Key)), d.Version
			if c.Format == "json" {
				printLine(w, map[string]any{"bucket": name, "do": d.Do, "key": key, "version_id": id, "why": d.Why})
			} else {
				w.printf("%s bucket %s, key %s, version %s: %s\n", d.Do, text(name), key, id, d.Why)
			}
			return false
		},
	})
	if err != nil {
		return err
	}
	done, err := cleaner.Pass(ctx)
	if err == nil && done.FirstFailure != nil {
		err = fmt.Errorf("%d steps could not be judged: %w", done.Failed, done.FirstFailure)
	}
	return store.Wrap("bucket "+name, err)
}

// now deletes what the bucket no longer needs. A version can only be deleted two minutes after all data centres have
// acknowledged that the version is gone. If some acknowledgements are that new, now waits and cleans the bucket again.
func (c *cleanCmd) now(ctx context.Context, w *failing, o care.Objects, pacer *wait.Pacer) error {
	b, err := o.Open(ctx, c.Bucket)
	if err != nil {
		return store.Wrap("bucket "+c.Bucket, err)
	}
	cleaner, err := b.Cleaner(care.CleanOptions{Pacer: pacer, Now: true})
	if err != nil {
		return err
	}
	for again := true; again; {
		done, err := cleaner.Pass(ctx)
		if c.Format == "json" {
			printLine(w, map[string]any{
				"version": daemon.JSONVersion, "deleted": done.Finished, "bytes": done.Bytes, "remembered": done.Remembered,
				"failed": done.Failed,
			})
		} else {
			w.printf("%s versions deleted with %s bytes; %s wait\n", commas(done.Finished), commas(done.Bytes),
				commas(done.Remembered))
		}
		if err == nil && done.FirstFailure != nil {
			err = daemon.Exit(daemon.ExitFailed,
				fmt.Errorf("%d steps failed, and are due again: %w", done.Failed, done.FirstFailure))
		}
		again = done.Proven+done.Superseded > 0
		if again && err == nil {
			err = wait.Sleep(ctx, care.SoonGrace+time.Second)
		}
		if err != nil {
			return store.Wrap("bucket "+c.Bucket, err)
		}
	}
	return nil
}
