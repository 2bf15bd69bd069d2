package wait

import "time"

// Instant is one moment as both clocks of a process show it. Neither clock alone measures a duration reliably: the
// monotonic clock stops while the machine is suspended, and the wall clock may be set forward or back.
type Instant struct {
	Mono time.Duration // the time since some earlier moment
	Wall time.Time     // without a monotonic part
}

// Instants returns a function that reads the wall clock and the monotonic clock at one moment. The arguments wall and
// mono replace the machine's own clocks in tests; nil stands for the machine's clock.
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

// Since returns the bounds of the time that has passed from the instant then to the instant i. The wall clock and the
// monotonic clock each show a duration. least is the shorter and most the longer of the two.
func (i Instant) Since(then Instant) (least, most time.Duration) {
	mono, wall := i.Mono-then.Mono, i.Wall.Sub(then.Wall)
	return min(mono, wall), max(mono, wall)
}
