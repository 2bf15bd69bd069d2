package main

import (
	"flag"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon/adminserver"
	"github.com/evenkeel/evenkeel/cmd/internal/daemon/cassandraflags"
	"github.com/evenkeel/evenkeel/cmd/internal/daemon/logging"
	"github.com/evenkeel/evenkeel/cmd/internal/daemon/rebalanceflags"
	"github.com/evenkeel/evenkeel/internal/test/flagdocs"
	"github.com/evenkeel/evenkeel/rebalance/adminapi"
)

var update = flag.Bool("update", false, "write docs/rebalancer.md anew")

const referenceFile = "../../docs/rebalancer.md"

// TestGoldenReference holds docs/rebalancer.md, which is made of the program itself.
func TestGoldenReference(t *testing.T) {
	parser, err := program(stdio{}).Parser(&cli{})
	require.NoError(t, err)
	const listd = "flags.md"
	b := flagdocs.Page{Groups: []flagdocs.Group{
		flagdocs.NewGroup("Commands that move", "", &moveFlags{}),
		flagdocs.NewGroup("All commands", "", &adminFlags{}),
		flagdocs.NewGroup("Admin clients", listd, &adminapi.Flags{}),
		flagdocs.NewGroup("Cassandra", listd, &cassandraflags.Flags{}),
		flagdocs.NewGroup("Sizes and moves", listd, &rebalanceflags.Flags{}),
		flagdocs.NewGroup("Admin servers", listd, &adminserver.Flags{}),
		flagdocs.NewGroup("Log", listd, &logging.Flags{}),
	}}
	b.WriteString(`# rebalancer: commands and flags

For operators. This page is generated: ` + "`go test ./cmd/rebalancer -run Golden -update`" + ` writes it, and the tests
check it. ` + "`rebalancer COMMAND --help`" + ` explains a command with examples; [operations](operations.md) says
when to use which. In parentheses: the default, and the environment variable (` + "`$NAME`" + `), if there is one.
`)
	b.Shared()
	b.Commands(parser.Model.Node, "rebalancer")
	b.ExitCodes(
		flagdocs.ExitCode{Code: 0, Meaning: "done; run: ended by a signal; " +
			"pause --wait: nothing moves; verify: clean, or all problems are mended"},
		flagdocs.ExitCode{Code: exitFailed, Meaning: "failed: the message says why; verify: problems were found"},
		flagdocs.ExitCode{Code: exitUsage, Meaning: "bad flags or arguments; verify: something could not be checked"},
		flagdocs.ExitCode{Code: exitLayout, Meaning: "plan: the layout is invalid: every problem is listed, by path"},
		flagdocs.ExitCode{Code: exitRefused, Meaning: "refused: it does not fit the state of the bucket; nothing changed"},
		flagdocs.ExitCode{Code: exitMoving, Meaning: "pause: moves are paused, but something still moves"},
	)
	if *update {
		require.NoError(t, os.WriteFile(referenceFile, []byte(b.String()), 0o644))
	}
	written, err := os.ReadFile(referenceFile)
	require.NoError(t, err)
	require.Equal(t, b.String(), string(written),
		"docs/rebalancer.md is out of date: go test ./cmd/rebalancer -run Golden -update")
}
