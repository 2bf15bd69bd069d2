package partmap

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/evenkeel/evenkeel/internal/mapcodec"
	"github.com/evenkeel/evenkeel/store"
)

// problemKind says what is wrong with a bucket's map, such as unreadable for a missing node. Validate finds the
// problems.
type problemKind uint8

const (
	// unreadable means that a node of a map is missing or damaged, or contradicts its parent.
	unreadable problemKind = iota + 1
	// untiled means that the first range of a map does not begin at the lowest key, or that ranges do not ascend. So a
	// key has no range, or two (invariant I1).
	untiled
	// longCut means that the start of a range is longer than store.MaxKeyBytes.
	longCut
	// emptyNode means that a root or a node of a map has neither an entry nor a child.
	emptyNode
	// miscountedRanges means that the root of a map gives a wrong number of ranges.
	miscountedRanges
	// scattered means that ranges that are not neighbours lie in the same partition, or move to the same partition.
	scattered
	// staleDestination means that a range moves to a partition that is not fresh (invariant I4): the partition holds a
	// range already, or is the destination of two batches of moves.
	staleDestination
	// noPartition means that an entry of a map does not name the partition that holds its range: its Partition is zero.
	noPartition
	// unknownBatch means that a range moves in a batch that the root of the map does not list. Or the batch of a range
	// is of a later epoch than the root.
	unknownBatch
	// phaseMismatch means that a range has a destination although its batch of moves is settled. Or it has no
	// destination although its batch is not settled.
	phaseMismatch
	// badBatch means that the batches of moves in the root of a map are out of order or too many. Or a batch is of a
	// later epoch than the root, is in an unknown phase, or has a wrong number of ranges.
	badBatch
	// badRoot means that the state, the height or the size of the root of a map is impossible.
	badRoot

	problemKinds = iota + 1
)

var problemNames = [problemKinds]string{
	"", "unreadable", "untiled", "long cut", "empty node", "miscounted ranges", "scattered partition", "stale destination",
	"no partition", "unknown batch", "phase mismatch", "bad batch", "bad root",
}

func (k problemKind) String() string {
	if int(k) < len(problemNames) {
		return problemNames[k]
	}
	return fmt.Sprintf("problem %d", uint8(k))
}

// Problem is a fault in a bucket's map, such as a missing node: the key at which it is, and a text for people.
type Problem struct {
	kind problemKind
	// At is the start of the range or of the node that has the problem. At is empty for a problem at the lowest key,
	// and for a problem of the whole map.
	At []byte
	// Node is the id of the index node or segment of the map that has the problem. It is zero for the root.
	Node store.NodeID
	// Text says what is wrong, and where.
	Text string
}

// newProblem returns a Problem of the kind k, at key in the node n. Its text begins with the name of the kind and the
// place.
func newProblem(k problemKind, key []byte, n store.NodeID, text string) Problem {
	at := fmt.Sprintf("%s at %q", k, mapcodec.Clip(key))
	if (n != store.NodeID{}) {
		at += fmt.Sprintf(" in node %s", n)
	}
	return Problem{kind: k, At: key, Node: n, Text: at + ": " + text}
}

// String returns the text of the problem.
func (p Problem) String() string { return p.Text }

// Validate returns the problems of the map whose root is r, or nil if it finds none. It reads the whole map with the
// function read. If a node can't be read, Validate reports the node and goes on.
func Validate(r *Root, read Reader) []Problem {
	v := newValidator(r, read)
	switch {
	case r.Height == 0:
		v.entries(r.Entries, nil, nil, store.NodeID{})
	case r.Height <= mapcodec.MaxHeight:
		v.children(r.Children, r.Height-1, nil, nil, store.NodeID{})
	}
	v.whole()
	return v.problems
}

// ValidateSpans returns the problems of a map in its root r and in the given intervals of keys, or nil if it finds none.
// It reads only the nodes of the spans and the nodes above them. The spans must ascend, and a range must begin at both
// ends of each span. Problems that show only in the whole map are not found.
func ValidateSpans(r *Root, read Reader, spans []store.Bounds) []Problem {
	v := newValidator(r, read)
	v.spans(spans)
	return v.problems
}

// newValidator returns a validator that has checked the root r.
func newValidator(r *Root, read Reader) *validator {
	v := &validator{
		root: r, read: read, homes: map[store.PartitionID]*place{},
		destinations: map[store.PartitionID]*place{}, perBatch: map[uint64]uint64{},
	}
	v.rootItself()
	return v
}

