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
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/wait"
)

// The work of a store is divided into 16 shards, each with a record and a lease of its own, so that its capacity grows
// with the processes, and the death of one process delays its own share only. An example with three processes:
//
//	a starts alone:   a leads 0 to 15
//	b and c start:    a gives up 15, 14, 13 and so on, one in each lease; b or c takes each at once
//	at rest:          a leads 6 shards, b and c lead 5 each
//	b dies:           its 5 leases end after 15 s; a and c take those shards
//
// Nobody assigns shards: each process reads the records and the number of candidates, and decides for itself (spread).
// The record of shard 0 is the one that programs had which knew no shards. Where such a program holds it, it leads all.

// Shards is a candidate for the 16 shards of a work. Run and Try are for one goroutine; the other methods are safe for
// concurrent use.
type Shards struct {
	o    Options
	live func(ctx context.Context) (int, error)
	of   [shard.Count]*Candidate

	// Of the goroutine of Run.
	terms    [shard.Count]context.CancelCauseFunc // nil: it does not lead the shard
	failed   [shard.Count]int                     // attempts to take it in a row
	again    [shard.Count]time.Time               // not to be taken before
	observed string
	holder   uuid.UUID // of shard 0, as it was observed last
	count    int       // of live candidates
	counted  time.Time
	free     [shard.Count]time.Time // since when it has been seen free; zero: it is not
	watching []int                  // what the last round looked at
	r        *rand.Rand

	given    int       // the shard that was given up last
	giving   bool      // its term has not ended
	gaveAt   time.Time // when it had; zero: another one has taken it since
	giveFrom time.Time // none is given up before
}

// NewShards makes a candidate for shards. It does no I/O. live returns the number of processes that are candidates,
// this one included. If live is nil, the processes that hold shards are taken for all candidates.
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

// Led returns the shards that this process leads.
func (s *Shards) Led() (led shard.Set) {
	for n, c := range s.of {
		if _, leading := c.Leading(); leading {
			led |= shard.Only(n)
		}
	}
	return led
}

// Leader returns who leads a shard, if that is known, and whether it is this process. Where the leader of shard 0 knows
// no shards, it leads all. A lease of this process that is over, or whose term has not begun, does not count.
func (s *Shards) Leader(ctx context.Context, n int) (h Holder, known, mine bool) {
	if h, known, mine = s.of[n].Leader(ctx); known || n == 0 {
		return h, known && (mine || h.ID != s.of[n].id), mine
	}
	h, known, mine = s.of[0].Leader(ctx)
	return h, known && h.Shards != shard.Count, mine && h.Shards != shard.Count
}

// Leaders returns who leads each shard; nil: nobody, or it is not known.
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

// Run leads shards until ctx ends: an equal share of them, or all while there is no other candidate. It calls work
// for each shard that this process leads, for all of them at the same time. The context of a call ends when the lease
// of its shard is lost, with the cause ErrLost; work must return then. If work returns while its lease holds, Run
// ends the other calls and returns that result. When ctx ends Run returns Timeout. observe, if it is not nil, gets
// each new failure, and a HeldError for each other leader of shard 0.
//
// The records are read at Local only, about each third of a lease; where there are many candidates each reads some of
// the records. What looks free is taken in a random turn, and is looked at again before.
func (s *Shards) Run(ctx context.Context, work func(ctx context.Context, n int) error, observe func(error)) error {
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

// end ends the terms of all shards that this process leads.
func (s *Shards) end(cause error) {
	for _, stop := range s.terms {
		if stop != nil {
			stop(cause)
		}
	}
}

// round looks who leads, and takes shards or gives one up. It returns those taken.
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
		s.gaveAt = time.Time{} // another one has taken it
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
		if n == s.given && !s.gaveAt.IsZero() { // nobody else wanted it
			s.gaveAt, s.giveFrom = time.Time{}, time.Now().Add(unwanted*s.o.Lease)
		}
	}
	s.tell(errs, observe)
	return taken
}

// unwanted is for how many leases no shard is given up after one that nobody else took: a candidate that has died stays
// in the list for a while.
const unwanted = 20

// watched draws the shards that the next round looks at: all that this process does not lead. Where there are more
// candidates than shards, a candidate with at most one shard looks at a few, so that on average two candidates look
// at each shard.
func (s *Shards) watched() (which []int) {
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

// look reads who leads some shards, and returns the errors.
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

// oldLeads reports whether a program leads that knows no shards: it leads all.
func (s *Shards) oldLeads() bool {
	c := s.of[0]
	return s.terms[0] == nil && c.held() && c.known.holder.Shards != shard.Count
}

// seen returns what is known of all shards.
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

// candidates returns the number of live candidates. It is asked for seldom by those that lead no more than one shard,
// of which there may be many.
func (s *Shards) candidates(ctx context.Context, now time.Time, seen *[shard.Count]sighting) int {
	const often, seldom = 30 * time.Second, 10 * time.Minute
	every := often
	switch led := s.Led().Len(); {
	case led > 0 && slices.ContainsFunc(seen[:], func(x sighting) bool { return x.holder == uuid.Nil }):
		every = s.o.Lease / 3 // somebody has ended, or died
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

// cheapest is the shard to give up: not 0, with which goes what is done once for all.
func (s *Shards) cheapest() int {
	for n := shard.Count - 1; n > 0; n-- {
		if s.terms[n] != nil {
			return n
		}
	}
	return 0
}

// tell passes what is new to observe: the first of the errors, and another leader of shard 0.
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

// pause returns the time until the next round: about a third of the lease, or less if a lease that was looked at is
// over before.
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

// Try leads all shards and runs work if nobody else leads any. Otherwise it fails with a *HeldError (Conflict). When a
// lease is lost work's context ends with ErrLost, which Try returns.
func (s *Shards) Try(ctx context.Context, work func(ctx context.Context) error) error {
	var errs [shard.Count]error
	var taking sync.WaitGroup
	// Of several that try, shard 0 says which one goes on.
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
