// Package flagdocs writes the reference of a program's commands and flags as Markdown.
package flagdocs

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// Group is flags that several commands share. They are listed once, in a section of their own.
type Group struct {
	Title string
	// Page has the section; empty: the page that is written.
	Page  string
	flags []*kong.Flag
}

// NewGroup makes a group of the flags in a struct, given by its pointer, and of the help texts that
// their tags name.
func NewGroup(title, page string, flags any, texts kong.Vars) Group {
	k := kong.Must(flags, kong.NoDefaultHelp(), texts)
	return Group{title, page, k.Model.Flags}
}

func (g *Group) link() string {
	return fmt.Sprintf("[%s](%s#%s)", g.Title, g.Page, strings.ReplaceAll(strings.ToLower(g.Title), " ", "-"))
}

// Page writes a reference.
type Page struct {
	strings.Builder
	// Groups come with the larger one first, where one contains another.
	Groups []Group
	// EnvPrefix is the prefix of the environment variables that flags have without a tag; they
	// are not listed. Empty: there are none.
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

// Commands writes a section for each command below a node; path is how the node is called.
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

// mostColumns is the length of a line.
const mostColumns = 120

// item is a word that would make an item or a heading of a line that begins with it.
var item = regexp.MustCompile(`^([-+*]|[0-9]+[.)]|#+)$`)

// Item writes a line of a list, wrapped.
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

// Command writes the section of one command.
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

// list writes flags, and links for those that groups have.
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

// name returns a flag with its short form, its environment variable and its default.
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

// ExitCode is an exit code of a program.
type ExitCode struct {
	Code    int
	Meaning string
}

// ExitCodes writes their section.
func (p *Page) ExitCodes(codes ...ExitCode) {
	p.WriteString("\n## Exit codes\n\n")
	for _, c := range codes {
		p.Item(fmt.Sprintf("%d: %s", c.Code, c.Meaning))
	}
}

// Settings lists the settings of a program as listd.txt and rebalancer.txt of the package settings have them.
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
