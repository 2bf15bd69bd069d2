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

// Stage says how far a goal has come. A goal is one wanted change of a bucket's ranges. It waits, then begins, and ends
// in one of three ways (met, refused, dropped).
type Stage string

// The stages of a goal, which is one wanted change of a bucket's ranges. All but the first two are ends.
const (
	Waiting Stage = "waiting"
	Begun   Stage = "begun" // its move is in the map
	Met     Stage = "met"
	Refused Stage = "refused"
	Dropped Stage = "dropped" // by Abort
)

// ended reports whether a goal, which is one wanted change of ranges, has ended at stage s: it was met, refused or
// dropped.
func (s Stage) ended() bool { return s != Waiting && s != Begun }

// GoalState is one of the wanted changes of a bucket's ranges (goals) that were submitted together as a job. It says
// how far the change has come.
type GoalState struct {
	move.Goal
	Stage Stage  `json:"stage"`
	Batch uint64 `json:"batch,omitempty"` // the batch of its move, once it has begun
	// Copied is the number of rows that the move of the goal copied, once the goal is met.
	Copied             int64 `json:"copied,omitempty"`
	verified, searched int64
	// Err is why the goal was refused. Error is its text.
	Err   error  `json:"-"`
	Error string `json:"error,omitempty"`
}

// State says how far a job, which is a group of moves, has come.
type State string

// The states of a job. A job that is done or failed has ended.
const (
	JobWaiting State = "waiting"
	JobRunning State = "running"
	JobDone    State = "done"
	JobFailed  State = "failed"
)

// Job is a group of moves in one bucket that were submitted together.
type Job struct {
	ID     string         `json:"id"`
	Bucket store.BucketID `json:"-"`
	// Name is the name of the bucket. The scheduler leaves it empty.
	Name string `json:"bucket"`
	// What says for people what the job does: split, merge, …
	What  string    `json:"what"`
	State State     `json:"state"`
	Asked time.Time `json:"asked"`
	Ended time.Time `json:"ended,omitzero"` // zero: not yet
	// Phase is the phase of the least advanced batch in flight of the job: marking, copying, verifying, draining or
	// sweeping. It is empty if no batch is in flight.
	Phase string `json:"phase,omitempty"`
	// Rows is the estimated number of rows that the moves of the job copy. Copied, Verified and Searched (by the sweep)
	// are the numbers of rows in its batches so far. Until the job has ended, they include rows of other jobs that
	// share its batches.
	Rows     int64       `json:"rows"`
	Copied   int64       `json:"copied"`
	Verified int64       `json:"verified"`
	Searched int64       `json:"searched"`
	Goals    []GoalState `json:"goals"`
	// Error is the text of Err.
	Error string `json:"error,omitempty"`
}

// Err returns the error of a job (a group of moves) that has failed. nil: the job has succeeded, or has not ended.
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

// Submit queues the moves of the plan p and returns their job. what says for people what the job does. A plan without
// moves returns a job that has ended. The job has failed at once if another process moves the bucket now, since this
// one has lost its lease.
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

// forgetJobs removes the oldest ended jobs until keepJobs of them are left. The caller holds Scheduler.mu.
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

// Job returns the job, which is a group of moves, with the given id. False: there is no such job, or it was forgotten.
func (g *Scheduler) Job(id string) (Job, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if j := g.jobs.Find(id); j != nil {
		return g.snapshot(j), true
	}
	return Job{}, false
}

// snapshot returns a copy of the job j, which is a group of moves, with its present progress. The caller holds
// Scheduler.mu.
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

