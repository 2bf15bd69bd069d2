package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/evenkeel/evenkeel/internal/test/promtest"
)

const (
	alertRules = "../../deploy/prometheus/alerts.yaml"
	alertTests = "../../deploy/prometheus/alerts_test.yaml"
	dashboard  = "../../deploy/grafana/evenkeel.json"
	runbook    = "../../docs/runbook.md"
)

var metricName = regexp.MustCompile(`\bevenkeel_[a-z0-9_]+`)

// Alerts, their tests and the dashboard name metrics that exist.
func TestAlertsAndDashboardNameRealMetrics(t *testing.T) {
	known := map[string]bool{}
	for name := range metricsByName(t) {
		for _, part := range []string{"", "_bucket", "_sum", "_count"} { // of histograms
			known[name+part] = true
		}
	}
	for _, file := range []string{alertRules, alertTests, dashboard} {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		names := metricName.FindAllString(string(text), -1)
		require.NotEmpty(t, names, file)
		for _, name := range names {
			require.True(t, known[name], "%s: there is no metric %s", file, name)
		}
	}
}

// Each alert has a section in the runbook and a test, and the runbook has no others.
func TestEachAlertHasASectionAndATest(t *testing.T) {
	var rules struct {
		Groups []struct {
			Rules []struct {
				Alert       string
				Annotations map[string]string
			}
		}
	}
	var tests struct {
		Tests []struct{ Name string }
	}
	for file, into := range map[string]any{alertRules: &rules, alertTests: &tests} {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		require.NoError(t, yaml.Unmarshal(text, into), file)
	}
	var alerts, tested []string
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			alerts = append(alerts, r.Alert)
			_, section, _ := strings.Cut(r.Annotations["runbook_url"], "docs/runbook.md#")
			require.Equal(t, strings.ToLower(r.Alert), section)
			require.NotEmpty(t, r.Annotations["summary"], r.Alert)
		}
	}
	for _, x := range tests.Tests {
		tested = append(tested, x.Name)
	}
	require.Equal(t, append(slices.Clone(alerts), "a healthy store"), tested)
	text, err := os.ReadFile(runbook)
	require.NoError(t, err)
	var sections []string
	for _, m := range regexp.MustCompile(`(?m)^### (.*)$`).FindAllStringSubmatch(string(text), -1) {
		sections = append(sections, m[1])
	}
	require.Equal(t, alerts, sections)
}

// The alerts fire where they should.
func TestAlertRules(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	require.NoError(t, err, "scripts/install-tools installs it, in the package prometheus")
	out, err := exec.Command(promtool, "test", "rules", alertTests).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// Grafana finds a panel by its id, and draws those that overlap elsewhere.
func TestDashboardPanels(t *testing.T) {
	type spot struct{ X, Y, W, H int }
	var d struct {
		Panels []struct {
			ID      int
			Title   string
			GridPos spot
		}
	}
	text, err := os.ReadFile(dashboard)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &d))
	ids, taken := map[int]bool{}, map[[2]int]string{}
	for _, p := range d.Panels {
		require.False(t, ids[p.ID], "two panels have the id %d", p.ID)
		ids[p.ID] = true
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				at := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				require.Empty(t, taken[at], "%s lies over another panel", p.Title)
				taken[at] = p.Title
			}
		}
	}
	require.NotEmpty(t, ids)
}

// Names, types and units keep the conventions of Prometheus, those of servers on Cassandra, too.
func TestMetricsKeepTheConventions(t *testing.T) {
	p := start(t, t.TempDir())
	ok(t, "a\n", "load", "abc", "--create", "--server", p.s3)
	status, metrics := get(t, p.admin+"/metrics")
	require.Equal(t, 200, status)
	promtest.Check(t, metrics)
	require.Equal(t, 0, p.end(syscall.SIGTERM), p.errs)

	var all strings.Builder
	for name, item := range metricsByName(t) {
		_, help, _ := strings.Cut(item, ": ")
		kind := "gauge"
		if strings.HasSuffix(name, "_total") {
			kind = "counter"
		}
		fmt.Fprintf(&all, "# HELP %[1]s %[2]s\n# TYPE %[1]s %[3]s\n%[1]s 1\n", name, help, kind)
	}
	promtest.Check(t, all.String())
}
