// Package wait has what loops need to wait: a sleep that a context ends, a backoff between
// retries, a limit of rows per second, and time measured on two clocks.
package wait

import (
	"context"
	"math"
	"math/rand/v2"
	"sync"
	"time"
)

// Sleep waits for d. It returns the cause of the end of ctx if that comes first.
func Sleep(ctx context.Context, d time.Duration) error {
	if d > 0 {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
		}
	}
	return context.Cause(ctx)
}

// Signal sends to a channel of one element, unless it has one.
func Signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Every calls f at an interval until stop, which waits for a call under way.
func Every(d time.Duration, f func()) (stop func()) {
	quit := make(chan struct{})
	var work sync.WaitGroup
	work.Go(func() {
		tick := time.NewTicker(d)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				f()
			case <-quit:
				return
			}
		}
	})
	return func() { close(quit); work.Wait() }
}

// Backoff is the pause before a retry. It doubles with each failure, from First to Most.
type Backoff struct {
	First, Most time.Duration
	// Jitter is the random part of a pause, 0 to 1: the pause lies between 1-Jitter of the
	// doubled one and all of it.
	Jitter float64
	// Rand draws from 0 to 1; rand.Float64 if nil.
	Rand func() float64
}

// Pause returns the pause after so many failures in a row, 1 at least.
func (b *Backoff) Pause(failures int) time.Duration {
	d := min(b.First, b.Most)
	for range failures - 1 {
		d = min(2*d, b.Most)
	}
	if b.Jitter == 0 {
		return d
	}
	draw := b.Rand
	if draw == nil {
		draw = rand.Float64
	}
	return time.Duration(float64(d) * (1 - b.Jitter*draw()))
}

// Sleep sleeps for Pause(failures).
func (b *Backoff) Sleep(ctx context.Context, failures int) error {
	return Sleep(ctx, b.Pause(failures))
}

// Turn draws how long one of an unknown number of processes waits, at most, before it does what one of them has to do,
// and the others need not once they see it done. Few wait for less than the others: the density grows exponentially
// towards most. So the second of up to some thousand waits longer than the first by an eighth of most, on average.
func Turn(most time.Duration) time.Duration {
	const steepness = 8 // e to this is how many processes it is good for
	return time.Duration(float64(most) * math.Log1p(rand.Float64()*math.Expm1(steepness)) / steepness)
}

// Pacer limits its users together to a number of rows per second. It is safe for concurrent
// use.
type Pacer struct {
	mu   sync.Mutex
	rate int
	next time.Time // when the rows taken so far are paid for
}

// NewPacer makes a pacer; with a rate of 0 it has no limit.
func NewPacer(rowsPerSecond int) *Pacer { return &Pacer{rate: rowsPerSecond} }

// SetRate changes the rate of later calls of Take; 0: no limit.
func (p *Pacer) SetRate(rowsPerSecond int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rate = rowsPerSecond; rowsPerSecond <= 0 {
		p.next = time.Time{}
	}
}

// Rate is the number of rows per second; 0: no limit.
func (p *Pacer) Rate() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rate
}

// Take waits until the rows taken before are paid for, and takes n more. It fails when ctx
// ends.
func (p *Pacer) Take(ctx context.Context, n int) error { return Sleep(ctx, p.TakeAt(time.Now(), n)) }

// TakeAt is Take at a time, but returns how long to wait.
func (p *Pacer) TakeAt(now time.Time, n int) (pause time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rate <= 0 {
		return 0
	}
	if p.next.Before(now) {
		p.next = now
	}
	pause = p.next.Sub(now)
	p.next = p.next.Add(p.cost(n))
	return pause
}

// Return gives back rows that were taken and not used.
func (p *Pacer) Return(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rate > 0 {
		p.next = p.next.Add(-p.cost(n))
	}
}

func (p *Pacer) cost(n int) time.Duration {
	return time.Duration(n) * time.Second / time.Duration(p.rate)
}
