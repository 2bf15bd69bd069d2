package scheduler

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/evenkeel/evenkeel/internal/cells"
	"github.com/evenkeel/evenkeel/internal/keyspread"
	"github.com/evenkeel/evenkeel/internal/keytext"
	"github.com/evenkeel/evenkeel/internal/rebalance/move"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// Kind is the kind of an operator's request about the ranges of a bucket, e.g. "split".
type Kind string

// These are the kinds of requests that operators make about the ranges of a bucket.
const (
	// Split is the kind of a request to cut ranges at given keys. A new range begins at each key, or at a shorter key
	// that divides the same rows.
	Split Kind = "split"
	// Merge is the kind of a request to make one range of all ranges in an interval of keys.
	Merge Kind = "merge"
	// Refresh is the kind of a request to copy the rows of ranges to new partitions, without tombstones.
	Refresh Kind = "refresh"
	// Presplit is the kind of a request to cut ranges exactly at given keys, whether rows lie there or not. The cuts
	// may be kept from merges until a given time.
	Presplit Kind = "presplit"
)

// Ask is an operator's request to split, merge or rewrite ranges of one bucket. Scheduler.Plan returns the moves that
// fulfil an Ask.
type Ask struct {
	Kind Kind `json:"kind"`
	// Keys are the keys at which Split and Presplit cut ranges. The keys of Presplit must ascend.
	Keys keytext.Keys `json:"keys,omitempty"`
	// Spans are intervals of keys. Merge joins the ranges in them, and they must be neighbours. Refresh rewrites the
	// ranges in them, or all ranges of the bucket if Spans is empty.
	Spans []keytext.Span `json:"ranges,omitempty"`
	// Append describes future rows for which Presplit finds the cuts itself. Keys must be empty then.
	Append *Append `json:"append,omitempty"`
	// PinUntil is the time until which the cuts of Presplit are not removed by merges. If PinUntil is zero, merges may
	// remove them at any time.
	PinUntil time.Time `json:"pin_until,omitzero"`
	// MaxRows is the maximum number of rows of the range that Merge makes. If MaxRows is 0, the number is not limited.
	MaxRows int64 `json:"-"`
	// Force is true if Merge may make a range with more than MaxRows rows.
	Force bool `json:"force,omitempty"`
}

// Plan is a list of moves of the ranges of one bucket, based on the bucket's map at one epoch. A Plan comes from an
// operator's request (Ask), from a planner, or from the policy.
type Plan struct {
	Bucket store.BucketID `json:"-"`
	Epoch  uint64         `json:"epoch"`
	Moves  []move.Goal    `json:"moves"`
	// Notes are sentences for the operator, which say which parts of the request need no move, and why.
	Notes []string `json:"notes"`
	// Learned says how the keys of the bucket grow. Only a request with Ask.Append sets Learned.
	Learned *Learned `json:"learned,omitempty"`
}

// Plan returns the moves that fulfil a, an operator's request about a bucket. Plan only reads. The kind of the error is
//   - NotFound if there is no such bucket,
//   - InvalidArgument if the request does not fit the map or the rows of the bucket,
//   - Conflict if some of the ranges are being moved,
//   - Unavailable while the bucket is being deleted.
//
// The error is ErrBrokenMap if the map of the bucket is not valid.
func (g *Scheduler) Plan(ctx context.Context, id store.BucketID, a Ask) (*Plan, error) {
	root, err := g.maps.Load(ctx, id)
	if err != nil {
		return nil, err
	}
	switch root.State {
	case partmap.Closing:
		return nil, store.Errorf(store.Unavailable, "the bucket is being deleted: in a moment it is gone, or back")
	case partmap.Deleted:
		return nil, store.Errorf(store.NotFound, "the bucket is deleted")
	}
	if !a.PinUntil.IsZero() && !a.PinUntil.After(time.Now()) {
		return nil, invalid("a pin until %s is over already", a.PinUntil.UTC().Format(time.RFC3339))
	}
	p := &planner{g: g, ctx: ctx, root: root, plan: &Plan{Bucket: id, Epoch: root.Epoch, Moves: []move.Goal{}, Notes: []string{}}}
	if !a.PinUntil.IsZero() {
		p.pin = a.PinUntil.Unix()
	}
	switch a.Kind {
	case Split:
		err = p.split(a.Keys)
	case Merge:
		err = p.merge(&a)
	case Refresh:
		err = p.refresh(a.Spans)
	case Presplit:
		switch {
		case a.Append == nil:
			err = p.presplit(a.Keys)
		case len(a.Keys) > 0:
			err = invalid("a presplit is given its cuts or finds them, not both")
		default:
			err = p.appends(a.Append)
		}
	default:
		err = invalid("there is nothing called %q to ask for", a.Kind)
	}
	if err != nil {
		return nil, err
	}
	return p.plan, nil
}

