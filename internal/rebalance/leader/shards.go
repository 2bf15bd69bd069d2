package leader

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/evenkeel/evenkeel/internal/rebalance/shard"
	"github.com/evenkeel/evenkeel/internal/wait"
	"github.com/evenkeel/evenkeel/store"
)

// The work of a store is divided into 16 shards, each with a record and a lease of its own. So the capacity grows with
// the number of processes, and the death of one process delays only its own share. An example with three processes:
//
//	a starts alone:   a leads 0 to 15
//	b and c start:    a gives up 15, 14, 13 and so on, one in each lease; b or c takes each at once
//	at rest:          a leads 6 shards, b and c lead 5 each
//	b dies:           its 5 leases end after 15 s; a and c take those shards
//
// No process assigns shards to others: each one reads the records and the number of candidates, and decides for itself
// (spread). Shard 0 uses the record of older programs that know no shards. If such a program holds this record, it
// leads all shards.

// Shards takes part, for this process, in the elections of leaders for one kind of work. Each of the 16 shards (groups
// of buckets) elects a leader of its own. Run and Try must be called from one goroutine. The other methods are safe for
// concurrent use.
type Shards struct {
	o    Options
	live func(ctx context.Context) (int, error)
	of   [shard.Count]*Candidate

	// The fields from here on belong to the goroutine of Run. terms holds functions that end the term of a shard.
	terms    [shard.Count]context.CancelCauseFunc // nil if this process does not lead the shard
	failed   [shard.Count]int                     // consecutive failed attempts to take the shard
	again    [shard.Count]time.Time               // time before which the shard is not tried again
	observed string
	holder   uuid.UUID // the leader of shard 0 that was last observed
	count    int       // number of live candidates
	counted  time.Time
	free     [shard.Count]time.Time // when the shard was first seen free; zero if it is not
	watching []int                  // shards that the last round reads
	r        *rand.Rand

	given    int       // the shard that was given up last
	giving   bool      // the term of given has not ended yet
	gaveAt   time.Time // when it ended; zero once another process leads given
	giveFrom time.Time // time before which no shard is given up
}

// NewShards returns a candidate for the lead of all shards (groups of buckets) of the work o.Work. It neither reads nor
// writes the store. The function live returns the number of processes that are candidates, including this one; each
// should lead an equal share of the shards. If live is nil, only processes that lead shards are counted.
func NewShards(regs store.Registers, o Options, live func(ctx context.Context) (int, error)) *Shards {
	s := &Shards{live: live, r: rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))}
	id := uuid.New()
	for n := range s.of {
		of := o
		if of.Work == "" {
			of.Work = Moves
		}
		of.Work = of.Work.shard(n)
		s.of[n] = New(regs, of)
		s.of[n].id, s.of[n].shards = id, shard.Count
	}
	s.o = s.of[0].o
	return s
}

// Led returns the set of shards (groups of buckets) whose work this process leads now, with leases that are not over.
func (s *Shards) Led() (led shard.Set) {
	for n, c := range s.of {
		if _, leading := c.Leading(); leading {
			led |= shard.Only(n)
		}
	}
	return led
}

// Leader returns the process that leads shard n (one group of buckets). The result known is true if h is set, and mine
// is true if this process leads the shard. This process counts as the leader only while its lease lasts and its work
// has begun.
//
// An old program that knows no shards leads all shards if it holds the record of shard 0.
func (s *Shards) Leader(ctx context.Context, n int) (h Holder, known, mine bool) {
	if h, known, mine = s.of[n].Leader(ctx); known || n == 0 {
		return h, known && (mine || h.ID != s.of[n].id), mine
	}
	h, known, mine = s.of[0].Leader(ctx)
	return h, known && h.Shards != shard.Count, mine && h.Shards != shard.Count
}

// Leaders returns, for each shard (a group of buckets), the process that leads the shard. An element is nil if no
// process leads the shard, or if the leader is not known, e.g. because its record can't be read.
func (s *Shards) Leaders(ctx context.Context) (all [shard.Count]*Holder) {
	var reads sync.WaitGroup
	for n := range s.of {
		reads.Go(func() {
			if h, known, _ := s.Leader(ctx, n); known {
				all[n] = &h
			}
		})
	}
	reads.Wait()
	return all
}

