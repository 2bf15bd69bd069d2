package cassandrastore

import (
	"cmp"
	"context"
	"time"

	"github.com/gocql/gocql"

	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/wait"
)

// attempts bounds the attempts of a read, and of a write with its one timestamp.
const attempts = 3

// pauses are those before another attempt: 10 ms on average at first.
var pauses = wait.Backoff{First: 15 * time.Millisecond, Most: 15 * time.Second, Jitter: 2. / 3}

// request is what the attempts of one call have in common.
type request struct {
	op    operation
	level gocql.Consistency
	limit time.Duration // of one attempt
	far   bool          // it goes to another data centre
}

// retry repeats an attempt, each under its own time limit, until it succeeds, fails for good, or the context ends.
// Where the request is quick, a second attempt runs beside one that is slow. It is only for requests that are harmless
// to repeat: reads, and writes that reuse their timestamp. The driver's retry policies can't distinguish those.
//
// A repeated write may arrive once more after its call was acknowledged, at any later time: the node that got it first
// may have been stopped. That changes nothing. From the acknowledgement on a quorum of the replicas has the write, or
// what wins over it; each read meets that quorum, and the same cell at the same timestamp adds nothing to it. So what
// later deletes, moves or removes what was written has seen it, and hides this copy of it as well: a tombstone at a
// higher timestamp, that of a swept marker or of a copy at the same one, and the removal of a source above all
// timestamps so far. Without an acknowledgement the outcome is unknown, however many attempts there were.
func retry[T any](
	ctx context.Context, s *Store, r request, attempt func(ctx context.Context) (T, error),
) (result T, err error) {
	begun := time.Now()
	defer func() { s.measures.ended(ctx, r.op, r.level, time.Since(begun), err) }()
	s.spare.earn()
	h := hedge[T]{s: s, request: r, attempt: attempt}
	var asked []*node
	for n := 1; ; n++ {
		if unusable := s.usable(ctx); unusable != nil {
			return result, cmp.Or(err, unusable) // what was attempted may have been applied
		}
		a := &asking{asked: asked, begun: time.Now()}
		if r.quick() {
			result, err = h.twice(ctx, a)
			if err == nil {
				now := time.Now()
				s.late[r.op].add(now.Sub(a.begun), now)
			}
		} else {
			result, err = h.once(ctx, a, r.limit)
		}
		if err == nil || n >= attempts || ctx.Err() != nil || !worthRetrying(err) {
			return result, err
		}
		if n := a.node.Load(); n != nil {
			asked = append(asked, n)
		}
		if pauses.Sleep(ctx, n) != nil {
			return result, err
		}
		s.measures.again(r.op, "failed")
	}
}

// quick reports whether a request is hedged: its answer comes from nodes nearby, so that it is late only if something
// is wrong. At SERIAL a second attempt would hinder the first one.
func (r *request) quick() bool {
	return !r.far && (r.level == gocql.LocalQuorum || r.level == gocql.LocalOne || r.level == gocql.One)
}

// within runs an attempt under a time limit. The driver ends requests after the longest of all
// limits, so that one needs no second timer.
func within[T any](
	ctx context.Context, s *Store, limit time.Duration, attempt func(ctx context.Context) (T, error),
) (T, error) {
	if limit >= s.o.longest() {
		return attempt(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return attempt(ctx)
}

// usable fails for an ended context and for a closed store.
func (s *Store) usable(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.closed.Load() {
		return store.ErrClosed
	}
	return nil
}
