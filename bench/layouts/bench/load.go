package bench

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/bench/layouts"
	"github.com/evenkeel/evenkeel/bench/layouts/cqltables"
	"github.com/evenkeel/evenkeel/bench/layouts/pglayout"
	"github.com/evenkeel/evenkeel/store"
)

const rangesOfMain = 20

// prefixBytes is the number of bytes of a key by which the layout "prefix" divides keys into partitions. 2 bytes suit
// md5 sums.
const prefixBytes = 2

// daysN is the number of partitions per day in the layout "daysxN", which divides each day's rows among several
// partitions. 8 partitions suit a busy account.
const daysN = 8

// nameBare is the name, in the report, of the database used by hand, without any layout.
const nameBare = "bare"

// nameMany is the name, in the report, of evenkeel with a map of 100,000 ranges, of which only as many have rows as in
// the usual evenkeel bucket.
const (
	nameMany   = "evenkeel, 100000 ranges"
	manyRanges = 100_000
)

// cuts returns the keys at which evenkeel's bucket for a set is cut into ranges of equal size, as a balancer leaves
// them. The main set has twenty ranges, and all sets have ranges of the same size.
func (x *runner) cuts(o *oracle) [][]byte {
	return layouts.EvenCuts(o.keys, (len(o.keys)*rangesOfMain+x.o.Keys-1)/x.o.Keys)
}

// arrivals is the layout "fixed", which keeps rows in the order of arrival, filled with keys that arrive in ascending
// order. So a listing after a key can begin at the key's position.
type arrivals struct {
	*layouts.Fixed
	oracle *oracle
	size   int
}

// List returns the entries that arrived after the key q.After, at most q.Limit.
func (a arrivals) List(ctx context.Context, q layouts.Query) ([]layouts.Item, error) {
	entries, _, err := a.Arrivals(ctx, uint64(a.oracle.at(q.After)+1), q.Limit)
	items := make([]layouts.Item, len(entries))
	for i := range entries {
		items[i].Entry = entries[i]
	}
	return items, err
}

// Partition returns the number of the partition in which a key is, computed from the key's position in the set.
func (a arrivals) Partition(_ context.Context, key []byte) (string, error) {
	return fmt.Sprint(a.oracle.at(key) / a.size), nil
}

// wanted reports whether the layout called name is measured. If the options name no layouts, all layouts are.
func (x *runner) wanted(name string) bool {
	return len(x.o.Layouts) == 0 || slices.Contains(x.o.Layouts, name)
}

// of returns the names of the layouts in which the set s is measured, evenkeel first.
func (x *runner) of(s set) (names []string) {
	all := []string{layouts.NameEvenkeel, layouts.NameWide, layouts.NameHash, layouts.NamePrefix}
	if s.feed {
		all = []string{layouts.NameEvenkeel, layouts.NameWide, layouts.NameDays, layouts.NameDaysN}
		if x.store == Cassandra {
			all = append(all, layouts.NameSlices)
		}
	}
	if s.name == setAppend {
		all = append(all, layouts.NameFixed)
	}
	if x.pg != nil {
		all = append(all, layouts.NamePostgres)
	}
	if s.name == setReal {
		all = append(all, nameMany)
	}
	for _, name := range all {
		if x.wanted(name) {
			names = append(names, name)
		}
	}
	return names
}

// layout returns the layout called name for the set s, with its rows in the store rows. If rows counts its reads, the
// layout counts its reads, too. cuts are the cuts of a layout that several readers can share.
func (x *runner) layout(s set, name string, rows store.Store, cuts [][]byte) (layouts.Layout, error) {
	var meter *layouts.Meter
	if m, counts := rows.(*layouts.Metered); counts {
		meter = &m.Meter
	}
	id := bucketOf(s.name, name)
	switch name {
	case layouts.NameEvenkeel, nameMany:
		c, err := x.w.client(rows)
		return layouts.NewEvenkeel(c, bucketName(s.name, name)), err
	case layouts.NameWide:
		return layouts.NewWide(rows, id, cuts...), nil
	case layouts.NameHash:
		return layouts.NewHash(rows, id, layouts.HashOptions{}), nil
	case layouts.NamePrefix:
		return layouts.NewPrefix(rows, id, prefixBytes), nil
	case layouts.NameDays:
		return layouts.NewDays(rows, id), nil
	case layouts.NameDaysN:
		return layouts.NewDaysN(rows, id, daysN), nil
	case layouts.NameFixed:
		size := max(x.o.Keys/rangesOfMain, 1)
		a := arrivals{Fixed: layouts.NewFixed(rows, id, size), size: size}
		if l := x.loaded[s.name]; l != nil {
			a.oracle = l.oracle
		}
		return a, nil
	case layouts.NameSlices:
		w, ok := x.w.(*onCassandra)
		if !ok {
			return nil, fmt.Errorf("tables need Cassandra")
		}
		return cqltables.Open(context.Background(), w.raw, w.o.Keyspace, s.name, meter)
	case layouts.NamePostgres:
		return pglayout.New(x.pg, s.name, meter, cuts...), nil
	}
	return nil, fmt.Errorf("no layout %q", name)
}

func bucketName(set, layout string) string {
	if layout == nameMany {
		set += "-many"
	}
	return "layouts-" + set
}

// loadChunk is the number of entries that are loaded into one layout before the next layout's turn. Short turns spread
// the work that a server does by itself, such as writing files, over all layouts.
const loadChunk = 20_000

