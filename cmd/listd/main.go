// Command listd serves sorted listings of any size in the S3 dialect, and is
// the client that loads and lists them. `listd --help` explains its use.
package main

import (
	"context"
	"io"
	"os"
)

func main() {
	os.Exit(run(context.Background(), os.Args[1:], stdio{os.Stdin, os.Stdout, os.Stderr}))
}

// stdio holds the streams that a command uses as standard input, output and error. Tests replace the streams.
type stdio struct {
	in       io.Reader
	out, err io.Writer
}

// run runs the command that the arguments args name, and returns the exit code of the program.
func run(ctx context.Context, args []string, std stdio) int {
	return program(std).Run(ctx, &cli{}, args, std)
}
