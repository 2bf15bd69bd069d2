package main

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/test/flagdocs"
)

var update = flag.Bool("update", false, "write docs/rebalancer.md anew")

const referenceFile = "../../docs/rebalancer.md"

// TestGoldenReference holds docs/rebalancer.md, which is made of the program itself.
func TestGoldenReference(t *testing.T) {
	parser, err := program(stdio{}).Parser(&cli{})
	require.NoError(t, err)
	var b strings.Builder
	b.WriteString(`# rebalancer: commands and flags

For operators. This page is generated: ` + "`go test ./cmd/rebalancer -run Golden -update`" + ` writes it, and the tests
check it. ` + "`rebalancer COMMAND --help`" + ` explains a command with examples; [operations](operations.md) says
when to use which.
`)
	const common = 4 // commands that have a flag
	shared := flagdocs.Shared(parser.Model.Node, common)
	b.WriteString("\n## Shared flags\n\n" +
		"By which a command reaches the process that moves ranges, or the keyspace. Each command's help lists those\n" +
		"that it takes.\n\n")
	flagdocs.Flags(&b, shared)
	flagdocs.Commands(&b, parser.Model.Node, "rebalancer", shared)
	flagdocs.ExitCodes(&b,
		flagdocs.ExitCode{Code: 0, Meaning: "done; run: ended by a signal; " +
			"pause --wait: nothing moves; verify: clean, or all problems are mended"},
		flagdocs.ExitCode{Code: exitFailed, Meaning: "failed: the message says why; verify: problems were found"},
		flagdocs.ExitCode{Code: exitUsage, Meaning: "bad flags or arguments; verify: something could not be checked"},
		flagdocs.ExitCode{Code: exitLayout, Meaning: "plan: the layout is wrong: every problem is listed, by path"},
		flagdocs.ExitCode{Code: exitRefused, Meaning: "refused: it does not fit the bucket or what goes on there; nothing was changed"},
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
