package repair

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/evenkeel/evenkeel/internal/door"
	"github.com/evenkeel/evenkeel/internal/keytext"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/mapcodec"
	"github.com/evenkeel/evenkeel/internal/rebalance/executor"
	"github.com/evenkeel/evenkeel/internal/rebalance/move"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// mostProblems is the maximum number of problems of one bucket's partition map that are reported one by one. Further
// problems are only counted.
const mostProblems = 20

const restoreTodo = "nothing of the bucket moves until it is mended; `rebalancer map history` may have an older" +
	" root that is whole"

// bucket checks one bucket: its partition map, which says which partition has which keys, and all its rows. Problems
// are reported. An error means that the check can't go on.
func (c *Checker) bucket(ctx context.Context, b bucket) error {
	c.count(&c.sum.Buckets, 1)
	for {
		root, again, err := c.mapOf(ctx, b)
		if err != nil || root == nil && !again {
			return err
		}
		if again {
			continue
		}
		if root.State == partmap.Deleted || c.suspected(b.id) {
			return nil
		}
		return c.each(ctx, b, root, c.partition)
	}
}

func (c *Checker) finding(b bucket, k Kind, format string, args ...any) Finding {
	return Finding{Severity: Problem, Kind: k, Bucket: keytext.Key(b.name), ID: b.id,
		Text: fmt.Sprintf(format, args...)}
}

// mapOf checks the partition map of a bucket (which partition has which keys), with its root and its nodes. The results
// are:
//   - root: the root by which rows can be checked, or nil if there is no valid map
//   - again: true if the map changed meanwhile, so that the caller must call mapOf again
func (c *Checker) mapOf(ctx context.Context, b bucket) (root *partmap.Root, again bool, err error) {
	// First the nodes are read, then the root. So a node that the root does not name was never named, or is not named
	// any more.
	nodes, err := c.nodes(ctx, b.id)
	if err != nil {
		return nil, false, err
	}
	root, err = c.root(ctx, b.id)
	var damaged errDamaged
	switch {
	case notFound(err):
		return nil, false, nil // reported with its name, or its rows
	case errors.As(err, &damaged):
		c.suspect(b.id)
		f := c.finding(b, BrokenRoot, "%v", err)
		f.Todo = restoreTodo
		c.report(f)
		return nil, false, nil
	case errors.Is(err, mapcodec.ErrNewerVersion):
		c.suspect(b.id)
		f := c.finding(b, NewerVersion, "%v", err)
		f.Severity = Unchecked
		c.report(f)
		return nil, false, nil
	case err != nil:
		return nil, false, err
	}

	problems, named, err := c.validate(ctx, root)
	if err != nil {
		return nil, false, err
	}
	if len(problems) > 0 {
		// The map may have changed, and its old nodes may have been collected.
		now, err := c.root(ctx, b.id)
		if err != nil || now.Epoch > root.Epoch {
			return nil, err == nil, err
		}
		back, err := c.brokenMap(ctx, b, now, root, problems)
		return nil, back, err
	}
	if err := c.unnamed(ctx, b, root, nodes, named); err != nil {
		return nil, false, err
	}
	advanced, err := c.outrun(ctx, b, root)
	if err != nil || advanced {
		return nil, advanced, err
	}
	return root, false, c.state(ctx, b, root)
}

// validate checks the partition map with the given root. The result problems has the faults of the map, and named has
// the ids of the nodes that the map names. The error is not nil if the store can't read a node at present.
func (c *Checker) validate(
	ctx context.Context, root *partmap.Root,
) (problems []partmap.Problem, named map[store.NodeID]bool, err error) {
	named = map[store.NodeID]bool{}
	read := c.reader(ctx, root.Bucket)
	problems = partmap.Validate(root, func(id store.NodeID) (blob []byte, rerr error) {
		named[id] = true
		blob, rerr = read(id)
		if k := store.KindOf(rerr); rerr != nil && k != store.NotFound && k != store.Corrupt {
			err = rerr
		}
		return blob, rerr
	})
	return problems, named, err
}

