package partmap

import (
	"slices"

	"github.com/evenkeel/evenkeel/internal/mapcodec"
	"github.com/evenkeel/evenkeel/store"
)

// Move is an order to replace neighbouring ranges of a bucket's map by other ranges, the Parts. Old and new ranges
// cover the same keys, from Start to below End. A move can be a split, a merge, a move of a whole range to a fresh
// partition, or any combination of these:
//
//	ranges              [a, f) in partition 1, [f, k) in partition 2
//	merge               Parts {a, to 3}
//	split of the first  Parts {a}, {c, to 3} with End f: [a, c) stays in partition 1
type Move struct {
	// Start is the first key of the first old range. End is the end of the last old range; an empty End is plus
	// infinity.
	Start, End []byte
	// Parts are the new ranges, in ascending order. The first of the Parts begins at the Start of the move.
	Parts []Part
}

// Part is one of the new ranges that a move makes out of old ranges of a bucket's map. A Part ends where the next Part
// starts.
type Part struct {
	Start []byte
	// To is the fresh partition to which the rows of the new range move. It is zero if the rows stay in their
	// partition.
	To store.PartitionID
	// PinUntil is the time (Unix seconds) until which no merge may join the new range with the range before it. With 0,
	// the time of an old range with the same Start stays; a new Start gets no time.
	PinUntil int64
}

// Begin starts the given moves of ranges as one batch, and returns the ID of the batch. It implements Edit.
func (e *edit) Begin(moves ...Move) (batch uint64, err error) {
	if e.err == nil {
		e.err = e.begin(moves)
	}
	return e.next.Epoch, e.err
}

// begin checks the given moves, and adds them to the Edit as one batch in the first phase.
func (e *edit) begin(moves []Move) error {
	if e.old.State != Open {
		return invalid("bucket %s is %s: no move begins", e.old.Bucket, e.old.State)
	}
	batch := Batch{ID: e.next.Epoch, Phase: Marking}
	if n := len(e.next.Batches); n >= mapcodec.MaxBatches {
		return invalid("bucket %s has %d batches of moves in flight: wait until one ends", e.old.Bucket, n)
	} else if n > 0 && e.next.Batches[n-1].ID == batch.ID {
		return invalid("bucket %s: a change begins one batch at most", e.old.Bucket)
	}
	used := map[store.PartitionID]bool{}
	for i := range moves {
		entries, err := e.beginMove(&moves[i], batch.ID)
		if err != nil {
			return err
		}
		left, right, err := e.sharing(&moves[i], entries)
		if err != nil {
			return err
		}
		if err := placedOnce(slices.Concat(left, entries, right), used); err != nil {
			return err
		}
		for j := range entries {
			if entries[j].Batch == batch.ID {
				batch.Ranges++
			}
		}
		// The replacement needs no check: it has old entries and checked parts, in order.
		e.reps = append(e.reps, replacement{Start: moves[i].Start, End: moves[i].End, Entries: entries})
	}
	if batch.Ranges == 0 {
		return invalid("bucket %s: a batch without a move", e.old.Bucket)
	}
	e.next.Batches = append(e.next.Batches, batch)
	return nil
}

