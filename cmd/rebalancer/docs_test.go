package main

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/rebalance"
)

// What docs/planners.md and the help show is what the program takes and prints.
func TestDocs(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/planners.md")
	require.NoError(t, err)
	blocks := regexp.MustCompile("(?s)```json\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	require.Len(t, blocks, 2)

	code, out, errs := ran(t, time.Millisecond, blocks[0][1], "plan", "--layout", "-", "--format", "json")
	require.Zero(t, code, errs)
	var documented, printed map[string]any
	require.NoError(t, json.Unmarshal([]byte(blocks[1][1]), &documented))
	require.NoError(t, json.Unmarshal([]byte(out), &printed))
	for _, field := range []string{"bucket", "planner", "partitions", "moves", "rows_moved", "optimality", "notes"} {
		require.Equal(t, documented[field], printed[field], field)
	}
	_, out, _ = ran(t, time.Millisecond, blocks[0][1], "plan", "--layout", "-", "--format", "json", "--objective",
		"rows")
	require.NoError(t, json.Unmarshal([]byte(out), &printed))
	require.Equal(t, documented["objective"], printed["objective"])

	const most = 600
	w := rebalance.Costs(most).Weights
	for term, weight := range map[string]string{
		"rows_moved": fmt.Sprint(w.RowsMoved), "moves": fmt.Sprintf("`max_rows` / %g", most/w.Moves),
		"ranges": fmt.Sprintf("`max_rows` / %g", most/w.Ranges), "spread": fmt.Sprint(w.Spread),
		"forecast": fmt.Sprint(w.Forecast), "load": fmt.Sprint(w.Load),
	} {
		require.Regexp(t, fmt.Sprintf("(?m)^\\| `%s` \\| .* \\| %s \\|$", term, weight), string(text))
	}

	help := planCmd{}.Help()
	start, end := strings.Index(help, `  {"bucket"`), strings.Index(help, "\n\nA quantum's")
	code, _, errs = ran(t, time.Millisecond, help[start:end], "plan", "--layout", "-")
	require.Zero(t, code, errs)
}
