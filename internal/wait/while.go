package wait

import (
	"context"
	"sync"
)

// While runs one piece of background work for as long as any caller needs it. The work begins with the first of several
// concurrent callers and ends after the last one. While is safe for concurrent use; the zero value is ready.
type While struct {
	mu    sync.Mutex
	users int
	begun chan struct{} // closed when begin has prepared the work
	stop  context.CancelFunc
	work  sync.WaitGroup
}

// During calls f while background work runs. Concurrent calls of During share the work. The first of these calls runs
// begin, which prepares the work and returns the work as a function. Each call waits until begin has returned, and then
// runs f. A call whose own ctx ends first runs f without waiting.
//
// The context of begin ends when the last of the concurrent calls has ended, even if the contexts of the callers end
// before.
func (w *While) During(ctx context.Context, begin func(ctx context.Context) (work func()), f func()) {
	w.mu.Lock()
	if w.users++; w.users == 1 {
		begun := make(chan struct{})
		within, stop := context.WithCancel(context.WithoutCancel(ctx))
		w.begun, w.stop = begun, stop
		w.work.Go(func() {
			work := begin(within)
			close(begun)
			work()
		})
	}
	begun := w.begun
	w.mu.Unlock()
	select {
	case <-begun:
	case <-ctx.Done():
	}
	f()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.users--; w.users == 0 {
		w.stop()
		w.work.Wait()
	}
}
