package policy

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"time"

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
	between := d.From - d.Appended
	ahead := forecast.Ahead
	if d.Down {
		between, ahead = -between, forecast.Below
	}
	if seen := newest.rate(in.Now); seen > d.Rate && appended.Stats.Puts < NewestKeys {
		// Of a load that has just begun counters have not been told all.
		if d.Rate = seen; !d.Reserve {
			d.Ahead = max(d.Ahead, p.soon(seen, max(between, 0)))
		}
	}
	if begins(&appended.Stats) && d.Why != Dead && rows+p.gain(d.Rate) < float64(p.MaxRows) {
		d.refuse(Within, fmt.Sprintf("no more than %.1f have come per second", d.Rate))
		return
	}
	options := func(fill float64) forecast.Options {
		each := fill * float64(p.MaxRows)
		first := max(each-rows, 0)
		if d.Why == Dead {
			first = 0 // what is deleted is to stay behind
		}
		return forecast.Options{
			// The first cut must not be below what comes until it takes puts.
			First: max(first, d.Rate*p.Effect.Seconds()), Each: each / finer, N: finer * (d.Ahead + between + 1),
			RowsPerSecond: d.Rate, Now: in.Now, Written: newest.Written,
		}
	}
	o := options(forecast.Fill)
	f, err := ahead(newest.Keys, o)
	if err == nil && f.Counted && !slices.ContainsFunc(in.Ranges, func(r Range) bool { return r.Stats.Dead > 0 }) {
		o = options(forecast.Counted)
		f, err = ahead(newest.Keys, o)
	}
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
			cuts = d.onwards(cuts, tail, func(first float64) (*forecast.Forecast, error) {
				o := o
				o.First += first
				return ahead(newest.Keys, o)
			}, o.Each)
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

// rate is how many of the keys have come per second, until now.
func (n *Newest) rate(now time.Time) float64 {
	if len(n.Written) == 0 {
		return 0
	}
	took := now.Sub(time.UnixMicro(slices.Min(n.Written)))
	return float64(len(n.Keys)) / max(took.Seconds(), 1)
}

// onwards returns cuts beyond a range that begins ahead of the stream already: it is to become as full as the others, so
// the cuts are shifted, by less than each rows, until one lies right before where it begins.
func (d *Decision) onwards(
	cuts [][]byte, tail *Range, shifted func(rows float64) (*forecast.Forecast, error), each float64,
) (out [][]byte) {
	var near []byte
	for k := range finer {
		if k > 0 {
			f, err := shifted(float64(k) / finer * each)
			if err != nil {
				break
			}
			cuts = f.Cuts
		}
		n := 0
		for n < len(cuts) && !d.beyond(cuts[n], tail) {
			n++
		}
		switch {
		case n == 0 && near == nil:
			out = cuts[min(len(cuts), finer-1):]
		case n > 0 && (near == nil || d.Down == (bytes.Compare(cuts[n-1], near) < 0)):
			near, out = cuts[n-1], cuts[min(len(cuts), n-1+finer):]
		}
	}
	return out
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
