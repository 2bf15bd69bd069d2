package evenkeel

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/rebalance/engine"
	"github.com/evenkeel/evenkeel/internal/rebalance/pause"
	"github.com/evenkeel/evenkeel/internal/rebalance/scheduler"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// Status describes what a DB does in the background, and what is wrong, for people and for checks of health.
type Status struct {
	// Leading is true if this process moves ranges of keys: of all buckets of a directory, or of its share of the
	// buckets of a keyspace. It is always false if the DB is Unbalanced.
	Leading bool
	// Leaders are the names of the processes that move ranges, such as "evenkeel on host1, process 4711". For a
	// directory that is this process alone, or none. The processes of a keyspace divide the buckets among them, and the
	// first of the list also does what is done once for all buckets. The names of processes that are unknown at
	// present, as for some seconds after the first start, are missing.
	Leaders []string
	// Problems are what should be looked at, in a sentence each, such as counters that do not answer, a disk that is
	// full, or moves that were paused by somebody. The texts are for people, and may change. The list is empty if
	// nothing is known to be wrong. Failures of single buckets are in Buckets.
	Problems []string
	// Buckets are the buckets that this process moves or would move at present, in the order of their names.
	Buckets []BusyBucket
}

// BusyBucket describes a bucket whose ranges of keys this process moves, or would move if nothing was in the way.
type BusyBucket struct {
	// Name is the name of the bucket, or its id if the name is not known, as after the bucket was deleted.
	Name string
	// Moves is the number of wanted changes of ranges, such as splits, that have not ended.
	Moves int
	// Moving is true if steps of moves are made at present. It is false while the bucket waits: for other buckets, for
	// the next attempt after a failure, or for the end of a pause. Paused is true if no move of the bucket may begin.
	Moving, Paused bool
	// Failures are the steps of moves that failed and are repeated, the newest first.
	Failures []Failure
}

// Failure is an error of a step of a move, and the time of the error. Steps that fail are repeated until they succeed.
type Failure struct {
	At   time.Time
	Text string
}

// Status returns what this process does in the background, and what is wrong. It costs a few reads of small records.
//
// If the DB is Unbalanced, the result has the processes that move ranges, and the problems that concern all of them; it
// has no buckets. An Unbalanced directory has nobody who moves ranges, which is one of the Problems.
//
// Status fails with Unavailable if the DB is closed, and if ctx has ended. If parts of the store can't be read, this is
// one of the Problems.
func (db *DB) Status(ctx context.Context) (Status, error) {
	if err := db.ready(ctx, "status"); err != nil {
		return Status{}, err
	}
	s := Status{Leading: db.balanced && db.engine.Leading()}
	s.Problems = db.problems(ctx)
	led := 0
	switch {
	case db.shared:
		s.Leaders, led = db.leaders(ctx)
		if led < engine.Shards {
			s.Problems = append(s.Problems, fmt.Sprintf("of %d of %d groups of buckets no process is known that moves "+
				"ranges; that is usual for some seconds after a start", engine.Shards-led, engine.Shards))
		}
	case s.Leading:
		s.Leaders = []string{db.name}
	}
	if db.balanced {
		s.Buckets = db.busy(ctx)
	}
	return s, db.ready(ctx, "status")
}

