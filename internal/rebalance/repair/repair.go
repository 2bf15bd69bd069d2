package repair

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/internal/base/wait"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/partmap/mapclient"
	"github.com/evenkeel/evenkeel/store"
)

// Options say how to check; the zero Options only look.
type Options struct {
	// Repair mends what can be mended safely.
	Repair bool
	// Adopt says which rows that no range has are copied to where the map says; any
	// but AdoptNone implies Repair. It is for restored stores, before servers run.
	Adopt Adopt
	// Discard names partitions that are removed with all their rows if no map names
	// them, though what they hold is nowhere else. It goes with Repair.
	Discard []store.PartitionID
	// SkipOrphans leaves out the partitions that nobody names: to find them, all
	// partitions of the store are listed, also for one bucket.
	SkipOrphans bool
	// RowsPerSecond is the most rows that are read in a second; 0: any number.
	RowsPerSecond int
	// Parallel is how many buckets, and how many partitions, are looked at at
	// once, default 4.
	Parallel int
	// PageRows is how many rows one read asks for, default 1,000.
	PageRows int
	// Patience is how long after the first look names are looked at again,
	// default 10 s; it is spent only where there is something to look at again.
	Patience time.Duration
	// YoungFor is how long a bucket may be in the middle of its creation or
	// deletion, default 10 min.
	YoungFor time.Duration
	// StuckAfter is how long moves may take to their next phase, default 1 h.
	StuckAfter time.Duration
	// CollectAfter is how long map nodes stay once nobody names them, default
	// 1 h, as in the executor. Twice that is too long.
	CollectAfter time.Duration
	// Future is how far ahead a row may be written, default a minute.
	Future time.Duration
	// Skew is the bound within which clients' wall clocks agree, default 1 s.
	Skew time.Duration
	// Now is the wall clock, time.Now if nil. Sleep waits before another look or try,
	// wait.Sleep if nil: for tests that decide what happens meanwhile.
	Now   func() time.Time
	Sleep func(ctx context.Context, d time.Duration) error
	// Report gets each finding, one at a time.
	Report func(Finding)
}

// Adopt says which rows of partitions without a range are copied to their homes,
// each with its own timestamp, so that nothing newer is hidden.
type Adopt uint8

const (
	// AdoptNone copies nothing.
	AdoptNone Adopt = iota
	// AdoptNewer adopts partitions that are proven to have been made after the map:
	// the map was restored from an older copy than the rows. What is deleted there
	// was never at home, so nothing comes back.
	AdoptNewer
	// AdoptAll adopts whatever no range has, also from old sources of moves: right
	// after a restore, wrong for deleted rows that have come back by themselves.
	AdoptAll
)

