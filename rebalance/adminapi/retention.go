package adminapi

import (
	"context"
	"net/http"

	"github.com/evenkeel/evenkeel/rebalance"
	"github.com/evenkeel/evenkeel/retention"
	"github.com/evenkeel/evenkeel/store"
)

// OldAsk asks what rules of retention would drop now.
type OldAsk struct {
	// Bucket that is looked at; empty: all.
	Bucket string `json:"bucket,omitempty"`
	// Rules as retention.Parse reads them; empty: those of the process that leads.
	Rules string `json:"rules,omitempty"`
}

// Old is what rules of retention would drop now.
type Old struct {
	// Rules that were looked at.
	Rules []string         `json:"rules"`
	Drops []rebalance.Drop `json:"drops"`
	// Omitted drops there are besides.
	Omitted int `json:"omitted,omitempty"`
}

// mostOld bounds the drops of an answer.
const mostOld = 1000

// oldKeys finds what rules would drop. It changes nothing.
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
	out := Old{Rules: []string{}, Drops: []rebalance.Drop{}}
	for i := range rules {
		out.Rules = append(out.Rules, rules[i].String())
	}
	err := h.Retention().Look(r.Context(), q.Bucket, rules, func(_ store.BucketID, d *rebalance.Drop) error {
		if len(out.Drops) == mostOld {
			out.Omitted++
		} else {
			out.Drops = append(out.Drops, *d)
		}
		return nil
	}, nil)
	return out, err
}

// Old requests what rules of retention would drop now.
func (c *Client) Old(ctx context.Context, q OldAsk) (o Old, err error) {
	return o, c.do(ctx, http.MethodPost, "/v1/retention", q, &o)
}
