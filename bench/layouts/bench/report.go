package bench

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/evenkeel/evenkeel/internal/test/cassandratest"
)

// Report holds all results of a run, and on which machine and with which versions they were measured.
type Report struct {
	Date     string            `json:"date"`
	Machine  string            `json:"machine"`
	Versions map[string]string `json:"versions"`
	Keys     int               `json:"keys"`
	Took     string            `json:"took"`
	// MemoryMiB is the most memory that the process took, in MiB. It includes the embedded engines, but not the
	// servers.
	MemoryMiB int64 `json:"memory_mib"`
	// LoadBefore and LoadAfter are the machine's load averages over one minute, before and after the run. LoadAfter
	// includes the run's own work. Both are 0 if the system does not report load averages.
	LoadBefore float64  `json:"load_before"`
	LoadAfter  float64  `json:"load_after"`
	Lines      []Line   `json:"lines"`
	Sizes      []Size   `json:"sizes"`
	Growth     []Growth `json:"growth,omitempty"`
	// Map has the figures of evenkeel's map of ranges alone, such as the time of a lookup.
	Map []Figure `json:"map,omitempty"`
	// LeftOut names the measurements for which no time was left, and those that could not be made.
	LeftOut []string `json:"left_out,omitempty"`
}

// Size says how the rows of a set of keys are spread over the partitions of a layout.
type Size struct {
	Store      string  `json:"store"`
	Set        string  `json:"set"`
	Layout     string  `json:"layout"`
	Partitions int     `json:"partitions"`
	Min        int     `json:"min_rows"`
	Mean       float64 `json:"mean_rows"`
	Max        int     `json:"max_rows"`
}

func newReport(o Options) *Report {
	r := &Report{
		Date: time.Now().UTC().Format(time.DateOnly), Keys: o.Keys, Machine: machine(),
		Versions: map[string]string{"Go": strings.TrimPrefix(runtime.Version(), "go")},
	}
	if slices.Contains(o.Stores, Cassandra) {
		r.Versions["Cassandra"] = cassandratest.Version
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			switch m.Path {
			case "github.com/cockroachdb/pebble/v2":
				r.Versions["Pebble"] = m.Version
			case "github.com/gocql/gocql":
				r.Versions["gocql"] = m.Version
			case "github.com/jackc/pgx/v5":
				r.Versions["pgx"] = m.Version
			}
		}
	}
	return r
}

// peakMemory returns the most memory that the process ever had, in bytes.
func peakMemory() int64 {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // fails for bad arguments only
	if runtime.GOOS == "darwin" {
		return u.Maxrss
	}
	return u.Maxrss << 10
}

// loadAverage returns the machine's load average over the last minute, or 0 on systems without /proc/loadavg.
func loadAverage() (load float64) {
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		_, _ = fmt.Sscan(string(text), &load)
	}
	return load
}

// load returns a text that says how busy the machine was before and at the end of the run.
func (r *Report) load() string {
	return fmt.Sprintf("a load average of %.1f before it and %.1f at its end, its own work included", r.LoadBefore,
		r.LoadAfter)
}

// machine returns a description of the machine: the number and name of its processors, and its operating system.
func machine() string {
	name := runtime.GOARCH
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(text)) {
			if model, found := strings.CutPrefix(line, "model name"); found {
				name = strings.TrimSpace(strings.TrimLeft(model, " \t:"))
				break
			}
		}
	}
	return fmt.Sprintf("%d processors (%s), %s", runtime.NumCPU(), name, runtime.GOOS)
}

func (r *Report) leftOut(format string, args ...any) {
	r.LeftOut = append(r.LeftOut, fmt.Sprintf(format, args...))
}

// cutter is a layout that cuts a bucket into ranges of keys. Cuts returns the first key of each range but the first
// range.
type cutter interface {
	Cuts(ctx context.Context) ([][]byte, error)
}

// sizes adds to the report how many rows each partition of each layout has. Partitions without rows do not count.
func (x *runner) sizes(ctx context.Context, l *loaded) error {
	for _, name := range l.layouts {
		rows := map[string]int{}
		if c, cut := l.timed[name].(cutter); cut {
			cuts, err := c.Cuts(ctx)
			if err != nil {
				return err
			}
			from := 0
			for i := range len(cuts) + 1 {
				to := len(l.oracle.keys)
				if i < len(cuts) {
					to = l.oracle.at(cuts[i])
				}
				if to > from {
					rows[fmt.Sprint(i)] = to - from
				}
				from = to
			}
		} else {
			for _, k := range l.oracle.keys {
				p, err := l.timed[name].Partition(ctx, k)
				if err != nil {
					return err
				}
				rows[p]++
			}
		}
		s := Size{
			Store: x.store, Set: l.name, Layout: name, Partitions: len(rows),
			Mean: float64(len(l.oracle.keys)) / float64(len(rows)), Min: len(l.oracle.keys),
		}
		for _, n := range rows {
			s.Min, s.Max = min(s.Min, n), max(s.Max, n)
		}
		x.r.Sizes = append(x.r.Sizes, s)
	}
	return nil
}

