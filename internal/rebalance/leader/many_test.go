package leader_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/rebalance/leader"
	"github.com/evenkeel/evenkeel/internal/rebalance/shard"
	"github.com/evenkeel/evenkeel/internal/test/race"
	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// contended is a store on which operations at Serial hinder each other, as lightweight transactions do: one during
// whose first half another one of the same register begins fails.
type contended struct {
	store.Store
	mu     sync.Mutex
	begun  map[string]int // by registers
	failed int
	local  int // reads at Local
	by     map[*caller]int
}

// caller is the way of one process to it.
type caller struct {
	*contended
	cut bool
}

const halfOfSerial = 80 * time.Millisecond

func (c *caller) serial(key []byte, do func() error) error {
	c.mu.Lock()
	c.begun[string(key)]++
	c.by[c]++
	n, cut := c.begun[string(key)], c.cut
	c.mu.Unlock()
	if cut {
		return store.Errorf(store.Unavailable, "cut off")
	}
	time.Sleep(halfOfSerial)
	c.mu.Lock()
	hindered := c.begun[string(key)] != n
	if hindered {
		c.failed++
	}
	c.mu.Unlock()
	if hindered {
		return store.Errorf(store.Timeout, "contention")
	}
	err := do()
	time.Sleep(halfOfSerial)
	return err
}

func (c *caller) Read(ctx context.Context, t store.Table, key []byte, l store.Level) (rec store.Record, err error) {
	if l == store.Local {
		c.mu.Lock()
		c.local++
		c.mu.Unlock()
		time.Sleep(time.Millisecond)
		return c.Store.Read(ctx, t, key, l)
	}
	err = c.serial(key, func() error { rec, err = c.Store.Read(ctx, t, key, l); return err })
	return rec, err
}

func (c *caller) Swap(ctx context.Context, t store.Table, key []byte, old store.Version, next store.Record) error {
	return c.serial(key, func() error { return c.Store.Swap(ctx, t, key, old, next) })
}

// Of very many candidates one leads soon, the others do nothing at Serial, and a leader that dies or ends is replaced.
func TestVeryManyCandidates(t *testing.T) {
	for _, n := range []int{1, 20, 1000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			chance := seed.Number(t)
			synctest.Test(t, func(t *testing.T) {
				r := rand.New(rand.NewPCG(chance, uint64(n)))
				s := &contended{Store: memstore.New(), begun: map[string]int{}, by: map[*caller]int{}}
				var w watch
				callers, ends, names := make([]*caller, n), make([]context.CancelFunc, n), map[string]int{}
				var all sync.WaitGroup
				begin := func(i int) {
					var ctx context.Context
					ctx, ends[i] = context.WithCancel(t.Context())
					callers[i], names[fmt.Sprint(i)] = &caller{contended: s}, i
					c := leader.New(callers[i], leader.Options{Name: fmt.Sprint(i)})
					after := time.Duration(r.Int64N(int64(leader.DefaultLease / 3)))
					all.Go(func() {
						time.Sleep(after)
						_ = c.Run(ctx, w.work(fmt.Sprint(i)), nil)
					})
				}
				defer all.Wait()
				defer func() {
					for _, end := range ends {
						end()
					}
				}()
				for i := range n {
					begin(i)
				}
				leads := func(patience time.Duration) int {
					t.Helper()
					for end := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
						if i, ok := names[w.who()]; ok {
							return i
						}
						s.mu.Lock()
						begun, failed := s.begun, s.failed
						s.mu.Unlock()
						require.True(t, time.Now().Before(end), "nobody leads, of %v operations at Serial %d failed", begun, failed)
					}
				}
				const lease = leader.DefaultLease
				first := leads(2 * lease)
				time.Sleep(lease) // until those that acted at the same time have looked again
				s.mu.Lock()
				clear(s.by)
				s.mu.Unlock()
				time.Sleep(10 * lease)
				s.mu.Lock()
				processes, renewals := len(s.by), s.by[callers[first]]
				callers[first].cut = true // it can't renew, nor resign
				s.mu.Unlock()
				require.Equal(t, 1, processes, "those that do not lead leave Serial alone")
				require.NotZero(t, renewals)
				const aMinute = 10
				require.LessOrEqual(t, renewals, int(aMinute*(10*lease).Minutes()), "operations at Serial by the leader")
				ends[first]()
				time.Sleep(time.Second)
				if n == 1 {
					begin(0)
				}
				second := leads(2 * lease)
				time.Sleep(lease)
				ends[second]()
				time.Sleep(time.Second)
				if n == 1 {
					begin(0)
				}
				leads(lease)
				for _, end := range ends {
					end()
				}
				all.Wait()
				require.Empty(t, w.overlaps)
			})
		})
	}
}

