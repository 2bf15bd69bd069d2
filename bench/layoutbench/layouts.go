package main

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/evenkeel/evenkeel/bench/layouts"
)

// layoutsCmd is the command that prints the compared layouts: for each its primary key, its purpose and its limits.
type layoutsCmd struct {
	Format string `default:"table" enum:"table,json" help:"How to print: table or json."`
}

// Run prints the layouts as a table or as JSON.
func (c *layoutsCmd) Run(out io.Writer) error {
	kinds := layouts.Kinds()
	if c.Format == "json" {
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		return e.Encode(kinds)
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "Layout\tprimary key\tkeeps\tfor what\tlimits")
	for _, k := range kinds {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", k.Name, k.PrimaryKey, k.Keeps, k.For, k.Limits)
	}
	return w.Flush()
}
