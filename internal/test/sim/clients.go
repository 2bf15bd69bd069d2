package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"github.com/evenkeel/evenkeel/internal/door"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/test/history"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
)

// op describes the operation that a client is doing. The watch, which checks all store calls, finds the op in the
// context of a call.
type op struct {
	write *write // nil for a read
	// lease is the lease of the map that the client acquired just before the operation, in the network form.
	lease *mapclient.Lease
	// unleased is true for the check that a bucket is empty, which has no lease. If the map has changed meanwhile, the
	// swap that deletes the bucket fails.
	unleased bool
}

type opKey struct{}

func withOp(ctx context.Context, o op) context.Context { return context.WithValue(ctx, opKey{}, o) }

func opOf(ctx context.Context) op {
	o, _ := ctx.Value(opKey{}).(op)
	return o
}

// stamps draws timestamps from a counter, or from the common time of the process own. A client's call waits for its
// turn before the draw, as a client may pause between its lease and its write.
type stamps struct {
	s    *scheduler
	h    *proof
	last *atomic.Int64
	own  *process // draws from the servers' common time; nil: from last
}

func (c *stamps) Next(ctx context.Context, n int) (store.Timestamp, error) {
	a := actorOf(ctx)
	if !a.client {
		return store.Timestamp(c.last.Add(int64(n)) - int64(n) + 1), nil
	}
	if !c.s.gate(ctx, "draw a timestamp") {
		return 0, store.Errorf(store.Unavailable, "draw: %w", errStopped)
	}
	var ts store.Timestamp
	if c.own != nil {
		var err error
		if ts, err = c.own.stamp(ctx); err != nil {
			return 0, err
		}
	} else {
		ts = store.Timestamp(c.last.Add(int64(n)) - int64(n) + 1)
	}
	if w := opOf(ctx).write; w != nil && !w.aged {
		w.ts = ts
		c.h.begin(w)
	}
	return ts, nil
}

// Passed waits until the timestamp ts is in the past by the common time. Embedded clients, and clients with certain
// mistakes, do not wait.
func (c *stamps) Passed(ctx context.Context, ts store.Timestamp) error {
	if c.own == nil || c.own.m.OwnClock || c.own.m.NoPassing {
		return nil
	}
	return c.own.maps.Time().Passed(ctx, ts)
}

// Seen tells the common time of a timestamp that was read from the store.
func (c *stamps) Seen(ts store.Timestamp) {
	if c.own != nil {
		c.own.maps.Time().Seen(ts)
	}
}

// client is a simulated client that does random operations, and checks every answer against the proof, which is the
// record of all writes.
type client struct {
	s      *scheduler
	h      *proof
	a      *actor
	r      *rand.Rand
	c      *listing.Client
	b      *listing.Bucket
	keys   []string
	writes int  // percent
	faults bool // errors are expected
	id     store.BucketID
	epoch  uint64
	n      int

	p       *process // nil in the embedded form
	watch   *watch
	m       Mistakes
	leased  *mapclient.Lease // of the operation under way
	deleter bool             // sometimes tries to delete the bucket
	folds   *rand.Rand       // nil: listings have no delimiter
	ranges  *rand.Rand       // nil: no range of keys is deleted
	age     *write           // of the next deletion by age
	stamps  *stamps
	closes  bool // some client is a deleter
}

// run does at least ops operations, and further ones while the function moving returns true, i.e. while ranges move.
func (c *client) run(ctx context.Context, ops int, moving func() bool) {
	for i := 0; i < ops || moving(); i++ {
		if c.s.failed() || ctx.Err() != nil || c.h.over() {
			return
		}
		for i >= ops && c.s.ahead() && moving() && !c.s.failed() && ctx.Err() == nil {
			time.Sleep(time.Duration(1+c.r.IntN(20)) * time.Millisecond)
		}
		c.lease(ctx)
		switch x := c.r.IntN(100); {
		case c.deleter && c.r.IntN(5) == 0:
			c.tolerate("delete bucket", c.c.DeleteBucket(withOp(ctx, op{unleased: true}), "b"))
		case x < c.writes && c.ranges != nil && c.ranges.IntN(4) == 0:
			if c.ranges.IntN(2) == 0 {
				c.deleteOlder(ctx)
			} else {
				c.deleteRange(ctx)
			}
		case x < c.writes:
			c.change(ctx, c.r.IntN(2) == 0)
		case c.r.IntN(2) == 0:
			c.get(ctx)
		default:
			c.list(ctx)
		}
	}
}

