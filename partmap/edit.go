package partmap

import (
	"bytes"
	"slices"
	"sort"

	"github.com/evenkeel/evenkeel/store"
)

// Replacement replaces all entries that begin within [Start, End) by Entries. Both ends must
// be cuts of the map (an empty End is plus infinity), and the first new entry begins at
// Start. So the map always tiles all keys.
type Replacement struct {
	Start, End []byte
	Entries    []Entry
}

// Edit collects the changes of one swap: replacements of entries, and starts, phases and
// ends of batches of moves. Change then makes the next map, with new nodes only along the
// paths to the changes.
//
// An Edit is not safe for concurrent use. It reads nodes of the old root.
type Edit struct {
	fill  fill
	old   *Root
	next  *Root
	stamp Stamp
	read  Reader
	reps  []Replacement
	err   error
}

// NewEdit starts a change of old. The methods of an Edit of a deleted bucket fail.
func NewEdit(old *Root, s Stamp, read Reader) *Edit {
	e := &Edit{fill: standard, old: old, next: old.following(s), stamp: s, read: read}
	if old.State == Deleted {
		e.err = invalid("bucket %s is deleted", old.Bucket)
	}
	return e
}

// Replace adds a replacement. The replacements of one Edit must not overlap.
func (e *Edit) Replace(r Replacement) error {
	if e.err == nil {
		e.err = checkEntries(r.Entries, r.Start, r.End)
	}
	if e.err == nil {
		e.reps = append(e.reps, r)
	}
	return e.err
}

// Change returns the change, once. It fails with the first error of the Edit's methods.
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

// tree rewrites the paths of a map that lead to replaced entries.
type tree struct {
	root *Root
	read Reader
	w    writer
	// gone are old nodes that are not in the next map.
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

// rewrite returns the replacements of children, nodes of one height that together end at
// end.
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

// level is what differs between segments, which have entries, and index nodes, which have
// children.
type level[T any] struct {
	load   func(Child) ([]T, error)
	splice func(items []T, start, end []byte, reps []Replacement) ([]T, error)
	sparse func([]T) bool
	write  func([]T) []Child
}

// rewrite keeps the sibling nodes that no replacement touches; it loads, changes and writes
// runs of the others. A run that becomes sparse is joined with a neighbour.
func rewrite[T any](t *tree, children []Child, end []byte, reps []Replacement, lv level[T]) ([]Child, error) {
	var out []Child // of which the last is an old node while run is not written
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

// within returns the replacements that have a key in common with [start, end).
func within(reps []Replacement, start, end []byte) []Replacement {
	lo := sort.Search(len(reps), func(i int) bool { return len(reps[i].End) == 0 || string(reps[i].End) > string(start) })
	hi := len(reps)
	if len(end) > 0 {
		hi = sort.Search(len(reps), func(i int) bool { return string(reps[i].Start) >= string(end) })
	}
	return reps[lo:max(lo, hi)]
}

// splice applies replacements to the entries of [start, end). The entries of a replacement
// are inserted where its Start lies; elsewhere it only removes entries.
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

// pullUp removes a level while the only node below the root fits in half of the root: half,
// so that the height of a map at the limit does not change with each edit. Every replacement
// has entries, so that node is new.
func (t *tree) pullUp() {
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
