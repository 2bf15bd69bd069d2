package adminapi

import (
	"context"
	"net/http"
	"net/url"

	"github.com/evenkeel/evenkeel/internal/rebalance/balancer"
	"github.com/evenkeel/evenkeel/store"
)

// Explanation holds the last decisions of the rebalancer about the ranges of a bucket (to split, to merge or to leave
// them), with the figures on which the decisions are based. Keys in it are in base64.
type Explanation struct {
	Bucket string               `json:"bucket"`
	Looks  []balancer.Explained `json:"looks"`
}

// Explain returns the last decisions of the rebalancer about the ranges of the named bucket. The error is NotFound if
// there were none lately.
func (c *Client) Explain(ctx context.Context, bucket string) (e Explanation, err error) {
	return e, c.do(ctx, http.MethodGet, "/v1/explain?"+url.Values{"bucket": {bucket}}.Encode(), nil, &e)
}

func (h *handler) explain(r *http.Request) (any, error) {
	bucket, id, err := h.asked(r, paramsOf(r))
	if err != nil {
		return nil, err
	}
	looks := h.Balancer().Explain(id)
	if len(looks) == 0 {
		return nil, store.Errorf(store.NotFound, "nothing was decided about the bucket %q lately", bucket)
	}
	return Explanation{bucket, looks}, nil
}
