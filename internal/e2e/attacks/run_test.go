package attacks

import (
	"slices"
	"testing"
	"time"
)

// rate is how many operations an honest client begins each second.
const rate = 100

// TestAttacks runs each attack for itself, but variations that have a group at once with
// those of the same group, unless there is more time.
func TestAttacks(t *testing.T) {
	lasts, long := setting(t, "EVENKEEL_ATTACK", 2*time.Second)
	var groups []string
	for _, a := range attacks {
		if a.group != "" && !slices.Contains(groups, a.group) {
			groups = append(groups, a.group)
		}
		if a.group == "" || long {
			t.Run(a.name, func(t *testing.T) { newGround(t, a.open).besiege(t, lasts, rate, maxLatency, a) })
		}
	}
	if long {
		return
	}
	for _, group := range groups {
		t.Run(group, func(t *testing.T) {
			var of []*attack
			for _, a := range attacks {
				if a.group == group {
					of = append(of, a)
				}
			}
			newGround(t, false).besiege(t, lasts, rate, maxLatency, of...)
		})
	}
}

// TestSoak runs all attacks at once, for EVENKEEL_SOAK.
func TestSoak(t *testing.T) {
	lasts, _ := setting(t, "EVENKEEL_SOAK", 8*time.Second)
	var all []*attack
	for _, a := range attacks {
		if !a.open {
			all = append(all, a)
		}
	}
	newGround(t, false).besiege(t, lasts, rate, 2*time.Second, all...)
}
