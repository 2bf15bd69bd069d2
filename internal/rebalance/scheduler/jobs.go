package scheduler

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/evenkeel/evenkeel/internal/rebalance/executor"
	"github.com/evenkeel/evenkeel/internal/rebalance/move"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// Stage is how far a goal has come.
type Stage string

// The stages of a goal. All but the first two are its end.
const (
	Waiting Stage = "waiting"
	Begun   Stage = "begun" // its move is in the map
	Met     Stage = "met"
	Refused Stage = "refused"
	Dropped Stage = "dropped" // by Abort
)

func (s Stage) ended() bool { return s != Waiting && s != Begun }

// GoalState is a goal of a job.
type GoalState struct {
	move.Goal
	Stage Stage  `json:"stage"`
	Batch uint64 `json:"batch,omitempty"` // once it has begun
	// Copied are the rows that its move copied, once it is met.
	Copied             int64 `json:"copied,omitempty"`
	verified, searched int64
	// Err is why it was refused; Error is its text.
	Err   error  `json:"-"`
	Error string `json:"error,omitempty"`
}

// State is how far a job has come.
type State string

// The states of a job; the last two are its end.
const (
	JobWaiting State = "waiting"
	JobRunning State = "running"
	JobDone    State = "done"
	JobFailed  State = "failed"
)

// Job is the moves of one bucket that were submitted together.
type Job struct {
	ID     string         `json:"id"`
	Bucket store.BucketID `json:"-"`
	// Name is the bucket's; the scheduler leaves it empty.
	Name string `json:"bucket"`
	// What is for people: split, merge, …
	What  string    `json:"what"`
	State State     `json:"state"`
	Asked time.Time `json:"asked"`
	Ended time.Time `json:"ended,omitzero"` // zero: not yet
	// Phase is that of its batch in flight that is the least advanced: marking, copying,
	// verifying, draining or sweeping; empty if none is in flight.
	Phase string `json:"phase,omitempty"`
	// Rows that its moves copy by estimate; Copied, Verified and Searched (by the sweep) are
	// those of its batches so far. Until it has ended the rows of other jobs that share its
	// batches count, too.
	Rows     int64       `json:"rows"`
	Copied   int64       `json:"copied"`
	Verified int64       `json:"verified"`
	Searched int64       `json:"searched"`
	Goals    []GoalState `json:"goals"`
	// Error is the text of Err.
	Error string `json:"error,omitempty"`
}

// Err is why a job failed; nil if it succeeded or has not ended.
func (j Job) Err() error {
	for i := range j.Goals {
		switch g := &j.Goals[i]; g.Stage {
		case Refused:
			return g.Err
		case Dropped:
			return store.Errorf(store.Conflict, "dropped before it began")
		}
	}
	return nil
}

// Submit queues a plan's moves and returns their job. A plan without moves is a job that has ended, and one for a
// bucket whose shard was lost is one that has failed.
func (g *Scheduler) Submit(id store.BucketID, what string, p *Plan) Job {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lastJob++
	j := &Job{ID: strconv.FormatUint(g.lastJob, 10), Bucket: id, What: what, Asked: time.Now(), Goals: []GoalState{}}
	for _, m := range p.Moves {
		j.Goals = append(j.Goals, GoalState{Goal: m, Stage: Waiting})
		j.Rows += m.Copies
	}
	if len(p.Moves) == 0 {
		j.Ended = time.Now()
	}
	g.jobs = append(g.jobs, j)
	g.forgetJobs()
	switch {
	case g.lost.Bucket(id):
		g.end(id, p.Moves, errElsewhere)
	case len(p.Moves) > 0:
		b := g.bucket(id)
		b.pending = append(b.pending, p.Moves...)
		b.feed()
		b.want()
		b.again = time.Time{}
		g.tell()
	}
	return g.snapshot(j)
}

// forgetJobs keeps the number of jobs that have ended in bounds. Scheduler.mu is held.
func (g *Scheduler) forgetJobs() {
	ended := 0
	for _, j := range g.jobs {
		if !j.Ended.IsZero() {
			ended++
		}
	}
	g.jobs = slices.DeleteFunc(g.jobs, func(j *Job) bool {
		if ended <= keepJobs || j.Ended.IsZero() {
			return false
		}
		ended--
		return true
	})
}

// Job returns a job by its id; false if there is none, or not any more.
func (g *Scheduler) Job(id string) (Job, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if j := g.jobs.Find(id); j != nil {
		return g.snapshot(j), true
	}
	return Job{}, false
}

// snapshot copies a job with its progress. Scheduler.mu is held.
func (g *Scheduler) snapshot(j *Job) Job {
	s := *j
	s.Goals = slices.Clone(j.Goals)
	if b := g.buckets[j.Bucket]; b != nil && j.Ended.IsZero() {
		s.follow(b.x.Status())
	}
	s.State = JobWaiting
	for i := range s.Goals {
		x := &s.Goals[i]
		if x.Stage != Waiting {
			s.State = JobRunning
		}
		if x.Err != nil {
			x.Error = x.Err.Error()
		}
	}
	if !s.Ended.IsZero() {
		s.State = JobDone
		if err := s.Err(); err != nil {
			s.State, s.Error = JobFailed, err.Error()
		}
	}
	return s
}

