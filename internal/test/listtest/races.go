package listtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
)

// together runs f in n goroutines at the same time. Each goroutine gets its number and its own source of random
// numbers.
func together(r *rand.Rand, n int, f func(i int, r *rand.Rand)) {
	var wg sync.WaitGroup
	for i := range n {
		own := rand.New(rand.NewPCG(r.Uint64(), r.Uint64()))
		wg.Go(func() { f(i, own) })
	}
	wg.Wait()
}

// bucketRaces tests creations and deletions of the same buckets, and puts into them, by many goroutines at the same
// time.
func bucketRaces(t *testing.T, e *Env, r *rand.Rand, o Options) {
	ctx := context.Background()
	const many = 8
	for round := range 20 {
		name := fmt.Sprint("race ", round)
		for _, act := range []struct {
			do        func(context.Context) error
			tooLate   error
			afterward bool
		}{
			{func(ctx context.Context) error { return e.Client.CreateBucket(ctx, name) }, listing.ErrBucketExists,
				true},
			{func(ctx context.Context) error { return e.Client.DeleteBucket(ctx, name) }, listing.ErrNoSuchBucket,
				false},
		} {
			var won atomic.Int32
			together(r, many, func(int, *rand.Rand) {
				err := act.do(ctx)
				if err == nil {
					won.Add(1)
				} else {
					assert.ErrorIs(t, err, act.tooLate)
				}
			})
			require.EqualValues(t, 1, won.Load(), "exactly one wins")
			require.Equal(t, act.afterward, listed(t, e, name))
		}
	}

	// An acknowledged entry keeps its bucket from being deleted.
	names := []string{"mixed 1", "mixed 2"}
	var done [6]atomic.Int32
	var cutOff atomic.Bool // a deletion has failed, perhaps in the middle
	together(r, many, func(i int, r *rand.Rand) {
		key := fmt.Append(nil, "key ", i)
		for range 150 {
			name := names[r.IntN(len(names))]
			b := e.Client.Bucket(name)
			switch r.IntN(4) {
			case 0:
				err := e.Client.CreateBucket(ctx, name)
				if err == nil {
					done[0].Add(1)
				} else if !errors.Is(err, listing.ErrBucketExists) && !errors.Is(err, store.Unavailable) {
					assert.NoError(t, err)
				}
			case 1:
				err := e.Client.DeleteBucket(ctx, name)
				switch {
				case err == nil:
					done[1].Add(1)
				case errors.Is(err, listing.ErrNotEmpty):
					done[2].Add(1)
				case errors.Is(err, store.Unavailable):
					cutOff.Store(true)
				case !errors.Is(err, listing.ErrNoSuchBucket):
					assert.NoError(t, err)
				}
			default:
				err := b.Put(ctx, key, nil)
				if errors.Is(err, listing.ErrNoSuchBucket) || errors.Is(err, listing.ErrBucketClosing) {
					done[3].Add(1)
					continue
				}
				if !assert.NoError(t, err) {
					return
				}
				for range r.IntN(3) {
					runtime.Gosched()
				}
				if _, err := b.Get(ctx, key); err != nil && !errors.Is(err, listing.ErrBucketClosing) {
					assert.NoError(t, err, "an acknowledged entry keeps its bucket")
					return
				}
				for {
					err := b.Delete(ctx, key)
					if err == nil {
						break
					}
					if !assert.ErrorIs(t, err, listing.ErrBucketClosing, "an acknowledged entry keeps its bucket") {
						return
					}
					time.Sleep(time.Millisecond) // virtual time goes on only while all sleep
				}
				done[4].Add(1)
			}
		}
	})
	t.Logf("created %d, deleted %d, not empty %d, no bucket %d, put and deleted %d", done[0].Load(), done[1].Load(),
		done[2].Load(), done[3].Load(), done[4].Load())
	for _, name := range names {
		_, err := e.Client.Bucket(name).List(ctx, listing.Query{})
		if err != nil {
			require.ErrorIs(t, err, listing.ErrNoSuchBucket)
		}
		if cutOff.Load() && err != nil {
			// A deletion that broke off behind its decision leaves the name in the list. Whoever deletes the bucket again
			// ends the deletion.
			again := e.Client.DeleteBucket(ctx, name)
			for errors.Is(again, store.Unavailable) {
				again = e.Client.DeleteBucket(ctx, name)
			}
			require.ErrorIs(t, again, listing.ErrNoSuchBucket)
		}
		require.Equal(t, err == nil, listed(t, e, name), "the list of buckets says what is so")
	}
}

