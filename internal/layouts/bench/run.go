package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/internal/layouts"
	"github.com/evenkeel/evenkeel/internal/layouts/cqltables"
	"github.com/evenkeel/evenkeel/internal/layouts/pglayout"
	"github.com/evenkeel/evenkeel/internal/postgrestest"
	"github.com/evenkeel/evenkeel/store"
)

// Options say what to measure.
type Options struct {
	// Stores are "pebble", "cassandra", or both.
	Stores []string
	// Keys is the number of keys of the main set; others have a share of it.
	Keys int
	// Layouts and Sets, by name; empty for all.
	Layouts, Sets []string
	// Pages is how often a page is read; slow layouts read fewer.
	Pages int
	// Time bounds the whole run, the starts of servers included; what does not fit
	// in is left out, and the report says so.
	Time time.Duration
	// Cassandra is the address of a node to use; empty: one is started.
	Cassandra string
	// Progress is told what goes on.
	Progress io.Writer
}

// Stores that can be measured.
const (
	Pebble    = "pebble"
	Cassandra = "cassandra"
)

// SetNames lists the sets of keys.
func SetNames() (names []string) {
	for _, s := range sets() {
		names = append(names, s.name)
	}
	return names
}

// runner is one run over one store.
type runner struct {
	o        Options
	r        *Report
	deadline time.Time
	store    string
	w        world
	pg       *pgxpool.Pool      // nil: not measured beside this store
	loaded   map[string]*loaded // by set
}

// loaded is a set that lies in the store.
type loaded struct {
	set
	oracle  *oracle
	layouts []string
	timed   map[string]layouts.Layout
	// counted are the same over a store that counts; meters are its counters.
	counted map[string]layouts.Layout
	meters  map[string]*layouts.Meter
}

// Run measures.
func Run(ctx context.Context, o Options) (*Report, error) {
	begun := time.Now()
	r := newReport(o)
	for i, name := range o.Stores {
		// What is left is shared by the stores that are left.
		left := time.Until(begun.Add(o.Time)) / time.Duration(len(o.Stores)-i)
		x := &runner{o: o, r: r, store: name, deadline: time.Now().Add(left), loaded: map[string]*loaded{}}
		if err := x.run(ctx); err != nil {
			return r, fmt.Errorf("%s: %w", name, err)
		}
	}
	r.Took = time.Since(begun).Round(time.Second).String()
	return r, nil
}

// startPostgres starts a server, which end ends. Where there is none to start, the
// report says so.
func (x *runner) startPostgres(ctx context.Context) (end func(), err error) {
	s, err := postgrestest.Start(ctx, postgrestest.Options{Settings: []string{"shared_buffers=256MB", "max_wal_size=4GB", "max_connections=200"}})
	if errors.Is(err, postgrestest.ErrMissing) {
		x.r.leftOut("%s: postgres: %v", x.store, err)
		return func() {}, nil
	}
	if err != nil {
		return nil, err
	}
	x.r.Versions["PostgreSQL"] = s.Version
	config, err := pgxpool.ParseConfig(s.URL)
	if err == nil {
		config.MaxConns = 64 // as many as put at once
		x.pg, err = pgxpool.NewWithConfig(ctx, config)
	}
	if err == nil {
		err = pglayout.CreateTable(ctx, x.pg)
	}
	end = func() {
		if x.pg != nil {
			x.pg.Close()
		}
		_ = s.Close() // its folder is a temporary one
	}
	if err != nil {
		end()
		return nil, err
	}
	return end, nil
}

func (x *runner) say(format string, args ...any) {
	if x.o.Progress != nil {
		fmt.Fprintf(x.o.Progress, "%s %s: %s\n", time.Now().Format(time.TimeOnly), x.store, fmt.Sprintf(format, args...))
	}
}

func (x *runner) run(ctx context.Context) (err error) {
	x.say("opening")
	switch x.store {
	case Pebble:
		x.w, err = openEmbedded(true)
	case Cassandra:
		x.w, err = openCassandra(ctx, x.o.Cassandra)
	default:
		err = store.Errorf(store.InvalidArgument, "there is no store %q: %s or %s", x.store, Pebble, Cassandra)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, x.w.close()) }()
	// A server is to be compared with servers, unless somebody wants to know.
	if x.store == Cassandra && x.wanted(layouts.NamePostgres) || slices.Contains(x.o.Layouts, layouts.NamePostgres) {
		end, err := x.startPostgres(ctx)
		if err != nil {
			return err
		}
		defer end()
	}
	for _, s := range sets() {
		if len(x.o.Sets) > 0 && !slices.Contains(x.o.Sets, s.name) {
			continue
		}
		if err := x.load(ctx, s); err != nil {
			return fmt.Errorf("loading %s: %w", s.name, err)
		}
	}
	x.say("bringing it into files")
	if err := x.w.settle(ctx); err != nil {
		return err
	}
	if x.pg != nil {
		if err := pglayout.Settle(ctx, x.pg); err != nil {
			return err
		}
	}
	for _, s := range sets() {
		l := x.loaded[s.name]
		if l == nil {
			continue
		}
		if err := x.build(ctx, l); err != nil {
			return err
		}
		if err := x.measure(ctx, l); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return x.growth(ctx)
}

