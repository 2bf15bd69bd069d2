package balancer

import (
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

// explain keeps the last decisions about a bucket, and the last ones by which something moved.
func (b *Balancer) explain(id store.BucketID, e Explained) {
	last, _ := b.explained.Get(id)
	kept := []Explained{e}
	for i := range last {
		if last[i].acts() && !e.acts() {
			kept = append(kept, last[i])
			break
		}
	}
	b.explained.Add(id, kept)
}

// Explain returns the last decisions about a bucket, and before them the last ones that moved something, if those are
// others. There are none where the bucket was not looked at lately. Of a bucket of very many ranges, which are decided
// about part by part, it is the last part.
func (b *Balancer) Explain(id store.BucketID) []Explained {
	last, _ := b.explained.Get(id)
	last = slices.Clone(last)
	slices.Reverse(last)
	return last
}
