// Package flagdocs writes the reference of a program's commands and flags, as Markdown.
package flagdocs

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// Group is a set of flags that several commands share. The reference lists the flags once, in a section of their own.
type Group struct {
	Title string
	// Page is the page that has the section of the group. An empty Page stands for the page that is being written.
	Page  string
	flags []*kong.Flag
}

// NewGroup returns a group of the flags in a struct. flags is a pointer to the struct, and texts has the help texts to
// which the tags of the flags refer.
func NewGroup(title, page string, flags any, texts kong.Vars) Group {
	k := kong.Must(flags, kong.NoDefaultHelp(), texts)
	return Group{title, page, k.Model.Flags}
}

func (g *Group) link() string {
	return fmt.Sprintf("[%s](%s#%s)", g.Title, g.Page, strings.ReplaceAll(strings.ToLower(g.Title), " ", "-"))
}

// Page is a reference of commands and flags that is being written.
type Page struct {
	strings.Builder
	// Groups are the groups of shared flags. If one group contains another one, the larger group comes first.
	Groups []Group
	// EnvPrefix is the prefix of the environment variables that follow from the names of flags, and that the reference
	// does not list. If EnvPrefix is empty, the reference lists all environment variables.
	EnvPrefix string
}

// Shared writes the sections of the groups that belong to this page.
func (p *Page) Shared() {
	for i, g := range p.Groups {
		if g.Page == "" {
			fmt.Fprintf(p, "\n## %s\n\n", g.Title)
			p.list(g.flags, p.Groups[i+1:], "")
		}
	}
}

// Commands writes a section for each command below the command n. path is the full name of n, e.g. "listd bucket".
func (p *Page) Commands(n *kong.Node, path string) {
	for _, child := range n.Children {
		if child.Hidden {
			continue
		}
		full := path + " " + child.Name
		if len(child.Children) == 0 {
			p.Command(full, child)
		}
		p.Commands(child, full)
	}
}

// mostColumns is the largest length of a line, in columns.
const mostColumns = 120

// item matches a word that would turn a line which begins with the word into a list item or a heading of Markdown.
var item = regexp.MustCompile(`^([-+*]|[0-9]+[.)]|#+)$`)

// Item writes a list item with the given text, wrapped into lines.
func (p *Page) Item(text string) {
	line := "-"
	for word := range strings.FieldsSeq(text) {
		if len(line)+1+len(word) > mostColumns && !item.MatchString(word) {
			fmt.Fprintln(p, line)
			line = " "
		}
		line += " " + word
	}
	fmt.Fprintln(p, line)
}

// Command writes the section of the command n with the given title.
func (p *Page) Command(title string, n *kong.Node) {
	fmt.Fprintf(p, "\n## %s\n\n", title)
	if n.Help != "" && n.Type == kong.CommandNode {
		fmt.Fprintf(p, "%s\n\n", n.Help)
	}
	for _, arg := range n.Positional {
		p.Item(fmt.Sprintf("`%s`: %s", arg.Summary(), arg.Help))
	}
	p.list(n.Flags, p.Groups, p.EnvPrefix)
}

// list writes the flags as a list. For flags of a group, list writes a link to the section of the group instead.
func (p *Page) list(flags []*kong.Flag, groups []Group, envPrefix string) {
	left := slices.DeleteFunc(slices.Clone(flags), func(f *kong.Flag) bool { return f.Name == "help" })
	var links []string
	for _, g := range groups {
		rest := slices.DeleteFunc(slices.Clone(left), func(f *kong.Flag) bool {
			return slices.ContainsFunc(g.flags, func(other *kong.Flag) bool { return same(f, other) })
		})
		if len(rest) == len(left)-len(g.flags) {
			left, links = rest, append(links, g.link())
		}
	}
	for _, f := range left {
		if f.Help == "" {
			panic("--" + f.Name + " has no help: is its text among the help texts of the program?")
		}
		p.Item(fmt.Sprintf("%s: %s", name(f, envPrefix), f.Help))
	}
	if len(links) > 0 {
		p.Item("Flags of " + strings.Join(links, ", "))
	}
}

func same(a, b *kong.Flag) bool {
	return a.Name == b.Name && a.Default == b.Default && a.Help == b.Help
}

// name returns a flag as Markdown: its name, its short form, its default and its environment variable.
func name(f *kong.Flag, envPrefix string) string {
	s := "`--" + f.Name + "`"
	if f.Short != 0 {
		s += fmt.Sprintf(", `-%c`", f.Short)
	}
	var notes []string
	if f.Default != "" {
		notes = append(notes, "`"+f.Default+"`")
	}
	implied := envPrefix + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
	if len(f.Envs) > 0 && f.Envs[0] != "-" && (envPrefix == "" || f.Envs[0] != implied) {
		notes = append(notes, "`$"+f.Envs[0]+"`")
	}
	if len(notes) > 0 {
		s += " (" + strings.Join(notes, ", ") + ")"
	}
	return s
}

// ExitCode is an exit code of a program, with its meaning.
type ExitCode struct {
	Code    int
	Meaning string
}

// ExitCodes writes the section about exit codes.
func (p *Page) ExitCodes(codes ...ExitCode) {
	p.WriteString("\n## Exit codes\n\n")
	for _, c := range codes {
		p.Item(fmt.Sprintf("%d: %s", c.Code, c.Meaning))
	}
}

// Settings returns the names of all settings of a program, one per line, in the form of the files listd.txt and
// rebalancer.txt of package settings.
func Settings(app *kong.Application) string {
	var b strings.Builder
	var visit func(n *kong.Node, path string)
	visit = func(n *kong.Node, path string) {
		for _, f := range n.Flags {
			if len(f.Envs) > 0 && f.Name != "config" {
				fmt.Fprintf(&b, "%s%s\n", path, f.Name)
			}
		}
		for _, child := range n.Children {
			if !child.Hidden {
				visit(child, path+child.Name+" ")
			}
		}
	}
	visit(app.Node, "")
	return b.String()
}
