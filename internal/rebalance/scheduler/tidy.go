package scheduler

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/internal/rebalance/move"
	"github.com/evenkeel/evenkeel/internal/rebalance/shard"
	"github.com/evenkeel/evenkeel/internal/record"
	"github.com/evenkeel/evenkeel/internal/wait"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// tidy deletes old roots of the map of bucket b, and map nodes that the map no longer names. The result `again` is the
// time at which to call tidy again, or zero if nothing is left to delete. After an error, the next scan of all roots
// finds what is left.
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

// tidying calls f, which moves ranges of bucket b. Meanwhile it deletes old roots and unused map nodes of the bucket,
// every 10 minutes (tidyEvery). It returns when f and the last deletions have ended.
func (g *Scheduler) tidying(ctx context.Context, b *bucket, f func(ctx context.Context) error) error {
	// Without that, a bucket that always moves would keep them for ever.
	// Moves need not stop: nodes that a later change of the map may name are not deleted, as another process may be
	// about to make the change.
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

// collectAfter returns for how long a map node is kept after the bucket's map has stopped naming it. The default is an
// hour.
func (g *Scheduler) collectAfter() time.Duration {
	if g.o.Executor.CollectAfter > 0 {
		return g.o.Executor.CollectAfter
	}
	return time.Hour
}

// forget deletes old roots of a bucket's map, except the last 100 replaced roots (keepEpochs). root is the present
// root.
func (g *Scheduler) forget(ctx context.Context, root *partmap.Root) error {
	if root.Epoch <= keepEpochs {
		return nil
	}
	// Forgetting writes a tombstone in some stores, even if there is nothing to forget.
	before := root.Epoch - keepEpochs
	old, err := g.store.History(ctx, root.Bucket, before, 1)
	if err != nil || len(old) == 0 {
		return err
	}
	return g.store.Forget(ctx, root.Bucket, before)
}

// Scan is the progress of the search for unfinished moves and deletions in all buckets, which reads the root of each
// bucket's map.
type Scan struct {
	// Roots is the number of roots that the present or last search has read.
	Roots int `json:"roots"`
	// Found is the number of buckets with unfinished work among those whose roots were read.
	Found int `json:"found"`
	// Began and Ended are the times at which the search began and ended. Ended is zero while the search goes on.
	Began time.Time `json:"began,omitzero"`
	Ended time.Time `json:"ended,omitzero"`
	Error string    `json:"error,omitempty"`
}

const (
	// scanEvery is the time between two searches of the roots of all buckets for unfinished work. RootsAtOnce is the
	// number of concurrent reads of a search, and RootsPerSecond is its maximum rate. The first search after this
	// process gets new shards has no maximum rate, so that unfinished moves are found at once.
	scanEvery      = 10 * time.Minute
	RootsAtOnce    = 32
	RootsPerSecond = 500
	// ScansToProve is the number of searches of all roots in which each root is read once with consistency Serial,
	// which also commits a half-made change.
	ScansToProve = 8
)

// together is a short wait before the roots of new shards (groups of buckets) are searched. A process gets several
// shards one after the other, and one search after the wait covers all of them.
const together = 200 * time.Millisecond

// scanAll searches the roots of all buckets for unfinished work every 10 minutes (scanEvery), until ctx ends. When this
// process gets new shards (groups of buckets), scanAll searches the roots of these shards at once.
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

// scan searches buckets for unfinished moves or deletions, and for unused map nodes. It reads the roots of maps that
// this data centre has. A bucket with unfinished work is read again at Serial before its moves go on. The parameters
// are:
//   - of: the shards (groups of buckets) to search
//   - n: the number of searches before this one since this process got the shards
func (g *Scheduler) scan(ctx context.Context, of shard.Set, n int) {
	// The data centre may not have heard of a batch of moves yet, but then no work on the batch has begun: a batch is
	// acknowledged before work on it begins. The root of such a batch may stay unheard of if its leader died before the
	// change was committed. So each search except the first reads another part of the roots at Serial, which also
	// commits the change.
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
	for keys, err := range record.KeyPages(ctx, g.store, store.Roots) {
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

// inspect reports whether a bucket has unfinished work, and queues the bucket if so. If prove is true, it reads the
// newest root of the bucket's map (at Serial).
func (g *Scheduler) inspect(ctx context.Context, id store.BucketID, prove bool) (bool, error) {
	// If the map has few nodes, stored nodes are looked for, too, since a failed change may have left unused ones. If
	// it has none, that is done only if prove is true.
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
	// A large map has more nodes than fit into one page. It gets a turn in any case, as if one were unnamed.
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
