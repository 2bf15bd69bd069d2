package main

import (
	"context"
	"errors"
	"time"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon/rebalanceflags"
	"github.com/evenkeel/evenkeel/internal/adminapi"
	"github.com/evenkeel/evenkeel/internal/rebalance/engine"
)

// retentionCmd is the command that shows which keys the rules of retention would delete now.
type retentionCmd struct {
	Bucket string `arg:"" optional:"" help:"Name of the bucket; by default all that rules are about."`
	Rules  string `env:"-" placeholder:"FILE" help:"${retention_rules=}"`
	adminFlags
}

// errRule is the error if a rule of retention, which deletes old keys, cannot be applied to a bucket. The field
// Drop.Error of the rule's result holds the cause.
var errRule = errors.New("a rule can't be applied to a bucket")

func (retentionCmd) Help() string {
	return `Prints what the rules of retention would delete if they ran now, for each bucket and rule: the
keys, the ranges that go as a whole with their rows as they are counted, and the ranges that go
in part. Changes nothing: the process that leads the moves applies the rules of its --retention,
every --retention-every. rebalancer status shows what it has deleted, and when it runs next.

Look at new rules before you give them to the servers: with --rules FILE.

  rules:
    - bucket: sensors-*     # or one name
      prefix: day/          # what follows it in the key is a time
      keep: 720h
      time: 2006-01-02      # its form, or written: the time of the put; docs/deleting.md has all

Examples:

    rebalancer retention
    rebalancer retention photos --rules rules.yaml --json

Exit codes: 0 done; 1 a rule can't be applied to a bucket, which is said; 2 bad flags or rules;
4 there is no such bucket, or the leader has no rules.`
}

// Run prints the keys that the rules of retention would delete now. Run returns an error if a rule cannot be applied to
// a bucket.
func (c *retentionCmd) Run(ctx context.Context, std stdio) error {
	ask := adminapi.OldAsk{Bucket: c.Bucket}
	if c.Rules != "" {
		_, text, err := rebalanceflags.ReadRules("--rules", c.Rules)
		if err != nil {
			return usageError("%w", err)
		}
		ask.Rules = string(text)
	}
	return c.asksLeader(ctx, std, func(ctx context.Context, in wayIn) error {
		old, err := in.Old(ctx, ask)
		if err != nil {
			return err
		}
		err = c.print(std, old, func(w *failing) { printOld(w, &old) })
		if err != nil {
			return err
		}
		for i := range old.Drops {
			if d := &old.Drops[i]; d.Error != "" {
				return errRule
			}
		}
		return nil
	})
}

func printOld(w *failing, old *adminapi.Old) {
	for i := range old.Drops {
		printDrop(w, &old.Drops[i], "would delete")
	}
	if old.Omitted > 0 {
		w.printf("and %s more\n", commas(int64(old.Omitted)))
	}
	if len(old.Drops) == 0 {
		w.printf("nothing is old, by %s\n", many(len(old.Rules), "rule"))
	}
}

// printDrop prints which keys a rule of retention deletes from a bucket. The parameter what is the verb: "deleted" or
// "would delete".
func printDrop(w *failing, d *engine.Drop, what string) {
	w.printf("%s (%s)\n", text(d.Bucket), d.Rule)
	if d.Error != "" {
		w.printf("  failed: %s\n", d.Error)
	}
	if len(d.First) == 0 {
		return
	}
	if !d.PutBefore.IsZero() {
		w.printf("  %s %s rows in %s, put before %s, with keys from %s to %s\n", what, commas(d.Rows),
			many(int(d.Whole), "range"), d.PutBefore.Format(time.RFC3339), d.First, d.Last)
		return
	}
	w.printf("  %s the keys from %s to %s, all in [%s, %s): %s as a whole, about %s rows", what, d.First, d.Last,
		startText(d.From), endText(d.To), many(int(d.Whole), "range"), commas(d.Rows))
	if d.Parts > 0 {
		w.printf(", and parts of %s, which have about %s rows", many(int(d.Parts), "range"), commas(d.PartRows))
	}
	if d.Unknown > 0 {
		w.printf("; of %s the size is not known", many(int(d.Unknown), "range"))
	}
	w.printf("\n")
}

// printRetention prints what the rules of retention, which delete old keys, did in their last run, and when they run
// next. If leading is false, another process applies the rules, and printRetention prints nothing.
func printRetention(w *failing, s *engine.RetentionStatus, leading bool, now time.Time) {
	if s == nil || !leading {
		return
	}
	w.printf("%s of retention", many(len(s.Rules), "rule"))
	switch {
	case s.Now != nil:
		w.printf(", run since %s", ago(now, s.Now.Began))
	case !s.Next.IsZero():
		w.printf(", next run in %v", s.Next.Sub(now).Round(time.Second))
	}
	if s.Last != nil {
		w.printf("; last run %s: %s, %s as a whole with about %s rows deleted, %s failed", ago(now, s.Last.Began),
			many(int(s.Last.Buckets), "bucket"), many(int(s.Last.Whole), "range"), commas(s.Last.Rows), commas(s.Last.Failed))
	}
	if s.Paused {
		w.printf("; not applied while moves are paused")
	}
	w.printf("\n")
	const shown = 5
	for i := range s.Drops[:min(len(s.Drops), shown)] {
		d := &s.Drops[i]
		w.printf("%s: ", ago(now, d.Began))
		printDrop(w, d, "deleted")
	}
}