// follow adds up the batches of a job. One that is over has copied what it had to.
func (j *Job) follow(s executor.Status) {
	batches := map[uint64]int64{}
	for i := range j.Goals {
		if g := &j.Goals[i]; g.Stage != Waiting && g.Stage != Met && g.Batch > 0 {
			batches[g.Batch] += g.Copies
		}
	}
	for i := range j.Goals {
		// The rows of one that shares a batch in flight are among the batch's.
		if _, shares := batches[j.Goals[i].Batch]; !shares {
			j.add(&j.Goals[i])
		}
	}
	var first *partmap.Phase
	for id, rows := range batches {
		at := slices.IndexFunc(s.Batches, func(b executor.BatchStatus) bool { return b.ID == id })
		if at < 0 {
			j.Copied, j.Verified, j.Searched = j.Copied+rows, j.Verified+rows, j.Searched+rows
			continue
		}
		b := &s.Batches[at]
		j.Copied += b.Progress.Copied
		j.Verified += b.Progress.Compared
		j.Searched += b.Progress.Searched
		if phase := b.Phase; first == nil || order(phase) < order(*first) {
			first = &phase
		}
	}
	if first != nil {
		j.Phase = PhaseName(*first)
	}
}

// add adds what was done for a goal.
func (j *Job) add(g *GoalState) {
	j.Copied, j.Verified, j.Searched = j.Copied+g.Copied, j.Verified+g.verified, j.Searched+g.searched
}

// order is how far a batch in flight has come: settled ones have their sweep to go.
func order(p partmap.Phase) int {
	if p == partmap.Settled {
		return 1 << 8
	}
	return int(p)
}

// PhaseName names the phase of a batch in flight, for people: one that has settled is
// sweeping.
func PhaseName(p partmap.Phase) string {
	if p == partmap.Settled {
		return "sweeping"
	}
	return p.String()
}

// goal changes the states of a goal in all jobs that want it. Scheduler.mu is held.
func (g *Scheduler) goal(id store.BucketID, goal *move.Goal, change func(*GoalState)) {
	g.jobs.Change(id, goal, time.Now(), func(j *Job, s *GoalState) {
		before := s.Stage
		if change(s); s.Stage != before && g.o.Moved != nil {
			g.o.Moved(j, s)
		}
	})
}

// Jobs are those that a mover knows, from the oldest.
type Jobs []*Job

// Find returns a job by its id; nil: there is none.
func (js Jobs) Find(id string) *Job {
	if i := slices.IndexFunc(js, func(j *Job) bool { return j.ID == id }); i >= 0 {
		return js[i]
	}
	return nil
}

// Change changes the states of a bucket's goal in all jobs that want it and have not seen its end.
func (js Jobs) Change(id store.BucketID, goal *move.Goal, now time.Time, change func(*Job, *GoalState)) {
	for _, j := range js {
		if j.Bucket != id || !j.Ended.IsZero() {
			continue
		}
		over := true
		for i := range j.Goals {
			s := &j.Goals[i]
			if !s.Stage.ended() && s.Goal.Equal(goal) {
				change(j, s)
			}
			over = over && s.Stage.ended()
		}
		if over {
			j.Ended = now
			for i := range j.Goals {
				j.add(&j.Goals[i])
			}
		}
	}
}

// Waiting reports whether there are goals for a bucket that have not begun.
func (js Jobs) Waiting(id store.BucketID) bool {
	return slices.ContainsFunc(js, func(j *Job) bool {
		return j.Bucket == id && j.Ended.IsZero() &&
			slices.ContainsFunc(j.Goals, func(s GoalState) bool { return s.Stage == Waiting })
	})
}

// InFlight are how many partitions take part in the moves of jobs that have not ended, and the rows that those have
// still to copy.
func (js Jobs) InFlight() (partitions int, rows int64) {
	for _, j := range js {
		if !j.Ended.IsZero() {
			continue
		}
		for i := range j.Goals {
			if s := &j.Goals[i]; !s.Stage.ended() && s.Copies > 0 {
				partitions += len(s.Cuts) + 2
				rows += s.Copies
			}
		}
	}
	return partitions, rows
}

// end refuses goals. Scheduler.mu is held.
func (g *Scheduler) end(id store.BucketID, goals []move.Goal, err error) {
	for i := range goals {
		g.goal(id, &goals[i], func(s *GoalState) { s.Stage, s.Err = Refused, err })
	}
}

// Held reports whether a bucket is not to be judged now: it is paused, or there are
// goals for it that have not begun.
func (g *Scheduler) Held(id store.BucketID) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	_, paused := g.gate.Paused(&g.pauses, id)
	return paused || g.jobs.Waiting(id)
}

// InFlight is that of the jobs of buckets that this process moves now.
func (g *Scheduler) InFlight() (partitions int, rows int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	var led Jobs
	for _, j := range g.jobs {
		if g.term(j.Bucket) != nil {
			led = append(led, j)
		}
	}
	return led.InFlight()
}

// CountedFor is how many rows may be counted, or swept over, in the time in which one may
// be moved.
const CountedFor = 3

// Pace returns when so many rows may be counted. That is not slowed down while the
// store is slow, as moves are: it reads one page after the other, and what should be
// split is found by it.
func (g *Scheduler) Pace(ctx context.Context, rows int) error { return g.counting.Take(ctx, rows) }
