package listing

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/record"
)

// DeleteBucket deletes an empty bucket. Where a DeleteBucketBut of a bucket with settings was interrupted, it does not
// end that, unless nothing is left: it fails with Unavailable. It fails with ErrNoSuchBucket, ErrNotEmpty,
// InvalidArgument, Unavailable, Timeout, Corrupt or ErrOutcomeUnknown; after the last four
// the bucket may stay closed for a while. The call may be interrupted and repeated, by any
// process. If ctx ends while it looks through very many ranges, the bucket stays closed, and
// the next call, also of another process, continues there if it comes within a minute. With store.ErrUnwritable in it,
// Unavailable or Timeout means that nothing was done.
func (c *Client) DeleteBucket(ctx context.Context, name string) error {
	return c.DeleteBucketBut(ctx, name, Remains{})
}

// Remains are entries that do not keep a bucket from being deleted.
type Remains struct {
	// Of reports whether they are those of a bucket with these settings; nil: of every bucket. A call for
	// a bucket that has got others meanwhile, as another one has its name, fails with Unavailable.
	Of func(settings []byte) bool
	// Gone reports whether an entry is one; nil: none is. It is called from several goroutines, and must not
	// keep the entry.
	Gone func(e Entry) bool
	// Discard, if not nil, frees what belongs to one. It is called from several goroutines
	// once the bucket is deleted, and perhaps again: until then the bucket may be opened again,
	// with all that it has. Its error keeps the bucket's name, but not what belongs to the others.
	Discard func(ctx context.Context, e Entry) error

	discarding bool
}

func (r *Remains) of(root *partmap.Root) bool { return r.Of == nil || r.Of(root.Settings) }

// take reports whether a row of a closed bucket is one of the remains. While discarding, it frees
// what belongs to one, and passes over what is none: that came late, and nobody was told that it is there.
func (r *Remains) take(ctx context.Context, row *store.Row) (bool, error) {
	value, live, err := store.EntryValue(row.Value)
	if err != nil || !live {
		return err == nil, err
	}
	e := Entry{Key: row.Key, Value: value}
	if r.Gone == nil || !r.Gone(e) {
		return r.discarding, nil
	}
	if !r.discarding {
		return true, nil
	}
	return true, r.Discard(ctx, e)
}

// DeleteBucketBut is DeleteBucket of a bucket that may have remains. They stay in its partitions,
// which nobody reads any more. If what belongs to them can't be freed it fails after the bucket is
// deleted; the next call goes on there.
func (c *Client) DeleteBucketBut(ctx context.Context, name string, r Remains) error {
	return wrap("delete bucket", name, c.delete(ctx, name, &r))
}

// EndDelete brings a DeleteBucketBut to its end that was interrupted after the bucket was deleted. It
// does nothing, and fails with ErrNoSuchBucket, where the name is free, and returns nil where it has a
// bucket that is not deleted. Otherwise it fails like DeleteBucket.
func (c *Client) EndDelete(ctx context.Context, name string, r Remains) error {
	return wrap("end the deletion of bucket", name, c.endDelete(ctx, name, &r))
}

func (c *Client) endDelete(ctx context.Context, name string, remains *Remains) error {
	n, err := c.readName(ctx, name, store.Serial)
	if err != nil {
		return err
	}
	if n.free() {
		return ErrNoSuchBucket
	}
	root, err := c.maps.Load(ctx, n.id)
	if err != nil || root.State != partmap.Deleted {
		return err
	}
	return c.end(ctx, name, n, root, remains)
}

