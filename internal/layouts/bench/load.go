package bench

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/evenkeel/evenkeel/internal/layouts"
	"github.com/evenkeel/evenkeel/internal/layouts/cqltables"
	"github.com/evenkeel/evenkeel/internal/layouts/pglayout"
	"github.com/evenkeel/evenkeel/store"
)

const rangesOfMain = 20

// prefixBytes is the length of the prefix layout's prefixes: right for md5.
const prefixBytes = 2

// daysN is the N of time bucket x N: right for a busy account.
const daysN = 8

// nameBare is the line of the database without a layout.
const nameBare = "bare"

// nameMany is evenkeel with the same ranges filled, and many more that are not.
const (
	nameMany   = "evenkeel, 100000 ranges"
	manyRanges = 100_000
)

// cuts are evenkeel's for a set, as a balancer leaves them: the main set lies in
// twenty ranges, and all ranges are of one size.
func (x *runner) cuts(o *oracle) [][]byte {
	return layouts.EvenCuts(o.keys, (len(o.keys)*rangesOfMain+x.o.Keys-1)/x.o.Keys)
}

// arrivals is a layout in order of arrival, of keys that come in order: a page is
// the one from the place of its key on.
type arrivals struct {
	*layouts.Fixed
	oracle *oracle
	size   int
}

// List reads the entries that came after a key.
func (a arrivals) List(ctx context.Context, q layouts.Query) ([]layouts.Item, error) {
	entries, _, err := a.Arrivals(ctx, uint64(a.oracle.at(q.After)+1), q.Limit)
	items := make([]layouts.Item, len(entries))
	for i := range entries {
		items[i].Entry = entries[i]
	}
	return items, err
}

// Partition is where a key came to lie.
func (a arrivals) Partition(_ context.Context, key []byte) (string, error) {
	return fmt.Sprint(a.oracle.at(key) / a.size), nil
}

// wanted reports whether a layout was asked for.
func (x *runner) wanted(name string) bool {
	return len(x.o.Layouts) == 0 || slices.Contains(x.o.Layouts, name)
}

// of lists the layouts that a set is laid out in, evenkeel first.
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

// layout makes a layout of a set over a store.
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

// load writes a set in all its layouts.
func (x *runner) load(ctx context.Context, s set) error {
	entries := s.entries(x.o.Keys)
	l := &loaded{set: s, oracle: newOracle(entries), layouts: x.of(s)}
	x.loaded[s.name] = l
	cuts := x.cuts(l.oracle)
	names := append(slices.Clone(l.layouts), nameBare)
	for _, name := range names {
		begun := time.Now()
		var err error
		if name == nameBare {
			err = inChunks(entries, func(some []layouts.Entry) error { return x.w.bare().load(ctx, s.name, some) })
		} else {
			err = x.loadLayout(ctx, s, name, entries, cuts)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		took := time.Since(begun)
		x.say("loaded %d entries of %s into %s in %v (%.0f/s)", len(entries), s.name, name, took.Round(time.Millisecond), float64(len(entries))/took.Seconds())
	}
	return nil
}

func (x *runner) loadLayout(ctx context.Context, s set, name string, entries []layouts.Entry, cuts [][]byte) error {
	if name == layouts.NameEvenkeel || name == nameMany {
		c, err := x.w.client(x.w.rows())
		if err != nil {
			return err
		}
		if name == nameMany {
			cuts = slices.Clone(cuts)
			for i := len(cuts) + 1; i < manyRanges; i++ { // behind all keys
				cuts = append(cuts, fmt.Appendf(nil, "\xff\xff%08d", i))
			}
		}
		if err := c.CreateBucket(ctx, bucketName(s.name, name), cuts...); err != nil {
			return err
		}
	}
	l, err := x.layout(s, name, x.w.rows(), cuts)
	if err != nil {
		return err
	}
	if t, ok := l.(*cqltables.Layout); ok {
		first, err := layouts.SnowflakeOf(entries[0].Key)
		if err != nil {
			return err
		}
		last, err := layouts.SnowflakeOf(entries[len(entries)-1].Key)
		if err == nil {
			err = t.Create(ctx, first.Time(), last.Time())
		}
		if err != nil {
			return err
		}
	}
	return inChunks(entries, func(some []layouts.Entry) error { return l.Load(ctx, some) })
}

// inChunks hands out as many entries as fit in memory well.
func inChunks(entries []layouts.Entry, f func([]layouts.Entry) error) error {
	for some := range slices.Chunk(entries, 100_000) {
		if err := f(some); err != nil {
			return err
		}
	}
	return nil
}

// build makes the layouts of a set that is loaded, each twice.
func (x *runner) build(_ context.Context, l *loaded) (err error) {
	l.timed, l.counted, l.meters = map[string]layouts.Layout{}, map[string]layouts.Layout{}, map[string]*layouts.Meter{}
	cuts := x.cuts(l.oracle)
	for _, name := range l.layouts {
		m := &layouts.Metered{Store: x.w.rows()}
		l.meters[name] = &m.Meter
		if l.timed[name], err = x.layout(l.set, name, x.w.rows(), cuts); err != nil {
			return err
		}
		if l.counted[name], err = x.layout(l.set, name, m, cuts); err != nil {
			return err
		}
	}
	return nil
}
