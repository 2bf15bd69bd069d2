package pause

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/evenkeel/evenkeel/internal/wait"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// Error is the error of a move that can't begin because moves are paused. The field Pause says who paused the moves,
// and until when. The kind of the error is Conflict.
type Error struct{ Pause Pause }

func (e *Error) Error() string {
	return "moves are paused " + e.Pause.String() + ": rebalancer resume ends that"
}

// Unwrap returns store.Conflict, which is the kind of the error for errors.Is.
func (e *Error) Unwrap() error { return store.Conflict }

// Maps is the part of a mapclient.Client that this package uses, to read and replace the roots of maps. A root is the
// record in the store from which a bucket's partition map (its ranges and partitions) is found.
type Maps interface {
	Load(ctx context.Context, id store.BucketID) (*partmap.Root, error)
	Swap(ctx context.Context, change partmap.Change) error
	Stamp() partmap.Stamp
}

// A Gate keeps this process from beginning moves while moves are paused. A mover calls Begin before each batch (a group
// of moves that begin together). If Begin fails, the mover does not begin the batch. A Gate is safe for concurrent use.
type Gate struct {
	regs store.Registers
	maps Maps
	skew time.Duration
	now  func() time.Time

	notes wait.Together[*noting] // joins concurrent changes of the register, which would conflict

	mu   sync.Mutex
	over []begin // void notes in the register
}

// NewGate returns a gate, which keeps moves from beginning during a pause. The parameter skew is the largest allowed
// difference between the clocks of processes; the gate makes each pause longer by skew, so that none ends early. The
// function `now` returns the wall clock's time.
func NewGate(regs store.Registers, m Maps, skew time.Duration, now func() time.Time) *Gate {
	return &Gate{regs: regs, maps: m, skew: skew, now: now}
}

// time returns the time by which the end of a pause is judged: the present time less the allowed difference between
// clocks. So no pause ends early.
func (g *Gate) time() time.Time { return g.now().Add(-g.skew) }

// Look returns the state of all pauses, from the nearest data centre (Local), so the result may be out of date. It
// serves to plan moves; only Begin reads the newest state.
func (g *Gate) Look(ctx context.Context) (State, error) { return Read(ctx, g.regs, store.Local) }

// Paused returns the pause that is in force for the bucket id. s is the state that Look has returned. The bool is false
// if moves of the bucket are not paused.
func (g *Gate) Paused(s *State, id store.BucketID) (Pause, bool) { return s.Of(id, g.time()) }

// Begin announces in the store that a batch (group) of moves of the bucket id is about to begin. The caller then begins
// the batch by a compare-and-swap of the bucket's root, the record from which its partition map is found. The parameter
// epoch is the version of the root that the swap replaces.
//
// Begin returns an *Error if moves are paused. After any error the caller must not begin the batch. When the root has a
// later epoch, the caller must call End. Concurrent calls of Begin share one write.
func (g *Gate) Begin(ctx context.Context, id store.BucketID, epoch uint64) error {
	n := &noting{begin: begin{id, epoch}}
	if err := g.notes.Do(ctx, n, g.note); err != nil {
		return err
	}
	return n.err
}

// noting is an announcement that a call of Begin wants to store: a group of moves is about to begin in a bucket.
// Concurrent calls of Begin write their announcements together.
type noting struct {
	begin
	err error // why the note was not written; nil if it was
}

// note stores announcements that groups of moves are about to begin. It also removes announcements of groups that have
// begun. It sets the field err of each announcement that can't be stored, because moves are paused or there are too
// many announcements. The result is the error of the write as a whole.
func (g *Gate) note(ctx context.Context, notes []*noting) error {
	g.mu.Lock()
	over := slices.Clone(g.over)
	g.mu.Unlock()
	var full []begin
	try := func() error {
		full = nil
		return change(ctx, g.regs, func(s *State) (made bool, err error) {
			now := g.time()
			s.forget(now)
			s.strike(over)
			for _, n := range notes {
				n.err = nil
				if p, paused := s.Of(n.Bucket, now); paused {
					n.err = &Error{p}
					continue
				}
				there := slices.Contains(s.Begins, n.begin)
				if !there && len(s.Begins) >= maxBegins {
					full, n.err = slices.Clone(s.Begins), errFull
					continue
				}
				if made = true; !there {
					s.Begins = append(s.Begins, n.begin)
				}
			}
			return made, nil
		})
	}
	err := try()
	if err == nil && full != nil {
		// The register is full of notes of movers that died, or that do not know whether their swaps were applied.
		for _, b := range full {
			root, lerr := g.maps.Load(ctx, b.Bucket)
			if lerr == nil && root.Epoch > b.Epoch {
				over = append(over, b)
			}
		}
		err = try()
	}
	if err == nil && slices.ContainsFunc(notes, func(n *noting) bool { return n.err == nil }) {
		g.mu.Lock()
		g.over = slices.DeleteFunc(g.over, func(b begin) bool { return slices.Contains(over, b) })
		g.mu.Unlock()
	}
	return err
}

var errFull = store.Errorf(store.Unavailable, "too many moves begin at once (%d)", maxBegins)

// End tells the gate that an announcement stored by Begin is not needed any more. The caller calls it when the root of
// the bucket id no longer has the given epoch (version). End does no I/O: a later call of Begin removes the
// announcement from the store.
func (g *Gate) End(id store.BucketID, epoch uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.over) < maxBegins {
		g.over = append(g.over, begin{id, epoch})
	}
}