func listed(t *testing.T, e *Env, name string) bool {
	for info, err := range e.Client.Buckets(context.Background(), name, "") {
		require.NoError(t, err)
		return info.Name == name
	}
	return false
}

// movesUnderLoad tests the invariants I2 (durable), I4 (a destination is fresh) and I8 (no holes) of the move protocol,
// while writers and readers work and ranges move all the time. No operation fails, and each answer was right at some
// moment of its call.
func movesUnderLoad(t *testing.T, e *Env, r *rand.Rand, o Options) {
	const writers, readers, keys = 3, 3, 120
	ctx := context.Background()
	u := newUniverse(r, keys, 60)
	require.NoError(t, e.Client.CreateBucket(ctx, "load", u.key(), u.key(), u.key()))
	h := &history{b: e.Client.Bucket("load"), byKey: map[string]*keyHistory{}}
	for _, k := range u.keys {
		h.byKey[string(k)] = &keyHistory{}
	}
	m := newMover(e, bucketID(t, e, "load"), rand.New(rand.NewPCG(r.Uint64(), r.Uint64())))
	moved := 0
	// Writers and readers keep step with the mover, whatever the store costs.
	toWrite, toRead := make(chan struct{}, 2*writers), make(chan struct{}, readers)
	offer := func(c chan struct{}) {
		select {
		case c <- struct{}{}:
		default:
		}
	}
	together(r, 1+writers+readers, func(i int, r *rand.Rand) {
		own := universe{r: r, keys: u.keys}
		switch {
		case i == 0:
			defer close(toWrite)
			defer close(toRead)
			for range o.Rounds {
				for len(m.moves) < 3 {
					began, err := m.begin(ctx, own.key)
					if !assert.NoError(t, err) {
						return
					}
					if began {
						moved++
					} else if len(m.moves) > 0 {
						break
					}
				}
				for range 30 {
					if _, err := m.step(ctx); !assert.NoError(t, err) {
						return
					}
					offer(toWrite)
					offer(toWrite)
					offer(toRead)
					runtime.Gosched()
				}
			}
			assert.NoError(t, m.finish(ctx))
		case i <= writers:
			var mine [][]byte // one writer per key: its order is known
			for at := i - 1; at < len(u.keys); at += writers {
				mine = append(mine, u.keys[at])
			}
			for range toWrite {
				h.write(t, r, mine)
			}
		default:
			for range toRead {
				h.read(t, &own)
			}
		}
	})
	h.read(t, &universe{r: r, keys: u.keys})
	t.Logf("%d moves, %d writes, %d reads; steps by phase: %v", moved, h.writes.Load(), h.reads.Load(), m.reached)
}

// history records what writers did, in the order of a clock of its own, so that readers know what they may see.
type history struct {
	b             *listing.Bucket
	now           atomic.Int64
	byKey         map[string]*keyHistory
	writes, reads atomic.Int64
}

type keyHistory struct {
	mu  sync.Mutex
	ops []keyOp
	// shown is the number of the newest operation that a finished read has shown.
	shown int
}

// keyOp is one put or delete of a key. The field end is 0 while the operation is under way.
type keyOp struct {
	begin, end int64
	live       bool
}

func (h *history) begin(key []byte, live bool) (k *keyHistory, n int) {
	k = h.byKey[string(key)]
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ops = append(k.ops, keyOp{begin: h.now.Add(1), live: live})
	return k, len(k.ops)
}

func (h *history) end(k *keyHistory) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ops[len(k.ops)-1].end = h.now.Add(1)
}

