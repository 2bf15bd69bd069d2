package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon"
	"github.com/evenkeel/evenkeel/internal/adminapi"
	"github.com/evenkeel/evenkeel/internal/rebalance/engine"
)

// exitMoving is the exit code of pause --wait if moves are paused, but some moves that had begun have not ended within
// --timeout.
const exitMoving = 5

type pauseCmd struct {
	holdFlags
	Wait     bool          `help:"Return when nothing moves any more, as snapshots require."`
	Timeout  time.Duration `default:"1h" help:"With --wait: longest wait. The pause stays."`
	Why      string        `placeholder:"TEXT" help:"Reason of the pause; status shows it."`
	For      time.Duration `placeholder:"DURATION" help:"End the pause automatically after this time; by default resume ends it."`
	Progress string        `default:"auto" enum:"auto,plain,none" help:"${pause_progress=}"`
}

func (pauseCmd) Help() string {
	return `Prevents moves of a bucket, or of all, from beginning. Moves that have begun continue to
their end; clients are not affected. Buckets of objects are not cleaned meanwhile, so that
bodies can be copied. The pause is kept in the store: every process obeys it,
also after a restart or a change of the leader, until resume or the end of --for.

With --wait it returns when no batch is in flight and none can begin: maps do not change any
more. Take snapshots of a Cassandra keyspace then; see docs/backup.md.

Examples:

    rebalancer pause --wait --why 'nightly snapshot' && nodetool snapshot -t nightly evenkeel
    rebalancer pause photos --for 2h
    rebalancer resume

Exit codes: 0 paused (with --wait: and nothing moves); 5 paused, but after --timeout something
still moves; else as always.`
}

// Validate returns an error if --timeout or --for has an invalid value. The command-line parser kong calls Validate
// before Run.
func (c *pauseCmd) Validate() error {
	if c.Timeout <= 0 || c.For < 0 {
		return errors.New("--timeout and --for are above zero")
	}
	return nil
}

// Run pauses the moves of ranges. With --wait, Run returns when the moves that had begun have ended.
func (c *pauseCmd) Run(ctx context.Context, std stdio) error {
	return c.reads(ctx, std, func(ctx context.Context, in wayIn) error {
		p, err := in.Pause(ctx, adminapi.PauseAsk{
			Which: adminapi.Which{Bucket: c.Bucket, DryRun: c.DryRun}, By: whoAsks(), Why: c.Why, ForS: c.For.Seconds(),
		})
		if err != nil {
			return err
		}
		var q *adminapi.Quiet
		if c.Wait && !c.DryRun {
			if q, err = c.wait(ctx, std, in); err != nil {
				return err
			}
		}
		return c.tell(std, p, q)
	})
}

// whoAsks returns a text that says who pauses the moves: the name of the user, if known, and the name of this process.
func whoAsks() string {
	who := engine.Name("rebalancer")
	if user := os.Getenv("USER"); user != "" {
		who = user + ", by " + who
	}
	return who
}

func (c *pauseCmd) tell(std stdio, p adminapi.Paused, q *adminapi.Quiet) error {
	answer := map[string]any{"pause": p, "quiet": q, "dry_run": c.DryRun}
	return c.print(std, answer, func(w *failing) {
		switch of := ofBucket(c.Bucket); {
		case c.DryRun:
			w.printf("%s can be paused; nothing was done: that was a dry run\n", of)
		case p.Already:
			w.printf("%s: paused already, %s\n", of, p.Pause)
		default:
			w.printf("%s paused\n", of)
		}
		if q != nil { // not after a dry run
			w.printf("nothing moves: %s maps looked at\n", commas(int64(q.Roots)))
		}
	})
}

func ofBucket(name string) string {
	if name == "" {
		return "all buckets"
	}
	return text(name)
}

