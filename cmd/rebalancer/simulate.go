package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/evenkeel/evenkeel/internal/rebalance/policysim"
)

// simulateCmd runs scenarios.
type simulateCmd struct {
	Scenario string  `arg:"" help:"A scenario: one of ${scenarios}, or a file (YAML or JSON)."`
	Seed     *uint64 `help:"Seed, instead of the scenario's. The same seed gives the same result."`
	Planner  string  `enum:",${cutters}" default:"" help:"Planner of splits, instead of the scenario's: one of ${cutters}."`
	Format   string  `default:"table" enum:"table,json" help:"Output format: table or json."`
}

// Help is shown by simulate --help.
func (simulateCmd) Help() string {
	return `Simulates days or months of many buckets in memory, with the real balancer, counters, forecasts
and planners, and reports the cost: rows moved per row written, how many partitions were over
max_rows and for how long, merges and splits undone (as merges+splits), and reads per listed page.
docs/policy.md explains scenarios and shows results. It changes nothing.`
}

// Run runs a scenario and prints the report.
func (c *simulateCmd) Run(ctx context.Context, std stdio) error {
	s, known, err := policysim.Builtin(c.Scenario)
	if !known {
		f, oerr := os.Open(c.Scenario)
		if oerr != nil {
			return usageError("%q is neither a file nor one of the scenarios %s: %w",
				c.Scenario, strings.Join(policysim.Names(), ", "), oerr)
		}
		defer f.Close()
		s, err = policysim.Read(f)
	}
	if err != nil {
		return usageError("the scenario %s can't be played: %w", c.Scenario, err)
	}
	if c.Seed != nil {
		s.Seed = *c.Seed
	}
	if c.Planner != "" {
		s.Planner = c.Planner
	}
	r, err := policysim.Run(ctx, s)
	if err != nil {
		return fmt.Errorf("the scenario did not end: %w", err)
	}
	if c.Format == "json" {
		return printJSON(std.out, r)
	}
	return r.Print(std.out)
}
