package partmap

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/evenkeel/evenkeel/store"
)

// ProblemKind is the kind of a problem of a map.
type ProblemKind uint8

const (
	// Unreadable: a node is missing or damaged, or is not what its parent says.
	Unreadable ProblemKind = iota + 1
	// Untiled: the first range does not begin at the lowest key, or ranges do not ascend,
	// so some key has no range or two (invariant I1).
	Untiled
	// LongCut: a cut has more than store.MaxKeyBytes.
	LongCut
	// EmptyNode: a root or node without an entry or child.
	EmptyNode
	// MiscountedRanges: the root has a wrong number of ranges.
	MiscountedRanges
	// Scattered: one partition is the home, or the destination, of ranges that are not
	// neighbours.
	Scattered
	// StaleDestination: a destination is also a home, or that of two batches: it is not
	// fresh (invariant I4).
	StaleDestination
	// NoPartition: an entry has no home.
	NoPartition
	// UnknownBatch: a range moves in a batch that is not in the root.
	UnknownBatch
	// PhaseMismatch: a range has a destination in a settled batch, or none in another.
	PhaseMismatch
	// BadBatch: the overlay is out of order or too long, or a batch is of a later epoch than
	// the root, in an unknown phase, or has a wrong number of ranges.
	BadBatch
	// BadRoot: state, height or size of the root is impossible.
	BadRoot

	problemKinds = iota + 1
)

var problemNames = [problemKinds]string{
	"", "unreadable", "untiled", "long cut", "empty node", "miscounted ranges", "scattered partition", "stale destination",
	"no partition", "unknown batch", "phase mismatch", "bad batch", "bad root",
}

func (k ProblemKind) String() string {
	if int(k) < len(problemNames) {
		return problemNames[k]
	}
	return fmt.Sprintf("problem %d", uint8(k))
}

// Problem is one problem of a map.
type Problem struct {
	Kind ProblemKind
	// At is the cut of the problem. It is empty at the lowest key, and for problems of the
	// whole map.
	At []byte
	// Node is the index node or segment concerned; zero for the root.
	Node store.NodeID
	Text string
}

func (p Problem) String() string {
	at := fmt.Sprintf("%s at %q", p.Kind, clip(p.At))
	if (p.Node != store.NodeID{}) {
		at += fmt.Sprintf(" in node %s", p.Node)
	}
	return at + ": " + p.Text
}

// Validate reads the whole map of a root and returns all its problems. It continues after
// nodes that it can't read.
func Validate(r *Root, read Reader) []Problem {
	v := validator{
		root: r, read: read, homes: map[store.PartitionID]*place{},
		destinations: map[store.PartitionID]*place{}, perBatch: map[uint64]uint64{},
	}
	v.rootItself()
	if r.Height == 0 {
		v.entries(r.Entries, nil, nil, store.NodeID{})
	} else if r.Height <= maxHeight {
		v.children(r.Children, r.Height-1, nil, nil, store.NodeID{})
	}
	v.whole()
	return v.problems
}

// ValidateSpans is Validate for spans of a map, which ascend and begin and end at cuts. It
// reads no other nodes, and does not find problems that only the whole map shows.
func ValidateSpans(r *Root, read Reader, spans ...Span) []Problem {
	v := validator{root: r, read: read, destinations: map[store.PartitionID]*place{}, perBatch: map[uint64]uint64{}}
	v.rootItself()
	for _, s := range spans {
		v.homes = map[store.PartitionID]*place{} // the ranges between spans are not known
		want := s.Start
		for rg, err := range Ranges(r, read, s.Start, s.End) {
			if err != nil {
				v.report(Unreadable, want, store.NodeID{}, "%v", err)
				break
			}
			v.cut(rg.Start, 0, want, rg.End, store.NodeID{})
			v.entry(&rg.Entry, store.NodeID{})
			want = rg.End
		}
	}
	return v.problems
}

// place is where a partition is used.
type place struct {
	first    []byte
	last     uint64 // number of the last range
	batch    uint64
	reported bool
}

type validator struct {
	root     *Root
	read     Reader
	problems []Problem

	ranges       uint64 // read so far
	unread       bool   // a node could not be read
	homes        map[store.PartitionID]*place
	destinations map[store.PartitionID]*place
	perBatch     map[uint64]uint64
}

func (v *validator) report(k ProblemKind, at []byte, n store.NodeID, format string, args ...any) {
	v.problems = append(v.problems, Problem{Kind: k, At: at, Node: n, Text: fmt.Sprintf(format, args...)})
}