// cuts are evenkeel's for a set, as a balancer leaves them: the main set lies in
// twenty ranges, and all ranges are of one size.
func (x *runner) cuts(o *oracle) [][]byte {
	return layouts.EvenCuts(o.keys, (len(o.keys)*rangesOfMain+x.o.Keys-1)/x.o.Keys)
}

const rangesOfMain = 20

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

// prefixBytes is the length of the prefix layout's prefixes: right for md5.
const prefixBytes = 2

// daysN is the N of time bucket x N: right for a busy account.
const daysN = 8

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

// nameBare is the line of the database without a layout.
const nameBare = "bare"

// nameMany is evenkeel with the same ranges filled, and many more that are not.
const (
	nameMany   = "evenkeel, 100000 ranges"
	manyRanges = 100_000
)

// nameNaive is hash buckets that are merged naively.
const nameNaive = layouts.NameHash + ", naive merge"

// turns measures something of a set and adds it to the report.
func (x *runner) turns(ctx context.Context, l *loaded, measure string, of int, ways []way, rounds, warm int) error {
	share := time.Until(x.deadline) / 8 // what comes later must fit in, too
	if share < time.Second {
		x.r.leftOut("%s, %s: %s: the time was up", x.store, l.name, measure)
		return nil
	}
	x.say("%s: %s", l.name, measure)
	lines, err := turns(ctx, ways, rounds, warm, share)
	if err != nil {
		return fmt.Errorf("%s: %w", measure, err)
	}
	for _, line := range lines {
		line.Store, line.Set, line.Measure, line.Of = x.store, l.name, measure, of
		x.r.Lines = append(x.r.Lines, line)
	}
	return nil
}

// Measures.
const (
	firstPage   = "first page of 1000"
	deepPage    = "deep page of 1000"
	prefixPage  = "page under a prefix"
	foldedPage  = "folders and files of a folder"
	folderPage  = "1000 common prefixes"
	newestPage  = "newest 1000"
	newerPage   = "1000 before some moment"
	fullScan    = "full scan"
	parallelAll = "full scan by 4 readers"
	putsAlone   = "puts, 1 worker"
	putsAtOnce  = "puts, 64 workers"
	putsBatch   = "batch of 1280 puts"
)

const pageRows = 1000

// warmRounds let servers compile what is hot.
func (x *runner) warmRounds() int {
	if x.store == Cassandra {
		return min(100, x.o.Pages)
	}
	return min(20, x.o.Pages)
}

func (x *runner) measure(ctx context.Context, l *loaded) error {
	if err := x.sizes(ctx, l); err != nil {
		return err
	}
	pages := x.o.Pages
	switch {
	case l.feed:
		return errors.Join(
			x.pages(ctx, l, newestPage, pages, func(*rand.Rand) layouts.Query { return layouts.Query{Reverse: true, Limit: pageRows} }),
			x.pages(ctx, l, newerPage, pages, func(r *rand.Rand) layouts.Query {
				return layouts.Query{Reverse: true, Limit: pageRows, After: l.oracle.keys[r.IntN(len(l.oracle.keys))]}
			}),
		)
	case l.name == setPaths || l.name == setTenth:
		return x.pages(ctx, l, folderPage, max(pages/10, 3), func(*rand.Rand) layouts.Query {
			return layouts.Query{Delimiter: []byte("/"), Limit: pageRows}
		})
	case l.name != setReal:
		return x.pages(ctx, l, deepPage, max(pages/4, 3), x.deep(l))
	}
	folder := func(r *rand.Rand) []byte { // of a random key
		key := l.oracle.keys[r.IntN(len(l.oracle.keys))]
		return key[:bytes.LastIndexByte(key, '/')+1]
	}
	if err := x.pages(ctx, l, firstPage, pages, func(*rand.Rand) layouts.Query { return layouts.Query{Limit: pageRows} }); err != nil {
		return err
	}
	if err := x.pages(ctx, l, deepPage, pages, x.deep(l)); err != nil {
		return err
	}
	if err := x.pages(ctx, l, prefixPage, pages, func(r *rand.Rand) layouts.Query { return layouts.Query{Prefix: folder(r), Limit: pageRows} }); err != nil {
		return err
	}
	if err := x.pages(ctx, l, foldedPage, max(pages/4, 3), func(r *rand.Rand) layouts.Query {
		parts := strings.SplitAfter(string(folder(r)), "/")
		return layouts.Query{Prefix: []byte(strings.Join(parts[:r.IntN(len(parts))], "")), Delimiter: []byte("/"), Limit: pageRows}
	}); err != nil {
		return err
	}
	if err := x.scans(ctx, l); err != nil {
		return err
	}
	return x.puts(ctx, l)
}

