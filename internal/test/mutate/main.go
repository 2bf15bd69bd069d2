// Command mutate runs a mutation test. It makes small changes of packages, one at a time, and checks whether a test
// fails. A change (a mutant) with which all tests pass shows code that no test checks.
//
//	go run ./internal/test/mutate [flags] ./partmap ./internal/rebalance/leader
//
// The mutants are drawn at random, by a seed that is printed. Mutants that do not compile are replaced by others. A
// mutant is judged by the tests of its package, one process each, and then by those of the packages that holders names,
// the fast ones first, until one fails. Tests of packages that never reach the changed statement are not run. The
// source tree is not changed (see "go help build", -overlay).
//
// mutate ends with 0 if at most -allow percent of each package's mutants survive that are not in equivalent.txt, with 1
// if more survive, and with 2 if it could not find out.
package main

import (
	"cmp"
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"io"
	mathrand "math/rand/v2"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"
)

//go:embed equivalent.txt
var equivalentText string

// Result is the outcome for one mutant, which is one small change of the code.
type Result struct {
	*Mutant
	Package    string  `json:"package"`
	Outcome    Outcome `json:"outcome"`
	By         string  `json:"by,omitempty"` // whose tests failed
	Equivalent bool    `json:"equivalent,omitempty"`
	Diff       string  `json:"diff"`
}

// Score has the numbers of mutants of a package, by outcome.
type Score struct {
	Package      string `json:"package"`
	Sites        int    `json:"sites"` // of which the sample was drawn
	Sample       int    `json:"sample"`
	Killed       int    `json:"killed"`
	Survived     int    `json:"survived"` // the equivalent ones apart
	Equivalent   int    `json:"equivalent"`
	NotCompiling int    `json:"not_compiling"` // not in the sample
}

// Report has all outcomes of a run, as the flag -json prints them.
type Report struct {
	Seed    uint64   `json:"seed"`
	Scores  []Score  `json:"scores"`
	Results []Result `json:"results"`
}

type options struct {
	dir        string // of the module, or below it
	n          int
	seed       uint64
	at         string
	holders    map[string][]string
	equivalent []string
	grace      time.Duration // that tests have for a mutant, beside three times what they took
	log        io.Writer
}

func main() {
	n := flag.Int("n", 60, "mutants per package; 0: every one")
	seed := flag.Uint64("seed", 0, "draws the mutants; 0: a fresh one")
	also := flag.String("also", "",
		`packages whose tests judge as well, "./listing ./internal/test/sim", instead of the list in holders.go; "none" for none`)
	at := flag.String("at", "", `mutants of this place, "partmap/moves.go:102", or of this file, and no sample`)
	allow := flag.Float64("allow", 3, "percentage of a package's mutants that may survive")
	asJSON := flag.Bool("json", false, "print a report as JSON; progress goes to the standard error")
	flag.Usage = func() {
		fmt.Fprintf(flag.CommandLine.Output(), "usage: mutate [flags] PACKAGE...   (from within the module)\n")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() == 0 || *n < 0 {
		flag.Usage()
		os.Exit(2)
	}
	o := options{
		dir: ".", n: *n, seed: *seed, at: *at, holders: holders, equivalent: equivalents(), grace: 20 * time.Second,
		log: os.Stdout,
	}
	if *asJSON {
		o.log = os.Stderr
	}
	if o.seed == 0 {
		var b [8]byte
		_, _ = rand.Read(b[:]) // never fails
		o.seed = uint64(binary.BigEndian.Uint32(b[:])) + 1
	}
	if *also != "" {
		o.holders = map[string][]string{"": strings.Fields(*also)}
		if *also == "none" {
			o.holders = nil
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	report, err := mutate(ctx, o, flag.Args()...)
	stop()
	if err == nil && *asJSON {
		e := json.NewEncoder(os.Stdout)
		e.SetEscapeHTML(false)
		e.SetIndent("", "  ")
		err = e.Encode(report)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(2)
	}
	report.print(o.log)
	for _, s := range report.Scores {
		if float64(100*s.Survived) > *allow*float64(s.Sample) {
			os.Exit(1)
		}
	}
}

// equivalents returns the names of mutants in equivalent.txt, which change nothing that a test could notice.
func equivalents() (names []string) {
	for line := range strings.Lines(equivalentText) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			names = append(names, line)
		}
	}
	return names
}

func mutate(ctx context.Context, o options, patterns ...string) (*Report, error) {
	temp, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(temp)
	pkgs, err := list(ctx, o.dir, patterns...)
	if err != nil {
		return nil, err
	}
	report := &Report{Seed: o.seed}
	fmt.Fprintf(o.log, "seed %d\n", o.seed)
	for _, p := range pkgs {
		if err := one(ctx, o, p, temp, report); err != nil {
			return nil, fmt.Errorf("%s: %w", p.ImportPath, err)
		}
	}
	return report, nil
}

func one(ctx context.Context, o options, p pkg, temp string, report *Report) error {
	root := p.Module.Dir
	sites, err := sitesOf(root, p.Dir, p.GoFiles)
	if err != nil {
		return err
	}
	rel := strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, p.Module.Path), "/")
	if err := stale(o.equivalent, rel, sites); err != nil {
		return err
	}
	sample, most := draw(sites, o.seed, p.ImportPath), o.n
	if o.at != "" {
		most = 0
		sample = slices.DeleteFunc(sites,
			func(m *Mutant) bool { return o.at != m.File && o.at != fmt.Sprintf("%s:%d", m.File, m.Line) })
	}
	if len(sample) == 0 {
		return errors.New("there is nothing to mutate")
	}
	own, err := join(ctx, root, p, sample[:min(len(sample), cmp.Or(2*most, len(sample)))], temp, o.log)
	if err != nil {
		return err
	}
	others, err := othersOf(ctx, o, p, rel, temp)
	if err != nil {
		return err
	}
	score := Score{Package: p.ImportPath, Sites: len(sites)}
	for _, m := range sample {
		if most > 0 && score.Sample == most {
			break
		}
		begin := time.Now()
		by := p.ImportPath
		outcome, err := own.judge(ctx, m, o.grace)
		if err == nil && outcome.alive() {
			var theirs Outcome
			if theirs, by, err = askOthers(ctx, o, root, m, others, temp); theirs != Unreached {
				outcome = theirs
			}
		}
		if err != nil {
			return fmt.Errorf("%s: %w", m.Name(), err)
		}
		r := Result{
			Mutant: m, Package: p.ImportPath, Outcome: outcome, By: strings.TrimPrefix(by, p.Module.Path+"/"),
			Diff: m.Diff(),
		}
		r.Equivalent = outcome.alive() && slices.Contains(o.equivalent, m.Name())
		score.count(&r)
		report.Results = append(report.Results, r)
		fmt.Fprintf(o.log, "%3d %-13s %s:%d %s [%s] %s (%.1f s)\n", score.Sample, outcome, m.File, m.Line, m.Func,
			m.Kind, r.By, time.Since(begin).Seconds())
		if outcome.alive() {
			fmt.Fprintf(o.log, "%s\n", strings.TrimRight(m.Name()+"\n"+r.Diff, "\n"))
		}
	}
	report.Scores = append(report.Scores, score)
	return nil
}

