package bench

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/counter/localcounter"
	"github.com/evenkeel/evenkeel/internal/layouts"
	"github.com/evenkeel/evenkeel/internal/rebalanceflags"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/rebalance/auto"
	"github.com/evenkeel/evenkeel/rebalance/balancer"
	"github.com/evenkeel/evenkeel/rebalance/manager"
	"github.com/evenkeel/evenkeel/store/pebblestore"
)

// Growth is what it costs a layout when its set doubles and no partition may become
// larger than it was.
type Growth struct {
	Set    string `json:"set"`
	Layout string `json:"layout"`
	// Moved is rows moved per row added; below 0 where moving does not help.
	Moved float64 `json:"rows_moved_per_row_added"`
	How   string  `json:"how"`
}

func (g *Growth) moved() string {
	if g.Moved < 0 {
		return "cannot"
	}
	return fmt.Sprintf("%.2f", g.Moved)
}

// growthRows is how many rows are added to evenkeel by hand, growthLimit how many a
// partition may have then.
const growthRows, growthLimit = 40_000, 4_000

// growth counts rows that move, of the keys of each set; evenkeel does it for real,
// embedded, by its own balancer, on the first store alone.
func (x *runner) growth(ctx context.Context) error {
	if len(x.r.Growth) > 0 {
		return nil
	}
	add := func(set, layout string, moved float64, how string) {
		x.r.Growth = append(x.r.Growth, Growth{set, layout, moved, how})
	}
	for _, name := range []string{"md5", "append"} {
		l := x.loaded[name]
		if l == nil {
			continue
		}
		if time.Until(x.deadline) < 2*time.Minute {
			x.r.leftOut("%s: what growth costs: the time was up", name)
			continue
		}
		x.say("%s: growth", name)
		moved, largest, err := growBalanced(ctx, l.set)
		if err != nil {
			return fmt.Errorf("growing %s: %w", name, err)
		}
		add(name, layouts.NameEvenkeel, moved, fmt.Sprintf("measured: from nothing to %d rows in 30 s, max_rows %d, by its own balancer; the largest partition has %d in the end", growthRows, growthLimit, largest))
		add(name, layouts.NameWide, -1, "one partition grows")
		add(name, layouts.NameHash, growthOfHashing(l.oracle.keys, 256), "256 buckets become 512, by jump hashing; a reader must know which rows have moved")
		prefix := growthOfPrefixes(l.oracle.keys, prefixBytes)
		how := "another byte of prefix: every row moves to another partition"
		if prefix < 0 {
			how = "another byte of prefix parts nothing: the keys begin alike"
		}
		add(name, layouts.NamePrefix, prefix, how)
		add(name, layouts.NameFixed, 0, "the next partition begins; no key is ever found again without a search")
		add(name, layouts.NamePostgres, 0, "the b-tree splits its own pages, on one machine")
	}
	return nil
}

// growthOfHashing counts the rows that lie elsewhere with twice as many buckets.
func growthOfHashing(keys [][]byte, n int) float64 {
	moved := 0
	for _, k := range keys {
		if layouts.HashBucket(k, n) != layouts.HashBucket(k, 2*n) {
			moved++
		}
	}
	return float64(moved) / (float64(len(keys)) / 2)
}

// growthOfPrefixes: all rows that were there move, half of what there is then, if
// that makes partitions smaller at all.
func growthOfPrefixes(keys [][]byte, n int) float64 {
	before, after := map[string]bool{}, map[string]bool{}
	for _, k := range keys {
		before[string(k[:min(n, len(k))])], after[string(k[:min(n+1, len(k))])] = true, true
	}
	if len(after) < 2*len(before) {
		return -1
	}
	return 1
}

// growBalanced puts a set's keys into an embedded bucket that looks after itself, as
// listd's does, and returns rows copied per row put and the rows of the largest
// partition, when it has come to rest, or after a while.
func growBalanced(ctx context.Context, s set) (moved float64, largest int, err error) {
	dir, err := os.MkdirTemp("", "evenkeel-growth-")
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	st, err := pebblestore.Open(filepath.Join(dir, "store"), pebblestore.Options{NoSync: true})
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	counts, err := localcounter.Open(filepath.Join(dir, "counts"), localcounter.Options{})
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = counts.Close() }()
	recorder := counter.NewRecorder(counts, counter.RecorderOptions{})
	defer func() { _ = recorder.Close(context.WithoutCancel(ctx)) }()
	c, err := listing.NewEmbedded(st, listing.Options{Recorder: recorder})
	if err != nil {
		return 0, 0, err
	}
	defer c.Maps().Close()
	if err := c.CreateBucket(ctx, "growing"); err != nil {
		return 0, 0, err
	}
	const every = time.Second
	log := slog.New(slog.DiscardHandler)
	flags := rebalanceflags.Flags{MaxRows: growthLimit, Cool: 30 * time.Minute, Planner: auto.DefaultCutter}
	m := manager.New(st, c.Maps(), manager.Options{Logger: log})
	b := balancer.New(st, c.Maps(), m, counts, flags.Options(every, time.Second, log))
	working, stop := context.WithCancel(ctx)
	var work sync.WaitGroup
	work.Go(func() { _ = m.Run(working) })
	work.Go(func() { _ = b.Run(working) })
	defer func() { stop(); work.Wait() }()

	keys := s.make(rand.New(rand.NewPCG(1, 2)), growthRows)
	// Slowly enough for looks each second: what comes at once lies in one partition.
	const chunks = 40
	var made []layouts.Entry
	for some := range slices.Chunk(keys, growthRows/chunks) {
		for _, k := range some {
			made = append(made, layouts.Entry{Key: k})
			if err := c.Bucket("growing").Put(ctx, k, valueOf(k, 0)); err != nil {
				return 0, 0, err
			}
		}
		if err := pause(ctx, 3*every/4); err != nil {
			return 0, 0, err
		}
	}
	o := newOracle(made)
	even := layouts.NewEvenkeel(c, "growing").(cutter)
	for range 40 {
		cuts, err := even.Cuts(ctx)
		if err != nil {
			return 0, 0, err
		}
		from := 0
		largest = 0
		for _, cut := range append(cuts, nil) {
			to := len(o.keys)
			if cut != nil {
				to = o.at(cut)
			}
			largest, from = max(largest, to-from), to
		}
		if moves, _ := m.InFlight(); moves == 0 && b.Status().Waiting == 0 && largest <= growthLimit {
			break
		}
		if err := pause(ctx, every); err != nil {
			return 0, 0, err
		}
	}
	total := int64(0)
	for _, n := range b.Status().Moved {
		total += n
	}
	return float64(total) / growthRows, largest, nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
