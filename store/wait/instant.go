package wait

import "time"

// Instant is one moment on both clocks of a process. The monotonic clock stops while the
// machine is suspended; a step changes the wall clock.
type Instant struct {
	Mono time.Duration // since some earlier moment
	Wall time.Time     // without a monotonic part
}

// Instants returns a function that reads both clocks. nil stands for the machine's clock.
func Instants(wall func() time.Time, mono func() time.Duration) func() Instant {
	begin := time.Now()
	if wall == nil && mono == nil {
		return func() Instant { // one call for both clocks
			now := time.Now()
			return Instant{Mono: now.Sub(begin), Wall: now.Round(0)}
		}
	}
	if wall == nil {
		wall = time.Now
	}
	if mono == nil {
		mono = func() time.Duration { return time.Since(begin) }
	}
	return func() Instant { return Instant{Mono: mono(), Wall: wall().Round(0)} }
}

// Since bounds the time that has passed: the least and the most that one of the two clocks
// has run.
func (i Instant) Since(then Instant) (least, most time.Duration) {
	mono, wall := i.Mono-then.Mono, i.Wall.Sub(then.Wall)
	return min(mono, wall), max(mono, wall)
}
