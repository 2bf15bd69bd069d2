package leader_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/rebalance/leader"
	"github.com/evenkeel/evenkeel/internal/rebalance/shard"
	"github.com/evenkeel/evenkeel/internal/test/race"
	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// crew is processes that may lead shards.
type crew struct {
	t    *testing.T
	s    store.Store
	work sync.WaitGroup

	mu      sync.Mutex
	live    map[*hand]bool
	who     [shard.Count][]string
	changes int
	twice   []string // shards that two led at once
}

type hand struct {
	*leader.Shards
	name string
	cut  *cutOff
	end  context.CancelFunc
}

func newCrew(t *testing.T) *crew { return &crew{t: t, s: memstore.New(), live: map[*hand]bool{}} }

func (c *crew) begin(name string) *hand {
	ctx, end := context.WithCancel(c.t.Context())
	h := &hand{name: name, cut: &cutOff{Store: c.s}, end: end}
	h.Shards = leader.NewShards(h.cut, leader.Options{Name: name}, func(context.Context) (int, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.live), nil
	})
	c.mu.Lock()
	c.live[h] = true
	c.mu.Unlock()
	c.work.Go(func() {
		_ = h.Run(ctx, func(ctx context.Context, n int) error {
			c.mu.Lock()
			if c.who[n] = append(c.who[n], name); len(c.who[n]) > 1 {
				c.twice = append(c.twice, fmt.Sprint(n, c.who[n]))
			}
			c.changes++
			c.mu.Unlock()
			<-ctx.Done()
			c.mu.Lock()
			defer c.mu.Unlock()
			for i, who := range c.who[n] {
				if who == name {
					c.who[n] = append(c.who[n][:i:i], c.who[n][i+1:]...)
					break
				}
			}
			return context.Cause(ctx)
		}, nil)
	})
	return h
}

// stop ends a process, or kills it: then it can't resign. A dead one stays in the list of candidates for a while.
func (c *crew) stop(h *hand, killed bool) {
	h.cut.set(killed)
	h.end()
	gone := func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.live, h)
	}
	if !killed {
		gone()
		return
	}
	time.AfterFunc(2*time.Minute, gone)
}

// share returns how many shards each leads; those of nobody are under "".
func (c *crew) share() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	share := map[string]int{}
	for _, who := range c.who {
		if len(who) == 0 {
			share[""]++
		}
		for _, name := range who {
			share[name]++
		}
	}
	return share
}

func (c *crew) changed() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changes
}

func (c *crew) done() {
	c.mu.Lock()
	for h := range c.live {
		h.end()
	}
	c.mu.Unlock()
	c.work.Wait()
	require.Empty(c.t, c.twice, "shards that two led at once")
}

func TestOneAloneLeadsAllShardsAndTwoHalfEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrew(t)
		defer c.done()
		a := c.begin("a")
		time.Sleep(leader.DefaultLease / 3)
		require.Equal(t, map[string]int{"a": shard.Count}, c.share())
		require.Equal(t, shard.All, a.Led())
		b := c.begin("b")
		time.Sleep(5 * time.Minute)
		require.Equal(t, map[string]int{"a": shard.Count / 2, "b": shard.Count / 2}, c.share())
		require.Equal(t, shard.All&^a.Led(), b.Led())
		for n, h := range b.Leaders(t.Context()) {
			require.Equal(t, a.Led().Has(n), h.Name == "a", n)
		}
		before := c.changed()
		time.Sleep(10 * time.Minute)
		require.Equal(t, before, c.changed(), "nothing goes to and fro")

		c.stop(b, true)
		keeps := a.Led()
		for range 10 {
			time.Sleep(5 * time.Second)
			require.Equal(t, keeps, keeps&a.Led(), "the shards of a go on")
		}
		require.GreaterOrEqual(t, a.Led().Len(), shard.Count-1)
		time.Sleep(10 * time.Minute)
		require.LessOrEqual(t, c.changed(), before+shard.Count/2+1, "a dead process is offered one shard, once")
		require.Equal(t, shard.All, a.Led())
	})
}

