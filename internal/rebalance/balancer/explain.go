package balancer

import (
	"bytes"
	"slices"

	"github.com/evenkeel/evenkeel/internal/rebalance/policy"
	"github.com/evenkeel/evenkeel/store"
)

// Explained has decisions about neighbouring ranges of a bucket, and the input from which they were made. It shows an
// operator why ranges were split or merged. An Explained must not be changed.
type Explained struct {
	Input     *policy.Input     `json:"input"`
	Decisions []policy.Decision `json:"decisions"`
}

// acts reports whether one of the decisions in e changes ranges: a split, a merge, a rewrite, or a cut of empty ranges.
// An exact count changes no ranges.
func (e *Explained) acts() bool {
	return slices.ContainsFunc(e.Decisions, func(d policy.Decision) bool {
		return d.Kind != policy.None && d.Kind != policy.Recount
	})
}

// explainedParts is the maximum number of groups of neighbouring ranges in one bucket whose decisions are kept, so that
// an operator can ask for them.
const explainedParts = 8

// covers reports whether the ranges that e has decisions about include all ranges that o has decisions about. If e is
// newer than o, the caller may then drop o.
func (e *Explained) covers(o *Explained) bool {
	ends := func(x *Explained) (start, end []byte) {
		r := x.Input.Ranges
		return r[0].Start, r[len(r)-1].End
	}
	start, end := ends(e)
	from, to := ends(o)
	return bytes.Compare(start, from) <= 0 && (len(end) == 0 || len(to) > 0 && bytes.Compare(end, to) >= 0)
}

// explain stores the decisions e about some ranges of the bucket id, for the method Explain. The last decisions that
// changed ranges are kept even if newer decisions about the same ranges follow.
func (b *Balancer) explain(id store.BucketID, e Explained) {
	last, _ := b.explained.Get(id)
	kept, acted := []Explained{e}, e.acts()
	for i := range last {
		if old := &last[i]; len(kept) < explainedParts && (!e.covers(old) || !acted && old.acts()) {
			kept, acted = append(kept, *old), acted || old.acts()
		}
	}
	b.explained.Add(id, kept)
}

// Explain returns the last decisions about a bucket, the newest ones last. The last decisions that changed ranges are
// included even if newer decisions followed. The result is empty if the bucket was not checked lately. The ranges of a
// large bucket are decided about in groups, and only the last 8 groups are returned.
func (b *Balancer) Explain(id store.BucketID) []Explained {
	last, _ := b.explained.Get(id)
	last = slices.Clone(last)
	slices.Reverse(last)
	return last
}
