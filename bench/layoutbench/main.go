// Command layoutbench measures evenkeel beside the layouts of sorted listings that evenkeel replaces, e.g. hash buckets
// in Cassandra. `layoutbench --help` explains its use.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"
)

// The exit codes of layoutbench for failed commands. After success the exit code is 0. The flag --help documents the
// codes.
const (
	exitFailed = 1 // something went wrong: the message says what
	exitUsage  = 2 // bad flags or arguments
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// cli is the whole command line of layoutbench. The Run method of a command may have parameters: a context.Context, an
// io.Writer for results, and a progress for messages about the progress.
type cli struct {
	Measure  runCmd      `cmd:"" name:"run" help:"Load keys into each layout, and measure pages, scans and puts, in turns."`
	Layouts  layoutsCmd  `cmd:"" help:"Print what is compared: each layout's primary key, and what it cannot do."`
	Sharding shardingCmd `cmd:"" help:"Measure what moves when a shard is added, by hashing and by ranges."`
}

// progress is the writer for messages about the progress of a command: standard error.
type progress struct{ io.Writer }

const description = `layoutbench measures the layouts that people use today for sorted listings beside evenkeel,
on the same data, in one run, and checks everything that it reads while it measures.

Begin like this:

  layoutbench layouts                   # what is compared
  layoutbench run --store pebble --keys 20000 --pages 40   # a quick look
  layoutbench run                       # all of it: 13 minutes; starts a Cassandra node
  layoutbench sharding                  # what moves when 20 shards become 21; a minute or so

Exit codes: 0 done; 1 failed; 2 bad flags.`

// usageError is an error in the command line, such as an unknown flag. It ends the program with the exit code
// exitUsage.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// exited is the panic value by which the command-line parser kong ends the program after --help. The value is the exit
// code.
type exited int

// run runs the command that args name, and returns the exit code of the program. Results go to out, and errors and
// progress to errs.
func run(ctx context.Context, args []string, out, errs io.Writer) (code int) {
	defer func() {
		if p := recover(); p != nil {
			e, ok := p.(exited)
			if !ok {
				panic(p)
			}
			code = int(e)
		}
	}()
	if len(args) == 0 {
		args = []string{"--help"}
	}
	parser, err := kong.New(&cli{},
		kong.Name("layoutbench"),
		kong.Description(description),
		kong.Writers(out, errs),
		kong.Exit(func(code int) { panic(exited(code)) }),
		kong.Vars(runVariables()),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, NoAppDescFormat: true, WrapUpperBound: 100}),
	)
	if err != nil {
		return complain(errs, usageError{err})
	}
	k, err := parser.Parse(args)
	if err != nil {
		return complain(errs, usageError{err})
	}
	k.BindTo(ctx, (*context.Context)(nil))
	k.BindTo(out, (*io.Writer)(nil))
	k.Bind(progress{errs})
	if err := k.Run(); err != nil {
		return complain(errs, err)
	}
	return 0
}

// complain prints an error to w, and returns the exit code for the error.
func complain(w io.Writer, err error) int {
	fmt.Fprintf(w, "layoutbench: %v\n", err)
	var parse *kong.ParseError
	if errors.As(err, &parse) {
		command := []string{"layoutbench"}
		if parse.Context != nil {
			for _, p := range parse.Context.Path {
				if p.Command != nil {
					command = append(command, p.Command.Name)
				}
			}
		}
		fmt.Fprintf(w, "Run %q for help.\n", strings.Join(append(command, "--help"), " "))
	}
	if errors.As(err, &usageError{}) {
		return exitUsage
	}
	return exitFailed
}
