package policy

import (
	"bytes"
	"errors"

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

// roll cuts ahead of the highest key where the next keys can be forecast, else right above it.
func (in *Input) roll(d *Decision) {
	p, appended, tail := &in.Policy, &in.Ranges[d.Appended], &in.Ranges[d.From]
	newest := appended.Newest
	if newest == nil {
		d.Kind, d.Oldest = Need, d.Appended
		for d.Oldest > 0 && !in.Ranges[d.Oldest-1].Moves && in.Ranges[d.Oldest-1].Stats.AppendShare >= p.AppendShare {
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
	f, err := forecast.Ahead(newest.Keys, forecast.Options{
		// The first cut must not be below what comes until it takes puts.
		First: max(each-rows, d.Rate*p.Effect.Seconds()), Each: each / finer, N: finer * (d.Ahead + d.From - d.Appended + 1),
		RowsPerSecond: d.Rate, Now: in.Now, Written: newest.Written,
	})
	var cuts [][]byte
	var unpredictable *forecast.Unpredictable
	top := newest.Keys[len(newest.Keys)-1]
	switch {
	case err == nil:
		cuts = f.Cuts
		if d.From > d.Appended {
			// A range that begins ahead of the appends already, somewhere among the cuts, is to become as full as the
			// others.
			for len(cuts) > 0 && bytes.Compare(cuts[0], tail.Start) <= 0 {
				cuts = cuts[1:]
			}
			cuts = cuts[min(len(cuts), finer-1):]
		}
		d.Text += "; " + f.How
	case errors.As(err, &unpredictable) && len(newest.Keys) >= forecast.Fewest && d.From == d.Appended &&
		rows+d.Rate*p.Lead.Seconds() >= float64(p.MaxRows) && len(top) < store.MaxKeyBytes:
		// As late as possible: what comes until the cut takes puts lies above it, and is copied.
		cuts = [][]byte{append(bytes.Clone(top), 0)}
		d.Text += "; cut right above the highest key: " + err.Error()
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
	}
}