// However many there are, and whoever comes, ends and dies: each shard is led, by candidates that lead equally many.
func TestShardsSpread(t *testing.T) {
	chance := seed.Number(t)
	for round := range uint64(race.Fewer(2)) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(chance, round))
			c := newCrew(t)
			defer c.done()
			var hands []*hand
			for n := range 1 + r.IntN(24) {
				time.Sleep(time.Duration(r.Int64N(int64(time.Second))))
				hands = append(hands, c.begin(fmt.Sprint("first ", n)))
			}
			settled := func(when string) {
				t.Helper()
				time.Sleep(20 * time.Minute)
				before := c.changed()
				time.Sleep(10 * time.Minute)
				require.Equal(t, before, c.changed(), when)
				share, each := c.share(), shard.Count/len(hands)
				for _, h := range hands {
					require.Contains(t, []int{each, (shard.Count + len(hands) - 1) / len(hands)}, share[h.name], "%s: %v", when, share)
				}
				require.Zero(t, share[""], when)
			}
			settled("at first")
			for n := range 1 + r.IntN(8) {
				hands = append(hands, c.begin(fmt.Sprint("second ", n)))
			}
			settled("more")
			for range r.IntN(len(hands)) {
				at := r.IntN(len(hands))
				c.stop(hands[at], r.IntN(2) == 0)
				hands = append(hands[:at], hands[at+1:]...)
			}
			settled("fewer")
		})
	}
}

// A program that knows no shards leads all, while it does; a program that does takes none of them.
func TestAProgramThatKnowsNoShardsLeadsAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrew(t)
		defer c.done()
		old := leader.New(c.s, leader.Options{Name: "old"})
		stop, _ := begin(t, old)
		a := c.begin("a")
		time.Sleep(10 * leader.DefaultLease)
		require.Zero(t, a.Led())
		for n, h := range a.Leaders(t.Context()) {
			require.Equal(t, "old", h.Name, n)
		}
		require.ErrorIs(t, stop(), context.Canceled)
		time.Sleep(leader.DefaultLease)
		require.Equal(t, shard.All, a.Led())
		require.ErrorIs(t, old.Try(t.Context(), untilEnd), store.Conflict, "nor does it while another one leads shard 0")

		// It gets the record all the same, as after an hour in which nobody could swap.
		putHolder(t, c.s, leader.Holder{
			ID: uuid.New(), Name: "old", Lease: leader.DefaultLease, Until: time.Now().Add(time.Hour),
		})
		time.Sleep(leader.DefaultLease)
		require.Zero(t, a.Led())
	})
}

// A command that has to be alone leads all shards, or none.
func TestAllShardsOrNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrew(t)
		defer c.done()
		one := leader.NewShards(c.s, leader.Options{Name: "one"}, nil)
		other := leader.NewShards(c.s, leader.Options{Name: "other"}, nil)
		require.NoError(t, one.Try(t.Context(), func(ctx context.Context) error {
			require.Equal(t, shard.All, one.Led())
			require.ErrorIs(t, other.Try(ctx, nothing), store.Conflict)
			time.Sleep(10 * leader.DefaultLease)
			return ctx.Err()
		}))
		require.Zero(t, one.Led())
		a := c.begin("a")
		time.Sleep(leader.DefaultLease)
		b := c.begin("b")
		time.Sleep(5 * time.Minute)
		var held *leader.HeldError
		require.ErrorAs(t, other.Try(t.Context(), nothing), &held)
		require.NotZero(t, b.Led())
		require.Equal(t, map[string]int{"a": shard.Count / 2, "b": shard.Count / 2}, c.share())

		// Shard 0 is free, and shards that are held let the attempt fail: what it has taken is given back at once.
		first, second := a, b
		if b.Led().Has(0) {
			first, second = b, a
		}
		c.stop(first, false)
		synctest.Wait()
		require.ErrorAs(t, other.Try(t.Context(), nothing), &held)
		time.Sleep(leader.DefaultLease * 2 / 3)
		require.Equal(t, shard.All, second.Led())
	})
}
