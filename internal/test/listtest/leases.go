package listtest

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/listing"
)

// RunLeases runs random operations of a client whose leases end by themselves. During each call of the store, ranges
// may go through all phases of their moves, and other clients may write and delete. Nevertheless an acknowledged write
// stays, a page has no hole, and only a write may answer that its outcome is unknown.
//
// hooked is the store of e's client. The function end ends all leases of the client.
func RunLeases(t *testing.T, e *Env, hooked *Hooked, end func(), o Options) {
	ctx, r := context.Background(), seed.New(t)
	u := newUniverse(r, or(o.Keys, 50), 60)
	require.NoError(t, e.Client.CreateBucket(ctx, "leases", u.key(), u.key()))
	x := &leaseTest{t: t, r: r, u: u, b: e.Client.Bucket("leases"), o: newOracle()}
	x.m = newMover(e, bucketID(t, e, "leases"), r)
	x.m.wait = func(context.Context) error { end(); return nil }
	hooked.Hook = x.meanwhile
	for range or(o.Steps, 1500) {
		x.between = map[string]bool{}
		x.key = string(u.key())
		switch p := r.IntN(100); {
		case p < 30:
			x.write(state{live: true, value: fmtValue(r)},
				func(s state) error { return x.b.Put(ctx, []byte(x.key), []byte(s.value)) })
		case p < 50:
			x.write(state{}, func(state) error { return x.b.Delete(ctx, []byte(x.key)) })
		case p < 70:
			x.get()
		default:
			x.list()
		}
		x.quiet(func() {
			for key := range x.between {
				require.Equal(t, x.o.keys[key], x.read(key), "%q after all is over", key)
			}
		})
	}
	t.Logf("%d operations had company, %d outcomes were unknown; steps by phase: %v", x.company, x.unknown, x.m.reached)
	require.NotZero(t, x.unknown)
}

func fmtValue(r *rand.Rand) string {
	return string([]byte{'a' + byte(r.IntN(26)), 'a' + byte(r.IntN(26))})
}

type leaseTest struct {
	t *testing.T
	r *rand.Rand
	u *universe
	b *listing.Bucket
	o *oracle
	m *mover

	busy             atomic.Bool // the hook does not meet itself
	key              string      // of the operation under way
	between          map[string]bool
	company, unknown int
}

// quiet runs f without moves and other operations meanwhile.
func (x *leaseTest) quiet(f func()) {
	x.busy.Store(true)
	defer x.busy.Store(false)
	f()
}

// meanwhile does what happens during a call of the store: steps of moves, and operations of other clients.
func (x *leaseTest) meanwhile() {
	if !x.busy.CompareAndSwap(false, true) {
		return
	}
	defer x.busy.Store(false)
	if x.r.IntN(6) > 0 {
		return
	}
	ctx := context.Background()
	x.company++
	for range x.r.IntN(60) {
		if len(x.m.moves) < 3 && x.r.IntN(5) == 0 {
			_, err := x.m.begin(ctx, x.u.key)
			require.NoError(x.t, err)
		}
		_, err := x.m.step(ctx)
		require.NoError(x.t, err)
		if x.r.IntN(30) == 0 {
			x.other(ctx)
		}
	}
}

// other does an operation of another client, often on the same key. Nothing else happens meanwhile, so the operation
// succeeds, and its timestamp is higher than that of the operation under way.
func (x *leaseTest) other(ctx context.Context) {
	key, s := string(x.u.key()), state{live: x.r.IntN(2) == 0}
	if x.r.IntN(3) == 0 {
		key = x.key
	}
	if s.live {
		s.value = fmtValue(x.r)
		require.NoError(x.t, x.b.Put(ctx, []byte(key), []byte(s.value)))
	} else {
		require.NoError(x.t, x.b.Delete(ctx, []byte(key)))
	}
	x.o.keys[key] = s
	x.between[key] = true
}

func (x *leaseTest) read(key string) state {
	e, err := x.b.Get(context.Background(), []byte(key))
	if errors.Is(err, listing.ErrNotFound) {
		return state{}
	}
	require.NoError(x.t, err)
	return state{live: true, value: string(e.Value)}
}

func (x *leaseTest) write(next state, do func(state) error) {
	old := x.o.keys[x.key]
	err := do(next)
	switch {
	case x.between[x.key]: // the other write is newer, whatever became of this
	case err == nil:
		x.o.keys[x.key] = next
		x.between[x.key] = true // to be looked at
	default:
		require.ErrorIs(x.t, err, listing.ErrOutcomeUnknown)
		x.unknown++
		x.quiet(func() {
			if got := x.read(x.key); !same(got, old) {
				require.Equal(x.t, next, got, "neither as before nor as written")
			}
			require.NoError(x.t, do(next))
		})
		x.o.keys[x.key] = next
	}
}

func (x *leaseTest) get() {
	old := x.o.keys[x.key]
	got := x.read(x.key)
	if !x.between[x.key] {
		require.Equal(x.t, old, got, "get %q", x.key)
	}
}

// list lists the bucket, and compares the entries that no other client has changed meanwhile with the expected ones.
func (x *leaseTest) list() {
	q := x.u.query()
	q.KeysOnly = false
	want := x.o.list(q)
	got, _ := pages(x.t, x.b, q)
	alone := func(lines []line) (rest []line) {
		for _, l := range lines {
			touched := x.between[l.key]
			if l.prefix {
				touched = false
				for key := range x.between {
					touched = touched || strings.HasPrefix(key, l.key)
				}
			}
			if !touched {
				rest = append(rest, l)
			}
		}
		return rest
	}
	equal(x.t, alone(want), alone(got), q)
}
