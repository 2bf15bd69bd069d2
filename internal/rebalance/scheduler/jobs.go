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

// Stage says how far a goal, which is one wanted change of a bucket's ranges, has come. A goal waits, begins, and ends
// in one of three ways: met, refused or dropped.
type Stage string

// These are the stages of a goal, which is one wanted change of a bucket's ranges. At the last three stages the goal
// has ended.
const (
	Waiting Stage = "waiting"
	Begun   Stage = "begun" // the bucket's map has the move of the goal
	Met     Stage = "met"
	Refused Stage = "refused"
	Dropped Stage = "dropped" // given up by Scheduler.Abort before it began
)

// ended reports whether a goal at stage s has ended: the wanted change of ranges was made, refused or given up.
func (s Stage) ended() bool { return s != Waiting && s != Begun }

// GoalState is one wanted change of a bucket's ranges (a goal) in a job, and says how far the change has come.
type GoalState struct {
	move.Goal
	Stage Stage  `json:"stage"`
	Batch uint64 `json:"batch,omitempty"` // the batch (group of moves) of the goal's move, once the move has begun
	// Copied is the number of rows that were copied to fulfil the goal. Copied is set when the goal is met.
	Copied             int64 `json:"copied,omitempty"`
	verified, searched int64
	// Err is the reason why the goal was refused, or nil. Error is the text of Err.
	Err   error  `json:"-"`
	Error string `json:"error,omitempty"`
}

// State says how far a job, which is a group of moves submitted together, has come, e.g. "running".
type State string

// These are the states of a job, which is a group of moves. A job that is done or failed has ended.
const (
	JobWaiting State = "waiting"
	JobRunning State = "running"
	JobDone    State = "done"
	JobFailed  State = "failed"
)

// Job is a group of moves in one bucket that were submitted together, e.g. by one request of an operator.
type Job struct {
	ID     string         `json:"id"`
	Bucket store.BucketID `json:"-"`
	// Name is the name of the bucket. The scheduler does not know the name and leaves it empty.
	Name string `json:"bucket"`
	// What says for people what the job does, e.g. split or merge.
	What  string    `json:"what"`
	State State     `json:"state"`
	Asked time.Time `json:"asked"`
	Ended time.Time `json:"ended,omitzero"` // zero if the job has not ended
	// Phase is the phase of the job's least advanced batch (group of moves) under way: marking, copying, verifying,
	// draining or sweeping. Phase is empty if no batch is under way.
	Phase string `json:"phase,omitempty"`
	// Rows is the estimated number of rows that the moves of the job copy. Copied, Verified and Searched are the
	// numbers of rows that were copied, compared, and searched for leftover markers so far. Until the job has ended,
	// they include rows of other jobs whose moves are in the same batches.
	Rows     int64       `json:"rows"`
	Copied   int64       `json:"copied"`
	Verified int64       `json:"verified"`
	Searched int64       `json:"searched"`
	Goals    []GoalState `json:"goals"`
	// Error is the text of the error that the method Err returns, or empty if Err returns nil.
	Error string `json:"error,omitempty"`
}

// Err returns the error of the first move of the job that was refused or given up. The result is nil if no move was. As
// long as the job has not ended, that may still change.
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

// Submit queues the moves of a plan for a bucket, and returns a job, by which the caller can follow the moves. The
// parameter what says for people what the job does. In two cases the job has ended at once:
//   - The plan has no moves: the job is done.
//   - This process has lost the lease of the bucket to another process: the job has failed.
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

// forgetJobs removes the oldest ended jobs (groups of moves) until 100 ended jobs (keepJobs) are left. The caller holds
// Scheduler.mu.
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

// Job returns the job, which is a group of moves, with the given id. The boolean result is false if there is no such
// job, or if the job ended long ago and was forgotten.
func (g *Scheduler) Job(id string) (Job, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if j := g.jobs.Find(id); j != nil {
		return g.snapshot(j), true
	}
	return Job{}, false
}

