package adminapi

import (
	"net/http"
	"time"

	"github.com/evenkeel/evenkeel/internal/rebalance/scheduler"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

func (h *handler) moves(r *http.Request) (any, error) {
	var m Moves
	if err := decode(r, &m); err != nil {
		return nil, err
	}
	if !m.DryRun { // that anybody can do
		if err := h.leads(r.Context()); err != nil {
			return nil, err
		}
	}
	id, err := h.bucket(r.Context(), m.Bucket)
	if err != nil {
		return nil, err
	}
	a := scheduler.Ask{Kind: scheduler.Kind(m.Kind), Force: m.Force, MaxRows: h.MaxRows}
	for _, k := range m.Keys {
		a.Keys = append(a.Keys, k)
	}
	for _, s := range m.Spans {
		a.Spans = append(a.Spans, partmap.Span{Start: s.Start, End: s.End})
	}
	if x := m.Append; x != nil {
		a.Append = h.appends(x)
	}
	if m.PinUntil != nil {
		if !m.PinUntil.After(h.Now()) {
			return nil, store.Errorf(store.InvalidArgument, "a pin until %s is over already", m.PinUntil.UTC().Format(time.RFC3339))
		}
		a.PinUntil = m.PinUntil.Unix()
	}
	if !m.DryRun {
		if err := h.mayBegin(r.Context(), id); err != nil {
			return nil, err
		}
	}
	p, err := h.Manager.Plan(r.Context(), id, a)
	if err != nil {
		return nil, err
	}
	out := Answer{Bucket: m.Bucket, Epoch: p.Epoch, Moves: []Move{}, Notes: p.Notes}
	if out.Notes == nil {
		out.Notes = []string{}
	}
	for _, x := range p.Moves {
		out.Moves = append(out.Moves, move(x.Goal.Start, x.Goal.End, x.Goal.Cuts, x.Rows, x.Copies))
	}
	if x := p.Learned; x != nil {
		out.Learned = &Learned{Method: string(x.Method), How: x.How, Sure: x.Sure, FromKeys: x.Keys, RowsEach: x.Each, LateRows: int64(x.Late)}
	}
	if !m.DryRun {
		j := h.jobOf(h.Manager.Submit(id, m.Kind, p))
		out.Job = &j
	}
	return out, nil
}

func (h *handler) appends(x *Append) *scheduler.Append {
	a := &scheduler.Append{RowsPerSecond: x.RowsPerSecond, For: time.Duration(min(x.ForS, 1e9) * float64(time.Second)), MaxRows: x.MaxRows}
	if a.MaxRows == 0 {
		a.MaxRows = h.MaxRows
	}
	if a.MaxRows == 0 {
		a.MaxRows = defaultMaxRows
	}
	for _, k := range x.Like {
		a.Like = append(a.Like, k)
	}
	return a
}

func (h *handler) job(r *http.Request) (any, error) {
	j, ok := h.Manager.Job(r.PathValue("id"))
	if !ok {
		return nil, store.Errorf(store.NotFound, "this process knows no job %s: it was started again, or another one leads now. What had begun goes on; status shows it", r.PathValue("id"))
	}
	return h.jobOf(j), nil
}

func (h *handler) which(f func(*store.BucketID) Done) func(r *http.Request) (any, error) {
	return func(r *http.Request) (any, error) {
		var which Which
		if err := decode(r, &which); err != nil {
			return nil, err
		}
		var id *store.BucketID
		if which.Bucket != "" {
			found, err := h.bucket(r.Context(), which.Bucket)
			if err != nil {
				return nil, err
			}
			id = &found
		}
		if which.DryRun {
			return Done{}, nil
		}
		return f(id), nil
	}
}

func move(start, end []byte, cuts [][]byte, rows, copies int64) Move {
	m := Move{Start: start, End: end, Cuts: []Key{}, Rows: rows, Copies: copies}
	for _, c := range cuts {
		m.Cuts = append(m.Cuts, c)
	}
	return m
}

// jobOf is a job for JSON.
func (h *handler) jobOf(j scheduler.Job) Job {
	out := Job{ID: j.ID, Bucket: h.name(j.Bucket), What: j.What, State: "waiting", Asked: j.Asked, Ended: moment(j.Ended),
		Phase: j.Phase, Rows: j.Rows, Copied: j.Copied, Verified: j.Verified, Searched: j.Searched, Goals: []Goal{}, Error: text(j.Err())}
	if out.Bucket == "" {
		out.Bucket = j.Bucket.String()
	}
	for i := range j.Goals {
		g := &j.Goals[i]
		if g.Stage != scheduler.Waiting {
			out.State = "running"
		}
		out.Goals = append(out.Goals, Goal{Move: move(g.Goal.Start, g.Goal.End, g.Goal.Cuts, g.Within, g.Rows), Stage: string(g.Stage), Batch: g.Batch, Error: text(g.Err)})
	}
	if out.Ended != nil {
		out.State = "done"
		if out.Error != "" {
			out.State = "failed"
		}
	}
	return out
}
