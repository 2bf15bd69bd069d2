package bench

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/evenkeel/evenkeel/bench/layouts"
)

// WriteDocs writes benchmarks.md and its charts into a folder of
// documents.
func (r *Report) WriteDocs(dir string) error {
	charts := filepath.Join(dir, "charts")
	if err := os.MkdirAll(charts, 0o755); err != nil {
		return err
	}
	for _, name := range r.stores() {
		if err := os.WriteFile(filepath.Join(charts, chartName(name)), r.chart(name), 0o644); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(dir, "benchmarks.md"), r.markdown(), 0o644)
}

func chartName(store string) string { return "layouts-" + store + ".svg" }

func (r *Report) stores() (names []string) {
	for _, l := range r.Lines {
		if !slices.Contains(names, l.Store) {
			names = append(names, l.Store)
		}
	}
	return names
}

func (r *Report) markdown() []byte {
	var b bytes.Buffer
	p := func(format string, args ...any) { fmt.Fprintf(&b, format, args...) }
	p("# Benchmarks\n\n")
	p("Written by `make bench` (`layoutbench run`): the layouts that people use today beside evenkeel, on the same keys, in one process, in turns.\n")
	p("What single parts of evenkeel cost (moves, loads, S3, the store over Cassandra) is measured apart: [parts](benchmarks-parts.md). When to use\n")
	p("which layout: [comparison](comparison.md).\n\n")
	p("Measured on %s: %s; %s. The main set has %d keys; the run took %s\n", r.Date, r.Machine, r.versions(), r.Keys, r.Took)
	p("and %d MiB of memory besides the servers, with %s; every row\n", r.MemoryMiB, r.load())
	p("that it read was right.\n\n")
	p("`x evenkeel` is the median, over the rounds, of a layout's time over evenkeel's in the same round; in brackets the same of the lowest and\n")
	p("the highest tenth of the run (of parts of three rounds where there are fewer than 30, of single rounds below 9). Above 1 evenkeel is the\n")
	p("faster one. Times are of this machine, with clients and servers on the same processors; ratios carry further. `bare` is the driver (or\n")
	p("engine) on one partition, by hand. Requests, rows and KiB are what one page reads.\n\n")
	p("On Pebble each layout, and bare, has for each set an engine of its own, with the same options and a cache of %d MiB, compacted into one level\n", cacheBytes>>20)
	p("and opened anew before it is measured. On Cassandra all lie in one table (time slices in their own), bare's in a partition of the shape of `wide`;\n")
	p("they are loaded in turns of %d rows, flushed, and measured when no file is being compacted any more.\n\n", loadChunk)
	if t := r.targets(); len(t) > 0 {
		p("## Targets\n")
		if note := r.small(); note != "" {
			p("%s\n\n", note)
		}
		p("| what | reached | target | |\n|---|---|---|---|\n")
		for _, t := range t {
			verdict := t.verdict
			if verdict == missed {
				verdict = "**" + verdict + "**"
			}
			p("| %s | %s | %s | %s |\n", t.what, t.reached, t.target, verdict)
		}
		p("\n")
	}
	p("## Layouts\n| layout | primary key | how it is built here |\n|---|---|---|\n")
	for _, k := range layouts.Kinds() {
		p("| %s | `%s` | %s |\n", k.Name, k.PrimaryKey, k.Built)
	}
	p("\n## Sets of keys\n| set | what |\n|---|---|\n")
	for _, s := range sets() {
		p("| %s | %s |\n", s.name, s.what)
	}
	for _, name := range r.stores() {
		p("\n## %s\n![times of pages, scans and puts](charts/%s)\n", title(name), chartName(name))
		for _, lines := range r.groups() {
			if lines[0].Store != name {
				continue
			}
			p("\n### %s: %s\n", lines[0].Set, lines[0].Measure)
			p("| layout | p50 | p95 | x evenkeel |")
			if lines[0].Of > 0 {
				p(" per second | times |\n|---|---|---|---|---|---|\n")
			} else {
				p(" requests | rows | KiB | times |\n|---|---|---|---|---|---|---|---|\n")
			}
			for _, l := range lines {
				p("| %s | %s | %s | %s | ", l.Layout, micros(l.P50), micros(l.P95), l.ratio())
				if lines[0].Of > 0 {
					p("%s", l.perSecond())
				} else {
					p("%s", l.work(" | "))
				}
				p(" | %d |\n", l.N)
			}
		}
	}
	if len(r.Sizes) > 0 {
		p("\n## Rows per partition\n| set | layout | partitions | min | mean | max |\n|---|---|---|---|---|---|\n")
		seen := map[string]bool{}
		for _, s := range r.Sizes {
			if line := fmt.Sprintf("| %s | %s | %d | %d | %.0f | %d |\n", s.Set, s.Layout, s.Partitions, s.Min, s.Mean, s.Max); !seen[line] {
				seen[line] = true // the same in each store
				p("%s", line)
			}
		}
	}
	if len(r.Growth) > 0 {
		p("\n## What growth costs\nRows that have to move, per row that is added, when a set doubles and no partition may become larger than it was. What is not measured is\n")
		p("counted on the keys.\n\n| set | layout | rows moved per row added | how |\n|---|---|---|---|\n")
		for _, g := range r.Growth {
			p("| %s | %s | %s | %s |\n", g.Set, g.Layout, g.moved(), g.How)
		}
	}
	if len(r.LeftOut) > 0 {
		p("\n## Left out\n")
		for _, what := range r.LeftOut {
			p("- %s\n", what)
		}
	}
	return b.Bytes()
}

