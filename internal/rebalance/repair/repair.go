package repair

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/internal/rebalance/executor"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/partmap/mapclient"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/wait"
)

// Options of a check. With zero Options it changes nothing. The fields with JSON names are
// those of the admin API.
type Options struct {
	// Repair mends what can be mended safely.
	Repair bool `json:"repair,omitempty"`
	// Adopt selects the rows outside all ranges that are copied to where the map says. Any
	// but AdoptNone implies Repair. It is for restored stores, before servers run.
	Adopt Adopt `json:"-"`
	// Discard are partitions to remove with all rows if no map names them, even if their rows are nowhere else; of others
	// their misplaced rows are deleted. It needs Repair.
	Discard []store.PartitionID `json:"discard,omitempty"`
	// LostSettings returns the settings of a bucket whose root is lost, by some of its rows; nil: a plain bucket has none.
	// If LostSettings is nil, every bucket that AdoptAll revives is a plain one.
	LostSettings func([]store.Row) []byte `json:"-"`
	// SkipOrphans does not look for partitions that no map names. Looking for them lists all
	// partitions of the store, also for one bucket.
	SkipOrphans bool `json:"skip_orphans,omitempty"`
	// RowsPerSecond limits the rows read; 0: no limit.
	RowsPerSecond int `json:"rows_per_second,omitempty"`
	// Parallel is the number of buckets, and of partitions, checked at once, default 4.
	Parallel int `json:"parallel,omitempty"`
	// PageRows is the number of rows of one read, default 1,000.
	PageRows int `json:"-"`
	// Patience is the pause before suspicious names are checked again, default 10 s.
	Patience time.Duration `json:"-"`
	// StuckAfter is how long a batch may stay in one phase, default 1 h.
	StuckAfter time.Duration `json:"-"`
	// Skew is the bound on the differences of clients' wall clocks, by default that of the store
	// (mapclient.Client.MaxClockSkew), at least 1 s.
	Skew time.Duration `json:"-"`
	// Now is the wall clock, time.Now if nil. Sleep is the pause before a repeated check or
	// call, wait.Sleep if nil; tests replace it to interleave other work.
	Now   func() time.Time                                 `json:"-"`
	Sleep func(ctx context.Context, d time.Duration) error `json:"-"`
	// Report gets each finding, one at a time.
	Report func(Finding) `json:"-"`
}

const (
	// youngFor is how long the creation or deletion of a bucket may take.
	youngFor = 10 * time.Minute
	// collectAfter is how long map nodes that no root names stay, as in the executor. They
	// are reported after twice that time.
	collectAfter = time.Hour
	// future is how far ahead of the wall clock a row may be written.
	future = time.Minute
)

// Adopt selects the rows of partitions without a range that are copied to where the map
// says. Each keeps its timestamp, so nothing newer is hidden.
type Adopt uint8

const (
	// AdoptNone copies nothing.
	AdoptNone Adopt = iota
	// AdoptNewer adopts partitions that were provably made after the map: the map was
	// restored from an older copy than the rows. No deleted row comes back.
	AdoptNewer
	// AdoptAll adopts all rows outside ranges, also those in old sources of moves: right
	// after a restore, wrong for deleted rows that came back.
	AdoptAll
)

func (o Options) withDefaults() Options {
	o.Repair = o.Repair || o.Adopt != AdoptNone
	o.Parallel = cmp.Or(o.Parallel, 4)
	o.PageRows = min(cmp.Or(o.PageRows, 1000), store.MaxPageRows)
	o.Patience = cmp.Or(o.Patience, 10*time.Second)
	o.StuckAfter = cmp.Or(o.StuckAfter, time.Hour)
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Sleep == nil {
		o.Sleep = wait.Sleep
	}
	if o.Report == nil {
		o.Report = func(Finding) {}
	}
	return o
}

// Store is what is checked. Rows are read and written everywhere (see store.Everywhere).
type Store interface {
	store.Rows
	store.Registers
	store.Nodes
}

// Summary counts what was checked and found.
type Summary struct {
	// Buckets, Partitions and Rows that were checked; Listed partitions.
	Buckets    int64 `json:"buckets"`
	Partitions int64 `json:"partitions"`
	Rows       int64 `json:"rows"`
	Listed     int64 `json:"listed"`
	// Adopted rows were copied to where the map says.
	Adopted int64 `json:"adopted"`
	// Problems that are left, and Mended ones.
	Problems  int64 `json:"problems"`
	Mended    int64 `json:"mended"`
	Unchecked int64 `json:"unchecked"`
	Infos     int64 `json:"infos"`
}

