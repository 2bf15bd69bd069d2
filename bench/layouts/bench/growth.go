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

	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/bench/layouts"
	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/counter/localcounter"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/rebalance/balancer"
	"github.com/evenkeel/evenkeel/internal/rebalance/scheduler"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/pebblestore"
)

// Growth is the number of rows that a layout has to move when its set of keys doubles and no partition may become
// larger than before.
type Growth struct {
	Set    string `json:"set"`
	Layout string `json:"layout"`
	// Moved is the number of moved rows per added row. A value below 0 means that moving rows does not help.
	Moved float64 `json:"rows_moved_per_row_added"`
	How   string  `json:"how"`
}

func (g *Growth) moved() string {
	if g.Moved < 0 {
		return "cannot"
	}
	return fmt.Sprintf("%.2f", g.Moved)
}

// growthRows is the largest number of rows that the measurement of growth puts into evenkeel, and leastGrowthRows the
// smallest. Between the two limits the number is a fifth of the main set's keys. growthLimit is the largest number of
// rows that a partition of evenkeel may have.
const growthRows, leastGrowthRows, growthLimit = 40_000, 10_000, 4_000

// growthSets returns the sets of keys for which growth is measured: random keys, keys in ascending order, and keys
// ordered by time.
func growthSets() (some []set) {
	for _, s := range sets() {
		if s.name == setMD5 || s.name == setAppend || s.feed {
			some = append(some, s)
		}
	}
	return some
}