// write does a put, a delete or a batch of puts, which must succeed. The value of a put is the number of the operation.
func (h *history) write(t *testing.T, r *rand.Rand, keys [][]byte) {
	ctx := context.Background()
	h.writes.Add(1)
	key := keys[r.IntN(len(keys))]
	switch r.IntN(5) {
	case 0, 1:
		k, n := h.begin(key, true)
		assert.NoError(t, h.b.Put(ctx, key, fmt.Append(nil, n)))
		h.end(k)
	case 2, 3:
		k, _ := h.begin(key, false)
		assert.NoError(t, h.b.Delete(ctx, key))
		h.end(k)
	default:
		var entries []listing.Entry
		var begun []*keyHistory
		for _, i := range r.Perm(len(keys))[:r.IntN(len(keys))] {
			k, n := h.begin(keys[i], true)
			entries = append(entries, listing.Entry{Key: keys[i], Value: fmt.Append(nil, n)})
			begun = append(begun, k)
		}
		assert.NoError(t, h.b.PutBatch(ctx, entries))
		for _, k := range begun {
			h.end(k)
		}
	}
}

// read gets a key, or lists a query page by page. It checks each answer against the operations between the beginning
// and the end of the call.
func (h *history) read(t *testing.T, u *universe) {
	ctx := context.Background()
	h.reads.Add(1)
	if u.r.IntN(4) == 0 {
		key := u.key()
		v := h.look(string(key))
		e, err := h.b.Get(ctx, key)
		if !errors.Is(err, listing.ErrNotFound) {
			assert.NoError(t, err)
		}
		v.check(t, "get", err == nil, string(e.Value))
		return
	}
	q := u.query()
	q.KeysOnly, q.Delimiter = false, nil
	q.Limit = []int{1, 5, 30, 1000}[u.r.IntN(4)]
	// What the query covers, in its order.
	o := newOracle()
	for k := range h.byKey {
		o.put(k, "", 1)
	}
	covered := o.list(q)
	// A key that is put while the listing is under way may be behind the place
	// that a page has come to, which is not before its last item: so at a page's
	// ends the absence of a key has to be right for the listing, within the page
	// for the page.
	begin := make([]view, len(covered))
	for i, l := range covered {
		begin[i] = h.look(l.key)
	}
	for {
		views := make([]view, len(covered))
		for i, l := range covered {
			views[i] = h.look(l.key)
		}
		page, err := h.b.List(ctx, q)
		if !assert.NoError(t, err) {
			return
		}
		at := 0
		for i, item := range page.Items {
			absent := views
			if i == 0 {
				absent = begin
			}
			for at < len(covered) && covered[at].key != string(item.Key) {
				absent[at].check(t, show(q), false, "")
				at++
			}
			if !assert.Less(t, at, len(covered), "%s: %q comes out of order, or does not belong here", show(q),
				item.Key) {
				return
			}
			views[at].check(t, show(q), true, string(item.Value))
			at++
		}
		if page.Next == "" {
			for ; at < len(covered); at++ {
				begin[at].check(t, show(q), false, "")
			}
			return
		}
		q.Token, covered, begin = page.Next, covered[at:], begin[at:]
	}
}

// view is what was known of a key before a read.
type view struct {
	key          string
	k            *keyHistory
	first, shown int // operations: the last acknowledged one; the newest shown
}

func (h *history) look(key string) view {
	k := h.byKey[key]
	k.mu.Lock()
	defer k.mu.Unlock()
	v := view{key: key, k: k, shown: k.shown}
	for v.first = len(k.ops); v.first > 0 && k.ops[v.first-1].end == 0; v.first-- {
	}
	return v
}

// check fails the test if a finished read may not have seen the key in the given way. The read must show the last
// operation that was acknowledged before the read, or one that began since. It must not show a state older than one
// that another read has shown.
func (v view) check(t *testing.T, what string, live bool, value string) {
	v.k.mu.Lock()
	defer v.k.mu.Unlock()
	least := max(v.first, v.shown)
	if live {
		var n int
		if _, err := fmt.Sscan(value, &n); err != nil || n < least || n > len(v.k.ops) || !v.k.ops[n-1].live {
			t.Errorf("%s: %q shows operation %q, allowed are %d to %d", what, v.key, value, least, len(v.k.ops))
		}
		v.k.shown = max(v.k.shown, n)
		return
	}
	if least == 0 {
		return // absent from the beginning
	}
	for n := least; n <= len(v.k.ops); n++ {
		if !v.k.ops[n-1].live {
			v.k.shown = max(v.k.shown, n)
			return
		}
	}
	t.Errorf("%s: %q is missing, which no operation from %d to %d explains", what, v.key, least, len(v.k.ops))
}