func title(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// target is a promise and what became of it, or a yardstick beside some.
type target struct{ what, reached, target, verdict string }

// Verdicts.
const (
	met       = "met"
	missed    = "missed"
	yardstick = "yardstick"
)

func verdict(kept bool) string {
	if kept {
		return met
	}
	return missed
}

// fullKeys is the size of the main set from which on targets are about what was
// measured as they are meant.
const fullKeys = 200_000

// small says what is to be known of targets in a run that is too small for them; "" if
// it is not.
func (r *Report) small() string {
	if r.Keys >= fullKeys {
		return ""
	}
	return fmt.Sprintf("Targets are about a main set of %d keys or more: with %d a page of 1000 crosses from range to range.", fullKeys, r.Keys)
}

func (r *Report) find(store, set, measure, layout string) *Line {
	for i := range r.Lines {
		if l := &r.Lines[i]; l.Store == store && l.Set == set && l.Measure == measure && l.Layout == layout {
			return l
		}
	}
	return nil
}

// targets compares what was measured with what was promised.
func (r *Report) targets() (out []target) {
	most := func(what string, l *Line, limit float64, inverse bool) {
		if l == nil || l.Ratio == 0 {
			return
		}
		x, lo, hi := l.Ratio, l.Least, l.Most
		if inverse {
			x, lo, hi = 1/x, 1/hi, 1/lo
		}
		out = append(out, target{what, fmt.Sprintf("%s (%s to %s)", timesBeside(x, limit), times(lo), times(hi)), fmt.Sprintf("at most %g", limit), verdict(x <= limit)})
	}
	least := func(what string, l *Line, limit float64) {
		if l == nil || l.Ratio == 0 {
			return
		}
		out = append(out, target{what, fmt.Sprintf("%s (%s to %s)", timesBeside(l.Ratio, limit), times(l.Least), times(l.Most)), fmt.Sprintf("at least %g", limit), verdict(l.Ratio >= limit)})
	}
	for _, c := range []struct {
		store      string
		page, puts float64
	}{{Cassandra, 1.1, 0.95}, {Pebble, 1.5, 0.8}} {
		in := ", " + title(c.store)
		most("page of 1000, times of bare"+in, r.find(c.store, setReal, deepPage, nameBare), c.page, true)
		most("the same with 100,000 ranges, times of that with few"+in, r.find(c.store, setReal, deepPage, nameMany), 1.1, false)
		if c.store == Cassandra {
			least("page of 1000 from 256 hash buckets merged lazily, times of evenkeel's", r.find(c.store, setReal, deepPage, layouts.NameHash), 8)
			least("the same merged naively", r.find(c.store, setReal, deepPage, nameNaive), 60)
		}
		least("puts by 1 worker, of bare's throughput"+in, r.find(c.store, setReal, putsAlone, nameBare), c.puts)
		least("puts by 64 workers, of bare's throughput"+in, r.find(c.store, setReal, putsAtOnce, nameBare), c.puts)
		if c.store == Cassandra {
			least("1280 puts into one partition by PutBatch, of the throughput of 64 workers that put them one by one"+in, r.find(c.store, setReal, putsOne, nameSingly), 2.5)
		}
		least("scan by 4 readers, of bare's throughput"+in, r.find(c.store, setReal, parallelAll, nameBare), 0.8)
		// With few keys for each prefix it is right to read through them.
		if l := r.find(c.store, setPaths, folderPage, layouts.NameEvenkeel); l != nil && r.Keys >= fullKeys {
			out = append(out, target{"1000 common prefixes, read per prefix" + in,
				fmt.Sprintf("%.1f rows, %.1f requests", l.Rows/pageRows, l.Requests/pageRows), "in proportion to prefixes, not to keys: at most 10 rows", verdict(l.Rows <= 10*pageRows)})
		}
	}
	for _, f := range r.Map {
		t := target{f.What, f.reached(), "-", yardstick}
		if f.Most != nil {
			t.target, t.verdict = strings.TrimSpace(fmt.Sprintf("at most %g %s", *f.Most, f.Unit)), verdict(f.Value <= *f.Most)
		}
		out = append(out, t)
	}
	return out
}