// snapshot returns a copy of the job j, which is a group of moves, with its present state and numbers of rows. The
// caller holds Scheduler.mu.
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

// follow updates the phase and the numbers of rows of a job from the status s of its bucket. The numbers are summed
// over the job's batches, which are moves that go through their phases together. A batch that is missing in s has
// ended, and counts with all rows that it had to copy.
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

// add adds the rows that were copied, compared and searched for the goal g to the numbers of the job. A goal is one
// wanted change of ranges.
func (j *Job) add(g *GoalState) {
	j.Copied, j.Verified, j.Searched = j.Copied+g.Copied, j.Verified+g.verified, j.Searched+g.searched
}

// order returns a number that says how far a move in phase p has come, so that moves can be compared. The phase Settled
// has the highest number, since only markers are left to delete then.
func order(p partmap.Phase) int {
	if p == partmap.Settled {
		return 1 << 8
	}
	return int(p)
}

// PhaseName returns the name of the phase of a move under way, for people, e.g. "copying". The phase Settled is called
// "sweeping", since only the markers of the move are still to be deleted.
func PhaseName(p partmap.Phase) string {
	if p == partmap.Settled {
		return "sweeping"
	}
	return p.String()
}

// goal changes the state of one wanted change of a bucket's ranges (a goal), in all jobs that want it. It calls the
// function change with each of these states. If the goal has reached another stage, it also calls Options.Moved. The
// caller holds Scheduler.mu.
func (g *Scheduler) goal(id store.BucketID, goal *move.Goal, change func(*GoalState)) {
	g.jobs.Change(id, goal, time.Now(), func(j *Job, s *GoalState) {
		before := s.Stage
		if change(s); s.Stage != before && g.o.Moved != nil {
			g.o.Moved(j, s)
		}
	})
}

// Jobs are the jobs (groups of moves) that a scheduler knows, from the oldest to the newest.
type Jobs []*Job

// Find returns the job (group of moves) with the given id, or nil if there is no such job.
func (js Jobs) Find(id string) *Job {
	if i := slices.IndexFunc(js, func(j *Job) bool { return j.ID == id }); i >= 0 {
		return js[i]
	}
	return nil
}

// Change calls the function change for each job of a bucket in which the given goal, which is one wanted change of
// ranges, has not ended. If all goals of a job have ended after that, the job ends, too. The parameter `now` is the
// present time.
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

// Waiting reports whether a bucket has moves that were submitted and have not begun.
func (js Jobs) Waiting(id store.BucketID) bool {
	return slices.ContainsFunc(js, func(j *Job) bool {
		return j.Bucket == id && j.Ended.IsZero() &&
			slices.ContainsFunc(j.Goals, func(s GoalState) bool { return s.Stage == Waiting })
	})
}

// InFlight returns estimates for the jobs that have not ended: the number of partitions that take part in their moves,
// and the number of rows that these moves copy. Moves that copy nothing do not count.
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

// Held reports whether the moves of a bucket are paused, or submitted moves have not begun. Then no decision must be
// made about the bucket now.
func (g *Scheduler) Held(id store.BucketID) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	_, paused := g.gate.Paused(&g.pauses, id)
	return paused || g.jobs.Waiting(id)
}

// InFlight returns estimates for the unfinished moves in the buckets that this process moves: the number of partitions
// that take part, and the number of rows to copy.
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

// CountedFor is how many times faster rows may be read than moved. Rows are read for exact counts of ranges, and to
// find markers to delete. For example, if 1,000 rows may be moved per second, 3,000 rows may be read.
const CountedFor = 3

// Pace waits until the given number of rows may be read for an exact count.
//
// Moves are slowed down while the store is slow, but counts are not: a count reads one page after the other, and finds
// ranges that should be split.
func (g *Scheduler) Pace(ctx context.Context, rows int) error { return g.counting.Take(ctx, rows) }
