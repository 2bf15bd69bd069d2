// Command rebalancer finds better layouts for buckets. `rebalancer --help`
// explains its use.
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
	"github.com/evenkeel/evenkeel/internal/rebalance/policy"
	"github.com/evenkeel/evenkeel/internal/rebalance/policysim"
)

// Exit codes. They are documented in --help.
const (
	exitFailed = daemon.ExitFailed
	exitUsage  = daemon.ExitUsage
	exitLayout = 3 // the layout is wrong: the message lists all that is, by path
)

func main() {
	ctx, stop := daemon.Signals(context.Background())
	code := run(ctx, os.Args[1:], stdio{os.Stdin, os.Stdout, os.Stderr, time.Now})
	stop()
	os.Exit(code)
}

// stdio is the world as a command sees it.
type stdio struct {
	in       io.Reader
	out, err io.Writer
	now      func() time.Time
}

// cli is the whole command line.
type cli struct {
	Daemon runCmd `cmd:"" name:"run" help:"Keep the buckets of a Cassandra keyspace in shape, until it is told to end."`

	Split    splitCmd    `cmd:"" help:"Cut ranges of a bucket at keys."`
	Merge    mergeCmd    `cmd:"" help:"Join neighbouring ranges of a bucket."`
	Refresh  refreshCmd  `cmd:"" help:"Rewrite ranges of a bucket into fresh partitions, without their tombstones."`
	Presplit presplitCmd `cmd:"" help:"Cut a bucket ahead of the keys that are to come."`
	Status   statusCmd   `cmd:"" help:"Print what moves, how far it is, what waits and why."`
	Map      mapCmd      `cmd:"" help:"Print the map of a bucket: its ranges and where they are."`
	Recount  recountCmd  `cmd:"" help:"Count the rows of a bucket, correct the counters, and print by how much they were off."`
	Explain  explainCmd  `cmd:"" help:"Print what was decided last about a bucket, and from what."`
	Layout   layoutCmd   `cmd:"" help:"Print the layout of a bucket for planners."`
	Pause    pauseCmd    `cmd:"" help:"Let no move begin, and wait until nothing moves; for snapshots."`
	Resume   resumeCmd   `cmd:"" help:"End a pause."`
	Abort    abortCmd    `cmd:"" help:"Drop what was asked for and has not begun."`

	Plan     planCmd     `cmd:"" help:"Find a better layout and print the moves that lead to it. Touches nothing."`
	Apply    applyCmd    `cmd:"" help:"Show a plan, ask, and have its moves done."`
	Simulate simulateCmd `cmd:"" help:"Play months of many buckets in memory and report what the policy costs. Touches nothing."`
	Verify   verifyCmd   `cmd:"" help:"Check names, maps and rows, also while ranges move; mend what can be mended."`
	Schema   schemaCmd   `cmd:"" help:"Lay out and check evenkeel's tables in a Cassandra cluster."`
}

const description = `rebalancer splits, merges and moves the ranges of buckets while clients go on, and
plans better layouts: partitions within their limits and even, for as few moved rows as
possible.

Begin like this:

  rebalancer status                                       # what moves, asked of listd
  rebalancer map show photos                              # ranges, and where they are
  rebalancer split photos --at 2024/ --at 2025/           # cut; --dry-run says what it would do
  rebalancer status photos                                # sizes, and what would be done and why
  rebalancer plan photos                                  # a better layout; nothing is touched
  rebalancer apply photos                                 # shows it, asks, and does it
  rebalancer plan --layout layout.json                    # the same for a file
  rebalancer plan --layout layout.json --format json      # the same for programs
  rebalancer plan --layout - --objective rows < layout.json
  rebalancer schema print --replication dc1=3             # evenkeel's tables, with reasons
  rebalancer run --cassandra 10.0.0.1 --local-dc dc1 --counter redis://10.0.0.9:6379/0
  rebalancer verify --data ./evenkeel-data                # is all as it should be?

Commands that move or show ranges talk to a process that does it: listd, at --admin (by
default http://127.0.0.1:9001); or with --cassandra they do it themselves, if nobody else
does, else hand it on to who does.

Exit codes: 0 done; 1 failed; 2 bad flags; 3 the layout is wrong (everything that
is wrong with it is listed, by path); 4 refused: it does not fit the bucket or what goes on
there, and nothing was changed; 5 (pause) something still moves. verify and run have their own: see their help.`

func usageError(format string, args ...any) error { return daemon.UsageError(format, args...) }

// program is the frame of the command line.
func program(std stdio) *daemon.Program {
	return &daemon.Program{
		Name: "rebalancer", Description: description, Out: std.out, Err: std.err,
		Options: []kong.Option{kong.Vars{
			"moves_shown": strconv.Itoa(movesShown), "scenarios": strings.Join(policysim.Names(), ", "),
			"cutters": strings.Join(policy.Planners(), ","),
		}},
	}
}

// run is the whole program; it returns its exit code.
func run(ctx context.Context, args []string, std stdio) int {
	return program(std).Run(ctx, &cli{}, args, std)
}
