package mapclient

import (
	"context"

	"golang.org/x/sync/singleflight"

	"github.com/evenkeel/evenkeel/store"
)

// shared lets concurrent callers with the same key share a single call of a function, such as a read of the same
// record. The zero value is ready to use, and safe for concurrent use.
type shared struct{ group singleflight.Group }

// do returns the result of f, and makes concurrent callers with the same key share one call of f. If the call of
// another caller fails, do calls f itself, so that every caller gets an attempt. If ctx ends, do returns an error, and
// the call goes on. op names the action in errors.
func (s *shared) do(ctx context.Context, key, op string, f func() (any, error)) (any, error) {
	for again := false; ; again = true {
		began := false
		result := s.group.DoChan(key, func() (any, error) {
			began = true
			return f()
		})
		select {
		case r := <-result:
			// began is written only if f ran for this call, and before the result.
			if r.Err == nil || began || again {
				return r.Val, r.Err
			}
		case <-ctx.Done():
			return nil, store.Wrap(op, context.Cause(ctx))
		}
	}
}