// lease acquires a lease of the map, and checks that the epochs of this client's leases never decrease (invariant I9).
func (c *client) lease(ctx context.Context) {
	c.leased = nil
	l, err := mapclient.Of(c.c).Acquire(ctx, c.id)
	if err != nil {
		c.tolerate("lease", err)
		return
	}
	if c.p == nil {
		defer l.Release()
	} else {
		c.leased = l
		c.watch.leased(c.p, l)
	}
	if e := l.Root().Epoch; e < c.epoch {
		c.s.fail("I9: %s acts on epoch %d after %d", c.a.name, e, c.epoch)
	} else {
		c.epoch = e
	}
}

// tolerate fails the run if neither faults of the store nor the deletion of the bucket explain the error err. what is
// the operation. After an error tolerate waits for the client's turn.
func (c *client) tolerate(what string, err error) {
	if err == nil {
		return
	}
	k := store.KindOf(err)
	switch {
	case errors.Is(err, errStopped):
	case (c.faults || c.p != nil) && (k == store.Timeout || k == store.Unavailable):
	case c.closes && (errors.Is(err, listing.ErrBucketClosing) || errors.Is(err, listing.ErrNotEmpty)):
	case c.closes && (errors.Is(err, mapclient.ErrClosing) || errors.Is(err, mapclient.ErrDeleted) ||
		errors.Is(err, listing.ErrNoSuchBucket)):
	default:
		c.s.fail("I8: %s: %s: %v", c.a.name, what, err)
	}
	c.s.gate(withActor(context.Background(), c.a), "after an error")
}

func (c *client) key() string { return c.keys[c.r.IntN(len(c.keys))] }

// patience returns a context that sometimes has a short deadline. The deadline is never a whole number of milliseconds.
// Pauses before retries are, and a pause that ended together with the operation would be followed by a retry or not, by
// chance.
func (c *client) patience(ctx context.Context) (context.Context, context.CancelFunc) {
	most := 30
	if c.p != nil {
		most = 300
	}
	if c.faults && c.r.IntN(8) == 0 {
		return context.WithTimeout(ctx, time.Duration(1+c.r.IntN(most))*time.Millisecond+time.Millisecond/2)
	}
	return ctx, func() {}
}

func (c *client) change(ctx context.Context, deletes bool) {
	w := &write{key: c.key(), deletes: deletes, centre: c.a.centre, begun: c.h.tick()}
	c.n++
	if !deletes {
		w.value = fmt.Sprintf("%s.%d", c.a.name, c.n)
	}
	ctx, cancel := c.patience(withOp(ctx, op{write: w, lease: c.leased}))
	defer cancel()
	if c.m.NoLookAfterWrite {
		defer c.p.freeze()()
	}
	var err error
	if deletes {
		err = c.b.Delete(ctx, []byte(w.key))
	} else {
		err = c.b.Put(ctx, []byte(w.key), []byte(w.value))
	}
	if err != nil {
		c.h.doubt(w)
		c.tolerate("change "+w.key, err)
		return
	}
	if err := c.h.acknowledge(w); err != nil {
		c.s.fail("%s: %v", c.a.name, err)
	}
}

// someRange returns a random range of keys: the keys in the range, and its bounds. lo or hi is nil if the range has no
// bound on that side.
func (c *client) someRange() (keys []string, lo, hi []byte) {
	from, to := c.ranges.IntN(len(c.keys)), 1+c.ranges.IntN(len(c.keys))
	if from >= to {
		from, to = to-1, from+1
	}
	if from > 0 || c.ranges.IntN(2) == 0 {
		lo = []byte(c.keys[from])
	}
	if to < len(c.keys) {
		hi = []byte(c.keys[to])
	}
	return c.keys[from:to], lo, hi
}

func (c *client) deleteRange(ctx context.Context) {
	keys, lo, hi := c.someRange()
	w := &write{before: c.h.view(anywhere), centre: c.a.centre, begun: c.h.tick()}
	w.clears(keys)
	c.purge(ctx, fmt.Sprintf("delete range %q %q", lo, hi), w, func(ctx context.Context) error {
		return c.b.DeleteRange(ctx, lo, hi)
	})
}

// deleteOlder remembers the time in one call, and deletes the rows that were put up to that time in the next call.
// Sometimes it deletes range by range.
func (c *client) deleteOlder(ctx context.Context) {
	if c.age == nil {
		w := &write{aged: true, centre: c.a.centre, begun: c.h.tick()}
		var err error
		if w.ts, err = c.stamps.Next(withOp(ctx, op{}), 1); err != nil {
			c.tolerate("remember a time", err)
			return
		}
		c.age = w
		return
	}
	w := c.age
	c.age = nil
	keys, lo, hi := c.someRange()
	w.before = c.h.view(anywhere)
	w.clears(keys)
	c.h.begin(w)
	var until time.Time
	if c.ranges.IntN(2) == 0 {
		until = time.Now() // which is over after each range
	}
	c.purge(ctx, fmt.Sprintf("delete what is older than %d, %q %q", w.ts, lo, hi), w, func(ctx context.Context) error {
		for next := lo; ; {
			left, err := door.Bucket(c.b).DeleteOlderUntil(ctx, next, hi, w.ts, until)
			switch {
			case store.KindOf(err) == store.Unavailable && !until.IsZero():
				until = time.Time{} // the range may move: wait for it
			case err != nil || left == nil:
				return err
			default:
				next = left
			}
		}
	})
}

