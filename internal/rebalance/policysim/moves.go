package policysim

import (
	"context"
	"iter"
	"slices"
	"strconv"
	"time"

	"github.com/evenkeel/evenkeel/internal/rebalance/move"
	"github.com/evenkeel/evenkeel/internal/rebalance/policy"
	"github.com/evenkeel/evenkeel/internal/rebalance/scheduler"
	"github.com/evenkeel/evenkeel/internal/wait"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// mover carries out, in simulated time, the moves of rows that the balancer submits. As in a real cluster, package move
// decides what has to be done next.
type mover struct {
	w *world
	// pace limits the rows that are copied and compared per second. counting limits the rows that are read per second
	// for exact counts and to remove markers.
	pace, counting *wait.Pacer
	// taken is the number of rows for which the balancer has waited before it reads the next page of an exact count.
	taken int
	// decisions has the reasons of decisions whose moves are about to be submitted, by bucket and by the first key of
	// the range.
	decisions map[store.BucketID]map[string]policy.Why
	jobs      scheduler.Jobs // the jobs that have not ended
	ended     map[string]*scheduler.Job
	sent      int
	active    []*bucket // the buckets with moves, of which the first 128 move at present
	// copies and sweeps limit the number of ranges that are worked on at the same time, in all buckets together. Ranges
	// that have waited longest come next.
	copies, sweeps room
}

// room limits how many pieces of work of one kind are under way at the same time, in all buckets together. taken is the
// number of pieces under way, and waiting is the queue of work that must wait.
type room struct {
	taken   int
	waiting []placed
}

// placed is a piece of work in the moves of one bucket that waits, because the limit for all buckets together is
// reached.
type placed struct {
	of *moving
	k  *work
}

// admit starts waiting pieces of work, the oldest first, until the limit for all buckets together is reached.
func (r *room) admit() {
	for len(r.waiting) > 0 && r.taken < scheduler.RangesAtOnce {
		p := r.waiting[0]
		r.waiting = r.waiting[1:]
		r.taken++
		p.of.active = append(p.of.active, p.k)
	}
}

// room returns the limit, for all buckets together, that applies to the task t of a move: one limit for the removal of
// markers, and another for all other tasks.
func (m *mover) room(t *move.Task) *room {
	if t.Phase == partmap.Settled {
		return &m.sweeps
	}
	return &m.copies
}

// These constants are the values with which the real programs carry out moves.
const (
	// atOnce is the maximum number of ranges of a bucket that are copied or compared at the same time.
	atOnce = 4
	// goalsAtOnce is the maximum number of a bucket's goals (wanted changes of ranges) that are carried out at the same
	// time.
	goalsAtOnce = 256
	// retry is the pause before a failed change of a bucket's map is tried again.
	retry = time.Second
	// pages is the number of pages into which the rows of a full range are divided when the range is copied.
	pages = 20
)

func newMover(w *world) mover {
	return mover{
		w: w, pace: wait.NewPacer(w.s.Pace), counting: wait.NewPacer(scheduler.CountedFor * w.s.Pace),
		ended: map[string]*scheduler.Job{}, decisions: map[store.BucketID]map[string]policy.Why{},
	}
}

// moving has the simulated moves of one bucket, and how far the moves have come.
type moving struct {
	goals   []move.Goal
	seen    move.Seen
	working map[string]*work // by the key of the effect
	// active are the pieces of work that are under way, in the order in which they began. copies and sweeps have the
	// pieces of work that wait.
	active         []*work
	copies, sweeps line
	left           map[uint64]int // number of pieces of work left, by batch (group of moves)
	again          time.Time      // time of the next try after a failure, zero if none is due
	// begun is true if a batch (group of moves) has begun since the bucket was last allowed to move.
	begun bool
	// why has the reasons of the moves in each batch (group of moves).
	why map[uint64][]reason
}

type reason struct {
	span store.Bounds
	why  policy.Why
}

// work is one piece of work for a move, such as the copy of a range, which takes simulated time.
type work struct {
	effect move.Effect
	at     time.Time    // time at which it goes on
	rest   store.Bounds // the keys that are still to be read
	begun  bool
}

// line is the queue of one bucket's pieces of work of one kind. There are two kinds: the removal of markers, and all
// other work, such as copying and comparing rows.
type line struct {
	busy    int // number of pieces of work under way
	waiting []*work
}

// decided stores the reasons of the balancer's decisions about a bucket, until the moves that follow from the decisions
// are submitted.
func (m *mover) decided(id store.BucketID, in *policy.Input, ds []policy.Decision) {
	for i := range ds {
		switch d := &ds[i]; d.Kind {
		case policy.Split, policy.Merge, policy.Roll, policy.Refresh:
			if m.decisions[id] == nil {
				m.decisions[id] = map[string]policy.Why{}
			}
			m.decisions[id][string(in.Ranges[d.From].Start)] = d.Why
		}
	}
}

// Submit queues the simulated moves of a plan for a bucket, and returns their job. Submit is a method of
// balancer.Mover.
func (m *mover) Submit(id store.BucketID, what string, p *scheduler.Plan) scheduler.Job {
	b := m.w.of[id]
	m.sent++
	j := &scheduler.Job{ID: strconv.Itoa(m.sent), Bucket: id, What: what, Asked: m.w.now()}
	for _, g := range p.Moves {
		g.Why = string(m.decisions[id][string(g.Start)])
		j.Goals = append(j.Goals, scheduler.GoalState{Goal: g, Stage: scheduler.Waiting})
	}
	delete(m.decisions, id)
	m.jobs = append(m.jobs, j)
	if b.moves == nil {
		b.moves = &moving{working: map[string]*work{}, left: map[uint64]int{}, why: map[uint64][]reason{}}
		m.active = append(m.active, b)
	}
	for i := range j.Goals {
		b.moves.goals = append(b.moves.goals, j.Goals[i].Goal)
	}
	b.moves.again = m.w.now()
	return *j
}

// Job returns the state of the simulated moves whose job has the given id. The boolean result is false if the job is
// not known. An ended job is forgotten after the call. Job is a method of balancer.Mover.
func (m *mover) Job(id string) (scheduler.Job, bool) {
	if j := m.ended[id]; j != nil {
		delete(m.ended, id)
		return *j, true
	}
	j := m.jobs.Find(id)
	if j == nil {
		return scheduler.Job{}, false
	}
	s := *j
	s.Goals = slices.Clone(j.Goals)
	return s, true
}

// Held reports whether a bucket has moves that were submitted and have not begun, so that nothing should be decided
// about the bucket. Held is a method of balancer.Mover.
func (m *mover) Held(id store.BucketID) bool { return m.jobs.Waiting(id) }

// InFlight returns the number of partitions that take part in unfinished moves, and the number of rows to copy.
// InFlight is a method of balancer.Mover.
func (m *mover) InFlight() (partitions int, rows int64) { return m.jobs.InFlight() }

// KeepUp does nothing, since simulated moves never slow down. KeepUp is a method of balancer.Mover.
func (m *mover) KeepUp(store.BucketID, int) {}

// Pace waits, in simulated time, until the given number of rows may be read for an exact count. Pace is a method of
// balancer.Mover.
func (m *mover) Pace(ctx context.Context, rows int) error {
	err := m.w.sleep(ctx, m.counting.TakeAt(m.w.now(), rows))
	m.taken = rows
	return err
}

// scanned is the store from which the simulated balancer reads rows in order to count them. It shortens the waits
// before reads, which are those for a full real page. A simulated row stands for a hundred real rows, so a simulated
// page has far fewer rows. scanned takes the wait for the missing rows back, down to the least size of a real page.
type scanned struct {
	*tally
	m *mover
}

// Slice returns a page of rows of a partition. It takes back the part of the wait before the read that was for rows
// which the page lacks. It implements countbook.Slicer.
func (s scanned) Slice(
	ctx context.Context, p store.Partition, b store.Bounds, o store.SliceOptions,
) (store.Page, error) {
	page, err := s.tally.Slice(ctx, p, b, o)
	if m := s.m; m.taken > 0 {
		each := max(1, 1000*int(m.w.s.MaxRows)/programRows)
		least := max(1, 100*int(m.w.s.MaxRows)/programRows)
		read := max(least, (len(page.Rows)+each-1)/each*each)
		m.counting.Return(max(0, m.taken-read))
		m.taken = 0
	}
	return page, err
}

// Look returns the newest root of a bucket's map. In the simulation one process changes all maps, so the newest root is
// always known. Look is a method of balancer.Maps.
func (w *world) Look(ctx context.Context, id store.BucketID) (*partmap.Root, error) {
	return w.Load(ctx, id)
}

// Load returns the newest root of a bucket's map. It takes some simulated time if the scenario has a slow store at
// present. Load is a method of balancer.Maps.
func (w *world) Load(ctx context.Context, id store.BucketID) (*partmap.Root, error) {
	w.f.read()
	return w.root(ctx, id)
}

func (w *world) root(ctx context.Context, id store.BucketID) (*partmap.Root, error) {
	l, err := w.maps.Acquire(ctx, id)
	if err != nil {
		return nil, err
	}
	defer l.Release()
	return l.Root(), nil
}

// Ranges returns the ranges of a bucket's map, in the order of their keys. The parameter `from` is a key, and the range
// that contains it comes first. Ranges is a method of balancer.Maps.
func (w *world) Ranges(ctx context.Context, r *partmap.Root, from []byte) iter.Seq2[partmap.Range, error] {
	return w.maps.Ranges(ctx, r, from)
}

// next returns the simulated time at which the next step of a move is due, or zero if nothing moves.
func (m *mover) next() (at time.Time) {
	for _, b := range m.active[:min(len(m.active), scheduler.DefaultBuckets)] {
		at = earlier(at, b.moves.again)
		for _, x := range b.moves.active {
			at = earlier(at, x.at)
		}
	}
	return at
}

// advance does all steps of moves that are due at the present simulated time, in all buckets that may move at present.
func (m *mover) advance(ctx context.Context) error {
	for _, b := range slices.Clone(m.active[:min(len(m.active), scheduler.DefaultBuckets)]) {
		if err := m.bucket(ctx, b); err != nil {
			return err
		}
		if len(b.moves.working) > 0 || len(b.moves.goals) > 0 && !(m.yields(b) && b.moves.again.IsZero()) {
			continue
		}
		m.active = slices.DeleteFunc(m.active, func(x *bucket) bool { return x == b })
		if len(b.moves.goals) > 0 { // others wait: they have their turns first
			m.active = append(m.active, b)
			b.moves.begun, b.moves.again = false, m.w.now()
		} else {
			b.moves = nil
		}
	}
	return nil
}

// yields reports whether the bucket b should let another bucket move when its own moves under way have ended. This is
// so if
//   - b has begun moves since it was allowed to move, and
//   - more buckets have moves than may move at the same time.
func (m *mover) yields(b *bucket) bool {
	return b.moves.begun && len(m.active) > scheduler.DefaultBuckets
}

// bucket does all steps of the moves in the bucket b that are due at the present simulated time.
func (m *mover) bucket(ctx context.Context, b *bucket) error {
	x := b.moves
	changed := !x.again.IsZero() && !m.w.now().Before(x.again)
	if changed {
		x.again = time.Time{}
	}
	for _, k := range slices.Clone(x.active) {
		if k.at.After(m.w.now()) {
			continue
		}
		over, err := m.goOn(ctx, b, k)
		if err != nil {
			return err
		}
		// Only when the last work of a batch has ended can something new be due.
		changed = over && m.end(x, k) || changed
	}
	for changed {
		var err error
		if changed, err = m.look(ctx, b); err != nil {
			return err
		}
	}
	return nil
}

// begin starts the piece of work k for x, the moves of one bucket. If too much work of the bucket is under way, begin
// puts k into a queue.
func (m *mover) begin(x *moving, k *work) {
	x.working[k.effect.Key()] = k
	t, task := k.effect.(move.Task)
	if !task {
		x.active = append(x.active, k)
		return
	}
	x.left[t.Batch]++
	l := x.line(&t)
	if l.busy == atOnce {
		l.waiting = append(l.waiting, k)
		return
	}
	l.busy++
	m.place(x, k, &t)
}

// place starts the piece of work k for x, the moves of one bucket, as soon as the limit for all buckets together allows
// it. t is the task of k.
func (m *mover) place(x *moving, k *work, t *move.Task) {
	r := m.room(t)
	r.waiting = append(r.waiting, placed{x, k})
	r.admit()
}

// end removes the finished piece of work k from x, the moves of one bucket, and starts waiting work in its place. The
// result last is true if a new step of the moves may be due: no work of the batch (group of moves) is left, or k is a
// wait.
func (m *mover) end(x *moving, k *work) (last bool) {
	delete(x.working, k.effect.Key())
	x.active = slices.DeleteFunc(x.active, func(y *work) bool { return y == k })
	t, task := k.effect.(move.Task)
	if !task {
		return true
	}
	r := m.room(&t)
	r.taken--
	if l := x.line(&t); len(l.waiting) > 0 {
		next := l.waiting[0]
		l.waiting = l.waiting[1:]
		m.place(x, next, &t)
	} else {
		l.busy--
	}
	r.admit()
	if x.left[t.Batch]--; x.left[t.Batch] > 0 {
		return false
	}
	delete(x.left, t.Batch)
	return true
}

func (x *moving) line(t *move.Task) *line {
	if t.Phase == partmap.Settled {
		return &x.sweeps
	}
	return &x.copies
}

// look finds what has to be done next for the moves of the bucket b, and begins it. The result changed is true if the
// caller should call look again, because the map was changed, or because ended moves made room for others.
func (m *mover) look(ctx context.Context, b *bucket) (changed bool, err error) {
	x := b.moves
	root, err := m.w.root(ctx, b.id)
	if err != nil {
		return false, err
	}
	goals := x.goals[:min(len(x.goals), goalsAtOnce)]
	view, err := move.Look(ctx, root, m.w.maps, &x.seen, goals)
	if err != nil {
		return false, err
	}
	var open []move.Goal
	for i := range goals {
		verdict, _, _ := goals[i].Judge(view, m.w.now(), func() (id store.PartitionID) { return id })
		switch verdict {
		case move.Met:
			m.goal(b, &goals[i], scheduler.Met)
		case move.Impossible:
			m.goal(b, &goals[i], scheduler.Refused)
		default:
			open = append(open, goals[i])
		}
	}
	ended := len(open) < len(goals)
	x.goals = append(open, x.goals[len(goals):]...)
	if ended && len(x.goals) > len(open) {
		return true, nil // other goals take the places of the ended ones
	}
	for _, e := range move.Next(view, &x.seen, move.Input{
		Goals: open, Hold: m.yields(b), Now: m.w.now(),
		Fresh: func() store.PartitionID { return store.PartitionID(m.w.uuid()) },
	}) {
		if x.working[e.Key()] != nil {
			continue
		}
		switch e := e.(type) {
		case move.Swap:
			if err := m.swap(ctx, b, view, &e); store.KindOf(err) == store.Unavailable {
				x.again = m.w.now().Add(retry)
			} else if err != nil {
				return false, err
			} else {
				changed = true
			}
		case move.Wait:
			m.begin(x, &work{effect: e, at: m.w.now().Add(m.w.s.Phase)})
		case move.Task:
			m.begin(x, &work{effect: e, at: m.w.now(), rest: store.Bounds{Start: e.Range.Start, End: e.Range.End}})
		}
	}
	return changed, nil
}

// goal records in all jobs of the bucket b that the goal g, which is one wanted change of ranges, has reached another
// stage, e.g. met. The parameter `to` is that stage. Jobs that have ended are put aside.
func (m *mover) goal(b *bucket, g *move.Goal, to scheduler.Stage) {
	m.jobs.Change(b.id, g, m.w.now(), func(_ *scheduler.Job, x *scheduler.GoalState) {
		if x.Stage = to; to == scheduler.Refused {
			x.Err = store.Errorf(store.InvalidArgument, "it does not fit the map")
		}
	})
	m.jobs = slices.DeleteFunc(m.jobs, func(j *scheduler.Job) bool {
		if j.Ended.IsZero() {
			return false
		}
		m.ended[j.ID] = j
		return true
	})
}

// swap makes one change of the map of the bucket b, as the effect e says. v is the view of the map from which the
// effect was derived.
func (m *mover) swap(ctx context.Context, b *bucket, v *move.View, e *move.Swap) error {
	if err := m.w.f.swap(); err != nil {
		return err
	}
	edit := m.w.maps.Edit(ctx, v.Root)
	// Change returns the first error of the calls below.
	for _, s := range e.Advance {
		_ = edit.Advance(s.Batch)
	}
	for _, s := range e.Settle {
		_ = edit.Settle(s.Batch, s.Spans...)
	}
	_ = edit.Swept(e.Swept...)
	if len(e.Begin) > 0 {
		_, _ = edit.Begin(e.Begin...)
	}
	change, err := edit.Change()
	if err != nil {
		return err
	}
	if err := m.w.maps.Swap(ctx, change); err != nil {
		return err
	}
	// Nobody reads an older map any more.
	if err := m.w.t.Forget(ctx, b.id, change.Next.Epoch); err != nil {
		return err
	}
	for _, id := range change.Replaced {
		if err := m.w.t.DeleteNode(ctx, b.id, id); err != nil {
			return err
		}
	}
	m.w.t.recut(b.id, int(change.Next.Ranges))
	if len(e.Begin) > 0 {
		b.moves.begun = true
		b.moves.seen.Began(e.Epoch, e.Spans())
		for i := range e.Goals {
			g := &e.Goals[i]
			m.goal(b, g, scheduler.Begun)
			b.moves.why[e.Epoch] = append(b.moves.why[e.Epoch], reason{store.Bounds{Start: g.Start, End: g.End}, policy.Why(g.Why)})
		}
	}
	for _, id := range e.Swept {
		delete(b.moves.why, id)
	}
	return nil
}
