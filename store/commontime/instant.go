package commontime

import "time"

// Instant is one moment on both clocks of a process. The monotonic one stops while
// the machine is suspended; a step turns the wall clock.
type Instant struct {
	Mono time.Duration // since some moment before
	Wall time.Duration // since 1970
}

// Instants returns a function that reads both clocks. Those that are nil are the
// machine's: both of them are read at once, which is one call for two.
func Instants(wall func() time.Time, mono func() time.Duration) func() Instant {
	begin := time.Now()
	if wall == nil && mono == nil {
		return func() Instant {
			now := time.Now()
			return Instant{Mono: now.Sub(begin), Wall: time.Duration(now.UnixNano())}
		}
	}
	if wall == nil {
		wall = time.Now
	}
	if mono == nil {
		mono = func() time.Duration { return time.Since(begin) }
	}
	return func() Instant { return Instant{Mono: mono(), Wall: time.Duration(wall().UnixNano())} }
}

// Since bounds the time that has passed: the least and the most that one of the two
// clocks has run.
func (i Instant) Since(then Instant) (least, most time.Duration) {
	mono, wall := i.Mono-then.Mono, i.Wall-then.Wall
	return min(mono, wall), max(mono, wall)
}
