package pause

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/wait"
)

// Error is returned for a move that can't begin because moves are paused. It is a Conflict.
type Error struct{ Pause Pause }

func (e *Error) Error() string {
	return "moves are paused " + e.Pause.String() + ": rebalancer resume ends that"
}

// Unwrap makes it a Conflict.
func (e *Error) Unwrap() error { return store.Conflict }

// Maps is what this package needs of a map client.
type Maps interface {
	Load(ctx context.Context, id store.BucketID) (*partmap.Root, error)
	Swap(ctx context.Context, change partmap.Change) error
	Stamp() partmap.Stamp
}

// Gate admits the moves of one process. It is safe for concurrent use.
type Gate struct {
	regs store.Registers
	maps Maps
	skew time.Duration
	now  func() time.Time

	notes wait.Together[*noting] // two changes of the register at once would conflict

	mu   sync.Mutex
	over []begin // void notes in the register
}

// NewGate makes a gate. To it, a pause with an end ends later by skew, the bound on the
// differences of clocks.
func NewGate(regs store.Registers, m Maps, skew time.Duration, now func() time.Time) *Gate {
	return &Gate{regs: regs, maps: m, skew: skew, now: now}
}

// time is the time by which pauses end.
func (g *Gate) time() time.Time { return g.now().Add(-g.skew) }

// Look returns the state at Local: unlike Begin's it may be behind.
func (g *Gate) Look(ctx context.Context) (State, error) { return Read(ctx, g.regs, store.Local) }

// Paused returns the pause of a bucket, by a state that Look returned.
func (g *Gate) Paused(s *State, id store.BucketID) (Pause, bool) { return s.Of(id, g.time()) }

// Begin must be called before a swap that begins a batch, with the epoch that the swap replaces. It returns an *Error
// if moves are paused. After any error the swap must not be made. Call End once the root has left that epoch.
// Concurrent calls make one change of the register together.
func (g *Gate) Begin(ctx context.Context, id store.BucketID, epoch uint64) error {
	n := &noting{begin: begin{id, epoch}}
	if err := g.notes.Do(ctx, n, g.note); err != nil {
		return err
	}
	return n.err
}

// noting is a note to be made.
type noting struct {
	begin
	err error // why it was not made
}

// note makes notes in the register.
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
		// Other movers died, or do not know whether their swaps were applied.
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

// End tells the gate that the root of a bucket has left an epoch for which Begin was called. It
// does no I/O: a later Begin strikes out the note.
func (g *Gate) End(id store.BucketID, epoch uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.over) < maxBegins {
		g.over = append(g.over, begin{id, epoch})
	}
}
