package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon"
	"github.com/evenkeel/evenkeel/internal/adminapi"
)

type applyCmd struct {
	Bucket    string `arg:"" optional:"" help:"Name of a bucket to plan for; without it the plan is read from --plan."`
	Plan      string `placeholder:"FILE" help:"A plan, as plan --format json printed it."`
	Planner   string `default:"auto" enum:"exact,greedy,genetic,auto" help:"With a bucket: as for plan."`
	Objective string `default:"rows" enum:"rows,full" help:"With a bucket: as for plan."`
	Exact     bool   `help:"With a bucket: count every row first instead of using the counters."`
	Yes       bool   `short:"y" env:"-" help:"Do not ask."`
	moveFlags
}

func (applyCmd) Help() string {
	return `Shows a plan, asks, and carries out its moves while clients work. A plan for another layout
than the bucket's present one is refused: exit code 4, and nothing changes.

Examples:

    rebalancer apply photos
    rebalancer plan photos --format json > plan.json; rebalancer apply --plan plan.json
    rebalancer apply --plan plan.json --dry-run
    rebalancer apply photos --exact --yes --format json`
}

var terminal = daemon.Terminal // tests replace it

// Run carries out the splits and merges of a plan. The plan is in the file of --plan, or Run makes a plan for the
// bucket first.
func (c *applyCmd) Run(ctx context.Context, std stdio) error {
	switch {
	case c.Bucket != "" && c.Plan != "":
		return usageError("give a bucket or --plan, not both")
	case c.Bucket == "" && c.Plan == "":
		return usageError("name a bucket, or give a plan by --plan")
	case c.Plan != "" && c.Exact:
		return usageError("--exact goes with a bucket: this plan is made already")
	case c.NoWait && len(c.Cassandra) > 0:
		return usageError("--no-wait leaves the work to another process: not with --cassandra")
	case !c.Yes && !c.DryRun && (c.Format == "json" || !terminal(std.in)):
		return usageError("nobody can be asked here: --yes applies the plan all the same, --dry-run only shows it")
	}
	ask, err := c.plan(ctx, std)
	if err != nil {
		return err
	}
	return c.way(ctx, std, func(ctx context.Context, in wayIn) error {
		ask.DryRun = true
		a, err := in.Apply(ctx, *ask)
		if err != nil {
			return err
		}
		if c.Format == "table" {
			printMoves(std.out, &a, c.DryRun)
		}
		if c.DryRun || len(a.Moves) == 0 {
			return c.end(ctx, std, in, &a)
		}
		if !c.Yes {
			if err := confirm(std, "Apply?"); err != nil {
				return err
			}
		}
		ask.DryRun = false
		if a, err = in.Apply(ctx, *ask); err != nil {
			return err
		}
		return c.end(ctx, std, in, &a)
	})
}

// confirm asks the user a question on the terminal, and returns an error if the answer is not yes.
func confirm(std stdio, question string) error {
	fmt.Fprintf(std.out, "%s [y/N] ", question)
	line, _ := bufio.NewReader(std.in).ReadString('\n') // without an answer: no
	if yes := strings.ToLower(strings.TrimSpace(line)); yes != "y" && yes != "yes" {
		return refused("nothing was done")
	}
	return nil
}

// plan returns the plan in the file of --plan. Without the flag, plan makes a plan for the bucket, and prints the new
// plan if --format is table.
func (c *applyCmd) plan(ctx context.Context, std stdio) (*adminapi.Apply, error) {
	if c.Plan != "" {
		return readPlan(c.Plan)
	}
	p := planCmd{Bucket: c.Bucket, Exact: c.Exact, Planner: c.Planner, Objective: c.Objective, Seed: 1, adminFlags: c.adminFlags}
	l, limits, plan, err := p.make(ctx, std)
	if err != nil {
		return nil, err
	}
	if c.Format == "table" {
		if err := printPlan(std.out, l, limits, plan, movesShown); err != nil {
			return nil, err
		}
		fmt.Fprintln(std.out)
	}
	return &adminapi.Apply{Bucket: plan.Bucket, Partitions: plan.Ranges, Moves: plan.Moves}, nil
}

// readPlan returns the ranges and moves of the plan in the file at path. The command plan --format json makes such
// files.
func readPlan(path string) (*adminapi.Apply, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxLayoutBytes+1))
	if err == nil && len(data) > maxLayoutBytes {
		err = errors.New("it is too large")
	}
	var a adminapi.Apply
	if err == nil {
		err = json.Unmarshal(data, &a)
	}
	if err == nil && (a.Bucket == "" || len(a.Partitions) == 0) {
		err = errors.New("it names no bucket, or no partitions")
	}
	if err != nil {
		return nil, refused("%s is no plan as plan --format json prints it: %w", path, err)
	}
	return &a, nil
}
