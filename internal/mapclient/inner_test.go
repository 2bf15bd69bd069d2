package mapclient

import (
	"context"
	"errors"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/record"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// inRealTime runs a test as synctest.Test does, by the machine's clock.
func inRealTime(t *testing.T, test func(t *testing.T)) { test(t) }

// bothForms runs a test with a client of each form, which has one bucket with a map of three
// levels.
func bothForms(
	t *testing.T, run func(t *testing.T, test func(t *testing.T)),
	test func(t *testing.T, c *Client, id store.BucketID),
) {
	for name, open := range map[string]func(s Store) (*Client, error){
		"embedded": func(s Store) (*Client, error) { return NewEmbedded(s, Options{}), nil },
		"network":  func(s Store) (*Client, error) { return NewNetwork(s, Options{Clocks: 1}) },
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(t *testing.T) {
				s, id := memstore.New(), store.BucketID{1}
				require.NoError(t, InitClocks(t.Context(), s, 1))
				c, err := open(s)
				require.NoError(t, err)
				defer c.Close()
				root, err := c.Create(t.Context(), id, longCuts())
				require.NoError(t, err)
				require.Equal(t, uint8(2), root.Height)
				test(t, c, id)
			})
		})
	}
}

// in fails if f does not end.
func in(t *testing.T, d time.Duration, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(d):
		require.FailNow(t, "it waits for a lock")
	}
}

// TestOperationsWaitForNoLock: what an operation asks of a map that is in memory takes no lock
// that others hold for long, of buckets or of nodes.
func TestOperationsWaitForNoLock(t *testing.T) {
	bothForms(t, inRealTime, func(t *testing.T, c *Client, id store.BucketID) {
		use := func() {
			l, err := c.Acquire(t.Context(), id)
			require.NoError(t, err)
			for _, key := range []string{"", "aaab", "b"} {
				_, err = c.Find(t.Context(), l, []byte(key))
				require.NoError(t, err)
				_, err = c.FindBefore(t.Context(), l, []byte(key))
				require.NoError(t, err)
			}
			l.Release()
			require.False(t, l.Valid())
		}
		use()
		c.epochs.buckets.mu.RLock()
		defer c.epochs.buckets.mu.RUnlock()
		c.nodes.cache.mu.Lock()
		defer c.nodes.cache.mu.Unlock()
		in(t, 20*time.Second, use)
	})
}

// TestUseIsMarked: what was used is not the next to be forgotten, whichever way it was found.
func TestUseIsMarked(t *testing.T) {
	bothForms(t, synctest.Test, func(t *testing.T, c *Client, id store.BucketID) {
		for i := range 3 { // not known; proven by this poll; by a later one
			b, ok := c.epochs.buckets.peek(id)
			require.True(t, ok)
			b.used.Store(false)
			if c.net != nil && i == 2 {
				_, err := c.net.clock(0).poll()
				require.NoError(t, err)
			}
			l, err := c.Acquire(t.Context(), id)
			require.NoError(t, err)
			require.True(t, b.used.Load(), "lease %d", i)
			for range 2 { // from the store, and by its link
				_, err = c.Find(t.Context(), l, nil)
				require.NoError(t, err)
				node, ok := c.nodes.cache.peek(l.Root().Children[0].Node)
				require.True(t, ok)
				require.True(t, node.used.Swap(false))
			}
			l.Release()
		}
	})
}

// TestCallsLetGo: no call keeps its bucket in memory for ever, however it ends; and a bucket of
// which nothing is known is not kept at all.
func TestCallsLetGo(t *testing.T) {
	bothForms(t, synctest.Test, func(t *testing.T, c *Client, id store.BucketID) {
		calls := func() (n int) {
			for _, b := range c.epochs.buckets.order.Values() {
				n += b.calls
			}
			return n
		}
		forget := func() {
			c.epochs.buckets.mu.Lock()
			defer c.epochs.buckets.mu.Unlock()
			c.epochs.buckets.remove(id)
		}
		step := func(id store.BucketID) error {
			root, err := c.Load(t.Context(), id)
			if err != nil {
				return err
			}
			e := c.Edit(t.Context(), root)
			entries := []partmap.Entry{{Partition: store.PartitionID(c.opts.NewID())}}
			require.NoError(t, e.Replace(nil, nil, entries))
			change, err := e.Change()
			require.NoError(t, err)
			return c.Swap(t.Context(), change)
		}
		for name, call := range map[string]func(id store.BucketID) error{
			"lease": func(id store.BucketID) error {
				_, err := c.Acquire(t.Context(), id)
				return err
			},
			"load": func(id store.BucketID) error { _, err := c.Load(t.Context(), id); return err },
			"wait": func(id store.BucketID) error { return c.Wait(t.Context(), id) },
			"step": step,
		} {
			require.NoError(t, call(id), name)
			require.Zero(t, calls(), name)
			forget()
			require.NoError(t, call(id), name)
			require.Zero(t, calls(), name)
			require.ErrorIs(t, call(store.BucketID{9}), store.NotFound, name)
			n, _ := c.epochs.buckets.usage()
			require.EqualValues(t, 1, n, name)
			forget()
		}
	})
}

