package listing

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/evenkeel/evenkeel/internal/door"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/record"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// DeleteBucket deletes an empty bucket. It fails with ErrNoSuchBucket, ErrNotEmpty, InvalidArgument, Unavailable,
// Timeout, Corrupt or ErrOutcomeUnknown; after the last four the bucket may stay closed for a while. If an error that
// is Unavailable or Timeout wraps store.ErrUnwritable, nothing was done.
//
// The call may be interrupted and repeated, by any process. A call that searches very many ranges for entries may end
// before the search does. The bucket then stays closed, and the next call, in any process, continues the search if it
// comes within a minute.
//
// DeleteBucket does not complete the deletion of a bucket of objects that was interrupted after it deleted the bucket.
// While entries of that bucket are left, DeleteBucket fails with Unavailable.
func (c *Client) DeleteBucket(ctx context.Context, name string) error {
	return clientDoor{c}.DeleteBut(ctx, name, door.Remains{})
}

// remaining has the functions of a deletion, which decide about the entries that remain in the bucket.
type remaining struct {
	door.Remains
	// discarding means that the bucket is deleted, and that Discard is being called for the entries that were left in
	// it.
	discarding bool
}

// of reports whether the functions of r are meant for this bucket. The settings of the bucket, which are in its root,
// decide. A nil Remains.Of accepts every bucket.
func (r *remaining) of(root *partmap.Root) bool { return r.Of == nil || r.Of(root.Settings) }

// take decides whether a bucket may be deleted although it contains the given row. It is called for the rows of a
// closed bucket. The result is true if
//   - the row records a deletion, and so is no entry; or
//   - Remains.Gone accepts the entry; or
//   - the bucket is deleted already (r.discarding). Any other entry then came late, and its write was never
//     acknowledged.
//
// If the bucket is deleted already, take also calls Remains.Discard for an entry that Gone accepts.
func (r *remaining) take(ctx context.Context, row *store.Row) (bool, error) {
	value, live, err := store.EntryValue(row.Value)
	if err != nil || !live {
		return err == nil, err
	}
	if r.Gone == nil || !r.Gone(row.Key, value) {
		return r.discarding, nil
	}
	if !r.discarding {
		return true, nil
	}
	return true, r.Discard(ctx, row.Key, value)
}

// DeleteBut deletes a bucket like DeleteBucket, even if entries are left that r accepts, such as unfinished uploads.
// These entries stay in their partitions, which are never read again. What belongs to the entries elsewhere is freed by
// r.Discard, after the bucket is deleted. If r.Discard fails, DeleteBut fails, too, and the next call goes on with the
// entries that are left.
func (c clientDoor) DeleteBut(ctx context.Context, name string, r door.Remains) error {
	return wrap("delete bucket", name, c.delete(ctx, name, &remaining{Remains: r}))
}

// EndDelete completes a DeleteBut that was interrupted after it had deleted the bucket. The parameter r is that of the
// interrupted call. There are three cases:
//   - The name has a deleted bucket: EndDelete completes the deletion, or fails like DeleteBucket.
//   - The name is free: it does nothing, and fails with ErrNoSuchBucket.
//   - The name has a bucket that is not deleted: it does nothing and returns nil.
func (c clientDoor) EndDelete(ctx context.Context, name string, r door.Remains) error {
	return wrap("end the deletion of bucket", name, c.endDelete(ctx, name, &remaining{Remains: r}))
}

