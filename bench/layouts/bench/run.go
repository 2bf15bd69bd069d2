package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/evenkeel/evenkeel/bench/layouts"
	"github.com/evenkeel/evenkeel/bench/layouts/pglayout"
	"github.com/evenkeel/evenkeel/bench/postgrestest"
	"github.com/evenkeel/evenkeel/store"
)

// Options say what a run measures, on which stores, and how long it may take.
type Options struct {
	// Stores lists the stores to measure on: "pebble", "cassandra", or both.
	Stores []string
	// Keys is the number of keys of the main set. The number of keys of each other set is in proportion to Keys.
	Keys int
	// Layouts and Sets are the names of the layouts and the sets of keys to measure. An empty list stands for all.
	Layouts, Sets []string
	// Pages is how many times each kind of page is read. Slow layouts read fewer pages.
	Pages int
	// Time is the time limit of the whole run, including the starts of servers. Measurements for which no time is left
	// are not made, and the report names them.
	Time time.Duration
	// Cassandra is the address of the Cassandra node to use. If Cassandra is empty, the run starts a node.
	Cassandra string
	// Progress gets a line of text for each step of the run. Progress may be nil.
	Progress io.Writer
}

// Names of the stores on which layouts can be measured.
const (
	Pebble    = "pebble"
	Cassandra = "cassandra"
)

// SetNames returns the names of all sets of keys.
func SetNames() (names []string) {
	for _, s := range sets() {
		names = append(names, s.name)
	}
	return names
}

// runner measures the layouts on one store, and adds the results to the report r.
type runner struct {
	o        Options
	r        *Report
	deadline time.Time
	store    string
	w        world
	pg       *pgxpool.Pool      // nil: not measured beside this store
	unsynced *pgxpool.Pool      // the same for writes that are not measured
	loaded   map[string]*loaded // by set
}

// loaded is a set of keys that is written into the store, with the layouts in which the set is written.
type loaded struct {
	set
	oracle  *oracle
	layouts []string
	timed   map[string]layouts.Layout
	// counted has the same layouts over a store that counts reads. meters are the counters of the reads, by layout.
	counted map[string]layouts.Layout
	meters  map[string]*layouts.Meter
}

// Run measures what the options o choose, and returns the report. After an error the report has the results so far.
func Run(ctx context.Context, o Options) (*Report, error) {
	begun := time.Now()
	r := newReport(o)
	r.LoadBefore = loadAverage()
	if x := (&runner{o: o, r: r, store: "map"}); x.wantsSet(setReal) && len(o.Layouts) == 0 { // while nothing else runs
		x.say("lookups in a map of %d ranges", theMap.ranges)
		var err error
		if r.Map, err = lookups(ctx, theMap); err != nil {
			return r, fmt.Errorf("looking up in a map: %w", err)
		}
		debug.FreeOSMemory()
	}
	for i, name := range o.Stores {
		// What is left is shared by the stores that are left.
		left := time.Until(begun.Add(o.Time)) / time.Duration(len(o.Stores)-i)
		x := &runner{o: o, r: r, store: name, deadline: time.Now().Add(left), loaded: map[string]*loaded{}}
		if err := x.run(ctx); err != nil {
			return r, fmt.Errorf("%s: %w", name, err)
		}
	}
	r.Took = time.Since(begun).Round(time.Second).String()
	r.MemoryMiB, r.LoadAfter = peakMemory()>>20, loadAverage()
	return r, nil
}

// startPostgres starts a PostgreSQL server, and creates the table for the layout "postgres". The caller stops the
// server by calling end. If PostgreSQL is not installed, the report says so, and no server is started.
func (x *runner) startPostgres(ctx context.Context) (end func(), err error) {
	s, err := postgrestest.Start(ctx,
		postgrestest.Options{Settings: []string{"shared_buffers=256MB", "max_wal_size=4GB", "max_connections=200"}})
	if errors.Is(err, postgrestest.ErrMissing) {
		x.r.leftOut("%s: postgres: %v", x.store, err)
		return func() {}, nil
	}
	if err != nil {
		return nil, err
	}
	x.r.Versions["PostgreSQL"] = s.Version
	x.pg, err = pool(ctx, s.URL, "on")
	if err == nil {
		x.unsynced, err = pool(ctx, s.URL, "off")
	}
	if err == nil {
		err = pglayout.CreateTable(ctx, x.pg)
	}
	end = func() {
		for _, p := range []*pgxpool.Pool{x.pg, x.unsynced} {
			if p != nil {
				p.Close()
			}
		}
		_ = s.Close() // its folder is a temporary one
	}
	if err != nil {
		end()
		return nil, err
	}
	return end, nil
}