// Run leads an equal share of the shards (groups of buckets) until ctx ends, or all shards while there is no other
// candidate. It calls work for each shard n that this process leads, and the calls run concurrently. If the lease of a
// shard is lost, the context of its call ends with ErrLost, and work must return. Run returns
//   - the result of work, if a call of work returns while its lease holds (Run then ends the other calls), or
//   - Timeout, when ctx ends.
//
// The function observe, if not nil, gets each new failure, and a HeldError for each other leader of shard 0.
func (s *Shards) Run(ctx context.Context, work func(ctx context.Context, n int) error, observe func(error)) error {
	// The leaders' records are read from the nearest data centre only (Local), about each third of a lease. If there
	// are many candidates, each candidate reads only some of the records. A shard that looks free is taken after a
	// random delay, and its record is read again before.
	if observe == nil {
		observe = func(error) {}
	}
	type end struct {
		n   int
		err error
	}
	ended := make(chan end, shard.Count)
	var running sync.WaitGroup
	var result error
	next := time.NewTimer(0)
	defer next.Stop()
	for over := false; !over; {
		select {
		case e := <-ended:
			s.terms[e.n] = nil
			if over = !errors.Is(e.err, ErrLost) && ctx.Err() == nil; over {
				result = e.err
			}
			if s.giving && e.n == s.given {
				s.giving, s.gaveAt = false, time.Now()
			}
		case <-ctx.Done():
			over = true
		case <-next.C:
			for _, n := range s.round(ctx, observe) {
				tctx, stop := context.WithCancelCause(ctx)
				s.terms[n] = stop
				running.Go(func() {
					ended <- end{n, s.of[n].lead(tctx, func(ctx context.Context) error { return work(ctx, n) })}
					stop(nil)
				})
			}
			next.Reset(s.pause())
		}
	}
	s.end(context.Canceled)
	running.Wait()
	s.terms, s.giving = [shard.Count]context.CancelCauseFunc{}, false
	if ctx.Err() != nil {
		return store.Wrap("wait to "+s.o.Work.lead(), context.Cause(ctx))
	}
	return result
}

// end stops this process's work on all shards (groups of buckets) that it leads, by ending the contexts of this work
// with the given cause.
func (s *Shards) end(cause error) {
	for _, stop := range s.terms {
		if stop != nil {
			stop(cause)
		}
	}
}

// round evens out the numbers of shards (groups of buckets) that processes lead. It reads which process leads each
// shard, and lets this process take free shards, or give up one. The result has the numbers of the shards that were
// taken; the caller starts their work. The function observe gets the errors.
func (s *Shards) round(ctx context.Context, observe func(error)) (taken []int) {
	s.watching = s.watched()
	errs := s.look(ctx, s.watching)
	if s.oldLeads() {
		s.end(ErrLost)
		s.tell(errs, observe)
		return nil
	}
	now := time.Now()
	if s.terms[s.given] == nil && s.of[s.given].held() {
		s.gaveAt = time.Time{} // another process has taken the shard
	}
	seen := s.seen(now)
	take, give := spread(seen, s.of[0].id, s.candidates(ctx, now, seen), s.o.Lease*2/3, s.r)
	take = slices.DeleteFunc(take, func(n int) bool { return now.Before(s.again[n]) })
	if give && !s.giving && s.gaveAt.IsZero() && !now.Before(s.giveFrom) {
		s.given, s.giving, s.giveFrom = s.cheapest(), true, now.Add(s.o.Lease)
		s.terms[s.given](ErrLost)
	}
	if len(take) == 0 || wait.Sleep(ctx, wait.Turn(s.o.Lease/6)) != nil {
		s.tell(errs, observe)
		return nil
	}
	errs = s.look(ctx, append([]int{0}, take...))
	if s.oldLeads() {
		return nil
	}
	var acting sync.WaitGroup
	take = slices.DeleteFunc(take, func(n int) bool { return s.of[n].held() })
	for _, n := range take {
		acting.Go(func() { errs[n] = s.of[n].act(ctx, errs[n]) })
	}
	acting.Wait()
	failures := wait.Backoff{First: s.o.Lease / 3, Most: s.o.Lease}
	for _, n := range take {
		if errs[n] != nil {
			s.failed[n]++
			s.again[n] = time.Now().Add(wait.Turn(failures.Pause(s.failed[n])))
			continue
		}
		taken = append(taken, n)
		s.failed[n] = 0
		if n == s.given && !s.gaveAt.IsZero() { // no other process has taken the shard
			s.gaveAt, s.giveFrom = time.Time{}, time.Now().Add(unwanted*s.o.Lease)
		}
	}
	s.tell(errs, observe)
	return taken
}

// unwanted is how long a process waits after it gave up a shard (a group of buckets) that no other process took, as a
// number of lengths of a lease. Only then does it give up another one. The usual cause is a dead process that is still
// listed as a candidate.
const unwanted = 20

// watched returns the shards (groups of buckets) whose leaders' records are read next, in random order. Usually these
// are all shards that this process does not lead. If there are more candidates than shards, a candidate that leads at
// most one shard reads only a few records.
func (s *Shards) watched() (which []int) {
	// It reads as many as let each record be read by two candidates on average.
	led := 0
	for _, n := range s.r.Perm(shard.Count) {
		if s.terms[n] == nil {
			which = append(which, n)
		} else {
			led++
		}
	}
	if s.count > shard.Count && led < 2 {
		which = which[:min(upwards(2*shard.Count, s.count), len(which))]
	}
	return which
}

// look reads the records of the leaders of the shards (groups of buckets) in `which`. It leaves out shards that this
// process leads. Element n of the result is the error of the read for shard n, or nil.
func (s *Shards) look(ctx context.Context, which []int) (errs [shard.Count]error) {
	var looks sync.WaitGroup
	for n := range s.of {
		for _, w := range which {
			if w == n && s.terms[n] == nil {
				looks.Go(func() { errs[n] = s.of[n].look(ctx, store.Local) })
				break
			}
		}
	}
	looks.Wait()
	return errs
}

