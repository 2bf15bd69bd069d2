package fsck

import (
	"context"
	"errors"
	"fmt"
	"time"

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

	named := map[store.NodeID]bool{}
	var unreachable error
	problems := partmap.Validate(root, func(id store.NodeID) (blob []byte, err error) {
		named[id] = true
		err = c.retry(ctx, func() (err error) {
			blob, err = c.s.Node(ctx, b.id, id)
			return err
		})
		if k := store.KindOf(err); err != nil && k != store.NotFound && k != store.Corrupt {
			unreachable = err
		}
		return blob, err
	})
	if unreachable != nil {
		return nil, false, unreachable
	}
	if len(problems) > 0 {
		// The map may have moved on, and its old nodes may have been collected.
		now, err := c.root(ctx, b.id)
		if err == nil && now.Epoch > root.Epoch {
			return nil, true, nil
		}
		c.suspect(b.id)
		return nil, false, c.brokenMap(ctx, b, root, problems)
	}
	if err := c.unnamed(ctx, b, root, nodes, named); err != nil {
		return nil, false, err
	}
	return root, false, c.state(ctx, b, root)
}

func (c *Checker) newer(b bucket, err error) {
	c.suspect(b.id)
	f := c.finding(b, NewerVersion, "%v", err)
	f.Severity = Unchecked
	c.report(f)
}

func (c *Checker) brokenMap(ctx context.Context, b bucket, root *partmap.Root, problems []partmap.Problem) error {
	for i, p := range problems {
		f := c.finding(b, BrokenMap, "epoch %d: %s", root.Epoch, p)
		f.Key, f.Node, f.Todo = p.At, p.Node, restoreTodo
		if i == mostProblems {
			f.Text = fmt.Sprintf("epoch %d: and %d more", root.Epoch, len(problems)-i)
		}
		if err := c.problem(ctx, f, nil); err != nil || i == mostProblems {
			return err
		}
	}
	return nil
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
			if err := c.ahead(ctx, b, id, epoch); err != nil {
				return err
			}
		}
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

// ahead judges a node of an epoch that its root can't have led to, unless the
// root has come on since.
func (c *Checker) ahead(ctx context.Context, b bucket, id store.NodeID, epoch uint64) error {
	now, err := c.root(ctx, b.id)
	if err != nil || epoch <= now.Epoch+1 {
		return err
	}
	c.suspect(b.id)
	f := c.finding(b, RootWentBack, "the node was written for epoch %d, but the root is of epoch %d", epoch, now.Epoch)
	f.Node, f.Todo = id, "was the roots' table restored from an old copy, or its commit log lost? What moved since then is in partitions that the map no longer names: delete nothing"
	return c.problem(ctx, f, nil)
}
