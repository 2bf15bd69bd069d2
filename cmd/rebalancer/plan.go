package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon"
	"github.com/evenkeel/evenkeel/rebalance"
	"github.com/evenkeel/evenkeel/rebalance/planner"
)

// planCmd is the command that plans splits and merges of ranges, for a live bucket or for the sizes in a file.
type planCmd struct {
	Bucket      string             `arg:"" optional:"" help:"Name of a bucket to plan for."`
	Layout      string             `placeholder:"FILE" help:"${plan_layout=}"`
	Exact       bool               `help:"With a bucket: count every row first instead of using the counters."`
	Planner     string             `default:"auto" enum:"exact,greedy,genetic,auto" help:"${plan_planner=}"`
	Objective   string             `default:"rows" enum:"rows,full" help:"${plan_objective=}"`
	Weight      map[string]float64 `placeholder:"TERM=W" mapsep:"," help:"${plan_weight=}"`
	Seed        int64              `default:"1" env:"EVENKEEL_PLAN_SEED" help:"${plan_seed=}"`
	Generations *int               `placeholder:"N" help:"Most generations of the genetic planner, however long they take."`
	TimeLimit   *time.Duration     `placeholder:"2s" help:"${plan_time_limit=}"`
	All         bool               `help:"Print all moves, not only the first ${moves_shown}."`
	adminFlags
}

// Help returns the detailed help text of the command plan, which --help prints.
func (planCmd) Help() string {
	return `A layout has the sizes of a bucket's partitions, and the keys where they can be cut:

  {"bucket": "photos",
   "limits": {"max_rows": 100000, "min_rows": 25000, "target_rows": 60000},
   "partitions": [
     {"id": "p1", "start": "",  "quanta": [{"key": "a", "rows": 70000}, {"key": "f", "rows": 50000}]},
     {"id": "p2", "start": "m", "quanta": [{"key": "m", "rows": 9000}], "pinned": true}]}

A quantum's rows lie from its key up to the next one; cuts lie at keys of quanta and at starts,
nowhere else. A pinned start stays a cut. Partitions may also have writes_per_s and
growth_rows_per_s, and the limits max_writes_per_s and horizon_s: --objective full looks at
them. A key that is not UTF-8 is written {"b64": "..."}. docs/planners.md has all of it.

Or name a bucket: its layout is requested at --admin, from the process that keeps it in shape.

Every plan has the number of rows it moves, the fewest that any plan must move (the lower
bound), and the gap between the two. If no plan can meet the limits, its notes say so.`
}

// defaultTimeLimit and the other constants limit the search for a plan, in time and in generations, and the size of a
// layout file. A layout has the partitions of a bucket and their sizes. A generation is one step of the genetic
// planner.
const (
	defaultTimeLimit = 2 * time.Second
	// largeTimeLimit is the default time limit for layouts with more than largeQuanta quanta, which take long to read.
	// A quantum is a small interval of keys with its number of rows.
	largeTimeLimit = 8 * time.Second
	largeQuanta    = 150_000
	// noGenerations is a number of generations that is never reached, so that only time ends the search.
	noGenerations = 1 << 30
	// maxLayoutBytes is the largest size of a layout file. The memory for a layout is about ten times the size of the
	// file. The size is enough for 100,000 partitions of 50 quanta, which are small intervals of keys with their
	// numbers of rows.
	maxLayoutBytes = 256 << 20
)

// Run makes a plan of splits and merges, and prints the plan.
func (c *planCmd) Run(ctx context.Context, std stdio) error {
	l, limits, p, err := c.make(ctx, std)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(std.out)
	if c.Format == "json" {
		err = daemon.PrintJSON(w, p)
	} else {
		shown := movesShown
		if c.All {
			shown = len(p.Moves)
		}
		err = printPlan(w, l, limits, p, shown)
	}
	return errors.Join(err, w.Flush())
}

// make makes a plan of splits and merges. The other results are the layout (the partitions and their sizes) and the
// limits of sizes for which the plan was made.
func (c *planCmd) make(ctx context.Context, std stdio) (*rebalance.Layout, rebalance.Limits, *rebalance.Plan, error) {
	bad := func(err error) (*rebalance.Layout, rebalance.Limits, *rebalance.Plan, error) {
		return nil, rebalance.Limits{}, nil, err
	}
	began := std.now()
	options, limit, err := c.search()
	if err != nil {
		return bad(err)
	}
	l, limits, err := c.layout(ctx, std)
	if err != nil {
		return bad(err)
	}
	objective, err := c.objective(limits.MaxRows)
	if err != nil {
		return bad(err)
	}
	if c.Bucket != "" {
		began = std.now() // the time limit does not include the request
	}
	if limit > 0 {
		if c.TimeLimit == nil && quanta(&l) > largeQuanta {
			limit = largeTimeLimit
		}
		options.Stop = (&timer{now: std.now, began: began, limit: limit}).over
	}
	planner, err := planner.New(c.Planner, options)
	if err != nil {
		return bad(usageError("--planner: %w", err))
	}
	p, err := planner.Plan(ctx, &l, limits, objective)
	if errors.Is(err, context.Canceled) {
		return bad(errors.New("interrupted"))
	}
	if err != nil {
		return bad(err)
	}
	return &l, limits, p, nil
}

