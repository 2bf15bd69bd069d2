package apart

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// report is what the tests measured. Its methods are safe for concurrent use.
type report struct {
	mu       sync.Mutex
	Settings map[string]string
	Figures  []figure
}

type figure struct {
	Check string // the test
	What  string
	Value float64
	Unit  string `json:",omitempty"` // none: a number of things
}

// String is the value with its unit.
func (f figure) String() string {
	digits := 2
	if f.Value >= 100 || f.Value == math.Trunc(f.Value) {
		digits = 0
	}
	return strings.TrimSpace(strconv.FormatFloat(f.Value, 'f', digits, 64) + " " + f.Unit)
}

func (r *report) setting(name, value string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.Settings == nil {
		r.Settings = map[string]string{}
	}
	r.Settings[name] = value
}

func (r *report) add(check, what string, value float64, unit string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Figures = append(r.Figures, figure{check, what, value, unit})
}

// took adds the middle and the 99th percentile of times.
func (r *report) took(check, what string, times []time.Duration) {
	r.add(check, what+", p50", milliseconds(quantile(times, 0.5)), "ms")
	r.add(check, what+", p99", milliseconds(quantile(times, 0.99)), "ms")
}

// write prints the figures as a table, and writes them into a file if one is named.
func (r *report) write(t *testing.T, file string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var table strings.Builder
	fmt.Fprintf(&table, "%v\n| check | what | figure |\n|---|---|---|\n", r.Settings)
	for _, f := range r.Figures {
		fmt.Fprintf(&table, "| %s | %s | %s |\n", f.Check, f.What, f)
	}
	fmt.Println(table.String())
	if file == "" {
		return
	}
	text, err := json.MarshalIndent(r, "", "\t")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, append(text, '\n'), 0o644))
}

// quantile is the time that a share of all do not exceed; 0 of none.
func quantile(times []time.Duration, share float64) time.Duration {
	if len(times) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(times))
	return sorted[min(len(sorted)-1, int(share*float64(len(sorted))))]
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