// purge deletes a range of keys by the function call, and records the outcome of the write w. what describes the
// operation.
func (c *client) purge(ctx context.Context, what string, w *write, call func(context.Context) error) {
	ctx, cancel := c.patience(withOp(ctx, op{write: w, lease: c.leased}))
	defer cancel()
	if c.m.NoLookAfterWrite {
		defer c.p.freeze()()
	}
	if err := call(ctx); err != nil {
		c.h.doubt(w)
		c.tolerate(what, err)
		return
	}
	if err := c.h.acknowledge(w); err != nil {
		c.s.fail("%s: %v", c.a.name, err)
	}
}

func (c *client) get(ctx context.Context) {
	key, before, begun := c.key(), c.h.view(c.a.centre), c.h.tick()
	ctx, cancel := c.patience(withOp(ctx, op{lease: c.leased}))
	defer cancel()
	if c.m.NoLookAfterRead {
		defer c.p.freeze()()
	}
	e, err := c.b.Get(ctx, []byte(key))
	if err != nil && !errors.Is(err, listing.ErrNotFound) {
		c.tolerate("get "+key, err)
		return
	}
	c.h.get(key, begun, err == nil, string(e.Value))
	if err := c.h.read(c.a.centre, before, key, err == nil, string(e.Value)); err != nil {
		c.s.fail("%s: get: %v", c.a.name, err)
	}
}

// list reads all pages of a listing and checks them. A key that lies between two items of a page must have been absent
// while that page was read. A key before the first item must have been absent while that page or the page before was
// read.
func (c *client) list(ctx context.Context) {
	q := listing.Query{Limit: 1 + c.r.IntN(5), Reverse: c.r.IntN(3) == 0}
	if c.r.IntN(4) == 0 {
		q.Limit = 100
	}
	if c.folds != nil { // one that no key has, or one that some have
		q.Delimiter = []byte([]string{"|", "1"}[c.folds.IntN(2)])
	}
	at, pageBefore := 0, view(nil) // place in order of the keys not yet accounted for
	order := c.keys
	if q.Reverse {
		order = make([]string, len(c.keys))
		for i, k := range c.keys {
			order[len(c.keys)-1-i] = k
		}
	}
	told := history.Listing{Reverse: q.Reverse}
	defer c.h.list(&told)
	ctx = withOp(ctx, op{lease: c.leased})
	for {
		before, begun := c.h.view(c.a.centre), c.h.tick()
		thaw := func() {}
		if c.m.NoLookAfterRead {
			thaw = c.p.freeze()
		}
		page, err := c.b.List(ctx, q)
		thaw()
		if err != nil {
			c.tolerate("list", err)
			if errors.Is(err, errStopped) || ctx.Err() != nil || c.r.IntN(2) == 0 {
				return
			}
			continue // retry the page
		}
		if string(q.Delimiter) != "1" {
			c.h.page(&told, begun, page)
		}
		gap := before
		if pageBefore != nil {
			gap = pageBefore
		}
		for i, item := range page.Items {
			key := string(item.Key)
			window := before
			if i == 0 {
				window = gap
			}
			covers := func(k string) bool { return k == key || item.CommonPrefix && strings.HasPrefix(k, key) }
			for at < len(order) && !covers(order[at]) {
				c.holds(window, order[at], false, "")
				at++
			}
			if at == len(order) {
				c.s.fail("I8: %s: list shows %q out of order, twice, or though it was never written", c.a.name, key)
				return
			}
			if !item.CommonPrefix {
				c.holds(before, key, true, string(item.Value))
				at++
				continue
			}
			one := false
			for ; at < len(order) && covers(order[at]); at++ {
				one = one || c.h.mayBe(before, order[at])
			}
			if !one {
				c.s.fail("I2: %s: list shows the common prefix %q, but every key with it is deleted or unwritten",
					c.a.name, key)
			}
		}
		if page.Next == "" {
			window := before
			if len(page.Items) == 0 {
				window = gap
			}
			for ; at < len(order); at++ {
				c.holds(window, order[at], false, "")
			}
			return
		}
		if len(page.Items) > 0 || pageBefore == nil {
			pageBefore = before
		}
		q.Token = page.Next
	}
}

func (c *client) holds(before view, key string, shown bool, value string) {
	if err := c.h.read(c.a.centre, before, key, shown, value); err != nil {
		c.s.fail("%s: list: %v", c.a.name, err)
	}
}
