package main

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon"
	"github.com/evenkeel/evenkeel/cmd/internal/daemon/adminserver"
	"github.com/evenkeel/evenkeel/cmd/internal/daemon/cassandraflags"
	"github.com/evenkeel/evenkeel/cmd/internal/daemon/logging"
	"github.com/evenkeel/evenkeel/cmd/internal/daemon/rebalanceflags"
	"github.com/evenkeel/evenkeel/cmd/internal/daemon/version"
	"github.com/evenkeel/evenkeel/internal/adminapi"
	"github.com/evenkeel/evenkeel/internal/cleaning"
	"github.com/evenkeel/evenkeel/internal/rebalance/engine"
	"github.com/evenkeel/evenkeel/internal/test/flagdocs"
	"github.com/evenkeel/evenkeel/s3api"
)

var update = flag.Bool("update", false, "write docs/flags.md anew")

const referenceFile = "../../docs/flags.md"

// TestGoldenReference keeps docs/flags.md true: it is made of the program itself.
func TestGoldenReference(t *testing.T) {
	parser, err := program(stdio{}).Parser(&cli{})
	require.NoError(t, err)
	b := flagdocs.Page{EnvPrefix: "EVENKEEL_", Groups: []flagdocs.Group{
		flagdocs.NewGroup("S3 clients", "", &serverFlags{}, helpTexts()),
		flagdocs.NewGroup("Admin clients", "", &adminapi.Flags{}, helpTexts()),
		flagdocs.NewGroup("Cassandra", "", &cassandraflags.Flags{}, helpTexts()),
		flagdocs.NewGroup("Sizes and moves", "", &rebalanceflags.Flags{}, helpTexts()),
		flagdocs.NewGroup("Admin servers", "", &adminserver.Flags{}, helpTexts()),
		flagdocs.NewGroup("Log", "", &logging.Flags{}, helpTexts()),
	}}
	b.WriteString(`# listd: flags, settings, metrics

This page is generated: ` + "`go test ./cmd/listd -run Golden -update`" + ` writes it, and the tests check it.

A setting is looked for in the flags, then in the environment, then in the YAML file that ` + "`--config`" + ` names. A flag's
environment variable is ` + "`EVENKEEL_`" + ` and its name in capitals, with ` + "`_` for `-`" + `. In parentheses: the default, and the
variable (` + "`$NAME`" + `) where it is another one.

In the file the flags of a command stand in a section of its name. A flag that stands outside of such a section is for
all commands that have it. ` + "[rebalancer](rebalancer.md)" + ` reads settings in the same way, so both programs may share
one file:

` + "```yaml\nlog-level: warn\ncassandra: [10.0.0.1, 10.0.0.2]\nlocal-dc: dc1\ncounter: redis://10.0.0.9:6379/0\n" +
		"max-rows: 200000\nserve:\n  listen: 0.0.0.0:9000\n  keys-file: /etc/evenkeel/keys.yaml\n```" + `

` + "`listd config`" + ` prints the effective settings of serve and where each came from.
`)
	b.Command("Every command", parser.Model.Node)
	b.Commands(parser.Model.Node, "listd")
	b.Shared()
	b.ExitCodes(
		flagdocs.ExitCode{Code: 0, Meaning: "done; serve: ended by a signal"},
		flagdocs.ExitCode{Code: daemon.ExitFailed, Meaning: "failed: the message says why; serve: an address is taken, or requests had to be cut off at the end"},
		flagdocs.ExitCode{Code: daemon.ExitUsage, Meaning: "bad flags, arguments or configuration; nothing was done"},
		flagdocs.ExitCode{Code: daemon.ExitUnusable, Meaning: "the data directory can't be used (held by another process, foreign, damaged, no access), or the " +
			"Cassandra keyspace (no node answers, login refused, schema missing or not as it has to be)"},
		flagdocs.ExitCode{Code: daemon.ExitRefused, Meaning: "load: some lines were bad or refused, all others are loaded"},
	)
	writeMetrics(t, &b)
	for name, text := range map[string]string{
		referenceFile:                           b.String(),
		"../internal/daemon/settings/listd.txt": flagdocs.Settings(parser.Model),
	} {
		if *update {
			require.NoError(t, os.WriteFile(name, []byte(text), 0o644))
		}
		written, err := os.ReadFile(name)
		require.NoError(t, err)
		require.True(t, text == string(written), "%s is out of date: go test ./cmd/listd -run Golden -update", name)
	}
}

var metricDesc = regexp.MustCompile(`fqName: "([^"]*)", help: "([^"]*)", (?:unit: "[^"]*", )?constLabels: \{\}, variableLabels: \{([^}]*)\}`)

// metricsByName are all metrics of listd, with their items in the reference.
func metricsByName(t *testing.T) map[string]string {
	registry := prometheus.NewRegistry()
	_, err := s3api.New(nil, s3api.Options{Metrics: registry})
	require.NoError(t, err)
	require.NoError(t, registry.Register(mapMetrics{}))
	require.NoError(t, registry.Register(storeMetrics{}))
	require.NoError(t, registry.Register(engine.Metrics{}))
	require.NoError(t, registry.Register(&cleaning.Cleaning{}))
	require.NoError(t, registry.Register((&logging.Limit{}).Metric()))
	require.NoError(t, registry.Register(version.Build{}.Metric()))
	descs := make(chan *prometheus.Desc, 1000)
	registry.Describe(descs)
	close(descs)
	items := map[string]string{}
	for d := range descs {
		m := metricDesc.FindStringSubmatch(d.String())
		require.NotNil(t, m, "%s", d)
		name := "`" + m[1] + "`"
		if m[3] != "" {
			name += " (by " + strings.ReplaceAll(m[3], ",", ", ") + ")"
		}
		items[m[1]] = fmt.Sprintf("%s: %s", name, m[2])
	}
	return items
}

func writeMetrics(t *testing.T, b *flagdocs.Page) {
	fmt.Fprint(b, "\n## Metrics\n\nAt `/metrics` of the admin address, beside those of Go's runtime and of the process.\n\n")
	for _, item := range slices.Sorted(maps.Values(metricsByName(t))) {
		b.Item(item)
	}
}
