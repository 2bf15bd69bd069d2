package bench

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/bench/layouts"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/test/mapbench"
)

// Figure is one measured value of evenkeel's map of ranges, such as the time of a lookup, with its target.
type Figure struct {
	What string `json:"what"`
	// Value is the measured value, in the unit Unit. Note has further explanations, e.g. the number of runs.
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
	Note  string  `json:"note,omitempty"`
	// Most is the largest value that meets the target. Most is nil if the figure has no target and only serves as a
	// comparison.
	Most *float64 `json:"most,omitempty"`
}

func (f *Figure) reached() string {
	text := strings.TrimSpace(fmt.Sprintf("%.4g %s", f.Value, f.Unit))
	if f.Note != "" {
		text += " (" + f.Note + ")"
	}
	return text
}

func atMost(x float64) *float64 { return &x }

// mapSize is the size of the map of ranges that is measured, and the number and length of the measuring runs.
type mapSize struct {
	ranges, runs int
	each         time.Duration // of each run; short ones find caches full of something else
	bound        int64         // of the cache that is bounded
}

// theMap is the size of the map for which the targets are set: a million ranges.
var theMap = mapSize{ranges: 1_000_000, runs: 30, each: 40 * time.Millisecond, bound: 64 << 20}

// lookups measures the time of lookups in a map of ranges in memory, beside the time of random reads of memory. Each
// measurement is repeated in turns, and the shortest time counts, as other work on the machine can only make a run
// longer. The result also has the allocations of a lookup, and the memory of a client with a bounded cache.
func lookups(ctx context.Context, size mapSize) (out []Figure, err error) {
	m, err := mapbench.NewMap(ctx, size.ranges, 1<<30)
	if err != nil {
		return nil, err
	}
	defer m.Lease.Release()
	if err := m.ReadAll(ctx); err != nil {
		return nil, err
	}
	bounded, err := boundedMap(ctx, m, size.bound)
	if err != nil {
		return nil, err
	}
	find := func(within int) func(n int) error {
		keys := mapbench.NewKeys(m.Cuts, min(within, len(m.Cuts)))
		at := 0
		return func(n int) error {
			for range n {
				if err := m.Find(ctx, keys.At(at)); err != nil {
					return err
				}
				at++
			}
			return nil
		}
	}
	read := func(bytes int) func(n int) error {
		lines, at := mapbench.NewMemory(bytes), uint32(0)
		return func(n int) error {
			for range n {
				at = lines.Next(at)
			}
			runtime.KeepAlive(at)
			return nil
		}
	}
	things := []struct {
		what string
		most *float64
		do   func(n int) error
	}{
		{"at random over all of it", atMost(500), find(len(m.Cuts))},
		{"within 100 segments", atMost(150), find(100*mapbench.SegmentRanges - 1)},
		{"within one segment", nil, find(mapbench.SegmentRanges - 1)},
		{"one read of memory at random, of 80 MiB", nil, read(80 << 20)},
		{"one read of memory at random, of 8 MiB", nil, read(8 << 20)},
	}
	least, most, many := make([]float64, len(things)), make([]float64, len(things)), make([]int, len(things))
	for i := range things {
		least[i], many[i] = math.Inf(1), 1000
	}
	for run := -1; run < size.runs; run++ { // the first one warms up, and finds out how many
		for i := range things {
			start, begun := time.Now(), mapbench.ProcessorTime()
			if err := things[i].do(many[i]); err != nil {
				return nil, err
			}
			if run < 0 {
				many[i] = max(int(float64(size.each)/max(float64(time.Since(start))/float64(many[i]), 1)), 1)
				continue
			}
			each := float64(mapbench.ProcessorTime()-begun) / float64(many[i])
			least[i], most[i] = min(least[i], each), max(most[i], each)
		}
	}
	inMap := fmt.Sprintf("lookup in a map of %d ranges ", size.ranges)
	for i, t := range things {
		f := Figure{
			What: t.what, Value: least[i], Unit: "ns", Most: t.most,
			Note: fmt.Sprintf("least of %d runs, most %.0f", size.runs, most[i]),
		}
		if i < 3 {
			f.What = inMap + t.what
		}
		out = append(out, f)
	}
	const n = 100_000
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err = things[0].do(n)
	runtime.ReadMemStats(&after)
	allocations := float64((after.Mallocs - before.Mallocs) / n) // whole ones: what else goes on allocates, too
	out = append(out, Figure{
		What: "allocations of a lookup", Value: allocations, Most: atMost(0),
		Note: fmt.Sprintf("%d in the process in %d lookups", after.Mallocs-before.Mallocs, n),
	})
	return append(out, bounded), err
}