func (c *Client) delete(ctx context.Context, name string, remains *Remains) error {
	if err := checkName(name); err != nil {
		return err
	}
	n, err := c.readName(ctx, name, store.Serial)
	if err != nil {
		return notBegun(err)
	}
	if n.free() {
		return ErrNoSuchBucket
	}
	root, err := c.maps.Load(ctx, n.id)
	if err != nil {
		return notBegun(err)
	}
	if root.State == partmap.Deleted { // by a call that was interrupted
		if err := c.mayEnd(ctx, root, remains); err != nil {
			return err
		}
		return cmp.Or(c.end(ctx, name, n, root, remains), ErrNoSuchBucket)
	}
	if !remains.of(root) {
		return store.Errorf(store.Unavailable, "somebody else deleted the bucket and created another one at the same "+
			"time: try again")
	}
	if root.State == partmap.Open {
		// Most buckets with entries show it at once, and need not be closed.
		c.recall(ctx, root)
		if empty, err := c.looksEmpty(ctx, root, remains); err != nil || !empty {
			return cmp.Or(err, ErrNotEmpty)
		}
	}
	deleted, err := c.closeAndDelete(ctx, root, remains)
	if err != nil {
		return err
	}
	return c.end(ctx, name, n, deleted, remains)
}

// end does what is left to do for a bucket that is deleted. As long as the name is taken, another
// DeleteBucket finds it.
func (c *Client) end(ctx context.Context, name string, n nameRecord, root *partmap.Root, remains *Remains) error {
	if err := c.discardRemains(ctx, root, remains); err != nil {
		return store.Wrap("the bucket is deleted, but not yet all that belongs to it; delete it again", err)
	}
	return c.forget(ctx, name, n)
}

// discardRemains frees what belongs to the remains of a deleted bucket. Nothing opens that again, and nothing
// in it is acknowledged any more.
func (c *Client) discardRemains(ctx context.Context, root *partmap.Root, remains *Remains) error {
	if remains.Discard == nil || !remains.of(root) {
		return nil
	}
	var mu sync.Mutex
	var first error // of one of the remains, which keeps no others
	failed := func() error {
		mu.Lock()
		defer mu.Unlock()
		return first
	}
	second := *remains
	second.discarding = true
	// The store of what belongs to them is another one, perhaps near: looks are many at once, discards are not.
	turns := semaphore.NewWeighted(int64(c.o.MaxParallel))
	second.Discard = func(ctx context.Context, e Entry) error {
		if err := turns.Acquire(ctx, 1); err != nil {
			return err
		}
		defer turns.Release(1)
		err := remains.Discard(ctx, e)
		if err == nil || ctx.Err() != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		first = cmp.Or(first, err)
		return nil
	}
	c.recall(ctx, root)
	seen, ok := c.emptied.Get(root.Bucket)
	if !ok || seen.version != root.Version() {
		seen = emptied{}
	}
	for from := seen.next; ; {
		_, next, err := c.empty(ctx, root, from, &second)
		if err == nil {
			return failed()
		}
		if len(next) > 0 && failed() == nil { // else the next call begins below what is left
			c.emptied.Add(root.Bucket, emptied{root.Version(), next})
			c.keep(ctx, root.Bucket)
		}
		if !errors.Is(err, errLookTime) {
			return cmp.Or(failed(), err)
		}
		from = next
	}
}

// mayEnd fails where a deleted bucket has entries, and settings, which say what belongs to them, while the caller frees
// nothing: once the name is free nothing leads there any more.
func (c *Client) mayEnd(ctx context.Context, root *partmap.Root, remains *Remains) error {
	if remains.Discard != nil || len(root.Settings) == 0 {
		return nil
	}
	for from := []byte(nil); ; {
		empty, next, err := c.empty(ctx, root, from, remains)
		switch {
		case err == nil && !empty:
			return store.Errorf(store.Unavailable, "the bucket is deleted, but not yet all that belongs to it, which this "+
				"call can't free: delete it by a program that can, as a server with the store of bodies")
		case !errors.Is(err, errLookTime):
			return err
		}
		from = next
	}
}

