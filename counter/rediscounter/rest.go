package rediscounter

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/evenkeel/evenkeel/internal/countbook"
	"github.com/evenkeel/evenkeel/internal/storekit"
	"github.com/evenkeel/evenkeel/store"
)

const (
	// restAfter is how long a partition must have had no requests before its counts are made smaller. It is less than
	// writtenFor, since such partitions are found in the Redis list of written partitions.
	restAfter = writtenFor / 2
	// thinPause is the pause between two searches for partitions without requests, if the last search found all of
	// them.
	thinPause = time.Minute
	// perThin is the number of partitions whose counts one transaction makes smaller. The counts of each have up to 20
	// KB.
	perThin = 200
	// behind is how long before the present a recount is recorded in the list of written partitions. Writes of the last
	// moments may still be merged later, with their own times. With the present time, a reader of the list would go on
	// behind them and miss them. Correct has merged all writes that are older than behind.
	behind = time.Minute
)

// resting says when to search next for partitions at rest, which have had no requests for some time.
type resting struct {
	turn sync.Mutex // held during a search, so that only one call searches at a time
	next time.Time  // guarded by turn
}

// place is a position in a Redis sorted set, for the search for partitions at rest. The position is behind all members
// with scores lower than the field score, and behind some members with exactly this score, whose number is in the field
// members.
type place struct {
	score   int64
	members int64
}

// thin makes the counts of quiet partitions in Redis smaller, at most perThin partitions in each group of buckets. A
// partition is quiet if it has had no requests for restAfter. thin finds these partitions in the list of written
// partitions, in the order of the times. It ignores errors: the next call tries again.
func (b *backend) thin(ctx context.Context) {
	if !b.resting.turn.TryLock() {
		return
	}
	defer b.resting.turn.Unlock()
	now := b.o.now()
	if now.Before(b.resting.next) && b.resting.next.Sub(now) <= thinPause {
		return
	}
	var clock *redis.TimeCmd
	pages := make([]*redis.ZSliceCmd, len(b.groups))
	if _, err := b.c.Pipelined(ctx, func(p redis.Pipeliner) error {
		clock = p.Time(ctx)
		for i := range b.groups {
			g := &b.groups[i]
			pages[i] = p.ZRangeByScoreWithScores(ctx, g.written(), &redis.ZRangeBy{
				Min: strconv.FormatInt(g.thinned.score, 10), Max: "+inf", Offset: g.thinned.members, Count: perThin,
			})
		}
		return nil
	}); err != nil {
		return
	}
	until := float64(clock.Val().Add(-restAfter).UnixMilli())
	more := false
	for i := range b.groups {
		g, page := &b.groups[i], pages[i].Val()
		if at := slices.IndexFunc(page, func(z redis.Z) bool { return z.Score > until }); at >= 0 {
			page = page[:at]
		}
		more = more || len(page) == perThin
		if b.thinAll(ctx, g, page) != nil {
			return
		}
		for _, z := range page {
			if at := int64(z.Score); at == g.thinned.score {
				g.thinned.members++
			} else {
				g.thinned = place{at, 1}
			}
		}
	}
	if b.resting.next = now; !more {
		b.resting.next = now.Add(thinPause)
	}
}

// thinAll makes the counts of some quiet partitions smaller, in one Redis transaction. members are the entries of these
// partitions in the list of written partitions; all are of the group g.
func (b *backend) thinAll(ctx context.Context, g *group, members []redis.Z) error {
	var ids []store.PartitionID
	for _, z := range members {
		if name, _ := z.Member.(string); len(name) == storekit.PartitionBytes {
			ids = append(ids, storekit.PartitionAt(name).ID)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	return b.change(ctx, g, func(t *transaction) error {
		if err := t.whole(ctx, ids...); err != nil {
			return err
		}
		for _, id := range ids {
			if s := t.book.States[id]; s != nil && s.Thick() {
				s.Thin()
				t.touched = append(t.touched, id)
			}
		}
		return nil
	})
}

// restsLater makes sure that the counts s of the partition p are made smaller later, if the partition gets no requests
// for some time. It is called after a recount. It adds p to the Redis list of written partitions, unless p is listed or
// s is small already.
func (t *transaction) restsLater(ctx context.Context, p store.Partition, s *countbook.State) error {
	// Partitions without requests are found in that list.
	if !s.Thick() {
		return nil
	}
	now, err := t.tx.Time(ctx).Result()
	if err != nil {
		return err
	}
	t.also = func(to redis.Pipeliner) {
		to.ZAddNX(ctx, t.written(), redis.Z{
			Score: float64(now.Add(-behind).UnixMilli()), Member: string(storekit.AppendPartition(nil, p)),
		})
	}
	return nil
}
