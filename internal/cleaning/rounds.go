package cleaning

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/evenkeel/evenkeel/internal/care"
	"github.com/evenkeel/evenkeel/internal/hints"
	"github.com/evenkeel/evenkeel/internal/rebalance/shard"
	"github.com/evenkeel/evenkeel/internal/wait"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
)

// rounds runs one round of cleaning after the other over the buckets of some shards, which are groups of buckets. A
// round looks once at each bucket. If several processes share a store, each shard has its own rounds; otherwise the
// rounds are over all shards. The position of a round is stored, so that another process can go on with it.
//
// With rounds of its own, a shard is begun soon by the process that gains it, even while another shard has a bucket
// that takes a day.
type rounds struct {
	c  *Cleaning
	of shard.Set
	// cleaners has the cleaners of all buckets. They are kept from round to round, since a cleaner remembers since when
	// it knows the settings of its bucket.
	cleaners map[store.BucketID]*bucketCleaner
	place    place // the position of the round
	mode     mode  // what the present round looks at
	// lastAll is the beginning of the last round that read all rows and wrote hints for all objects that may have
	// something to delete later. It is zero if there was no such round, or if a process may have written objects
	// without hints since then.
	lastAll time.Time
	hinted  map[store.BucketID]care.Cleaner // cleaners that follow hints

	// aged counts how often each bucket was seen with lifecycle rules that delete by age, which hints do not cover. The
	// count is removed after a pass over all rows of the bucket that has written hints for everything that is due
	// later.
	aged      map[store.BucketID]int
	since     time.Time // when this process began with these shards; zero: it does not clean them
	last, now *Round
	paused    bool           // the last round has left buckets out
	byHints   Round          // the results of following hints since the last whole round
	position  hints.Position // behind the last hint that was followed
	followed  time.Time      // when all hints that were due had been followed
}

type bucketCleaner struct {
	care.Cleaner
	// report and later are the callbacks of the pass under way: see care.CleanOptions.Report and Later.
	report func(care.Cleaned)
	later  func(key []byte, after time.Duration)
}

// run runs one round of cleaning after the other, each after a pause of Options.Every, until ctx ends.
func (s *rounds) run(ctx context.Context) {
	s.begin(time.Now().UTC())
	defer s.begin(time.Time{})
	s.place, s.lastAll = s.recallPlace(ctx), s.recallAll(ctx)
	if s.c.o.Hints != nil && !s.lastAll.IsZero() && s.unfollowed(ctx) {
		s.keepAll(ctx, time.Time{})
	}
	for pause := min(s.c.o.Every, firstRound); wait.Sleep(ctx, pause) == nil; pause = s.c.o.Every {
		s.round(ctx)
	}
}

func (s *rounds) begin(since time.Time) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.since = since
}