// wait waits until no range moves any more. After --timeout, wait returns an error with the exit code 5.
func (c *pauseCmd) wait(ctx context.Context, std stdio, in wayIn) (*adminapi.Quiet, error) {
	limited, stop := context.WithTimeout(ctx, c.Timeout)
	defer stop()
	show := c.Progress == "plain" || c.Progress == "auto" && daemon.Terminal(std.err)
	shown := ""
	q, err := in.Quiet(limited, adminapi.Which{Bucket: c.Bucket}, func(q adminapi.Quiet) {
		if line := movingText(&q); show && line != shown {
			shown = line
			fmt.Fprintln(std.err, line)
		}
	})
	switch {
	case err == nil:
		return &q, nil
	case ctx.Err() != nil:
		return nil, fmt.Errorf("interrupted; the pause stays: rebalancer resume ends it")
	case limited.Err() == nil:
		return nil, err
	}
	led := ""
	// A batch whose mover has died goes on only when another process leads.
	if s, serr := in.Status(ctx); serr == nil && s.Leader == nil && !s.Leading {
		led = "; no process leads, so nothing comes to its end: start listd or rebalancer run"
	}
	return nil, daemon.Exit(exitMoving, fmt.Errorf(
		"moves are paused, but after %v they have not ended: %s%s. rebalancer pause --wait waits on, rebalancer resume ends the pause",
		c.Timeout, movingText(&q), led))
}

// movingText returns a text that lists the buckets whose ranges still move. If no such bucket is known yet, the text
// says how many maps of buckets were checked so far.
func movingText(q *adminapi.Quiet) string {
	if !q.Scanned && q.MovingBuckets == 0 {
		return fmt.Sprintf("%s maps looked at so far, none of them moves", commas(int64(q.Roots)))
	}
	const most = 20
	var names []string
	for _, b := range q.Moving[:min(len(q.Moving), most)] {
		names = append(names, b.String())
	}
	if rest := q.MovingBuckets - len(names); rest > 0 {
		names = append(names, fmt.Sprintf("and %d more", rest))
	}
	verb := "move"
	if q.MovingBuckets == 1 {
		verb = "moves"
	}
	return fmt.Sprintf("%s still %s: %s", many(q.MovingBuckets, "bucket"), verb, strings.Join(names, ", "))
}

type resumeCmd struct{ holdFlags }

func (resumeCmd) Help() string {
	return `Ends a pause. Without a bucket it ends all pauses, also of single buckets.

Example:

    rebalancer resume`
}

// Run ends the pause of one bucket, or all pauses if the command names no bucket.
func (c *resumeCmd) Run(ctx context.Context, std stdio) error {
	return c.reads(ctx, std, func(ctx context.Context, in wayIn) error {
		d, err := in.Resume(ctx, adminapi.Which{Bucket: c.Bucket, DryRun: c.DryRun})
		if err != nil {
			return err
		}
		answer := map[string]any{"bucket": c.Bucket, "lifted": d.Lifted, "dry_run": c.DryRun}
		return c.print(std, answer, func(w *failing) {
			switch of := ofBucket(c.Bucket); {
			case c.DryRun:
				w.printf("%s can be resumed; nothing was done: that was a dry run\n", of)
			case !d.Lifted:
				w.printf("%s: nothing was paused\n", of)
			default:
				w.printf("%s resumed\n", of)
			}
		})
	})
}

// printPauses prints a line for each pause of moves: of which bucket, by whom and until when. The parameter `now` is
// the current time: a pause that has ended by then is printed as over.
func printPauses(out io.Writer, pauses []adminapi.Paused, now time.Time) {
	for _, p := range pauses {
		over := ""
		if !p.Until.IsZero() && now.After(p.Until) {
			over = " (over)"
		}
		of := "All moves are paused"
		if p.Bucket != "" {
			of = "The moves of " + text(p.Bucket) + " are paused"
		}
		fmt.Fprintf(out, "%s %s%s\n", of, p.Pause, over)
	}
}
