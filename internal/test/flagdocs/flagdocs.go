// Package flagdocs writes the reference of a program's commands and flags as Markdown.
package flagdocs

import (
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// Commands writes a section for each command below a node that takes flags of its own; path
// is how the node is called. Rows in shared are left out of them.
func Commands(b *strings.Builder, n *kong.Node, path string, shared []string) {
	for _, child := range n.Children {
		full := path + " " + child.Name
		if len(child.Children) == 0 {
			Command(b, full, child, shared)
		}
		Commands(b, child, full, shared)
	}
}

// Shared returns the rows of flags that at least so many commands below a node have, in the
// order in which they occur.
func Shared(n *kong.Node, least int) (rows []string) {
	count := map[string]int{}
	var visit func(n *kong.Node)
	visit = func(n *kong.Node) {
		for _, f := range n.Flags {
			r := row(f)
			if count[r]++; count[r] == least && f.Name != "help" {
				rows = append(rows, r)
			}
		}
		for _, child := range n.Children {
			visit(child)
		}
	}
	visit(n)
	return rows
}

// Command writes the section of one command.
func Command(b *strings.Builder, title string, n *kong.Node, shared []string) {
	fmt.Fprintf(b, "\n## %s\n\n", title)
	if n.Help != "" && n.Type == kong.CommandNode {
		fmt.Fprintf(b, "%s\n\n", n.Help)
	}
	if len(n.Positional) > 0 {
		fmt.Fprintf(b, "| argument | meaning |\n|---|---|\n")
		for _, p := range n.Positional {
			fmt.Fprintf(b, "| `%s` | %s |\n", p.Summary(), Cell(p.Help))
		}
		b.WriteString("\n")
	}
	var own []string
	left := 0
	for _, f := range n.Flags {
		switch r := row(f); {
		case f.Name == "help":
		case slices.Contains(shared, r):
			left++
		default:
			own = append(own, r)
		}
	}
	if left > 0 {
		b.WriteString("Takes [shared flags](#shared-flags).\n\n")
	}
	if len(own) > 0 {
		Flags(b, own)
	}
}

// Flags writes a table of rows.
func Flags(b *strings.Builder, rows []string) {
	fmt.Fprintf(b, "| flag | environment | default | meaning |\n|---|---|---|---|\n%s", strings.Join(rows, ""))
}

func row(f *kong.Flag) string {
	name := "`--" + f.Name + "`"
	if f.Short != 0 {
		name += fmt.Sprintf(", `-%c`", f.Short)
	}
	env, preset := "", ""
	if len(f.Envs) > 0 {
		env = "`" + f.Envs[0] + "`"
	}
	if f.Default != "" {
		preset = "`" + f.Default + "`"
	}
	return fmt.Sprintf("| %s | %s | %s | %s |\n", name, env, preset, Cell(f.Help))
}

// Cell escapes a text for a cell of a table.
func Cell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }

// ExitCode is a row of the table of exit codes.
type ExitCode struct {
	Code    int
	Meaning string
}

// ExitCodes writes their section.
func ExitCodes(b *strings.Builder, codes ...ExitCode) {
	fmt.Fprintf(b, "\n## Exit codes\n\n| code | meaning |\n|---|---|\n")
	for _, c := range codes {
		fmt.Fprintf(b, "| %d | %s |\n", c.Code, c.Meaning)
	}
}