// pool returns a pool of connections to the PostgreSQL server at url, one for each of the 64 workers that put at once.
// synced is "on" if a commit waits until the data is synced to disk, and "off" if not.
func pool(ctx context.Context, url, synced string) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	config.MaxConns = putters
	config.ConnConfig.RuntimeParams["synchronous_commit"] = synced
	return pgxpool.NewWithConfig(ctx, config)
}

func (x *runner) say(format string, args ...any) {
	if x.o.Progress != nil {
		fmt.Fprintf(x.o.Progress, "%s %s: %s\n", time.Now().Format(time.TimeOnly), x.store,
			fmt.Sprintf(format, args...))
	}
}

func (x *runner) run(ctx context.Context) error {
	// A server is to be compared with servers, unless somebody wants to know.
	if x.store == Cassandra && x.wanted(layouts.NamePostgres) || slices.Contains(x.o.Layouts, layouts.NamePostgres) {
		end, err := x.startPostgres(ctx)
		if err != nil {
			return err
		}
		defer end()
	}
	// A server has all sets at once. The engines in this process are opened for each
	// set anew, so that their caches are as large as they are elsewhere, and yet fit
	// in memory.
	var wanted []set
	for _, s := range sets() {
		if x.wantsSet(s.name) {
			wanted = append(wanted, s)
		}
	}
	at := len(wanted)
	if x.store == Pebble {
		at = 1
	}
	for some := range slices.Chunk(wanted, max(at, 1)) {
		if err := x.world(ctx, some); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return x.growth(ctx)
}

// wantsSet reports whether the set of keys called name is measured. If the options name no sets, all sets are.
func (x *runner) wantsSet(name string) bool {
	return len(x.o.Sets) == 0 || slices.Contains(x.o.Sets, name)
}

// world opens the store, loads the sets `some`, measures them, and closes the store. If no time is left, the report
// says that the sets were left out.
func (x *runner) world(ctx context.Context, some []set) (err error) {
	if time.Until(x.deadline) < time.Second {
		for _, s := range some {
			x.r.leftOut("%s, %s: the time was up", x.store, s.name)
		}
		return nil
	}
	x.say("opening")
	x.loaded = map[string]*loaded{}
	switch x.store {
	case Pebble:
		x.w, err = openEmbedded(true, x.embedded(some[0]))
	case Cassandra:
		x.w, err = openCassandra(ctx, x.o.Cassandra)
	default:
		err = store.Errorf(store.InvalidArgument, "there is no store %q: %s or %s", x.store, Pebble, Cassandra)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, x.w.close()) }()
	for _, s := range some {
		if s.overwritten {
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
	for _, s := range some {
		if err := x.measureSet(ctx, s); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

// measureSet measures the set s, which is loaded. A set whose keys are overwritten is not loaded before. measureSet
// writes such a set itself, and turns compaction off until the set has been read.
func (x *runner) measureSet(ctx context.Context, s set) (err error) {
	if s.overwritten {
		if time.Until(x.deadline) < time.Minute {
			x.r.leftOut("%s, %s: it takes a minute to write: the time was up", x.store, s.name)
			return nil
		}
		if err := x.w.compacting(ctx, false); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, x.w.compacting(ctx, true)) }()
		if err := x.overwrite(ctx, s); err != nil {
			return fmt.Errorf("writing: %w", err)
		}
	}
	l := x.loaded[s.name]
	if err := x.build(ctx, l); err != nil {
		return err
	}
	return x.measure(ctx, l)
}

// embedded returns the layouts of a set that need an embedded engine each: all but PostgreSQL.
func (x *runner) embedded(s set) []string {
	return slices.DeleteFunc(x.of(s), func(name string) bool { return name == layouts.NamePostgres })
}
