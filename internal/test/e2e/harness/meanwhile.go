package harness

import (
	"context"
	"sync"
	"testing"
)

// Meanwhile runs work beside a test, each function in a goroutine of its own. The returned function ends the context
// that they get, and waits for them. The end of the test does the same, before servers that were started earlier are
// killed: a test that fails half-way is reported with its own message, not with that of work which it left behind.
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
