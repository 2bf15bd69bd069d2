package cassandrastore

import (
	"context"
	"math/rand/v2"
	"time"
)

const (
	// attempts bounds the attempts of a read, and of a write with its one timestamp.
	attempts = 3
	// firstPause is the pause, with jitter, before the second attempt. It doubles.
	firstPause = 10 * time.Millisecond
)

// retry runs an attempt, each under its own time limit, until it succeeds, fails for
// good, or the context ends. It is only for what is harmless to repeat: reads, and
// writes that reuse their timestamp. The driver's retry policies can't tell which
// those are.
func (s *Store) retry(ctx context.Context, limit time.Duration, attempt func(ctx context.Context) error) error {
	pause := firstPause
	for n := 1; ; n++ {
		if err := s.usable(ctx); err != nil {
			return err
		}
		err := s.within(ctx, limit, attempt)
		if err == nil || n >= attempts || ctx.Err() != nil || !worthRetrying(err) {
			return err
		}
		timer := time.NewTimer(pause/2 + rand.N(pause))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return err
		}
		pause *= 2
	}
}

// within runs an attempt under a time limit. The driver itself ends requests after
// the longest of all limits: another timer for that would only cost.
func (s *Store) within(ctx context.Context, limit time.Duration, attempt func(ctx context.Context) error) error {
	if limit >= s.o.longest() {
		return attempt(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return attempt(ctx)
}

// usable refuses work for an ended context and for a closed store.
func (s *Store) usable(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.closed.Load() {
		return errClosed
	}
	return nil
}
