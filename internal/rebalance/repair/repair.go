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

// Options are the settings of a check. With zero Options the check changes nothing. The fields with JSON names are
// those of the admin API.
type Options struct {
	// Repair says that problems are mended if that is safe.
	Repair bool `json:"repair,omitempty"`
	// Adopt selects the rows outside all ranges that are copied to where the map says. Any value but AdoptNone implies
	// Repair. Adopt is for restored stores, before servers run.
	Adopt Adopt `json:"-"`
	// Discard are partitions whose rows outside all ranges are deleted, even if they are nowhere else. A partition that
	// no map names is removed altogether; of another one, only the misplaced rows are deleted. Discard needs Repair.
	Discard []store.PartitionID `json:"discard,omitempty"`
	// LostSettings returns the settings of a bucket whose root is lost, deduced from some of its rows; a nil result is
	// that of a plain bucket, which has none. If LostSettings is nil, every bucket that AdoptAll revives is a plain
	// one.
	LostSettings func([]store.Row) []byte `json:"-"`
	// SkipOrphans says that partitions which no map names are not looked for. Looking for them lists all partitions of
	// the store, even if only one bucket is checked.
	SkipOrphans bool `json:"skip_orphans,omitempty"`
	// RowsPerSecond limits the rows read; 0: no limit.
	RowsPerSecond int `json:"rows_per_second,omitempty"`
	// Parallel is the number of buckets, and of partitions, that are checked at the same time; default 4.
	Parallel int `json:"parallel,omitempty"`
	// PageRows is the number of rows of one read, default 1,000.
	PageRows int `json:"-"`
	// Patience is the pause before suspicious names are checked again, default 10 s.
	Patience time.Duration `json:"-"`
	// StuckAfter is the time that a batch may stay in one phase, default 1 h.
	StuckAfter time.Duration `json:"-"`
	// Skew is the largest difference between clients' wall clocks. By default it is that of the store
	// (mapclient.Client.MaxClockSkew), but at least 1 s.
	Skew time.Duration `json:"-"`
	// Now is the wall clock, time.Now if nil. Sleep is the pause before a repeated check or
	// call, wait.Sleep if nil; tests replace it to interleave other work.
	Now   func() time.Time                                 `json:"-"`
	Sleep func(ctx context.Context, d time.Duration) error `json:"-"`
	// Report is called with each finding, one call at a time.
	Report func(Finding) `json:"-"`
}

const (
	// youngFor is the time that the creation or deletion of a bucket may take.
	youngFor = 10 * time.Minute
	// collectAfter is the time for which map nodes that no root names stay, as in the executor. They are reported after
	// twice this time.
	collectAfter = time.Hour
	// future is the time by which a row's timestamp may be ahead of the wall clock.
	future = time.Minute
)

// Adopt selects which rows of partitions without a range are copied to where the bucket's map says. Each row keeps its
// timestamp, so nothing newer is hidden.
type Adopt uint8