// deep picks a key from which a whole page follows.
func (x *runner) deep(l *loaded) func(r *rand.Rand) layouts.Query {
	return func(r *rand.Rand) layouts.Query {
		return layouts.Query{After: l.oracle.keys[r.IntN(max(len(l.oracle.keys)-pageRows, 1))], Limit: pageRows}
	}
}

// slow says in how many rounds a layout takes part that takes long for a measure.
func slow(layout, measure string, rounds int) int {
	switch {
	case layout == nameNaive:
		return min(20, rounds)
	case layout == layouts.NameHash && measure == folderPage:
		return min(3, rounds)
	case layout == layouts.NameHash && measure == foldedPage:
		return min(10, rounds)
	}
	return 0
}

// pages measures pages of one kind.
func (x *runner) pages(ctx context.Context, l *loaded, measure string, rounds int, query func(*rand.Rand) layouts.Query) error {
	of := func(round int) layouts.Query { return query(rand.New(rand.NewPCG(7, uint64(round)))) }
	var ways []way
	add := func(name string, timed, counted layouts.Layout, meter *layouts.Meter) {
		ways = append(ways, way{
			layout: name, rounds: slow(name, measure, rounds),
			do: func(ctx context.Context, round int) (func() error, error) {
				q := of(round)
				items, err := timed.List(ctx, q)
				return func() error { return l.oracle.check(q, items) }, err
			},
			counted: func(ctx context.Context, round int) (layouts.Work, error) {
				before := meter.Work()
				_, err := counted.List(ctx, of(round))
				return meter.Work().Since(before), err
			},
		})
	}
	for _, name := range l.layouts {
		if name == nameMany && measure != firstPage && measure != deepPage {
			continue
		}
		add(name, l.timed[name], l.counted[name], l.meters[name])
		if name == layouts.NameHash && (measure == firstPage || measure == deepPage) && l.name == setReal {
			o := layouts.HashOptions{Naive: true}
			m := &layouts.Metered{Store: x.w.rows()}
			id := bucketOf(l.name, name)
			add(nameNaive, layouts.NewHash(x.w.rows(), id, o), layouts.NewHash(m, id, o), &m.Meter)
		}
	}
	if q := of(0); !q.Reverse && len(q.Delimiter) == 0 && len(q.Prefix) == 0 {
		ways = append(ways, way{layout: nameBare, do: func(ctx context.Context, round int) (func() error, error) {
			q := of(round)
			rows, err := x.w.bare().page(ctx, l.name, q.After, nil, q.Limit)
			return func() error {
				items := make([]layouts.Item, len(rows))
				for i := range rows {
					items[i].Entry = rows[i]
				}
				return l.oracle.check(q, items)
			}, err
		}})
	}
	return x.turns(ctx, l, measure, 0, ways, rounds, x.warmRounds())
}

// scans measures reading everything, by one reader and by four.
func (x *runner) scans(ctx context.Context, l *loaded) error {
	const readers = 4
	for _, n := range []int{1, readers} {
		measure := fullScan
		if n > 1 {
			measure = parallelAll
		}
		var ways []way
		add := func(name string, scan func(ctx context.Context, each func([]layouts.Entry) error) error) {
			ways = append(ways, way{layout: name, do: func(ctx context.Context, _ int) (func() error, error) {
				var mu sync.Mutex
				found := make([]layouts.Entry, 0, len(l.oracle.keys))
				err := scan(ctx, func(some []layouts.Entry) error {
					mu.Lock()
					defer mu.Unlock()
					found = append(found, some...)
					return nil
				})
				return func() error { return l.oracle.complete(found) }, err
			}})
		}
		for _, name := range l.layouts {
			if name == nameMany {
				continue
			}
			add(name, func(ctx context.Context, each func([]layouts.Entry) error) error {
				return l.timed[name].Scan(ctx, n, each)
			})
		}
		add(nameBare, func(ctx context.Context, each func([]layouts.Entry) error) error { return x.bareScan(ctx, l, n, each) })
		if err := x.turns(ctx, l, measure, len(l.oracle.keys), ways, 5, 1); err != nil {
			return err
		}
	}
	return nil
}