func (c *Client) looksEmpty(ctx context.Context, root *partmap.Root, remains *Remains) (bool, error) {
	id := root.Bucket
	var left span
	var q Query
	if remains.Gone != nil {
		q.Sift = func(e Entry) Sifted { return Sifted{Hidden: remains.Gone(e)} }
	}
	if seen, ok := c.emptied.Get(id); ok && seen.version == (store.Version{}) {
		left.lo = seen.next
	}
	for {
		page := c.load(ctx, id, &q, left, 1, nil)
		switch {
		case errors.Is(page.err, ErrBucketClosing): // another call is looking
			return true, nil
		case page.err != nil && ctx.Err() != nil && len(page.left.lo) > 0:
			c.emptied.Add(id, emptied{next: page.left.lo})
			c.keep(ctx, id)
			return false, goesOn(page.err)
		case page.err == nil && len(page.items) == 0 && page.left.done && root.Ranges > lookRanges:
			// Should this call end before the bucket has been closed for long, the next one need not look again.
			c.emptied.Add(id, emptied{next: left.lo})
			c.keep(ctx, id)
			return true, nil
		case page.err != nil || len(page.items) > 0 || page.left.done:
			c.emptied.Remove(id)
			return page.err == nil && len(page.items) == 0, page.err
		}
		left = page.left
	}
}

// emptied is the progress of a look through a bucket: all below next is empty; in a deleted one, what belongs
// to the remains below next is freed.
type emptied struct {
	// version is that of the closing or deleted root under which the bucket was looked through.
	// While it is the present one nothing can have been written. Zero: the bucket was open, so
	// next is only a hint.
	version store.Version
	next    []byte
}

const (
	// rememberedLooks bounds the buckets whose progress is kept.
	rememberedLooks = 1000
	// lookTime is how often the root of a closing bucket is swapped to the same map: one
	// that has been closing for a minute counts as abandoned.
	lookTime = 15 * time.Second
	// lookRanges is the least number of ranges between two updates of the progress.
	lookRanges = 256
)

// The progress of a long look is kept in store.Process, too, for the next call of another process. It is a hint: an
// error of reading or writing it is none of the deletion, and a record of another version of the root means nothing.
// Records are never removed, as those of registers never are: at most one for each bucket.
const (
	emptiedForm = 1
	// openHintAge is how long a look through an open bucket is worth something to others: what was empty then may have
	// entries by now, for which the bucket would be closed in vain.
	openHintAge = 10 * time.Minute
	keepTime    = 5 * time.Second
)

func emptiedKey(id store.BucketID) string { return "emptied/" + id.String() }

// recall learns how far another process has looked through a bucket of many ranges.
func (c *Client) recall(ctx context.Context, root *partmap.Root) {
	of := root.Version()
	if root.State == partmap.Open {
		of = store.Version{}
	}
	seen, found := c.emptied.Get(root.Bucket)
	if root.Ranges <= lookRanges || found && seen.version == of || ctx.Err() != nil {
		return
	}
	payload, _, err := record.Read(ctx, c.regs, store.Process, emptiedKey(root.Bucket), store.Local, emptiedForm)
	const fixed = 8 + 16 + 8
	if err != nil || len(payload) <= fixed {
		return
	}
	kept := emptied{
		version: store.Version{Epoch: binary.BigEndian.Uint64(payload), Token: store.Token(payload[8:24])},
		next:    payload[fixed:],
	}
	age := c.o.Now().Sub(time.UnixMicro(int64(binary.BigEndian.Uint64(payload[24:]))))
	if kept.version == of && (root.State != partmap.Open || age < openHintAge) {
		c.emptied.Add(root.Bucket, kept)
	}
}

// keep writes down how far this process has come, if at all, also when ctx has ended.
func (c *Client) keep(ctx context.Context, id store.BucketID) {
	seen, _ := c.emptied.Peek(id)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), keepTime)
	defer cancel()
	_, old, err := record.Read(ctx, c.regs, store.Process, emptiedKey(id), store.Local, emptiedForm)
	if err != nil {
		return
	}
	payload := binary.BigEndian.AppendUint64(nil, seen.version.Epoch)
	payload = append(payload, seen.version.Token[:]...)
	payload = binary.BigEndian.AppendUint64(payload, uint64(c.o.Now().UnixMicro()))
	// All below a part of a key is empty, too; a record should be small.
	payload = append(payload, seen.next[:min(len(seen.next), 1024)]...)
	next := record.Seal(emptiedForm, record.Next(old), payload)
	_ = c.regs.Swap(ctx, store.Process, []byte(emptiedKey(id)), old, next)
}