func (o Options) withDefaults() Options {
	o.Repair = o.Repair || o.Adopt != AdoptNone
	for n, d := range map[*int]int{&o.Parallel: 4, &o.PageRows: 1000} {
		if *n <= 0 {
			*n = d
		}
	}
	o.PageRows = min(o.PageRows, store.MaxPageRows)
	for t, d := range map[*time.Duration]time.Duration{
		&o.Patience: 10 * time.Second, &o.YoungFor: 10 * time.Minute, &o.StuckAfter: time.Hour, &o.CollectAfter: time.Hour,
		&o.Future: time.Minute, &o.Skew: time.Second,
	} {
		if *t <= 0 {
			*t = d
		}
	}
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

// Store is what is checked. Rows are read and mended everywhere (see
// store.Everywhere).
type Store interface {
	store.Rows
	store.Registers
	store.Nodes
}

// Summary says what was looked at, and what came of it.
type Summary struct {
	// Buckets, Partitions and Rows that were looked at; Listed partitions.
	Buckets    int64 `json:"buckets"`
	Partitions int64 `json:"partitions"`
	Rows       int64 `json:"rows"`
	Listed     int64 `json:"listed"`
	// Adopted rows were copied to where the map says.
	Adopted int64 `json:"adopted"`
	// Problems that are there; Mended ones that are not any more; Unchecked
	// things; Infos.
	Problems  int64 `json:"problems"`
	Mended    int64 `json:"mended"`
	Unchecked int64 `json:"unchecked"`
	Infos     int64 `json:"infos"`
}

// Checker checks one store. It is for one check.
type Checker struct {
	s      Store
	rows   store.Rows // everywhere
	lister store.PartitionLister
	c      *listing.Client
	maps   *mapclient.Client
	o      Options
	pace   *wait.Pacer
	scans  chan struct{} // one per partition that is read

	clocks  bool // the store has map clocks
	buckets atomic.Int64
	parts   atomic.Int64
	read    atomic.Int64
	listed  atomic.Int64
	adopted atomic.Int64

	mu       sync.Mutex
	sum      Summary
	distrust map[store.BucketID]bool // buckets with a map that nothing may be judged by
	// left are buckets with rows that no range has, and that may be wanted.
	left map[store.BucketID]whose
	// orphaned are the partitions that are going to be adopted.
	orphaned map[store.BucketID][]orphan
	// marked are partitions with markers to sweep, with their buckets' names.
	marked map[store.Partition]string
	// ahead are the map nodes of epochs that a bucket's root has not come to.
	ahead   map[store.BucketID]abandoned
	again   []suspectName
	hasName map[store.BucketID]bool // nameless buckets that got their finding by their name
}

// New makes a checker of what c is a client of. In the embedded form c has to be
// the one client of the store's process.
func New(s Store, c *listing.Client, o Options) *Checker {
	o = o.withDefaults()
	lister, _ := s.(store.PartitionLister)
	return &Checker{
		s: s, rows: store.Everywhere(s), lister: lister, c: c, maps: c.Maps(), o: o,
		pace: wait.NewPacer(o.RowsPerSecond), scans: make(chan struct{}, o.Parallel),
		distrust: map[store.BucketID]bool{}, hasName: map[store.BucketID]bool{},
		left: map[store.BucketID]whose{}, orphaned: map[store.BucketID][]orphan{}, marked: map[store.Partition]string{}, ahead: map[store.BucketID]abandoned{},
	}
}

// bucket is a bucket under check.
type bucket struct {
	id   store.BucketID
	name string // empty: it has none
}

// All checks everything. It fails with what the store says where it can't go on;
// the summary is then of what it had seen.
func (c *Checker) All(ctx context.Context) (Summary, error) {
	err := c.begin(ctx)
	list := bucket{id: listing.ListOfBuckets()}
	if err == nil {
		// First: names are judged by it only if it is whole.
		err = c.bucket(ctx, list)
	}
	var ids []store.BucketID
	if err == nil {
		ids, err = c.directory(ctx)
	}
	if err == nil && !c.suspected(list.id) {
		err = c.listOfBuckets(ctx)
	}
	var nameless []*partmap.Root
	if err == nil {
		nameless, err = c.roots(ctx, ids)
	}
	if err == nil && !c.o.SkipOrphans {
		err = c.orphans(ctx, nil)
	}
	if err == nil {
		err = c.finish(ctx)
	}
	if err == nil {
		err = c.lookAgain(ctx, nameless)
	}
	return c.Progress(), err
}

// Bucket checks one bucket. It fails with listing.ErrNoSuchBucket where the name
// has none.
func (c *Checker) Bucket(ctx context.Context, name string) (Summary, error) {
	err := c.begin(ctx)
	var owner listing.BucketInfo
	if err == nil {
		_, _, err = c.mapOf(ctx, bucket{id: listing.ListOfBuckets()})
	}
	if err == nil {
		owner, err = c.owner(ctx, name)
	}
	if err == nil {
		err = c.name(ctx, name)
	}
	if err == nil && owner.ID == (store.BucketID{}) && len(c.again) == 0 && c.Progress().Problems == 0 {
		err = &listing.Error{Op: "verify", Bucket: name, Err: listing.ErrNoSuchBucket}
	}
	if err == nil && owner.ID != (store.BucketID{}) {
		b := bucket{owner.ID, name}
		err = c.bucket(ctx, b)
		if err == nil && !c.o.SkipOrphans {
			err = c.orphans(ctx, &b)
		}
		if err == nil {
			err = c.finish(ctx)
		}
	}
	if err == nil {
		err = c.lookAgain(ctx, nil)
	}
	return c.Progress(), err
}

func (c *Checker) begin(ctx context.Context) error {
	if c.lister == nil && !c.o.SkipOrphans {
		c.report(Finding{Severity: Unchecked, Kind: NoLister, Text: "the store can't list its partitions: those that nobody names are not looked for"})
		c.o.SkipOrphans = true
	}
	return c.retry(ctx, func() error {
		keys, err := c.s.Scan(ctx, store.Clocks, nil, 1)
		c.clocks = len(keys) > 0
		return err
	})
}

// Progress is the summary of the moment. It is safe for concurrent use.
func (c *Checker) Progress() Summary {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.sum
	s.Buckets, s.Partitions, s.Rows, s.Listed = c.buckets.Load(), c.parts.Load(), c.read.Load(), c.listed.Load()
	s.Adopted = c.adopted.Load()
	return s
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

// problem reports a problem, after mending it if that is wanted and mend knows
// how (nil: it can't be mended).
func (c *Checker) problem(ctx context.Context, f Finding, mend func() (string, error)) error {
	f.Severity = Problem
	if mend != nil && f.Todo == "" {
		f.Todo = "--repair mends it"
	}
	if mend != nil && c.o.Repair {
		did, err := mend()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		switch {
		case err != nil:
			f.Todo = fmt.Sprintf("mending it failed, try again: %v", err)
		case did != "":
			f.Mended, f.Todo = did, ""
		}
	}
	c.report(f)
	return nil
}

// suspect notes that nothing is to be judged by a bucket's map.
func (c *Checker) suspect(id store.BucketID) {
	c.mu.Lock()
	c.distrust[id] = true
	c.mu.Unlock()
}

// whose says where rows lie that no range has.
type whose uint8

const (
	unnamed   whose = 1 << iota // in partitions without a range
	misplaced                   // in partitions that have other ranges
)

// keep notes that a bucket has rows that no range has, and that may be wanted.
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

// errDamaged is a root that can't be read however often.
type errDamaged struct{ error }

func (e errDamaged) Unwrap() error { return e.error }

// root reads a bucket's root at Serial. It fails with NotFound, with errDamaged,
// with partmap.ErrNewerVersion, or with what the store says.
func (c *Checker) root(ctx context.Context, id store.BucketID) (*partmap.Root, error) {
	const tries = 4 // of reading a torn record
	for try := 1; ; try++ {
		var rec store.Record
		err := c.retry(ctx, func() (err error) {
			rec, err = c.s.Read(ctx, store.Roots, id[:], store.Serial)
			return err
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

// retry repeats a store call that may be repeated, as often as is likely to help.
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

// group runs checks side by side; the first error ends them.
func (c *Checker) group(ctx context.Context) (*errgroup.Group, context.Context) {
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(c.o.Parallel)
	return g, gctx
}

func notFound(err error) bool { return err != nil && store.KindOf(err) == store.NotFound }