// brokenMap reports the problems of a bucket's partition map. The parameter root is the root of the map that was
// checked, and `now` is the present root. If Options.Adopt is AdoptAll, and an older version of the map is valid,
// brokenMap also replaces the map by the newest such version, and returns true. Rows that have moved since that version
// are copied back later in the check.
func (c *Checker) brokenMap(ctx context.Context, b bucket, now, root *partmap.Root,
	problems []partmap.Problem) (back bool, err error) {
	older, err := c.wholeBefore(ctx, now)
	if err != nil {
		return false, err
	}
	todo, mend := restoreTodo, (func() (string, error))(nil)
	if older != nil {
		todo = fmt.Sprintf("the map of epoch %d, of %s, is whole: end all servers, then --adopt-all takes it back,"+
			" and copies the rows that have moved since",
			older.Epoch, inText(older.ChangedAt))
		if c.o.Adopt == AdoptAll {
			err = c.takeBack(ctx, now, older)
			back = err == nil
			mend = func() (string, error) { return fmt.Sprintf("the map of epoch %d is taken back", older.Epoch), err }
		}
	}
	if !back {
		c.suspect(b.id)
	}
	for i, p := range problems {
		f := c.finding(b, BrokenMap, "epoch %d: %s", root.Epoch, p.Text)
		f.Key, f.Node, f.Todo = p.At, p.Node, todo
		if i == mostProblems {
			f.Text = fmt.Sprintf("epoch %d: and %d more", root.Epoch, len(problems)-i)
		}
		c.problem(ctx, f, mend)
		if i == mostProblems {
			break
		}
	}
	return back, nil
}

// history iterates over the old, replaced roots of a bucket's partition map, from newer to older ones. `before` is an
// epoch (version): the first root is the newest one with a lower epoch.
func (c *Checker) history(ctx context.Context, id store.BucketID, before uint64) iter.Seq2[store.Record, error] {
	return func(yield func(store.Record, error) bool) {
		for {
			page, err := retried(ctx, c, func() ([]store.Record, error) { return c.s.History(ctx, id, before, 100) })
			if err != nil {
				yield(store.Record{}, err)
			}
			for _, rec := range page {
				if !yield(rec, nil) {
					return
				}
				before = rec.Epoch
			}
			if len(page) == 0 {
				return
			}
		}
	}
}

// wholeBefore returns the newest valid partition map of a bucket among the versions older than root. It returns nil if
// none of them is valid.
func (c *Checker) wholeBefore(ctx context.Context, root *partmap.Root) (*partmap.Root, error) {
	for rec, err := range c.history(ctx, root.Bucket, root.Epoch) {
		if err != nil {
			return nil, err
		}
		old, err := partmap.DecodeRoot(root.Bucket, rec)
		if err != nil {
			continue
		}
		problems, _, err := c.validate(ctx, old)
		if err != nil || len(problems) == 0 {
			return old, err
		}
	}
	return nil, nil
}

// takeBack makes an older partition map of a bucket the present one again, under a new epoch (version). The argument
// `now` is the present root of the map, and older is the root to return to. The bucket keeps its present state and
// settings, such as whether it keeps versions. Batches of moves keep their ids, and no later batch gets the same id.
func (c *Checker) takeBack(ctx context.Context, now, older *partmap.Root) error {
	stamp := c.maps.Stamp()
	next := *older
	next.Epoch, next.Token, next.State, next.Clock = now.Epoch+1, stamp.Token, now.State, now.Clock
	next.Settings = now.Settings
	next.ChangedAt = stamp.Now.UnixMicro()
	return c.maps.Swap(ctx, partmap.Change{Old: now.Version(), Next: &next})
}

