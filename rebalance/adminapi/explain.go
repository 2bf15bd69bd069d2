package adminapi

import (
	"context"
	"net/http"
	"net/url"

	"github.com/evenkeel/evenkeel/internal/rebalance/balancer"
	"github.com/evenkeel/evenkeel/store"
)

// Explanation is what was decided about a bucket last, and from what; keys in it are base64.
type Explanation struct {
	Bucket string               `json:"bucket"`
	Looks  []balancer.Explained `json:"looks"`
}

// Explain requests the last decisions about a bucket.
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
