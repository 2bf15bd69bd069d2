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

// way is one layout's way of doing what is measured.
type way struct {
	layout string
	// do does it once; the arguments depend on the round alone, so that all ways
	// do the same. The check that it returns is not in the time.
	do func(ctx context.Context, round int) (check func() error, err error)
	// counted does it over a store that counts; nil where there is none.
	counted func(ctx context.Context, round int) (layouts.Work, error)
	// rounds is in how many rounds it takes part; 0 in all.
	rounds int
}

// Line is one measured figure of one layout.
type Line struct {
	Store   string `json:"store"`
	Set     string `json:"set"`
	Measure string `json:"measure"`
	Layout  string `json:"layout"`
	// N is how often it was done; P50 and P95 are microseconds.
	N   int     `json:"n"`
	P50 float64 `json:"p50_us"`
	P95 float64 `json:"p95_us"`
	// Of is how many rows (or puts) were done each time; 0 where it does not
	// matter.
	Of int `json:"of,omitempty"`
	// Ratio is the median, over the rounds, of the time over evenkeel's in the same
	// round; Least and Most are the same of the lowest and the highest tenth of the
	// run.
	Ratio float64 `json:"x_evenkeel"`
	Least float64 `json:"x_evenkeel_least"`
	Most  float64 `json:"x_evenkeel_most"`
	// Requests, Rows and Bytes were read each time, on average; all 0 where nothing
	// counted.
	Requests float64 `json:"requests,omitempty"`
	Rows     float64 `json:"rows,omitempty"`
	Bytes    float64 `json:"bytes,omitempty"`
}

// PerSecond is the throughput of something that is done Of times.
func (l *Line) PerSecond() float64 { return float64(l.Of) / l.P50 * 1e6 }

// most of the rounds that are done to count work.
const countedRounds = 10

// turns does what is measured by all ways in turns, in an order that is drawn for each
// round, so that what one leaves behind (garbage, caches, work of a server) does not
// always meet the same other one. It ends after so many rounds, or at the end of its
// time, then with fewer. What is not right ends it with an error.
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

// ratios compares two round by round: the same was done by both, one right after
// the other, so that neither a busy moment nor a dear page counts for one alone. It
// returns the median of all rounds' ratios, and the least and the most of those of
// the run's parts, which are tenths, of three rounds at least; of fewer than nine
// rounds each is a part. The median is never outside of the parts'.
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

// quantile is the value below which so much lies; the median is the upper one of two
// in the middle, which makes that of a whole lie among those of its parts.
func quantile(of []float64, q float64) float64 {
	sorted := slices.Sorted(slices.Values(of))
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}