// Checker makes one check of a store.
type Checker struct {
	s      Store
	noted  store.Rows // everywhere
	rows   store.Rows // the same, without notes
	lister store.PartitionLister
	c      *listing.Client
	maps   *mapclient.Client
	o      Options
	pace   *wait.Pacer
	scans  chan struct{} // one per partition that is read

	clocks bool // the store has map clocks

	mu       sync.Mutex
	sum      Summary
	distrust map[store.BucketID]bool // buckets with a broken map
	// left are buckets with rows outside ranges, which may be wanted.
	left map[store.BucketID]whose
	// orphaned are the partitions to adopt.
	orphaned map[store.BucketID][]orphan
	// moving are the buckets of which moves are in flight.
	moving map[store.BucketID]bool
	// marked are partitions with markers to sweep, with the names of their buckets.
	marked map[store.Partition]string
	// notes are those of all partitions that were read, if anything may be adopted.
	notes map[store.Partition][]note
	// emptied are partitions without a range that have nothing but old notes.
	emptied []store.Partition
	// ahead are map nodes of epochs that their root has not reached.
	ahead   map[store.BucketID]abandoned
	again   []suspectName
	hasName map[store.BucketID]bool // nameless buckets that were reported by name
	// named are the ids of the buckets with names, sorted; nameless the roots of the others.
	named    []store.BucketID
	nameless []*partmap.Root
}

// New makes a checker of the store of c. In the embedded form c must be the process's one
// client of the store.
func New(s Store, c *listing.Client, o Options) *Checker {
	o = o.withDefaults()
	o.Skew = cmp.Or(o.Skew, max(time.Second, c.Maps().MaxClockSkew()))
	lister, _ := s.(store.PartitionLister)
	return &Checker{
		s: s, noted: store.Everywhere(s), rows: executor.WithoutNotes(store.Everywhere(s)), lister: lister, c: c,
		maps: c.Maps(), o: o,
		pace: wait.NewPacer(o.RowsPerSecond), scans: make(chan struct{}, o.Parallel),
		moving:   map[store.BucketID]bool{},
		distrust: map[store.BucketID]bool{}, hasName: map[store.BucketID]bool{}, left: map[store.BucketID]whose{},
		orphaned: map[store.BucketID][]orphan{}, marked: map[store.Partition]string{},
		ahead: map[store.BucketID]abandoned{}, notes: map[store.Partition][]note{},
	}
}

// bucket is a bucket under check.
type bucket struct {
	id   store.BucketID
	name string // empty: it has none
}

// Run checks the bucket of a name, or everything if it is empty: see Bucket and All.
func (c *Checker) Run(ctx context.Context, name string) (Summary, error) {
	if name == "" {
		return c.All(ctx)
	}
	return c.Bucket(ctx, name)
}

// All checks everything. Where it can't go on it fails with the store's error, and the
// summary is of what was checked before.
func (c *Checker) All(ctx context.Context) (Summary, error) {
	list := func(ctx context.Context) error { return c.bucket(ctx, bucket{id: listing.ListOfBuckets()}) }
	orphans := func(ctx context.Context) error { return c.orphans(ctx, nil) }
	// The list first: names are compared with it only if it is whole.
	return c.run(ctx, c.begin, list, c.directory, c.listOfBuckets, c.roots, orphans, c.finish, c.secondLook,
		c.reportNameless)
}

// Bucket checks one bucket. It fails with listing.ErrNoSuchBucket where the name has none.
func (c *Checker) Bucket(ctx context.Context, name string) (Summary, error) {
	var b bucket
	find := func(ctx context.Context) error {
		if _, _, err := c.mapOf(ctx, bucket{id: listing.ListOfBuckets()}); err != nil {
			return err
		}
		owner, err := c.owner(ctx, name)
		if err != nil {
			return err
		}
		b = bucket{owner.ID, name}
		err = c.name(ctx, name)
		if err == nil && b.id == (store.BucketID{}) && len(c.again) == 0 && c.Progress().Problems == 0 {
			err = &listing.Error{Op: "verify", Bucket: name, Err: listing.ErrNoSuchBucket}
		}
		return err
	}
	check := func(ctx context.Context) error {
		if b.id == (store.BucketID{}) {
			return nil
		}
		if err := c.bucket(ctx, b); err != nil {
			return err
		}
		return c.orphans(ctx, &b)
	}
	return c.run(ctx, c.begin, find, check, c.finish, c.secondLook)
}

type step func(ctx context.Context) error

// run runs steps until the first one fails.
func (c *Checker) run(ctx context.Context, steps ...step) (Summary, error) {
	for _, do := range steps {
		if err := do(ctx); err != nil {
			return c.Progress(), err
		}
		if ctx.Err() != nil { // problem reported nothing any more
			return c.Progress(), context.Cause(ctx)
		}
	}
	return c.Progress(), nil
}

