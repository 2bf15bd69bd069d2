// Command rebalancer splits, merges and moves the ranges of buckets, plans better layouts, and checks and repairs
// stores. `rebalancer --help` explains its use.
package main

import (
	"context"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon"
	"github.com/evenkeel/evenkeel/cmd/internal/daemon/adminserver"
	"github.com/evenkeel/evenkeel/cmd/internal/daemon/cassandraflags"
	"github.com/evenkeel/evenkeel/cmd/internal/daemon/logging"
	"github.com/evenkeel/evenkeel/cmd/internal/daemon/rebalanceflags"
	"github.com/evenkeel/evenkeel/cmd/internal/daemon/shell"
	"github.com/evenkeel/evenkeel/internal/adminapi"
	"github.com/evenkeel/evenkeel/internal/rebalance/policy"
)

func main() {
	ctx, stop := daemon.Signals(context.Background())
	code := run(ctx, os.Args[1:], stdio{os.Stdin, os.Stdout, os.Stderr, time.Now})
	stop()
	os.Exit(code)
}

// stdio holds the input, the outputs and the clock that a command uses. Tests replace them.
type stdio struct {
	in       io.Reader
	out, err io.Writer
	now      func() time.Time
}

// cli is the whole command line of rebalancer: all its commands and flags, for the command-line parser kong.
type cli struct {
	daemon.Flags

	Daemon runCmd `cmd:"" name:"run" help:"Keep the buckets of a Cassandra keyspace in shape until a signal."`

	Split    splitCmd     `cmd:"" help:"Cut ranges of a bucket at keys."`
	Merge    mergeCmd     `cmd:"" help:"Join neighbouring ranges of a bucket."`
	Refresh  refreshCmd   `cmd:"" help:"Rewrite ranges of a bucket into fresh partitions, without their tombstones."`
	Presplit presplitCmd  `cmd:"" help:"Cut a bucket ahead of future keys."`
	Status   statusCmd    `cmd:"" help:"Print what moves, its progress, what waits and why."`
	Top      topCmd       `cmd:"" help:"Show the busiest buckets and what moves, live."`
	Map      mapCmd       `cmd:"" help:"Print the map of a bucket: its ranges and where they are."`
	Recount  recountCmd   `cmd:"" help:"Count the rows of a bucket, correct the counters, and print their drift."`
	Explain  explainCmd   `cmd:"" help:"Print the last decisions about a bucket, and their input."`
	Layout   layoutCmd    `cmd:"" help:"Print the layout of a bucket for planners."`
	Retain   retentionCmd `cmd:"" name:"retention" help:"Print what rules of retention would delete now."`
	Pause    pauseCmd     `cmd:"" help:"Prevent moves from beginning, and wait until nothing moves; for snapshots."`
	Resume   resumeCmd    `cmd:"" help:"End a pause."`
	Abort    abortCmd     `cmd:"" help:"Drop requested moves that have not begun."`

	Plan     planCmd     `cmd:"" help:"Find a better layout and print its moves. Changes nothing."`
	Apply    applyCmd    `cmd:"" help:"Show a plan, ask, and carry it out."`
	Simulate simulateCmd `cmd:"" help:"${cli_simulate=}"`
	Sizing   sizingCmd   `cmd:"" help:"Compute what a planned keyspace takes, and which limit it meets first."`
	Verify   verifyCmd   `cmd:"" help:"Check names, maps and rows, also while ranges move; repair them."`
	Audit    auditCmd    `cmd:"" help:"Compare the versions of objects with their bodies; condemn what belongs to none."`
	Clean    cleanCmd    `cmd:"" help:"Show what the servers' cleaner of objects would do, and why; or do it at once, to make room."`
	Bodies   bodiesCmd   `cmd:"" help:"Change the form of a directory of bodies."`
	Adopt    adoptCmd    `cmd:"" help:"Bring rows of other stores into buckets."`
	Schema   schemaCmd   `cmd:"" help:"Create and check evenkeel's tables in a Cassandra cluster."`

	shell.Commands
}

const description = `rebalancer splits, merges and moves the ranges of buckets while clients work, and
plans better layouts: even partitions within their limits, with as few moved rows as
possible.

Begin like this:

  rebalancer status                                       # what moves, according to listd
  rebalancer map show photos                              # ranges, and where they are
  rebalancer split photos --at 2024/ --at 2025/           # cut; --dry-run only shows it
  rebalancer status photos                                # sizes, and the next decisions with reasons
  rebalancer plan photos                                  # a better layout; nothing changes
  rebalancer apply photos                                 # shows it, asks, and carries it out
  rebalancer plan --layout layout.json                    # the same for a file
  rebalancer plan --layout layout.json --format json      # the same for programs
  rebalancer plan --layout - --objective full < layout.json
  rebalancer schema print --replication dc1=3             # evenkeel's tables, with reasons
  rebalancer run --cassandra 10.0.0.1 --local-dc dc1 --counter redis://10.0.0.9:6379/0
  rebalancer verify --data ./evenkeel-data                # checks a data directory
  rebalancer audit --data ./evenkeel-data                 # compares objects with their bodies

Commands that move or show ranges send requests to the process that leads the moves: listd,
at --admin (by default http://127.0.0.1:9001). With --cassandra they do the work themselves if
no process leads, else they forward it to the leader.

A setting is taken from the flags, else from the environment (EVENKEEL_ and the flag's name),
else from the file that --config names, which listd may share.

Exit codes: 0 done; 1 failed, or verify or audit has found problems; 2 bad flags or configuration;
3 the data directory or the keyspace can't be used, or the layout is invalid (all problems
are listed, by path); 4 refused: it does not fit the state of the bucket, and nothing
changed; or verify or audit could not check all; 5 (pause) something still moves.`

func usageError(format string, args ...any) error { return daemon.UsageError(format, args...) }

// withCassandra is the title, in the help texts, of the group of flags by which a command reaches a Cassandra cluster.
const withCassandra = "With --cassandra:"

// helpTexts returns the help texts of all flags, by their keys. The tag of a flag refers to a text by the text's key.
func helpTexts() map[string]string {
	return daemon.HelpTexts(help, adminapi.Help, adminserver.Help, cassandraflags.Help, logging.Help, rebalanceflags.Help)
}

// program returns the description of the command line of rebalancer: its name, its help texts, and where it prints.
func program(std stdio) *daemon.Program {
	return &daemon.Program{
		Name: "rebalancer", Description: description, Out: std.out, Err: std.err,
		Texts: helpTexts(),
		Vars:  kong.Vars{"moves_shown": strconv.Itoa(movesShown), "cutters": strings.Join(policy.Planners(), ",")},
		Brief: map[string]string{
			withCassandra: "Rarely needed ones (--tls-…-file, --consistency-…, --allow-single-replica) are explained by run --help.",
		},
	}
}

// run runs the command that the arguments args name, and returns the exit code of the program.
func run(ctx context.Context, args []string, std stdio) int {
	return program(std).Run(ctx, &cli{}, args, std)
}
