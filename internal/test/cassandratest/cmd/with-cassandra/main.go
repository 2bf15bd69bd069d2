// Command with-cassandra starts a Cassandra node, runs a command with the node's address in EVENKEEL_TEST_CASSANDRA,
// and stops the node again:
//
//	go run ./internal/test/cassandratest/cmd/with-cassandra go test ./...
//
// With -optimise in front of the command, Java fully optimises the node's code, which benchmarks need, and which
// doubles the processor time of the start. with-cassandra ends with the exit status of the command. If
// EVENKEEL_TEST_CASSANDRA already names a node, the command uses that node.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/evenkeel/evenkeel/internal/test/cassandratest"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	optimise := flag.Bool("optimise", false, "for benchmarks")
	flag.Parse()
	o := cassandratest.SharedOptions()
	if *optimise {
		o = cassandratest.Options{Patient: true, Optimise: true}
	}
	code, err := run(ctx, o, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "with-cassandra:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

func run(ctx context.Context, o cassandratest.Options, args []string) (code int, err error) {
	if len(args) == 0 {
		return 2, errors.New("no command to run is given, such as `go test` with a package")
	}
	if os.Getenv(cassandratest.AddressVariable) == "" {
		c, err := cassandratest.Start(ctx, o)
		if err != nil {
			return 1, err
		}
		defer func() { err = errors.Join(err, c.Close()) }()
		fmt.Fprintf(os.Stderr, "with-cassandra: Cassandra %s on %s\n", cassandratest.Version, c.Nodes[0].Address)
		if err := os.Setenv(cassandratest.AddressVariable, c.Nodes[0].Address); err != nil {
			return 1, err
		}
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	err = cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return max(exit.ExitCode(), 1), nil
	}
	return 0, err
}