// beginMove returns the entries of the map that take the place of old entries while the move m runs. They are the old
// entries, divided where the new ranges (the parts of m) start. Each of them has the destination of its part. In a
// merge, each of the old ranges keeps an entry of its own until the move ends. batch is the ID of the batch to which
// the move belongs.
func (e *edit) beginMove(m *Move, batch uint64) ([]Entry, error) {
	old, err := e.entries(m.Start, m.End)
	if err != nil {
		return nil, err
	}
	for i := range old {
		if x := &old[i]; !x.To.IsZero() {
			return nil, invalid("the range from %q moves already", mapcodec.Clip(x.Start))
		} else if e.inFlight(x.Batch) {
			return nil, invalid("the range from %q is not swept yet after its last move", mapcodec.Clip(x.Start))
		}
	}
	parts := make([]Entry, len(m.Parts))
	for i, p := range m.Parts {
		parts[i] = Entry{Start: p.Start, To: p.To, PinUntil: p.PinUntil}
	}
	if err := checkEntries(parts, m.Start, m.End); err != nil {
		return nil, err
	}
	var out []Entry
	o, p := -1, -1
	for o+1 < len(old) || p+1 < len(parts) {
		oldNext := o+1 < len(old) && (p+1 == len(parts) || string(old[o+1].Start) <= string(parts[p+1].Start))
		partNext := p+1 < len(parts) && (o+1 == len(old) || string(parts[p+1].Start) <= string(old[o+1].Start))
		x := Entry{}
		if oldNext {
			o++
			x = old[o]
		} else {
			x = old[o]
			x.Start, x.PinUntil = parts[p+1].Start, 0
		}
		if partNext {
			p++
			if parts[p].PinUntil != 0 {
				x.PinUntil = parts[p].PinUntil
			}
		} else if !parts[p].To.IsZero() && x.PinUntil > e.stamp.Now.Unix() {
			return nil, invalid("the cut %q is pinned: nothing joins across it", mapcodec.Clip(x.Start))
		}
		if !parts[p].To.IsZero() {
			x.To, x.Batch = parts[p].To, batch
		}
		out = append(out, x)
	}
	return out, nil
}

// sharing returns the entries of the map directly beside the move m that have rows in a partition of the move. (Earlier
// splits have left several ranges in that partition.) The parameter entries are the entries that m replaces.
//   - left are the entries below the move, in the same partition as the first of these.
//   - right are the entries above the move, in the same partition as the last of these.
//
// sharing fails with InvalidArgument if an entry of left or right moves in another batch.
func (e *edit) sharing(m *Move, entries []Entry) (left, right []Entry, err error) {
	for x := entries[0]; ; left = slices.Insert(left, 0, x) {
		beside, _, err := rangeBefore(e.old, e.read, x.Start)
		if err != nil {
			return nil, nil, err
		}
		if beside.Partition != entries[0].Partition { // below the lowest range beside is zero
			break
		}
		x = beside.Entry
	}
	if len(m.End) > 0 {
		for x, err := range Ranges(e.old, e.read, m.End, nil) {
			if err != nil {
				return nil, nil, err
			}
			if x.Partition != entries[len(entries)-1].Partition {
				break
			}
			right = append(right, x.Entry)
		}
	}
	for _, x := range slices.Concat(left, right) {
		if !x.To.IsZero() {
			return nil, nil, invalid(
				"partition %s of the range from %q takes part in batch %d already", x.Partition, mapcodec.Clip(m.Start), x.Batch,
			)
		}
	}
	return left, right, nil
}

// placedOnce checks where the rows of the given entries would lie after a move. It returns an InvalidArgument error if
//   - a partition would hold ranges that are no neighbours, or
//   - a destination holds a range of the entries already, or
//   - another part or move uses the same destination.
//
// The set used collects the destinations of all moves of a batch.
func placedOnce(entries []Entry, used map[store.PartitionID]bool) error {
	homes, seen := map[store.PartitionID]bool{}, map[store.PartitionID]bool{}
	for i := range entries {
		homes[entries[i].Partition] = true
	}
	var last store.PartitionID
	for i := range entries {
		x := &entries[i]
		final := x.Partition
		if !x.To.IsZero() {
			final = x.To
		}
		if final == last {
			continue
		}
		last = final
		if !x.To.IsZero() && (homes[x.To] || used[x.To]) {
			return invalid("the destination %s of the range from %q is not fresh", x.To, mapcodec.Clip(x.Start))
		}
		if seen[final] {
			return invalid("the partition %s of the range from %q would be in two places", final, mapcodec.Clip(x.Start))
		}
		seen[final] = true
		if !x.To.IsZero() {
			used[x.To] = true
		}
	}
	return nil
}

// Advance puts each of the given batches of moves into its next phase. It implements Edit.
func (e *edit) Advance(batches ...uint64) error {
	for _, id := range batches {
		b, err := e.batch(id)
		if err != nil {
			return err
		}
		if b.Phase == Settled || b.Phase == Draining {
			return e.refuse("batch %d of bucket %s is %s: it can't advance", id, e.old.Bucket, b.Phase)
		}
		b.Phase = transitions[b.Phase].next
	}
	return nil
}

