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
	stop  context.CancelFunc
	work  sync.WaitGroup
}

// During calls f while work goes on. The first of concurrent calls has begin called, with a context that ends once the
// last of them has ended, whatever the ends of their own contexts: begin prepares and returns the work.
func (w *While) During(ctx context.Context, begin func(ctx context.Context) (work func()), f func()) {
	w.mu.Lock()
	if w.users++; w.users == 1 {
		ctx, w.stop = context.WithCancel(context.WithoutCancel(ctx))
		w.work.Go(begin(ctx))
	}
	w.mu.Unlock()
	f()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.users--; w.users == 0 {
		w.stop()
		w.work.Wait()
	}
}
