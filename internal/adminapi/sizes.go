package adminapi

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/evenkeel/evenkeel/internal/rebalance/balancer"
	"github.com/evenkeel/evenkeel/rebalance"
	"github.com/evenkeel/evenkeel/store"
)

// Size holds the estimated size and load of a range of a bucket, and what the rebalancer would do about the range now,
// e.g. split it.
type Size struct {
	Span
	Partition string `json:"partition"`
	// Known is true if Rows is based on an exact count. If Known is false, Rows is a lower bound.
	Known     bool      `json:"known"`
	Rows      int64     `json:"rows"`
	Bytes     int64     `json:"bytes"`
	Dead      int64     `json:"dead"`
	Recounted time.Time `json:"recounted,omitzero"`
	Counted   int64     `json:"recounted_rows"`
	Puts      float64   `json:"puts_per_s"`
	Deletes   float64   `json:"deletes_per_s"`
	Reads     float64   `json:"reads_per_s"`
	Growth    float64   `json:"growth_rows_per_s"`
	Appends   float64   `json:"append_share"`
	Pinned    time.Time `json:"pinned_until,omitzero"`
	// Verdict is the decision that the rebalancer would make now, like "split" or "none". Why is the reason in one
	// word, and Text is the reason in a sentence.
	Verdict string `json:"verdict"`
	Why     string `json:"why"`
	Text    string `json:"text,omitempty"`
}

// Recount is a request to count exactly the rows of ranges: of all ranges of the bucket that have keys in the intervals
// Spans. If Spans is empty, all ranges of the bucket are counted.
type Recount struct {
	Bucket string `json:"bucket"`
	Spans  []Span `json:"ranges,omitempty"`
}

// Line is one line of an answer that lists the ranges of a bucket. Exactly one of its fields is set. The last line has
// End or Problem.
type Line struct {
	Size      *Size                `json:"size,omitempty"`
	Recounted *balancer.Recounted  `json:"recounted,omitempty"`
	Partition *rebalance.Partition `json:"partition,omitempty"`
	End       *End                 `json:"end,omitempty"`
	Problem   *Problem             `json:"problem,omitempty"`
}

// End is the last line of an answer that lists the ranges of a bucket. It has the epoch (version) of the bucket's
// partition map that was read, and the limits of sizes.
type End struct {
	Epoch uint64 `json:"epoch"`
	rebalance.Limits
}

var errNoBalancer = store.Errorf(store.NotFound,
	"nobody looks after sizes here: the process was started with neither --counter nor --rebalance-interval")

// looks answers a request about the ranges of a bucket with a stream of lines. The function f finds the ranges, and
// calls line for each of them. Its result is the epoch (version) of the bucket's partition map. If this process does
// not watch the sizes of the bucket, looks answers with an error instead.
func (h *handler) looks(
	w http.ResponseWriter, r *http.Request, bucket string, f func(id store.BucketID, line func(Line) error) (uint64, error),
) {
	id, err := h.bucket(r.Context(), bucket)
	if err == nil {
		err = h.leads(r.Context(), bucket)
	}
	if err != nil {
		fail(w, err)
		return
	}
	begun := false
	send := lines[Line](w)
	epoch, err := f(id, func(l Line) error { begun = true; return send(l) })
	switch {
	case err != nil && !begun:
		fail(w, err)
	case err != nil:
		_ = send(Line{Problem: problemOf(err)})
	default:
		_ = send(Line{End: &End{Epoch: epoch, Limits: h.Balancer().Limits()}})
	}
}

func (h *handler) sizes(w http.ResponseWriter, r *http.Request) {
	h.looks(w, r, r.URL.Query().Get("bucket"), func(id store.BucketID, line func(Line) error) (uint64, error) {
		return h.Balancer().Look(r.Context(), id, nil, func(x balancer.Seen) error {
			return line(Line{Size: new(sizeOf(&x))})
		})
	})
}

