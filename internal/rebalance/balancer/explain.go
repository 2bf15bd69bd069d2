package balancer

import (
	"bytes"
	"slices"

	"github.com/evenkeel/evenkeel/internal/rebalance/policy"
	"github.com/evenkeel/evenkeel/store"
)

// Explained is what was decided about neighbouring ranges of a bucket, and from what. It must not be changed.
type Explained struct {
	Input     *policy.Input     `json:"input"`
	Decisions []policy.Decision `json:"decisions"`
}

// acts reports whether something was to be moved.
func (e *Explained) acts() bool {
	return slices.ContainsFunc(e.Decisions, func(d policy.Decision) bool {
		return d.Kind != policy.None && d.Kind != policy.Recount
	})
}

// explainedParts bounds the parts of a bucket whose decisions are kept.
const explainedParts = 8

// covers reports whether the input has all ranges of another one.
func (e *Explained) covers(o *Explained) bool {
	ends := func(x *Explained) (start, end []byte) {
		r := x.Input.Ranges
		return r[0].Start, r[len(r)-1].End
	}
	start, end := ends(e)
	from, to := ends(o)
	return bytes.Compare(start, from) <= 0 && (len(end) == 0 || len(to) > 0 && bytes.Compare(end, to) >= 0)
}

// explain keeps the last decisions about the parts of a bucket, and the last ones by which something moved.
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

// Explain returns the last decisions about a bucket, and before them the last ones that moved something, if those are
// others. There are none where the bucket was not looked at lately. A bucket of many ranges is decided about part by
// part: those are of its last parts.
func (b *Balancer) Explain(id store.BucketID) []Explained {
	last, _ := b.explained.Get(id)
	last = slices.Clone(last)
	slices.Reverse(last)
	return last
}
