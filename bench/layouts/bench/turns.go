package bench

import (
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/evenkeel/evenkeel/bench/layouts"
)

// way is how one layout does the work that is measured, e.g. how it reads a page.
type way struct {
	layout string
	// do does the work once. The work depends only on the round, so that all layouts do the same. The function check
	// checks the result, outside of the measured time.
	do func(ctx context.Context, round int) (check func() error, err error)
	// counted does the work over a store that counts its reads, and returns the counts. counted is nil if nothing is
	// counted.
	counted func(ctx context.Context, round int) (layouts.Work, error)
	// rounds is the number of rounds in which the layout takes part. 0 stands for all rounds.
	rounds int
}

// Line is one line of the report: how long one layout took for one kind of work, and how that compares with evenkeel.
type Line struct {
	Store   string `json:"store"`
	Set     string `json:"set"`
	Measure string `json:"measure"`
	Layout  string `json:"layout"`
	// N is how many times the work was done. P50 and P95 are the median and the 95th percentile of the times, in
	// microseconds.
	N   int     `json:"n"`
	P50 float64 `json:"p50_us"`
	P95 float64 `json:"p95_us"`
	// Of is the number of rows or puts that were done each time, or 0 if the number does not matter.
	Of int `json:"of,omitempty"`
	// Ratio is the layout's time divided by evenkeel's time in the same round, as the median over all rounds. Least and
	// Most are the lowest and the highest of the medians of ten parts of the run.
	Ratio float64 `json:"x_evenkeel"`
	Least float64 `json:"x_evenkeel_least"`
	Most  float64 `json:"x_evenkeel_most"`
	// Requests, Rows and Bytes are what the layout read each time, on average. All are 0 if nothing was counted.
	Requests float64 `json:"requests,omitempty"`
	Rows     float64 `json:"rows,omitempty"`
	Bytes    float64 `json:"bytes,omitempty"`
}

// PerSecond returns the throughput in rows or puts per second, computed from the median time.
func (l *Line) PerSecond() float64 { return float64(l.Of) / l.P50 * 1e6 }

// countedRounds is the largest number of rounds in which reads are counted.
const countedRounds = 10

// turns does the measured work by all ways in turns. Each round has a random order of the ways, so that what one way
// leaves behind (garbage, caches, work of a server) does not always hit the same next way. turns ends after `rounds`
// rounds, or after the time limit with fewer rounds. A wrong result of the work is an error.
func turns(ctx context.Context, ways []way, rounds, warm int, limit time.Duration) (lines []Line, err error) {
	took := make([]map[int]float64, len(ways)) // by round
	for i := range took {
		took[i] = map[int]float64{}
	}
	begun := time.Now()
	for round := -warm; round < rounds; round++ {
		if round < -1 && time.Since(begun) > limit/5 {
			round = -1 // warm enough
		}
		if time.Since(begun) > limit && round > 2 {
			break
		}
		for _, at := range rand.New(rand.NewPCG(uint64(round), 11)).Perm(len(ways)) {
			w := &ways[at]
			if w.rounds > 0 && w.rounds < rounds {
				if every := rounds / w.rounds; round < 0 && round != -1 || round >= 0 && round%every != 0 {
					continue
				}
			}
			start := time.Now()
			check, err := w.do(ctx, round+warm)
			d := time.Since(start)
			if err == nil && check != nil {
				err = check()
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", w.layout, err)
			}
			if round >= 0 {
				took[at][round] = float64(d.Nanoseconds()) / 1e3
			}
		}
	}
	base := slices.IndexFunc(ways, func(w way) bool { return w.layout == layouts.NameEvenkeel })
	for i := range ways {
		l := Line{Layout: ways[i].layout, N: len(took[i])}
		if l.N == 0 {
			continue
		}
		all := slices.Collect(maps.Values(took[i]))
		l.P50, l.P95 = quantile(all, 0.5), quantile(all, 0.95)
		if base >= 0 {
			l.Ratio, l.Least, l.Most = ratios(took[i], took[base])
		}
		if ways[i].counted != nil {
			n := min(countedRounds, l.N)
			for round := range n {
				w, err := ways[i].counted(ctx, round+warm)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", ways[i].layout, err)
				}
				l.Requests += float64(w.Requests) / float64(n)
				l.Rows += float64(w.Rows) / float64(n)
				l.Bytes += float64(w.Bytes) / float64(n)
			}
		}
		lines = append(lines, l)
	}
	return lines, nil
}

// ratios compares the times of a layout with those of evenkeel, round by round. Both did the same work in a round, one
// soon after the other, so neither a busy moment nor an expensive page counts for only one of them. ratio is the median
// of all rounds. least and most are the lowest and the highest median of the run's parts, which are tenths of at least
// three rounds. With fewer than nine rounds each round is a part.
func ratios(ours, base map[int]float64) (ratio, least, most float64) {
	var rounds []int
	for round := range ours {
		if _, both := base[round]; both {
			rounds = append(rounds, round)
		}
	}
	if len(rounds) == 0 {
		return 0, 0, 0
	}
	slices.Sort(rounds)
	all := make([]float64, len(rounds))
	for i, round := range rounds {
		all[i] = ours[round] / base[round]
	}
	parts := len(all)
	if parts >= 9 {
		parts = min(10, parts/3)
	}
	least, most = math.Inf(1), 0
	for i := range parts {
		part := quantile(all[i*len(all)/parts:(i+1)*len(all)/parts], 0.5)
		least, most = min(least, part), max(most, part)
	}
	return quantile(all, 0.5), least, most
}

// quantile returns the value below which the share q of the values lies. With an even number of values the median is
// the upper one of the two in the middle, so that the median of all values lies between those of the parts.
func quantile(of []float64, q float64) float64 {
	sorted := slices.Sorted(slices.Values(of))
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}