func (c *Checker) begin(ctx context.Context) error {
	if c.lister == nil && !c.o.SkipOrphans {
		c.report(Finding{
			Severity: Unchecked, Kind: NoLister,
			Text: "the store can't list its partitions: those that nobody names are not looked for",
		})
		c.o.SkipOrphans = true
	}
	return c.retry(ctx, func() error {
		keys, err := c.s.Scan(ctx, store.Clocks, nil, 1)
		c.clocks = len(keys) > 0
		return err
	})
}

// Progress is the present summary. It is safe for concurrent use.
func (c *Checker) Progress() Summary {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sum
}

// count adds to a count of the summary.
func (c *Checker) count(of *int64, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*of += int64(n)
}

func (c *Checker) report(f Finding) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case f.Open():
		c.sum.Problems++
	case f.Severity == Problem:
		c.sum.Mended++
	case f.Severity == Unchecked:
		c.sum.Unchecked++
	default:
		c.sum.Infos++
	}
	c.o.Report(f)
}

// problem mends a problem if Repair is set and mend is not nil, and reports it. It reports nothing
// if ctx ended meanwhile.
func (c *Checker) problem(ctx context.Context, f Finding, mend func() (string, error)) {
	f.Severity = Problem
	if mend != nil && f.Todo == "" {
		f.Todo = "--repair mends it"
	}
	if mend != nil && c.o.Repair {
		did, err := mend()
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			f.Todo = fmt.Sprintf("mending it failed, try again: %v", err)
		case did != "":
			f.Mended, f.Todo = did, ""
		}
	}
	c.report(f)
}

// suspect records that a bucket's map is broken.
func (c *Checker) suspect(id store.BucketID) {
	c.mu.Lock()
	c.distrust[id] = true
	c.mu.Unlock()
}

// whose says where rows outside ranges are.
type whose uint8

const (
	unnamed   whose = 1 << iota // in partitions without a range
	misplaced                   // in partitions that have other ranges
)

// keep records that a bucket has rows outside ranges, which may be wanted.
func (c *Checker) keep(id store.BucketID, w whose) {
	c.mu.Lock()
	c.left[id] |= w
	c.mu.Unlock()
}

func (c *Checker) keeps(id store.BucketID) whose {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.left[id]
}

func (c *Checker) suspected(id store.BucketID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.distrust[id]
}

// errDamaged is the error of a root that no retry makes readable.
type errDamaged struct{ error }

func (e errDamaged) Unwrap() error { return e.error }

// root reads a bucket's root at Serial. It fails with NotFound, errDamaged,
// partmap.ErrNewerVersion, or the store's error.
func (c *Checker) root(ctx context.Context, id store.BucketID) (*partmap.Root, error) {
	const tries = 4 // of reading a torn record
	for try := 1; ; try++ {
		rec, err := retried(ctx, c, func() (store.Record, error) {
			return c.s.Read(ctx, store.Roots, id[:], store.Serial)
		})
		if store.KindOf(err) == store.Corrupt && err != nil {
			return nil, errDamaged{err}
		}
		if err != nil {
			return nil, err
		}
		root, err := partmap.DecodeRoot(id, rec)
		if err == nil || errors.Is(err, partmap.ErrNewerVersion) {
			return root, err
		}
		if try == tries || store.KindOf(err) == store.Corrupt {
			return nil, errDamaged{err}
		}
		if err := c.o.Sleep(ctx, 50*time.Millisecond); err != nil {
			return nil, err
		}
	}
}

// retried is retry for calls with a result.
func retried[T any](ctx context.Context, c *Checker, f func() (T, error)) (v T, err error) {
	err = c.retry(ctx, func() (err error) {
		v, err = f()
		return err
	})
	return v, err
}

// retry repeats an idempotent store call a few times.
func (c *Checker) retry(ctx context.Context, f func() error) error {
	for failures := 1; ; failures++ {
		if err := f(); err == nil || !c.worthAnotherTry(ctx, err, failures) {
			return err
		}
	}
}

// worthAnotherTry reports whether to repeat a store call after so many failures in a row.
// It waits before.
func (c *Checker) worthAnotherTry(ctx context.Context, err error, failures int) bool {
	const tries = 5
	pauses := wait.Backoff{First: 50 * time.Millisecond, Most: time.Second}
	k := store.KindOf(err)
	return (k == store.Timeout || k == store.Unavailable) && !errors.Is(err, mapclient.ErrStale) &&
		failures < tries && c.o.Sleep(ctx, pauses.Pause(failures)) == nil
}

// group runs checks in parallel; the first error ends them.
func (c *Checker) group(ctx context.Context) (*errgroup.Group, context.Context) {
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(c.o.Parallel)
	return g, gctx
}

func notFound(err error) bool { return err != nil && store.KindOf(err) == store.NotFound }
