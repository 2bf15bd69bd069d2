package harness

import (
	"context"
	"sync"
	"testing"
)

// Meanwhile runs functions beside a test, each in a goroutine of its own. The returned function end ends the context of
// these functions, and waits for them. If the test ends before that, they are ended as well, before servers that were
// started earlier are killed. So a test that fails half-way is reported with its own message, and not with a message of
// these functions.
func Meanwhile(t testing.TB, work ...func(ctx context.Context)) (end func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	for _, w := range work {
		running.Go(func() { w(ctx) })
	}
	end = sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})
	t.Cleanup(end)
	return end
}
