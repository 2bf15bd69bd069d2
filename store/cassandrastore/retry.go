package cassandrastore

import (
	"cmp"
	"context"
	"time"

	"github.com/gocql/gocql"

	"github.com/evenkeel/evenkeel/internal/wait"
	"github.com/evenkeel/evenkeel/store"
)

// attempts is the largest number of attempts of one read or write in Cassandra. Repeating a write is harmless, since
// all its attempts have the same timestamp.
const attempts = 3

// pauses are the pauses before a failed request to Cassandra is sent again: 10 ms on average at first, and doubled with
// each failure.
var pauses = wait.Backoff{First: 15 * time.Millisecond, Most: 15 * time.Second, Jitter: 2. / 3}

// request describes one call to Cassandra, which may take several attempts: the kind of operation, the consistency
// level and the time limit of each attempt.
type request struct {
	op    operation
	level gocql.Consistency
	limit time.Duration // the time limit of one attempt
	far   bool          // the request goes to another data centre
}

// retry sends a request by the function attempt, and repeats it after errors. Each attempt has its own time limit. Only
// requests that are harmless to repeat may use retry: reads, and writes that reuse their timestamp. If the request is
// quick (see quick), a second attempt runs beside an attempt that is slow. retry ends when
//   - the request succeeds,
//   - the request fails with an error that a repetition can't change,
//   - three attempts (the constant attempts) have failed, or
//   - ctx ends.
func retry[T any](
	ctx context.Context, s *database, r request, attempt func(ctx context.Context) (T, error),
) (result T, err error) {
	// The driver's retry policies can't tell requests that are harmless to repeat from others.
	//
	// A repeated write may arrive once more after its call was acknowledged, at any later time: the node that got it
	// first may have been stopped. That changes nothing. From the acknowledgement on, a quorum of the replicas has the
	// write, or a write that wins over it. Each read meets that quorum, and the same cell at the same timestamp adds
	// nothing to it. So any later operation that deletes, moves or removes the row has seen the write, and hides the
	// late copy as well: by a tombstone at a higher timestamp; by the tombstone of a swept marker or of a copy, at the
	// same timestamp; or by the removal of a source, above all timestamps so far. Without an acknowledgement the
	// outcome is unknown, however many attempts there were.
	begun := time.Now()
	defer func() { s.measures.ended(ctx, r.op, r.level, time.Since(begun), err) }()
	s.spare.earn()
	h := hedge[T]{s: s, request: r, attempt: attempt}
	var asked []*node
	for n := 1; ; n++ {
		if unusable := s.usable(ctx); unusable != nil {
			return result, cmp.Or(err, unusable) // an earlier attempt may have been applied
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

// quick reports whether a request may be sent a second time, to another node, if the answer is slow. The result is true
// if nearby nodes give the answer: a late answer then means that something is wrong. The result is false at the level
// SERIAL, where a second attempt would hinder the first one.
func (r *request) quick() bool {
	return !r.far && (r.level == gocql.LocalQuorum || r.level == gocql.LocalOne || r.level == gocql.One)
}

// within runs attempt, one attempt of a request, under a time limit. The driver itself ends each request after the
// longest of all limits, so an attempt with that limit needs no second timer.
func within[T any](
	ctx context.Context, s *database, limit time.Duration, attempt func(ctx context.Context) (T, error),
) (T, error) {
	if limit >= s.o.longest() {
		return attempt(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return attempt(ctx)
}

// usable returns an error if the context has ended or the store is closed; else nil.
func (s *database) usable(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.closed.Load() {
		return store.ErrClosed
	}
	return nil
}
