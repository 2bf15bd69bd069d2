// Package promtest checks metrics against the conventions of Prometheus.
package promtest

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// counters matches complaints about metric names with the word counter. The counters of evenkeel keep the sizes of
// partitions, and are no type of metric. The names are older than the check, and stay.
var counters = regexp.MustCompile(`(?m)^evenkeel_counter_\w+ metric name should not include type 'counter'\n`)

// Check runs promtool over metrics, which is the text that an admin address has at /metrics. The test fails if promtool
// complains.
func Check(t *testing.T, metrics string) {
	t.Helper()
	promtool, err := exec.LookPath("promtool")
	require.NoError(t, err, "scripts/install-tools installs it, in the package prometheus")
	c := exec.Command(promtool, "check", "metrics")
	c.Stdin = strings.NewReader(metrics)
	out, _ := c.CombinedOutput() // its code is 3 for any complaint
	require.Empty(t, counters.ReplaceAllString(string(out), ""))
}
