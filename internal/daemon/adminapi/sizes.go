package adminapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/evenkeel/evenkeel/internal/rebalance/balancer"
	"github.com/evenkeel/evenkeel/internal/rebalance/plan"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// Size is a range with what is known of its rows, and what is thought of it.
type Size struct {
	Span
	Partition string `json:"partition"`
	// Known: Rows build on a count. Else they are what was seen of them.
	Known     bool       `json:"known"`
	Rows      int64      `json:"rows"`
	Bytes     int64      `json:"bytes"`
	Dead      int64      `json:"dead"`
	Recounted *time.Time `json:"recounted,omitempty"`
	Counted   int64      `json:"recounted_rows"`
	Puts      float64    `json:"puts_per_s"`
	Deletes   float64    `json:"deletes_per_s"`
	Reads     float64    `json:"reads_per_s"`
	Growth    float64    `json:"growth_rows_per_s"`
	Appends   float64    `json:"append_share"`
	Pinned    *time.Time `json:"pinned_until,omitempty"`
	// Verdict is what would be done now, like split or none; Why in one word, Text in
	// words.
	Verdict string `json:"verdict"`
	Why     string `json:"why"`
	Text    string `json:"text,omitempty"`
}

// Recount asks for an exact count of the ranges that have keys in spans; none: of all.
type Recount struct {
	Bucket string `json:"bucket"`
	Spans  []Span `json:"ranges,omitempty"`
}

// Recounted is a range that was counted.
type Recounted struct {
	Span
	Partition string `json:"partition"`
	// Moves: it moves at present and was not counted.
	Moves   bool  `json:"moves,omitempty"`
	Rows    int64 `json:"rows"`
	Bytes   int64 `json:"bytes"`
	Markers int64 `json:"markers"`
	// Known: the counters knew of Estimate rows.
	Known    bool  `json:"known"`
	Estimate int64 `json:"estimate"`
}

// LayoutPartition is a partition as layout files have it.
type LayoutPartition struct {
	ID     string          `json:"id"`
	Start  Key             `json:"start"`
	Quanta []LayoutQuantum `json:"quanta"`
	Pinned bool            `json:"pinned"`
	Writes float64         `json:"writes_per_s"`
	Growth float64         `json:"growth_rows_per_s"`
}

// LayoutQuantum is a run of keys from Key on.
type LayoutQuantum struct {
	Key  Key   `json:"key"`
	Rows int64 `json:"rows"`
}

// Line is one line of an answer that comes bit by bit; the last one has End or Problem.
type Line struct {
	Size      *Size            `json:"size,omitempty"`
	Recounted *Recounted       `json:"recounted,omitempty"`
	Partition *LayoutPartition `json:"partition,omitempty"`
	End       *End             `json:"end,omitempty"`
	Problem   *Problem         `json:"problem,omitempty"`
}

// End tells what all of it was about.
type End struct {
	Epoch uint64 `json:"epoch"`
	// The limits that the bucket's partitions are kept at.
	MaxRows    int64   `json:"max_rows"`
	MinRows    int64   `json:"min_rows"`
	TargetRows int64   `json:"target_rows"`
	HorizonS   float64 `json:"horizon_s"`
}

var errNoBalancer = store.Errorf(store.NotFound,
	"nobody looks after sizes here: the process was started with neither --counter nor --rebalance-interval")

// looks answers lines about a bucket, if this process looks after sizes.
func (h *handler) looks(w http.ResponseWriter, r *http.Request, bucket string, f func(id store.BucketID, line func(Line) error) (uint64, error)) {
	var id store.BucketID
	err := h.leads(r.Context())
	if err == nil && h.Balancer == nil {
		err = errNoBalancer
	}
	if err == nil {
		id, err = h.bucket(r.Context(), bucket)
	}
	if err != nil {
		fail(w, err)
		return
	}
	begun := false
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	flush := http.NewResponseController(w)
	line := func(l Line) error {
		if !begun {
			w.Header().Set("Content-Type", "application/x-ndjson")
			begun = true
		}
		if err := e.Encode(l); err != nil {
			return store.Errorf(store.Other, "nobody reads the answer any more: %w", err)
		}
		return nil
	}
	epoch, err := f(id, line)
	switch {
	case err != nil && !begun:
		fail(w, err)
	case err != nil:
		_ = line(Line{Problem: &Problem{Error: err.Error(), Kind: store.KindOf(err).String()}})
	default:
		l := h.Balancer.Limits()
		_ = line(Line{End: &End{Epoch: epoch, MaxRows: l.MaxRows, MinRows: l.MinRows, TargetRows: l.TargetRows, HorizonS: l.HorizonS}})
	}
	_ = flush.Flush()
}

