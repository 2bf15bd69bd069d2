package repair

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/evenkeel/evenkeel/internal/rebalance/move"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/partmap/mapclient"
	"github.com/evenkeel/evenkeel/store"
)

// mostProblems of one map are reported one by one.
const mostProblems = 20

const restoreTodo = "nothing of the bucket moves until it is mended; `rebalancer map history` may have an older root that is whole"

// bucket checks one bucket: its root, map, nodes and rows.
func (c *Checker) bucket(ctx context.Context, b bucket) error {
	c.buckets.Add(1)
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
		return c.walk(ctx, b, root)
	}
}

func (c *Checker) finding(b bucket, k Kind, format string, args ...any) Finding {
	return Finding{Severity: Problem, Kind: k, Bucket: b.name, ID: b.id, Text: fmt.Sprintf(format, args...)}
}

// mapOf checks root, map and nodes. A nil root: there is nothing to go on with.
// again: the map has moved on, so it has to be looked at anew.
func (c *Checker) mapOf(ctx context.Context, b bucket) (root *partmap.Root, again bool, err error) {
	// The nodes first, the root after them: a node that it does not name then was
	// never named, or is not any more.
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
		return nil, false, c.problem(ctx, f, nil)
	case errors.Is(err, partmap.ErrNewerVersion):
		c.newer(b, err)
		return nil, false, nil
	case err != nil:
		return nil, false, err
	}

	problems, named, err := c.validate(ctx, root)
	if err != nil {
		return nil, false, err
	}
	if len(problems) > 0 {
		// The map may have moved on, and its old nodes may have been collected.
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

// validate looks whether a map holds together, and returns the nodes that it names.
// A node that can't be reached is an error.
func (c *Checker) validate(ctx context.Context, root *partmap.Root) (problems []partmap.Problem, named map[store.NodeID]bool, err error) {
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

func (c *Checker) newer(b bucket, err error) {
	c.suspect(b.id)
	f := c.finding(b, NewerVersion, "%v", err)
	f.Severity = Unchecked
	c.report(f)
}

// brokenMap reports what is wrong with a map. It is taken back to the newest older
// one that is whole, if rows that have moved since are going to be adopted too.
func (c *Checker) brokenMap(ctx context.Context, b bucket, now, root *partmap.Root, problems []partmap.Problem) (back bool, err error) {
	older, err := c.wholeBefore(ctx, now)
	if err != nil {
		return false, err
	}
	todo, mend := restoreTodo, func() (string, error) { return "", nil }
	if older != nil {
		todo = fmt.Sprintf("the map of epoch %d, of %s, is whole: end all servers, then --adopt-all takes it back, and copies the rows that have moved since",
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
		f := c.finding(b, BrokenMap, "epoch %d: %s", root.Epoch, p)
		f.Key, f.Node, f.Todo = p.At, p.Node, todo
		if i == mostProblems {
			f.Text = fmt.Sprintf("epoch %d: and %d more", root.Epoch, len(problems)-i)
		}
		if err := c.problem(ctx, f, mend); err != nil || i == mostProblems {
			return back, err
		}
	}
	return back, nil
}

// wholeBefore returns the newest replaced map of a bucket that holds together; nil
// for none.
func (c *Checker) wholeBefore(ctx context.Context, root *partmap.Root) (*partmap.Root, error) {
	for before := root.Epoch; ; {
		var replaced []store.Record
		err := c.retry(ctx, func() (err error) {
			replaced, err = c.s.History(ctx, root.Bucket, before, 100)
			return err
		})
		if err != nil || len(replaced) == 0 {
			return nil, err
		}
		for _, rec := range replaced {
			before = rec.Epoch
			old, err := partmap.DecodeRoot(root.Bucket, rec)
			if err != nil {
				continue
			}
			problems, _, err := c.validate(ctx, old)
			if err != nil {
				return nil, err
			}
			if len(problems) == 0 {
				return old, nil
			}
		}
	}
}

// takeBack makes an older map the present one, at a new epoch. Batches keep their
// ids: none that begins later gets one of theirs.
func (c *Checker) takeBack(ctx context.Context, now, older *partmap.Root) error {
	stamp := c.maps.Stamp()
	next := *older
	next.Epoch, next.Token, next.State, next.Clock = now.Epoch+1, stamp.Token, now.State, now.Clock
	next.ChangedAt = stamp.Now.UnixMicro()
	return c.maps.Swap(ctx, partmap.Change{Old: now.Version(), Next: &next})
}

// state checks what the root says of itself.
func (c *Checker) state(ctx context.Context, b bucket, root *partmap.Root) error {
	age := c.o.Now().Sub(time.UnixMicro(root.ChangedAt))
	if root.State == partmap.Deleted {
		return nil
	}
	if c.clocks {
		err := c.retry(ctx, func() error { return mapclient.CheckClock(ctx, c.s, root.Clock) })
		if k := store.KindOf(err); err != nil && (k == store.NotFound || k == store.Corrupt) {
			f := c.finding(b, NoClock, "%v", err)
			if b.id == listing.ListOfBuckets() {
				c.suspect(b.id) // it can't be read as a bucket
			}
			f.Todo = "the bucket answers \"unavailable\" until the clock is there; restart every client after the clock is restored"
			if err := c.problem(ctx, f, nil); err != nil {
				return err
			}
		} else if err != nil {
			return err
		}
	}
	if root.State == partmap.Closing {
		f := c.finding(b, LeftClosing, "it has been closing for %s", age.Round(time.Second))
		if age < c.o.YoungFor {
			f.Severity, f.Kind = Info, Young
			c.report(f)
		} else if err := c.problem(ctx, f, func() (string, error) { return "it is open again", c.reopen(ctx, b.id) }); err != nil {
			return err
		}
	}
	for _, batch := range root.Batches {
		f := c.finding(b, Moving, "batch %d is %s since at least %s", batch.ID, batch.Phase, age.Round(time.Second))
		f.Count = int64(batch.Ranges)
		if batch.Phase == partmap.Settled {
			f.Kind, f.Text = SweepPending, fmt.Sprintf("batch %d is done but for the sweep of its markers", batch.ID)
		}
		if age > c.o.StuckAfter {
			f.Kind, f.Todo = StuckMove, "is a rebalancer running? `rebalancer status` says what it waits for"
			if err := c.problem(ctx, f, nil); err != nil {
				return err
			}
			continue
		}
		f.Severity = Info
		c.report(f)
	}
	return nil
}

// reopen brings a bucket back that was left closing.
func (c *Checker) reopen(ctx context.Context, id store.BucketID) error {
	root, err := c.maps.Load(ctx, id)
	if err != nil || root.State != partmap.Closing {
		return err
	}
	change, err := partmap.WithState(root, partmap.Open, c.maps.Stamp())
	if err != nil {
		return err
	}
	return c.maps.Swap(ctx, change)
}

// nodes lists a bucket's map nodes: 16 bytes for each.
func (c *Checker) nodes(ctx context.Context, id store.BucketID) (all []store.NodeID, err error) {
	var after store.NodeID
	for {
		var page []store.NodeID
		err := c.retry(ctx, func() (err error) {
			page, err = c.s.ScanNodes(ctx, id, after, 1000)
			return err
		})
		if err != nil || len(page) == 0 {
			return all, err
		}
		all = append(all, page...)
		after = page[len(page)-1]
	}
}

// unnamed judges the nodes that a whole map does not name.
func (c *Checker) unnamed(ctx context.Context, b bucket, root *partmap.Root, nodes []store.NodeID, named map[store.NodeID]bool) error {
	var orphans []store.NodeID
	var waiting int64
	var ahead abandoned
	for _, id := range nodes {
		if named[id] {
			continue
		}
		var blob []byte
		err := c.retry(ctx, func() (err error) {
			blob, err = c.s.Node(ctx, b.id, id)
			return err
		})
		if notFound(err) {
			continue // collected
		}
		epoch := uint64(0)
		if err == nil {
			epoch, err = partmap.NodeEpoch(b.id, partmap.Node{ID: id, Blob: blob})
		}
		if err != nil && store.KindOf(err) != store.Corrupt {
			return err
		}
		if err != nil {
			f := c.finding(b, BrokenNode, "no root names it, and it can't be read: %v", err)
			f.Node, f.Todo = id, "it harms nothing; its epoch can't be read, so it can't be told whether a pending change needs it"
			if err := c.problem(ctx, f, nil); err != nil {
				return err
			}
			continue
		}
		switch {
		case epoch <= root.Epoch:
			orphans = append(orphans, id)
		case epoch == root.Epoch+1:
			waiting++ // a swap may still come
		default:
			ahead.bucket = b
			ahead.nodes = append(ahead.nodes, move.Node{ID: id, Epoch: epoch})
		}
	}
	if err := c.wentBack(ctx, root, ahead); err != nil {
		return err
	}
	if age := c.o.Now().Sub(time.UnixMicro(root.ChangedAt)); len(orphans) > 0 && age > 2*c.o.CollectAfter {
		f := c.finding(b, OrphanNode, "%d map nodes that nobody has named for %s", len(orphans), age.Round(time.Second))
		f.Count, f.Node = int64(len(orphans)), orphans[0]
		err := c.problem(ctx, f, func() (string, error) {
			for _, id := range orphans {
				if err := c.retry(ctx, func() error { return c.s.DeleteNode(ctx, b.id, id) }); err != nil {
					return "", err
				}
			}
			return fmt.Sprintf("%d deleted", len(orphans)), nil
		})
		if err != nil {
			return err
		}
		orphans = nil
	}
	if waiting += int64(len(orphans)); waiting > 0 {
		f := c.finding(b, Uncollected, "%d map nodes that no root names wait for their collection, or for a swap that may still come", waiting)
		f.Severity, f.Count = Info, waiting
		c.report(f)
	}
	return nil
}

// abandoned are map nodes of epochs that their bucket's root can't have led to.
type abandoned struct {
	bucket bucket
	nodes  []move.Node
}

// wentBack notes nodes of epochs to come, unless the root has come on since. What
// becomes of them is decided when the rows have been looked at.
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

// finish does what has to wait until all rows were looked at: partitions are adopted,
// then nodes of an abandoned future are told of, and markers are swept. Both may be
// needed as long as there are rows that no range has.
func (c *Checker) finish(ctx context.Context) error {
	for id, orphans := range c.orphaned {
		if err := c.adoptBucket(ctx, id, orphans); err != nil {
			return err
		}
	}
	for id, a := range c.ahead {
		if err := c.abandon(ctx, id, a); err != nil {
			return err
		}
	}
	return c.sweeps(ctx)
}

func (c *Checker) abandon(ctx context.Context, id store.BucketID, a abandoned) error {
	root, err := c.root(ctx, id)
	if err != nil {
		return err
	}
	highest := slices.MaxFunc(a.nodes, func(x, y move.Node) int { return cmp.Compare(x.Epoch, y.Epoch) })
	f := c.finding(a.bucket, RootWentBack, "%d map nodes were written for epochs up to %d, but the root is of epoch %d", len(a.nodes), highest.Epoch, root.Epoch)
	f.Node, f.Count = highest.ID, int64(len(a.nodes))
	f.Todo = "was the roots' table restored from an older copy, or its commit log lost? Let no server run; --adopt copies the rows" +
		" that have moved since, and then deletes these nodes"
	var mend func() (string, error)
	if c.o.Adopt != AdoptNone && c.keeps(id) == 0 && !c.suspected(id) && !c.o.SkipOrphans {
		mend = func() (string, error) {
			for _, n := range a.nodes {
				if err := c.retry(ctx, func() error { return c.s.DeleteNode(ctx, id, n.ID) }); err != nil {
					return "", err
				}
			}
			return fmt.Sprintf("%d deleted", len(a.nodes)), nil
		}
	}
	return c.problem(ctx, f, mend)
}