const (
	// AdoptNone copies nothing.
	AdoptNone Adopt = iota
	// AdoptNewer adopts partitions that were provably made after the map: the map was restored from an older copy than
	// the rows. No deleted row comes back.
	AdoptNewer
	// AdoptAll adopts all rows outside ranges, also those in old sources of moves. It is right after a restore, and
	// wrong if deleted rows came back.
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

// Store is the store to check. Rows are read and written at the widest consistency of the store (see store.Everywhere).
type Store interface {
	store.Rows
	store.Registers
	store.Nodes
}

// Summary has the numbers of things that a check has checked, and the numbers of its findings.
type Summary struct {
	// Buckets, Partitions and Rows are the numbers of those checked. Listed is the number of partitions listed.
	Buckets    int64 `json:"buckets"`
	Partitions int64 `json:"partitions"`
	Rows       int64 `json:"rows"`
	Listed     int64 `json:"listed"`
	// Adopted is the number of rows copied to where the map says.
	Adopted int64 `json:"adopted"`
	// Problems is the number of problems left, Mended that of problems mended. Unchecked and Infos are the numbers of
	// other findings.
	Problems  int64 `json:"problems"`
	Mended    int64 `json:"mended"`
	Unchecked int64 `json:"unchecked"`
	Infos     int64 `json:"infos"`
}

// Checker makes one check of a store: it looks for damage, and repairs what it may. Only the method Progress is safe
// for concurrent use.
type Checker struct {
	s      Store
	noted  store.Rows // all rows, read and written everywhere
	rows   store.Rows // the same rows without notes
	lister store.PartitionLister
	c      *listing.Client
	maps   *mapclient.Client
	o      Options
	pace   *wait.Pacer
	scans  chan struct{} // one element for each partition that is being read

	clocks bool // the store has map clocks
	all    bool // the rows of all buckets are checked

	mu       sync.Mutex
	sum      Summary
	distrust map[store.BucketID]bool // buckets with a broken map
	// left are the buckets with rows outside ranges that may be wanted, and where these rows are.
	left map[store.BucketID]whose
	// orphaned are the partitions to adopt, by bucket.
	orphaned map[store.BucketID][]orphan
	// moving are the buckets with moves in flight.
	moving map[store.BucketID]bool
	// marked are the partitions with markers to sweep, with the names of their buckets.
	marked map[store.Partition]string
	// notes are the notes in all partitions that were read, if anything may be adopted.
	notes map[store.Partition][]note
	// emptied are partitions without a range that have nothing but old notes.
	emptied []store.Partition
	// ahead are map nodes of epochs that the root of their bucket has not reached.
	ahead   map[store.BucketID]abandoned
	again   []suspectName
	hasName map[store.BucketID]bool // nameless buckets that were reported by name
	// named are the ids of the buckets with names, sorted; nameless the roots of the others.
	named    []store.BucketID
	nameless []*partmap.Root
}

// New returns a checker of the store s. c is a client of that store. In the embedded form c must be the process's only
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

// bucket is the id and the name of a bucket that is being checked.
type bucket struct {
	id   store.BucketID
	name string // empty: it has none
}

// Run checks the bucket with the given name, or the whole store if name is empty. See Bucket and All.
func (c *Checker) Run(ctx context.Context, name string) (Summary, error) {
	if name == "" {
		return c.All(ctx)
	}
	return c.Bucket(ctx, name)
}

// All checks the whole store. If the check cannot go on, All fails with the store's error, and the summary counts what
// was checked before.
func (c *Checker) All(ctx context.Context) (Summary, error) {
	c.all = true
	list := func(ctx context.Context) error { return c.bucket(ctx, bucket{id: listing.ListOfBuckets()}) }
	orphans := func(ctx context.Context) error { return c.orphans(ctx, nil) }
	// The list comes first: names are compared with it only if it is whole.
	return c.run(ctx, c.begin, list, c.directory, c.listOfBuckets, c.roots, orphans, c.finish, c.namesAnew, c.secondLook,
		c.reportNameless)
}

// Bucket checks the bucket with the given name. It fails with listing.ErrNoSuchBucket if there is no such bucket.
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

// run carries out the steps of a check in order, until one fails or ctx ends. It returns the summary up to then.
func (c *Checker) run(ctx context.Context, steps ...step) (Summary, error) {
	for _, do := range steps {
		if err := do(ctx); err != nil {
			return c.Progress(), err
		}
		if ctx.Err() != nil { // then problem has reported nothing
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

// Progress returns what the check has counted so far. It is safe for concurrent use.
func (c *Checker) Progress() Summary {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sum
}

// count adds n to a number of the summary. of points to that number.
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

// problem reports the problem f. If Options.Repair is set and mend is not nil, it first calls mend, which repairs the
// problem and returns a sentence about what it did. If ctx ended meanwhile, nothing is reported.
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

// suspect records that the map of a bucket is broken. The check then leaves the rows of the bucket alone.
func (c *Checker) suspect(id store.BucketID) {
	c.mu.Lock()
	c.distrust[id] = true
	c.mu.Unlock()
}

// whose says where a bucket has rows outside its ranges. It is a set of two kinds of partitions.
type whose uint8

const (
	unnamed   whose = 1 << iota // in partitions without a range
	misplaced                   // in partitions that have other ranges
)

// keep records that a bucket has rows outside its ranges that may be wanted. w says in which kind of partition these
// rows are. The check then keeps the markers and notes of the bucket.
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

// errDamaged is the error for a root that stays unreadable however often it is read.
type errDamaged struct{ error }

func (e errDamaged) Unwrap() error { return e.error }

// root returns the root of a bucket, read at Serial. It fails with NotFound if there is none, with errDamaged, with
// partmap.ErrNewerVersion, or with the store's error.
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

// retried calls f until it succeeds, and returns its result. Timeouts and an unavailable store are retried a few times.
// Other errors are returned at once.
func retried[T any](ctx context.Context, c *Checker, f func() (T, error)) (v T, err error) {
	err = c.retry(ctx, func() (err error) {
		v, err = f()
		return err
	})
	return v, err
}

// retry calls f, which must be idempotent, until it succeeds. Timeouts and an unavailable store are retried a few
// times. Other errors are returned at once.
func (c *Checker) retry(ctx context.Context, f func() error) error {
	for failures := 1; ; failures++ {
		if err := f(); err == nil || !c.worthAnotherTry(ctx, err, failures) {
			return err
		}
	}
}

// worthAnotherTry reports whether a failed store call should be repeated. err is its error, failures the number of
// failures in a row. Before it returns true, it sleeps for a while.
func (c *Checker) worthAnotherTry(ctx context.Context, err error, failures int) bool {
	const tries = 5
	pauses := wait.Backoff{First: 50 * time.Millisecond, Most: time.Second}
	k := store.KindOf(err)
	return (k == store.Timeout || k == store.Unavailable) && !errors.Is(err, mapclient.ErrStale) &&
		failures < tries && c.o.Sleep(ctx, pauses.Pause(failures)) == nil
}

// group returns a group of checks that run at the same time, at most Options.Parallel. The first error ends them.
func (c *Checker) group(ctx context.Context) (*errgroup.Group, context.Context) {
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(c.o.Parallel)
	return g, gctx
}

func notFound(err error) bool { return err != nil && store.KindOf(err) == store.NotFound }