// boundedMap measures how much the heap grows when a new client reads all of the map m. The client's cache is limited
// to bound bytes.
func boundedMap(ctx context.Context, m *mapbench.Map, bound int64) (Figure, error) {
	before := mapbench.Heap()
	other, err := m.Another(ctx, bound)
	if err != nil {
		return Figure{}, err
	}
	defer other.Lease.Release()
	if err := other.ReadAll(ctx); err != nil {
		return Figure{}, err
	}
	grown := float64(mapbench.Heap()-before) / (1 << 20)
	u := other.Client.Usage()
	return Figure{
		What: fmt.Sprintf("memory of a client that has read all of a map of %d ranges, its cache bounded to %d MiB",
			len(m.Cuts)+1, bound>>20),
		Value: grown, Unit: "MiB", Most: atMost(float64(bound >> 20)),
		Note: fmt.Sprintf("growth of the heap; the cache counts %.1f MiB in %d nodes", float64(u.NodeBytes)/(1<<20),
			u.Nodes),
	}, nil
}

// swapMoves is the number of moves of ranges that are timed, each with six swaps of the map's root. swapWarmUp is the
// number of moves before the timed ones.
const swapMoves, swapWarmUp = 50, 10

// swaps measures how long a swap of the root of a large map takes. A swap is one change of the map in the store: new
// nodes, the compare-and-swap of the root, and the update of the map clock. If less than 30 s are left, swaps measures
// nothing, and the report says so.
func (x *runner) swaps(ctx context.Context) error {
	ranges := 1_000_000
	if x.o.Keys < fullKeys {
		ranges = 100_000
	}
	if time.Until(x.deadline) < 30*time.Second {
		x.r.leftOut("%s: swaps of the root of a map of %d ranges: the time was up", x.store, ranges)
		return nil
	}
	x.say("swaps of the root of a map of %d ranges", ranges)
	c, err := x.w.client(x.w.rows(layouts.NameEvenkeel))
	if err != nil {
		return err
	}
	const name = "layouts-large-map"
	cuts := mapbench.Cuts(ranges - 1)
	if err := c.CreateBucket(ctx, name, cuts...); err != nil {
		return err
	}
	id, err := c.BucketID(ctx, name)
	if err != nil {
		return err
	}
	s := &mapbench.Swaps{Maps: mapclient.Of(c), Bucket: id}
	r := rand.New(rand.NewPCG(5, 6))
	for i := range swapWarmUp + swapMoves {
		if i == swapWarmUp {
			s.Took, s.Rewriting = nil, nil
		}
		at := r.IntN(len(cuts) - 1)
		if err := s.Move(ctx, cuts[at], cuts[at+1]); err != nil {
			return err
		}
	}
	x.r.Map = append(x.r.Map, swapFigure(x.store, ranges, s))
	return nil
}

const swapTarget = 50 // ms, of the slowest

// swapFigure returns the figure of the report for the slowest of the swaps s, in milliseconds. ranges is the size of
// the map.
func swapFigure(store string, ranges int, s *mapbench.Swaps) Figure {
	millis := func(of []time.Duration) (out []float64) {
		for _, d := range of {
			out = append(out, float64(d)/1e6)
		}
		return out
	}
	took, over := millis(s.Took), 0
	for _, ms := range took {
		if ms > swapTarget {
			over++
		}
	}
	return Figure{
		What: fmt.Sprintf("slowest swap of the root of a map of %d ranges, in moves as a split makes them, %s", ranges,
			title(store)), Value: slices.Max(took), Unit: "ms", Most: atMost(swapTarget),
		Note: fmt.Sprintf("of %d, %d of them above %d; p50 %.1f, of those that write nodes %.1f", len(took), over,
			swapTarget, quantile(took, 0.5), quantile(millis(s.Rewriting), 0.5)),
	}
}
