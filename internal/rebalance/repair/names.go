package repair

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/evenkeel/evenkeel/internal/door"
	"github.com/evenkeel/evenkeel/internal/keytext"
	"github.com/evenkeel/evenkeel/internal/mapcodec"
	"github.com/evenkeel/evenkeel/internal/record"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// mostNames is the maximum number of suspicious bucket names that wait for their second check.
const mostNames = 10_000

const lostTodo = "its map is lost: restore its root from a copy of the roots' table, or, if the maps were restored" +
	" from an older copy than the rows," +
	" end all servers, and --adopt-all makes a map for it; delete nothing, its rows are still there"

// eachKey calls f for each key of the table t, e.g. for each name in the directory of buckets. Up to Options.Parallel
// calls run at the same time. The first error ends the iteration.
func (c *Checker) eachKey(ctx context.Context, t store.Table, f func(ctx context.Context, key []byte) error) error {
	failures := 0
	for keys, err := range record.KeyPages(ctx, c.s, t) {
		if err != nil {
			if failures++; !c.worthAnotherTry(ctx, err, failures) {
				return err
			}
			continue
		}
		failures = 0
		g, gctx := c.group(ctx)
		for _, key := range keys {
			g.Go(func() error { return f(gctx, key) })
		}
		if err := g.Wait(); err != nil {
			return err
		}
	}
	return nil
}

// directory checks all bucket names in the directory (the table of names), and the buckets to which the names lead.
func (c *Checker) directory(ctx context.Context) error {
	err := c.eachKey(ctx, store.Directory, func(ctx context.Context, key []byte) error {
		name := string(key)
		owner, err := c.owner(ctx, name)
		if err != nil || owner.ID == (store.BucketID{}) {
			return err
		}
		c.mu.Lock()
		c.named = append(c.named, owner.ID)
		c.mu.Unlock()
		if err := c.name(ctx, name); err != nil {
			return err
		}
		return c.bucket(ctx, bucket{owner.ID, name})
	})
	if err != nil {
		return err
	}
	slices.SortFunc(c.named, compareIDs)
	for i, id := range c.named {
		if i > 0 && id == c.named[i-1] && (i < 2 || id != c.named[i-2]) {
			f := c.finding(bucket{id: id}, SharedBucket, "several names lead to this bucket")
			f.Todo = "find the names in the list of buckets; the directory has to be restored from a copy"
			c.report(f)
		}
	}
	return nil
}

func compareIDs(a, b store.BucketID) int { return bytes.Compare(a[:], b[:]) }

// owner returns the bucket to which a name in the directory leads. If the record of the name cannot be read, owner
// reports this, and the result is empty.
func (c *Checker) owner(ctx context.Context, name string) (owner door.Named, err error) {
	owner, err = retried(ctx, c, func() (door.Named, error) { return door.Client(c.c).Owner(ctx, name) })
	if err != nil && store.KindOf(err) == store.Corrupt {
		f := c.finding(bucket{name: name}, BrokenName, "%v", err)
		f.Todo = "restore the name's record from a copy; the list of buckets may tell which bucket it led to"
		c.report(f)
		return door.Named{}, nil
	}
	return owner, err
}

// listOfBuckets checks each name on the list of buckets, by which names are listed in order. The list is stored like a
// bucket itself. It is skipped if its partition map is broken.
func (c *Checker) listOfBuckets(ctx context.Context) error {
	list := bucket{id: door.ListOfBuckets}
	if c.suspected(list.id) {
		return nil
	}
	after, failures := "", 0
	for again := true; again; {
		again = false
		for info, err := range c.c.Buckets(ctx, "", after) {
			if k := store.KindOf(err); err != nil && (k == store.Timeout || k == store.Unavailable) {
				if failures++; !c.worthAnotherTry(ctx, err, failures) {
					return err
				}
				again = true
				break
			}
			if err != nil {
				f := c.finding(list, BrokenList, "%v", err)
				f.Todo = "creating a bucket again, under its name, mends its line: it answers that the bucket exists"
				c.report(f)
				return nil
			}
			if err := c.name(ctx, info.Name); err != nil {
				return err
			}
			after, failures = info.Name, 0
		}
	}
	return nil
}

// namesAnew checks all bucket names again, after a repair that may have copied rows of the list of buckets. Such rows
// add names to the list, or remove names from it. If Options.Adopt is AdoptNone, namesAnew does nothing.
func (c *Checker) namesAnew(ctx context.Context) error {
	if c.o.Adopt == AdoptNone {
		return nil
	}
	c.again = nil
	err := c.eachKey(ctx, store.Directory, func(ctx context.Context, key []byte) error { return c.name(ctx, string(key)) })
	if err != nil {
		return err
	}
	return c.listOfBuckets(ctx)
}

