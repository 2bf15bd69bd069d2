package partmap

import (
	"bytes"
	"slices"
	"sort"

	"github.com/evenkeel/evenkeel/internal/mapcodec"
	"github.com/evenkeel/evenkeel/store"
)

// replacement puts new entries in the place of old entries of a bucket's map. It replaces all entries that begin from
// Start on and below End. Old entries must begin at Start and at End; an empty End is plus infinity. The first of the
// new Entries must begin at Start. So the map still covers all keys.
type replacement struct {
	Start, End []byte
	Entries    []Entry
}

// Edit collects changes of a bucket's map, so that a single swap of the map's root applies all of them together. The
// changes are replacements of entries, and the beginnings, next phases and ends of batches of moves.
//
// Each method except Change adds one change. It fails with InvalidArgument if the map does not allow the change, and
// with the error of a node that could not be read. If the bucket is deleted, every method fails. After a method has
// failed, the others return the same error. An Edit reads nodes of the old map. It is not safe for concurrent use.
type Edit interface {
	// Replace puts new entries in the place of all old entries that begin from start on and below end. Old entries must
	// begin at start and at end; an empty end is plus infinity. The first of the new entries must begin at start, and
	// their starts must ascend: so the map still covers all keys. The replacements of the same Edit must not overlap,
	// which only Change checks.
	Replace(start, end []byte, entries []Entry) error
	// Begin starts the given moves of ranges, as a batch in the first phase, Marking. It returns the ID of the batch,
	// which is the epoch of the root that the Edit makes. Begin fails with InvalidArgument if
	//   - the bucket is not open, or the Edit begins two batches, or the map has 64 batches;
	//   - a range already moves, or its last move has left markers that are not removed (swept) yet;
	//   - the partition of a range takes part in another batch;
	//   - a destination is used twice (other than for neighbouring parts), or is a partition that holds a range;
	//   - a partition would hold two ranges that are no neighbours;
	//   - a merge would join ranges at a key that is pinned (PinUntil).
	//
	// Begin does not check that no range elsewhere in the map uses a destination; Validate does.
	Begin(moves ...Move) (batch uint64, err error)
	// Advance puts each of the given batches of moves into its next phase, up to the last phase, Draining. It rewrites
	// only the root of the map. It fails with InvalidArgument if the map has no such batch, or if the batch is in the
	// phase Draining or Settled. Settle ends a draining batch.
	Advance(batches ...uint64) error
	// Settle ends the moves of a batch that is in the last phase, Draining. Each destination becomes the partition that
	// holds its range, and neighbouring ranges with the same destination become a single range. The markers that the
	// moves have left must be removed later (see Swept).
	//
	// The spans are intervals of keys that must contain all ranges of the batch. A range must begin at the Start and at
	// the End of each span. Otherwise Settle fails with InvalidArgument.
	Settle(batch uint64, spans ...store.Bounds) error
	// Swept removes finished batches of moves from the root of the map. A mover calls Swept once it has removed (swept)
	// the markers that the moves left. Swept rewrites only the root: entries keep the id of their batch. A batch that
	// the root does not list is over.
	Swept(batches ...uint64) error
	// Change returns the step from the old map to the next map, in which all changes of the Edit are made. It writes
	// anew only the nodes on the paths from the root to the changed entries. Change may be called only once.
	Change() (Change, error)
}

// edit is the implementation of Edit.
type edit struct {
	fill  fill
	old   *Root
	next  *Root
	stamp Stamp
	read  Reader
	reps  []replacement
	err   error // the first error of a method
}

// NewEdit returns an Edit, which collects changes of the map whose root is old. The function read returns the stored
// nodes of the map. s supplies random ids and the time.
func NewEdit(old *Root, s Stamp, read Reader) Edit { return newEdit(old, s, read) }

// newEdit does the same as NewEdit, for callers in this package.
func newEdit(old *Root, s Stamp, read Reader) *edit {
	e := &edit{fill: standard, old: old, next: old.following(s), stamp: s, read: read}
	if old.State == Deleted {
		e.err = invalid("bucket %s is deleted", old.Bucket)
	}
	return e
}

// Replace puts new entries in the place of the old entries from start to below end. It implements Edit.
func (e *edit) Replace(start, end []byte, entries []Entry) error {
	return e.replace(replacement{Start: start, End: end, Entries: entries})
}