// growth measures, for some sets of keys, how many rows each layout moves when the set grows. Rows of evenkeel are
// really moved, by its balancer in an embedded store. For other layouts the moved rows are computed from the keys.
// growth measures once, on the first store of the run.
func (x *runner) growth(ctx context.Context) error {
	if len(x.r.Growth) > 0 {
		return nil
	}
	var some []set
	for _, s := range growthSets() {
		if x.wantsSet(s.name) {
			some = append(some, s)
		}
	}
	if len(some) > 0 && time.Until(x.deadline) < 2*time.Minute {
		x.r.leftOut("what growth costs: the time was up")
		return nil
	}
	rows := min(growthRows, max(x.o.Keys/5, leastGrowthRows))
	x.say("growth: %d rows each", rows)
	// They mostly wait, for looks at what has grown: all at once.
	balanced := make([]Growth, len(some))
	g, gctx := errgroup.WithContext(ctx)
	for i, s := range some {
		g.Go(func() error {
			begun := time.Now()
			moved, largest, err := growBalanced(gctx, s, rows)
			if err != nil {
				return fmt.Errorf("growing %s: %w", s.name, err)
			}
			balanced[i] = Growth{s.name, layouts.NameEvenkeel, moved,
				fmt.Sprintf("measured: from nothing to %d rows, at rest after %.0f s, max_rows %d, by its own balancer; the largest partition has %d in the end", rows, time.Since(begun).Seconds(), growthLimit, largest)}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for i, s := range some {
		counted, err := growthCounted(ctx, s, s.entries(x.o.Keys))
		if err != nil {
			return err
		}
		x.r.Growth = append(append(x.r.Growth, balanced[i]), counted...)
	}
	return nil
}

// growthCounted returns how many rows each layout but evenkeel moves when the set s grows, computed from the set's
// entries in the order in which they are written.
func growthCounted(ctx context.Context, s set, entries []layouts.Entry) (out []Growth, err error) {
	add := func(layout string, moved float64, how string) { out = append(out, Growth{s.name, layout, moved, how}) }
	add(layouts.NameWide, -1, "one partition grows")
	if s.feed {
		for _, c := range []struct{ name, period, also string }{
			{layouts.NameDays, "day", ""},
			{layouts.NameDaysN, "day",
				fmt.Sprintf(" in each of %d parts (twice as many move half the rows of the days that have them)",
					daysN)},
			{layouts.NameSlices, "month", ""},
		} {
			half, all, err := largestInTime(ctx, c.name, entries)
			if err != nil {
				return nil, err
			}
			add(c.name, 0, fmt.Sprintf("a new %s begins a new partition%s; nothing bounds one: the largest has %d rows when half of the set is there, %d in the end", c.period, c.also, half, all))
		}
	} else {
		keys := newOracle(entries).keys
		add(layouts.NameHash, growthOfHashing(keys, 256),
			"256 buckets become 512, by jump hashing; a reader must know which rows have moved")
		prefix := growthOfPrefixes(keys, prefixBytes)
		how := "another byte of prefix: every row moves to another partition"
		if prefix < 0 {
			how = "another byte of prefix parts nothing: the keys begin alike"
		}
		add(layouts.NamePrefix, prefix, how)
		add(layouts.NameFixed, 0, "the next partition begins; no key is ever found again without a search")
	}
	add(layouts.NamePostgres, 0, "the b-tree splits its own pages, on one machine")
	return out, nil
}

// largestInTime returns the number of rows of a feed's largest partition, when half of the entries are written and when
// all are. layout is the name of a layout by days or months. The id of a row alone determines the row's partition, so
// no row ever moves.
func largestInTime(ctx context.Context, layout string, entries []layouts.Entry) (half, all int, err error) {
	place := func(key []byte) (string, error) {
		id, err := layouts.SnowflakeOf(key)
		return id.Time().Format("2006-01"), err // as cqltables names its tables
	}
	switch layout {
	case layouts.NameDays:
		place = func(key []byte) (string, error) { return layouts.NewDays(nil, store.BucketID{1}).Partition(ctx, key) }
	case layouts.NameDaysN:
		place = func(key []byte) (string, error) {
			return layouts.NewDaysN(nil, store.BucketID{1}, daysN).Partition(ctx, key)
		}
	}
	rows := map[string]int{}
	for i, e := range entries {
		p, err := place(e.Key)
		if err != nil {
			return 0, 0, err
		}
		rows[p]++
		if all = max(all, rows[p]); i < len(entries)/2 {
			half = all
		}
	}
	return half, all, nil
}

// growthOfHashing returns the number of moved rows per added row when the number of hash buckets doubles from n to 2n,
// and half of the keys are added.
func growthOfHashing(keys [][]byte, n int) float64 {
	moved := 0
	for _, k := range keys {
		if layouts.HashBucket(k, n) != layouts.HashBucket(k, 2*n) {
			moved++
		}
	}
	return float64(moved) / (float64(len(keys)) / 2)
}

// growthOfPrefixes returns the number of moved rows per added row when partitions are by n+1 instead of n bytes of the
// key. The result is 1, as all old rows move, and they are half of all rows. The result is -1 if the longer prefixes
// would not make at least twice as many partitions.
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

// growBalanced puts total keys of the set s into an embedded bucket that a balancer splits as it grows, as the server
// listd does. moved is the number of copied rows per put row. largest is the number of rows of the largest partition at
// the end, which is when no range moves any more, or 40 s after the last put.
func growBalanced(ctx context.Context, s set, total int) (moved float64, largest int, err error) {
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
	c, err := listing.New(st, listing.Options{Recorder: recorder})
	if err != nil {
		return 0, 0, err
	}
	defer mapclient.Of(c).Close()
	if err := c.CreateBucket(ctx, "growing"); err != nil {
		return 0, 0, err
	}
	const every = time.Second
	log := slog.New(slog.DiscardHandler)
	m := scheduler.New(st, mapclient.Of(c), scheduler.Options{Logger: log})
	b := balancer.New(st, mapclient.Of(c), m, counts, balancer.For(growthLimit, 0, every, time.Second))
	working, stop := context.WithCancel(ctx)
	var work sync.WaitGroup
	work.Go(func() { _ = m.Run(working) })
	work.Go(func() { _ = b.Run(working) })
	defer func() { stop(); work.Wait() }()

	keys := s.make(rand.New(rand.NewPCG(1, 2)), total)
	// Slowly enough for looks each second: what comes at once lies in one partition.
	const chunk = 1000
	var made []layouts.Entry
	for some := range slices.Chunk(keys, chunk) {
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
	rows := int64(0)
	for _, n := range b.Status().Moved {
		rows += n
	}
	return float64(rows) / float64(total), largest, nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
