package main

import (
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"syscall"
	"time"
)

// A situation is a kind of planning problem, from which instances are drawn at random.
type situation struct {
	name, text string
	// play draws an instance of the problem from r, lets all planners plan, and returns the results.
	play func(r *rand.Rand, seed uint64) outcome
}

// outcome has the results of all planners for one instance of a problem, and the figures to compare them with.
type outcome struct {
	// asIs is the cost if nothing is changed. bound is a lower bound of the cost of any plan.
	asIs, bound float64
	plans       []result
}

// result is the cost of the plan of one planner, and the time that the planner took.
type result struct {
	planner string
	cost    float64
	took    time.Duration // of processor
}

// timed returns the result of a planner. It calls plan, which returns the cost of the plan, and measures the processor
// time.
func timed(planner string, plan func() float64) result {
	began := spent()
	cost := plan()
	return result{planner, cost, spent() - began}
}

// spent returns the processor time that this process has used so far.
func spent() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // fails for bad arguments only
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func situations() []situation {
	return []situation{
		{"range", "one range over its maximum", oneRange},
		{"window", "9 neighbours, boundaries may shift", window},
		{"budget-8", "8 windows, a budget of a third of the rows wanted", coupled(8, system{budget: 1. / 3})},
		{"budget-100", "the same with 100 windows", coupled(100, system{budget: 1. / 3})},
		{"waves", "30 windows in 3 waves with a budget each; moves of neighbours must not meet",
			coupled(30, system{budget: 1. / 5, waves: 3, meet: true})},
		{"nodes-8", "8 windows on 6 nodes, three copies of each row; what moves chooses its nodes",
			coupled(8, system{nodes: 6, heat: 0.5})},
		{"nodes-40", "40 windows on 12 nodes", coupled(40, system{nodes: 12, heat: 0.5})},
		{"nodes-hot", "4 windows on 6 nodes, where load outweighs all else", coupled(4, system{nodes: 6, heat: 20})},
		{"all", "30 windows on 12 nodes, in 3 waves, with budgets",
			coupled(30, system{budget: 1. / 5, waves: 3, meet: true, nodes: 12, heat: 0.5})},
	}
}

func main() {
	seeds := flag.Int("seeds", 5, "seeds of each situation")
	only := flag.String("situation", "", "play this situation only")
	flag.Parse()
	if err := run(os.Stdout, *seeds, *only); err != nil {
		fmt.Fprintln(os.Stderr, "planners:", err)
		os.Exit(1)
	}
}

// run plays the situations, and writes a table with the means over all seeds to w. seeds is the number of instances of
// each situation. If only is not "", run plays only the situation with that name.
func run(w io.Writer, seeds int, only string) error {
	var names []string
	played := false
	fmt.Fprint(w, "| situation | planner | cost, × bound | of the gain, % | worst seed, × bound | processor |\n"+
		"|---|---|---|---|---|---|\n")
	for _, s := range situations() {
		names = append(names, s.name)
		if only != "" && only != s.name {
			continue
		}
		played = true
		var sum []result
		var worst, gains []float64
		asIs, bound := 0.0, 0.0
		for seed := range uint64(seeds) {
			o := s.play(rand.New(rand.NewPCG(seed, 17)), seed)
			asIs, bound = asIs+o.asIs, bound+o.bound
			if sum == nil {
				sum, worst, gains = make([]result, len(o.plans)), make([]float64, len(o.plans)), make([]float64, len(o.plans))
			}
			for i, p := range o.plans {
				sum[i].planner = p.planner
				sum[i].cost += p.cost
				sum[i].took += p.took
				worst[i] = max(worst[i], p.cost/o.bound)
				gains[i] += (o.asIs - p.cost) / (o.asIs - o.bound)
			}
		}
		for i, p := range sum {
			fmt.Fprintf(w, "| %s | %s | %.3f | %.1f | %.3f | %v |\n", s.name, p.planner, p.cost/bound,
				100*gains[i]/float64(seeds), worst[i], (p.took / time.Duration(seeds)).Round(10*time.Microsecond))
		}
	}
	if !played {
		return fmt.Errorf("no situation is called %q: there are %s", only, strings.Join(names, ", "))
	}
	return nil
}
