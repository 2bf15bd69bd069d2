package scheduler

import (
	"context"
	"sync"
	"time"

	"github.com/evenkeel/evenkeel/internal/rebalance/move"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/wait"
)

// tidy collects what a bucket's map does not name any more, and says when to do it
// again; zero: nothing is left. What fails is done by the next scan.
func (g *Scheduler) tidy(ctx context.Context, b *bucket) (again time.Time) {
	root, err := g.maps.Load(ctx, b.id)
	if err == nil {
		err = g.forget(ctx, root)
	}
	waiting := 0
	if err == nil {
		_, waiting, err = b.x.Collect(ctx)
	}
	if err != nil && ctx.Err() == nil {
		g.o.Logger.Warn("what a map does not name any more can't be collected", "bucket", b.id.String(), "error", err)
	}
	if err == nil && waiting > 0 {
		return time.Now().Add(g.collectAfter())
	}
	return time.Time{}
}

// tidying calls f, and tidies the bucket meanwhile, every tidyEvery: else a bucket that always moves would never be
// tidied. Moves need not stop for that: the collector leaves the nodes of swaps that are still to come, as another
// process may be about to make one at any time. tidying returns when a tidying that has begun has ended, too.
func (g *Scheduler) tidying(ctx context.Context, b *bucket, f func(ctx context.Context) error) error {
	if b.tidied.IsZero() {
		b.tidied = time.Now()
	}
	until, end := context.WithCancel(ctx)
	var tidying sync.WaitGroup
	tidying.Go(func() {
		for wait.Sleep(until, time.Until(b.tidied.Add(tidyEvery))) == nil {
			g.tidy(ctx, b)
			b.tidied = time.Now()
		}
	})
	err := f(ctx)
	end()
	tidying.Wait()
	return err
}

func (g *Scheduler) collectAfter() time.Duration {
	if g.o.Executor.CollectAfter > 0 {
		return g.o.Executor.CollectAfter
	}
	return time.Hour
}

// forget drops the oldest of the replaced roots.
func (g *Scheduler) forget(ctx context.Context, root *partmap.Root) error {
	if root.Epoch <= keepEpochs {
		return nil
	}
	// Forgetting costs a tombstone in some stores, also where there is nothing.
	before := root.Epoch - keepEpochs
	old, err := g.store.History(ctx, root.Bucket, before, 1)
	if err != nil || len(old) == 0 {
		return err
	}
	return g.store.Forget(ctx, root.Bucket, before)
}

// Scan is how far the scan of roots has come.
type Scan struct {
	// Roots that the present scan has looked at, or the last one.
	Roots int `json:"roots"`
	// Found is how many of them had something to do.
	Found int `json:"found"`
	// Began and Ended are its times; Ended is zero while it goes on.
	Began time.Time `json:"began,omitzero"`
	Ended time.Time `json:"ended,omitzero"`
	Error string    `json:"error,omitempty"`
}

// scanAll looks at all roots, slowly, again and again.
func (g *Scheduler) scanAll(ctx context.Context) {
	for ctx.Err() == nil {
		g.scan(ctx)
		if wait.Sleep(ctx, scanEvery) != nil {
			return
		}
	}
}

// scan finds the buckets that moves or a deletion left in the middle, and those with
// something to collect.
func (g *Scheduler) scan(ctx context.Context) {
	s := Scan{Began: time.Now().UTC()}
	note := func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.scanned = s
	}
	note()
	for keys, err := range store.KeyPages(ctx, g.store, store.Roots) {
		if err != nil {
			s.Error = err.Error()
			note()
			if ctx.Err() == nil {
				g.o.Logger.Warn("the scan of roots can't go on", "error", err)
			}
			if wait.Sleep(ctx, 10*time.Second) != nil {
				return
			}
			continue
		}
		for _, key := range keys {
			found, err := g.inspect(ctx, store.BucketID(key))
			if err != nil && ctx.Err() == nil {
				s.Error = err.Error()
				g.o.Logger.Warn("the scan can't look at a root", "bucket", store.BucketID(key).String(), "error", err)
			}
			if s.Roots++; found {
				s.Found++
			}
			note()
			if wait.Sleep(ctx, time.Second/rootsPerSecond) != nil {
				return
			}
		}
	}
	s.Ended = time.Now().UTC()
	note()
}

// inspect looks whether a bucket needs anything.
func (g *Scheduler) inspect(ctx context.Context, id store.BucketID) (bool, error) {
	root, err := g.maps.Load(ctx, id)
	if err != nil {
		return false, err
	}
	left := root.State == partmap.Closing && time.Since(time.UnixMicro(root.ChangedAt)) > move.ReopenAfter
	if len(root.Batches) > 0 && root.State != partmap.Deleted || left {
		g.want(id)
		return true, nil
	}
	nodes, err := g.store.ScanNodes(ctx, id, store.NodeID{}, store.MaxPageRows)
	if err != nil {
		return false, err
	}
	if err := g.forget(ctx, root); err != nil {
		return false, err
	}
	// A large map has so many nodes that they do not fit into one page: as good a
	// reason to look as one that is not named.
	if root.Height == 0 && len(nodes) > 0 || root.Height == 1 && len(nodes) > len(root.Children) || root.Height > 1 {
		g.want(id)
		return true, nil
	}
	return false, nil
}
