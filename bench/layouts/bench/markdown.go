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

// The files to which a report is written, as paths below the root of the source tree.
const (
	pageFile   = "docs/benchmarks.md"
	resultsDir = "bench/results"
	tablesFile = resultsDir + "/layouts.md"
)

// WriteDocs writes the report into the source tree at root. The targets go into docs/benchmarks.md, and all tables and
// charts into bench/results.
func (r *Report) WriteDocs(root string) error {
	files := map[string][]byte{pageFile: r.page(), tablesFile: r.tables()}
	for _, name := range r.stores() {
		files[resultsDir+"/"+chartName(name)] = r.chart(name)
	}
	for name, text := range files {
		path := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, text, 0o644); err != nil {
			return err
		}
	}
	return nil
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

// measured returns sentences that say when and on which machine the run was made, with which versions, and how long it
// took.
func (r *Report) measured() string {
	return fmt.Sprintf("Measured on %s: %s;\n%s.\n", r.Date, r.Machine, r.versions()) +
		fmt.Sprintf("The main set has %d keys. The run took %s and ", r.Keys, r.Took) +
		fmt.Sprintf("%d MiB of memory besides the servers,\nwith %s.\n", r.MemoryMiB, r.load()) +
		"Every row that it read was right.\n"
}

// page returns the Markdown document docs/benchmarks.md, which lists the targets and which of them are met.
func (r *Report) page() []byte {
	var b bytes.Buffer
	p := func(format string, args ...any) { fmt.Fprintf(&b, format, args...) }
	p("%sMeasured on %s with %d keys: %s.\n", pageHead, r.Date, r.Keys, r.Machine)
	if len(r.LeftOut) > 0 {
		p("\nNot measured in this run: %s.\n", strings.Join(r.LeftOut, "; "))
	}
	all := r.targets()
	if note := r.small(); note != "" && len(all) > 0 {
		p("\n%s\n", note)
	}
	for _, about := range []string{Cassandra, Pebble, aboutMap} {
		begun := false
		for _, t := range all {
			if t.about != about {
				continue
			}
			if !begun {
				p("\n## %s\n| what | reached | target | |\n|---|---|---|---|\n", title(about))
				begun = true
			}
			verdict := t.verdict
			if verdict == missed {
				verdict = "**" + verdict + "**"
			}
			p("| %s | %s | %s | %s |\n", t.what, t.reached, t.target, verdict)
		}
	}
	p("\n%s", pageFoot)
	return b.Bytes()
}

const pageHead = `# Benchmarks

For those who want to know what evenkeel costs beside a bare store, and which targets are missed.

` + "`make bench`" + ` writes this page and [all tables and charts](../bench/results/layouts.md). [Parts of
evenkeel](../bench/results/parts.md) are measured apart. Which layout when: [comparison](comparison.md).

`

const pageFoot = `## What the figures mean
*Bare* is the driver or the engine, on one partition, by hand. Ratios are medians, in brackets the lowest and highest
tenth; they carry over to other machines, times do not. *Many ranges* are 100,000, 20 of them with rows. Lookups and
reads of memory are processor time. A *swap* is one change of a map.

## How to run it
` + "```" + `
make bench                                    # all of it, 13 minutes
make bench ARGS="--keys 1000000 --time 1h"
bin/layoutbench run --store pebble --keys 20000 --pages 40   # a quick look
` + "```" + `
It starts a Cassandra node (Java 17, Maven) and PostgreSQL; ` + "`make tools`" + ` installs what is missing. It needs
3.5 GiB of memory.
`

