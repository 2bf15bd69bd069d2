// Package daemon has what the programs share: the frame of a command line, and the limit
// of a server's connections. The packages below it have their flags, logs and admin address.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"
)

// Exit codes of all programs. Programs may have more.
const (
	ExitFailed = 1 // the message says why
	ExitUsage  = 2 // bad flags, configuration or arguments
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

// Program is a command line.
type Program struct {
	Name, Description string
	Options           []kong.Option // beside those that all programs have
	Out, Err          io.Writer
}

// exited carries the exit code that kong requests after --help and --version.
type exited int

// Parser makes the parser of the program. Grammar is a pointer to the struct of commands.
func (p *Program) Parser(grammar any) (*kong.Kong, error) {
	return kong.New(grammar, append([]kong.Option{
		kong.Name(p.Name),
		kong.Description(p.Description),
		kong.Writers(p.Out, p.Err),
		kong.Exit(func(code int) { panic(exited(code)) }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, NoAppDescFormat: true, WrapUpperBound: 100}),
	}, p.Options...)...)
}

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
		k, err := parser.Parse(args)
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
	var parse *kong.ParseError
	if errors.As(err, &parse) {
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
	var exit *ExitError
	if errors.As(err, &exit) {
		return exit.Code
	}
	return ExitFailed
}

// Signals returns a context that ends at the first SIGTERM or SIGINT. The second one ends
// the process.
func Signals(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

// Version is that of the module or of the commit that was built, and of Go.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	v := info.Main.Version
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && v == "(devel)" {
			v += " " + s.Value
		}
	}
	return v + " " + info.GoVersion
}
