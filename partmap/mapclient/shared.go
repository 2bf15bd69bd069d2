package mapclient

import (
	"context"

	"golang.org/x/sync/singleflight"

	"github.com/evenkeel/evenkeel/store"
)

// shared runs one call for concurrent callers with the same key. The zero value is ready to
// use, and safe for concurrent use.
type shared struct{ group singleflight.Group }

// do calls f, or waits for a call under way. The wait ends with ctx, f does not. If a call
// fails that was started earlier by another caller, do makes another one: every caller gets
// one attempt of its own.
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
