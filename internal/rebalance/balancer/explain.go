package balancer

import (
	"bytes"
	"slices"

	"github.com/evenkeel/evenkeel/internal/rebalance/policy"
	"github.com/evenkeel/evenkeel/store"
)

// Explained has some decisions about neighbouring ranges of a bucket, and the input from which these decisions were
// made. It must not be changed.
type Explained struct {
	Input     *policy.Input     `json:"input"`
	Decisions []policy.Decision `json:"decisions"`
}

// acts reports whether one of the decisions in e changes ranges, so that rows are moved or ranges are cut.
func (e *Explained) acts() bool {
	return slices.ContainsFunc(e.Decisions, func(d policy.Decision) bool {
		return d.Kind != policy.None && d.Kind != policy.Recount
	})
}

// explainedParts is the maximum number of groups of neighbouring ranges of one bucket whose decisions are kept.
const explainedParts = 8

// covers reports whether the decisions in e are about all ranges that the decisions in o are about.
func (e *Explained) covers(o *Explained) bool {
	ends := func(x *Explained) (start, end []byte) {
		r := x.Input.Ranges
		return r[0].Start, r[len(r)-1].End
	}
	start, end := ends(e)
	from, to := ends(o)
	return bytes.Compare(start, from) <= 0 && (len(end) == 0 || len(to) > 0 && bytes.Compare(end, to) >= 0)
}

// explain keeps e, the last decisions about some ranges of a bucket, for the operator. The last decisions that moved
// ranges are kept even if newer ones about the same ranges follow.
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

// Explain returns the last decisions about a bucket. Before them come the last decisions that moved ranges, if these
// are others. The result is empty if the bucket was not looked at lately. The ranges of a large bucket are decided
// about in groups, and only the last groups are returned.
func (b *Balancer) Explain(id store.BucketID) []Explained {
	last, _ := b.explained.Get(id)
	last = slices.Clone(last)
	slices.Reverse(last)
	return last
}
