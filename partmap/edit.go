package partmap

import (
	"bytes"
	"slices"
	"sort"

	"github.com/evenkeel/evenkeel/store"
)

// Replacement puts new entries in the place of old entries of a bucket's map. It replaces all entries that begin from
// Start on and below End. Old entries must begin at Start and at End; an empty End is plus infinity. The first of the
// new Entries must begin at Start. So the map still covers all keys.
type Replacement struct {
	Start, End []byte
	Entries    []Entry
}

// Edit collects changes of a bucket's map, so that a single swap of the map's root applies all of them together. The
// changes are replacements of entries, and the beginnings, next phases and ends of batches of moves. The method Change
// computes the next map. It writes anew only the nodes on the paths from the root to the changed entries.
//
// An Edit reads nodes of the old map. It is not safe for concurrent use.
type Edit struct {
	fill  fill
	old   *Root
	next  *Root
	stamp Stamp
	read  Reader
	reps  []Replacement
	err   error
}

// NewEdit returns an Edit, which collects changes of the map whose root is old. The function read returns the stored
// nodes of the map. s supplies random ids and the time. If the bucket is deleted, every method of the Edit fails.
func NewEdit(old *Root, s Stamp, read Reader) *Edit {
	e := &Edit{fill: standard, old: old, next: old.following(s), stamp: s, read: read}
	if old.State == Deleted {
		e.err = invalid("bucket %s is deleted", old.Bucket)
	}
	return e
}

// Replace adds r, new entries in the place of old entries of the map, to the edit. It fails with InvalidArgument if the
// new entries do not cover the keys from r.Start to r.End without gap or overlap. The replacements of the same Edit
// must not overlap, which only Change checks.
func (e *Edit) Replace(r Replacement) error {
	if e.err == nil {
		e.err = checkEntries(r.Entries, r.Start, r.End)
	}
	if e.err == nil {
		e.reps = append(e.reps, r)
	}
	return e.err
}

// Change returns the step from the old map to the next map, in which all changes of the Edit are made. If a method of
// the Edit has failed before, Change returns the first of the errors. Change may be called only once.
func (e *Edit) Change() (Change, error) {
	if e.err != nil {
		return Change{}, e.err
	}
	c, err := e.change()
	if e.err = err; err == nil {
		e.err = invalid("this edit of bucket %s has made its change already", e.old.Bucket)
	}
	return c, err
}

func (e *Edit) change() (Change, error) {
	slices.SortFunc(e.reps, func(a, b Replacement) int { return bytes.Compare(a.Start, b.Start) })
	for i := range e.reps[min(1, len(e.reps)):] {
		if a, b := &e.reps[i], &e.reps[i+1]; len(a.End) == 0 || string(a.End) > string(b.Start) {
			return Change{}, invalid("two replacements overlap at %q", clip(b.Start))
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
		w:    writer{fill: e.fill, header: nodeHeader{Bucket: e.next.Bucket, Epoch: e.next.Epoch}, newNode: e.stamp.NewNode},
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

func (t *tree) replace(reps []Replacement) (err error) {
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
func (t *tree) rewrite(children []Child, height uint8, end []byte, reps []Replacement) ([]Child, error) {
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
		splice: func(cs []Child, _, end []byte, reps []Replacement) ([]Child, error) {
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
	splice func(items []T, start, end []byte, reps []Replacement) ([]T, error)
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
func rewrite[T any](t *tree, children []Child, end []byte, reps []Replacement, lv level[T]) ([]Child, error) {
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
func within(reps []Replacement, start, end []byte) []Replacement {
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
func (t *tree) splice(entries []Entry, start, end []byte, reps []Replacement) ([]Entry, error) {
	at := func(key []byte, what string) (int, error) {
		i, found := sort.Find(len(entries), func(i int) int { return bytes.Compare(key, entries[i].Start) })
		if !found {
			return 0, invalid("a replacement %s at %q, which is no cut of bucket %s", what, clip(key), t.root.Bucket)
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

// pullUp makes the tree of a map lower after the map has shrunk. If the root has a single node below it, and the
// content of that node fits in half of a root, the content moves into the root.
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
