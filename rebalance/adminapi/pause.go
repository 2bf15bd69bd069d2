package adminapi

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/internal/rebalance/pause"
	"github.com/evenkeel/evenkeel/internal/rebalance/scheduler"
	"github.com/evenkeel/evenkeel/store"
)

// one finds a bucket; nil: all.
func (h *handler) one(ctx context.Context, name string) (*store.BucketID, error) {
	if name == "" {
		return nil, nil
	}
	id, err := h.bucket(ctx, name)
	return &id, err
}

// pause pauses moves. Any process can: the pause is kept in the store.
func (h *handler) pause(r *http.Request, a PauseAsk) (any, error) {
	if !(a.ForS >= 0 && a.ForS <= 1e9) {
		return nil, store.Errorf(store.InvalidArgument, "for_s is a number of seconds, not %v", a.ForS)
	}
	id, err := h.one(r.Context(), a.Bucket)
	if err != nil {
		return nil, err
	}
	now := time.Now().UTC()
	p := pause.Pause{By: a.By, Why: a.Why, Since: now}
	if a.ForS > 0 {
		p.Until = now.Add(time.Duration(a.ForS * float64(time.Second)))
	}
	if a.DryRun {
		return Paused{Bucket: a.Bucket, Pause: p}, nil
	}
	holds, fresh, err := pause.Set(r.Context(), h.o.Store, id, p, now)
	if err != nil {
		return nil, err
	}
	h.Scheduler().LookAtPauses(r.Context())
	return Paused{Bucket: a.Bucket, Pause: holds, Already: !fresh}, nil
}

// resume ends a pause.
func (h *handler) resume(r *http.Request, which Which) (any, error) {
	id, err := h.one(r.Context(), which.Bucket)
	if err != nil || which.DryRun {
		return Done{}, err
	}
	lifted, err := pause.Lift(r.Context(), h.o.Store, id)
	if err != nil {
		return nil, err
	}
	h.Scheduler().LookAtPauses(r.Context())
	return Done{Lifted: lifted}, nil
}

// quiet waits until nothing moves, while the client reads the answer.
func (h *handler) quiet(w http.ResponseWriter, r *http.Request) {
	var which Which
	err := decode(r, &which)
	var id *store.BucketID
	if err == nil {
		id, err = h.one(r.Context(), which.Bucket)
	}
	if err != nil {
		fail(w, err)
		return
	}
	show := func(p pause.Progress) Quiet { return h.quietOf(r.Context(), p) }
	follow(w, show, func(report func(pause.Progress)) error {
		return pause.Quiet(r.Context(), h.o.Store, h.maps, id, time.Now, report)
	})
}

func (h *handler) quietOf(ctx context.Context, p pause.Progress) Quiet {
	const most = 1000
	out := Quiet{Roots: p.Roots, Scanned: p.Scanned, Moving: []QuietBucket{}, MovingBuckets: len(p.Moving)}
	shown := p.Moving[:min(len(p.Moving), most)]
	var ids []store.BucketID
	for _, m := range shown {
		ids = append(ids, m.Bucket)
	}
	h.Names().Learn(ctx, ids)
	for _, m := range shown {
		b := QuietBucket{Bucket: h.nameOf(m.Bucket), Phases: []string{}}
		for _, batch := range m.Batches {
			b.Phases = append(b.Phases, scheduler.PhaseName(batch.Phase))
		}
		out.Moving = append(out.Moving, b)
	}
	return out
}

// pauses lists the pauses, for the status.
func (h *handler) pauses(ctx context.Context) ([]Paused, error) {
	s, err := pause.Read(ctx, h.o.Store, store.Local)
	out := []Paused{}
	if err != nil {
		return out, err
	}
	if s.All != nil {
		out = append(out, Paused{Pause: *s.All})
	}
	var ids []store.BucketID
	for _, b := range s.Buckets {
		ids = append(ids, b.Bucket)
	}
	h.Names().Learn(ctx, ids)
	for _, b := range s.Buckets {
		out = append(out, Paused{Bucket: h.nameOf(b.Bucket), Pause: b.Pause})
	}
	return out, nil
}

// Pause pauses moves, and returns the pause that holds.
func (c *Client) Pause(ctx context.Context, a PauseAsk) (p Paused, err error) {
	return p, c.do(ctx, http.MethodPost, "/v1/pause", a, &p)
}

// Resume ends the pause of a bucket, or all.
func (c *Client) Resume(ctx context.Context, which Which) (d Done, err error) {
	return d, c.do(ctx, http.MethodPost, "/v1/resume", which, &d)
}

// Quiet waits until nothing moves and nothing can begin, and calls progress now and then.
// After an error it returns the last progress.
func (c *Client) Quiet(ctx context.Context, which Which, progress func(Quiet)) (q Quiet, err error) {
	return followed(ctx, c, "/v1/quiet", which, progress)
}

// String is the bucket and the phases of its batches.
func (b QuietBucket) String() string { return b.Bucket + " (" + strings.Join(b.Phases, ", ") + ")" }
