package adminapi

import (
	"bytes"
	"net/http"

	"github.com/evenkeel/evenkeel/internal/rebalance/move"
	"github.com/evenkeel/evenkeel/internal/rebalance/scheduler"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/rebalance"
	"github.com/evenkeel/evenkeel/store"
)

func (h *handler) moves(r *http.Request, m Moves) (any, error) {
	id, err := h.ready(r, m.Bucket, m.DryRun)
	if err != nil {
		return nil, err
	}
	p, err := h.Plan(r.Context(), id, m.Ask)
	if err != nil {
		return nil, err
	}
	return h.answer(r, m.Bucket, string(m.Kind), p, m.DryRun)
}

// apply makes the moves of the plan in the request; for a dry run it only checks them. It fails if the plan does not
// fit the present ranges of the bucket, or if ranges of the bucket move already.
func (h *handler) apply(r *http.Request, a Apply) (any, error) {
	id, err := h.ready(r, a.Bucket, a.DryRun)
	if err != nil {
		return nil, err
	}
	root, err := h.maps.Load(r.Context(), id)
	if err != nil {
		return nil, err
	}
	if root.State != partmap.Open {
		return nil, store.Errorf(store.NotFound, "the bucket is deleted, or about to be")
	}
	var today []partmap.Range
	for rg, err := range h.maps.Ranges(r.Context(), root, nil) {
		if err != nil {
			return nil, err
		}
		if rg.Phase != partmap.Settled || rg.SweepPending {
			return nil, store.Errorf(store.Conflict,
				"the range from %q moves at present: wait until it has ended, and plan again", Key(rg.Start).String())
		}
		rg.Start, rg.End = bytes.Clone(rg.Start), bytes.Clone(rg.End)
		today = append(today, rg)
	}
	p := &scheduler.Plan{Bucket: id, Epoch: root.Epoch, Notes: []string{}}
	whole := &rebalance.Plan{Bucket: a.Bucket, Ranges: a.Partitions, Moves: a.Moves}
	if p.Moves, err = move.FromPlan(whole, today); err != nil {
		return nil, err
	}
	return h.answer(r, a.Bucket, "apply", p, a.DryRun)
}

// ready returns the id of the named bucket, before moves of the bucket begin. It fails if moves of the bucket can't
// begin in this process. If dry is true, this is not checked, because any process can make a dry run, which moves
// nothing.
func (h *handler) ready(r *http.Request, bucket string, dry bool) (id store.BucketID, err error) {
	if id, err = h.bucket(r.Context(), bucket); err != nil || dry {
		return id, err
	}
	return id, h.Ready(r.Context(), id)
}

// answer submits the moves of the plan p as a job, and returns the Answer for the client. If dry is true, it submits
// nothing. `what` is a text that names the moves in the status, for example "split".
func (h *handler) answer(r *http.Request, bucket, what string, p *scheduler.Plan, dry bool) (any, error) {
	out := Answer{Bucket: bucket, Plan: *p}
	if !dry {
		j, err := h.Apply(r.Context(), what, p)
		if err != nil {
			return nil, err
		}
		j.Name = h.nameOf(j.Bucket)
		out.Job = &j
	}
	return out, nil
}

func (h *handler) job(r *http.Request) (any, error) {
	j, ok := h.Job(r.PathValue("id"))
	if !ok {
		return nil, store.Errorf(store.NotFound, "this process knows no job %s: it was started again, "+
			"or another one leads now. What had begun goes on; status shows it", r.PathValue("id"))
	}
	j.Name = h.nameOf(j.Bucket)
	return j, nil
}

// abort cancels requested moves that have not begun: those of one bucket, or those of all buckets that this process
// leads. It fails if another process leads the moves of the bucket. A dry run cancels nothing.
func (h *handler) abort(r *http.Request, which Which) (any, error) {
	id, err := h.one(r.Context(), which.Bucket)
	switch {
	case err != nil:
	case id != nil:
		err = h.LeadsShardOf(r.Context(), *id)
	default:
		err = h.Leads(r.Context())
	}
	if err != nil || which.DryRun {
		return Done{}, err
	}
	return Done{Dropped: h.Scheduler().Abort(id)}, nil
}