// stale returns an error if equivalent.txt names a mutant of the package rel that the package no longer has.
func stale(equivalent []string, rel string, sites []*Mutant) error {
	known := map[string]bool{}
	for _, m := range sites {
		known[m.Name()] = true
	}
	for _, name := range equivalent {
		file, _, _ := strings.Cut(name, " ")
		if dir := file[:max(0, strings.LastIndexByte(file, '/'))]; dir == rel && !known[name] {
			return fmt.Errorf("equivalent.txt names a mutant that is no more: %s", name)
		}
	}
	return nil
}

// draw returns the mutants of a package in random order. The order depends only on the seed and the path of the
// package.
func draw(sites []*Mutant, seed uint64, path string) []*Mutant {
	h := fnv.New64a()
	_, _ = io.WriteString(h, path)
	sample := slices.Clone(sites)
	mathrand.New(mathrand.NewPCG(seed, h.Sum64())).
		Shuffle(len(sample), func(i, j int) { sample[i], sample[j] = sample[j], sample[i] })
	return sample
}

// othersOf returns the other packages whose tests judge the mutants of the package p, the fastest first.
func othersOf(ctx context.Context, o options, p pkg, rel, temp string) ([]judge, error) {
	names := o.holders[rel]
	if only := o.holders[""]; only != nil {
		names = only
	}
	if len(names) == 0 {
		return nil, nil
	}
	var patterns []string
	for _, name := range names {
		patterns = append(patterns, "./"+strings.TrimPrefix(name, "./"))
	}
	also, err := list(ctx, p.Module.Dir, patterns...)
	if err != nil {
		return nil, err
	}
	var judges []judge
	for _, x := range also {
		if x.ImportPath == p.ImportPath {
			continue
		}
		j, err := examine(ctx, p.Module.Dir, x.ImportPath, p.ImportPath, temp)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(o.log, "%s passes without a mutant (%.1f s)\n", x.ImportPath, j.took.Seconds())
		judges = append(judges, j)
	}
	slices.SortStableFunc(judges, func(a, b judge) int { return cmp.Compare(a.took, b.took) })
	return judges, nil
}

func (s *Score) count(r *Result) {
	switch {
	case r.Outcome == NotCompiling:
		s.NotCompiling++
		return
	case r.Equivalent:
		s.Equivalent++
	case r.Outcome.alive():
		s.Survived++
	default:
		s.Killed++
	}
	s.Sample++
}

// print writes the mutants that survived, and a table with the numbers of each package, to w.
func (r *Report) print(w io.Writer) {
	for i := range r.Results {
		if x := &r.Results[i]; x.Outcome.alive() && !x.Equivalent {
			fmt.Fprintf(w, "\n%s: %s:%d\n%s\n%s", x.Outcome, x.File, x.Line, x.Name(), x.Diff)
		}
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "\npackage\tsites\tsample\tkilled\tsurvived\tequivalent\tnot compiling\n")
	for _, s := range r.Scores {
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\t%d\t%d\n", s.Package, s.Sites, s.Sample, s.Killed, s.Survived, s.Equivalent,
			s.NotCompiling)
	}
	_ = t.Flush()
	fmt.Fprintf(w, "seed %d\n", r.Seed)
}
