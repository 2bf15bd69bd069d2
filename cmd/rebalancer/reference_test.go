package main

import (
	"flag"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon"
	"github.com/evenkeel/evenkeel/cmd/internal/daemon/adminserver"
	"github.com/evenkeel/evenkeel/cmd/internal/daemon/cassandraflags"
	"github.com/evenkeel/evenkeel/cmd/internal/daemon/logging"
	"github.com/evenkeel/evenkeel/cmd/internal/daemon/rebalanceflags"
	"github.com/evenkeel/evenkeel/internal/adminapi"
	"github.com/evenkeel/evenkeel/internal/test/flagdocs"
)

var update = flag.Bool("update", false, "write docs/rebalancer.md anew")

const referenceFile = "../../docs/rebalancer.md"

// TestGoldenReference holds docs/rebalancer.md, which is made of the program itself.
func TestGoldenReference(t *testing.T) {
	t.Parallel()
	parser, err := program(stdio{}).Parser(&cli{})
	require.NoError(t, err)
	const listd = "flags.md"
	b := flagdocs.Page{EnvPrefix: "EVENKEEL_", Groups: []flagdocs.Group{
		flagdocs.NewGroup("Commands that move", "", &moveFlags{}, helpTexts()),
		flagdocs.NewGroup("All commands", "", &adminFlags{}, helpTexts()),
		flagdocs.NewGroup("Commands that adopt", "", &adoptFlags{}, helpTexts()),
		flagdocs.NewGroup("Admin clients", listd, &adminapi.Flags{}, helpTexts()),
		flagdocs.NewGroup("Cassandra", listd, &cassandraflags.Flags{}, helpTexts()),
		flagdocs.NewGroup("Sizes and moves", listd, &rebalanceflags.Flags{}, helpTexts()),
		flagdocs.NewGroup("Admin servers", listd, &adminserver.Flags{}, helpTexts()),
		flagdocs.NewGroup("Log", listd, &logging.Flags{}, helpTexts()),
	}}
	b.WriteString(`# rebalancer: commands and flags

For operators. This page is generated: ` + "`go test ./cmd/rebalancer -run Golden -update`" + ` writes it, and the tests
check it. ` + "`rebalancer COMMAND --help`" + ` explains a command with examples; [moves](moves.md) says
when to use which. Flags, environment variables and a settings file are read as [by listd](flags.md), and both may share
the file. Flags that confirm or destroy (` + "`--yes`, `--force`, `--repair`, `--adopt`, `--adopt-all`, `--discard`" + `),
` + "`presplit --max-rows`" + ` and those that say what ` + "`adopt`" + ` does, or
` + "`sizing`" + ` computes, are flags only. In parentheses: the default, and the variable
(` + "`$NAME`" + `) where it is not ` + "`EVENKEEL_`" + ` and the name.
`)
	b.Command("Every command", parser.Model.Node)
	b.Shared()
	b.Commands(parser.Model.Node, "rebalancer")
	b.ExitCodes(
		flagdocs.ExitCode{Code: 0, Meaning: "done; run: ended by a signal; " +
			"pause --wait: nothing moves; verify: clean, or all problems are mended"},
		flagdocs.ExitCode{Code: daemon.ExitFailed, Meaning: "failed: the message says why; verify: problems were found"},
		flagdocs.ExitCode{Code: daemon.ExitUsage, Meaning: "bad flags, arguments or configuration"},
		flagdocs.ExitCode{Code: daemon.ExitUnusable, Meaning: "the data directory or the keyspace can't be used; plan: the " +
			"layout is invalid: every problem is listed, by path; verify: the check could not be made, or not to its end"},
		flagdocs.ExitCode{Code: daemon.ExitRefused, Meaning: "refused: it does not fit the state of the bucket; " +
			"nothing changed; verify: something could not be checked"},
		flagdocs.ExitCode{Code: exitMoving, Meaning: "pause: moves are paused, but something still moves"},
	)
	for name, text := range map[string]string{
		referenceFile: b.String(),
		"../internal/daemon/settings/rebalancer.txt": flagdocs.Settings(parser.Model),
	} {
		if *update {
			require.NoError(t, os.WriteFile(name, []byte(text), 0o644))
		}
		written, err := os.ReadFile(name)
		require.NoError(t, err)
		require.True(t, text == string(written), "%s is out of date: go test ./cmd/rebalancer -run Golden -update", name)
	}
}
