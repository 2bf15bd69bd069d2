// Package daemon has what the programs share: the frame of a command line, and the limit
// of a server's connections. The packages below it have their flags, logs and admin address.
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

// Exit codes of all commands. They are documented in --help.
const (
	ExitFailed   = 1 // the message says why
	ExitUsage    = 2 // bad flags, configuration or arguments
	ExitUnusable = 3 // what it is to work on can't be used: data directory, keyspace, layout (all problems, by path)
	ExitRefused  = 4 // it does not fit what there is, and nothing changed; or a part was left out: bad lines
)

// ExitError is an error with an exit code.
type ExitError struct {
	Code int
	Err  error
}

func (e *ExitError) Error() string { return e.Err.Error() }
func (e *ExitError) Unwrap() error { return e.Err }

// Exit gives an error an exit code.
func Exit(code int, err error) error { return &ExitError{code, err} }

// UsageError is an error in flags, configuration or arguments.
func UsageError(format string, args ...any) error {
	return &ExitError{ExitUsage, fmt.Errorf(format, args...)}
}

// Program is a command line. Each flag is also an environment variable, and a setting of a file.
type Program struct {
	Name, Description string
	Vars              kong.Vars // beside those that all programs have
	// Texts are help texts by their names in tags; see HelpTexts.
	Texts map[string]string
	// Brief are groups of flags that most commands have. Their help leaves out flags with the tag rare,
	// and says where they are explained.
	Brief    map[string]string
	Out, Err io.Writer
}

// help prints the help of a command.
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

// HelpTexts joins help texts that stand outside of the tags of flags. A tag names one like
// help:"${serve_listen=}", which is empty where nobody reads it.
func HelpTexts(texts ...map[string]string) map[string]string {
	all := map[string]string{}
	for _, t := range texts {
		maps.Copy(all, t)
	}
	return all
}

// EnvPrefix begins the names of the environment variables of flags.
const EnvPrefix = "EVENKEEL"

// Flags are those of every program, for kong.
type Flags struct {
	Config  settings.File    `placeholder:"FILE" env:"EVENKEEL_CONFIG" help:"Read settings from this YAML file."`
	Version kong.VersionFlag `help:"Print the version." env:"-"`
}

// exited carries the exit code that kong requests after --help and --version.
type exited int

// Parser makes the parser of the program. Grammar is a pointer to the struct of commands.
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
		// As variables they would take most of the time of a start: kong expands all of them for each flag.
		kong.PostBuild(func(k *kong.Kong) error { p.texts(k.Model.Node); return nil }),
		kong.Vars{"version": version.Current().String()}, p.Vars,
	)
}

// textOf is a help tag that names a text.
var textOf = regexp.MustCompile(`^\$\{(\w+)=\}$`)

// texts puts the help texts into a command, and what is below it.
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

// helpOf is a flag's help, with its environment variables where they are not the usual one.
func helpOf(v *kong.Value) string {
	usual := EnvPrefix + "_" + strings.ToUpper(strings.ReplaceAll(v.Name, "-", "_"))
	if slices.Equal(v.Tag.Envs, []string{usual}) {
		return v.Help
	}
	return kong.DefaultHelpValueFormatter(v)
}

// negative joins a flag and the negative number behind it, which would be taken for a flag, so
// that the command says which numbers it takes.
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

// Run parses the arguments, runs the command that they name and prints its error. The
// command's Run method may take a context.Context and values of the types in bind. Run
// returns the exit code.
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

// Signals returns a context that ends at the first SIGTERM or SIGINT. The second one ends
// the process.
func Signals(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		select {
		case <-signals:
		case <-ctx.Done():
		}
		signal.Stop(signals) // before anybody learns of the end, and says so: the next signal must not be lost
		cancel()
	}()
	return ctx, cancel
}