// leaders returns the names of the processes that lead groups of buckets (shards), each once, and the number of groups
// with a leader.
func (db *DB) leaders(ctx context.Context) (names []string, led int) {
	for _, h := range db.engine.Leaders(ctx) {
		if h == nil {
			continue
		}
		led++
		if name := cmp.Or(h.Name, h.ID.String()); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names, led
}

// problems returns what is wrong with the store and with the work in the background, in a sentence each.
func (db *DB) problems(ctx context.Context) (all []string) {
	add := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	if !db.balanced && !db.shared {
		add("nothing is split or merged: the directory was opened Unbalanced, and no other process can move its ranges")
	}
	if w, ok := db.all.Store.(store.Writable); ok {
		if err := w.Writable(); err != nil {
			add("the store takes no puts: %v", err)
		}
	}
	if p, err := pause.Read(ctx, db.all.Store, store.Local); err != nil {
		add("whether moves are paused is not known: %v", err)
	} else if p.All != nil {
		if held, paused := p.Of(store.BucketID{}, time.Now()); paused {
			add("all moves are paused %s", held)
		}
	}
	if text := db.engine.Unattended(); text != "" {
		add("%s", text)
	}
	if mine, other, differ := db.engine.OtherLimits(ctx); differ {
		add("the limits of partitions are %s in this process, but %s in the one that was started last: give all "+
			"the same", mine, other)
	}
	if b := db.engine.Balancer(); b != nil {
		if err := b.Status().Round.Err; err != nil {
			add("the last look at the sizes of ranges met an error: %v", err)
		}
	}
	if last := db.engine.Retention().Status().Last; last != nil && last.Failed > 0 {
		add("the last run of the rules of retention had %d failures: the log has them", last.Failed)
	}
	return all
}

// busy returns the buckets that move, or that have failures, in the order of their names.
func (db *DB) busy(ctx context.Context) (all []BusyBucket) {
	buckets := db.engine.Status().Buckets
	name := db.namer(ctx, func(yield func(store.BucketID) bool) {
		for i := range buckets {
			if !yield(buckets[i].ID) {
				return
			}
		}
	})
	for i := range buckets {
		b := &buckets[i]
		x := BusyBucket{Name: name(b.ID), Moves: b.Goals, Moving: b.Running, Paused: b.Paused}
		for _, f := range b.Failures {
			x.Failures = append(x.Failures, Failure{At: f.At, Text: f.Error})
		}
		all = append(all, x)
	}
	slices.SortStableFunc(all, func(a, b BusyBucket) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// namer returns a function that returns the name of a bucket, or the id as a text if the name is not known. It looks up
// the names of the buckets ids, as far as it does not know them.
func (db *DB) namer(ctx context.Context, ids iter.Seq[store.BucketID]) func(store.BucketID) string {
	names := db.engine.Names()
	names.Learn(ctx, slices.Collect(ids))
	return func(id store.BucketID) string { return cmp.Or(names.Of(id), id.String()) }
}

// Move is a change of the ranges of one bucket that is wanted or under way, such as the split of a range.
type Move struct {
	// Bucket is the name of the bucket, or its id if the name is not known, as after the bucket was deleted.
	Bucket string
	// Start and End are the bounds of the keys whose ranges change. Start belongs to the move, End does not, and an
	// empty End is plus infinity. Cuts are the keys at which the interval will be cut; without cuts it will be one
	// range. All three are empty if Kind is "resumed".
	Start, End []byte
	Cuts       [][]byte
	// Kind is "split" (a range is cut), "merge" (neighbours are joined), "roll" (empty ranges are cut off ahead of
	// appended keys), "refresh" (a range is rewritten without its tombstones), another word for what an operator asked
	// for, or "resumed": moves that another process, or this process before a restart, has begun.
	Kind string
	// Phase is "waiting" until the move has begun, and then "marking", "copying", "verifying", "draining" and
	// "sweeping", in this order. Reads and writes go on in all phases.
	Phase string
	// Rows is about the number of rows that the move copies, which can be 0. Copied is the number of rows that were
	// copied so far. Moves that began together are counted together, and each gets its part by estimate. Rows is 0 if
	// Kind is "resumed".
	Rows, Copied int64
	// Why is the reason, in a few words for people. It may be empty if an operator asked for the move.
	Why string
	// Asked is the time at which the move was wanted. It is zero if Kind is "resumed".
	Asked time.Time
}

// resumed is the kind of moves that this process has found in a bucket's map, and not begun.
const resumed = "resumed"

// Moves returns the moves of ranges that this process makes, or is going to make, at present. They are in the order in
// which they were asked for, and "resumed" ones come last. The moves come from memory; only names of buckets are read
// from the store, if they are not known.
//
// Moves that other processes of a keyspace make are not in the result. So the result is empty if the DB is Unbalanced.
// Moves fails with Unavailable if the DB is closed, and if ctx has ended.
func (db *DB) Moves(ctx context.Context) ([]Move, error) {
	if err := db.ready(ctx, "moves"); err != nil || !db.balanced {
		return nil, err
	}
	s := db.engine.Status()
	name := db.namer(ctx, func(yield func(store.BucketID) bool) {
		for i := range s.Buckets {
			if !yield(s.Buckets[i].ID) {
				return
			}
		}
		for i := range s.Jobs {
			if j := &s.Jobs[i]; j.Ended.IsZero() && !yield(j.Bucket) {
				return
			}
		}
	})
	return movesOf(&s, name), db.ready(ctx, "moves")
}

// batchOf names a batch, which is a group of moves of one bucket that began together.
type batchOf struct {
	bucket store.BucketID
	id     uint64
}

// batch is what is known of a batch of moves: its phase, the rows that its moves copy (by estimate), and the rows that
// were copied. The field asked is true if a job of this process has begun the batch.
type batch struct {
	phase        string
	rows, copied int64
	asked        bool
}

// movesOf returns the moves in s that have not ended. name returns the names of buckets.
func movesOf(s *engine.Status, name func(store.BucketID) string) (all []Move) {
	batches := map[batchOf]*batch{}
	for i := range s.Buckets {
		for _, b := range s.Buckets[i].Batches {
			x := &batch{phase: scheduler.PhaseName(b.Phase), copied: b.Progress.Copied}
			batches[batchOf{s.Buckets[i].ID, b.ID}] = x
		}
	}
	for i := range s.Jobs {
		for _, g := range s.Jobs[i].Goals {
			if b := batches[batchOf{s.Jobs[i].Bucket, g.Batch}]; b != nil {
				b.rows, b.asked = b.rows+g.Copies, true
			}
		}
	}
	for i := range s.Jobs {
		j := &s.Jobs[i]
		for k := range j.Goals {
			g := &j.Goals[k]
			m := Move{
				Bucket: name(j.Bucket), Start: g.Start, End: g.End, Cuts: g.Cuts, Kind: cmp.Or(g.Kind, j.What),
				Rows: g.Copies, Why: g.Why, Asked: j.Asked, Phase: string(scheduler.Waiting),
			}
			switch b := batches[batchOf{j.Bucket, g.Batch}]; {
			case g.Stage != scheduler.Waiting && g.Stage != scheduler.Begun:
				continue
			case g.Stage == scheduler.Waiting:
			case b == nil: // it has just ended
				m.Phase, m.Copied = scheduler.PhaseName(partmap.Settled), g.Copies
			default:
				m.Phase = b.phase
				if b.rows > 0 {
					m.Copied = int64(float64(b.copied) * float64(g.Copies) / float64(b.rows))
				}
			}
			all = append(all, m)
		}
	}
	for i := range s.Buckets {
		for _, x := range s.Buckets[i].Batches {
			if b := batches[batchOf{s.Buckets[i].ID, x.ID}]; !b.asked {
				all = append(all, Move{
					Bucket: name(s.Buckets[i].ID), Kind: resumed, Phase: b.phase, Copied: b.copied,
					Why: "begun by another process, or before a restart",
				})
			}
		}
	}
	return all
}

// Size is the size of one range of a bucket, as far as it is known without reading its rows.
type Size struct {
	// Start and End are the bounds of the range: Start belongs to it, End does not, and an empty End is plus infinity.
	Start, End []byte
	// Rows is the number of entries of the range, and Bytes is the size of their keys and values. Both are estimates by
	// the counters, some seconds old. A recount, which reads all rows, corrects the estimates from time to time.
	Rows, Bytes int64
	// Known is true if Rows and Bytes go back to a recount of this range, and no later writes are known to be missing.
	// If Known is false, Rows and Bytes are lower bounds, at worst 0.
	Known bool
	// Moving is true if the rows of the range are being moved at present.
	Moving bool
}

// sizesAtOnce is the number of ranges of which Sizes asks the counters at once.
const sizesAtOnce = 1000

// Sizes iterates over the ranges of the named bucket with their sizes, in the order of their keys. The first range is
// the one with the key from; an empty from is the beginning of the bucket. Ranges follow each other without gaps. If
// the ranges change during the iteration, it goes on with the ranges as they were at its beginning, as long as these
// can be read, and then with the new ones, of which the first may overlap the last one before.
//
// No rows are read. For each 1,000 ranges the iteration reads the parts of the bucket's map and asks the counters once,
// and it has no more ranges than these in memory. So a bucket with 100,000 ranges (up to 10 billion entries, by
// default) costs 100 requests to the counters, and seconds on a busy machine. To see a part of the bucket, begin at a
// key, and leave the loop.
//
// If the sizes are not counted, which is so if the DB is Unbalanced without Cassandra.Counter, the iteration has all
// ranges, and none is Known.
//
// The iteration ends with the first error: listing.ErrNoSuchBucket, or an error of kind InvalidArgument, Unavailable
// (also if the DB is closed, or the counters do not answer), Timeout or Corrupt.
func (db *DB) Sizes(ctx context.Context, bucket string, from []byte) iter.Seq2[Size, error] {
	return func(yield func(Size, error) bool) {
		err := db.ready(ctx, "sizes")
		var id store.BucketID
		if err == nil {
			id, err = db.all.BucketID(ctx, bucket)
		}
		if err == nil {
			db.engine.Names().Remember(id, bucket)
		}
		next := from
		for more := true; more && err == nil; {
			var root *partmap.Root
			if root, err = db.maps().Load(ctx, id); err == nil && root.State == partmap.Deleted {
				err = &listing.Error{Op: "sizes of bucket", Bucket: bucket, Err: listing.ErrNoSuchBucket}
			}
			if err != nil {
				break
			}
			// If the map has changed, and its parts were deleted meanwhile, the iteration goes on with the new map.
			if next, more, err = db.sizes(ctx, root, next, yield); errors.Is(err, mapclient.ErrStale) {
				err = db.ready(ctx, "sizes")
			}
		}
		if err != nil {
			yield(Size{}, err)
		}
	}
}

// sizes calls yield for the ranges of the map of root, from the one with the key from on. The result next is the key
// with which to go on after an error, and more is false if nothing is left or yield wants no more.
func (db *DB) sizes(
	ctx context.Context, root *partmap.Root, from []byte, yield func(Size, error) bool,
) (next []byte, more bool, err error) {
	next = from
	var run []Size
	var parts []store.Partition
	// end passes the ranges of run on, and reports whether the caller wants more.
	end := func() (bool, error) {
		if err := db.count(ctx, run, parts); err != nil {
			return true, err
		}
		for i := range run {
			if !yield(run[i], nil) {
				return false, nil
			}
			next = run[i].End
		}
		run, parts = run[:0], parts[:0]
		return true, nil
	}
	for rg, err := range db.maps().Ranges(ctx, root, from) {
		if err != nil {
			return next, true, err
		}
		run = append(run, Size{
			Start: bytes.Clone(rg.Start), End: bytes.Clone(rg.End), Moving: rg.Phase != partmap.Settled,
		})
		// While a range moves, new rows are counted with the partition to which they are written.
		parts = append(parts, store.Partition{Bucket: root.Bucket, ID: rg.WriteTo()})
		if len(run) < sizesAtOnce {
			continue
		}
		if more, err := end(); err != nil || !more {
			return next, more, err
		}
	}
	_, err = end()
	return next, false, err
}

// maps returns the client of the maps of buckets.
func (db *DB) maps() *mapclient.Client { return mapclient.Of(db.all.Client) }

// count sets the sizes of the ranges in run by what the counters know of their partitions.
func (db *DB) count(ctx context.Context, run []Size, parts []store.Partition) error {
	if err := db.ready(ctx, "sizes"); err != nil || db.all.Counts == nil || len(run) == 0 {
		return err
	}
	stats, err := db.all.Counts.Stats(ctx, parts)
	if err != nil {
		return store.Wrap("ask the counters for sizes", err)
	}
	for i := range run {
		x, s := &run[i], &stats[i]
		x.Rows, x.Bytes = s.Rows, s.Bytes
		x.Known = s.Known && s.Covers(x.Start, x.End)
	}
	return nil
}