// invalid returns an InvalidArgument error. format and args make the text, as in fmt.Errorf.
func invalid(format string, args ...any) error {
	return store.Errorf(store.InvalidArgument, format, args...)
}

// planner makes the plan of moves for one request of an operator, e.g. to split a range.
type planner struct {
	g    *Scheduler
	ctx  context.Context
	root *partmap.Root
	pin  int64 // the time until which cuts are pinned, in Unix seconds, 0 if not pinned
	plan *Plan
}

// note adds a sentence for the operator to the plan. format and args make the text, as in fmt.Sprintf.
func (p *planner) note(format string, args ...any) {
	p.plan.Notes = append(p.plan.Notes, fmt.Sprintf(format, args...))
}

// span returns the interval of keys from start up to end as text for people, e.g. "[the first key, k)" for an empty
// start.
func span(start, end []byte) string {
	s, e := keytext.Format(start), keytext.Format(end)
	if len(start) == 0 {
		s = "the first key"
	}
	if len(end) == 0 {
		e = "the end"
	}
	return fmt.Sprintf("[%s, %s)", s, e)
}

// settled returns a Conflict error if range rg takes part in a move, or if markers of its last move have still to be
// deleted. The range cannot be changed until then.
func (p *planner) settled(rg *partmap.Range) error {
	if rg.Phase != partmap.Settled || rg.SweepPending {
		phase := rg.Phase.String()
		if rg.SweepPending {
			phase = "swept after its last move"
		}
		return store.Errorf(store.Conflict, "the range %s moves at present (%s): wait until it has ended", span(rg.Start, rg.End), phase)
	}
	return nil
}

// holding returns the range of the bucket that contains the given key.
func (p *planner) holding(key []byte) (partmap.Range, error) {
	for rg, err := range p.g.maps.Ranges(p.ctx, p.root, key) {
		return rg, err
	}
	return partmap.Range{}, store.Errorf(store.Corrupt, "the map has no range")
}

// byRange groups keys by the ranges of the bucket that contain them. It calls f once for each of these ranges, with the
// keys inside. keys must be in ascending order.
func (p *planner) byRange(keys [][]byte, f func(rg *partmap.Range, inside [][]byte) error) error {
	for len(keys) > 0 {
		rg, err := p.holding(keys[0])
		if err != nil {
			return err
		}
		n := 1
		for n < len(keys) && rg.Contains(keys[n]) {
			n++
		}
		if err := f(&rg, keys[:n]); err != nil {
			return err
		}
		keys = keys[n:]
	}
	return nil
}

// checkCut returns an InvalidArgument error if a range cannot be cut at the given key, because the key is empty or too
// long.
func checkCut(key []byte) error {
	switch {
	case len(key) == 0:
		return invalid("the empty key lies outside the bucket: its first range begins there, and that can't be cut")
	case len(key) > store.MaxKeyBytes:
		return invalid("a key of %d bytes lies outside the bucket: keys have at most %d", len(key), store.MaxKeyBytes)
	}
	return nil
}

