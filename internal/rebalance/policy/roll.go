package policy

import (
	"bytes"
	"errors"
	"slices"

	"github.com/evenkeel/evenkeel/internal/rebalance/forecast"
	"github.com/evenkeel/evenkeel/store"
)

const (
	// finer is how many times finer than wanted the next keys are forecast.
	finer = 4
	// NewestKeys is how many of the highest keys are read for a forecast; EnoughKeys are few, but do: if a range has
	// fewer, the ranges below it through which the same appends have come are read as well.
	NewestKeys = 1000
	EnoughKeys = NewestKeys / 4
)

// roll cuts ahead of the highest key, or of the lowest where keys descend, where the next keys can be forecast; else
// right beside it.
func (in *Input) roll(d *Decision) {
	appended, tail := &in.Ranges[d.Appended], &in.Ranges[d.From]
	p := in.Policy.sized(&appended.Stats)
	newest := appended.Newest
	if newest == nil {
		d.Kind, d.Oldest = Need, d.Appended
		for !d.Down && d.Oldest > 0 && !in.Ranges[d.Oldest-1].Moves &&
			in.Ranges[d.Oldest-1].Stats.AppendShare >= p.AppendShare {
			d.Oldest--
		}
		return
	}
	if len(newest.Keys) == 0 {
		d.refuse(NextUnknown, "it has no keys")
		return
	}
	rows := float64(appended.Stats.Rows)
	each := forecast.Fill * float64(p.MaxRows)
	first := max(each-rows, 0)
	if d.Why == Dead {
		first = 0 // what is deleted is to stay behind
	}
	between := d.From - d.Appended
	ahead := forecast.Ahead
	if d.Down {
		between, ahead = -between, forecast.Below
	}
	o := forecast.Options{
		// The first cut must not be below what comes until it takes puts.
		First: max(first, d.Rate*p.Effect.Seconds()), Each: each / finer, N: finer * (d.Ahead + between + 1),
		RowsPerSecond: d.Rate, Now: in.Now, Written: newest.Written,
	}
	f, err := ahead(newest.Keys, o)
	if d.Reserve && (err != nil || !f.Counted) {
		// Where keys have a time in them the ranges would fit the present rate only, and numbers may not go on for so long.
		n := max(between, 0)
		if d.Ahead = p.soon(d.Rate, n); n > 0 && p.room(appended.Stats.Rows, n) >= p.gain(d.Rate) {
			d.refuse(Rolled, "what comes later can't be forecast")
			return
		}
		o.N = finer * (d.Ahead + between + 1)
		f, err = ahead(newest.Keys, o)
	}
	var cuts [][]byte
	var unpredictable *forecast.Unpredictable
	full := d.Why == Dead || rows+d.Rate*p.Lead.Seconds() >= float64(p.MaxRows)
	switch {
	case err == nil:
		cuts = f.Cuts
		if between > 0 {
			// A range that begins ahead of the appends already, somewhere among the cuts, is to become as full as the
			// others.
			for len(cuts) > 0 && !d.beyond(cuts[0], tail) {
				cuts = cuts[1:]
			}
			cuts = cuts[min(len(cuts), finer-1):]
		}
		d.Text += "; " + f.How
	case errors.As(err, &unpredictable) && between == 0 && full && len(newest.Keys) >= forecast.Fewest:
		// As late as possible: what comes until the cut takes puts lies beyond it, and is copied.
		top := newest.Keys[len(newest.Keys)-1]
		switch {
		case d.Down:
			cuts = [][]byte{bytes.Clone(newest.Keys[0])}
			d.Text += "; cut right below the lowest key: " + err.Error()
		case len(top) < store.MaxKeyBytes:
			cuts = [][]byte{append(bytes.Clone(top), 0)}
			d.Text += "; cut right above the highest key: " + err.Error()
		}
	default:
		d.refuse(NextUnknown, err.Error())
		return
	}
	for i := 0; i < len(cuts) && len(d.Cuts) < d.Ahead; i += finer {
		if c := cuts[i]; bytes.Compare(c, tail.Start) > 0 && (len(tail.End) == 0 || bytes.Compare(c, tail.End) < 0) {
			d.Cuts = append(d.Cuts, c)
		}
	}
	if len(d.Cuts) == 0 {
		d.refuse(NextUnknown, "no cut ahead lies in the range")
		return
	}
	if d.Down {
		slices.Reverse(d.Cuts)
		d.Stay = len(d.Cuts)
	}
}

// beyond reports whether a cut lies beyond the end of a range at which a stream comes in.
func (d *Decision) beyond(cut []byte, tail *Range) bool {
	if d.Down {
		return bytes.Compare(cut, tail.End) < 0
	}
	return bytes.Compare(cut, tail.Start) > 0
}

// insteadOfRoll splits a range that is too large, and for which there is no cut ahead.
func (in *Input) insteadOfRoll(d *Decision) {
	j := judge{Policy: &in.Policy, Input: in}
	if !j.fresh(&in.Ranges[d.From].Stats) {
		*d = j.recount(d.From, Suspect, "%s", d.Text)
		return
	}
	d.Kind, d.Why, d.Grown, d.Parts = Split, Rows, d.Rows, int(max(2, ceil(d.Rows, j.TargetRows)))
}
