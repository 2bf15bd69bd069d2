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
	// finer is the number of possible cuts that a forecast returns for each cut that is wanted. The best of the
	// possible cuts are used.
	finer = 4
	// NewestKeys is the number of the highest keys of a range that are read for a forecast of the next keys. EnoughKeys
	// is a smaller number of keys that is enough. If a range has fewer than EnoughKeys keys, the ranges below it that
	// the same appends have filled are read as well.
	NewestKeys = 1000
	EnoughKeys = NewestKeys / 4
)

// roll sets the keys at which the decision d (of the kind Roll) cuts empty ranges for the next appends. The keys come
// from a forecast of the keys beyond the highest key, or beyond the lowest key if keys descend. Without a forecast, a
// range that is nearly full is cut right beside its highest or lowest key. In these cases d changes:
//   - If the newest keys have not been read, d becomes a Need, which asks for these keys.
//   - If no cut is found, or none is needed yet, d becomes a None, which does nothing.
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
		// A load that has just begun has not been fully reported by the counters.
		if d.Rate = seen; !d.Reserve {
			d.Ahead = max(d.Ahead, p.soon(seen, max(between, 0)))
		}
	}
	if begins(&appended.Stats) && d.Why != Dead && rows+p.gain(d.Rate)/2 < float64(p.MaxRows) {
		// A few keys show the rate only roughly, and there is time to see more keys.
		d.refuse(Within, fmt.Sprintf("no more than %.1f have come per second", d.Rate))
		return
	}
	options := func(fill float64) forecast.Options {
		each := fill * float64(p.MaxRows)
		first := max(each-rows, 0)
		if d.Why == Dead {
			first = 0 // the deleted rows are to stay behind
		}
		return forecast.Options{
			// Keys that come until the first cut takes puts must lie below the cut.
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
		// Where keys contain a time, the ranges would fit the present rate only. Numbers that do not count the rows may
		// not go on for long enough.
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
			cuts = d.onwards(tail, func(first float64) (*forecast.Forecast, error) {
				o := o
				o.First += first
				return ahead(newest.Keys, o)
			}, o.Each)
		}
		d.Text += "; " + f.How
	case errors.As(err, &unpredictable) && between == 0 && full && len(newest.Keys) >= forecast.Fewest:
		// Cut as late as possible: rows that come before the cut takes puts lie beyond it, and are copied.
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

// rate returns the number of keys written per second, from the oldest of the keys until now. The result is 0 if the
// times at which the keys were written are not known.
func (n *Newest) rate(now time.Time) float64 {
	if len(n.Written) == 0 {
		return 0
	}
	took := now.Sub(time.UnixMicro(slices.Min(n.Written)))
	return float64(len(n.Keys)) / max(took.Seconds(), 1)
}

// onwards returns the cuts to make beyond tail, an empty range that was cut earlier for keys to come. The first of
// these cuts should lie a full range beyond the start of tail. The function shifted makes a forecast whose cuts are
// moved on by a number of rows. The parameter each is the number of rows between two cuts.
//
// Several forecasts are made, whose cuts lie a little further on each time. The forecast with a cut closest to the
// start of tail is taken, and of it the cuts that lie at least a full range after that one.
func (d *Decision) onwards(
	tail *Range, shifted func(rows float64) (*forecast.Forecast, error), each float64,
) (out [][]byte) {
	var near []byte
	for k := range finer {
		f, err := shifted(float64(k) / finer * each)
		if err != nil {
			break
		}
		cuts, n := f.Cuts, 0
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

// beyond reports whether a cut lies inside the empty range tail or after it, in the direction in which new keys come.
// It is false for a cut exactly at the edge where keys enter the range.
func (d *Decision) beyond(cut []byte, tail *Range) bool {
	if d.Down {
		return bytes.Compare(cut, tail.End) < 0
	}
	return bytes.Compare(cut, tail.Start) > 0
}

// insteadOfRoll handles a decision d to cut empty ranges for appends (Roll) for which no cuts were found. It is called
// if the range is too large, and changes d into a split of the range, or into an exact count before the split.
func (in *Input) insteadOfRoll(d *Decision) {
	j := judge{Policy: &in.Policy, Input: in}
	if !j.fresh(&in.Ranges[d.From].Stats) {
		*d = j.recount(d.From, Suspect, "%s", d.Text)
		return
	}
	d.Kind, d.Why, d.Grown, d.Parts = Split, Rows, d.Rows, int(max(2, ceil(d.Rows, j.TargetRows)))
}