func (e *edit) replace(r replacement) error {
	if e.err == nil {
		e.err = checkEntries(r.Entries, r.Start, r.End)
	}
	if e.err == nil {
		e.reps = append(e.reps, r)
	}
	return e.err
}

// Change returns the step from the old map to the next map. It implements Edit.
func (e *edit) Change() (Change, error) {
	if e.err != nil {
		return Change{}, e.err
	}
	c, err := e.change()
	if e.err = err; err == nil {
		e.err = invalid("this edit of bucket %s has made its change already", e.old.Bucket)
	}
	return c, err
}

// change makes the step from the old map to the next map. It fails with InvalidArgument if two replacements overlap.
func (e *edit) change() (Change, error) {
	slices.SortFunc(e.reps, func(a, b replacement) int { return bytes.Compare(a.Start, b.Start) })
	for i := range e.reps[min(1, len(e.reps)):] {
		if a, b := &e.reps[i], &e.reps[i+1]; len(a.End) == 0 || string(a.End) > string(b.Start) {
			return Change{}, invalid("two replacements overlap at %q", mapcodec.Clip(b.Start))
		}
	}
	change := Change{Old: e.old.Version(), Next: e.next}
	if len(e.reps) == 0 {
		return change, nil
	}
	t := &tree{
		root: e.next,
		read: e.read,
		gone: map[store.NodeID]bool{},
		w:    writer{fill: e.fill, header: mapcodec.Header{Bucket: e.next.Bucket, Epoch: e.next.Epoch}, newNode: e.stamp.NewNode},
	}
	if err := t.replace(e.reps); err != nil {
		return Change{}, err
	}
	change.Nodes = t.w.nodes
	for id := range t.gone {
		change.Replaced = append(change.Replaced, id)
	}
	slices.SortFunc(change.Replaced, func(a, b store.NodeID) int { return bytes.Compare(a[:], b[:]) })
	return change, nil
}

// tree is a bucket's map while an Edit rewrites the nodes on the paths from the root to the changed entries.
type tree struct {
	root *Root
	read Reader
	w    writer
	// gone has the ids of the old nodes that the next map does not use any more.
	gone map[store.NodeID]bool
}

// replace applies the replacements to the whole map. It then makes the tree lower if the map has shrunk, or higher if
// the root has become too large.
func (t *tree) replace(reps []replacement) (err error) {
	r := t.root
	if r.Height == 0 {
		if r.Entries, err = t.splice(r.Entries, nil, nil, reps); err != nil {
			return err
		}
	} else if r.Children, err = t.rewrite(r.Children, r.Height-1, nil, reps); err != nil {
		return err
	}
	t.pullUp()
	t.w.fit(r)
	return nil
}

// rewrite applies the replacements of entries to the children, which are neighbouring nodes of the same height in a
// map. It returns the nodes that take the place of the children. height is the number of levels of nodes below the
// children. The parameter end is the key at which the last child ends; an empty end is plus infinity.
func (t *tree) rewrite(children []Child, height uint8, end []byte, reps []replacement) ([]Child, error) {
	if height == 0 {
		return rewrite(t, children, end, reps, level[Entry]{
			load: func(c Child) ([]Entry, error) {
				entries, _, err := t.read.entries(t.root, c)
				return entries, err
			},
			splice: t.splice,
			sparse: func(es []Entry) bool { return sparse(es, t.w.entries, t.w.keys, entryStart) },
			write:  t.w.segments,
		})
	}
	return rewrite(t, children, end, reps, level[Child]{
		load: func(c Child) ([]Child, error) {
			children, _, err := t.read.children(t.root, c, height)
			return children, err
		},
		splice: func(cs []Child, _, end []byte, reps []replacement) ([]Child, error) {
			return t.rewrite(cs, height-1, end, reps)
		},
		sparse: func(cs []Child) bool { return sparse(cs, t.w.children, t.w.keys, childStart) },
		write:  func(cs []Child) []Child { return t.w.indexes(height, cs) },
	})
}

// level has the functions in which the two kinds of nodes of a map differ. The items of a segment are entries. The
// items of an index node are references to other nodes (children).
type level[T any] struct {
	// load reads the items of the given node: entries, or references to other nodes.
	load   func(Child) ([]T, error)
	splice func(items []T, start, end []byte, reps []replacement) ([]T, error)
	sparse func([]T) bool
	write  func([]T) []Child
}