// split plans to cut ranges at the given keys, so that a new range begins at each key, or at a shorter key that divides
// the same rows. The keys may be in any order.
func (p *planner) split(keys [][]byte) error {
	if len(keys) == 0 {
		return invalid("a split needs a key at least")
	}
	for _, k := range keys {
		if err := checkCut(k); err != nil {
			return err
		}
	}
	keys = slices.Clone(keys)
	slices.SortFunc(keys, bytes.Compare)
	keys = slices.CompactFunc(keys, bytes.Equal)
	return p.byRange(keys, p.splitRange)
}

// splitRange plans to cut the range rg at the given keys. A new range begins at each key, or at a shorter key that
// divides the same rows. The keys lie inside rg, in ascending order.
func (p *planner) splitRange(rg *partmap.Range, keys [][]byte) error {
	if string(keys[0]) == string(rg.Start) {
		p.note("there is a cut at %s already", keytext.Format(keys[0]))
		if keys = keys[1:]; len(keys) == 0 {
			return nil
		}
	}
	if err := p.settled(rg); err != nil {
		return err
	}
	c, err := p.g.count(p.ctx, p.root.Bucket, rg, keys)
	if err != nil {
		return err
	}
	if c.rows == 1 {
		return invalid("the range %s holds one key only: there is nothing to divide", span(rg.Start, rg.End))
	}
	goal := move.Goal{Start: rg.Start, End: rg.End}
	var rows []int64 // of the parts
	sum := int64(0)
	for i, k := range keys {
		sum += c.below[i]
		cut := k
		switch {
		case c.rows > 0 && sum == 0 && len(goal.Cuts) == 0 && len(rg.Start) > 0:
			p.note("no key lies between the cut %s and %s: it is cut there already", keytext.Format(rg.Start), keytext.Format(k))
			continue
		case c.before[i] != nil:
			cut = keyspread.Separator(c.before[i], k)
		}
		if len(goal.Cuts) > 0 && c.rows > 0 && sum == 0 {
			p.note("no key lies between two of the given ones, %s being the higher: one cut is enough", keytext.Format(k))
			continue
		}
		goal.Cuts = append(goal.Cuts, cut)
		rows = append(rows, sum)
		sum = 0
	}
	rows = append(rows, sum+c.below[len(keys)])
	if len(goal.Cuts) == 0 {
		return nil
	}
	p.add(goal, rows)
	return nil
}

// add adds the split of a range to the plan. goal is the wanted split. rows has the number of rows of each resulting
// range. The largest of them stays in its partition.
func (p *planner) add(goal move.Goal, rows []int64) {
	total, most := int64(0), int64(-1)
	for i, n := range rows {
		if total += n; n > most {
			goal.Stay, most = i, n
		}
	}
	p.plan.Moves = append(p.plan.Moves, counted(goal, total, total-most))
}

// counted returns the goal g, a wanted change of a bucket's ranges, with two numbers filled in: rows is the number of
// rows in the ranges, and copies is the number of rows that are copied to other partitions.
func counted(g move.Goal, rows, copies int64) move.Goal {
	g.Rows, g.Copies = rows, copies
	return g
}

// presplit plans to cut ranges exactly at the given keys, whether rows lie there or not. The keys must be in ascending
// order. A key at which a range begins already is only noted for the operator.
func (p *planner) presplit(keys [][]byte) error {
	if len(keys) == 0 {
		return invalid("a presplit needs a cut at least")
	}
	for i, k := range keys {
		if err := checkCut(k); err != nil {
			return err
		}
		if i > 0 && string(k) == string(keys[i-1]) {
			return invalid("cut number %d, %s, repeats the one before it", i+1, keytext.Format(k))
		}
		if i > 0 && string(k) < string(keys[i-1]) {
			return invalid("cut number %d, %s, is below the one before it, %s: cuts ascend", i+1, keytext.Format(k), keytext.Format(keys[i-1]))
		}
	}
	var existing []string
	err := p.byRange(keys, func(rg *partmap.Range, inside [][]byte) error {
		if string(inside[0]) == string(rg.Start) {
			existing = append(existing, keytext.Format(inside[0]))
			inside = inside[1:]
		}
		if len(inside) == 0 {
			return nil
		}
		if err := p.settled(rg); err != nil {
			return err
		}
		c, err := p.g.count(p.ctx, p.root.Bucket, rg, inside)
		if err == nil {
			p.add(move.Goal{Start: rg.Start, End: rg.End, Cuts: inside, PinUntil: p.pin}, c.below)
		}
		return err
	})
	if err != nil {
		return err
	}
	if len(existing) > 0 {
		pinned := ""
		if p.pin > 0 {
			pinned = ", and keeps the pin that it has"
		}
		p.note("a cut is there already at %s%s%s", existing[0], more(len(existing)), pinned)
	}
	return nil
}

