package executor

import (
	"context"
	"errors"
	"hash/fnv"
	"slices"
	"time"

	"github.com/evenkeel/evenkeel/internal/rebalance/move"
	"github.com/evenkeel/evenkeel/internal/rebalance/pause"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/wait"
)

// ErrBrokenMap is returned for a broken map: nothing moves on it.
var ErrBrokenMap = errors.New("the map is broken: repair it before anything is moved")

// killed is the error of a failpoint.
type killed struct{ error }

func (k killed) Unwrap() error { return k.error }

// result is the result of an effect.
type result struct {
	effect move.Effect
	err    error
}

// Run completes all moves in flight and all goals, and returns nil; while others wait, goals may be left (see Yield).
// It retries after failures of the store until ctx ends. It fails with Timeout when ctx ends; with Corrupt if the map is
// broken (ErrBrokenMap) or rows are damaged; with Unavailable if goals have to wait because the bucket is being
// deleted; and with a *pause.Error if nothing is in flight and goals have to wait because moves are paused.
//
// It decides nothing: move.Next does.
func (x *Executor) Run(ctx context.Context) error {
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

type loop struct {
	x       *Executor
	seen    move.Seen
	checked bool // the map was validated
	// lax: the next look need not be at Serial. Since the last look nothing but swaps and tasks have ended, and they have
	// succeeded. What follows is a wait, which reads the newest root, or a swap, which succeeds on that only; or the end
	// of Run, after a swap that was made on the newest root.
	lax      bool
	epoch    uint64 // the highest one known: a look never goes back
	began    bool   // a batch has begun in this Run
	results  chan result
	running  map[string]bool
	tasks    map[uint64]int // running tasks, by batch
	failures map[string]int // in a row, by effect
}

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

// step reads the map and starts what is due. over: nothing is due, and nothing runs.
func (l *loop) step(ctx context.Context) (over bool, err error) {
	for {
		goals, hold, yields := l.x.wanted()
		ends := yields && l.began // when nothing is in flight
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
			l.lax = true // until something else ends
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

// start runs an effect unless it runs already. After a failure the result comes with a
// delay, since the effect may be tried again then.
func (l *loop) start(ctx context.Context, v *move.View, e move.Effect) {
	key := e.Key()
	if l.running[key] {
		return
	}
	l.running[key] = true
	if t, ok := e.(move.Task); ok {
		l.tasks[t.Batch]++
	}
	failures := l.failures[key] + 1 // if it fails
	go func() {
		err := l.x.do(ctx, v, e)
		if err != nil && !final(ctx, err) && store.KindOf(err) != store.Conflict {
			_ = apart(key).Sleep(ctx, failures)
		}
		l.results <- result{e, err}
	}()
}

// took processes the result of an effect.
func (l *loop) took(ctx context.Context, r result) error {
	key := r.effect.Key()
	delete(l.running, key)
	if _, waited := r.effect.(move.Wait); waited || r.err != nil {
		l.lax = false // what was waited for is worked on by the newest root
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
			// partmap refuses moves that package move allows: the goals end, and the rest
			// of the swap is due again.
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

// final reports whether an error ends the executor: it was killed, its context ended, or a
// retry can't help.
func final(ctx context.Context, err error) bool {
	var k killed
	return errors.As(err, &k) || ctx.Err() != nil || store.KindOf(err) == store.Corrupt ||
		errors.Is(err, partmap.ErrNewerVersion)
}

// pauses are those after failures.
var pauses = wait.Backoff{First: 5 * time.Millisecond, Most: 5 * time.Second}

// apart returns the pauses of an effect. Effects that fail at one moment are not tried again at
// one moment. The jitter comes from the key, so that a simulation can be repeated.
func apart(key string) *wait.Backoff {
	p := pauses
	p.Jitter, p.Rand = 0.2, func() float64 {
		h := fnv.New32a()
		_, _ = h.Write([]byte(key))
		return float64(h.Sum32()) / (1 << 32)
	}
	return &p
}

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

func (x *Executor) reader(ctx context.Context) partmap.Reader {
	return func(id store.NodeID) ([]byte, error) { return x.store.Node(ctx, x.bucket, id) }
}

// validatedWhole is the most ranges of a map that is validated as a whole each time that
// moves begin; that reads all of the map. `rebalancer verify` validates larger ones.
const validatedWhole = 10_000

// validate refuses a broken map. It checks all of a small map, and of a large one the parts
// that move or are going to. A node that can't be reached is not a broken one.
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
		problems = partmap.ValidateSpans(root, read, v.Spans()...)
	}
	if unreachable != nil {
		return unreachable
	}
	if len(problems) > 0 {
		return store.Errorf(store.Corrupt, "%w; the first of %d problems: %s", ErrBrokenMap, len(problems), problems[0])
	}
	return nil
}

// judge ends the goals that are met or impossible and returns the others.
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

func (x *Executor) refuse(goals []move.Goal, err error) {
	for i := range goals {
		x.end(&goals[i], Event{Kind: GoalRefused, Goal: &goals[i], Err: err})
	}
}

// begin notes that the move of a goal is in the map.
func (x *Executor) begin(g move.Goal, batch uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.begun = append(x.begun, begun{goal: g, batch: batch})
}

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
