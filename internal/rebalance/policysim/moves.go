package policysim

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"time"

	"github.com/evenkeel/evenkeel/internal/rebalance/move"
	"github.com/evenkeel/evenkeel/internal/rebalance/policy"
	"github.com/evenkeel/evenkeel/internal/rebalance/scheduler"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/wait"
)

// mover carries out the moves that a balancer submits: package move decides what is due, as it does for a scheduler and
// its executors, and the mover does it in virtual time.
type mover struct {
	w *world
	// pace limits the rows copied and compared, counting those counted and swept.
	pace, counting *wait.Pacer
	// taken are the rows of a page that is about to be counted.
	taken int
	// decisions are those of which the moves are submitted next, by the start of their range.
	decisions map[store.BucketID]map[string]policy.Why
	jobs      scheduler.Jobs // that have not ended
	ended     map[string]*scheduler.Job
	sent      int
	active    []*bucket // with moves, those whose turn it is first
	// copies and sweeps are the ranges that are worked on, in all buckets. Who has waited longest is next.
	copies, sweeps room
}

// room holds all pieces of work of one kind, from all buckets.
type room struct {
	taken   int
	waiting []placed
}

// placed is a work that waits for room.
type placed struct {
	of *moving
	k  *work
}

// admit lets the pieces of work go on for which there is room.
func (r *room) admit() {
	for len(r.waiting) > 0 && r.taken < scheduler.RangesAtOnce {
		p := r.waiting[0]
		r.waiting = r.waiting[1:]
		r.taken++
		p.of.active = append(p.of.active, p.k)
	}
}

// room is that of a task.
func (m *mover) room(t *move.Task) *room {
	if t.Phase == partmap.Settled {
		return &m.sweeps
	}
	return &m.copies
}

// The defaults of schedulers and executors.
const (
	// atOnce is how many ranges of a bucket are worked on at once.
	atOnce = 4
	// goalsAtOnce is how many moves of a bucket are looked at.
	goalsAtOnce = 256
	// retry is the pause after a failure.
	retry = time.Second
	// pages is how many pages of a copy a full range has.
	pages = 20
)

func newMover(w *world) mover {
	return mover{
		w: w, pace: wait.NewPacer(w.s.Pace), counting: wait.NewPacer(scheduler.CountedFor * w.s.Pace),
		ended: map[string]*scheduler.Job{}, decisions: map[store.BucketID]map[string]policy.Why{},
	}
}

// moving is the moves of a bucket.
type moving struct {
	goals   []move.Goal
	seen    move.Seen
	working map[string]*work // by the key of the effect
	// active are the works that are under way, in the order in which they began; lines wait for one of them to end.
	active         []*work
	copies, sweeps line
	left           map[uint64]int // works by batch
	again          time.Time      // when to look after a failure
	// begun: a batch has begun in this turn.
	begun bool
	// why are the reasons of goals, by batch.
	why map[uint64][]reason
}

type reason struct {
	span partmap.Span
	why  policy.Why
}

// work is an effect that takes time.
type work struct {
	effect move.Effect
	at     time.Time    // when it goes on
	rest   store.Bounds // of what is still to be read
	begun  bool
}

// line has the works of one kind: those that copy, compare or remove, or those that sweep.
type line struct {
	busy    int // under way
	waiting []*work
}

// decided gets decisions before their moves are submitted.
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

// Submit implements balancer.Mover.
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

// Job implements balancer.Mover.
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

// Held implements balancer.Mover.
func (m *mover) Held(id store.BucketID) bool { return m.jobs.Waiting(id) }

// InFlight implements balancer.Mover.
func (m *mover) InFlight() (partitions int, rows int64) { return m.jobs.InFlight() }

// KeepUp implements balancer.Mover: nothing slows moves down.
func (m *mover) KeepUp(store.BucketID, int) {}

// Pace implements balancer.Mover.
func (m *mover) Pace(ctx context.Context, rows int) error {
	err := m.w.sleep(ctx, m.counting.TakeAt(m.w.now(), rows))
	m.taken = rows
	return err
}

// scanned is the store of which a balancer counts rows. The pages of recounts are as large as live ones, while a row
// stands for a hundred: what a page lacks is given back, but for one of a live page.
type scanned struct {
	*tally
	m *mover
}

// Slice implements counter.Slicer.
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

// Look implements balancer.Maps: one process changes the maps, and knows the newest ones.
func (w *world) Look(ctx context.Context, id store.BucketID) (*partmap.Root, error) {
	return w.Load(ctx, id)
}

// Load implements balancer.Maps.
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

// Ranges implements balancer.Maps.
func (w *world) Ranges(ctx context.Context, r *partmap.Root, from []byte) iter.Seq2[partmap.Range, error] {
	return w.maps.Ranges(ctx, r, from)
}

// next is when the moves go on; zero: nothing moves.
func (m *mover) next() (at time.Time) {
	for _, b := range m.active[:min(len(m.active), scheduler.DefaultBuckets)] {
		at = earlier(at, b.moves.again)
		for _, x := range b.moves.active {
			at = earlier(at, x.at)
		}
	}
	return at
}

