package repair

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/internal/door"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/mapcodec"
	"github.com/evenkeel/evenkeel/internal/rebalance/executor"
	"github.com/evenkeel/evenkeel/internal/storekit"
	"github.com/evenkeel/evenkeel/internal/wait"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// Options are the settings of a check of a store. With zero Options the check changes nothing. The fields with JSON
// names are those of the admin API.
type Options struct {
	// Repair makes the check repair problems if that is safe.
	Repair bool `json:"repair,omitempty"`
	// Adopt selects the rows outside all ranges that are copied to where the bucket's partition map says. A value other
	// than AdoptNone implies Repair. Adopt is for restored stores, before servers run.
	Adopt Adopt `json:"-"`
	// Discard lists partitions whose rows outside all ranges are deleted, even if no other partition has these rows. A
	// partition that no partition map names is removed as a whole. Of a partition that a map names, only misplaced rows
	// are deleted. Discard needs Repair.
	Discard []store.PartitionID `json:"discard,omitempty"`
	// LostSettings returns the settings of a bucket that has lost the root of its partition map, deduced from some of
	// its rows. A nil result stands for a plain bucket, which has no settings. If LostSettings is nil, every bucket
	// that gets a new map becomes a plain one.
	LostSettings func([]store.Row) []byte `json:"-"`
	// SkipOrphans makes the check not look for partitions that no partition map names. Looking for them lists all
	// partitions of the store, even if only one bucket is checked.
	SkipOrphans bool `json:"skip_orphans,omitempty"`
	// RowsPerSecond limits the rows that the check reads per second; 0 means no limit.
	RowsPerSecond int `json:"rows_per_second,omitempty"`
	// Parallel is the number of buckets, and of partitions, that are checked at the same time. The default is 4.
	Parallel int `json:"parallel,omitempty"`
	// PageRows is the number of rows of one read. The default is 1,000.
	PageRows int `json:"-"`
	// Patience is the pause before suspicious names of buckets are checked again. The default is 10 s.
	Patience time.Duration `json:"-"`
	// StuckAfter is the time that a batch of moves may stay in one phase before it is reported. The default is 1 h.
	StuckAfter time.Duration `json:"-"`
	// Skew is the largest difference between clients' wall clocks. The default is the value of the store
	// (mapclient.Client.MaxClockSkew), but at least 1 s.
	Skew time.Duration `json:"-"`
	// Now returns the wall clock; time.Now if nil. Sleep waits before a repeated check or call; wait.Sleep if nil.
	// Tests replace Sleep to do other work meanwhile.
	Now   func() time.Time                                 `json:"-"`
	Sleep func(ctx context.Context, d time.Duration) error `json:"-"`
	// Report is called with each finding, such as a problem. Only one call runs at a time.
	Report func(Finding) `json:"-"`
}

const (
	// youngFor is the longest time that the creation or deletion of a bucket may take. After that time, a bucket that
	// is only half created or half deleted is reported as a problem.
	youngFor = 10 * time.Minute
	// collectAfter is the time for which map nodes that no root names stay stored, as in the executor. Nodes that are
	// still stored after twice this time are reported.
	collectAfter = time.Hour
	// future is the largest time by which a row's timestamp may be ahead of the wall clock. A row further ahead is
	// reported.
	future = time.Minute
)

// Adopt selects the rows that the check of a restored store copies to the partitions where the bucket's partition map
// says. They are rows that lie outside all ranges, e.g. in partitions that the map does not name. Each row keeps its
// timestamp, so it hides nothing newer.
type Adopt uint8

