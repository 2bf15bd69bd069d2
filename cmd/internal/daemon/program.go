// Package daemon has the code that the two programs, listd and rebalancer, share: how a command line is parsed and run,
// how progress is shown, and how many connections a server accepts. The packages below daemon have the programs' common
// flags, log and admin address.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon/settings"
	"github.com/evenkeel/evenkeel/cmd/internal/daemon/version"
)

// These are the exit codes of commands that fail. After success the exit code is 0. The help texts document the codes
// for users.
const (
	ExitFailed   = 1 // the message says why
	ExitUsage    = 2 // flags, configuration or arguments are bad
	ExitUnusable = 3 // data directory, keyspace or layout can't be used; the message lists all problems
	ExitRefused  = 4 // does not fit the present state, and nothing changed; or bad lines were left out
)

// ExitError is an error with an exit code. If a command returns an ExitError, the program ends with the exit code Code.
type ExitError struct {
	Code int
	Err  error
}

func (e *ExitError) Error() string { return e.Err.Error() }
func (e *ExitError) Unwrap() error { return e.Err }

// Exit returns an error with the text of err that ends the program with the exit code `code`, e.g. ExitUsage.
func Exit(code int, err error) error { return &ExitError{code, err} }

// UsageError returns an error about wrong flags, configuration or arguments, with the text that fmt.Errorf formats. The
// error ends the program with the exit code ExitUsage.
func UsageError(format string, args ...any) error {
	return &ExitError{ExitUsage, fmt.Errorf(format, args...)}
}

// Program describes a program with a command line. Each flag can also be set by an environment variable or in a
// settings file.
type Program struct {
	Name, Description string
	Vars              kong.Vars // in addition to those that all programs have
	// Texts maps the keys of help texts to the texts, as HelpTexts returns them.
	Texts map[string]string
	// Brief describes groups of flags that most commands have, by the key of the group. In the help of a command this
	// description replaces the flags of the group that have the tag rare, and says where they are explained.
	Brief    map[string]string
	Out, Err io.Writer
}

// help prints the help of a command. It leaves out flags with the tag rare if their group has a short description in
// Program.Brief, which is printed instead.
func (p *Program) help(o kong.HelpOptions, ctx *kong.Context) error {
	for n := ctx.Selected(); n != nil; n = n.Parent {
		for _, f := range n.Flags {
			if f.Group != nil && p.Brief[f.Group.Key] != "" {
				f.Hidden = f.Hidden || f.Tag.Has("rare")
				f.Group.Description = p.Brief[f.Group.Key]
			}
		}
	}
	return kong.DefaultHelpPrinter(o, ctx)
}

// HelpTexts joins maps of help texts, by their keys, into one map. The tag of a flag names the key of its text, as in
// help:"${serve_listen=}".
func HelpTexts(texts ...map[string]string) map[string]string {
	// The command-line parser kong takes the key for a variable that is empty by default, so the help is empty until
	// Program puts the text in.
	all := map[string]string{}
	for _, t := range texts {
		maps.Copy(all, t)
	}
	return all
}

// EnvPrefix is the beginning of the names of environment variables that set flags, e.g. EVENKEEL_DATA sets --data.
const EnvPrefix = "EVENKEEL"

// Flags are the command-line flags that every program has: --config and --version. The command-line parser kong fills
// the fields.
type Flags struct {
	Config  settings.File    `placeholder:"FILE" env:"EVENKEEL_CONFIG" help:"Read settings from this YAML file."`
	Version kong.VersionFlag `help:"Print the version." env:"-"`
}

// exited is the exit code of a program that ends while the command-line parser kong still works, e.g. after --help or
// --version. It is passed to Run as the value of a panic, from which Run recovers.
type exited int

// Parser returns the parser of the program's command line. grammar is a pointer to a struct that has the commands and
// flags as fields.
func (p *Program) Parser(grammar any) (*kong.Kong, error) {
	return kong.New(grammar,
		kong.Name(p.Name),
		kong.Description(p.Description),
		kong.Writers(p.Out, p.Err),
		kong.Exit(func(code int) { panic(exited(code)) }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, NoAppDescFormat: true, WrapUpperBound: 100}),
		kong.ValueFormatter(helpOf),
		kong.Help(p.help),
		kong.DefaultEnvars(EnvPrefix),
		// The help texts are not kong variables: kong expands all variables for each flag, which would take most of the
		// time in which a program starts.
		kong.PostBuild(func(k *kong.Kong) error { p.texts(k.Model.Node); return nil }),
		kong.Vars{"version": version.Current().String()}, p.Vars,
	)
}