// more returns the end of a sentence about n cuts that names only the first cut, e.g. " and at 3 others" if n is 4. The
// result is empty if n is 1.
func more(n int) string {
	if n == 1 {
		return ""
	}
	return fmt.Sprintf(" and at %d others", n-1)
}

// ranges returns the ranges of the bucket whose keys lie in the interval s. The error is InvalidArgument if s does not
// begin and end where ranges do, and Conflict if one of the ranges is being moved.
func (p *planner) ranges(s keytext.Span) (out []partmap.Range, err error) {
	for rg, err := range p.g.maps.Ranges(p.ctx, p.root, s.Start) {
		if err != nil {
			return nil, err
		}
		if len(out) == 0 && string(rg.Start) != string(s.Start) {
			return nil, invalid("the bucket is not cut at %s: the range there is %s", keytext.Format(s.Start), span(rg.Start, rg.End))
		}
		if err := p.settled(&rg); err != nil {
			return nil, err
		}
		out = append(out, rg)
		if string(rg.End) == string(s.End) {
			return out, nil
		}
		if len(rg.End) == 0 || len(s.End) > 0 && string(rg.End) > string(s.End) {
			break
		}
	}
	last := out[len(out)-1]
	return nil, invalid("the bucket is not cut at %s: the range there is %s", keytext.Format(s.End), span(last.Start, last.End))
}

// checkSpan returns an InvalidArgument error if the end of the interval s is not above its start.
func checkSpan(s keytext.Span) error {
	if len(s.End) > 0 && bytes.Compare(s.Start, s.End) >= 0 {
		return invalid("the range %s ends before it begins", span(s.Start, s.End))
	}
	return nil
}

// merge plans to join the ranges in the intervals a.Spans, which must be neighbours, into one range.
func (p *planner) merge(a *Ask) error {
	if len(a.Spans) == 0 {
		return invalid("a merge needs a range that covers at least two of the bucket's")
	}
	spans := slices.Clone(a.Spans)
	slices.SortFunc(spans, func(a, b keytext.Span) int { return bytes.Compare(a.Start, b.Start) })
	whole := spans[0]
	for i, s := range spans {
		if err := checkSpan(s); err != nil {
			return err
		}
		if i == 0 {
			continue
		}
		if string(s.Start) != string(whole.End) || len(whole.End) == 0 {
			return invalid("%s and %s are not neighbours: only what lies side by side is merged", span(whole.Start, whole.End), span(s.Start, s.End))
		}
		whole.End = s.End
	}
	ranges, err := p.ranges(whole)
	if err != nil {
		return err
	}
	if len(ranges) == 1 {
		p.note("%s is one range already", span(whole.Start, whole.End))
		return nil
	}
	rows := int64(0)
	for i := range ranges {
		if i > 0 && ranges[i].PinUntil > time.Now().Unix() {
			return invalid("the cut %s is pinned until %s: nothing joins across it", keytext.Format(ranges[i].Start), time.Unix(ranges[i].PinUntil, 0).UTC().Format(time.RFC3339))
		}
		c, err := p.g.count(p.ctx, p.root.Bucket, &ranges[i], nil)
		if err != nil {
			return err
		}
		rows += c.rows
	}
	if a.MaxRows > 0 && rows > a.MaxRows && !a.Force {
		return invalid("merged, %s has %d rows, more than max_rows (%d): it would be split again; --force does it all the same", span(whole.Start, whole.End), rows, a.MaxRows)
	}
	p.plan.Moves = append(p.plan.Moves, counted(move.Merge(whole.Start, whole.End), rows, rows))
	return nil
}