// suspectName is a bucket name that looked wrong at the first check. It is checked a second time before it is reported,
// since the first check may have read it in the middle of a change.
type suspectName struct {
	name string
	// owner is the bucket that the directory gives for the name, and listed is the bucket that the list of buckets
	// gives.
	owner, listed store.BucketID
}

// name checks a bucket name for the first time. If the name looks wrong, it is remembered for a second check
// (secondLook).
func (c *Checker) name(ctx context.Context, name string) error {
	s, wrong, err := c.lookAt(ctx, name)
	if err != nil || wrong == nil {
		return err
	}
	c.mu.Lock()
	c.again = append(c.again, s)
	full := len(c.again) >= mostNames
	c.mu.Unlock()
	if full {
		return c.secondLook(ctx)
	}
	return nil
}

// lookAt returns what is wrong with a bucket name at present, by comparing the directory with the list of buckets. The
// result s says which bucket each of the two gives for the name. The result wrong is nil if
//   - the two agree, or
//   - the name or the list of buckets can't be read, which other checks report.
func (c *Checker) lookAt(ctx context.Context, name string) (s suspectName, wrong *Finding, err error) {
	if c.suspected(door.ListOfBuckets) {
		return s, nil, nil
	}
	owner, err := retried(ctx, c, func() (door.Named, error) { return door.Client(c.c).Owner(ctx, name) })
	if err != nil && store.KindOf(err) == store.Corrupt {
		return s, nil, nil // reported with the directory
	}
	var listed door.Named
	if err == nil {
		listed, err = retried(ctx, c, func() (door.Named, error) { return door.Client(c.c).Listed(ctx, name) })
	}
	if err != nil && store.KindOf(err) == store.Corrupt {
		return s, nil, nil // reported with the list
	}
	if err != nil {
		return s, nil, err
	}
	s = suspectName{name, owner.ID, listed.ID}
	state, err := c.stateOf(ctx, owner.ID)
	if err != nil {
		return s, nil, err
	}
	wrong = &Finding{Bucket: keytext.Key(name), ID: owner.ID}
	none := store.BucketID{}
	switch {
	case owner.ID == none && listed.ID == none:
		return s, nil, nil
	case owner.ID == none:
		wrong.ID = listed.ID
		wrong.Kind, wrong.Text = StaleListing, "the list of buckets has the name, but it is free"
		state, err := c.stateOf(ctx, listed.ID)
		if err != nil {
			return s, nil, err
		}
		switch state {
		case 0:
			wrong.Kind, wrong.Text, wrong.Todo = NoRoot, "the list of buckets has the name, which is free, with a"+
				" bucket that has no root", lostTodo
		case partmap.Open, partmap.Closing:
			wrong.Kind, wrong.Text = NamelessBucket, "the bucket has lost its name; the list of buckets still has it"
		}
	case state == 0:
		wrong.Kind, wrong.Text = NoRoot, "the name leads to a bucket that has no root"
		wrong.Todo = lostTodo
	case state == partmap.Deleted:
		wrong.Kind, wrong.Text = DeletedName, "the name leads to a deleted bucket"
		next, err := c.stateOf(ctx, listed.ID)
		if err != nil {
			return s, nil, err
		}
		// A bucket is listed after it has got its name, and is deleted before it loses the name. So the directory went
		// back.
		if next == partmap.Open || next == partmap.Closing {
			wrong.ID, wrong.Kind = listed.ID, NamelessBucket
			wrong.Text = "the bucket has lost its name to a deleted one; the list of buckets still has it"
		}
	case listed.ID == none:
		wrong.Kind, wrong.Text = Unlisted, "the bucket is not on the list of buckets"
	case listed.ID != owner.ID:
		wrong.Kind, wrong.Text = StaleListing, fmt.Sprintf("the list of buckets says that the name leads to bucket %s",
			listed.ID)
	default:
		return s, nil, nil
	}
	return s, wrong, nil
}

// stateOf returns the state of a bucket, such as partmap.Open. The result is 0 if the bucket's partition map has no
// root. A root that can't be read is reported by other checks, and counts as partmap.Open.
func (c *Checker) stateOf(ctx context.Context, id store.BucketID) (partmap.State, error) {
	if id == (store.BucketID{}) {
		return 0, nil
	}
	root, err := c.root(ctx, id)
	var damaged errDamaged
	switch {
	case notFound(err):
		return 0, nil
	case errors.As(err, &damaged), errors.Is(err, mapcodec.ErrNewerVersion):
		return partmap.Open, nil
	case err != nil:
		return 0, err
	}
	return root.State, nil
}