// state checks three things in the root of a bucket's partition map, and reports problems:
//   - whether the map clock exists, which is a counter that tells clients of changes of the map,
//   - whether a deletion of the bucket was begun but not finished, and
//   - whether moves have been in one phase for too long.
func (c *Checker) state(ctx context.Context, b bucket, root *partmap.Root) error {
	age := c.o.Now().Sub(time.UnixMicro(root.ChangedAt))
	if root.State == partmap.Deleted {
		return nil
	}
	if c.clocks {
		err := c.retry(ctx, func() error { return mapclient.CheckClock(ctx, c.s, root.Clock) })
		if k := store.KindOf(err); err != nil && (k == store.NotFound || k == store.Corrupt) {
			f := c.finding(b, NoClock, "%v", err)
			if b.id == door.ListOfBuckets {
				c.suspect(b.id) // the list cannot be read as a bucket
			}
			f.Todo = "the bucket answers \"unavailable\" until the clock is there; restart every client after the" +
				" clock is restored"
			c.report(f)
		} else if err != nil {
			return err
		}
	}
	if root.State == partmap.Closing {
		f := c.finding(b, LeftClosing, "it has been closing for %s", age.Round(time.Second))
		if age < youngFor {
			f.Severity, f.Kind = Info, Young
			c.report(f)
		} else {
			c.problem(ctx, f, func() (string, error) { return "it is open again", c.reopen(ctx, b.id) })
		}
	}
	for _, batch := range root.Batches {
		f := c.finding(b, Moving, "batch %d is %s since at least %s", batch.ID, batch.Phase, age.Round(time.Second))
		f.Count = int64(batch.Ranges)
		if batch.Phase != partmap.Settled {
			c.mu.Lock()
			c.moving[b.id] = true
			c.mu.Unlock()
		} else {
			f.Kind, f.Text = SweepPending, fmt.Sprintf("batch %d is done but for the sweep of its markers", batch.ID)
		}
		if f.Severity = Info; age > c.o.StuckAfter {
			f.Severity, f.Kind = Problem, StuckMove
			f.Todo = "is a rebalancer running? `rebalancer status` says what it waits for"
		}
		c.report(f)
	}
	return nil
}

// reopen opens a bucket again whose deletion was begun but not finished. It does nothing if the bucket is in another
// state by now.
func (c *Checker) reopen(ctx context.Context, id store.BucketID) error {
	root, err := c.maps.Load(ctx, id)
	if err != nil || root.State != partmap.Closing {
		return err
	}
	change, err := mapclient.WithState(root, partmap.Open, c.maps.Stamp())
	if err != nil {
		return err
	}
	return c.maps.Swap(ctx, change)
}

// nodes returns the ids of all stored nodes of a bucket's partition map, whether the map names them or not. The ids
// take 16 bytes of memory each.
func (c *Checker) nodes(ctx context.Context, id store.BucketID) (all []store.NodeID, err error) {
	var after store.NodeID
	for {
		page, err := retried(ctx, c, func() ([]store.NodeID, error) { return c.s.ScanNodes(ctx, id, after, 1000) })
		if err != nil || len(page) == 0 {
			return all, err
		}
		all = append(all, page...)
		after = page[len(page)-1]
	}
}

