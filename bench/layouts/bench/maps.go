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
	"github.com/evenkeel/evenkeel/internal/test/mapbench"
)

// Figure is something measured of the map alone.
type Figure struct {
	What string `json:"what"`
	// Value is what was reached, in Unit; with what else there is to say in Note.
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
	Note  string  `json:"note,omitempty"`
	// Most is the target; nil for a yardstick, which has none.
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

// mapSize is how large the map is that is measured, and how.
type mapSize struct {
	ranges, runs int
	each         time.Duration // of each run; short ones find caches full of something else
	bound        int64         // of the cache that is bounded
}

// theMap is what the targets are about.
var theMap = mapSize{ranges: 1_000_000, runs: 30, each: 40 * time.Millisecond, bound: 64 << 20}

// lookups measures lookups in a map in memory, beside reads of memory: each many times,
// in turns, of which the least counts. What others do on the machine can only make it
// more.
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

// boundedMap reads the whole map by a client of its own with a bounded cache, and
// tells by how much the heap grew.
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

// swapMoves is how many whole moves are timed, of six swaps each; as many before warm
// up.
const swapMoves, swapWarmUp = 50, 10

// swaps measures what a swap of a large map's root takes.
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
	s := &mapbench.Swaps{Maps: c.Maps(), Bucket: id}
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

// swapFigure is about the slowest swap.
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