// textOf matches a help tag that consists only of the key of a help text, like ${serve_listen=}. The submatch is the
// key.
var textOf = regexp.MustCompile(`^\$\{(\w+)=\}$`)

// texts replaces the keys of help texts by the texts, in the command n and all commands below n.
func (p *Program) texts(n *kong.Node) {
	expand := func(help *string) {
		if m := textOf.FindStringSubmatch(*help); m != nil {
			*help = p.Texts[m[1]]
		}
	}
	expand(&n.Help)
	for _, f := range n.Flags {
		expand(&f.Help)
	}
	for _, a := range n.Positional {
		expand(&a.Help)
	}
	for _, child := range n.Children {
		p.texts(child)
	}
}

// helpOf returns the help text of a flag. The names of the flag's environment variables follow the text. They are left
// out if the flag has only the usual variable, such as EVENKEEL_DATA for --data.
func helpOf(v *kong.Value) string {
	usual := EnvPrefix + "_" + strings.ToUpper(strings.ReplaceAll(v.Name, "-", "_"))
	if slices.Equal(v.Tag.Envs, []string{usual}) {
		return v.Help
	}
	return kong.DefaultHelpValueFormatter(v)
}

// negative joins a long flag and a negative number after the flag into one argument, as in --flag=-1. If they were two
// arguments, the parser would take the number for a flag, and the command could not say which numbers it accepts.
func negative(args []string) (out []string) {
	for i, arg := range args {
		if arg == "--" {
			return append(out, args[i:]...)
		}
		if n := len(out); n > 0 && negativeNumber.MatchString(arg) && longFlag.MatchString(out[n-1]) {
			out[n-1] += "=" + arg
			continue
		}
		out = append(out, arg)
	}
	return out
}

var (
	negativeNumber = regexp.MustCompile(`^-[1-9][0-9.]*[a-z]*$`)
	longFlag       = regexp.MustCompile(`^--[a-z-]+$`)
)

// Run parses the arguments args, runs the command that they name, and returns the exit code of the program. If the
// command fails, Run prints the error. grammar is a pointer to the struct of commands and flags. The Run method of a
// command may have parameters: a context.Context, and the types of the values in bind.
func (p *Program) Run(ctx context.Context, grammar any, args []string, bind ...any) (code int) {
	defer func() {
		if r := recover(); r != nil {
			e, ok := r.(exited)
			if !ok {
				panic(r)
			}
			code = int(e)
		}
	}()
	if len(args) == 0 {
		args = []string{"--help"}
	}
	err := func() error {
		parser, err := p.Parser(grammar)
		if err != nil {
			return Exit(ExitUsage, err)
		}
		k, err := parser.Parse(negative(args))
		if err != nil {
			return Exit(ExitUsage, err)
		}
		k.BindTo(ctx, (*context.Context)(nil))
		k.Bind(bind...)
		return k.Run()
	}()
	if err == nil {
		return 0
	}
	fmt.Fprintf(p.Err, "%s: %v\n", p.Name, err)
	if parse, ok := errors.AsType[*kong.ParseError](err); ok {
		command := []string{p.Name}
		if parse.Context != nil {
			for _, at := range parse.Context.Path {
				if at.Command != nil {
					command = append(command, at.Command.Name)
				}
			}
		}
		fmt.Fprintf(p.Err, "Run %q for help.\n", strings.Join(append(command, "--help"), " "))
	}
	if exit, ok := errors.AsType[*ExitError](err); ok {
		return exit.Code
	}
	return ExitFailed
}

// Signals returns a context that ends at the first SIGTERM or SIGINT, so that the program can end in order. A second
// signal kills the process as usual.
func Signals(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		select {
		case <-signals:
		case <-ctx.Done():
		}
		signal.Stop(signals) // before the context ends, so that a signal after the end is not lost
		cancel()
	}()
	return ctx, cancel
}
