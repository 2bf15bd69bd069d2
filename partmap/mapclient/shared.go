package mapclient

import (
	"context"

	"golang.org/x/sync/singleflight"

	"github.com/evenkeel/evenkeel/store"
)

// shared runs one call for all who ask for the same key at the same time. Its zero
// value is ready to use, and safe for concurrent use.
type shared struct{ group singleflight.Group }

// do calls f, or waits for a call that somebody else has begun. f does not end with
// ctx; the wait does, with its cause, said to be that of op. Where a call fails that
// was begun before this one it is done once more: what it met with may be over long
// since, and nobody is to fail for less than an attempt of their own.
func (s *shared) do(ctx context.Context, key, op string, f func() (any, error)) (any, error) {
	for again := false; ; again = true {
		began := false
		result := s.group.DoChan(key, func() (any, error) {
			began = true
			return f()
		})
		select {
		case r := <-result:
			// Only where f ran for this call is began written, and before the result.
			if r.Err == nil || began || again {
				return r.Val, r.Err
			}
		case <-ctx.Done():
			return nil, store.Wrap(op, context.Cause(ctx))
		}
	}
}

// begin calls f in the background, unless such a call is under way, and returns where
// the result of that one comes.
func (s *shared) begin(key string, f func() (any, error)) <-chan singleflight.Result {
	return s.group.DoChan(key, f)
}
