package partmap

import (
	"slices"

	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/keytext"
)

// Move replaces the ranges that tile [Start, End) by Parts, which tile it once the move is
// done. A split, a merge, a move of a whole range to a fresh partition and any combination
// are moves.
type Move struct {
	// Start and End are cuts of the map (an empty End is plus infinity).
	Start, End []byte
	// Parts ascend; the first begins at Start.
	Parts []Part
}

// Part is a range after a move.
type Part struct {
	Start []byte
	// To is the fresh partition of the part; zero if it stays where it is.
	To store.PartitionID
	// PinUntil pins the cut at Start (Unix seconds); 0 keeps the pin of an old cut.
	PinUntil int64
}

// Begin starts a batch of moves, in phase marking, and returns its id: the epoch of the
// change. It fails with InvalidArgument for two batches in one change, more than MaxBatches
// in a map, a range whose last move is not swept yet or whose partition is part of another
// batch, a destination that is used twice (other than for neighbouring parts) or is a home,
// a partition that would be in two places, or a merge across a pinned cut. It does not check
// that a destination is fresh in the whole map; Validate does.
func (e *Edit) Begin(moves ...Move) (batch uint64, err error) {
	if e.err == nil {
		e.err = e.begin(moves)
	}
	return e.next.Epoch, e.err
}

func (e *Edit) begin(moves []Move) error {
	if e.old.State != Open {
		return invalid("bucket %s is %s: no move begins", e.old.Bucket, e.old.State)
	}
	batch := Batch{ID: e.next.Epoch, Phase: Marking}
	if n := len(e.next.Batches); n >= MaxBatches {
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
		// Old entries and checked parts, in order: nothing is left to check.
		e.reps = append(e.reps, Replacement{Start: moves[i].Start, End: moves[i].End, Entries: entries})
	}
	if batch.Ranges == 0 {
		return invalid("bucket %s: a batch without a move", e.old.Bucket)
	}
	e.next.Batches = append(e.next.Batches, batch)
	return nil
}

// beginMove divides the old entries at the cuts of the parts and sets their destinations.
// Until a move ends, a merged range has one entry per source.
func (e *Edit) beginMove(m *Move, batch uint64) ([]Entry, error) {
	old, err := e.entries(m.Start, m.End)
	if err != nil {
		return nil, err
	}
	for i := range old {
		if x := &old[i]; !x.To.IsZero() {
			return nil, invalid("the range from %q moves already", clip(x.Start))
		} else if e.inFlight(x.Batch) {
			return nil, invalid("the range from %q is not swept yet after its last move", clip(x.Start))
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
			return nil, invalid("the cut %q is pinned: nothing joins across it", clip(x.Start))
		}
		if !parts[p].To.IsZero() {
			x.To, x.Batch = parts[p].To, batch
		}
		out = append(out, x)
	}
	return out, nil
}

// sharing returns the entries beside a move that share its first or last partition: what a
// split leaves behind may have become a range of its own. It refuses a partition that is
// part of another batch.
func (e *Edit) sharing(m *Move, entries []Entry) (left, right []Entry, err error) {
	for x := entries[0]; ; left = slices.Insert(left, 0, x) {
		beside, _, err := RangeBefore(e.old, e.read, x.Start)
		if err != nil {
			return nil, nil, err
		}
		if beside.Partition != entries[0].Partition { // as it is where nothing is below
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
				"partition %s of the range from %q takes part in batch %d already", x.Partition, clip(m.Start), x.Batch,
			)
		}
	}
	return left, right, nil
}

// placedOnce refuses entries of a move after which a partition would be in two places, or
// whose destination is a home of the move or used by another part or move.
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
			return invalid("the destination %s of the range from %q is not fresh", x.To, clip(x.Start))
		}
		if seen[final] {
			return invalid("the partition %s of the range from %q would be in two places", final, clip(x.Start))
		}
		seen[final] = true
		if !x.To.IsZero() {
			used[x.To] = true
		}
	}
	return nil
}

// Advance moves batches on to their next phase, up to draining. It rewrites the
// root only.
func (e *Edit) Advance(batches ...uint64) error {
	for _, id := range batches {
		b, err := e.batch(id)
		if err != nil {
			return err
		}
		if b.Phase == Settled || b.Phase == Draining {
			return e.refuse("batch %d of bucket %s is %s: it can't advance", id, e.old.Bucket, b.Phase)
		}
		b.Phase, _ = Next(b.Phase)
	}
	return nil
}

// Settle ends a draining batch: destinations become homes, neighbouring ranges with the same
// destination are joined, and the sweep of its markers is pending. Spans contain all ranges
// of the batch, or Settle fails with InvalidArgument; each lies between two cuts of the map.
func (e *Edit) Settle(batch uint64, spans ...Span) error {
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
		e.reps = append(e.reps, Replacement{Start: s.Start, End: s.End, Entries: out})
	}
	if found != b.Ranges {
		return e.refuse("batch %d of bucket %s has %d ranges, but %d were found", batch, e.old.Bucket, b.Ranges, found)
	}
	b.Phase, b.Ranges = Settled, settled
	return nil
}

// Span is an interval of keys; an empty End is plus infinity.
type Span struct {
	Start keytext.Key `json:"start"`
	End   keytext.Key `json:"end"`
}

// Swept removes settled batches whose markers have been swept. It rewrites the root only:
// entries keep the id of their batch, which then means that it is over.
func (e *Edit) Swept(batches ...uint64) error {
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

func (e *Edit) refuse(format string, args ...any) error {
	if e.err == nil {
		e.err = invalid(format, args...)
	}
	return e.err
}

// batch returns a batch of the next root, to be changed once, so that none skips a phase.
func (e *Edit) batch(id uint64) (*Batch, error) {
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

// inFlight reports whether a batch of the old map is not over.
func (e *Edit) inFlight(id uint64) bool {
	return slices.ContainsFunc(e.old.Batches, func(b Batch) bool { return b.ID == id })
}

// entries reads the old entries that begin within [start, end).
func (e *Edit) entries(start, end []byte) ([]Entry, error) {
	var out []Entry
	for r, err := range Ranges(e.old, e.read, start, end) {
		if err != nil {
			return nil, err
		}
		out = append(out, r.Entry)
	}
	if len(out) == 0 || string(out[0].Start) != string(start) {
		return nil, invalid("%q is no cut of bucket %s", clip(start), e.old.Bucket)
	}
	return out, nil
}