// refresh plans to copy the rows of all ranges in the intervals spans to new partitions, without their tombstones. If
// spans is empty, all ranges of the bucket are copied.
func (p *planner) refresh(spans []keytext.Span) error {
	if len(spans) == 0 {
		spans = []keytext.Span{{}}
	}
	for _, s := range spans {
		if err := checkSpan(s); err != nil {
			return err
		}
		ranges, err := p.ranges(s)
		if err != nil {
			return err
		}
		for i := range ranges {
			rg := &ranges[i]
			c, err := p.g.count(p.ctx, p.root.Bucket, rg, nil)
			if err != nil {
				return err
			}
			p.plan.Moves = append(p.plan.Moves, counted(move.Refresh(rg), c.rows, c.rows))
		}
	}
	return nil
}

// content is the result of a count of the rows in a range: the total number, and the numbers of rows between given
// keys.
type content struct {
	rows int64
	// below[i] is the number of rows from key i-1 up to key i. The first element has the rows below key 0, and the last
	// element has the rows from the last key on.
	below []int64
	// before[i] is the highest key of a row below key i in the range, or nil if the range has no row below key i.
	before [][]byte
}

// count counts the rows of range rg of a bucket, and also the rows between the given keys. The range must not be moved
// meanwhile. The keys lie within the range, in ascending order. count reads rows at the limited rate of moves.
func (g *Scheduler) count(ctx context.Context, id store.BucketID, rg *partmap.Range, keys [][]byte) (*content, error) {
	c := &content{below: make([]int64, len(keys)+1), before: make([][]byte, len(keys))}
	at := 0
	var last []byte
	err := g.rows(ctx, id, rg, store.SliceOptions{}, func(r *store.Row) bool {
		key := r.Key
		for at < len(keys) && bytes.Compare(key, keys[at]) >= 0 {
			c.before[at] = bytes.Clone(last)
			at++
		}
		c.rows++
		c.below[at]++
		last = key
		return true
	})
	for ; at < len(keys); at++ {
		c.before[at] = bytes.Clone(last)
	}
	return c, err
}

// rows calls f for each row of range rg of a bucket, until f returns false. The range must not be moved meanwhile. If
// o.Reverse is true, rows begins at the highest key. rows reads at the limited rate of moves.
func (g *Scheduler) rows(
	ctx context.Context, id store.BucketID, rg *partmap.Range, o store.SliceOptions, f func(r *store.Row) (more bool),
) error {
	const page, tries = 1000, 4
	o.Limit = page
	p := store.Partition{Bucket: id, ID: rg.Partition}
	b := store.Bounds{Start: rg.Start, End: rg.End}
	for {
		if err := g.pace.Take(ctx, page); err != nil {
			return store.Wrap("read rows", err)
		}
		var got store.Page
		var err error
		for range tries {
			got, err = g.store.Slice(ctx, p, b, o)
			if k := store.KindOf(err); err == nil || k != store.Timeout && k != store.Unavailable || ctx.Err() != nil {
				break
			}
		}
		g.pace.Return(page - len(got.Rows))
		if err != nil {
			return store.Wrap("read the rows of "+span(rg.Start, rg.End), err)
		}
		for i := range got.Rows {
			if r := &got.Rows[i]; !cells.IsMarker(r.Value) && !f(r) {
				return nil
			}
		}
		if !got.More {
			return nil
		}
		last := bytes.Clone(got.Rows[len(got.Rows)-1].Key)
		if o.Reverse {
			b.End = last
		} else {
			b.Start, b.StartExclusive = last, true
		}
	}
}
