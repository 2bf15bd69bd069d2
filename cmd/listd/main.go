// Command listd is a server for sorted listings of any size, which speaks S3. It is also the client that loads and
// lists keys. `listd --help` explains its use.
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