func (c *Client) endDelete(ctx context.Context, name string, remains *remaining) error {
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

func (c *Client) delete(ctx context.Context, name string, remains *remaining) error {
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
	if root.State == partmap.Deleted { // deleted by a call that was interrupted before it freed the name
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
		// Most buckets with entries show an entry at once, and need not be closed.
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

// end completes the deletion of a bucket that is marked as deleted. First it frees what belongs elsewhere to the
// entries left in the bucket (Remains.Discard). Then it frees the name of the bucket. The parameter n is the record of
// the name, and root is the last root of the bucket's map.
func (c *Client) end(ctx context.Context, name string, n nameRecord, root *partmap.Root, remains *remaining) error {
	if err := c.discardRemains(ctx, root, remains); err != nil {
		return store.Wrap("the bucket is deleted, but not yet all that belongs to it; delete it again", err)
	}
	return c.forget(ctx, name, n)
}

// discardRemains calls Remains.Discard for the entries that were left in a deleted bucket, so that what belongs to them
// elsewhere is freed. The bucket, which has this root, is never opened again, and no write to it is acknowledged any
// more.
func (c *Client) discardRemains(ctx context.Context, root *partmap.Root, remains *remaining) error {
	if remains.Discard == nil || !remains.of(root) {
		return nil
	}
	var mu sync.Mutex
	var first error // the first error of Discard; the others of the remains are discarded all the same
	failed := func() error {
		mu.Lock()
		defer mu.Unlock()
		return first
	}
	second := *remains
	second.discarding = true
	// What belongs to the remains lies in another store, perhaps a near one. So many ranges are looked at concurrently,
	// but at most MaxParallel entries are discarded at a time.
	turns := semaphore.NewWeighted(int64(c.o.MaxParallel))
	second.Discard = func(ctx context.Context, key, value []byte) error {
		if err := turns.Acquire(ctx, 1); err != nil {
			return err
		}
		defer turns.Release(1)
		err := remains.Discard(ctx, key, value)
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
		if len(next) > 0 && failed() == nil { // after a failure, the next call begins below what is left
			c.emptied.Add(root.Bucket, emptied{root.Version(), next})
			c.keep(ctx, root.Bucket)
		}
		if !errors.Is(err, errLookTime) {
			return cmp.Or(failed(), err)
		}
		from = next
	}
}

// mayEnd returns nil if this caller may free the name of a deleted bucket, else an error. The caller may if
//   - the bucket has no settings, or
//   - the caller gave Remains.Discard, the function that frees what belongs to entries elsewhere, or
//   - all entries that are left are accepted by Remains.Gone.
func (c *Client) mayEnd(ctx context.Context, root *partmap.Root, remains *remaining) error {
	// The settings say what belongs to the entries, and once the name is free nothing leads to the settings.
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

// looksEmpty reports whether a bucket that is still open seems to have no entries that prevent its deletion. Entries
// that Remains.Gone accepts do not prevent it. The answer is a hint, as clients may put entries at the same time.
func (c *Client) looksEmpty(ctx context.Context, root *partmap.Root, remains *remaining) (bool, error) {
	id := root.Bucket
	var left span
	var q Query
	if remains.Gone != nil {
		q.Sift = func(e Entry) Sifted { return Sifted{Hidden: remains.Gone(e.Key, e.Value)} }
	}
	if seen, ok := c.emptied.Get(id); ok && seen.version == (store.Version{}) {
		left.lo = seen.next
	}
	for {
		page := c.load(ctx, id, &q, left, 1, nil)
		switch {
		case errors.Is(page.err, ErrBucketClosing): // another call is looking through the closed bucket
			return true, nil
		case page.err != nil && ctx.Err() != nil && len(page.left.lo) > 0:
			c.emptied.Add(id, emptied{next: page.left.lo})
			c.keep(ctx, id)
			return false, goesOn(page.err)
		case page.err == nil && len(page.items) == 0 && page.left.done && root.Ranges > lookRanges:
			// If this call ends before it has looked through the closed bucket, the next call need not look through the
			// open one.
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

// emptied is the progress of a long search for entries in a bucket that is to be deleted. The search has found no
// entries below the key next. If the bucket is already marked as deleted, next has another meaning: whatever belongs
// elsewhere to the entries below next is freed.
type emptied struct {
	// version is that of the closing or deleted root under which the bucket was searched. While this root is the
	// present root, no entry can have been written. The zero version means that the bucket was open, so next is only a
	// hint.
	version store.Version
	next    []byte
}

const (
	// rememberedLooks is the number of buckets for which a client remembers how far it has searched them for entries,
	// before deleting them.
	rememberedLooks = 1000
	// lookTime is how often a long search for entries in a closing bucket replaces the root of the bucket's map by an
	// equal one. A root that has been closing for a minute without a change counts as abandoned.
	lookTime = 15 * time.Second
	// lookRanges is the least number of ranges of a map that a search for entries reads between two updates of its
	// progress.
	lookRanges = 256
)

// The progress of a long search for entries is also kept in a register of the table store.Process, so that a call in
// another process can go on with the search. The progress is a hint. An error of reading or writing it does not fail
// the deletion, and a record for another version of the root means nothing. Like all records of registers it is never
// removed: there is at most one for each bucket.
const (
	emptiedForm = 1
	// openHintAge is how long the progress of a search for entries in an open bucket is of use to other processes.
	// Later the keys that were searched may have entries, and the bucket would be closed in vain.
	openHintAge = 10 * time.Minute
	// keepTime bounds the time of writing the progress of a search for entries to the store.
	keepTime = 5 * time.Second
)

// emptiedKey returns the key under which the progress of deleting the bucket id is stored. The progress is how far the
// bucket has been searched for entries. Another process can go on from there. The key belongs to the table
// store.Process.
func emptiedKey(id store.BucketID) string { return "emptied/" + id.String() }

// recall reads from the store how far another process has searched a bucket for entries, before this process deletes
// the bucket. It does nothing for a bucket of few ranges (lookRanges), or if this process has begun a search under the
// same version of the root. The parameter root is the present root of the bucket. Progress that belongs to another
// version of the root is ignored, and so is old progress in an open bucket (openHintAge).
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

// keep writes to the store how far this process has searched the bucket id for entries. The next DeleteBucket, in any
// process, can go on from there. keep writes even if ctx has ended, and ignores errors.
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
	// next may be cut: all keys below a prefix of next are below next, too. So the record stays small.
	payload = append(payload, seen.next[:min(len(seen.next), 1024)]...)
	next := record.Seal(emptiedForm, record.Next(old), payload)
	_ = c.regs.Swap(ctx, store.Process, []byte(emptiedKey(id)), old, next)
}

// errLookTime means that a search for entries of a bucket took longer than lookTime, and stopped in between. The caller
// starts the next search from the key that this search has reached.
var errLookTime = store.Errorf(store.Timeout, "the bucket is looked through in parts")

// goesOn returns the error of a DeleteBucket that was interrupted, for the given reason. Its text tells the user that
// the next call continues from the same key.
func goesOn(why error) error {
	return store.Wrap("the bucket has very many ranges; delete it again to go on where this stopped", why)
}

// closeAndDelete marks a bucket as deleted if it has no entries that prevent this, and returns the last root. The state
// of the bucket goes from open to closing, and then to deleted. (The state is in the root, the record with which the
// bucket's map begins.) If the bucket has such entries, it is opened again, and the call fails. If ctx ends during a
// long search for entries, the bucket stays closing, so that the next call can go on with the search.
func (c *Client) closeAndDelete(ctx context.Context, root *partmap.Root, remains *remaining) (*partmap.Root, error) {
	// Each decision is for one version of the root: if the root has changed, the swap fails and the decision is made
	// again. Each move in flight may change the root once per phase.
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
			// The root goes from the version of the search straight to the next version, so no lease is left to wait
			// for.
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
			// Another call may have closed the bucket, and its wait for older leases may not be over.
			err = c.maps.Wait(ctx, root.Bucket)
		}
		if err == nil {
			var next []byte
			empty, next, err = c.empty(ctx, root, seen.next, remains)
			if err != nil && len(next) > 0 && (errors.Is(err, errLookTime) || ctx.Err() != nil) {
				c.emptied.Add(root.Bucket, emptied{root.Version(), next})
				left++ // a look that goes on uses up no decision
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

// reopen opens a bucket again that was closed to be deleted, and returns the error of the failed deletion. The
// parameter why is that error. If reopen itself fails, the result has its error, too. The bucket then stays closed
// until DeleteBucket is called again or the rebalancer finds the bucket.
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

// setState changes the state of a bucket, such as open or closing; the parameter to is the new state. The state is in
// the root, the record with which the map of the bucket begins, and setState replaces the root. The result now is the
// present root. The result mine is true if this call has written that root.
func (c *Client) setState(
	ctx context.Context, root *partmap.Root, to partmap.State,
) (now *partmap.Root, mine bool, err error) {
	return c.swapState(ctx, root, func() (partmap.Change, error) {
		return mapclient.WithState(root, to, c.maps.Stamp())
	})
}

// swapState replaces the root of a bucket, the record with which its map begins, by a compare-and-swap. make returns
// the change of the root, and may be called several times. The result now is the present root. The result mine is true
// if this call has written that root. After an error the outcome may be unknown.
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

// forget takes a deleted bucket off the list of buckets, and then frees its name. n is the record of the name. The name
// is freed last: while it is taken, another DeleteBucket finds the work that is left.
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
