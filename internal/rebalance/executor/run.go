package executor

import (
	"context"
	"errors"
	"hash/fnv"
	"slices"
	"time"

	"github.com/evenkeel/evenkeel/internal/mapcodec"
	"github.com/evenkeel/evenkeel/internal/rebalance/move"
	"github.com/evenkeel/evenkeel/internal/rebalance/pause"
	"github.com/evenkeel/evenkeel/internal/wait"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// ErrBrokenMap is the error of moves in a bucket whose partition map is not valid. Nothing moves in the bucket until
// its map is repaired.
var ErrBrokenMap = errors.New("the map is broken: repair it before anything is moved")

// killed is the error of an executor that a test has stopped at a failpoint. It is never retried.
type killed struct{ error }

func (k killed) Unwrap() error { return k.error }

// result is the end of an effect, which is one step of a move. The field err is nil if the step succeeded.
type result struct {
	effect move.Effect
	err    error
}

// Run carries out the moves of the bucket. It returns nil when all moves that have begun have ended, and all goals
// (wanted changes of ranges) are fulfilled or left to the next Run (see Yield). After failures of the store, Run tries
// again. It fails with
//   - Timeout if ctx ends,
//   - Corrupt if the partition map is broken (ErrBrokenMap) or rows are damaged,
//   - Unavailable if goals must wait because the bucket is being deleted, and
//   - a *pause.Error if only goals are left, and moves are paused.
func (x *Executor) Run(ctx context.Context) error {
	// Run decides nothing: move.Next returns the steps that are due.
	ctx, cancel := context.WithCancel(ctx)
	loop := &loop{x: x, results: make(chan result), running: map[string]bool{}, tasks: map[uint64]int{},
		failures: map[string]int{}}
	defer func() {
		cancel()
		for len(loop.running) > 0 {
			r := <-loop.results
			delete(loop.running, r.effect.Key())
		}
	}()
	return loop.run(ctx)
}

// loop is the state of one call of Run. The loop reads the partition map of the bucket, starts the steps of moves that
// are due, and processes their results, again and again.
type loop struct {
	x       *Executor
	seen    move.Seen
	checked bool // the map was validated
	// lax is true if the next read of the partition map may return an older root, i.e. need not be at Serial. This is
	// so if only swaps and tasks have ended since the last read, all with success.
	//
	// No harm is done, because three steps may follow: a wait, which reads the newest root; a swap, which succeeds only
	// on the newest root; or the end of Run, after a swap that was made on the newest root.
	lax      bool
	epoch    uint64 // the highest epoch known: a look never goes back
	began    bool   // a batch has begun in this Run
	results  chan result
	running  map[string]bool
	tasks    map[uint64]int // running tasks, by batch
	failures map[string]int // number of failures in a row, by effect
}

// run carries out the moves of the bucket until none is left. Again and again it reads the partition map and starts the
// steps of moves that are due. It returns nil when nothing is due and nothing runs, or an error that no retry can help.
func (l *loop) run(ctx context.Context) error {
	for {
		if over, err := l.step(ctx); over || err != nil {
			return err
		}
		// The success of a task makes nothing due while other tasks of its batch run.
		for waiting := true; waiting; {
			select {
			case r := <-l.results:
				if err := l.took(ctx, r); err != nil {
					return err
				}
				t, ok := r.effect.(move.Task)
				waiting = r.err == nil && ok && l.tasks[t.Batch] > 0
			case <-l.x.news:
				waiting, l.lax = false, false
			case <-ctx.Done():
				return store.Wrap("move ranges of bucket "+l.x.bucket.String(), context.Cause(ctx))
			}
		}
	}
}

// step reads the partition map of the bucket and starts the steps of moves that are due. The result `over` is true if
// nothing is due and nothing runs, so that Run can end.
func (l *loop) step(ctx context.Context) (over bool, err error) {
	for {
		goals, hold, yields := l.x.wanted()
		ends := yields && l.began // Run ends when nothing is in flight
		view, err := l.look(ctx, goals)
		if err == nil && !l.checked {
			if err = l.x.validate(ctx, view); err == nil {
				l.checked = true
			}
		}
		if err != nil {
			if final(ctx, err) {
				return false, store.Wrap("look at the map of bucket "+l.x.bucket.String(), err)
			}
			l.x.o.Observe(Event{Kind: Looked, Err: err})
			l.failures["look"]++
			if err := pauses.Sleep(ctx, l.failures["look"]); err != nil {
				return false, store.Wrap("look at the map of bucket "+l.x.bucket.String(), err)
			}
			continue
		}
		if l.failures["look"] > 0 {
			l.failures["look"] = 0
			l.x.o.Observe(Event{Kind: Looked})
		}
		l.x.note(view.Root)
		goals = l.x.judge(view, goals)
		effects := move.Next(view, &l.seen, move.Input{
			Goals: goals, Hold: hold != nil || ends, Now: l.x.o.Now(),
			Fresh: func() store.PartitionID { return store.PartitionID(l.x.o.NewID()) },
		})
		for _, e := range effects {
			l.start(ctx, view, e)
		}
		if len(l.running) > 0 {
			l.lax = true // until another kind of result comes
			return false, nil
		}
		switch {
		case len(goals) > 0 && hold != nil && view.Root.State == partmap.Open:
			err = &pause.Error{Pause: *hold}
		case ends && view.Root.State == partmap.Open:
		case len(goals) > 0:
			err = store.Errorf(store.Unavailable, "bucket %s is %s: its goals have to wait", l.x.bucket, view.Root.State)
		}
		return true, err
	}
}

// start carries out the effect e, which is one step of a move, in a goroutine. If the same effect runs already, start
// does nothing. The result of a failed effect is delivered with a delay, so that the effect is not tried again at once.
func (l *loop) start(ctx context.Context, v *move.View, e move.Effect) {
	key := e.Key()
	if l.running[key] {
		return
	}
	l.running[key] = true
	if t, ok := e.(move.Task); ok {
		l.tasks[t.Batch]++
	}
	failures := l.failures[key] + 1 // the number of failures if this try fails
	go func() {
		err := l.x.do(ctx, v, e)
		if err != nil && !final(ctx, err) && store.KindOf(err) != store.Conflict {
			_ = apart(key).Sleep(ctx, failures)
		}
		l.results <- result{e, err}
	}()
}

// took processes the result r of an effect, which is one step of a move: it records what was done, or the failure. It
// returns an error only if the executor must end.
func (l *loop) took(ctx context.Context, r result) error {
	key := r.effect.Key()
	delete(l.running, key)
	if _, waited := r.effect.(move.Wait); waited || r.err != nil {
		l.lax = false // the work after a wait is based on the newest root
	}
	if t, ok := r.effect.(move.Task); ok {
		l.tasks[t.Batch]--
	}
	if paused, ok := errors.AsType[*pause.Error](r.err); ok {
		l.x.Hold(&paused.Pause)
		return nil
	}
	if r.err != nil {
		l.failures[key]++
		if final(ctx, r.err) {
			return r.err
		}
		if swap, ok := r.effect.(move.Swap); ok && store.KindOf(r.err) == store.InvalidArgument {
			if len(swap.Goals) == 0 {
				return r.err
			}
			// partmap refuses moves that package move allows. The goals end, and the rest of the swap is due again.
			l.x.refuse(swap.Goals, r.err)
		}
		return nil
	}
	delete(l.failures, key)
	switch e := r.effect.(type) {
	case move.Task:
		l.seen.Did(e)
	case move.Wait:
		l.seen.Waited(e.Epoch)
	case move.Swap:
		l.epoch = max(l.epoch, e.Epoch)
		if len(e.Begin) > 0 {
			l.began = true
			l.seen.Began(e.Epoch, e.Spans())
			for i := range e.Goals {
				l.x.begin(e.Goals[i], e.Epoch)
				l.x.o.Observe(Event{Kind: GoalBegun, Goal: &e.Goals[i], Batch: e.Epoch})
			}
		}
	}
	return nil
}

// final reports whether an error of an effect, which is one step of a move, ends the executor. The result is true if
//   - a test has stopped the executor at a failpoint,
//   - ctx has ended, or
//   - a retry can't help.
func final(ctx context.Context, err error) bool {
	var k killed
	return errors.As(err, &k) || ctx.Err() != nil || store.KindOf(err) == store.Corrupt ||
		errors.Is(err, mapcodec.ErrNewerVersion)
}

// pauses are the delays before retries of a failed store call. They grow from 5 ms to 5 s.
var pauses = wait.Backoff{First: 5 * time.Millisecond, Most: 5 * time.Second}

// apart returns the delays before retries of the effect (a step of a move) with the given key. Each key gets different
// delays, computed from the key, so that effects that fail at the same moment are not all retried at the same moment.
func apart(key string) *wait.Backoff {
	// As the delays follow from the key, a simulation can be repeated.
	p := pauses
	p.Jitter, p.Rand = 0.2, func() float64 {
		h := fnv.New32a()
		_, _ = h.Write([]byte(key))
		return float64(h.Sum32()) / (1 << 32)
	}
	return &p
}

// look reads the part of the bucket's partition map that move.Next needs: the ranges that move, and the ranges of the
// given goals (wanted changes of ranges). The epoch (version) of the map is never lower than in an earlier call.
func (l *loop) look(ctx context.Context, goals []move.Goal) (*move.View, error) {
	read := l.x.maps.Load
	if l.lax {
		read = l.x.maps.Look
	}
	l.lax = false
	root, err := read(ctx, l.x.bucket)
	if err == nil && root.Epoch < l.epoch {
		root, err = l.x.maps.Load(ctx, l.x.bucket)
	}
	if err != nil {
		return nil, err
	}
	l.epoch = max(l.epoch, root.Epoch)
	return move.Look(ctx, root, l.x.maps, &l.seen, goals)
}

// reader returns a function that reads a node of the bucket's partition map from the store, by the id of the node.
func (x *Executor) reader(ctx context.Context) partmap.Reader {
	return func(id store.NodeID) ([]byte, error) { return x.store.Node(ctx, x.bucket, id) }
}

// validatedWhole is the largest number of ranges of a partition map that is checked as a whole each time moves begin.
// Such a check reads all nodes of the map. In larger maps only the ranges that move are checked, and `rebalancer
// verify` checks the whole map.
const validatedWhole = 10_000

// validate fails with ErrBrokenMap if the partition map in v is not valid. In a map of more than validatedWhole ranges
// it checks only the ranges that move or will move. If a node can't be read because the store is unreachable, validate
// returns the store's error instead.
func (x *Executor) validate(ctx context.Context, v *move.View) error {
	root := v.Root
	var unreachable error
	read := func(id store.NodeID) ([]byte, error) {
		blob, err := x.store.Node(ctx, x.bucket, id)
		if k := store.KindOf(err); err != nil && k != store.NotFound && k != store.Corrupt {
			unreachable = err
		}
		return blob, err
	}
	var problems []partmap.Problem
	if root.Height == 0 || root.Ranges <= validatedWhole {
		problems = partmap.Validate(root, read)
	} else {
		problems = partmap.ValidateSpans(root, read, v.Spans())
	}
	if unreachable != nil {
		return unreachable
	}
	if len(problems) > 0 {
		return store.Errorf(store.Corrupt, "%w; the first of %d problems: %s", ErrBrokenMap, len(problems), problems[0].Text)
	}
	return nil
}

// judge ends goals (wanted changes of ranges) that are met, or that have become impossible. It judges by the bucket's
// partition map in v, and returns the goals that are left.
func (x *Executor) judge(v *move.View, goals []move.Goal) (open []move.Goal) {
	none := func() store.PartitionID { return store.PartitionID{} }
	for _, g := range goals {
		verdict, _, err := g.Judge(v, x.o.Now(), none)
		switch verdict {
		case move.Met:
			x.end(&g, Event{Kind: GoalMet, Goal: &g})
		case move.Impossible:
			x.end(&g, Event{Kind: GoalRefused, Goal: &g, Err: err})
		default:
			open = append(open, g)
		}
	}
	return open
}

// refuse ends the given goals (wanted changes of ranges) as impossible, with the error err as the reason.
func (x *Executor) refuse(goals []move.Goal, err error) {
	for i := range goals {
		x.end(&goals[i], Event{Kind: GoalRefused, Goal: &goals[i], Err: err})
	}
}

// begin records that the move of the goal g (one wanted change of ranges) has begun in the batch of moves with the
// given id, so that its rows can be counted.
func (x *Executor) begin(g move.Goal, batch uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.begun = append(x.begun, begun{goal: g, batch: batch})
}

// end removes the goal g, which is one wanted change of ranges, and reports its end as the event e. It adds to the
// event the numbers of rows that the goal's move has worked on.
func (x *Executor) end(g *move.Goal, e Event) {
	x.drop(g.Equal)
	x.mu.Lock()
	x.begun = slices.DeleteFunc(x.begun, func(b begun) bool {
		if b.goal.Equal(g) {
			e.Rows = b.rows
			return true
		}
		return false
	})
	x.mu.Unlock()
	x.o.Observe(e)
}
