package pause

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// Error says that a move can't begin, since moves are paused. It is a Conflict.
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

// Gate is what the movers of one process go through. It is safe for concurrent use.
type Gate struct {
	regs store.Registers
	maps Maps
	skew time.Duration
	now  func() time.Time

	changing sync.Mutex // of one process one after the other: they would only meet conflicts

	mu   sync.Mutex
	over []begin // noted in the register, and of no meaning any more
}

// NewGate makes a gate. A pause that ends by itself ends skew later for it, the bound
// within which clocks agree.
func NewGate(regs store.Registers, m Maps, skew time.Duration, now func() time.Time) *Gate {
	return &Gate{regs: regs, maps: m, skew: skew, now: now}
}

// time is that by which pauses end.
func (g *Gate) time() time.Time { return g.now().Add(-g.skew) }

// Look returns the state as known nearby: it may be behind, Begin is not.
func (g *Gate) Look(ctx context.Context) (State, error) { return Read(ctx, g.regs, store.Local) }

// Paused returns the pause that a bucket is under by a state that Look returned.
func (g *Gate) Paused(s *State, id store.BucketID) (Pause, bool) { return s.Of(id, g.time()) }

// Begin has to be called before a swap that lets a batch begin, with the epoch that the
// swap replaces. An *Error: moves are paused. After any error that swap must not be made.
// End is called once it is known that the root has left that epoch.
func (g *Gate) Begin(ctx context.Context, id store.BucketID, epoch uint64) error {
	g.changing.Lock()
	defer g.changing.Unlock()
	this := begin{id, epoch}
	g.mu.Lock()
	over := slices.Clone(g.over)
	g.mu.Unlock()
	var full []begin
	note := func() error {
		full = nil
		return change(ctx, g.regs, func(s *State) (bool, error) {
			now := g.time()
			if p, paused := s.Of(id, now); paused {
				return false, &Error{p}
			}
			s.forget(now)
			s.strike(over)
			if slices.Contains(s.begins, this) {
				return true, nil
			}
			if len(s.begins) >= maxBegins {
				full = slices.Clone(s.begins)
				return false, errFull
			}
			s.begins = append(s.begins, this)
			return true, nil
		})
	}
	err := note()
	if errors.Is(err, errFull) {
		// Others died, or did not come to know what became of their swaps.
		for _, b := range full {
			root, lerr := g.maps.Load(ctx, b.Bucket)
			if lerr == nil && root.Epoch > b.Epoch {
				over = append(over, b)
			}
		}
		err = note()
	}
	if err == nil {
		g.mu.Lock()
		g.over = slices.DeleteFunc(g.over, func(b begin) bool { return slices.Contains(over, b) })
		g.mu.Unlock()
	}
	return err
}

var errFull = store.Errorf(store.Unavailable, "too many moves begin at once (%d)", maxBegins)

// End says that the root of a bucket has left an epoch for which Begin was called. It
// does no I/O: what is noted is struck out by a later Begin.
func (g *Gate) End(id store.BucketID, epoch uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.over) < maxBegins {
		g.over = append(g.over, begin{id, epoch})
	}
}