func (v *validator) rootItself() {
	r, none := v.root, store.NodeID{}
	if r.State < Open || r.State > Deleted {
		v.report(BadRoot, nil, none, "its state is %d", r.State)
	}
	if r.Height > maxHeight {
		v.report(BadRoot, nil, none, "its height is %d: at most %d", r.Height, maxHeight)
	}
	if r.Height > 0 && len(r.Entries) > 0 || r.Height == 0 && len(r.Children) > 0 {
		v.report(
			BadRoot, nil, none, "of height %d it has %d entries and %d children", r.Height, len(r.Entries), len(r.Children),
		)
	}
	if n := r.mapBytes(); n > MaxRootBytes {
		v.report(BadRoot, nil, none, "it takes %d bytes: at most %d", n, MaxRootBytes)
	}
	if len(r.Batches) > MaxBatches {
		v.report(BadBatch, nil, none, "%d batches: at most %d", len(r.Batches), MaxBatches)
	}
	for i, b := range r.Batches {
		if b.ID == 0 || b.ID > r.Epoch {
			v.report(BadBatch, nil, none, "batch %d in a root of epoch %d", b.ID, r.Epoch)
		}
		if i > 0 && b.ID <= r.Batches[i-1].ID {
			v.report(BadBatch, nil, none, "batch %d comes after batch %d", b.ID, r.Batches[i-1].ID)
		}
		if int(b.Phase) >= phases {
			v.report(BadBatch, nil, none, "batch %d is in %s", b.ID, b.Phase)
		}
	}
}

// children checks the nodes of one height below one parent. start is where the first begins
// according to the parent.
func (v *validator) children(children []Child, height uint8, start, end []byte, parent store.NodeID) {
	if len(children) == 0 {
		v.report(EmptyNode, start, parent, "no children")
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
			v.report(Unreadable, c.Start, c.Node, "%v", err)
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

// cut checks the i-th start within a node.
func (v *validator) cut(key []byte, i int, start, end []byte, n store.NodeID) {
	if len(key) > store.MaxKeyBytes {
		v.report(LongCut, key, n, "%d bytes: at most %d", len(key), store.MaxKeyBytes)
	}
	if i == 0 && string(key) != string(start) {
		v.report(Untiled, key, n, "begins at %q instead of %q", clip(key), clip(start))
	}
	if i > 0 && len(key) == 0 {
		v.report(Untiled, key, n, "begins at the lowest key, but is not the first")
	}
	if len(end) > 0 && string(key) >= string(end) {
		v.report(Untiled, key, n, "begins at %q, but ends at %q", clip(key), clip(end))
	}
}

func (v *validator) entries(entries []Entry, start, end []byte, n store.NodeID) {
	if len(entries) == 0 {
		v.report(EmptyNode, start, n, "no entries")
	}
	for i := range entries {
		e := &entries[i]
		v.cut(e.Start, i, start, endOf(entries, i, entryStart, end), n)
		v.entry(e, n)
	}
}

func (v *validator) entry(e *Entry, n store.NodeID) {
	number := v.ranges
	v.ranges++
	if e.Partition.IsZero() {
		v.report(NoPartition, e.Start, n, "the range has no home")
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
		v.report(UnknownBatch, e.Start, n, "the range moves in batch %d, which is not in flight", e.Batch)
	case e.Batch > v.root.Epoch:
		v.report(UnknownBatch, e.Start, n, "the range was in batch %d, a later epoch than %d", e.Batch, v.root.Epoch)
	case i < 0 || e.Batch == 0:
	case moves && v.root.Batches[i].Phase == Settled:
		v.report(PhaseMismatch, e.Start, n, "the range has a destination, but batch %d is settled", e.Batch)
	case !moves && v.root.Batches[i].Phase != Settled:
		v.report(
			PhaseMismatch, e.Start, n, "the range has no destination, but batch %d is %s", e.Batch, v.root.Batches[i].Phase,
		)
	}
	v.perBatch[e.Batch]++
}

// place records that a partition is the home or destination of a range. Ranges with the same
// one must be neighbours; with the same destination, of one batch.
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
		v.report(Scattered, e.Start, n, "partition %s is the %s here and at %q, which is no neighbour", id, as, clip(p.first))
	}
	if as == "destination" && p.batch != e.Batch {
		v.report(
			StaleDestination, e.Start, n, "partition %s is the destination of batch %d here and of batch %d at %q", id, e.Batch,
			p.batch, clip(p.first),
		)
	}
	p.last = number
}

// whole finds problems that only the whole map shows.
func (v *validator) whole() {
	none := store.NodeID{}
	var stale []Problem
	for id, d := range v.destinations {
		if h, also := v.homes[id]; also {
			text := fmt.Sprintf("partition %s is the destination here and the home of the range from %q", id, clip(h.first))
			stale = append(stale, Problem{Kind: StaleDestination, At: d.first, Text: text})
		}
	}
	slices.SortFunc(stale, func(a, b Problem) int { return bytes.Compare(a.At, b.At) })
	v.problems = append(v.problems, stale...)
	if v.unread {
		return
	}
	if v.ranges != v.root.Ranges {
		v.report(MiscountedRanges, nil, none, "the root says %d ranges, the map has %d", v.root.Ranges, v.ranges)
	}
	for _, b := range v.root.Batches {
		if v.perBatch[b.ID] != b.Ranges {
			v.report(
				BadBatch, nil, none, "batch %d says that it has %d ranges, the map has %d", b.ID, b.Ranges, v.perBatch[b.ID],
			)
		}
	}
}
