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

// one returns the id of the named bucket. If the name is empty, which stands for all buckets, the result is nil.
func (h *handler) one(ctx context.Context, name string) (*store.BucketID, error) {
	if name == "" {
		return nil, nil
	}
	id, err := h.bucket(ctx, name)
	return &id, err
}

// pause pauses the moves of one bucket or of all buckets, as the request a says, and answers with the pause in force.
// Any process can do this, since pauses are kept in the store.
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

// resume ends the pause of the moves of the bucket that `which` names, or all pauses if it names none.
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

// quiet answers a request to wait until no ranges move, as before a backup. Meanwhile it sends lines about the progress
// to the client. The wait ends early if the client disconnects.
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

// pauses returns all pauses of moves that are stored, of all buckets and of single buckets, with the names of the
// buckets.
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

// Pause pauses the moves of one bucket, or of all buckets, as the request a says. It returns the pause that is in force
// afterwards. If moves were paused before, the result is the older pause, with Already set.
func (c *Client) Pause(ctx context.Context, a PauseAsk) (p Paused, err error) {
	return p, c.do(ctx, http.MethodPost, "/v1/pause", a, &p)
}

// Resume ends the pause of the bucket that `which` names, or all pauses if `which` names no bucket. The field Lifted of
// the result is true if there was a pause to end.
func (c *Client) Resume(ctx context.Context, which Which) (d Done, err error) {
	return d, c.do(ctx, http.MethodPost, "/v1/resume", which, &d)
}

// Quiet waits, during a pause, until no ranges move in a bucket and none can begin to move. `which` names the bucket,
// or stands for all buckets. Quiet calls progress about once a second. The result is the last progress, even if the
// wait fails.
func (c *Client) Quiet(ctx context.Context, which Which, progress func(Quiet)) (q Quiet, err error) {
	return followed(ctx, c, "/v1/quiet", which, progress)
}

// String returns the name of the bucket, followed by the phases of its batches (groups of moves) in brackets, e.g.
// "photos (copying, draining)".
func (b QuietBucket) String() string { return b.Bucket + " (" + strings.Join(b.Phases, ", ") + ")" }