// rewrite applies the replacements of entries to the children, which are neighbouring nodes of a map. It returns the
// nodes that take the place of the children. A child without a replacement stays. Neighbouring children with
// replacements are loaded together, changed, and written to new nodes. If few items are left in them, they are joined
// with another neighbour.
//
//	children    A   B   C   D     replacements are within B and C
//	result      A     N     D     N has the changed items of B and C
func rewrite[T any](t *tree, children []Child, end []byte, reps []replacement, lv level[T]) ([]Child, error) {
	var out []Child // while run has items, the last of these is an old node
	var run []T
	load := func(c Child) ([]T, error) {
		items, err := lv.load(c)
		t.gone[c.Node] = true
		return items, err
	}
	flush := func() {
		out, run = append(out, lv.write(run)...), nil
	}
	for i, c := range children {
		childEnd := endOf(children, i, childStart, end)
		touching := within(reps, c.Start, childEnd)
		if len(touching) == 0 && (len(run) == 0 || !lv.sparse(run)) {
			flush()
			out = append(out, c)
			continue
		}
		items, err := load(c)
		if err == nil {
			items, err = lv.splice(items, c.Start, childEnd, touching)
		}
		if err != nil {
			return nil, err
		}
		run = append(run, items...)
	}
	if len(out) > 0 && len(run) > 0 && lv.sparse(run) {
		items, err := load(out[len(out)-1])
		if err != nil {
			return nil, err
		}
		out, run = out[:len(out)-1], append(items, run...)
	}
	flush()
	return out, nil
}

// within selects the replacements that change a key from start to below end. The replacements must ascend and must not
// overlap. An empty end is plus infinity.
func within(reps []replacement, start, end []byte) []replacement {
	lo := sort.Search(len(reps), func(i int) bool { return len(reps[i].End) == 0 || string(reps[i].End) > string(start) })
	hi := len(reps)
	if len(end) > 0 {
		hi = sort.Search(len(reps), func(i int) bool { return string(reps[i].Start) >= string(end) })
	}
	return reps[lo:max(lo, hi)]
}

// splice applies the replacements to the entries of one node of a map, and returns the new list of entries. The entries
// cover the keys from start to below end. A replacement may reach over several nodes. It then removes entries in each
// of these nodes, but inserts its new entries only in the node that contains its Start.
func (t *tree) splice(entries []Entry, start, end []byte, reps []replacement) ([]Entry, error) {
	at := func(key []byte, what string) (int, error) {
		i, found := sort.Find(len(entries), func(i int) int { return bytes.Compare(key, entries[i].Start) })
		if !found {
			return 0, invalid("a replacement %s at %q, which is no cut of bucket %s", what, mapcodec.Clip(key), t.root.Bucket)
		}
		return i, nil
	}
	var out []Entry
	done := 0
	for i := range reps {
		r := &reps[i]
		from, to := done, len(entries)
		var err error
		if string(r.Start) >= string(start) {
			if from, err = at(r.Start, "begins"); err != nil {
				return nil, err
			}
		}
		if len(r.End) > 0 && (len(end) == 0 || string(r.End) < string(end)) {
			if to, err = at(r.End, "ends"); err != nil {
				return nil, err
			}
		}
		out = append(out, entries[done:from]...)
		if string(r.Start) >= string(start) {
			out = append(out, r.Entries...)
			t.root.Ranges += uint64(len(r.Entries))
		}
		t.root.Ranges -= uint64(to - from)
		done = to
	}
	return append(out, entries[done:]...), nil
}

// pullUp makes the tree of a map lower after the map has shrunk. If the root has a single node below it, the content of
// that node moves into the root, provided that the content fits in half of a root.
func (t *tree) pullUp() {
	// The limit is a half, so that the height of the tree does not change with each edit. The single node is always a
	// new node, since every replacement has entries.
	r := t.root
	for len(r.Children) == 1 {
		only := r.Children[0].Node
		lower := *r
		lower.Height--
		lower.Entries, lower.Children = t.w.contents[only].entries, t.w.contents[only].children
		if !lower.fits(t.w.root / 2) {
			return
		}
		t.w.nodes = slices.DeleteFunc(t.w.nodes, func(x Node) bool { return x.ID == only })
		*r = lower
	}
}