// follow updates the progress of a job from the status s of its bucket. A job's rows are summed over its batches, which
// are moves that go through their phases together. A batch that is not in s any more has ended, and counts with all
// rows that it had to copy.
func (j *Job) follow(s executor.Status) {
	batches := map[uint64]int64{}
	for i := range j.Goals {
		if g := &j.Goals[i]; g.Stage != Waiting && g.Stage != Met && g.Batch > 0 {
			batches[g.Batch] += g.Copies
		}
	}
	for i := range j.Goals {
		// The rows of a goal that shares a batch in flight are among the rows of the batch.
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

// add adds the rows that one move has worked on to those of the job. g is the wanted change of ranges (goal) that the
// move fulfils. The rows copied, compared and searched are added.
func (j *Job) add(g *GoalState) {
	j.Copied, j.Verified, j.Searched = j.Copied+g.Copied, j.Verified+g.verified, j.Searched+g.searched
}

// order returns a number by which moves can be compared: how far they have come. p is the phase of the move. Settled
// counts as the highest, since such a move has only markers left to delete.
func order(p partmap.Phase) int {
	if p == partmap.Settled {
		return 1 << 8
	}
	return int(p)
}

// PhaseName returns the name of the phase of a move in flight, for people. The phase Settled is called sweeping, since
// only the markers of the move are still to be deleted.
func PhaseName(p partmap.Phase) string {
	if p == partmap.Settled {
		return "sweeping"
	}
	return p.String()
}

// goal changes the state of a goal, which is one wanted change of a bucket's ranges, in all jobs that have it. If the
// goal has reached another stage, Options.Moved is told. The caller holds Scheduler.mu.
func (g *Scheduler) goal(id store.BucketID, goal *move.Goal, change func(*GoalState)) {
	g.jobs.Change(id, goal, time.Now(), func(j *Job, s *GoalState) {
		before := s.Stage
		if change(s); s.Stage != before && g.o.Moved != nil {
			g.o.Moved(j, s)
		}
	})
}

// Jobs are the jobs (groups of moves) that a mover knows, from the oldest to the newest.
type Jobs []*Job

// Find returns the job, which is a group of moves, with the given id. nil: there is no such job.
func (js Jobs) Find(id string) *Job {
	if i := slices.IndexFunc(js, func(j *Job) bool { return j.ID == id }); i >= 0 {
		return js[i]
	}
	return nil
}

// Change changes the state of a goal, which is one wanted change of a bucket's ranges. It calls change for each job of
// the bucket that has the goal, unless the goal has ended there. If all goals of a job have ended then, the job ends at
// the time now.
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

// Waiting reports whether moves were submitted for a bucket that have not begun.
func (js Jobs) Waiting(id store.BucketID) bool {
	return slices.ContainsFunc(js, func(j *Job) bool {
		return j.Bucket == id && j.Ended.IsZero() &&
			slices.ContainsFunc(j.Goals, func(s GoalState) bool { return s.Stage == Waiting })
	})
}

// InFlight returns how much is moved by the jobs that have not ended, as an estimate. partitions is the number of
// partitions that take part. rows is the number of rows to copy. Moves that copy nothing do not count.
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

// end marks goals of a bucket as refused because of the error err. A goal is one wanted change of ranges. The caller
// holds Scheduler.mu.
func (g *Scheduler) end(id store.BucketID, goals []move.Goal, err error) {
	for i := range goals {
		g.goal(id, &goals[i], func(s *GoalState) { s.Stage, s.Err = Refused, err })
	}
}

// Held reports whether nothing must be decided about a bucket now. Its moves are paused, or moves that were submitted
// for it have not begun.
func (g *Scheduler) Held(id store.BucketID) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	_, paused := g.gate.Paused(&g.pauses, id)
	return paused || g.jobs.Waiting(id)
}

// InFlight returns how much is moved in the buckets that this process moves now, as an estimate. partitions is the
// number of partitions that take part, rows the number of rows to copy.
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

// CountedFor is the number of rows that may be read in the time in which one row may be moved. These are reads that
// count rows, or look for markers to delete.
const CountedFor = 3

// Pace waits until the given number of rows may be read to count them. Counting, unlike moves, is not slowed down while
// the store is slow: it reads one page after the other, and it finds what should be split.
func (g *Scheduler) Pace(ctx context.Context, rows int) error { return g.counting.Take(ctx, rows) }
