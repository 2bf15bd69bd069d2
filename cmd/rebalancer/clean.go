package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/objects"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/wait"
)

// cleanCmd shows what the cleaner of the servers would do.
type cleanCmd struct {
	objectsFlags
	DryRun bool `env:"-" help:"Needed: only servers clean (listd serve --clean-every)."`
}

// Help is shown by clean --help.
func (cleanCmd) Help() string {
	return `Prints a line for each step that the cleaner of listd would take now, with its reason, and changes nothing:

    supersede  a newer version has taken the place of this one: it is burned, so that nobody sees it
    prove      it is burned; the burning is repeated until every data centre has acknowledged it
    finish     that was acknowledged a day ago: the version is deleted with its body
    unmark     a delete marker that hides nothing is removed
    expire     a lifecycle rule lets the object expire: a delete marker hides it
    settle     an upload has ended

Noncurrent versions that rules let expire are not listed: a cleaner has to know the
rules for some minutes first.

Examples:

    rebalancer clean --dry-run --data ./evenkeel-data                      # listd does not run
    rebalancer clean --dry-run photos --cassandra 10.0.0.1 --local-dc dc1 --bodies file:///srv/bodies --json

Exit codes: 0 done; 2 bad flags; 3 the store can't be used; 4 there is no such bucket.`
}

// Validate checks the flags.
func (c *cleanCmd) Validate() error {
	if !c.DryRun {
		return errors.New("--dry-run is missing: servers clean by themselves (listd serve --clean-every)")
	}
	return c.validate()
}

// Run prints the steps.
func (c *cleanCmd) Run(ctx context.Context, std stdio) error {
	w, pacer, steps := &failing{w: std.out}, wait.NewPacer(c.Rate), map[string]int64{}
	err := c.open(ctx, true, func(o *objects.Objects, all *listing.Client) error {
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
	ctx context.Context, w *failing, o *objects.Objects, name string, pacer *wait.Pacer, steps map[string]int64,
) error {
	cleaner, err := o.Bucket(name, objects.Versioned).Cleaner(o, objects.CleanOptions{
		Pacer: pacer,
		Before: func(d objects.Deed) bool {
			steps[d.Do]++
			key, id := text(string(d.Key)), d.ID.String()
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
