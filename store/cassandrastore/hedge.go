package cassandrastore

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/gocql/gocql"
)

const (
	// hedgeAfter is the longest wait for an answer before a request is sent a second time, to another node. Only a
	// request that meets a hung node or an overloaded cluster takes longer. The wait is shorter as soon as enough
	// answers have been measured (late.after). Requests avoid a node that has not answered for hedgeAfter.
	hedgeAfter = 250 * time.Millisecond
	// avoidFor is how long requests avoid a node that did not answer. Then a single request tries the node again.
	avoidFor = time.Second
	// hangsAfter is how long a node must be silent before the log says that it does not answer.
	hangsAfter = 5 * time.Second
	// One in hedgeShare requests may be sent a second time, and after a quiet time hedgeBurst more requests. So an
	// overloaded cluster, in which all requests are slow, gets a tenth more to do, not twice as much.
	hedgeShare, hedgeBurst = 10, 100
)

// node is a Cassandra node to which a session sends requests, with the times of its requests and answers. The times
// show whether the node hangs, e.g. during a long garbage collection or on a dead disk. Requests avoid such a node.
//
// A hanging node still holds its connections. The driver notices only after half a minute, when several heartbeats have
// failed.
type node struct {
	*gocql.HostInfo
	log      *slog.Logger
	answered atomic.Int64 // the time of the last answer, Unix time in nanoseconds; so are the times below
	asked    atomic.Int64 // the time of the last request
	since    atomic.Int64 // the first request in the present series without an answer; its pauses are below hedgeAfter
	avoided  atomic.Int64 // the time until which the node is the last choice; 0: it is not avoided
	hanging  atomic.Int64 // the time since which it has been avoided again and again
	lost     atomic.Bool  // the log says that the node can't be reached
	hangs    atomic.Bool  // the log says that the node does not answer
}

// who returns the address and the data centre of the node, as the attributes of a log line.
func (n *node) who() []any { return []any{"node", n.HostnameAndPort(), "data centre", n.DataCenter()} }

// asks records that a request is being sent to the node. The time of the request shows later for how long the node has
// answered nothing.
func (n *node) asks() {
	now := time.Now().UnixNano()
	last := n.asked.Swap(now)
	if now-last >= int64(hedgeAfter) || now < last || n.answered.Load() >= n.since.Load() {
		n.since.Store(now)
	}
}

// silent records that the node has not answered a request. If requests were sent to the node for hedgeAfter, and it has
// answered none of them, later requests avoid the node.
func (n *node) silent() {
	// A single request would say little: the request may have been given up early because another node had answered.
	now, answered, since := time.Now(), n.answered.Load(), n.since.Load()
	if time.Duration(now.UnixNano()-since) < hedgeAfter || answered >= since {
		return
	}
	if !n.isSilent(now) {
		n.hanging.Store(now.UnixNano())
	}
	n.avoided.Store(now.Add(avoidFor).UnixNano())
}

// isSilent reports whether the node does not answer at present. The result is true if requests were sent to it within
// the last seconds before now, without an answer. It is false for a node to which no requests are sent, since nothing
// is known of that node.
func (n *node) isSilent(now time.Time) bool {
	return now.UnixNano()-n.avoided.Load() < int64(hangsAfter)
}

// answers records that the node has answered a request, so that requests no longer avoid the node.
func (n *node) answers() {
	n.answered.Store(time.Now().UnixNano())
	if n.avoided.Load() != 0 {
		n.avoided.Store(0)
	}
	if n.hangs.Load() && n.hangs.Swap(false) {
		n.log.Info("Cassandra: a node answers again", n.who()...)
	}
}

// avoid reports whether a request should go to another node, because the node n does not answer. From time to time
// avoid returns false once, so that a single request finds out whether the node answers again.
func (n *node) avoid() bool {
	until := n.avoided.Load()
	if until == 0 {
		return false
	}
	now := time.Now()
	if left := time.Duration(until - now.UnixNano()); left > 0 && left <= avoidFor { // more: the clock was set back
		return true
	}
	silent := n.isSilent(now)
	if !n.avoided.CompareAndSwap(until, now.Add(avoidFor).UnixNano()) {
		return true
	}
	switch {
	case !silent:
		n.hanging.Store(now.UnixNano())
	case now.UnixNano()-n.hanging.Load() >= int64(hangsAfter) && n.IsUp() && !n.hangs.Swap(true):
		n.log.Warn("Cassandra: a node is connected, but does not answer", n.who()...)
	}
	return false
}

// asking is the state of one attempt to send a request: when the attempt began, and the node to which it went.
type asking struct {
	asked  []*node // the nodes to which earlier attempts of the call went
	second bool    // the attempt runs beside an earlier one, so it must not go to the same node
	begun  time.Time
	node   atomic.Pointer[node] // the node to which the attempt goes
}

// askingKey is the key under which the context of an attempt has its state, an *asking.
type askingKey struct{}