// prepare creates what the layout called name needs before its first row, such as a bucket or tables, and returns the
// layout. entries are the set's entries, and cuts divide the bucket of evenkeel into ranges.
func (x *runner) prepare(
	ctx context.Context, s set, name string, entries []layouts.Entry, cuts [][]byte,
) (layouts.Layout, error) {
	if name == layouts.NameEvenkeel || name == nameMany {
		c, err := x.w.client(x.w.rows(name))
		if err != nil {
			return nil, err
		}
		if name == nameMany {
			cuts = slices.Clone(cuts)
			for i := len(cuts) + 1; i < manyRanges; i++ { // behind all keys
				cuts = append(cuts, fmt.Appendf(nil, "\xff\xff%08d", i))
			}
		}
		if err := c.CreateBucket(ctx, bucketName(s.name, name), cuts...); err != nil {
			return nil, err
		}
	}
	l, err := x.layout(s, name, x.w.rows(name), cuts)
	if err != nil {
		return nil, err
	}
	if t, ok := l.(*cqltables.Layout); ok {
		first, err := layouts.SnowflakeOf(entries[0].Key)
		if err != nil {
			return nil, err
		}
		last, err := layouts.SnowflakeOf(entries[len(entries)-1].Key)
		if err == nil {
			err = t.Create(ctx, first.Time(), last.Time())
		}
		if err != nil {
			return nil, err
		}
	}
	return l, nil
}

// load writes all entries of the set s into each layout of the set, in turns of loadChunk entries.
func (x *runner) load(ctx context.Context, s set) error {
	entries := s.entries(x.o.Keys)
	l := &loaded{set: s, oracle: newOracle(entries), layouts: x.of(s)}
	x.loaded[s.name] = l
	cuts := x.cuts(l.oracle)
	type target struct {
		name string
		load func(ctx context.Context, some []layouts.Entry) error
		took time.Duration
	}
	var targets []*target
	for _, name := range l.layouts {
		made, err := x.prepare(ctx, s, name, entries, cuts)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		targets = append(targets, &target{name: name, load: made.Load})
	}
	targets = append(targets, &target{
		name: nameBare, load: func(ctx context.Context, some []layouts.Entry) error {
			return x.w.bare().load(ctx, s.name, some)
		},
	})
	for some := range slices.Chunk(entries, loadChunk) {
		for _, t := range targets {
			begun := time.Now()
			if err := t.load(ctx, some); err != nil {
				return fmt.Errorf("%s: %w", t.name, err)
			}
			t.took += time.Since(begun)
		}
	}
	for _, t := range targets {
		x.say("loaded %d entries of %s into %s in %v (%.0f/s)", len(entries), s.name, t.name,
			t.took.Round(time.Millisecond), float64(len(entries))/t.took.Seconds())
	}
	return nil
}

// overwriters is the number of workers that write a set of rows whose keys are overwritten many times. overwrittenParts
// is the number of parts in which the set is written. Each part goes to files of its own.
const overwriters, overwrittenParts = 64, 3

// overwrite writes the set s, whose keys are overwritten many times, by single puts into each layout. Puts of the same
// key keep their order. After each of the three parts, the written rows are flushed into files.
func (x *runner) overwrite(ctx context.Context, s set) error {
	entries := s.entries(x.o.Keys)
	l := &loaded{set: s, oracle: newOracle(entries), layouts: x.of(s)}
	x.loaded[s.name] = l
	cuts := x.cuts(l.oracle)
	synced := x.pg // syncs would take most of the time, and are not measured
	x.pg = x.unsynced
	defer func() { x.pg = synced }()
	for _, name := range l.layouts {
		if _, err := x.prepare(ctx, s, name, entries, cuts); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	took := map[string]time.Duration{}
	names := append(slices.Clone(l.layouts), nameBare)
	for part := range overwrittenParts {
		some := entries[part*len(entries)/overwrittenParts : (part+1)*len(entries)/overwrittenParts]
		for _, name := range names {
			begun := time.Now()
			put := func(ctx context.Context, key, value []byte) error { return x.w.bare().put(ctx, s.name, key, value) }
			if name != nameBare {
				made, err := x.layout(s, name, x.w.rows(name), cuts)
				if err != nil {
					return err
				}
				put = made.Put
			}
			if err := inOrderOfKeys(ctx, some, overwriters, put); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			took[name] += time.Since(begun)
		}
		if err := x.w.spill(ctx); err != nil {
			return err
		}
	}
	for _, name := range names {
		x.say("wrote %d entries of %s over each other in %s in %v (%.0f/s)", len(entries), s.name, name,
			took[name].Round(time.Millisecond), float64(len(entries))/took[name].Seconds())
	}
	return nil
}

// inOrderOfKeys calls put for each entry, by several workers at once. One worker puts all entries of the same key, in
// order, so that the last entry of the key wins.
func inOrderOfKeys(
	ctx context.Context, entries []layouts.Entry, workers int, put func(ctx context.Context, key, value []byte) error,
) error {
	by := make([][]layouts.Entry, workers)
	for _, e := range entries {
		w := layouts.HashBucket(e.Key, workers)
		by[w] = append(by[w], e)
	}
	g, ctx := errgroup.WithContext(ctx)
	for _, some := range by {
		g.Go(func() error {
			for _, e := range some {
				if err := put(ctx, e.Key, e.Value); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// build opens the layouts of a loaded set, each twice: for measuring times, and over a store that counts reads.
func (x *runner) build(_ context.Context, l *loaded) (err error) {
	l.timed, l.counted, l.meters = map[string]layouts.Layout{}, map[string]layouts.Layout{}, map[string]*layouts.Meter{}
	cuts := x.cuts(l.oracle)
	for _, name := range l.layouts {
		m := &layouts.Metered{Store: x.w.rows(name)}
		l.meters[name] = &m.Meter
		if l.timed[name], err = x.layout(l.set, name, x.w.rows(name), cuts); err != nil {
			return err
		}
		if l.counted[name], err = x.layout(l.set, name, m, cuts); err != nil {
			return err
		}
	}
	return nil
}