// advance does what is due.
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

// yields reports whether the turn of a bucket ends when nothing of it is in flight.
func (m *mover) yields(b *bucket) bool {
	return b.moves.begun && len(m.active) > scheduler.DefaultBuckets
}

// bucket does what is due in a bucket.
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
		// Nothing new is due before the last work of a batch has ended.
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

// begin begins a work, or has it wait.
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

// place has a task wait for room.
func (m *mover) place(x *moving, k *work, t *move.Task) {
	r := m.room(t)
	r.waiting = append(r.waiting, placed{x, k})
	r.admit()
}

// end ends a work; last: it was the last one of its batch.
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

// look asks what is due, and begins it; changed: the map was changed, so more may be due.
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
		return true, nil // others take their places
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

// goal changes the stage of a goal in the jobs that want it.
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

// swap changes the map.
func (m *mover) swap(ctx context.Context, b *bucket, v *move.View, e *move.Swap) error {
	if err := m.w.f.swap(); err != nil {
		return err
	}
	edit := m.w.maps.Edit(ctx, v.Root)
	// Change returns the first error of these.
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
	// Nobody reads an older map.
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
			b.moves.why[e.Epoch] = append(b.moves.why[e.Epoch], reason{partmap.Span{Start: g.Start, End: g.End}, policy.Why(g.Why)})
		}
	}
	for _, id := range e.Swept {
		delete(b.moves.why, id)
	}
	return nil
}

// goOn does the next part of a work; over: that was all.
func (m *mover) goOn(ctx context.Context, b *bucket, k *work) (over bool, err error) {
	x := b.moves
	switch e := k.effect.(type) {
	case move.Wait:
		x.seen.Waited(e.Epoch)
		return true, nil
	case move.Task:
		if e.Phase == partmap.Draining {
			over, err = true, m.remove(ctx, b, &e)
		} else {
			over, err = m.page(ctx, b, k, &e)
		}
		if over && err == nil {
			x.seen.Did(e)
		}
		return over, err
	}
	return true, fmt.Errorf("unknown effect %T", k.effect)
}

// page reads a page of a copy, a comparison or a sweep, as soon as the pace allows it.
func (m *mover) page(ctx context.Context, b *bucket, k *work, t *move.Task) (over bool, err error) {
	pace, limit := m.pace, max(1, int(m.w.s.MaxRows/pages))
	if t.Phase == partmap.Settled {
		pace = m.counting
	}
	if !k.begun {
		k.begun = true
		if k.at = m.w.now().Add(pace.TakeAt(m.w.now(), limit)); k.at.After(m.w.now()) {
			return false, nil
		}
	}
	from := store.Partition{Bucket: b.id, ID: t.Range.Partition}
	to := store.Partition{Bucket: b.id, ID: t.Range.To}
	page, err := m.w.t.Slice(ctx, from, k.rest, store.SliceOptions{Limit: limit, Timestamps: true})
	if err != nil {
		return false, err
	}
	pace.Return(limit - len(page.Rows))
	switch t.Phase {
	case partmap.Copying:
		for i := range page.Rows {
			page.Rows[i].Value = store.CopiedCell(page.Rows[i].Value)
		}
		if err := m.w.t.Put(ctx, to, page.Rows...); err != nil {
			return false, err
		}
		m.copied(b, t, int64(len(page.Rows)))
	case partmap.Settled:
		for _, row := range page.Rows {
			if store.IsMarker(row.Value) {
				if err := m.w.t.Delete(ctx, from, row.Key, row.Timestamp); err != nil {
					return false, err
				}
			}
		}
	}
	if !page.More {
		return true, nil
	}
	k.rest.Start, k.rest.StartExclusive = page.Rows[len(page.Rows)-1].Key, true
	k.at = m.w.now().Add(pace.TakeAt(m.w.now(), limit))
	return false, nil
}

// copied notes for which goals, and why, rows were copied.
func (m *mover) copied(b *bucket, t *move.Task, rows int64) {
	if rows == 0 {
		return
	}
	for _, j := range m.jobs {
		for i := range j.Goals {
			g := &j.Goals[i]
			if j.Bucket == b.id && g.Stage == scheduler.Begun &&
				store.Within(t.Range.Start, store.Bounds{Start: g.Start, End: g.End}) {
				g.Copied += rows
			}
		}
	}
	for _, r := range b.moves.why[t.Batch] {
		if store.Within(t.Range.Start, store.Bounds{Start: r.span.Start, End: r.span.End}) {
			b.group.cause(r.why, rows)
			return
		}
	}
}

// remove removes ranges from their source.
func (m *mover) remove(ctx context.Context, b *bucket, t *move.Task) error {
	src := store.Partition{Bucket: b.id, ID: t.Range.Partition}
	if t.Whole {
		return m.w.t.Remove(ctx, src, store.Bounds{}, m.w.draw())
	}
	for _, rg := range t.Ranges {
		if err := m.w.t.Remove(ctx, src, store.Bounds{Start: rg.Start, End: rg.End}, m.w.draw()); err != nil {
			return err
		}
	}
	return nil
}