// bareScan reads slices of the bare partition.
func (x *runner) bareScan(ctx context.Context, l *loaded, readers int, each func([]layouts.Entry) error) error {
	cuts := layouts.EvenCuts(l.oracle.keys, readers)
	g, ctx := errgroup.WithContext(ctx)
	for i := range len(cuts) + 1 {
		var after, end []byte
		if i > 0 {
			after = l.oracle.keys[l.oracle.at(cuts[i-1])-1]
		}
		if i < len(cuts) {
			end = cuts[i]
		}
		g.Go(func() error {
			for {
				page, err := x.w.bare().page(ctx, l.name, after, end, layouts.ScanPage)
				if err != nil {
					return err
				}
				if err := each(page); err != nil || len(page) < layouts.ScanPage {
					return err
				}
				after = page[len(page)-1].Key
			}
		})
	}
	return g.Wait()
}

// puts measures puts into buckets of their own, and reads afterwards what was put.
func (x *runner) puts(ctx context.Context, l *loaded) (err error) {
	w := x.w
	if x.store == Pebble { // what is put one by one has to be synced
		e, err := openEmbedded(false)
		if err != nil {
			return err
		}
		w = e
		defer func() { err = errors.Join(err, e.close()) }()
		was := x.w
		x.w = e
		defer func() { x.w = was }()
	}
	s := set{name: "puts"}
	cuts := x.cuts(l.oracle)
	type target struct {
		name string
		l    layouts.Layout // nil: bare
		next *atomic.Int64
	}
	var targets []target
	for _, name := range l.layouts {
		if name == nameMany {
			continue
		}
		if name == layouts.NameEvenkeel {
			c, err := w.client(w.rows())
			if err == nil {
				err = c.CreateBucket(ctx, bucketName(s.name, name), cuts...)
			}
			if err != nil {
				return err
			}
		}
		made, err := x.layout(s, name, w.rows(), cuts)
		if err != nil {
			return err
		}
		targets = append(targets, target{name, made, new(atomic.Int64)})
	}
	targets = append(targets, target{nameBare, nil, new(atomic.Int64)})
	// The i-th put of a layout: keys of the set, in no order, each with a number.
	perm := rand.New(rand.NewPCG(3, 4)).Perm(len(l.oracle.keys))
	key := func(i int64) []byte {
		k := l.oracle.keys[perm[int(i)%len(perm)]]
		return fmt.Appendf(bytes.Clone(k), ".%d", i)
	}
	for _, c := range []struct {
		measure       string
		workers, each int
		batch         bool
		rounds        int
	}{{putsAlone, 1, 20, false, 40}, {putsAtOnce, 64, 5, false, 40}, {putsBatch, 1, 1280, true, 20}} {
		var ways []way
		for _, t := range targets {
			if c.batch && t.l == nil {
				continue
			}
			ways = append(ways, way{layout: t.name, do: func(ctx context.Context, _ int) (func() error, error) {
				if c.batch {
					var entries []layouts.Entry
					for range c.each {
						k := key(t.next.Add(1))
						entries = append(entries, layouts.Entry{Key: k, Value: valueOf(k, 0)})
					}
					return nil, t.l.Load(ctx, entries)
				}
				g, ctx := errgroup.WithContext(ctx)
				for range c.workers {
					g.Go(func() error {
						for range c.each {
							k := key(t.next.Add(1))
							var err error
							if v := valueOf(k, 0); t.l == nil {
								err = w.bare().put(ctx, s.name, k, v)
							} else {
								err = t.l.Put(ctx, k, v)
							}
							if err != nil {
								return err
							}
						}
						return nil
					})
				}
				return nil, g.Wait()
			}})
		}
		if err := x.turns(ctx, l, c.measure, c.workers*c.each, ways, c.rounds, max(x.warmRounds()/10, 2)); err != nil {
			return err
		}
	}
	for _, t := range targets {
		if t.l == nil {
			continue
		}
		var put, found []layouts.Entry
		for i := range t.next.Load() {
			k := key(i + 1)
			put = append(put, layouts.Entry{Key: k, Value: valueOf(k, 0)})
		}
		var mu sync.Mutex
		err := t.l.Scan(ctx, 4, func(some []layouts.Entry) error {
			mu.Lock()
			defer mu.Unlock()
			found = append(found, some...)
			return nil
		})
		if err == nil {
			err = newOracle(put).complete(found)
		}
		if err != nil {
			return fmt.Errorf("what was put into %s: %w", t.name, err)
		}
	}
	return nil
}