// round runs one round of cleaning, which looks once at each bucket of the shards of s. Shards are groups of buckets.
func (s *rounds) round(ctx context.Context) {
	c, r := s.c, &Round{Began: time.Now().UTC()}
	m := s.nextMode(ctx)
	c.mu.Lock()
	s.now, s.mode = r, m
	c.mu.Unlock()
	if m.handsOver && !s.place.All {
		s.place = place{} // begin anew: no hints were written for the buckets before the place
	}
	paused, err := s.buckets(ctx, r)
	if err != nil && ctx.Err() == nil {
		c.failed(r, 1, map[store.Kind]int64{store.KindOf(err): 1}, err)
		c.o.Log.Warn("buckets of objects could not all be cleaned; it is tried again", "error", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s.now = nil
	if ctx.Err() != nil {
		return
	}
	if paused && err == nil && !c.anyPaused() {
		c.o.Log.Info("buckets of objects are not cleaned while moves are paused")
	}
	s.paused = paused
	if err != nil || paused {
		return
	}
	r.Ended = time.Now().UTC()
	s.byHints.Began, s.byHints.Ended = r.Began, r.Ended
	r = r.and(&s.byHints)
	s.last, s.byHints = r, Round{}
	c.sums.rounds += float64(s.of.Len()) / shard.Count
	level := slog.LevelInfo
	if r.Burned+r.Deleted+r.Failed == 0 {
		level = slog.LevelDebug
	}
	c.o.Log.Log(ctx, level, "buckets of objects are cleaned", "shards", s.of.List(), "all rows", m.all,
		"buckets", r.Buckets, "rows", r.Rows, "burned", r.Burned, "deleted", r.Deleted, "bytes", r.Bytes,
		"waiting", r.Waiting, "failed", r.Failed, "took", r.Ended.Sub(r.Began).Round(time.Millisecond))
}

// buckets cleans the buckets of the shards of s, in the order of their names, and adds the numbers of what was done to
// r. It begins at the position where the current round was interrupted. The result paused is true if a bucket was left
// out because an operator has paused its moves.
func (s *rounds) buckets(ctx context.Context, r *Round) (paused bool, err error) {
	there := map[store.BucketID]bool{}
	from := s.place // perhaps of another process
	wanted := func(info listing.BucketInfo) bool {
		if !s.of.Bucket(info.ID) {
			return false
		}
		there[info.ID] = true
		return info.Name >= from.Bucket
	}
	paused, listed, err := s.c.each(ctx, "clean", wanted, func(ctx context.Context, b *bucket) error {
		return s.pass(ctx, b, r)
	})
	for id := range s.cleaners {
		if listed && !there[id] {
			delete(s.cleaners, id)
		}
	}
	s.c.mu.Lock()
	for id := range s.aged {
		if listed && !there[id] {
			delete(s.aged, id)
		}
	}
	s.c.mu.Unlock()
	if listed && ctx.Err() == nil {
		s.movePlace(ctx, place{})
		if s.mode.handsOver && !paused && err == nil {
			// The hints have to be stored before the round counts.
			if err = s.c.o.Hints.Flush(ctx); err == nil {
				s.keepAll(ctx, r.Began)
			}
		}
	}
	return paused, err
}

// pass cleans one bucket once, as a step of a round of cleaning, and adds the numbers of what it has done to r.
func (s *rounds) pass(ctx context.Context, b *bucket, r *Round) error {
	c := s.c
	byAge, err := b.ByAge(ctx) // no hint leads to what such rules delete
	if err != nil {
		return err
	}
	if byAge {
		s.aging(b.id)
	}
	c.mu.Lock()
	aged := s.aged[b.id]
	c.mu.Unlock()
	handsOver := !byAge && (s.mode.handsOver || !s.mode.all) // else the next round looks at all rows anyway
	cleaner := s.cleaners[b.id]
	if cleaner == nil {
		made := &bucketCleaner{}
		made.Cleaner, err = b.Cleaner(care.CleanOptions{
			Pacer: c.pacer, Report: func(now care.Cleaned) { made.report(now) },
			Later: func(key []byte, after time.Duration) { made.later(key, after) },
		})
		if err != nil {
			return err
		}
		cleaner = made
		s.cleaners[b.id] = cleaner
	}
	from := ""
	if s.place.ID == b.id {
		from = s.place.Next
	}
	var before care.Cleaned
	cleaner.report = func(now care.Cleaned) {
		c.count(r, before, now)
		before = now
		s.movePlace(ctx, place{b.name, b.id, cmp.Or(now.Next, from), s.mode.handsOver, s.place.kept})
	}
	cleaner.later = func(key []byte, after time.Duration) {
		if handsOver {
			c.o.Hints.Note(b.id, key, after)
		}
	}
	var did care.Cleaned
	if s.mode.all || aged > 0 {
		did, err = cleaner.PassFrom(ctx, from)
	} else {
		did, err = cleaner.PassUploads(ctx)
	}
	cleaner.report(did)
	if s.mode.byHints && !byAge {
		c.mu.Lock()
		c.sums.overdue += did.Overdue
		c.mu.Unlock()
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if did.FirstFailure != nil {
		c.o.Log.Warn("some steps of cleaning failed; they are due again", "bucket", b.name, "steps", did.Failed,
			"error", did.FirstFailure)
		c.failed(r, did.Failed, did.Reasons, did.FirstFailure)
	}
	if err == nil {
		c.mu.Lock()
		if r.Buckets++; handsOver && from == "" && s.aged[b.id] == aged {
			delete(s.aged, b.id)
		}
		c.mu.Unlock()
	}
	return err
}

// sum returns the state of cleaning in the shards led, which are groups of buckets, as if they were one shard.
// Status.Now is the sum of their rounds under way. Status.Last is the sum of their last whole rounds, or nil if a shard
// has had no whole round. The caller holds Cleaning.mu.
func (c *Cleaning) sum(led shard.Set) (sum Status) {
	whole := true
	for _, s := range c.rounds {
		if s.of&led == 0 {
			continue
		}
		whole = whole && s.last != nil
		if !s.since.IsZero() && (sum.Since.IsZero() || s.since.Before(sum.Since)) {
			sum.Since = s.since
		}
		sum.Paused = sum.Paused || s.paused
		sum.Last, sum.Now = sum.Last.and(s.last), sum.Now.and(s.now)
	}
	if !whole {
		sum.Last = nil
	}
	return sum
}

// anyPaused reports whether the last round of cleaning left out a bucket because an operator has paused its moves. The
// caller holds Cleaning.mu.
func (c *Cleaning) anyPaused() bool { return c.sum(shard.All).Paused }

// and returns the sum of the results of two rounds over different buckets. The times of the sum are the earlier times
// of the two. Either round may be nil, and the sum of two nil rounds is nil.
func (r *Round) and(more *Round) *Round {
	if more == nil {
		return r
	}
	sum := *more
	if r == nil {
		return &sum
	}
	if r.Began.Before(sum.Began) {
		sum.Began = r.Began
	}
	if r.Ended.Before(sum.Ended) {
		sum.Ended = r.Ended
	}
	sum.Buckets, sum.Rows = sum.Buckets+r.Buckets, sum.Rows+r.Rows
	sum.Burned, sum.Deleted, sum.Bytes = sum.Burned+r.Burned, sum.Deleted+r.Deleted, sum.Bytes+r.Bytes
	sum.Waiting, sum.Remembered = sum.Waiting+r.Waiting, sum.Remembered+r.Remembered
	sum.Failed, sum.Error = sum.Failed+r.Failed, cmp.Or(r.Error, sum.Error)
	return &sum
}

// key returns the key of the register, a small value in the store, in which the position of the current round of
// cleaning is stored.
func (s *rounds) key() string { return s.keyOf(placeKey) }

// keyOf returns the key of a register, a small value in the store, that belongs to these rounds. Each shard (group of
// buckets) has its own register, whose key is name and the shard's number. For shard 0, and in an embedded store, the
// key is name alone, as in older programs, where one process cleans all buckets.
func (s *rounds) keyOf(name string) string {
	if n := s.of.List()[0]; n > 0 {
		return fmt.Sprintf("%s-%d", name, n)
	}
	return name
}
