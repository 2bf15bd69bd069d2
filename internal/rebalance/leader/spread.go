package leader

import (
	"bytes"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"

	"github.com/evenkeel/evenkeel/internal/rebalance/shard"
)

// sighting is what a candidate knows of who leads a shard.
type sighting struct {
	// holder leads it; the zero id: nobody does, since free.
	holder uuid.UUID
	free   time.Duration
}

// spread decides which shards a candidate takes, and whether it gives one up, from what it has seen of all shards and
// the number of live candidates, itself included.
//
// It takes free shards up to an equal share at once, and more once they have been free for patience, in which a
// candidate with fewer would have taken them. It gives one up only while none is free, if another one has at least two
// fewer, so that a shard never goes to and fro between candidates; of several with the most, the one with the lowest id
// does.
func spread(
	seen *[shard.Count]sighting, me uuid.UUID, live int, patience time.Duration, r *rand.Rand,
) (take []int, give bool) {
	held := map[uuid.UUID]int{me: 0}
	var free, left []int
	for n, s := range seen {
		switch {
		case s.holder != uuid.Nil:
			held[s.holder]++
		default:
			free = append(free, n)
			if s.free >= patience {
				left = append(left, n)
			}
		}
	}
	live = max(live, len(held))
	if len(free) > 0 {
		want := upwards(shard.Count, live) - held[me]
		if want <= 0 {
			free, want = left, upwards(len(left), len(held))
		}
		r.Shuffle(len(free), func(i, j int) { free[i], free[j] = free[j], free[i] })
		return free[:min(want, len(free))], false
	}
	least, most := held[me], me
	if live > len(held) {
		least = 0
	}
	for id, n := range held {
		least = min(least, n)
		if n > held[most] || n == held[most] && bytes.Compare(id[:], most[:]) < 0 {
			most = id
		}
	}
	return nil, most == me && held[me] >= least+2
}

// upwards divides, and rounds up.
func upwards(n, by int) int { return (n + by - 1) / by }
