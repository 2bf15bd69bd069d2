// Command listd serves sorted listings of any size in the S3 dialect, and is
// the client that loads and lists them. `listd --help` explains its use.
package main

import (
	"context"
	"io"
	"os"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon"
)

// Exit codes. They are documented in --help.
const (
	exitFailed  = daemon.ExitFailed
	exitUsage   = daemon.ExitUsage
	exitStore   = daemon.ExitUnusable // the data directory, or the keyspace
	exitPartial = daemon.ExitRefused  // done, but some lines were bad or were refused
)

func main() {
	os.Exit(run(context.Background(), os.Args[1:], stdio{os.Stdin, os.Stdout, os.Stderr}))
}

// stdio is what a command reads and writes.
type stdio struct {
	in       io.Reader
	out, err io.Writer
}

// run is the whole program; it returns its exit code.
func run(ctx context.Context, args []string, std stdio) int {
	return program(std).Run(ctx, &cli{}, args, std)
}