// spans checks those parts of the map that are within the given intervals of keys.
func (v *validator) spans(spans []store.Bounds) {
	for _, s := range spans {
		v.homes = map[store.PartitionID]*place{} // the ranges between spans are not known
		want := s.Start
		for rg, err := range Ranges(v.root, v.read, s.Start, s.End) {
			if err != nil {
				v.report(unreadable, want, store.NodeID{}, "%v", err)
				break
			}
			v.cut(rg.Start, 0, want, rg.End, store.NodeID{})
			v.entry(&rg.Entry, store.NodeID{})
			want = rg.End
		}
	}
}

// place is the position in a map of the ranges of one partition: those that the partition holds, or those that move to
// it.
type place struct {
	first    []byte // start of the first range
	last     uint64 // number of the last range, in the order of the walk
	batch    uint64 // the batch of the first range
	reported bool   // the partition has been reported as scattered
}

// validator walks through a bucket's map and collects the problems of the map.
type validator struct {
	root     *Root
	read     Reader
	problems []Problem

	ranges       uint64 // number of ranges read until now
	unread       bool   // a node could not be read
	homes        map[store.PartitionID]*place
	destinations map[store.PartitionID]*place
	perBatch     map[uint64]uint64
}

// report adds a problem of the kind k, at the key `at` in the node n, to the result.
func (v *validator) report(k problemKind, at []byte, n store.NodeID, format string, args ...any) {
	v.problems = append(v.problems, newProblem(k, at, n, fmt.Sprintf(format, args...)))
}

// rootItself checks the fields of the root: its state, height, size and batches of moves.
func (v *validator) rootItself() {
	r, none := v.root, store.NodeID{}
	if r.State < Open || r.State > Deleted {
		v.report(badRoot, nil, none, "its state is %d", r.State)
	}
	if r.Height > mapcodec.MaxHeight {
		v.report(badRoot, nil, none, "its height is %d: at most %d", r.Height, mapcodec.MaxHeight)
	}
	if r.Height > 0 && len(r.Entries) > 0 || r.Height == 0 && len(r.Children) > 0 {
		v.report(
			badRoot, nil, none, "of height %d it has %d entries and %d children", r.Height, len(r.Entries), len(r.Children),
		)
	}
	if n := r.mapBytes(); n > mapcodec.MaxRootBytes {
		v.report(badRoot, nil, none, "it takes %d bytes: at most %d", n, mapcodec.MaxRootBytes)
	}
	if len(r.Batches) > mapcodec.MaxBatches {
		v.report(badBatch, nil, none, "%d batches: at most %d", len(r.Batches), mapcodec.MaxBatches)
	}
	for i, b := range r.Batches {
		if b.ID == 0 || b.ID > r.Epoch {
			v.report(badBatch, nil, none, "batch %d in a root of epoch %d", b.ID, r.Epoch)
		}
		if i > 0 && b.ID <= r.Batches[i-1].ID {
			v.report(badBatch, nil, none, "batch %d comes after batch %d", b.ID, r.Batches[i-1].ID)
		}
		if int(b.Phase) >= phases {
			v.report(badBatch, nil, none, "batch %d is in %s", b.ID, b.Phase)
		}
	}
}

// children checks neighbouring nodes of a map that have the same height and the same parent node, and all nodes below
// them. The keys of the parent reach from start to below end. height is the number of levels of nodes below the
// children.
func (v *validator) children(children []Child, height uint8, start, end []byte, parent store.NodeID) {
	if len(children) == 0 {
		v.report(emptyNode, start, parent, "no children")
	}
	for i, c := range children {
		childEnd := endOf(children, i, childStart, end)
		v.cut(c.Start, i, start, childEnd, parent)
		var entries []Entry
		var below []Child
		var err error
		if height == 0 {
			entries, _, err = v.read.entries(v.root, c)
		} else {
			below, _, err = v.read.children(v.root, c, height)
		}
		if err != nil {
			v.report(unreadable, c.Start, c.Node, "%v", err)
		}
		switch {
		case entries != nil:
			v.entries(entries, c.Start, childEnd, c.Node)
		case below != nil:
			v.children(below, height-1, c.Start, childEnd, c.Node)
		default:
			v.unread = true
		}
	}
}

// cut checks the start of an item in the node n of a map, and reports a problem if it is wrong. The parameter key is
// the start of the i-th item, which is an entry or a child. For the first item, key must be equal to start, where the
// node starts. The parameter end is the key at which the item ends; it must be above key.
func (v *validator) cut(key []byte, i int, start, end []byte, n store.NodeID) {
	if len(key) > store.MaxKeyBytes {
		v.report(longCut, key, n, "%d bytes: at most %d", len(key), store.MaxKeyBytes)
	}
	if i == 0 && string(key) != string(start) {
		v.report(untiled, key, n, "begins at %q instead of %q", mapcodec.Clip(key), mapcodec.Clip(start))
	}
	if i > 0 && len(key) == 0 {
		v.report(untiled, key, n, "begins at the lowest key, but is not the first")
	}
	if len(end) > 0 && string(key) >= string(end) {
		v.report(untiled, key, n, "begins at %q, but ends at %q", mapcodec.Clip(key), mapcodec.Clip(end))
	}
}

