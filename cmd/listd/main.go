// Command listd serves sorted listings of any size in the S3 dialect, and is
// the client that loads and lists them. `listd --help` explains its use.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/alecthomas/kong"
)

// Exit codes. They are documented in --help.
const (
	exitFailed  = 1 // something went wrong: the message says what
	exitUsage   = 2 // bad flags, configuration or arguments
	exitStore   = 3 // the data directory, or the keyspace, can't be used
	exitPartial = 4 // done, but some lines were bad or were refused
)

func main() {
	os.Exit(run(context.Background(), os.Args[1:], stdio{os.Stdin, os.Stdout, os.Stderr}))
}

// stdio is what a command reads and writes.
type stdio struct {
	in       io.Reader
	out, err io.Writer
}

// exitError is a failure with an exit code of its own.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

func usageError(format string, args ...any) error {
	return &exitError{exitUsage, fmt.Errorf(format, args...)}
}

// exited carries the exit code that kong asks for after --help and --version.
type exited int

// run is the whole program; it returns its exit code.
func run(ctx context.Context, args []string, std stdio) (code int) {
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
	parser, _, err := newParser(std)
	if err != nil {
		return complain(std.err, usageError("%w", err))
	}
	k, err := parser.Parse(args)
	if err != nil {
		return complain(std.err, usageError("%w", err))
	}
	k.BindTo(ctx, (*context.Context)(nil))
	k.Bind(std)
	if err := k.Run(); err != nil {
		return complain(std.err, err)
	}
	return 0
}

// complain prints an error and returns its exit code.
func complain(w io.Writer, err error) int {
	code := exitFailed
	var e *exitError
	if errors.As(err, &e) {
		code = e.code
	}
	fmt.Fprintf(w, "listd: %v\n", err)
	var parse *kong.ParseError
	if errors.As(err, &parse) {
		command := "listd"
		if parse.Context != nil {
			command = strings.TrimSpace("listd " + strings.Join(commandPath(parse.Context), " "))
		}
		fmt.Fprintf(w, "Run %q for help.\n", command+" --help")
	}
	return code
}

// commandPath names the command that was chosen, as far as parsing came.
func commandPath(k *kong.Context) (path []string) {
	for _, p := range k.Path {
		if p.Command != nil {
			path = append(path, p.Command.Name)
		}
	}
	return path
}
