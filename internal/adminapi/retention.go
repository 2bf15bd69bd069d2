package adminapi

import (
	"context"
	"net/http"

	"github.com/evenkeel/evenkeel/internal/rebalance/engine"
	"github.com/evenkeel/evenkeel/retention"
	"github.com/evenkeel/evenkeel/store"
)

// OldAsk is a request for a list of the old keys that rules of retention would delete now. Operators use it to try
// rules before the rules are applied.
type OldAsk struct {
	// Bucket is the name of the bucket to check; empty means all buckets.
	Bucket string `json:"bucket,omitempty"`
	// Rules is a text in YAML that retention.Parse reads. If it is empty, the rules of the process that leads are
	// checked.
	Rules string `json:"rules,omitempty"`
}

// Old lists the old keys, by bucket and rule, that rules of retention would delete now.
type Old struct {
	// Rules are the rules of retention that were checked, as text.
	Rules []string      `json:"rules"`
	Drops []engine.Drop `json:"drops"`
	// Omitted is the number of elements that are left out of Drops, which has at most 1,000.
	Omitted int `json:"omitted,omitempty"`
}

// mostOld is the maximum number of elements in a list of old keys. Each element is about one bucket and one rule of
// retention.
const mostOld = 1000

// oldKeys answers a request with the old keys that the rules of retention would delete now. It deletes nothing.
func (h *handler) oldKeys(r *http.Request, q OldAsk) (any, error) {
	if err := h.Leads(r.Context()); err != nil {
		return nil, err
	}
	rules := h.o.Retention
	if q.Rules != "" {
		var err error
		if rules, err = retention.Parse([]byte(q.Rules)); err != nil {
			return nil, store.Errorf(store.InvalidArgument, "%w", err)
		}
	}
	if len(rules) == 0 {
		return nil, store.Errorf(store.NotFound, "the process that leads has no rules of retention: it was started "+
			"without --retention; give rules to try here")
	}
	if q.Bucket != "" {
		if _, err := h.bucket(r.Context(), q.Bucket); err != nil {
			return nil, err
		}
	}
	out := Old{Rules: []string{}, Drops: []engine.Drop{}}
	for i := range rules {
		out.Rules = append(out.Rules, rules[i].String())
	}
	err := h.Retention().Look(r.Context(), q.Bucket, rules, func(_ store.BucketID, d *engine.Drop) error {
		if len(out.Drops) == mostOld {
			out.Omitted++
		} else {
			out.Drops = append(out.Drops, *d)
		}
		return nil
	}, nil)
	return out, err
}

// Old asks the server which old keys the rules of retention in q would delete now. Nothing is deleted.
func (c *Client) Old(ctx context.Context, q OldAsk) (o Old, err error) {
	return o, c.do(ctx, http.MethodPost, "/v1/retention", q, &o)
}