// TestAKnownRootStays: what is read again at the same epoch does not take its place, with the
// links to all nodes that were found.
func TestAKnownRootStays(t *testing.T) {
	bothForms(t, synctest.Test, func(t *testing.T, c *Client, id store.BucketID) {
		first, err := c.Load(t.Context(), id)
		require.NoError(t, err)
		again, err := c.Load(t.Context(), id)
		require.NoError(t, err)
		require.Same(t, first, again)
	})
}

// TestLargerRootsDisplaceOthers at once, not only when the next bucket comes.
func TestLargerRootsDisplaceOthers(t *testing.T) {
	es := epochs{buckets: newLRU[store.BucketID, *bucket](math.MaxInt64)}
	root := func(id byte, epoch uint64, entries int) *partmap.Root {
		return &partmap.Root{Bucket: store.BucketID{id}, Epoch: epoch, State: partmap.Open,
			Entries: make([]partmap.Entry, entries)}
	}
	for id := range byte(3) {
		b := es.begin(store.BucketID{id})
		es.publish(b, root(id, 1, 1))
		es.end(b)
	}
	_, es.buckets.limit = es.buckets.usage()
	b := es.begin(store.BucketID{2})
	defer es.end(b)
	es.publish(b, root(2, 2, 2))
	require.Equal(t, []store.BucketID{{1}, {2}}, es.buckets.order.Keys())
}

// nodeReads counts the reads of nodes.
type nodeReads struct {
	Store
	n int
}

func (r *nodeReads) Node(ctx context.Context, b store.BucketID, id store.NodeID) ([]byte, error) {
	r.n++
	return r.Store.Node(ctx, b, id)
}

// TestANodeIsLoadedOnce: who did not find it before another caller had loaded it does not read
// it again.
func TestANodeIsLoadedOnce(t *testing.T) {
	s, id := &nodeReads{Store: memstore.New()}, store.BucketID{1}
	c := NewEmbedded(s, Options{})
	root, err := c.Create(t.Context(), id, longCuts())
	require.NoError(t, err)
	first, err := c.nodes.load(t.Context(), id, root.Children[0].Node, 1)
	require.NoError(t, err)
	again, err := c.nodes.load(t.Context(), id, root.Children[0].Node, 1)
	require.NoError(t, err)
	require.Equal(t, first, again)
	require.Equal(t, 1, s.n)
	n, _ := c.nodes.cache.usage()
	require.EqualValues(t, 1, n)
}

// TestCallersShareAFailure: of many who join a call that fails one makes another, and all return
// what came of that.
func TestCallersShareAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s shared
		var work sync.WaitGroup
		calls := 0
		for range 10 {
			work.Go(func() {
				_, err := s.do(t.Context(), "", "", func() (any, error) {
					calls++
					time.Sleep(time.Second)
					return nil, errors.New("no")
				})
				require.EqualError(t, err, "no")
			})
		}
		work.Wait()
		require.Equal(t, 2, calls)
	})
}

// TestTermsInTheStore: other versions read what this one writes.
func TestTermsInTheStore(t *testing.T) {
	s := memstore.New()
	_, err := AgreeOnLease(t.Context(), s, 258, false)
	require.NoError(t, err)
	_, err = AgreeOnClockSkew(t.Context(), s, 259, false)
	require.NoError(t, err)
	for key, last := range map[string]byte{"lease": 2, "clock skew": 3} {
		rec, err := s.Read(t.Context(), store.Process, []byte(key), store.Serial)
		require.NoError(t, err)
		payload, err := record.Open(1, rec)
		require.NoError(t, err)
		require.Equal(t, []byte{0, 0, 0, 0, 0, 0, 1, last}, payload)
		require.EqualValues(t, 1, rec.Epoch)
	}
}
