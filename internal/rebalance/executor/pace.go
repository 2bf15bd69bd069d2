package executor

import (
	"context"
	"sync"
	"time"
)

// Pacer holds scans to a number of rows per second, all together. It is safe for
// concurrent use.
type Pacer struct {
	now   func() time.Time
	sleep func(ctx context.Context, d time.Duration) error

	mu   sync.Mutex
	rate int
	next time.Time // when the rows taken so far are paid for
}

// NewPacer makes a pacer for so many rows per second; 0: any number. now and sleep
// are the wall clock and waiting by it; nil: those of the machine.
func NewPacer(rowsPerSecond int, now func() time.Time, wait func(ctx context.Context, d time.Duration) error) *Pacer {
	if now == nil {
		now = time.Now
	}
	if wait == nil {
		wait = sleep
	}
	return &Pacer{rate: rowsPerSecond, now: now, sleep: wait}
}

// SetRate changes the number of rows per second, for what is taken from now on; 0:
// any number.
func (p *Pacer) SetRate(rowsPerSecond int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rate = rowsPerSecond; rowsPerSecond <= 0 {
		p.next = time.Time{}
	}
}

// Rate is the number of rows per second at present; 0: any number.
func (p *Pacer) Rate() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rate
}

// Take waits until n more rows may be read. It fails when ctx ends.
func (p *Pacer) Take(ctx context.Context, n int) error {
	p.mu.Lock()
	if p.rate <= 0 {
		p.mu.Unlock()
		return ctx.Err()
	}
	now := p.now()
	if p.next.Before(now) {
		p.next = now
	}
	wait := p.next.Sub(now)
	p.next = p.next.Add(p.cost(n))
	p.mu.Unlock()
	if wait <= 0 {
		return nil
	}
	return p.sleep(ctx, wait)
}

// Back returns what was taken and not used.
func (p *Pacer) Back(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rate > 0 {
		p.next = p.next.Add(-p.cost(n))
	}
}

func (p *Pacer) cost(n int) time.Duration {
	return time.Duration(n) * time.Second / time.Duration(p.rate)
}
