package adminapi

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/evenkeel/evenkeel/internal/rebalance/grid"
	"github.com/evenkeel/evenkeel/rebalance"
	"github.com/evenkeel/evenkeel/rebalance/planner"
	"github.com/evenkeel/evenkeel/store"
)

// PlanAsk is a request for a plan that improves the sizes of a bucket's partitions. Objective is what the plan should
// optimize, "rows" or "full"; empty stands for "rows". Planner is the name of an algorithm, one of
// planner.Names(); empty stands for "auto".
type PlanAsk struct {
	Bucket    string `json:"bucket"`
	Objective string `json:"objective,omitempty"`
	Planner   string `json:"planner,omitempty"`
}

// Planned is a plan of moves for a bucket, with the ranges of the bucket before the plan (Before). Was and Will say how
// well the sizes fit the limits before and after the plan.
type Planned struct {
	Bucket    string            `json:"bucket"`
	Limits    Limits            `json:"limits"`
	Before    []rebalance.Range `json:"before"`
	Plan      *rebalance.Plan   `json:"plan"`
	Was       State             `json:"was"`
	Will      State             `json:"will"`
	Histogram []grid.Bin        `json:"histogram"`
}

// State says how many partitions a bucket has, and how many of them are larger or smaller than the limits allow.
type State struct {
	Partitions int `json:"partitions"`
	OverMax    int `json:"over_max"`
	UnderMin   int `json:"under_min"`
}

const (
	// planTime is the time limit of the search for a plan. layoutTime is the time limit for reading the present
	// partitions, including exact counts of partitions whose sizes are not known.
	planTime   = 2 * time.Second
	layoutTime = time.Minute
	// mostPlanned is the largest number of partitions of a bucket for which this API makes plans. Requests for larger
	// buckets fail.
	mostPlanned = 20_000
	generations = 1 << 30 // time ends the search
)

func (h *handler) plan(r *http.Request, q PlanAsk) (any, error) {
	id, err := h.bucket(r.Context(), q.Bucket)
	if err == nil {
		err = h.leads(r.Context(), q.Bucket)
	}
	if err != nil {
		return nil, err
	}
	kind := rebalance.Kind(cmp.Or(q.Objective, string(rebalance.Rows)))
	if kind != rebalance.Full && kind != rebalance.Rows {
		return nil, store.Errorf(store.InvalidArgument, "objective is rows or full, not %q", q.Objective)
	}
	select {
	case h.planning <- struct{}{}:
		defer func() { <-h.planning }()
	default:
		return nil, store.Errorf(store.Conflict, "another plan is being made: try again in a moment")
	}
	l := rebalance.Layout{Bucket: q.Bucket}
	ctx, cancel := context.WithTimeout(r.Context(), layoutTime)
	defer cancel()
	_, err = h.Balancer().Layout(ctx, id, false, func(p rebalance.Partition) error {
		if len(l.Partitions) == mostPlanned {
			return store.Errorf(store.InvalidArgument,
				"the bucket has more than %d partitions: plan it by `rebalancer plan`", mostPlanned)
		}
		l.Partitions = append(l.Partitions, p)
		return nil
	})
	if err != nil {
		return nil, err
	}
	limits := h.Balancer().Limits()
	if problems := rebalance.Validate(&l, limits); len(problems) > 0 {
		return nil, store.Errorf(store.Other, "the map of the bucket is no layout: rebalancer verify says more: %w", problems)
	}
	o := rebalance.Costs(limits.MaxRows)
	o.Kind = kind
	end := time.Now().Add(planTime)
	search := planner.Options{Seed: 1, Generations: generations, Stop: func() bool { return time.Now().After(end) }}
	finder, err := planner.New(cmp.Or(q.Planner, "auto"), search)
	if err != nil {
		return nil, store.Errorf(store.InvalidArgument, "%w", err)
	}
	p, err := finder.Plan(r.Context(), &l, limits, o)
	if errors.Is(err, context.Canceled) {
		return nil, store.Wrap("plan", err)
	}
	if err != nil {
		return nil, err
	}
	return planned(&l, limits, p, h.limits()), nil
}

// planned returns the plan p in the form for clients, with figures of the bucket before and after the plan. l is the
// layout: the present partitions of the bucket with their sizes. limits and shown are the same limits of sizes, in the
// types of planners and of clients.
func planned(l *rebalance.Layout, limits rebalance.Limits, p *rebalance.Plan, shown Limits) Planned {
	g := grid.New(l, limits)
	today := g.Score(g.Today(), rebalance.Objective{Kind: rebalance.Rows})
	state := func(s *rebalance.Score) State { return State{s.Partitions, s.OverMax + s.Undividable, s.UnderMin} }
	out := Planned{
		Bucket: l.Bucket, Limits: shown, Before: []rebalance.Range{}, Plan: p,
		Was: state(&today), Will: state(&p.Score),
		Histogram: append([]grid.Bin{}, grid.Histogram(l, limits, p)...),
	}
	for i := range l.Partitions {
		x := &l.Partitions[i]
		r := rebalance.Range{ID: x.ID, Start: x.Start, Pinned: x.Pinned}
		for _, q := range x.Quanta {
			r.Rows += q.Rows
		}
		out.Before = append(out.Before, r)
	}
	return out
}