// Of very many candidates as many lead as there are shards, one each, and of each record there are few operations at
// Serial then.
func TestVeryManyCandidatesForShards(t *testing.T) {
	race.Skip(t)
	synctest.Test(t, func(t *testing.T) {
		const n = 1000
		s := &contended{Store: memstore.New(), begun: map[string]int{}, by: map[*caller]int{}}
		ctx, end := context.WithCancel(t.Context())
		var all sync.WaitGroup
		defer all.Wait()
		defer end()
		var hands []*leader.Shards
		for i := range n {
			h := leader.NewShards(&caller{contended: s}, leader.Options{Name: fmt.Sprint(i)},
				func(context.Context) (int, error) { return n, nil })
			hands = append(hands, h)
			all.Go(func() { _ = h.Run(ctx, func(ctx context.Context, _ int) error { return untilEnd(ctx) }, nil) })
		}
		const lease = leader.DefaultLease
		time.Sleep(10 * lease)
		var led shard.Set
		for _, h := range hands {
			require.LessOrEqual(t, h.Led().Len(), 1)
			led |= h.Led()
		}
		require.Equal(t, shard.All, led)
		s.mu.Lock()
		clear(s.begun)
		clear(s.by)
		s.local = 0
		s.mu.Unlock()
		time.Sleep(10 * lease)
		s.mu.Lock()
		defer s.mu.Unlock()
		t.Logf("%d reads at Local", s.local)
		const looks = 3 * 10 // a process looks about three times in each lease
		require.LessOrEqual(t, s.local, 3*n*looks, "a process looks at few of the shards")
		require.Len(t, s.by, shard.Count, "those that do not lead leave Serial alone")
		require.Len(t, s.begun, shard.Count)
		for key, operations := range s.begun {
			const aMinute = 10
			require.LessOrEqual(t, operations, int(aMinute*(10*lease).Minutes()), key)
		}
	})
}

// behind is a data centre that shows what there was.
type behind struct {
	*scripted
	mu     sync.Mutex
	shown  *store.Record
	serial int
}

func (b *behind) show(t *testing.T) {
	rec, err := b.Store.Read(t.Context(), store.Process, []byte("leader"), store.Serial)
	require.NoError(t, err)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.shown, b.serial = &rec, 0
}

func (b *behind) Read(ctx context.Context, t store.Table, key []byte, l store.Level) (store.Record, error) {
	b.mu.Lock()
	shown := b.shown
	if l == store.Serial {
		b.serial++
	}
	b.mu.Unlock()
	if l == store.Local && shown != nil {
		return *shown, nil
	}
	return b.scripted.Read(ctx, t, key, l)
}

// A candidate whose data centre shows an old record takes no lease from one that renews, and asks at Serial
// about once in a lease.
func TestADataCentreThatLags(t *testing.T) {
	for name, old := range map[string]leader.Holder{
		"free": {}, "held": {ID: [16]byte{1}, Name: "z", Until: time.Unix(1, 0), Lease: leader.DefaultLease},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &behind{scripted: newScripted()}
			putHolder(t, s.Store, old)
			s.show(t)
			a := leader.New(s.Store, leader.Options{Name: "a"})
			stop, aEnded := begin(t, a)
			ctx, end := context.WithCancel(t.Context())
			ran := make(chan error, 1)
			go func() {
				ran <- leader.New(s, leader.Options{Name: "b"}).Run(ctx, func(context.Context) error {
					t.Error(name + ": b leads beside a")
					return nil
				}, nil)
			}()
			time.Sleep(20 * leader.DefaultLease)
			require.Empty(t, aEnded, name)
			s.mu.Lock()
			require.NotZero(t, s.serial, name)
			require.LessOrEqual(t, s.serial, 20, name)
			s.mu.Unlock()
			end()
			require.ErrorIs(t, <-ran, store.Timeout)
			require.ErrorIs(t, stop(), context.Canceled)
		})
	}
}