// oldLeads reports whether a program from before there were shards (groups of buckets) leads. Such a program leads all
// shards at once, so this process must lead none.
func (s *Shards) oldLeads() bool {
	c := s.of[0]
	return s.terms[0] == nil && c.held() && c.known.holder.Shards != shard.Count
}

// seen returns what this process knows, at the time `now`, about the leaders of the shards (groups of buckets). For
// each shard it is the process that leads, or for how long no process has led.
func (s *Shards) seen(now time.Time) *[shard.Count]sighting {
	var seen [shard.Count]sighting
	for n, c := range s.of {
		switch {
		case s.terms[n] != nil:
			seen[n].holder = c.id
		case c.held():
			seen[n].holder = c.known.holder.ID
		case s.free[n].IsZero():
			s.free[n] = now
			continue
		default:
			seen[n].free = now.Sub(s.free[n])
			continue
		}
		s.free[n] = time.Time{}
	}
	return &seen
}

// candidates returns the number of live processes that may lead, which determines the fair share of shards (groups of
// buckets). The parameter seen has what is known about the leader of each shard. The number is read anew
//   - after a third of a lease, if this process leads a shard and another shard has no leader,
//   - after ten minutes, if this process leads at most one shard, since there may be many such processes, or
//   - after 30 s in all other cases.
func (s *Shards) candidates(ctx context.Context, now time.Time, seen *[shard.Count]sighting) int {
	const often, seldom = 30 * time.Second, 10 * time.Minute
	every := often
	switch led := s.Led().Len(); {
	case led > 0 && slices.ContainsFunc(seen[:], func(x sighting) bool { return x.holder == uuid.Nil }):
		every = s.o.Lease / 3 // another process has ended, or died
	case led < 2:
		every = seldom
	}
	if s.live == nil || now.Before(s.counted.Add(every)) {
		return s.count
	}
	if n, err := s.live(ctx); err == nil {
		s.count, s.counted = n, now
	}
	return s.count
}

// cheapest returns the shard (group of buckets) that this process gives up first: the one with the highest number of
// those that it leads. So shard 0 comes last.
func (s *Shards) cheapest() int {
	// The leader of shard 0 also does the work that is done once for all shards.
	for n := shard.Count - 1; n > 0; n-- {
		if s.terms[n] != nil {
			return n
		}
	}
	return 0
}

// tell calls observe if there is news, and never twice with the same news. News is
//   - the first error in errs that is not a Conflict, or
//   - a HeldError, when another process has begun to lead shard 0 (the first group of buckets).
func (s *Shards) tell(errs [shard.Count]error, observe func(error)) {
	for _, err := range errs {
		if err != nil && !errors.Is(err, store.Conflict) {
			if err.Error() != s.observed {
				s.observed = err.Error()
				observe(err)
			}
			return
		}
	}
	s.observed = ""
	if c := s.of[0]; s.terms[0] == nil && c.held() && c.known.holder.ID != s.holder {
		s.holder = c.known.holder.ID
		observe(c.heldError())
	}
}

// pause returns the time until this process reads the leaders' records again: about a third of a lease, or less if the
// lease of another process ends sooner.
func (s *Shards) pause() time.Duration {
	const least, spread = 0.75, 0.5
	pause := time.Duration(float64(s.o.Lease/3) * (least + spread*rand.Float64()))
	for _, n := range s.watching {
		if c := s.of[n]; s.terms[n] == nil && c.held() {
			pause = min(pause, c.leftOfKnown()+time.Millisecond)
		}
	}
	return pause
}

// Try makes this process the leader of all shards (groups of buckets), and runs work. If another process leads a shard,
// Try does not wait for its lease, but fails at once with a *HeldError, of kind Conflict. If a lease is lost, the
// context of work ends with ErrLost, and Try returns ErrLost.
func (s *Shards) Try(ctx context.Context, work func(ctx context.Context) error) error {
	var errs [shard.Count]error
	var taking sync.WaitGroup
	// If several processes try at the same time, shard 0 decides which one goes on.
	if err := s.of[0].take(ctx); err != nil {
		return err
	}
	for n, c := range s.of[1:] {
		taking.Go(func() { errs[n+1] = c.take(ctx) })
	}
	taking.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		for n, c := range s.of {
			if errs[n] == nil {
				taking.Go(func() { c.resign(ctx) })
			}
		}
		taking.Wait()
		for _, err := range errs {
			if err != nil {
				return err
			}
		}
	}
	wctx, stop := context.WithCancelCause(ctx)
	var keeping sync.WaitGroup
	for _, c := range s.of {
		keeping.Go(func() {
			err := c.lead(wctx, func(ctx context.Context) error {
				<-ctx.Done()
				return context.Cause(ctx)
			})
			if errors.Is(err, ErrLost) {
				stop(ErrLost)
			}
		})
	}
	err := work(wctx)
	lost := errors.Is(context.Cause(wctx), ErrLost)
	stop(context.Canceled)
	keeping.Wait()
	if lost {
		return ErrLost
	}
	return err
}