// entries checks the entries of the node n. The node's keys reach from start to below end.
func (v *validator) entries(entries []Entry, start, end []byte, n store.NodeID) {
	if len(entries) == 0 {
		v.report(emptyNode, start, n, "no entries")
	}
	for i := range entries {
		e := &entries[i]
		v.cut(e.Start, i, start, endOf(entries, i, entryStart, end), n)
		v.entry(e, n)
	}
}

// entry checks one entry of the node n: its partitions, and its batch of moves.
func (v *validator) entry(e *Entry, n store.NodeID) {
	number := v.ranges
	v.ranges++
	if e.Partition.IsZero() {
		v.report(noPartition, e.Start, n, "the range has no home")
	} else {
		v.place(v.homes, e.Partition, e, number, n, "home")
	}
	moves := !e.To.IsZero()
	if moves {
		v.place(v.destinations, e.To, e, number, n, "destination")
	}
	i := slices.IndexFunc(v.root.Batches, func(b Batch) bool { return b.ID == e.Batch })
	switch {
	case moves && (i < 0 || e.Batch == 0):
		v.report(unknownBatch, e.Start, n, "the range moves in batch %d, which is not in flight", e.Batch)
	case e.Batch > v.root.Epoch:
		v.report(unknownBatch, e.Start, n, "the range was in batch %d, a later epoch than %d", e.Batch, v.root.Epoch)
	case i < 0 || e.Batch == 0:
	case moves && v.root.Batches[i].Phase == Settled:
		v.report(phaseMismatch, e.Start, n, "the range has a destination, but batch %d is settled", e.Batch)
	case !moves && v.root.Batches[i].Phase != Settled:
		v.report(
			phaseMismatch, e.Start, n, "the range has no destination, but batch %d is %s", e.Batch, v.root.Batches[i].Phase,
		)
	}
	v.perBatch[e.Batch]++
}

// place records that the range of the entry e lies in the partition id, or moves to it. It reports a problem if the
// partition is wrong. The parameter as is "home" if the partition holds the range, and "destination" if the range moves
// to it. These are the rules:
//   - Ranges with the same home must be neighbours.
//   - Ranges with the same destination must be neighbours, and must move in the same batch.
//
// The parameter number counts the ranges in the order of the walk.
func (v *validator) place(
	in map[store.PartitionID]*place, id store.PartitionID, e *Entry, number uint64, n store.NodeID, as string,
) {
	p, met := in[id]
	if !met {
		in[id] = &place{first: e.Start, last: number, batch: e.Batch}
		return
	}
	if p.last+1 != number && !p.reported {
		p.reported = true
		v.report(scattered, e.Start, n, "partition %s is the %s here and at %q, which is no neighbour", id, as, mapcodec.Clip(p.first))
	}
	if as == "destination" && p.batch != e.Batch {
		v.report(
			staleDestination, e.Start, n, "partition %s is the destination of batch %d here and of batch %d at %q", id, e.Batch,
			p.batch, mapcodec.Clip(p.first),
		)
	}
	p.last = number
}

// whole reports the problems that only a walk through the whole map can find:
//   - a move to a partition that already holds a range, and
//   - wrong numbers of ranges, in the map or in a batch of moves.
func (v *validator) whole() {
	none := store.NodeID{}
	var stale []Problem
	for id, d := range v.destinations {
		if h, also := v.homes[id]; also {
			text := fmt.Sprintf("partition %s is the destination here and the home of the range from %q", id, mapcodec.Clip(h.first))
			stale = append(stale, newProblem(staleDestination, d.first, store.NodeID{}, text))
		}
	}
	slices.SortFunc(stale, func(a, b Problem) int { return bytes.Compare(a.At, b.At) })
	v.problems = append(v.problems, stale...)
	if v.unread {
		return
	}
	if v.ranges != v.root.Ranges {
		v.report(miscountedRanges, nil, none, "the root says %d ranges, the map has %d", v.root.Ranges, v.ranges)
	}
	for _, b := range v.root.Batches {
		if v.perBatch[b.ID] != b.Ranges {
			v.report(
				badBatch, nil, none, "batch %d says that it has %d ranges, the map has %d", b.ID, b.Ranges, v.perBatch[b.ID],
			)
		}
	}
}
