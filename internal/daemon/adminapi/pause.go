package adminapi

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/evenkeel/evenkeel/internal/rebalance/pause"
	"github.com/evenkeel/evenkeel/internal/rebalance/scheduler"
	"github.com/evenkeel/evenkeel/store"
)

// PauseAsk asks for a pause of the moves of a bucket, or of all.
type PauseAsk struct {
	Which
	By  string `json:"by,omitempty"`
	Why string `json:"why,omitempty"`
	// ForS is after how many seconds it ends by itself; 0: never.
	ForS float64 `json:"for_s,omitempty"`
}

// Paused is a pause.
type Paused struct {
	// Bucket is absent where all moves are paused; its name, or else its ID.
	Bucket string     `json:"bucket,omitempty"`
	By     string     `json:"by,omitempty"`
	Why    string     `json:"why,omitempty"`
	Since  time.Time  `json:"since"`
	Until  *time.Time `json:"until,omitempty"`
	// Already: it was paused before.
	Already bool `json:"already,omitempty"`
}

// Pause is the same for the words that people read.
func (p Paused) Pause() pause.Pause {
	out := pause.Pause{By: p.By, Why: p.Why, Since: p.Since}
	if p.Until != nil {
		out.Until = *p.Until
	}
	return out
}

func pausedOf(bucket string, p pause.Pause) Paused {
	return Paused{Bucket: bucket, By: p.By, Why: p.Why, Since: p.Since, Until: moment(p.Until)}
}

// Quiet is how far a wait for quiet is.
type Quiet struct {
	// Roots that were looked at; Scanned: that were all.
	Roots   int  `json:"roots"`
	Scanned bool `json:"scanned"`
	// Moving are the buckets with batches in flight, the first thousand of MovingBuckets.
	Moving        []QuietBucket `json:"moving"`
	MovingBuckets int           `json:"moving_buckets"`
}

// QuietBucket is a bucket with batches in flight.
type QuietBucket struct {
	Bucket string `json:"bucket"`
	// Phases are those of its batches.
	Phases []string `json:"phases"`
}

// QuietLine is one line of the answer to a wait for quiet: how far it is, or in the last
// one Done or a Problem.
type QuietLine struct {
	Progress *Quiet   `json:"progress,omitempty"`
	Done     *Quiet   `json:"done,omitempty"`
	Problem  *Problem `json:"problem,omitempty"`
}

// one finds the bucket that is asked for; nil: all.
func (h *handler) one(ctx context.Context, name string) (*store.BucketID, error) {
	if name == "" {
		return nil, nil
	}
	id, err := h.bucket(ctx, name)
	return &id, err
}

// pause pauses moves. Any process can: it is kept in the store.
func (h *handler) pause(r *http.Request) (any, error) {
	var a PauseAsk
	if err := decode(r, &a); err != nil {
		return nil, err
	}
	if !(a.ForS >= 0 && a.ForS <= 1e9) {
		return nil, store.Errorf(store.InvalidArgument, "for_s is a number of seconds, not %v", a.ForS)
	}
	id, err := h.one(r.Context(), a.Bucket)
	if err != nil {
		return nil, err
	}
	now := h.Now()
	p := pause.Pause{By: a.By, Why: a.Why, Since: now}
	if a.ForS > 0 {
		p.Until = now.Add(time.Duration(a.ForS * float64(time.Second)))
	}
	if a.DryRun {
		return pausedOf(a.Bucket, p), nil
	}
	holds, fresh, err := pause.Set(r.Context(), h.Store, id, p, now)
	if err != nil {
		return nil, err
	}
	h.Manager.LookAtPauses(r.Context())
	out := pausedOf(a.Bucket, holds)
	out.Already = !fresh
	return out, nil
}

// resume ends a pause.
func (h *handler) resume(r *http.Request) (any, error) {
	var which Which
	if err := decode(r, &which); err != nil {
		return nil, err
	}
	id, err := h.one(r.Context(), which.Bucket)
	if err != nil || which.DryRun {
		return Done{}, err
	}
	lifted, err := pause.Lift(r.Context(), h.Store, id)
	if err != nil {
		return nil, err
	}
	h.Manager.LookAtPauses(r.Context())
	return Done{Lifted: lifted}, nil
}

