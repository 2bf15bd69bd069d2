package executor

import (
	"context"
	"sync"
	"time"
)

// pacer holds scans to a number of rows per second, all together.
type pacer struct {
	rate  int // rows per second; 0: any
	now   func() time.Time
	sleep func(ctx context.Context, d time.Duration) error

	mu   sync.Mutex
	next time.Time // when the rows taken so far are paid for
}

// take waits until n more rows may be read, and for the end of a pause.
func (p *pacer) take(ctx context.Context, running func(context.Context) error, n int) error {
	if err := running(ctx); err != nil {
		return err
	}
	if p.rate <= 0 {
		return nil
	}
	p.mu.Lock()
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

// back returns what was taken and not used.
func (p *pacer) back(n int) {
	if p.rate <= 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next = p.next.Add(-p.cost(n))
}

func (p *pacer) cost(n int) time.Duration {
	return time.Duration(n) * time.Second / time.Duration(p.rate)
}
