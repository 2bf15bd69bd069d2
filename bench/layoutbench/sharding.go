package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"text/tabwriter"

	"github.com/evenkeel/evenkeel/bench/sharding"
)

// shardingCmd is the command that compares ways to assign items to shards, by hashing and by ranges of keys.
type shardingCmd struct {
	Items     int    `default:"1000000" help:"How many items."`
	Shards    int    `default:"20" help:"How many shards at first (at most 60); then one is added."`
	Seeds     int    `default:"30" help:"How many drawings of names each scheme's spread is taken over."`
	LongSeeds int    `default:"100" help:"The same for consistent hashing with one replica, where one drawing says nothing."`
	Format    string `default:"table" enum:"table,json" help:"How to print: table or json."`
}

// Help returns the help text of the command sharding, which explains the columns of the table.
func (*shardingCmd) Help() string {
	return `Measures how many items keep their shard when one is added, how even the shards are then, what one
assignment takes, and whether neighbouring items stay together, for schemes that hash and for ranges.

  stays  share of items that keep their shard: the mean over all drawings (the least to the most)
  std    standard deviation of items per shard, with the added one, likewise
  time   for one assignment of all items, one after the other, hashing included: the best of three
  order  yes: a page of sorted items reads one shard or two; no: all of them`
}

// Run measures how many items change their shard when a shard is added, and prints a row for each way of sharding.
func (c *shardingCmd) Run(ctx context.Context, out io.Writer, p progress) error {
	o := sharding.Options{
		Items: c.Items, Shards: c.Shards, Seeds: c.Seeds, LongSeeds: c.LongSeeds, Workers: runtime.GOMAXPROCS(0),
	}
	if err := o.Check(); err != nil {
		return usageError{err}
	}
	rows, err := sharding.Measure(ctx, o, func(r sharding.Row) { fmt.Fprintf(p, "measured %s\n", r.Name) })
	if err != nil {
		return err
	}
	if c.Format == "json" {
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		return e.Encode(struct {
			Items  int            `json:"items"`
			Shards int            `json:"shards"`
			Rows   []sharding.Row `json:"rows"`
		}{c.Items, c.Shards, rows})
	}
	fmt.Fprintf(out, "%d items on %d shards, then on %d\n\n", c.Items, c.Shards, c.Shards+1)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "Scheme\tstays %\tstd of items per shard\ttime s\tseeds\torder\tneeds\tloses")
	for _, r := range rows {
		order := "no"
		if r.KeepsOrder {
			order = "yes"
		}
		fmt.Fprintf(w, "%s\t%.2f (%.2f to %.2f)\t%.0f (%.0f to %.0f)\t%.3f\t%d\t%s\t%s\t%s\n",
			r.Name, r.StaysPercent.Mean, r.StaysPercent.Min, r.StaysPercent.Max, r.Std.Mean, r.Std.Min, r.Std.Max,
			r.NanosPerItem*float64(c.Items)/1e9, r.Seeds, order, r.Needs, r.Loses)
	}
	return w.Flush()
}
