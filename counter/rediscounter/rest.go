package rediscounter

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/store"
)

const (
	// restAfter is how long a partition has had no requests until its state is thinned. It is less than writtenFor, as
	// the partitions are found among those that were written to.
	restAfter = writtenFor / 2
	// thinPause is the pause between two searches for partitions at rest where the last one found all of them.
	thinPause = time.Minute
	// perThin is how many partitions one transaction thins, with up to 20 KB each.
	perThin = 200
	// behind is how long before now a recount is noted as a write, so that it does not pass for the newest write: a
	// reader would not get what was written earlier and is merged later. Correct has merged all that is so old.
	behind = time.Minute
)

// resting says when to look for partitions at rest.
type resting struct {
	turn sync.Mutex // of the one call that does so at a time
	next time.Time  // guarded by turn
}

// place is a place in a sorted set: behind a number of members of a score, and all members of lower scores.
type place struct {
	score   int64
	members int64
}

// thin makes the states of partitions smaller that have had no requests for a while, up to perThin in each group. Those
// are among the partitions that were written to within the hour, in the order of the times.
func (b *Backend) thin(ctx context.Context) {
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

// thinAll thins the states of some partitions of a group, in one transaction.
func (b *Backend) thinAll(ctx context.Context, g *group, members []redis.Z) error {
	var ids []store.PartitionID
	for _, z := range members {
		if name, _ := z.Member.(string); len(name) == store.PartitionBytes {
			ids = append(ids, store.PartitionAt(name).ID)
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

// restsLater notes a partition that was counted among those that were written to, unless it is there, so that it is
// found when it is at rest: nobody may write to it again.
func (t *transaction) restsLater(ctx context.Context, p store.Partition, s *counter.State) error {
	if !s.Thick() {
		return nil
	}
	now, err := t.tx.Time(ctx).Result()
	if err != nil {
		return err
	}
	t.also = func(to redis.Pipeliner) {
		to.ZAddNX(ctx, t.written(), redis.Z{
			Score: float64(now.Add(-behind).UnixMilli()), Member: string(p.AppendTo(nil)),
		})
	}
	return nil
}
