package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/bench/layouts"
	"github.com/evenkeel/evenkeel/bench/layouts/bench"
	"github.com/evenkeel/evenkeel/internal/test/cassandratest"
)

// runCmd is the command that measures layouts: it loads keys into each layout, and times pages, scans and puts.
type runCmd struct {
	Store     string        `default:"both" enum:"pebble,cassandra,both" help:"Where the layouts lie: pebble (embedded), cassandra, or both."`
	Keys      int           `default:"200000" help:"Keys of the main set; the others have a share of it."`
	Layouts   []string      `placeholder:"NAME" help:"Measure only these layouts, besides evenkeel; layoutbench layouts names them."`
	Sets      []string      `placeholder:"NAME" help:"Measure only these sets of keys: ${sets}."`
	Pages     int           `default:"200" help:"How often each kind of page is read; the slowest layouts read fewer."`
	Time      time.Duration `default:"13m" help:"End about then, with the servers started; what does not fit in is named, and left out."`
	Cassandra string        `env:"${cassandra_variable}" placeholder:"ADDRESS" help:"Use this node, of data centre dc1, without a password. Default: start one (needs Java 17 and Maven), which ends with the run."`
	Format    string        `default:"table" enum:"table,json" help:"How to print the figures: table or json."`
	Docs      string        `placeholder:"ROOT" help:"Write docs/benchmarks.md and bench/results into the source tree at this root."`
	JSON      string        `placeholder:"FILE" help:"Write the figures as JSON to this file, too."`
}

// Help returns the detailed help text of the command run, which --help prints.
func (runCmd) Help() string {
	return `Loads sets of keys into each layout, and measures puts, pages (first, deep, under a prefix, folded by a delimiter, newest first), scans, what they read, and the sizes of partitions. Layouts take turns, so that a busy machine is busy for all of them; each figure stands beside its ratio to evenkeel's, round by round, with those of the lowest and the highest tenth of the run. On Pebble each layout has an engine of its own, as has the bare engine beside them. Then the map is measured: lookups, its memory, and on Cassandra swaps of its root. All that is read is compared with a sorted slice; the first row that is wrong ends the run with an error.

A quick look:

  layoutbench run --store pebble --keys 20000 --pages 40

Everything but two minutes' worth of starting servers, watching buckets grow and measuring the map is in proportion to --keys and --pages. It needs some 1.5 GiB of memory by default, besides 1.5 GiB for a Cassandra node and 0.5 GiB for PostgreSQL: each engine on Pebble may take 128 MiB for its cache and as much again for what is not in files yet, and seven of them are open at once; keys and values are kept in memory, too, to compare with.`
}

// Run measures the layouts that the flags choose, and prints the figures as a table or as JSON. The messages about the
// progress go to p.
func (c *runCmd) Run(ctx context.Context, out io.Writer, p progress) error {
	o := bench.Options{
		Stores: []string{c.Store}, Keys: c.Keys, Sets: c.Sets, Layouts: c.Layouts, Pages: c.Pages, Time: c.Time,
		Cassandra: c.Cassandra, Progress: p,
	}
	if c.Store == "both" {
		o.Stores = []string{bench.Pebble, bench.Cassandra}
	}
	if c.Keys < 2000 || c.Pages < 1 || c.Time <= 0 {
		return usageError{fmt.Errorf("--keys is 2000 or more, --pages 1 or more, --time above 0")}
	}
	var names []string
	for _, k := range layouts.Kinds() {
		names = append(names, k.Name)
	}
	for _, check := range []struct {
		flag       string
		given, all []string
	}{{"--layouts", c.Layouts, names}, {"--sets", c.Sets, bench.SetNames()}} {
		for _, name := range check.given {
			if !slices.Contains(check.all, name) {
				return usageError{fmt.Errorf("%s: there is no %q: %s", check.flag, name, strings.Join(check.all, ", "))}
			}
		}
	}
	if len(o.Layouts) > 0 { // all ratios are to it
		o.Layouts = append(o.Layouts, layouts.NameEvenkeel)
	}
	r, err := bench.Run(ctx, o)
	if err != nil {
		return err
	}
	if c.JSON != "" {
		text, err := json.MarshalIndent(r, "", "  ")
		if err == nil {
			err = os.WriteFile(c.JSON, append(text, '\n'), 0o644)
		}
		if err != nil {
			return err
		}
	}
	if c.Docs != "" {
		if err := r.WriteDocs(c.Docs); err != nil {
			return err
		}
	}
	if c.Format == "json" {
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		return e.Encode(r)
	}
	return r.Print(out)
}

// runVariables returns the values of the variables in the help texts of the command run, e.g. the names of all sets of
// keys.
func runVariables() map[string]string {
	return map[string]string{"sets": strings.Join(bench.SetNames(), ", "),
		"cassandra_variable": cassandratest.AddressVariable}
}