func (h *handler) sizes(w http.ResponseWriter, r *http.Request) {
	h.looks(w, r, r.URL.Query().Get("bucket"), func(id store.BucketID, line func(Line) error) (uint64, error) {
		return h.Balancer.Look(r.Context(), id, func(x balancer.Seen) error {
			s := &x.Stats
			out := Size{
				Span: Span{Start: x.Start, End: x.End}, Partition: x.Partition.String(),
				Known: s.Known, Rows: s.Rows, Bytes: s.Bytes, Dead: s.Dead, Recounted: moment(s.Recounted), Counted: s.RecountedRows,
				Puts: s.PutsPerS, Deletes: s.DeletesPerS, Reads: s.ReadsPerS, Growth: s.GrowthRowsPerS, Appends: s.AppendShare,
				Verdict: string(x.Verdict.Kind), Why: string(x.Verdict.Why), Text: x.Verdict.Text,
			}
			if x.PinUntil.After(h.Now()) {
				out.Pinned = moment(x.PinUntil)
			}
			return line(Line{Size: &out})
		})
	})
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
	flush := http.NewResponseController(w)
	h.looks(w, r, q.Bucket, func(id store.BucketID, line func(Line) error) (epoch uint64, err error) {
		for _, s := range spans {
			epoch, err = h.Balancer.Recount(r.Context(), id, partmap.Span{Start: s.Start, End: s.End}, func(x balancer.Recounted) error {
				out := Recounted{Span: Span{Start: x.Start, End: x.End}, Partition: x.Partition.String(), Moves: x.Count == nil, Known: x.Before.Known, Estimate: x.Before.Rows}
				if c := x.Count; c != nil {
					out.Rows, out.Bytes, out.Markers = c.Rows, c.Bytes, c.Markers
				}
				err := line(Line{Recounted: &out})
				_ = flush.Flush() // somebody waits for it
				return err
			})
			if err != nil {
				return 0, err
			}
		}
		return epoch, nil
	})
}

func (h *handler) layout(w http.ResponseWriter, r *http.Request) {
	exact, err := number(r, "exact")
	if err != nil {
		fail(w, err)
		return
	}
	flush := http.NewResponseController(w)
	h.looks(w, r, r.URL.Query().Get("bucket"), func(id store.BucketID, line func(Line) error) (uint64, error) {
		return h.Balancer.Layout(r.Context(), id, exact > 0, func(p plan.Partition) error {
			out := LayoutPartition{ID: p.ID, Start: Key(p.Start), Quanta: []LayoutQuantum{}, Pinned: p.Pinned, Writes: p.WritesPerS, Growth: p.GrowthRowsPerS}
			for _, q := range p.Quanta {
				out.Quanta = append(out.Quanta, LayoutQuantum{Key: Key(q.Key), Rows: q.Rows})
			}
			err := line(Line{Partition: &out})
			if exact > 0 {
				_ = flush.Flush()
			}
			return err
		})
	})
}

// Sizes asks what is known and thought of each range of a bucket.
func (c *Client) Sizes(ctx context.Context, bucket string, f func(Size) error) (End, error) {
	return c.lines(ctx, http.MethodPost, "/v1/sizes?"+url.Values{"bucket": {bucket}}.Encode(), nil, func(l *Line) error {
		if l.Size == nil {
			return nil
		}
		return f(*l.Size)
	})
}

// Recount has ranges counted.
func (c *Client) Recount(ctx context.Context, r Recount, f func(Recounted) error) (End, error) {
	return c.lines(ctx, http.MethodPost, "/v1/recount", r, func(l *Line) error {
		if l.Recounted == nil {
			return nil
		}
		return f(*l.Recounted)
	})
}

// Layout asks for a bucket as planners see it; exact: everything is counted for it.
func (c *Client) Layout(ctx context.Context, bucket string, exact bool, f func(LayoutPartition) error) (End, error) {
	q := url.Values{"bucket": {bucket}}
	if exact {
		q.Set("exact", "1")
	}
	return c.lines(ctx, http.MethodPost, "/v1/layout?"+q.Encode(), nil, func(l *Line) error {
		if l.Partition == nil {
			return nil
		}
		return f(*l.Partition)
	})
}

// lines reads an answer bit by bit.
func (c *Client) lines(ctx context.Context, method, path string, in any, f func(*Line) error) (End, error) {
	body, err := c.open(ctx, method, path, in)
	if err != nil {
		return End{}, err
	}
	defer body.Close()
	for d := json.NewDecoder(body); ; {
		var l Line
		if err := d.Decode(&l); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			if ctx.Err() != nil {
				return End{}, store.Wrap("read the answer", context.Cause(ctx))
			}
			return End{}, store.Errorf(store.Unavailable, "the answer broke off: %w", err)
		}
		switch {
		case l.Problem != nil:
			return End{}, &remoteError{kindOf(l.Problem.Kind), l.Problem.Error}
		case l.End != nil:
			return *l.End, nil
		}
		if err := f(&l); err != nil {
			return End{}, fmt.Errorf("reading the answer: %w", err)
		}
	}
}
