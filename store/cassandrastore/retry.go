package cassandrastore

import (
	"cmp"
	"context"
	"time"

	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/wait"
)

// attempts bounds the attempts of a read, and of a write with its one timestamp.
const attempts = 3

// pauses are those before another attempt: 10 ms on average at first.
var pauses = wait.Backoff{First: 15 * time.Millisecond, Most: 15 * time.Second, Jitter: 2. / 3}

// retry repeats an attempt, each under its own time limit, until it succeeds, fails for good, or
// the context ends. It is only for requests that are harmless to repeat: reads, and writes that
// reuse their timestamp. The driver's retry policies can't distinguish those.
func (s *Store) retry(ctx context.Context, limit time.Duration, attempt func(ctx context.Context) error) error {
	var err error
	for n := 1; ; n++ {
		if unusable := s.usable(ctx); unusable != nil {
			return cmp.Or(err, unusable) // what was attempted may have been applied
		}
		err = s.within(ctx, limit, attempt)
		if err == nil || n >= attempts || ctx.Err() != nil || !worthRetrying(err) {
			return err
		}
		if pauses.Sleep(ctx, n) != nil {
			return err
		}
	}
}

// within runs an attempt under a time limit. The driver ends requests after the longest of all
// limits, so that one needs no second timer.
func (s *Store) within(ctx context.Context, limit time.Duration, attempt func(ctx context.Context) error) error {
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
