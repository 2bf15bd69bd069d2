package policy

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// spend replaces the decisions that exceed the budget of moves with decisions to do nothing. The most urgent decisions
// get the budget first. spend also replaces decisions that must wait for a daily period in Budget.Hours.
func (j *judge) spend() {
	var want []*Decision
	for i := 0; i < len(j.of); i = j.of[i].To {
		if v := j.of[i]; v.Kind == Split || v.Kind == Merge || v.Kind == Refresh {
			want = append(want, v)
		}
	}
	slices.SortStableFunc(want, func(a, b *Decision) int {
		if a.Kind == Merge && b.Kind == Merge {
			return cmp.Compare(a.Copies*int64(b.To-b.From-1), b.Copies*int64(a.To-a.From-1)) // rows per range saved
		}
		return cmp.Or(cmp.Compare(urgency(a), urgency(b)), cmp.Compare(b.Rows, a.Rows))
	})
	open := j.open()
	moves, rows := j.Input.Moves, j.Input.Rows
	for _, v := range want {
		urgent := v.Kind == Split && float64(v.Rows) > Urgent*float64(j.MaxRows)
		n := v.moves()
		over := j.Budget.Moves > 0 && moves+n > j.Budget.Moves || j.Budget.Rows > 0 && rows+v.Copies > j.Budget.Rows
		switch {
		case !open && !urgent:
			j.refuse(v, OffHours, "rows are moved at other hours", j.opens())
		case over && (moves > 0 || rows > 0):
			j.refuse(v, Spent, fmt.Sprintf("%d moves of %d rows are in flight or come first", moves, rows), time.Time{})
		default:
			moves, rows = moves+n, rows+v.Copies
		}
	}
}

// refuse replaces the decision v with decisions to do nothing (kind None), one for each range of v. The parameter why
// is the reason in a few words, and text explains it to people. The parameter `until` is the time at which the reason
// ends, or zero if that time is unknown.
func (j *judge) refuse(v *Decision, why Why, text string, until time.Time) {
	for i := v.From; i < v.To; i++ {
		no := j.decision(v.Kind, i, why, "%s", v.Text)
		no.refuse(why, text)
		no.Until = until
		j.set(no)
	}
}

// refuse changes the decision d to do nothing (kind None) for the reason why. The new text of d names the former
// decision, followed by the parameter text, which says why nothing is done.
func (d *Decision) refuse(why Why, text string) {
	*d = Decision{From: d.From, To: d.To, Kind: None, Rows: d.Rows, Why: why,
		Text: fmt.Sprintf("%s (%s), but %s", d.Kind, d.Text, text)}
}

// urgency returns the rank of the decision v in the order in which decisions get the budget of moves. Rank 0 comes
// first: splits of ranges above the maximum. Rank 1 are refreshes, rank 2 other splits, and rank 3 merges.
func urgency(v *Decision) int {
	switch {
	case v.Kind == Split && v.Why == Rows:
		return 0
	case v.Kind == Refresh:
		return 1
	case v.Kind == Split:
		return 2
	}
	return 3
}

// moves returns the number of partitions that take part, as sources or destinations of rows, when the decision v is
// carried out. The budget limits that number.
func (v *Decision) moves() int {
	switch v.Kind {
	case Split:
		return v.Parts
	case Merge:
		if v.Copies == 0 {
			return 1 // empty sources are not copied: only the fresh partition counts
		}
		return v.To - v.From + 1 + len(v.Cuts)
	}
	return 2 // a refresh
}

// opens returns the next time at which a daily period of Budget.Hours begins, when rows may be moved again. The result
// is zero if Budget.Hours is empty.
func (j *judge) opens() (at time.Time) {
	today := j.Now.UTC().Truncate(24 * time.Hour)
	for _, h := range j.Budget.Hours {
		next := today.Add(h.From)
		if !next.After(j.Now) {
			next = next.Add(24 * time.Hour)
		}
		if at.IsZero() || next.Before(at) {
			at = next
		}
	}
	return at
}

// open reports whether Budget.Hours allows rows to be moved at the present time of day. Rows may always be moved if
// Budget.Hours is empty.
func (j *judge) open() bool {
	const day = 24 * time.Hour
	at := j.Now.Sub(j.Now.UTC().Truncate(day)) % day
	return len(j.Budget.Hours) == 0 || slices.ContainsFunc(j.Budget.Hours, func(h Hours) bool {
		if h.From < h.To {
			return at >= h.From && at < h.To
		}
		return at >= h.From || at < h.To
	})
}