// ended records, at the end of an attempt to send a request, whether the node has answered. err is the error of the
// attempt, or nil. An error that the server has sent counts as an answer.
func (a *asking) ended(err error) {
	n := a.node.Load()
	if n == nil {
		return
	}
	if _, fromServer := code(err); err == nil || fromServer || errors.Is(err, gocql.ErrNotFound) {
		n.answers()
	} else {
		n.silent()
	}
}

// order returns the nodes to which a request may go, the best first. Nodes that do not answer, and nodes that the
// request has tried already, come last. The tried ones are left out if an earlier attempt is still under way. The
// parameters are:
//   - a: the present attempt to send the request, or nil
//   - next: a function that returns the nodes that the driver proposes
func (c *chosen) order(a *asking, next gocql.NextHost) gocql.NextHost {
	var behind []gocql.SelectedHost
	return func() gocql.SelectedHost {
		for h := next(); h != nil; h = next() {
			n := c.node(h.Info().HostID())
			switch {
			case n == nil: // it has just been removed
			case a != nil && slices.Contains(a.asked, n):
				if !a.second {
					behind = append(behind, h)
				}
			case n.avoid():
				behind = append(behind, h)
			default:
				a.goes(n)
				return h
			}
		}
		if len(behind) == 0 {
			return nil
		}
		h := behind[0]
		behind = behind[1:]
		a.goes(c.node(h.Info().HostID()))
		return h
	}
}

// goes records that the attempt is being sent to the node n. It does nothing if a or n is nil.
func (a *asking) goes(n *node) {
	if a != nil && n != nil { // nil: it has just been removed
		n.asks()
		a.node.Store(n)
	}
}

// hedge is a request to Cassandra that is sent a second time, to another node, if the first answer is slow. The
// function attempt sends the request once.
type hedge[T any] struct {
	s *database
	request
	attempt func(ctx context.Context) (T, error)
}

// once sends the request once and returns the result. a is the state of this attempt, and limit is the time limit of
// the attempt.
func (h *hedge[T]) once(ctx context.Context, a *asking, limit time.Duration) (T, error) {
	result, err := within(context.WithValue(ctx, askingKey{}, a), h.s, limit, h.attempt)
	a.ended(err)
	return result, err
}

// twice sends a request and, if the answer is slow, sends it again through another node. The first attempt that
// succeeds, or that is refused for good, decides the result. Both attempts together take at most the time limit of one.
// The parameter first is the state of the first attempt.
func (h *hedge[T]) twice(ctx context.Context, first *asking) (T, error) {
	// Both attempts have ended at the return, because the memory of the request belongs to the caller.
	one, endOne := context.WithCancel(ctx)
	defer endOne()
	two, endTwo := context.WithCancel(ctx)
	defer endTwo()
	type outcome struct {
		result T
		err    error
	}
	second := make(chan outcome, 1)
	after := h.s.late[h.op].after()
	timer := time.AfterFunc(after, func() {
		o := outcome{err: errNotHedged}
		a := &asking{asked: first.asked, second: true, begun: time.Now()}
		if n := first.node.Load(); n != nil {
			n.silent()
			a.asked = append(slices.Clone(a.asked), n)
		}
		if h.s.spare.spend() {
			h.s.measures.again(h.op, "slow")
			o.result, o.err = h.once(two, a, h.limit-after)
		}
		second <- o
		if !worthRetrying(o.err) {
			endOne()
		}
	})
	result, err := h.once(one, first, h.limit)
	if timer.Stop() {
		return result, err
	}
	if err == nil || one.Err() == nil && !worthRetrying(err) {
		endTwo()
		<-second
		return result, err
	}
	if o := <-second; !worthRetrying(o.err) {
		return o.result, o.err
	}
	return result, err
}

// errNotHedged says that no second attempt was made, because the budget for second attempts is used up.
var errNotHedged = errors.New("no second attempt was made")

// spare is the budget for sending slow requests a second time. Each request adds 1/hedgeShare of a second attempt to
// the budget, which holds at most hedgeBurst second attempts. The zero value is a full budget.
type spare struct {
	owed atomic.Int64 // the number of requests that must be made until all second attempts are paid for
}

// earn adds 1/hedgeShare of a second attempt to the budget for sending slow requests a second time. It is called once
// for each request.
func (s *spare) earn() {
	for owed := s.owed.Load(); owed > 0 && !s.owed.CompareAndSwap(owed, owed-1); {
		owed = s.owed.Load()
	}
}

// spend takes one second attempt from the budget for sending slow requests a second time. It returns false if the
// budget is used up; then the request must not be sent again.
func (s *spare) spend() bool {
	for {
		owed := s.owed.Load()
		if owed+hedgeShare > hedgeShare*hedgeBurst {
			return false
		}
		if s.owed.CompareAndSwap(owed, owed+hedgeShare) {
			return true
		}
	}
}
