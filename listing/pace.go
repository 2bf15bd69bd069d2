package listing

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/evenkeel/evenkeel/store"
)

// pace bounds on how many ranges of the map one deletion works at a time: on Options.MaxParallel, and where a read of
// all data centres waits for the distance between them, not for work, on more. Then it begins as many reads a second as
// MaxParallel reads of nearRead would be. The distance is the time of its shortest read: others may have waited for a
// store that has too much to do, which more reads at once do not help.
//
// All deletions of a process share a bound, too. Each asks it for one range at a time, so they take turns.
type pace struct {
	least, most int
	all         *semaphore.Weighted // of the process

	mu       sync.Mutex
	busy     int
	shortest time.Duration // 0: no read has ended
	ended    chan struct{} // has an element if a range has ended, or a read, since do has looked
}

const (
	nearRead = 10 * time.Millisecond / 3
	// farTimes is how many times MaxParallel one deletion may work on at most, but not on more than mostFar: for reads
	// of two round trips of 80 ms.
	farTimes = 48
	mostFar  = 1 << 10
)

// farRanges is the bound of one deletion over a distance; that of a process is twice as high.
func farRanges(parallel int) int { return max(min(farTimes*parallel, mostFar), parallel) }

// far reports whether a deletion asks several data centres, and may do several things at a time.
func (c *Client) far() bool {
	return c.severalCentres() && c.o.MaxParallel > 1
}

func (c *Client) newPace() *pace {
	p := &pace{least: c.o.MaxParallel, most: c.o.MaxParallel, all: c.deletions, ended: make(chan struct{}, 1)}
	if c.far() {
		p.most = farRanges(p.least)
	}
	return p
}

// timedRows are those of all data centres, whose reads tell a pace how long they take.
type timedRows struct {
	store.Rows
	pace *pace
}

func (r timedRows) Slice(
	ctx context.Context, p store.Partition, b store.Bounds, o store.SliceOptions,
) (store.Page, error) {
	begun := time.Now()
	page, err := r.Rows.Slice(ctx, p, b, o)
	if err == nil {
		r.pace.took(time.Since(begun))
	}
	return page, err
}

// took is told how long a read of all data centres has taken.
func (p *pace) took(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.shortest == 0 || d < p.shortest {
		p.shortest = max(d, 1)
		p.wake()
	}
}

func (p *pace) wake() {
	select {
	case p.ended <- struct{}{}:
	default:
	}
}

// bound returns on how many ranges the deletion may work at a time.
func (p *pace) bound() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.now()
}

func (p *pace) now() int {
	return min(max(int(time.Duration(p.least)*p.shortest/nearRead), p.least), p.most)
}

// begin reports whether there is room for one more range, and takes it.
func (p *pace) begin() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.busy >= p.now() {
		return false
	}
	p.busy++
	return true
}

func (p *pace) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.busy--
	p.wake()
}

// do runs f for one range in g once there is room. It fails if ctx ends before that. One goroutine calls it.
func (p *pace) do(ctx context.Context, g *errgroup.Group, f func() error) error {
	for !p.begin() {
		select {
		case <-p.ended:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if err := p.all.Acquire(ctx, 1); err != nil {
		p.end()
		return err
	}
	g.Go(func() error {
		defer p.end()
		defer p.all.Release(1)
		return f()
	})
	return nil
}