const (
	// AdoptNone means that no rows are copied.
	AdoptNone Adopt = iota
	// AdoptNewer means that rows are copied from partitions that were provably made after the partition map. Then the
	// map was restored from an older copy than the rows, and no deleted row comes back.
	AdoptNewer
	// AdoptAll means that all rows outside ranges are copied, also those in the old partitions of moves. It is right
	// after a restore, and wrong if deleted rows came back for another reason.
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

// Store is the store to check: its rows, its small records and the nodes of its maps. Rows are read and written at the
// widest consistency of the store (see storekit.Everywhere).
type Store interface {
	store.Rows
	store.Registers
	store.Nodes
}

// Summary has the numbers of buckets, partitions and rows that a check of a store has checked so far, and the numbers
// of its findings.
type Summary struct {
	// Buckets, Partitions and Rows are the numbers of buckets, partitions and rows that were checked. Listed is the
	// number of partitions that the store has listed.
	Buckets    int64 `json:"buckets"`
	Partitions int64 `json:"partitions"`
	Rows       int64 `json:"rows"`
	Listed     int64 `json:"listed"`
	// Adopted is the number of rows that were copied to where the bucket's partition map says.
	Adopted int64 `json:"adopted"`
	// Problems is the number of problems that are not repaired, and Mended is the number of problems that are.
	// Unchecked and Infos are the numbers of findings of these severities.
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
	// left has the buckets with rows outside their ranges that may be wanted, and in which kind of partition these rows
	// are.
	left map[store.BucketID]whose
	// orphaned has, by bucket, the partitions without a range whose rows are to be copied to where the partition map
	// says.
	orphaned map[store.BucketID][]orphan
	// moving has the buckets in which ranges move.
	moving map[store.BucketID]bool
	// marked has the partitions with deletion markers to delete, with the names of their buckets.
	marked map[store.Partition]string
	// notes has the notes (rows that say where moved rows are) of all partitions read, if Options.Adopt may copy rows.
	notes map[store.Partition][]note
	// emptied has partitions without a range that have nothing but old notes.
	emptied []store.Partition
	// ahead has map nodes of versions that the root of their bucket has not reached.
	ahead   map[store.BucketID]abandoned
	again   []suspectName
	hasName map[store.BucketID]bool // nameless buckets that were reported by name
	// named has the ids of the buckets with names, sorted. nameless has the roots of the buckets without names.
	named    []store.BucketID
	nameless []*partmap.Root
}

// New returns a checker of the store s, for one check. The argument c is a client of that store. In the embedded form c
// must be the process's only client of the store.
func New(s Store, c *listing.Client, o Options) *Checker {
	o = o.withDefaults()
	o.Skew = cmp.Or(o.Skew, max(time.Second, mapclient.Of(c).MaxClockSkew()))
	lister, _ := s.(store.PartitionLister)
	return &Checker{
		s: s, noted: storekit.Everywhere(s), rows: executor.WithoutNotes(storekit.Everywhere(s)), lister: lister, c: c,
		maps: mapclient.Of(c), o: o,
		pace: wait.NewPacer(o.RowsPerSecond), scans: make(chan struct{}, o.Parallel),
		moving:   map[store.BucketID]bool{},
		distrust: map[store.BucketID]bool{}, hasName: map[store.BucketID]bool{}, left: map[store.BucketID]whose{},
		orphaned: map[store.BucketID][]orphan{}, marked: map[store.Partition]string{},
		ahead: map[store.BucketID]abandoned{}, notes: map[store.Partition][]note{},
	}
}

// bucket is the id and the name of a bucket that is being checked; the name is for reports.
type bucket struct {
	id   store.BucketID
	name string // empty: it has none
}

// Run checks the bucket with the given name (see Bucket), or the whole store if name is empty (see All). It returns how
// much was checked, and what was found.
func (c *Checker) Run(ctx context.Context, name string) (Summary, error) {
	if name == "" {
		return c.All(ctx)
	}
	return c.Bucket(ctx, name)
}

// All checks the whole store: all names, partition maps and rows. If the check cannot go on, All fails with the store's
// error, and the summary counts what was checked before.
func (c *Checker) All(ctx context.Context) (Summary, error) {
	c.all = true
	list := func(ctx context.Context) error { return c.bucket(ctx, bucket{id: door.ListOfBuckets}) }
	orphans := func(ctx context.Context) error { return c.orphans(ctx, nil) }
	// The list comes first: names are compared with it only if it is whole.
	return c.run(ctx, c.begin, list, c.directory, c.listOfBuckets, c.roots, orphans, c.finish, c.namesAnew, c.secondLook,
		c.reportNameless)
}

// Bucket checks the bucket with the given name: its name, its partition map and its rows. It fails with
// listing.ErrNoSuchBucket if there is no such bucket.
func (c *Checker) Bucket(ctx context.Context, name string) (Summary, error) {
	var b bucket
	find := func(ctx context.Context) error {
		if _, _, err := c.mapOf(ctx, bucket{id: door.ListOfBuckets}); err != nil {
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

// run carries out the given steps of a check in order, until one fails or ctx ends. It returns how much was checked and
// what was found up to then.
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

// Progress returns the numbers of things that the check has checked and found so far. It is safe for concurrent use.
func (c *Checker) Progress() Summary {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sum
}

// count adds n to a number in the summary, to which the pointer `of` points. It holds the lock of the checker
// meanwhile.
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

// problem reports the problem f. If Options.Repair is set and mend is not nil, problem first calls mend, which repairs
// the fault and returns a sentence about what it did. If ctx ended meanwhile, nothing is reported.
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

// suspect marks the partition map of the bucket id as broken. From then on, the check neither checks nor changes the
// rows of the bucket.
func (c *Checker) suspect(id store.BucketID) {
	c.mu.Lock()
	c.distrust[id] = true
	c.mu.Unlock()
}

// whose is a set of two bits that says where a bucket has rows outside its ranges: in partitions without a range, and
// in partitions with other ranges.
type whose uint8

const (
	unnamed   whose = 1 << iota // in partitions without a range
	misplaced                   // in partitions that have other ranges
)

// keep makes the check keep the deletion markers and notes of the bucket id, since rows that may be wanted need them.
// These rows lie outside the bucket's ranges. The parameter w says in which kind of partition they are.
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

// errDamaged is the error for a root of a partition map that can't be decoded, even after several reads.
type errDamaged struct{ error }

func (e errDamaged) Unwrap() error { return e.error }

// root returns the newest root of a bucket's partition map (read at Serial). The error is
//   - NotFound if there is no root,
//   - errDamaged if the root can't be decoded,
//   - mapcodec.ErrNewerVersion if a newer program has written the root, or
//   - the store's error.
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
		if err == nil || errors.Is(err, mapcodec.ErrNewerVersion) {
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

// retried calls f until it succeeds, and returns its result. After a timeout, or while the store is unavailable, f is
// called again, at most five times in all. Other errors are returned at once.
func retried[T any](ctx context.Context, c *Checker, f func() (T, error)) (v T, err error) {
	err = c.retry(ctx, func() (err error) {
		v, err = f()
		return err
	})
	return v, err
}

// retry calls f, which must be idempotent, until it succeeds. After a timeout, or while the store is unavailable, f is
// called again, at most five times in all. Other errors are returned at once.
func (c *Checker) retry(ctx context.Context, f func() error) error {
	for failures := 1; ; failures++ {
		if err := f(); err == nil || !c.worthAnotherTry(ctx, err, failures) {
			return err
		}
	}
}

// worthAnotherTry reports whether a failed store call should be repeated, and sleeps for a while before it returns
// true. err is the call's error, and failures is the number of failures in a row.
func (c *Checker) worthAnotherTry(ctx context.Context, err error, failures int) bool {
	const tries = 5
	pauses := wait.Backoff{First: 50 * time.Millisecond, Most: time.Second}
	k := store.KindOf(err)
	return (k == store.Timeout || k == store.Unavailable) && !errors.Is(err, mapclient.ErrStale) &&
		failures < tries && c.o.Sleep(ctx, pauses.Pause(failures)) == nil
}

// group returns a group of goroutines for checks that run at the same time, at most Options.Parallel. The first error
// ends the group's context.
func (c *Checker) group(ctx context.Context) (*errgroup.Group, context.Context) {
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(c.o.Parallel)
	return g, gctx
}

func notFound(err error) bool { return err != nil && store.KindOf(err) == store.NotFound }