// errLookTime means that lookTime is over.
var errLookTime = store.Errorf(store.Timeout, "the bucket is looked through in parts")

func goesOn(why error) error {
	return store.Wrap("the bucket has very many ranges; delete it again to go on where this stopped", why)
}

// closeAndDelete takes a bucket from open or closing to deleted if it has no entries, and returns
// its last root; else back to open. Each decision is for one version of the root: if that has
// changed, its swap fails and the decision is repeated.
func (c *Client) closeAndDelete(ctx context.Context, root *partmap.Root, remains *Remains) (*partmap.Root, error) {
	// Each move in flight may change the root once per phase.
	const decisions = 10 * casAttempts
	for left := decisions; left > 0; left-- {
		c.recall(ctx, root)
		seen, goOn := c.emptied.Get(root.Bucket)
		if goOn = goOn && seen.version == root.Version(); !goOn {
			seen = emptied{}
		}
		if err := ctx.Err(); err != nil {
			if goOn {
				c.keep(ctx, root.Bucket)
				return nil, goesOn(err)
			}
			return nil, c.reopen(ctx, root, store.Wrap("delete the bucket", context.Cause(ctx)))
		}
		var err error
		switch root.State {
		case partmap.Deleted:
			return nil, ErrNoSuchBucket // another call was first
		case partmap.Open:
			if root, _, err = c.setState(ctx, root, partmap.Closing); err != nil {
				return nil, err
			}
			continue
		}
		var empty bool
		if goOn {
			// No version lies between the two, and no lease is left to wait for.
			var mine bool
			old := root
			root, mine, err = c.swapState(ctx, old, func() (partmap.Change, error) {
				return partmap.Again(old, c.maps.Stamp()), nil
			})
			if err != nil {
				return nil, err
			}
			if !mine {
				continue
			}
			c.emptied.Add(root.Bucket, emptied{root.Version(), seen.next})
			c.keep(ctx, root.Bucket)
		} else {
			// Another call may have closed it, and its wait may not be over.
			err = c.maps.Wait(ctx, root.Bucket)
		}
		if err == nil {
			var next []byte
			empty, next, err = c.empty(ctx, root, seen.next, remains)
			if err != nil && len(next) > 0 && (errors.Is(err, errLookTime) || ctx.Err() != nil) {
				c.emptied.Add(root.Bucket, emptied{root.Version(), next})
				left++ // progress is no decision
				continue
			}
		}
		if err == nil && !empty && c.emptied.Remove(root.Bucket) {
			c.keep(ctx, root.Bucket)
		}
		if err != nil || !empty {
			return nil, c.reopen(ctx, root, cmp.Or(err, ErrNotEmpty))
		}
		next, mine, err := c.setState(ctx, root, partmap.Deleted)
		if err != nil {
			return nil, c.reopen(ctx, root, err)
		}
		if mine {
			return next, nil
		}
		root = next
	}
	return nil, c.reopen(ctx, root, store.Errorf(store.Unavailable, "others change the bucket at the same time: try again"))
}

// reopen opens a closing bucket again and returns why. If that fails, the bucket stays
// closing until DeleteBucket is called again or the rebalancer finds it.
func (c *Client) reopen(ctx context.Context, root *partmap.Root, why error) error {
	if root.State != partmap.Closing {
		return why
	}
	const patience = 5 * time.Second
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	if _, _, err := c.setState(ctx, root, partmap.Open); err != nil {
		return errors.Join(why, store.Wrap("open the bucket again", err))
	}
	return why
}

// setState swaps the state of a bucket; see swapState.
func (c *Client) setState(
	ctx context.Context, root *partmap.Root, to partmap.State,
) (now *partmap.Root, mine bool, err error) {
	return c.swapState(ctx, root, func() (partmap.Change, error) {
		return partmap.WithState(root, to, c.maps.Stamp())
	})
}

