package main

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"sort"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/daemon/logging"
	"github.com/evenkeel/evenkeel/rebalance"
	"github.com/evenkeel/evenkeel/s3api"
)

var update = flag.Bool("update", false, "write docs/flags.md anew")

const referenceFile = "../../docs/flags.md"

// TestGoldenReference keeps docs/flags.md true: it is made of the program itself.
func TestGoldenReference(t *testing.T) {
	parser, err := program(stdio{}).Parser(&cli{})
	require.NoError(t, err)
	var b strings.Builder
	b.WriteString(`# listd: flags, settings, metrics

This page is generated: ` + "`go test ./cmd/listd -run Golden -update`" + ` writes it, and the tests check it.

A setting is looked for in the flags, then in the environment, then in the YAML file that ` + "`--config`" + ` names. There,
the flags of a command stand in a section of its name:

` + "```yaml\nlog-level: warn\nserve:\n  data: /srv/evenkeel\n  listen: 127.0.0.1:9000\n```" + `

` + "`listd config`" + ` prints the effective settings of serve and where each came from.
`)
	writeCommand(&b, "Every command", parser.Model.Node)
	var visit func(n *kong.Node, path string)
	visit = func(n *kong.Node, path string) {
		for _, child := range n.Children {
			full := path + " " + child.Name
			if len(child.Children) == 0 {
				writeCommand(&b, full, child)
			}
			visit(child, full)
		}
	}
	visit(parser.Model.Node, "listd")
	fmt.Fprintf(&b, "\n## Exit codes\n\n| code | meaning |\n|---|---|\n")
	for _, row := range []struct {
		code    int
		meaning string
	}{
		{0, "done; serve: ended by a signal"},
		{exitFailed, "failed: the message says why; serve: an address is taken, or requests had to be cut off at the end"},
		{exitUsage, "bad flags, arguments or configuration; nothing was done"},
		{exitStore, "the data directory can't be used (held by another process, foreign, damaged, no access), or the " +
			"Cassandra keyspace (no node answers, login refused, schema missing or not as it has to be)"},
		{exitPartial, "load: some lines were bad or refused, all others are loaded"},
	} {
		fmt.Fprintf(&b, "| %d | %s |\n", row.code, row.meaning)
	}
	writeMetrics(t, &b)
	if *update {
		require.NoError(t, os.WriteFile(referenceFile, []byte(b.String()), 0o644))
	}
	written, err := os.ReadFile(referenceFile)
	require.NoError(t, err)
	require.Equal(t, b.String(), string(written),
		"docs/flags.md is out of date: go test ./cmd/listd -run Golden -update")
}

func writeCommand(b *strings.Builder, title string, n *kong.Node) {
	fmt.Fprintf(b, "\n## %s\n\n", title)
	if n.Help != "" && n.Type == kong.CommandNode {
		fmt.Fprintf(b, "%s\n\n", n.Help)
	}
	if len(n.Positional) > 0 {
		fmt.Fprintf(b, "| argument | meaning |\n|---|---|\n")
		for _, p := range n.Positional {
			fmt.Fprintf(b, "| `%s` | %s |\n", p.Summary(), cell(p.OrigHelp))
		}
		b.WriteString("\n")
	}
	if len(n.Flags) == 0 {
		return
	}
	fmt.Fprintf(b, "| flag | environment | default | meaning |\n|---|---|---|---|\n")
	for _, f := range n.Flags {
		if f.Name == "help" {
			continue
		}
		name := "`--" + f.Name + "`"
		if f.Short != 0 {
			name += fmt.Sprintf(", `-%c`", f.Short)
		}
		env, preset := "", ""
		if len(f.Envs) > 0 {
			env = "`" + f.Envs[0] + "`"
		}
		if f.Default != "" {
			preset = "`" + f.Default + "`"
		}
		fmt.Fprintf(b, "| %s | %s | %s | %s |\n", name, env, preset, cell(f.OrigHelp))
	}
}

func cell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }

var metricDesc = regexp.MustCompile(`fqName: "([^"]*)", help: "([^"]*)", (?:unit: "[^"]*", )?constLabels: \{\}, variableLabels: \{([^}]*)\}`)

func writeMetrics(t *testing.T, b *strings.Builder) {
	registry := prometheus.NewRegistry()
	_, err := s3api.New(nil, s3api.Options{Metrics: registry})
	require.NoError(t, err)
	require.NoError(t, registry.Register(mapMetrics{}))
	require.NoError(t, registry.Register(rebalance.Metrics{}))
	require.NoError(t, registry.Register((&logging.Limit{}).Metric()))
	descs := make(chan *prometheus.Desc, 1000)
	registry.Describe(descs)
	close(descs)
	var rows []string
	for d := range descs {
		m := metricDesc.FindStringSubmatch(d.String())
		require.NotNil(t, m, "%s", d)
		rows = append(rows, fmt.Sprintf("| `%s` | %s | %s |\n", m[1], strings.ReplaceAll(m[3], ",", ", "), cell(m[2])))
	}
	sort.Strings(rows)
	fmt.Fprintf(b, "\n## Metrics\n\nAt `/metrics` of the admin address, beside those of Go's runtime and of the "+
		"process.\n\n| metric | labels | meaning |\n|---|---|---|\n%s", strings.Join(rows, ""))
}