// Validate returns an error if --weight names an unknown term or has a bad value. The command-line parser kong calls
// Validate before Run.
func (c *planCmd) Validate() error {
	_, err := c.objective(1)
	return err
}

// objective returns the objective by which plans are compared: only the number of moved rows, or also other costs, with
// the weights of --weight. maxRows is the largest number of rows of a partition.
func (c *planCmd) objective(maxRows int64) (rebalance.Objective, error) {
	o := rebalance.Costs(maxRows)
	o.Kind = rebalance.Kind(c.Objective)
	if len(c.Weight) > 0 {
		o.Kind = rebalance.Full
	}
	for term, w := range c.Weight {
		if err := o.Weights.Set(term, w); err != nil {
			return o, usageError("--weight: %w", err)
		}
	}
	return o, nil
}

// layout returns the partitions and their sizes, for which the command plans, and the limits of sizes. They come from
// the file of --layout. If the command names a bucket, they come from the leader, the process that carries out moves.
func (c *planCmd) layout(ctx context.Context, std stdio) (l rebalance.Layout, limits rebalance.Limits, err error) {
	switch {
	case c.Bucket != "" && c.Layout != "":
		return l, limits, usageError("give a bucket or --layout, not both")
	case c.Bucket == "" && c.Layout == "":
		return l, limits, usageError("name a bucket, or give a file by --layout")
	case c.Bucket == "" && c.Exact:
		return l, limits, usageError("--exact goes with a bucket: in a file nothing can be counted")
	case c.Bucket == "":
		return readLayout(c.Layout, std.in, maxLayoutBytes)
	}
	err = c.asksLeader(ctx, std, func(ctx context.Context, in wayIn) (err error) {
		l, limits, err = fetchLayout(ctx, in, c.Bucket, c.Exact)
		return err
	})
	return l, limits, err
}

// timer ends the search for a plan early enough for the whole command to meet its time limit. It assumes that
//   - the work after the search, such as checks and output, takes as long as the work before the search, and
//   - the next generation of plans takes as long as the longest generation so far.
type timer struct {
	now     func() time.Time
	began   time.Time
	limit   time.Duration
	before  time.Duration
	last    time.Time
	longest time.Duration
}

// over reports whether the search for a plan has to end now, to meet the time limit. The planner calls over before each
// generation of plans.
func (t *timer) over() bool {
	now := t.now()
	if t.last.IsZero() {
		t.before = now.Sub(t.began)
	} else {
		t.longest = max(t.longest, now.Sub(t.last))
	}
	t.last = now
	return now.Sub(t.began)+t.longest+t.before+t.limit/20 >= t.limit
}

func quanta(l *rebalance.Layout) (n int) {
	for i := range l.Partitions {
		n += len(l.Partitions[i].Quanta)
	}
	return n
}

// search returns the options of the genetic planner, and the time limit of the planner's search. A limit of 0 means
// that only the number of generations ends the search.
func (c *planCmd) search() (o planner.Options, limit time.Duration, err error) {
	o = planner.Options{Seed: c.Seed, Generations: noGenerations}
	limit = defaultTimeLimit
	if c.Generations != nil {
		limit = 0
		if o.Generations = *c.Generations; o.Generations < 0 || o.Generations > noGenerations {
			return o, 0, usageError("--generations must be between 0 and %d, is %d", noGenerations, o.Generations)
		}
	}
	if c.TimeLimit != nil {
		if limit = *c.TimeLimit; limit <= 0 {
			return o, 0, usageError("--time-limit must be more than 0, is %s", limit)
		}
	}
	return o, limit, nil
}

// problemsShown is the largest number of problems that are printed if a layout file is invalid.
const problemsShown = 1000

// readLayout reads a layout file, which has the partitions of a bucket, their sizes, and the limits of sizes. The path
// "-" stands for stdin. A file of more than `most` bytes is refused.
func readLayout(path string, stdin io.Reader, most int64) (l rebalance.Layout, limits rebalance.Limits, err error) {
	in, name, err := daemon.Input(path, stdin)
	if err != nil {
		return l, limits, err
	}
	defer in.Close()
	data, err := io.ReadAll(io.LimitReader(in, most+1))
	if err != nil {
		return l, limits, fmt.Errorf("reading %s: %w", name, err)
	}
	if int64(len(data)) > most {
		return l, limits, daemon.Exit(daemon.ExitUnusable, fmt.Errorf(
			"%s is larger than %d MiB, the most that a layout may have: sample fewer quanta", name, most>>20))
	}
	l, limits, err = rebalance.DecodeLayout(data)
	if problems, ok := errors.AsType[rebalance.Problems](err); ok {
		var b strings.Builder
		fmt.Fprintf(&b, "%s is no layout:", name)
		for i, p := range problems {
			if i == problemsShown {
				fmt.Fprintf(&b, "\n  and %d more", len(problems)-i)
				break
			}
			fmt.Fprintf(&b, "\n  %s", p)
		}
		return l, limits, daemon.Exit(daemon.ExitUnusable, errors.New(b.String()))
	}
	return l, limits, err
}
