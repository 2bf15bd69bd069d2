package shell

import (
	"fmt"
	"io"
	"strings"

	"github.com/alecthomas/kong"
)

type manCmd struct{}

func (*manCmd) Help() string {
	return `Prints the manual page of all commands, for man.

Examples:

  listd man | man -l -
  listd man > /usr/local/share/man/man1/listd.1`
}

// Run prints the manual page of all commands.
func (*manCmd) Run(k *kong.Context) error {
	p := &page{w: k.Stdout}
	p.line(".TH %s 1", strings.ToUpper(k.Model.Name))
	p.line(".SH NAME")
	title, text, _ := strings.Cut(k.Model.Help, "\n\n")
	p.line(`%s \- %s`, k.Model.Name, escape(strings.TrimPrefix(strings.Join(strings.Fields(title), " "), k.Model.Name+" ")))
	p.line(".SH SYNOPSIS")
	p.line(".B %s", k.Model.Name)
	p.line(".I command")
	p.line("[flags]")
	p.line(".SH DESCRIPTION")
	p.text(text)
	p.flags("FLAGS OF EVERY COMMAND", k.Model.Flags)
	p.commands(k.Model.Node, k.Model.Name)
	return p.err
}

// page writes a manual page in roff, the language of manual pages, to w. The field err is the first error of writing.
type page struct {
	w   io.Writer
	err error
}

func (p *page) line(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format+"\n", args...)
	}
}

// text writes a text to the manual page with its line breaks. Without text, roff would join the lines of a paragraph.
func (p *page) text(text string) {
	p.line(".nf")
	for line := range strings.SplitSeq(strings.Trim(text, "\n"), "\n") {
		p.line("%s", escape(line))
	}
	p.line(".fi")
}

// commands writes a section of the manual page for each command below the command n. path is the full name of n, such
// as "listd bucket".
func (p *page) commands(n *kong.Node, path string) {
	for _, child := range n.Children {
		full := path + " " + child.Name
		switch {
		case child.Hidden:
		case len(child.Children) > 0:
			p.commands(child, full)
		default:
			p.line(".SH %s", escape(strings.ToUpper(full)))
			p.line("%s", escape(child.Help))
			if child.Detail != "" {
				p.line(".PP")
				p.text(child.Detail)
			}
			for _, arg := range child.Positional {
				p.line(".TP\n.B %s\n%s", escape(arg.Summary()), escape(arg.Help))
			}
			p.flags("", child.Flags)
		}
	}
}

func (p *page) flags(title string, flags []*kong.Flag) {
	if title != "" {
		p.line(".SH %s", title)
	}
	for _, f := range flags {
		if f.Hidden || title == "" && f.Name == "help" {
			continue
		}
		name := "--" + f.Name
		if !f.IsBool() && !f.IsCounter() {
			name += "=" + f.FormatPlaceHolder()
		}
		p.line(".TP\n.B %s\n%s", escape(name), escape(f.Help))
	}
}

// escape returns text with escapes for roff, the language of manual pages. Without escapes roff would take a backslash,
// or a line that begins with a dot or an apostrophe, for an instruction.
func escape(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text)
	if strings.HasPrefix(text, ".") || strings.HasPrefix(text, "'") {
		text = `\&` + text
	}
	return text
}