// Settle ends the moves of a batch that is in the last phase, Draining. It implements Edit.
func (e *edit) Settle(batch uint64, spans ...store.Bounds) error {
	b, err := e.batch(batch)
	if err != nil {
		return err
	}
	if b.Phase != Draining {
		return e.refuse("batch %d of bucket %s is %s: only a draining one settles", batch, e.old.Bucket, b.Phase)
	}
	found, settled := uint64(0), uint64(0)
	for _, s := range spans {
		old, err := e.entries(s.Start, s.End)
		if err != nil {
			e.err = err
			return err
		}
		var out []Entry
		for _, x := range old {
			if x.Batch == batch && !x.To.IsZero() {
				found++
				x.Partition, x.To, x.Created = x.To, store.PartitionID{}, e.stamp.Now.Unix()
				if n := len(out); n > 0 && out[n-1].Batch == batch && out[n-1].Partition == x.Partition {
					continue
				}
				settled++
			}
			out = append(out, x)
		}
		e.reps = append(e.reps, replacement{Start: s.Start, End: s.End, Entries: out})
	}
	if found != b.Ranges {
		return e.refuse("batch %d of bucket %s has %d ranges, but %d were found", batch, e.old.Bucket, b.Ranges, found)
	}
	b.Phase, b.Ranges = Settled, settled
	return nil
}

// Swept removes finished batches of moves from the root of the map. It implements Edit.
func (e *edit) Swept(batches ...uint64) error {
	for _, id := range batches {
		b, err := e.batch(id)
		if err != nil {
			return err
		}
		if b.Phase != Settled {
			return e.refuse("batch %d of bucket %s is not settled yet: there is no sweep to end", id, e.old.Bucket)
		}
		e.next.Batches = slices.DeleteFunc(e.next.Batches, func(o Batch) bool { return o.ID == id })
	}
	return nil
}

// refuse records an InvalidArgument error in the Edit if the Edit has no error yet. It returns the first error of the
// Edit.
func (e *edit) refuse(format string, args ...any) error {
	if e.err == nil {
		e.err = invalid(format, args...)
	}
	return e.err
}

// batch returns the batch of moves with this id, for the caller to change its phase. The batch is in the root that the
// Edit makes. batch fails with InvalidArgument if the map has no such batch, or if this Edit has changed its phase
// already: no batch may skip a phase.
func (e *edit) batch(id uint64) (*Batch, error) {
	if e.err != nil {
		return nil, e.err
	}
	same := func(b Batch) bool { return b.ID == id }
	now, before := slices.IndexFunc(e.next.Batches, same), slices.IndexFunc(e.old.Batches, same)
	if before < 0 || now < 0 {
		return nil, e.refuse("bucket %s has no batch %d in flight", e.old.Bucket, id)
	}
	if e.next.Batches[now].Phase != e.old.Batches[before].Phase {
		return nil, e.refuse("batch %d of bucket %s changes its phase in this change already", id, e.old.Bucket)
	}
	return &e.next.Batches[now], nil
}

// inFlight reports whether the old root of the map lists the batch of moves with this id. If the root does not list the
// batch, the batch is over.
func (e *edit) inFlight(id uint64) bool {
	return slices.ContainsFunc(e.old.Batches, func(b Batch) bool { return b.ID == id })
}

// entries returns the entries of the old map that begin from the key start on and below end. It fails with
// InvalidArgument if no entry begins at start.
func (e *edit) entries(start, end []byte) ([]Entry, error) {
	var out []Entry
	for r, err := range Ranges(e.old, e.read, start, end) {
		if err != nil {
			return nil, err
		}
		out = append(out, r.Entry)
	}
	if len(out) == 0 || string(out[0].Start) != string(start) {
		return nil, invalid("%q is no cut of bucket %s", mapcodec.Clip(start), e.old.Bucket)
	}
	return out, nil
}