// secondLook waits for Options.Patience and checks again the bucket names that looked wrong. It reports the names that
// are wrong in the same way both times, and repairs them if Options.Repair is set.
func (c *Checker) secondLook(ctx context.Context) error {
	c.mu.Lock()
	names := c.again
	c.again = nil
	c.mu.Unlock()
	if len(names) == 0 {
		return nil
	}
	if err := c.o.Sleep(ctx, c.o.Patience); err != nil {
		return err
	}
	seen := map[string]bool{}
	for _, first := range names {
		if seen[first.name] {
			continue
		}
		seen[first.name] = true
		now, wrong, err := c.lookAt(ctx, first.name)
		if err != nil {
			return err
		}
		if wrong == nil || now != first {
			continue
		}
		mend := func() (string, error) {
			return "the list and the directory agree again", door.Client(c.c).Mend(ctx, first.name)
		}
		switch wrong.Kind {
		case NamelessBucket:
			c.mu.Lock()
			c.hasName[wrong.ID] = true
			c.mu.Unlock()
			mend = func() (string, error) { return "it has its name back", door.Client(c.c).Restore(ctx, first.name) }
		case NoRoot:
			// All rows were checked before, and AdoptAll makes a root for a bucket with rows.
			mend = func() (string, error) {
				return "nothing is left of it, so it is gone", door.Client(c.c).Release(ctx, first.name)
			}
			if c.o.Adopt != AdoptAll || !c.all || c.keeps(now.owner)|c.keeps(now.listed) != 0 {
				mend = nil
			}
		}
		c.problem(ctx, *wrong, mend)
	}
	return nil
}

// roots checks the buckets that have a partition map but no name that leads to them. Such a bucket may be in creation,
// or may have lost its name.
func (c *Checker) roots(ctx context.Context) error {
	return c.eachKey(ctx, store.Roots, func(ctx context.Context, key []byte) error {
		id := store.BucketID(key)
		if _, named := slices.BinarySearchFunc(c.named, id, compareIDs); named || id == door.ListOfBuckets {
			return nil
		}
		root, err := c.root(ctx, id)
		var damaged errDamaged
		switch {
		case notFound(err) || err == nil && root.State == partmap.Deleted:
			return nil
		case err == nil:
			c.mu.Lock()
			c.nameless = append(c.nameless, root)
			c.mu.Unlock()
		case !errors.As(err, &damaged) && !errors.Is(err, mapcodec.ErrNewerVersion):
			return err
		}
		return c.bucket(ctx, bucket{id: id}) // it reports what is wrong with the root
	})
}

// reportNameless reports the buckets that still have no name at the end of the check. Buckets that were being created
// have got a name by now.
func (c *Checker) reportNameless(ctx context.Context) error {
	if len(c.nameless) == 0 {
		return nil
	}
	named := map[store.BucketID]bool{}
	for _, root := range c.nameless {
		named[root.Bucket] = false
	}
	err := c.eachKey(ctx, store.Directory, func(ctx context.Context, key []byte) error {
		owner, err := retried(ctx, c, func() (door.Named, error) { return door.Client(c.c).Owner(ctx, string(key)) })
		if err != nil && store.KindOf(err) != store.Corrupt {
			return err
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if _, wanted := named[owner.ID]; wanted && err == nil {
			named[owner.ID] = true
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, first := range c.nameless {
		id := first.Bucket
		if named[id] || c.hasName[id] {
			continue
		}
		root, err := c.root(ctx, id)
		var damaged errDamaged
		switch {
		case notFound(err), errors.As(err, &damaged), errors.Is(err, mapcodec.ErrNewerVersion):
			continue // it can't be read any more, which is another finding
		case err != nil:
			return err
		case root.State == partmap.Deleted:
			continue
		}
		f := c.finding(bucket{id: id}, NamelessBucket, "no name leads to the bucket, which is %s", root.State)
		if c.o.Now().Sub(time.UnixMicro(root.ChangedAt)) < youngFor {
			f.Severity, f.Kind = Info, Young
			c.report(f)
			continue
		}
		f.Todo = "--repair deletes it if it has no entries; else its name has to be restored from a copy of the" +
			" directory"
		if c.keeps(id) != 0 {
			f.Todo = "it has rows that no range has: these have to be adopted or discarded first"
			c.report(f)
			continue
		}
		c.problem(ctx, f, func() (string, error) {
			return "it had no entries and is deleted", door.Client(c.c).Discard(ctx, id)
		})
	}
	return nil
}