// swapState swaps the root of a bucket. It returns the present root and whether this call
// has written it. With an error the outcome is unknown.
func (c *Client) swapState(
	ctx context.Context, root *partmap.Root, make func() (partmap.Change, error),
) (now *partmap.Root, mine bool, err error) {
	var tried []store.Version
	for range casAttempts {
		var change partmap.Change
		change, err = make()
		if err != nil {
			return nil, false, err
		}
		if err = c.maps.Swap(ctx, change); err == nil {
			return change.Next, true, nil
		}
		tried = append(tried, change.Next.Version())
		now, rerr := c.maps.Load(ctx, root.Bucket)
		if rerr != nil {
			continue
		}
		if slices.Contains(tried, now.Version()) {
			return now, true, nil
		}
		if now.Version() != root.Version() {
			return now, false, nil
		}
	}
	return nil, false, unknown(err)
}

// empty reports whether a closed bucket has no entry from a key on. It reads at the widest
// consistency of the store. Only movers act on the bucket meanwhile, and they change the
// root, so that the swap to deleted fails. Ranges are read like pages, both sides merged:
// during a move a partition may hold rows of which the bucket lists none. With an error,
// all below next is empty.
func (c *Client) empty(
	ctx context.Context, root *partmap.Root, from []byte, remains *Remains,
) (empty bool, next []byte, err error) {
	errFound := errors.New("an entry")
	began := time.Now()
	pace := c.newPace()
	rows := timedRows{store.Everywhere(c.rows), pace}
	g, gctx := errgroup.WithContext(ctx)
	n := 0
	next = from
	for rg, rerr := range c.maps.Ranges(ctx, root, from) {
		if rerr != nil {
			err = rerr
			break
		}
		err = pace.do(gctx, g, func() error {
			found, err := hasEntry(gctx, rows, root.Bucket, &rg, remains)
			if err == nil && found {
				err = errFound
			}
			return err
		})
		if err != nil { // a range before it has failed, or ctx has ended
			break
		}
		n++
		long := n >= 4*pace.bound() || time.Since(began) > lookTime
		if n >= lookRanges && long && len(rg.End) > 0 {
			if err = g.Wait(); err != nil {
				break
			}
			n, next = 0, rg.End
			if time.Since(began) > lookTime {
				err = errLookTime
				break
			}
			g, gctx = errgroup.WithContext(ctx)
		}
	}
	err = cmp.Or(g.Wait(), err)
	if errors.Is(err, errFound) {
		return false, nil, nil
	}
	return err == nil, next, err
}

// hasEntry looks for a live entry in a range that is none of the remains, on the sides that the
// range's phase reads.
func hasEntry(
	ctx context.Context, rows store.Rows, id store.BucketID, rg *partmap.Range, remains *Remains,
) (bool, error) {
	rest := span{}
	for limit := minSlice; ; limit = min(2*limit, store.MaxPageRows) {
		got, err := readPhase(ctx, rows, id, rg, rest.within(rg), store.SliceOptions{Limit: limit})
		if err != nil {
			return false, err
		}
		for i := range got.rows {
			if taken, err := remains.take(ctx, &got.rows[i]); !taken || err != nil {
				return err == nil, err
			}
		}
		for i := range got.orphans { // see lookAgain
			row, found, err := rows.Get(ctx, store.Partition{Bucket: id, ID: rg.Partition}, got.orphans[i].Key)
			if err != nil {
				return false, err
			}
			if !found || row.Timestamp < got.orphans[i].Timestamp {
				continue
			}
			if taken, err := remains.take(ctx, &row); !taken || err != nil {
				return err == nil, err
			}
		}
		if !got.more {
			return false, nil
		}
		rest.passKey(got.last)
	}
}

// forget takes a deleted bucket off the list and then frees its name: as long as the name
// is taken, another DeleteBucket finds what is left to do.
func (c *Client) forget(ctx context.Context, name string, n nameRecord) error {
	c.names.Remove(name)
	err := c.delist(ctx, name, n.id)
	if err == nil {
		err = c.swapName(ctx, name, n, store.BucketID{}, 0)
		if errors.Is(err, store.Conflict) { // freed already, or reused
			err = nil
		}
	}
	return store.Wrap("the bucket is deleted, but not yet off the list of buckets; delete it again", err)
}
