// Package wait has tools for loops that wait: a sleep that ends with a context, a backoff between retries, a limit of
// rows per second, shared calls, and time measured on two clocks.
package wait

import (
	"context"
	"math"
	"math/rand/v2"
	"sync"
	"time"
)

// Sleep waits for the duration d, or until ctx ends. Sleep returns nil after the full duration, else the cause for
// which ctx has ended. If d is zero or negative, Sleep does not wait, and returns the cause if ctx has ended already.
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

// Signal wakes the goroutine that receives from the channel c, whose buffer has one element. If the buffer is full, the
// goroutine has not yet received an earlier signal, and Signal does nothing.
func Signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Every calls f once in each interval of the length d, in a goroutine of its own, until the caller calls the returned
// function stop. stop waits for a call of f that is under way.
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

// Backoff computes the pauses between retries of a call that fails. The pause doubles with each failure, from First to
// Most.
type Backoff struct {
	First, Most time.Duration
	// Jitter is the random part of a pause, 0 to 1: the pause is between 1-Jitter and 1 times the doubled pause.
	Jitter float64
	// Rand returns a random number from 0 to 1; nil means rand.Float64.
	Rand func() float64
}

// Pause returns how long to wait before the next retry, after the given number of failures in a row (at least 1).
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

// Sleep waits for the pause that follows the given number of failures in a row (see Pause). Sleep returns nil after the
// pause. If ctx ends first, Sleep returns the cause for which ctx has ended.
func (b *Backoff) Sleep(ctx context.Context, failures int) error {
	return Sleep(ctx, b.Pause(failures))
}

// Turn returns how long a process waits before it does a job that only one of several processes needs to do. The result
// is a random duration up to most. The process whose wait ends first does the job, and the other processes then see
// that the job is done. Long waits are far more likely than short ones, so two processes rarely begin at almost the
// same time.
func Turn(most time.Duration) time.Duration {
	// The density grows exponentially towards most. So even with some thousand processes the second process waits
	// longer than the first by an eighth of most on average.
	const steepness = 8 // e to this power is the number of processes up to which Turn separates the first
	return time.Duration(float64(most) * math.Log1p(rand.Float64()*math.Expm1(steepness)) / steepness)
}

// Pacer limits the rate, in rows per second, at which all its users together process rows. A Pacer is safe for
// concurrent use.
type Pacer struct {
	mu   sync.Mutex
	rate int
	next time.Time // the time until which the rows taken so far use up the rate
}

// NewPacer returns a Pacer, which limits its users together to the given number of rows per second. 0 means no limit.
func NewPacer(rowsPerSecond int) *Pacer { return &Pacer{rate: rowsPerSecond} }

// SetRate sets the limit of the pacer, in rows per second, for later calls of Take. 0 means no limit.
func (p *Pacer) SetRate(rowsPerSecond int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rate = rowsPerSecond; rowsPerSecond <= 0 {
		p.next = time.Time{}
	}
}

// Rate returns the number of rows per second to which the pacer limits its users; 0 means no limit.
func (p *Pacer) Rate() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rate
}

// Take waits until the caller may process n rows within the rate of the pacer. Take reserves n rows, then waits until
// the rows reserved before them have used up their time. If ctx ends during the wait, Take returns the cause for which
// ctx has ended. The n rows stay reserved even then; Return gives them back.
func (p *Pacer) Take(ctx context.Context, n int) error { return Sleep(ctx, p.TakeAt(time.Now(), n)) }

// TakeAt reserves n rows of the pacer's rate at the time now, like Take, but does not wait. The result pause is how
// long the caller must wait before it processes the rows.
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

// Return gives back n rows that Take has reserved but that the caller did not process, so that later calls of Take wait
// less.
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
