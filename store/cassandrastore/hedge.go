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
	// hedgeAfter is how long an attempt goes on alone, at most, before a second one begins beside it: longer than a
	// request takes that meets neither a hung node nor an overloaded cluster. It is the time while it is not known what
	// is late (late.after), and how long a node has to be silent in order to be avoided.
	hedgeAfter = 250 * time.Millisecond
	// avoidFor is how long requests avoid a node that did not answer. Then one of them tries it again.
	avoidFor = time.Second
	// hangsAfter is how long a node has to be silent before the log says so.
	hangsAfter = 5 * time.Second
	// One in hedgeShare requests may have a second attempt, and hedgeBurst more after a quiet time. So an overloaded
	// cluster, in which all is slow, gets a tenth more to do, not twice as much.
	hedgeShare, hedgeBurst = 10, 100
)

// node is a node of a session. A node that hangs, as in a long garbage collection or on a dead disk, still holds its
// connections; the driver takes it for up until a heartbeat has failed several times, after half a minute.
type node struct {
	*gocql.HostInfo
	log      *slog.Logger
	answered atomic.Int64 // when it last did, Unix time in nanoseconds
	asked    atomic.Int64 // when it was asked last
	since    atomic.Int64 // when the first was sent of the requests since its last answer, with pauses below hedgeAfter
	avoided  atomic.Int64 // until when it is the last choice; 0: it is not
	hanging  atomic.Int64 // from when on it has been avoided again and again
	lost     atomic.Bool  // the log says that it can't be reached
	hangs    atomic.Bool  // the log says that it does not answer
}

// who returns the attributes of log lines about the node.
func (n *node) who() []any { return []any{"node", n.HostnameAndPort(), "data centre", n.DataCenter()} }

// asks notes that a request is sent to the node.
func (n *node) asks() {
	now := time.Now().UnixNano()
	last := n.asked.Swap(now)
	if now-last >= int64(hedgeAfter) || now < last || n.answered.Load() >= n.since.Load() {
		n.since.Store(now)
	}
}

// silent notes that the node has not answered a request. If the node has answered no other request either, for long
// enough, it is avoided. A request may have been given up early because another node had answered. So what counts is
// the time for which there have been requests since the node's last answer.
func (n *node) silent() {
	now, answered, since := time.Now(), n.answered.Load(), n.since.Load()
	if time.Duration(now.UnixNano()-since) < hedgeAfter || answered >= since {
		return
	}
	if !n.isSilent(now) {
		n.hanging.Store(now.UnixNano())
	}
	n.avoided.Store(now.Add(avoidFor).UnixNano())
}

// isSilent reports whether the node was tried recently and did not answer. About a node to which nobody sends requests,
// nothing is known.
func (n *node) isSilent(now time.Time) bool {
	return now.UnixNano()-n.avoided.Load() < int64(hangsAfter)
}

func (n *node) answers() {
	n.answered.Store(time.Now().UnixNano())
	if n.avoided.Load() != 0 {
		n.avoided.Store(0)
	}
	if n.hangs.Load() && n.hangs.Swap(false) {
		n.log.Info("Cassandra: a node answers again", n.who()...)
	}
}

// avoid reports whether a request should go elsewhere. When the time is over it is false once, for the request that
// finds out whether the node answers again.
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

// asking is one attempt of a call.
type asking struct {
	asked  []*node // those that earlier attempts of the call went to
	second bool    // it runs beside an earlier one, so it must not go to the same node
	begun  time.Time
	node   atomic.Pointer[node] // where it goes to
}

type askingKey struct{}

// ended notes what the result of the attempt tells about the node.
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

// order puts the nodes that an attempt should avoid behind the others that the policy selects.
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

func (a *asking) goes(n *node) {
	if a != nil && n != nil { // nil: it has just been removed
		n.asks()
		a.node.Store(n)
	}
}

// hedge is one or two attempts at a request.
type hedge[T any] struct {
	s *Store
	request
	attempt func(ctx context.Context) (T, error)
}

// once runs one attempt.
func (h *hedge[T]) once(ctx context.Context, a *asking, limit time.Duration) (T, error) {
	result, err := within(context.WithValue(ctx, askingKey{}, a), h.s, limit, h.attempt)
	a.ended(err)
	return result, err
}

// twice runs an attempt and, once that is slow, a second one through another node. The first one that succeeds, or that
// is refused for good, decides. Both have ended when it returns, as the values of the request belong to the caller, and
// they end within the time limit of one.
func (h *hedge[T]) twice(ctx context.Context, first *asking) (T, error) {
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

var errNotHedged = errors.New("no second attempt was made")

// spare is what may be spent on second attempts. The zero value has hedgeBurst of them.
type spare struct {
	owed atomic.Int64 // requests that have to be made before all is paid for
}

// earn counts a request.
func (s *spare) earn() {
	for owed := s.owed.Load(); owed > 0 && !s.owed.CompareAndSwap(owed, owed-1); {
		owed = s.owed.Load()
	}
}

// spend takes a second attempt, if there is one left.
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