// groups returns the lines of the report in groups. The lines of a group have the same store, set and measure.
func (r *Report) groups() (out [][]Line) {
	for _, l := range r.Lines {
		if n := len(out); n > 0 && out[n-1][0].Store == l.Store && out[n-1][0].Set == l.Set &&
			out[n-1][0].Measure == l.Measure {
			out[n-1] = append(out[n-1], l)
		} else {
			out = append(out, []Line{l})
		}
	}
	return out
}

// Print writes the report as tables of text to out.
func (r *Report) Print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "%s, %s, %s\n", r.Date, r.Machine, r.versions())
	for _, lines := range r.groups() {
		l := lines[0]
		fmt.Fprintf(w, "\n%s, %s: %s\n", l.Store, l.Set, l.Measure)
		fmt.Fprintf(w, "layout\tp50\tp95\tx evenkeel (least to most)\tper second\trequests\trows\tKiB\ttimes\n")
		for _, l := range lines {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%d\n", l.Layout, micros(l.P50), micros(l.P95), l.ratio(),
				l.perSecond(), l.work("\t"), l.N)
		}
	}
	if len(r.Sizes) > 0 {
		fmt.Fprintf(w, "\nRows per partition\nstore\tset\tlayout\tpartitions\tmin\tmean\tmax\n")
		for _, s := range r.Sizes {
			fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d\t%.0f\t%d\n", s.Store, s.Set, s.Layout, s.Partitions, s.Min, s.Mean,
				s.Max)
		}
	}
	if len(r.Growth) > 0 {
		fmt.Fprintf(w, "\nRows moved per row added\nset\tlayout\tmoved\thow\n")
		for _, g := range r.Growth {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", g.Set, g.Layout, g.moved(), g.How)
		}
	}
	if t := r.targets(); len(t) > 0 {
		if note := r.small(); note != "" {
			fmt.Fprintf(w, "\n%s", note)
		}
		fmt.Fprintf(w, "\nTargets\nabout\twhat\treached\ttarget\t\n")
		for _, t := range t {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", t.about, t.what, t.reached, t.target, t.verdict)
		}
	}
	for _, what := range r.LeftOut {
		fmt.Fprintf(w, "\nleft out: %s", what)
	}
	if r.Took != "" {
		fmt.Fprintf(w, "\ntook %s, and %d MiB of memory besides the servers, with %s; everything that was read was right\n", r.Took, r.MemoryMiB, r.load())
	}
	return w.Flush()
}

func (r *Report) versions() string {
	var parts []string
	for name, v := range r.Versions {
		parts = append(parts, name+" "+v)
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

// micros returns a number of microseconds as text, e.g. "12 µs" or "1.20 ms".
func micros(us float64) string {
	switch {
	case us < 1000:
		return fmt.Sprintf("%.0f µs", us)
	case us < 100_000:
		return fmt.Sprintf("%.2f ms", us/1e3)
	}
	return fmt.Sprintf("%.0f ms", us/1e3)
}

func (l *Line) ratio() string {
	if l.Ratio == 0 {
		return "-"
	}
	if l.N == 1 {
		return times(l.Ratio) // no spread to tell
	}
	return fmt.Sprintf("%s (%s to %s)", times(l.Ratio), times(l.Least), times(l.Most))
}

// times returns the factor x as text: with two decimals, or as a whole number from 20 on.
func times(x float64) string {
	if x >= 20 {
		return fmt.Sprintf("%.0f", x)
	}
	return fmt.Sprintf("%.2f", x)
}

// timesBeside returns the factor x as text, with more digits than usual if x would otherwise look equal to limit.
func timesBeside(x, limit float64) string {
	if text := times(x); text != times(limit) || x == limit {
		return text
	}
	return fmt.Sprintf("%.4g", x)
}

func (l *Line) perSecond() string {
	if l.Of == 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f", l.PerSecond())
}

func (l *Line) work(between string) string {
	if l.Requests == 0 {
		return strings.Join([]string{"-", "-", "-"}, between)
	}
	return fmt.Sprintf("%.1f%s%.0f%s%.0f", l.Requests, between, l.Rows, between, l.Bytes/1024)
}
