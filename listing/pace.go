package listing

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/evenkeel/evenkeel/store"
)

// A pace bounds the number of ranges of the map on which a deletion works at a time. Deletions are fast between far
// data centres, and do not overload near ones:
//   - While reads take up to nearRead, the bound is Options.MaxParallel.
//   - With several data centres and longer reads it grows with the duration of the reads, up to farRanges. If reads
//     take ten times nearRead, it is ten times MaxParallel.
//
// Of all reads so far the shortest counts, as longer ones may have waited for an overloaded store. All deletions of a
// process share another bound. Each deletion asks for one range at a time, so deletions take turns.
type pace struct {
	least, most int                 // bounds of the number of ranges at a time
	all         *semaphore.Weighted // the bound that all deletions of the process share

	mu       sync.Mutex
	busy     int           // number of ranges on which the deletion works at present
	shortest time.Duration // the duration of the shortest read; 0 if no read has ended
	ended    chan struct{} // has an element if a range or a read has ended since do last waited
}

const (
	// nearRead is the duration of a read up to which a deletion works on MaxParallel ranges at a time: 3.3 ms. Longer
	// reads mostly wait for the distance between data centres.
	nearRead = 10 * time.Millisecond / 3
	// farTimes and mostFar bound the number of ranges on which a deletion works at a time if data centres are far
	// apart: farTimes as a multiple of MaxParallel, mostFar as a number. farTimes is enough for reads that take two
	// round trips of 80 ms.
	farTimes = 48
	mostFar  = 1 << 10
)

// farRanges returns the greatest number of ranges of a map on which a deletion works at a time if data centres are far
// apart. parallel is Options.MaxParallel. The bound of all deletions of a process together is twice as high.
func farRanges(parallel int) int { return max(min(farTimes*parallel, mostFar), parallel) }

// far reports whether deletions may work on more ranges at a time than Options.MaxParallel, because they read several
// data centres. It returns false if MaxParallel is 1.
func (c *Client) far() bool {
	return c.severalCentres() && c.o.MaxParallel > 1
}

// newPace returns the pace of a deletion, which bounds the number of ranges on which the deletion works at a time.
func (c *Client) newPace() *pace {
	p := &pace{least: c.o.MaxParallel, most: c.o.MaxParallel, all: c.deletions, ended: make(chan struct{}, 1)}
	if c.far() {
		p.most = farRanges(p.least)
	}
	return p
}

// timedRows reads rows for a deletion from all data centres, and measures the time that each read takes. The pace of
// the deletion, its bound on concurrent reads, depends on these times.
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

// took records that a read from all data centres has taken the time d. The shortest such time decides on how many
// ranges the deletion works at a time.
func (p *pace) took(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.shortest == 0 || d < p.shortest {
		p.shortest = max(d, 1)
		p.wake()
	}
}

// wake makes a waiting call of do check again whether the deletion may begin another range.
func (p *pace) wake() {
	select {
	case p.ended <- struct{}{}:
	default:
	}
}

// bound returns the number of ranges on which the deletion may work at a time. It locks p.mu.
func (p *pace) bound() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.now()
}

// now returns the number of ranges on which the deletion may work at a time. The caller must hold p.mu.
func (p *pace) now() int {
	return min(max(int(time.Duration(p.least)*p.shortest/nearRead), p.least), p.most)
}

// begin counts another range on which the deletion works, and returns true. If the deletion works on as many ranges as
// it may, begin counts nothing and returns false.
func (p *pace) begin() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.busy >= p.now() {
		return false
	}
	p.busy++
	return true
}

// end counts that the deletion has ended its work on a range.
func (p *pace) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.busy--
	p.wake()
}

// do runs f, the work of a deletion on one range, in the group g. Before that it waits while the deletion works on as
// many ranges as it may. It fails if ctx ends during the wait. Only one goroutine may call do.
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