// quiet waits until nothing moves, for as long as somebody reads the answer.
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
	line := lines[QuietLine](w)
	var mu sync.Mutex
	var now pause.Progress
	last := func() *Quiet {
		mu.Lock()
		defer mu.Unlock()
		return h.quietOf(r.Context(), now)
	}
	stop := every(progressEvery, func() { line(QuietLine{Progress: last()}) })
	err = pause.Quiet(r.Context(), h.Store, h.Maps, id, h.Now, func(p pause.Progress) {
		mu.Lock()
		defer mu.Unlock()
		now = p
	})
	stop()
	if err != nil {
		line(QuietLine{Problem: &Problem{Error: err.Error(), Kind: store.KindOf(err).String()}})
		return
	}
	line(QuietLine{Done: last()})
}

func (h *handler) quietOf(ctx context.Context, p pause.Progress) *Quiet {
	const most = 1000
	out := Quiet{Roots: p.Roots, Scanned: p.Scanned, Moving: []QuietBucket{}, MovingBuckets: len(p.Moving)}
	shown := p.Moving[:min(len(p.Moving), most)]
	var ids []store.BucketID
	for _, m := range shown {
		ids = append(ids, m.Bucket)
	}
	h.learn(ctx, ids)
	for _, m := range shown {
		b := QuietBucket{Bucket: h.name(m.Bucket), Phases: []string{}}
		if b.Bucket == "" {
			b.Bucket = m.Bucket.String()
		}
		for _, batch := range m.Batches {
			b.Phases = append(b.Phases, scheduler.PhaseName(batch.Phase))
		}
		out.Moving = append(out.Moving, b)
	}
	return &out
}

// pauses lists what is paused, for the status.
func (h *handler) pauses(ctx context.Context) ([]Paused, error) {
	s, err := pause.Read(ctx, h.Store, store.Local)
	out := []Paused{}
	if err != nil {
		return out, err
	}
	if s.All != nil {
		out = append(out, pausedOf("", *s.All))
	}
	var ids []store.BucketID
	for id := range s.Buckets {
		ids = append(ids, id)
	}
	h.learn(ctx, ids)
	for id, p := range s.Buckets {
		name := h.name(id)
		if name == "" {
			name = id.String()
		}
		out = append(out, pausedOf(name, p))
	}
	return out, nil
}

// mayBegin refuses what is asked for while it can't begin: who asks would wait for it.
func (h *handler) mayBegin(ctx context.Context, id store.BucketID) error {
	s, err := pause.Read(ctx, h.Store, store.Local)
	if err != nil {
		return err
	}
	if p, paused := s.Of(id, h.Now()); paused {
		return &pause.Error{Pause: p}
	}
	return nil
}

// Pause pauses moves, and returns the pause that holds.
func (c *Client) Pause(ctx context.Context, a PauseAsk) (p Paused, err error) {
	return p, c.do(ctx, http.MethodPost, "/v1/pause", a, &p)
}

// Resume ends the pause of a bucket, or all.
func (c *Client) Resume(ctx context.Context, which Which) (d Done, err error) {
	return d, c.do(ctx, http.MethodPost, "/v1/resume", which, &d)
}

// Quiet waits until nothing moves and nothing can begin, and hands on how far that is.
func (c *Client) Quiet(ctx context.Context, which Which, progress func(Quiet)) (q Quiet, err error) {
	return q, eachLine(ctx, c, "/v1/quiet", which, func(l *QuietLine) (bool, error) {
		switch {
		case l.Problem != nil:
			return true, &remoteError{kindOf(l.Problem.Kind), l.Problem.Error}
		case l.Done != nil:
			q = *l.Done
			return true, nil
		case l.Progress != nil:
			q = *l.Progress
			progress(q)
		}
		return false, nil
	})
}

// String names the bucket and how far its batches are.
func (b QuietBucket) String() string { return b.Bucket + " (" + strings.Join(b.Phases, ", ") + ")" }