// tables returns the Markdown document with all measured figures except the targets.
func (r *Report) tables() []byte {
	var b bytes.Buffer
	p := func(format string, args ...any) { fmt.Fprintf(&b, format, args...) }
	p("# Layouts side by side: all figures\n\n")
	p("For whoever wants more than the [targets](../../docs/benchmarks.md). Written by `make bench`.\n\n%s\n",
		r.measured())
	p("`x evenkeel` is the median, over the rounds, of a layout's time over evenkeel's in the same round. In brackets\n")
	p("are the medians of the lowest and the highest tenth of the run (of parts of three rounds where there are fewer\n")
	p("than 30, of single rounds below 9). Above 1 evenkeel is the faster one. `bare` is the driver, or the engine,\n")
	p("on one partition, by hand. Requests, rows and KiB are what one page reads. Clients and servers share the processors:\n")
	p("ratios carry over to other machines, times do not.\n\n")
	p("On Pebble each layout, and bare, has for each set an engine of its own, with the same options and a cache of\n")
	p("%d MiB, compacted into one level and opened anew before it is measured. ", cacheBytes>>20)
	p("On Cassandra all lie in one table\n(time slices in their own), bare's in a partition of the shape of `wide`. ")
	p("They are loaded in turns of %d rows,\n", loadChunk)
	p("flushed, and measured when no file is being compacted any more.\n\n")
	p("## Layouts\n| layout | primary key | how it is built here |\n|---|---|---|\n")
	for _, k := range layouts.Kinds() {
		p("| %s | `%s` | %s |\n", k.Name, k.PrimaryKey, k.Built)
	}
	p("\n## Sets of keys\n| set | what |\n|---|---|\n")
	for _, s := range sets() {
		p("| %s | %s |\n", s.name, s.what)
	}
	for _, name := range r.stores() {
		p("\n## %s\n![times of pages, scans and puts](%s)\n", title(name), chartName(name))
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
			line := fmt.Sprintf("| %s | %s | %d | %d | %.0f | %d |\n", s.Set, s.Layout, s.Partitions, s.Min, s.Mean,
				s.Max)
			if !seen[line] {
				seen[line] = true // the same in each store
				p("%s", line)
			}
		}
	}
	if len(r.Growth) > 0 {
		p("\n## What growth costs\nRows that have to move, per row that is added, when a set doubles and no partition ")
		p("may become larger\nthan it was. What is not measured is counted on the keys.\n\n")
		p("| set | layout | rows moved per row added | how |\n|---|---|---|---|\n")
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

// target is a row of the table of targets: a figure, the measured value, the promised limit, and whether the limit is
// met. The field about is the store that the figure is about, or "the map". A figure without a limit is a yardstick for
// other figures.
type target struct{ about, what, reached, target, verdict string }

const aboutMap = "the map"

// The verdicts about a figure in the table of targets.
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

// fullKeys is the smallest number of keys of the main set at which the targets are meaningful.
const fullKeys = 200_000

// small returns a sentence that warns of targets in a run with too few keys. The result is "" if the run has enough
// keys.
func (r *Report) small() string {
	if r.Keys >= fullKeys {
		return ""
	}
	return fmt.Sprintf("Targets are about a main set of %d keys or more: with %d a page of 1000 crosses from range to "+
		"range.", fullKeys, r.Keys)
}

func (r *Report) find(store, set, measure, layout string) *Line {
	for i := range r.Lines {
		if l := &r.Lines[i]; l.Store == store && l.Set == set && l.Measure == measure && l.Layout == layout {
			return l
		}
	}
	return nil
}

// targets compares the measured figures with the promised limits, and returns the rows of the table of targets.
func (r *Report) targets() (out []target) {
	for _, c := range []struct {
		store      string
		page, puts float64
	}{{Cassandra, 1.1, 0.95}, {Pebble, 1.5, 0.8}} {
		is := func(what, measure, layout string, limit float64, f judgement) {
			if l := r.find(c.store, setReal, measure, layout); l != nil && l.Ratio > 0 {
				reached, promised, verdict := f(l, limit)
				out = append(out, target{c.store, what, reached, promised, verdict})
			}
		}
		is("page of 1000: time relative to bare", deepPage, nameBare, c.page, inverse)
		is("page of 1000, many ranges: time relative to few", deepPage, nameMany, 1.1, most)
		if c.store == Cassandra {
			is("page of 1000 from 256 hash buckets, lazy merge: time relative to evenkeel",
				deepPage, layouts.NameHash, 8, least)
			is("the same, naive merge", deepPage, nameNaive, 60, least)
		}
		is("puts by 1 worker: throughput relative to bare", putsAlone, nameBare, c.puts, least)
		is("puts by 64 workers: throughput relative to bare", putsAtOnce, nameBare, c.puts, least)
		if c.store == Cassandra {
			is("1280 puts into one partition by PutBatch: throughput relative to 64 workers with single puts",
				putsOne, nameSingly, 2.5, least)
		}
		is("scan by 4 readers: throughput relative to bare", parallelAll, nameBare, 0.8, least)
		// With few keys for each prefix it is right to read through them.
		if l := r.find(c.store, setPaths, folderPage, layouts.NameEvenkeel); l != nil && r.Keys >= fullKeys {
			out = append(out, target{
				c.store, "1000 common prefixes: read per prefix",
				fmt.Sprintf("%.1f rows, %.1f requests", l.Rows/pageRows, l.Requests/pageRows),
				"at most 10 rows", verdict(l.Rows <= 10*pageRows),
			})
		}
	}
	for _, f := range r.Map {
		t := target{aboutMap, f.What, f.reached(), "-", yardstick}
		if f.Most != nil {
			t.target = strings.TrimSpace(fmt.Sprintf("at most %g %s", *f.Most, f.Unit))
			t.verdict = verdict(f.Value <= *f.Most)
		}
		out = append(out, t)
	}
	return out
}

// spread returns the ratio x with its lowest and highest values as text. x is printed with enough digits to show on
// which side of limit it is.
func spread(x, least, most, limit float64) string {
	return fmt.Sprintf("%s (%s to %s)", timesBeside(x, limit), times(least), times(most))
}

// judgement is a function that compares the ratio of a line with a limit. The results are texts: the measured ratio,
// the limit, and whether the limit is met.
type judgement func(l *Line, limit float64) (reached, target, is string)

// most is the judgement that the ratio of the line l must be at most limit. inverse is the same for 1 divided by the
// ratio, and least is the judgement that the ratio must be at least limit.
func most(l *Line, limit float64) (reached, target, is string) {
	return spread(l.Ratio, l.Least, l.Most, limit), fmt.Sprintf("at most %g", limit), verdict(l.Ratio <= limit)
}

func inverse(l *Line, limit float64) (reached, target, is string) {
	return most(&Line{Ratio: 1 / l.Ratio, Least: 1 / l.Most, Most: 1 / l.Least}, limit)
}

func least(l *Line, limit float64) (reached, target, is string) {
	return spread(l.Ratio, l.Least, l.Most, limit), fmt.Sprintf("at least %g", limit), verdict(l.Ratio >= limit)
}