// deleteNodes deletes the given stored nodes of a bucket's partition map. The result is a text for the report, e.g. "12
// deleted".
func (c *Checker) deleteNodes(ctx context.Context, id store.BucketID, nodes []store.NodeID) (string, error) {
	for _, n := range nodes {
		if err := c.retry(ctx, func() error { return c.s.DeleteNode(ctx, id, n) }); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("%d deleted", len(nodes)), nil
}

// unnamed looks for unused stored nodes of a bucket's partition map: those that the map, with the given root, does not
// name. It reports these nodes, and deletes the old ones if the check repairs. The map must be valid. nodes has the ids
// of all stored nodes, and named has the ids of the nodes that the map names.
func (c *Checker) unnamed(ctx context.Context, b bucket, root *partmap.Root, nodes []store.NodeID,
	named map[store.NodeID]bool) error {
	var orphans []store.NodeID
	var waiting int64
	ahead := abandoned{bucket: b}
	for _, id := range nodes {
		if named[id] {
			continue
		}
		blob, err := c.reader(ctx, b.id)(id)
		if notFound(err) {
			continue // collected
		}
		epoch := uint64(0)
		if err == nil {
			epoch, err = mapcodec.NodeEpoch(b.id, id, blob)
		}
		if err != nil && store.KindOf(err) != store.Corrupt {
			return err
		}
		if err != nil {
			f := c.finding(b, BrokenNode, "no root names it, and it can't be read: %v", err)
			f.Node, f.Todo = id, "it harms nothing; its epoch can't be read, so it can't be told whether a pending"+
				" change needs it"
			c.report(f)
			continue
		}
		switch {
		case epoch <= root.Epoch:
			orphans = append(orphans, id)
		case epoch == root.Epoch+1:
			waiting++ // the swap for this epoch may be pending
		default:
			ahead.nodes = append(ahead.nodes, move.Node{ID: id, Epoch: epoch})
		}
	}
	if err := c.wentBack(ctx, root, ahead); err != nil {
		return err
	}
	if age := c.o.Now().Sub(time.UnixMicro(root.ChangedAt)); len(orphans) > 0 && age > 2*collectAfter {
		f := c.finding(b, OrphanNode, "%d map nodes that nobody has named for %s", len(orphans), age.Round(time.Second))
		f.Count, f.Node = int64(len(orphans)), orphans[0]
		old := orphans
		c.problem(ctx, f, func() (string, error) { return c.deleteNodes(ctx, b.id, old) })
		orphans = nil
	}
	if waiting += int64(len(orphans)); waiting > 0 {
		f := c.finding(b, Uncollected, "%d map nodes that no root names wait for their collection, or for a swap"+
			" that may still come", waiting)
		f.Severity, f.Count = Info, waiting
		c.report(f)
	}
	return nil
}

// abandoned holds nodes of a bucket's partition map that are too new for the map's root. Their epochs (versions of the
// map) are later than the next epoch of the root. Such nodes show that the root was restored from an older copy than
// the nodes.
type abandoned struct {
	bucket bucket
	nodes  []move.Node
}

// wentBack records, for a later step of the check, that a bucket's root was restored from an older copy than its map
// nodes. The parameter a has nodes that show this: their epochs (versions of the map) are later than the root allows.
// wentBack first reads the root again, and leaves out nodes that a newer root allows.
func (c *Checker) wentBack(ctx context.Context, root *partmap.Root, a abandoned) error {
	if len(a.nodes) == 0 {
		return nil
	}
	now, err := c.root(ctx, root.Bucket)
	if err != nil {
		return err
	}
	a.nodes = slices.DeleteFunc(a.nodes, func(n move.Node) bool { return n.Epoch <= now.Epoch+1 })
	if len(a.nodes) > 0 {
		c.mu.Lock()
		c.ahead[root.Bucket] = a
		c.mu.Unlock()
	}
	return nil
}

// finish does the work that must wait until all rows were checked, in this order:
//   - It copies back rows of partitions without a range.
//   - It ends moves.
//   - It removes what the earlier steps may have needed: old notes (rows that say where moved rows are), map nodes of
//     lost versions, and deletion markers.
func (c *Checker) finish(ctx context.Context) error {
	for id, orphans := range c.orphaned {
		c.adoptBucket(ctx, id, orphans)
	}
	if err := c.endMoves(ctx); err != nil {
		return err
	}
	if err := c.collectNotes(ctx); err != nil {
		return err
	}
	for id, a := range c.ahead {
		if err := c.abandon(ctx, id, a); err != nil {
			return err
		}
	}
	return c.sweeps(ctx)
}

// endMoves ends the moves in flight, in a store that was restored from copies of different moments (Options.Adopt is
// AdoptAll). It skips buckets with rows left outside ranges; their moves go on when servers run.
func (c *Checker) endMoves(ctx context.Context) error {
	// If the old partition of a move was copied at an earlier moment than the new one, it shows rows that were deleted
	// in between, until the move ends. In a skipped bucket deletion markers may still have to hide rows outside ranges.
	if c.o.Adopt != AdoptAll {
		return nil
	}
	for id := range c.moving {
		if c.keeps(id) != 0 || c.suspected(id) {
			continue
		}
		x := executor.New(c.s, c.maps, id, executor.Options{Now: c.o.Now, Pace: c.pace})
		if err := x.Run(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (c *Checker) abandon(ctx context.Context, id store.BucketID, a abandoned) error {
	root, err := c.root(ctx, id)
	if err != nil {
		return err
	}
	highest := slices.MaxFunc(a.nodes, func(x, y move.Node) int { return cmp.Compare(x.Epoch, y.Epoch) })
	f := c.finding(a.bucket, RootWentBack,
		"%d map nodes were written for epochs up to %d, but the root is of epoch %d",
		len(a.nodes), highest.Epoch, root.Epoch)
	f.Node, f.Count = highest.ID, int64(len(a.nodes))
	f.Todo = "was the roots' table restored from an older copy, or its commit log lost? Let no server run; --adopt" +
		" copies the rows" +
		" that have moved since, and then deletes these nodes"
	var mend func() (string, error)
	if c.o.Adopt != AdoptNone && c.keeps(id) == 0 && !c.suspected(id) && !c.o.SkipOrphans {
		var nodes []store.NodeID
		for _, n := range a.nodes {
			nodes = append(nodes, n.ID)
		}
		mend = func() (string, error) { return c.deleteNodes(ctx, id, nodes) }
	}
	c.problem(ctx, f, mend)
	return nil
}
