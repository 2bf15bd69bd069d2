package wait

import (
	"context"
	"sync"
)

// While runs one work beside any number of others: it begins before the first of them and ends after the last. The zero
// value is ready. It is safe for concurrent use.
type While struct {
	mu    sync.Mutex
	users int
	begun chan struct{} // closed when the work is prepared
	stop  context.CancelFunc
	work  sync.WaitGroup
}

// During calls f while work goes on. The first of concurrent calls has begin called, with a context that ends once the
// last of them has ended, whatever the ends of their own contexts: begin prepares and returns the work. While begin
// prepares, a call whose context ends goes on without waiting for it.
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
