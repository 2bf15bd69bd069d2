package scheduler

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/internal/rebalance/move"
	"github.com/evenkeel/evenkeel/internal/rebalance/shard"
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

const (
	// scanEvery is the pause between two scans of all roots. RootsAtOnce is how many roots a scan looks at at once,
	// RootsPerSecond how many in a second, but for the first scan of a leader: what another one left is found at once.
	scanEvery      = 10 * time.Minute
	RootsAtOnce    = 32
	RootsPerSecond = 500
	// ScansToProve is in how many scans each root is read at Serial once.
	ScansToProve = 8
)

// together is for how long a scan of shards that have just come waits for more of them: they come several at a time.
const together = 200 * time.Millisecond

// scanAll looks at all roots, again and again, and first at those of shards that another process may have led.
func (g *Scheduler) scanAll(ctx context.Context) {
	for n := 0; ; {
		next := time.NewTimer(scanEvery)
		select {
		case <-g.news:
			if g.Led() != shard.All {
				_ = wait.Sleep(ctx, together) // one scan is for all shards that come
			}
			g.mu.Lock()
			of := g.fresh
			g.fresh = 0
			g.mu.Unlock()
			if of != 0 {
				g.resume(ctx, of)
				g.scan(ctx, of, 0)
			}
		case <-next.C:
			n++
			g.scan(ctx, shard.All, n)
		case <-ctx.Done():
		}
		if next.Stop(); ctx.Err() != nil {
			return
		}
	}
}

// scan looks for the buckets that moves or a deletion left unfinished, and for those with something to collect. It is
// scan number n of this leader; 0: the first one of some shards.
//
// scan reads the roots that this data centre has. A bucket that it finds is looked at again at Serial when the bucket
// has its turn. A batch that it does not find, because this data centre has not heard of it, is one on which no work
// has begun: a batch is acknowledged before work on it begins. But the root of such a batch may stay unheard of, as
// after a swap whose leader died before the swap was committed. So each scan except the first reads another part of the
// roots at Serial, which also commits such a swap.
func (g *Scheduler) scan(ctx context.Context, of shard.Set, n int) {
	s := Scan{Began: time.Now().UTC()}
	note := func(change func()) {
		g.mu.Lock()
		defer g.mu.Unlock()
		change()
		g.scanned = s
	}
	note(func() {})
	pace := wait.NewPacer(RootsPerSecond)
	if n == 0 {
		pace.SetRate(0)
	}
	look := func(id store.BucketID) error {
		if err := pace.Take(ctx, 1); err != nil {
			return err
		}
		found, err := g.inspect(ctx, id, n > 0 && (n+int(id[len(id)-1]))%ScansToProve == 0)
		if err != nil && ctx.Err() == nil {
			g.o.Logger.Warn("the scan can't look at a root", "bucket", id.String(), "error", err)
		}
		note(func() {
			if s.Roots++; found {
				s.Found++
			}
			if err != nil && ctx.Err() == nil {
				s.Error = err.Error()
			}
		})
		return ctx.Err()
	}
	for keys, err := range store.KeyPages(ctx, g.store, store.Roots) {
		if err != nil {
			note(func() { s.Error = err.Error() })
			if ctx.Err() == nil {
				g.o.Logger.Warn("the scan of roots can't go on", "error", err)
			}
			if wait.Sleep(ctx, 10*time.Second) != nil {
				return
			}
			continue
		}
		var looks errgroup.Group
		looks.SetLimit(RootsAtOnce)
		led := of & g.Led()
		for _, key := range keys {
			if !led.Bucket(store.BucketID(key)) {
				continue
			}
			looks.Go(func() error { return look(store.BucketID(key)) })
		}
		if looks.Wait() != nil {
			return
		}
	}
	note(func() { s.Ended = time.Now().UTC() })
}

// inspect reports whether a bucket needs anything. To prove its answer it reads at Serial, and looks for stored nodes
// of a map that has no nodes: they exist only if a swap to a larger map failed.
func (g *Scheduler) inspect(ctx context.Context, id store.BucketID, prove bool) (bool, error) {
	read := g.maps.Look
	if prove {
		read = g.maps.Load
	}
	root, err := read(ctx, id)
	if err != nil {
		return false, err
	}
	left := root.State == partmap.Closing && time.Since(time.UnixMicro(root.ChangedAt)) > move.ReopenAfter
	if len(root.Batches) > 0 && root.State != partmap.Deleted || left {
		g.want(id)
		return true, nil
	}
	if err := g.forget(ctx, root); err != nil {
		return false, err
	}
	// A large map has so many nodes that they do not fit into one page: as good a
	// reason to look as one that is not named.
	unnamed := root.Height > 1
	if root.Height == 1 || root.Height == 0 && prove {
		nodes, err := g.store.ScanNodes(ctx, id, store.NodeID{}, store.MaxPageRows)
		if err != nil {
			return false, err
		}
		unnamed = len(nodes) > len(root.Children)
	}
	if unnamed {
		g.want(id)
	}
	return unnamed, nil
}
