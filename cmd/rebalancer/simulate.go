package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon"
	"github.com/evenkeel/evenkeel/internal/rebalance/policysim"
)

// simulateCmd is the command that simulates how ranges are split and merged in a scenario, such as days of appended
// keys.
type simulateCmd struct {
	Scenario string      `arg:"" optional:"" help:"${simulate_scenario=}"`
	All      bool        `help:"${simulate_all=}"`
	List     bool        `help:"List the scenarios that come with the program."`
	Seed     *uint64     `env:"EVENKEEL_SIMULATE_SEED" help:"${simulate_seed=}"`
	Seeds    int         `default:"0" placeholder:"N" help:"${simulate_seeds=}"`
	Planner  string      `enum:",${cutters}" default:"" help:"Planner of splits, instead of the scenario's: one of ${cutters}."`
	Check    bool        `help:"Exit with 1 if a target is missed."`
	Format   string      `default:"table" enum:"table,json" help:"Output format: table or json."`
	JSON     daemon.JSON `name:"json" env:"-" help:"Short for --format json."`
	Progress string      `default:"auto" enum:"auto,plain,none" help:"${simulate_progress=}"`
}

// defaultSeeds is the default of --seeds together with --all. It is the number of times that each scenario is
// simulated, each time with another random seed.
const defaultSeeds = 5

// Help returns the detailed help text of the command simulate, which --help prints.
func (simulateCmd) Help() string {
	return `Simulates days or months of many buckets in memory, with the real balancer, counters, forecasts,
planners, maps and state machine of moves, and reports the cost: rows copied per row written and
deleted, how large partitions became and for how long, merges and splits undone (as merges+splits),
and reads per listed page. It changes nothing.

A scenario may have targets; those that are missed are named, and with --check the exit code is 1.
docs/simulations.md explains scenarios, bench/results/policy.md shows results.

  rebalancer simulate append-170                          # one of those that --list names
  rebalancer simulate mine.yaml --seeds 5 --check         # the worst of five runs
  rebalancer simulate --all                               # the table of bench/results/policy.md`
}

// Validate returns an error if a flag of the command simulate has an invalid value. The command-line parser kong calls
// Validate before Run.
func (c *simulateCmd) Validate() error {
	n := 0
	for _, given := range []bool{c.Scenario != "", c.All, c.List} {
		if given {
			n++
		}
	}
	if n != 1 {
		return fmt.Errorf("give a scenario, or --all, or --list (scenarios are files, or one of %s)",
			strings.Join(policysim.Names(), ", "))
	}
	if c.Seeds < 0 || c.Seeds > 1000 {
		return fmt.Errorf("--seeds is 1 to 1000, not %d", c.Seeds)
	}
	return nil
}

// Run simulates how ranges are split and merged in a scenario, or in all scenarios, and prints the report.
func (c *simulateCmd) Run(ctx context.Context, std stdio) error {
	switch {
	case c.List:
		return listScenarios(std.out)
	case c.All:
		return c.all(ctx, std)
	}
	s, err := c.read(c.Scenario)
	if err != nil {
		return err
	}
	if c.Seeds > 0 {
		return c.judge(ctx, std, []*policysim.Scenario{s})
	}
	r, err := policysim.Run(ctx, s)
	if err != nil {
		return fmt.Errorf("the scenario did not end: %w", err)
	}
	if c.Format == "json" {
		err = daemon.PrintJSON(std.out, r)
	} else {
		err = r.Print(std.out)
	}
	if err == nil && c.Check && len(r.Missed) > 0 {
		err = daemon.Exit(daemon.ExitFailed, fmt.Errorf("%d targets were missed", len(r.Missed)))
	}
	return err
}

// read returns a scenario for the simulation. name is the name of a built-in scenario, or the path of a file with a
// scenario. The flags --seed and --planner replace the scenario's values.
func (c *simulateCmd) read(name string) (*policysim.Scenario, error) {
	s, known, err := policysim.Builtin(name)
	if !known {
		f, oerr := os.Open(name)
		if oerr != nil {
			return nil, usageError("%q is neither a file nor one of the scenarios %s: %w",
				name, strings.Join(policysim.Names(), ", "), oerr)
		}
		defer f.Close()
		s, err = policysim.Read(f)
	}
	if err != nil {
		return nil, usageError("the scenario %s can't be played: %w", name, err)
	}
	if c.Seed != nil {
		s.Seed = *c.Seed
	}
	if c.Planner != "" {
		s.Planner = c.Planner
	}
	return s, nil
}

func listScenarios(w io.Writer) error {
	for _, name := range policysim.Names() {
		s, _, err := policysim.Builtin(name)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(w, "%-20s %s\n", name, s.Text); err != nil {
			return err
		}
	}
	return nil
}

// all simulates all built-in scenarios that have targets. A target is a limit for a figure of the report.
func (c *simulateCmd) all(ctx context.Context, std stdio) error {
	var all []*policysim.Scenario
	for _, name := range policysim.Names() {
		s, err := c.read(name)
		if err != nil {
			return err
		}
		if s.Targets != nil {
			all = append(all, s)
		}
	}
	if c.Seeds == 0 {
		c.Seeds = defaultSeeds
	}
	if c.Progress == "auto" {
		c.Progress = "plain"
	}
	return c.judge(ctx, std, all)
}

// judge simulates the scenarios in all, each with --seeds different random seeds, several at the same time. judge
// prints the worst figures of each scenario.
func (c *simulateCmd) judge(ctx context.Context, std stdio, all []*policysim.Scenario) error {
	verdicts := make([]*policysim.Verdict, len(all))
	var mu sync.Mutex
	done := 0
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(runtime.GOMAXPROCS(0))
	for i, s := range all {
		g.Go(func() error {
			began := std.now()
			v := policysim.NewVerdict(s)
			for k := range c.Seeds {
				run := *s
				run.Seed += uint64(k)
				r, err := policysim.Run(ctx, &run)
				if err != nil {
					return fmt.Errorf("scenario %s, seed %d: %w", s.Name, run.Seed, err)
				}
				v.Add(r)
			}
			mu.Lock()
			defer mu.Unlock()
			verdicts[i] = v
			done++
			if c.Progress == "plain" {
				took := std.now().Sub(began)
				fmt.Fprintf(std.err, "%d of %d: %s, %.1f days in %v (%.0f days/s)\n", done, len(all), s.Name, v.Days,
					took.Round(100*time.Millisecond), v.Days/max(took.Seconds(), 1e-3))
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	var err error
	if c.Format == "json" {
		err = daemon.PrintJSON(std.out, verdicts)
	} else {
		err = policysim.PrintVerdicts(std.out, verdicts)
	}
	missed := 0
	for _, v := range verdicts {
		if len(v.Missed) > 0 {
			missed++
		}
	}
	if err == nil && c.Check && missed > 0 {
		err = daemon.Exit(daemon.ExitFailed, fmt.Errorf("%d of %d scenarios missed a target", missed, len(verdicts)))
	}
	return err
}