func sizeOf(x *balancer.Seen) Size {
	s := &x.Stats
	out := Size{
		Span: Span{Start: bytes.Clone(x.Start), End: bytes.Clone(x.End)}, Partition: x.Place.Partition.String(),
		Known: s.Known, Rows: s.Rows, Bytes: s.Bytes, Dead: s.Dead, Recounted: utc(s.Recounted), Counted: s.RecountedRows,
		Puts: s.PutsPerS, Deletes: s.DeletesPerS, Reads: s.ReadsPerS, Growth: s.GrowthRowsPerS, Appends: s.AppendShare,
		Verdict: string(x.Verdict.Kind), Why: string(x.Verdict.Why), Text: x.Verdict.Text,
	}
	if x.PinUntil.After(time.Now()) {
		out.Pinned = utc(x.PinUntil)
	}
	return out
}

func (h *handler) recount(w http.ResponseWriter, r *http.Request) {
	var q Recount
	if err := decode(r, &q); err != nil {
		fail(w, err)
		return
	}
	spans := q.Spans
	if len(spans) == 0 {
		spans = []Span{{}}
	}
	h.looks(w, r, q.Bucket, func(id store.BucketID, line func(Line) error) (epoch uint64, err error) {
		counted := func(x balancer.Recounted) error { return line(Line{Recounted: &x}) }
		for _, s := range spans {
			if epoch, err = h.Balancer().Recount(r.Context(), id, s, counted); err != nil {
				return 0, err
			}
		}
		return epoch, nil
	})
}

func (h *handler) layout(w http.ResponseWriter, r *http.Request) {
	q := paramsOf(r)
	exact := q.number("exact")
	if q.err != nil {
		fail(w, q.err)
		return
	}
	h.looks(w, r, q.Get("bucket"), func(id store.BucketID, line func(Line) error) (uint64, error) {
		return h.Balancer().Layout(r.Context(), id, exact > 0, func(p rebalance.Partition) error {
			if p.Quanta == nil {
				p.Quanta = []rebalance.Quantum{} // a list in JSON, not null
			}
			return line(Line{Partition: &p})
		})
	})
}

// Sizes calls f with the size of each range of the named bucket, in the order of the keys. An error of f ends the call.
// The result has the version of the bucket's partition map and the limits of sizes.
func (c *Client) Sizes(ctx context.Context, bucket string, f func(Size) error) (End, error) {
	return c.ranges(ctx, "/v1/sizes?"+url.Values{"bucket": {bucket}}.Encode(), nil, func(l *Line) error {
		if l.Size == nil {
			return nil
		}
		return f(*l.Size)
	})
}

// Recount lets the server count the rows of ranges exactly, as the request r says, and calls f with the result of each
// range. An error of f ends the call.
func (c *Client) Recount(ctx context.Context, r Recount, f func(balancer.Recounted) error) (End, error) {
	return c.ranges(ctx, "/v1/recount", r, func(l *Line) error {
		if l.Recounted == nil {
			return nil
		}
		return f(*l.Recounted)
	})
}

// Layout calls f with each partition of a bucket and the distribution of the partition's rows over its keys, as a
// planner of moves needs it. If exact is true, the server first counts every row.
func (c *Client) Layout(
	ctx context.Context, bucket string, exact bool, f func(rebalance.Partition) error,
) (End, error) {
	q := url.Values{"bucket": {bucket}}
	if exact {
		q.Set("exact", "1")
	}
	return c.ranges(ctx, "/v1/layout?"+q.Encode(), nil, func(l *Line) error {
		if l.Partition == nil {
			return nil
		}
		return f(*l.Partition)
	})
}

func (c *Client) ranges(ctx context.Context, path string, in any, f func(*Line) error) (end End, err error) {
	return end, eachLine(ctx, c, path, in, func(l *Line) (last bool, err error) {
		switch {
		case l.Problem != nil:
			return true, l.Problem.err()
		case l.End != nil:
			end = *l.End
			return true, nil
		}
		if err := f(l); err != nil {
			return true, fmt.Errorf("reading the answer: %w", err)
		}
		return false, nil
	})
}
