package attacks

import (
	"slices"
	"testing"
	"time"
)

// answers is the group of variations that make the server build answers.
const answers = "answers"

// rate is how many operations an honest client begins each second.
const rate = 100

// TestAttacks runs each attack for itself, but variations at once with those of the same
// group, unless there is more time. Those of onAnswers always run one by one: the limit is
// that of one attack, and at once they come close to it (0.6 to 1.1 s on two processors);
// TestSoak, with the limit for all at once, has them together.
func TestAttacks(t *testing.T) {
	lasts, long := setting(t, "EVENKEEL_ATTACK", 2*time.Second)
	for _, a := range attacks {
		t.Run(a.name, func(t *testing.T) { newGround(t, a).besiege(t, lasts, rate, within(long, maxLatency), a) })
	}
	var groups []string
	of := map[string][]*attack{}
	for _, a := range variations {
		name := a.group
		if long || a.group == answers {
			name += ", " + a.name
		}
		if of[name] == nil {
			groups = append(groups, name)
		}
		of[name] = append(of[name], a)
	}
	for _, name := range groups {
		t.Run(name, func(t *testing.T) {
			newGround(t, of[name][0]).besiege(t, lasts, rate, within(long, maxLatency), of[name]...)
		})
	}
}

// soakPart of the attackers come where all attacks run at once: all of them would need more
// files than a process has, and are no more than those who wait for their turn.
const soakPart = 4

// TestSoak runs all attacks at once, for EVENKEEL_SOAK.
func TestSoak(t *testing.T) {
	lasts, long := setting(t, "EVENKEEL_SOAK", 8*time.Second)
	var all []*attack
	for _, a := range slices.Concat(attacks, variations) {
		if !a.open && !a.tls {
			all = append(all, a)
		}
	}
	g := newGround(t, &attack{token: true})
	g.Part = soakPart
	g.besiege(t, lasts, rate, within(long, 2*time.Second), all...)
}
