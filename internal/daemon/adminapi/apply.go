package adminapi

import (
	"bytes"
	"context"
	"net/http"

	"github.com/evenkeel/evenkeel/internal/rebalance/apply"
	"github.com/evenkeel/evenkeel/internal/rebalance/plan"
	"github.com/evenkeel/evenkeel/internal/rebalance/scheduler"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// Apply asks for the moves of a plan: the fields of one that matter for it.
type Apply struct {
	Bucket     string          `json:"bucket"`
	Partitions []PlanPartition `json:"partitions"`
	Moves      []PlanMove      `json:"moves"`
	// DryRun: say what would be done, and do nothing.
	DryRun bool `json:"dry_run,omitempty"`
}

// PlanPartition is a partition as a plan leaves it.
type PlanPartition struct {
	ID    string `json:"id"`
	Start Key    `json:"start"`
	Rows  int64  `json:"rows"`
	Node  string `json:"node,omitempty"`
}

// PlanMove is a move of a plan.
type PlanMove struct {
	From  string `json:"from"`
	To    string `json:"to"`
	Start Key    `json:"start"`
	End   Key    `json:"end"`
	Rows  int64  `json:"rows"`
}

// apply has a plan's moves done, if it fits the map.
func (h *handler) apply(r *http.Request) (any, error) {
	var a Apply
	if err := decode(r, &a); err != nil {
		return nil, err
	}
	if !a.DryRun { // that anybody can do
		if err := h.leads(r.Context()); err != nil {
			return nil, err
		}
	}
	id, err := h.bucket(r.Context(), a.Bucket)
	if err != nil {
		return nil, err
	}
	if !a.DryRun {
		if err := h.mayBegin(r.Context(), id); err != nil {
			return nil, err
		}
	}
	root, err := h.Maps.Load(r.Context(), id)
	if err != nil {
		return nil, err
	}
	if root.State != partmap.Open {
		return nil, store.Errorf(store.NotFound, "the bucket is deleted, or about to be")
	}
	var today []apply.Range
	for rg, err := range h.Maps.Ranges(r.Context(), root, nil) {
		if err != nil {
			return nil, err
		}
		if rg.Phase != partmap.Settled || rg.SweepPending {
			return nil, store.Errorf(store.Conflict, "the range from %q moves at present: wait until it has ended, and plan again", Key(rg.Start).String())
		}
		today = append(today, apply.Range{Start: bytes.Clone(rg.Start), Partition: rg.Partition})
	}
	p := &plan.Plan{Bucket: a.Bucket}
	for _, x := range a.Partitions {
		p.Ranges = append(p.Ranges, plan.Range{ID: x.ID, Start: plan.Key(x.Start), Rows: x.Rows, Node: x.Node})
	}
	for _, x := range a.Moves {
		p.Moves = append(p.Moves, plan.Move{From: x.From, To: x.To, Start: plan.Key(x.Start), End: plan.Key(x.End), Rows: x.Rows})
	}
	moves, notes, err := apply.Moves(p, today)
	if err != nil {
		return nil, err
	}
	out := Answer{Bucket: a.Bucket, Epoch: root.Epoch, Moves: []Move{}, Notes: append([]string{}, notes...)}
	plan := &scheduler.Plan{Bucket: id, Epoch: root.Epoch, Notes: notes}
	for _, m := range moves {
		out.Moves = append(out.Moves, move(m.Goal.Start, m.Goal.End, m.Goal.Cuts, m.Rows, m.Copies))
		plan.Moves = append(plan.Moves, scheduler.Planned{Goal: m.Goal, Rows: m.Rows, Copies: m.Copies})
	}
	if !a.DryRun {
		j := h.jobOf(h.Manager.Submit(id, "apply", plan))
		out.Job = &j
	}
	return out, nil
}

// Apply asks for the moves of a plan.
func (c *Client) Apply(ctx context.Context, a Apply) (out Answer, err error) {
	return out, c.do(ctx, http.MethodPost, "/v1/apply", a, &out)
}
