package adminapi

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/evenkeel/evenkeel/internal/rebalance/repair"
	"github.com/evenkeel/evenkeel/store"
)

// Verify asks for a check of what the store holds; see repair.Options.
type Verify struct {
	// Bucket is the one to check; empty: all.
	Bucket string `json:"bucket,omitempty"`
	Repair bool   `json:"repair,omitempty"`
	// Discard names partitions that are removed with what is nowhere else.
	Discard       []string `json:"discard,omitempty"`
	SkipOrphans   bool     `json:"skip_orphans,omitempty"`
	RowsPerSecond int      `json:"rows_per_second,omitempty"`
	Parallel      int      `json:"parallel,omitempty"`
	StuckAfterMs  int64    `json:"stuck_after_ms,omitempty"`
}

// VerifyLine is one line of the answer: a finding, how far the check is, or, in
// the last one, its summary, with what kept it from going on.
type VerifyLine struct {
	Finding  *repair.Finding `json:"finding,omitempty"`
	Progress *repair.Summary `json:"progress,omitempty"`
	Summary  *repair.Summary `json:"summary,omitempty"`
	Problem  *Problem        `json:"problem,omitempty"`
}

// verifyEvery is the pause between two lines about the progress.
const verifyEvery = time.Second

// verify checks for as long as somebody reads the answer.
func (h *handler) verify(w http.ResponseWriter, r *http.Request) {
	var v Verify
	err := decode(r, &v)
	if err == nil && (v.RowsPerSecond < 0 || v.Parallel < 0 || v.StuckAfterMs < 0) {
		err = store.Errorf(store.InvalidArgument, "rows_per_second, parallel and stuck_after_ms are above zero")
	}
	discard := make([]store.PartitionID, len(v.Discard))
	for i := 0; i < len(v.Discard) && err == nil; i++ {
		var id uuid.UUID
		if id, err = uuid.Parse(v.Discard[i]); err != nil {
			err = store.Errorf(store.InvalidArgument, "discard: %q is not a partition's id: %w", v.Discard[i], err)
		}
		discard[i] = store.PartitionID(id)
	}
	if err == nil && h.Buckets == nil {
		err = store.Errorf(store.NotFound, "this process checks nothing")
	}
	if err != nil {
		fail(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	var mu sync.Mutex
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	flush := http.NewResponseController(w)
	line := func(l VerifyLine) {
		mu.Lock()
		defer mu.Unlock()
		_ = e.Encode(l) // the client has gone, and the request's context ends
		_ = flush.Flush()
	}
	check := repair.New(h.Rows, h.Buckets, repair.Options{
		Repair: v.Repair, Discard: discard, SkipOrphans: v.SkipOrphans, RowsPerSecond: v.RowsPerSecond, Parallel: v.Parallel,
		StuckAfter: time.Duration(v.StuckAfterMs) * time.Millisecond,
		Report:     func(f repair.Finding) { line(VerifyLine{Finding: &f}) },
	})
	quit := make(chan struct{})
	var told sync.WaitGroup
	told.Go(func() {
		tick := time.NewTicker(verifyEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				s := check.Progress()
				line(VerifyLine{Progress: &s})
			case <-quit:
				return
			}
		}
	})
	var s repair.Summary
	if v.Bucket == "" {
		s, err = check.All(r.Context())
	} else {
		s, err = check.Bucket(r.Context(), v.Bucket)
	}
	close(quit)
	told.Wait()
	last := VerifyLine{Summary: &s}
	if err != nil {
		last.Problem = &Problem{Error: err.Error(), Kind: store.KindOf(err).String()}
	}
	line(last)
}

// Verify asks for a check and hands on what is found, and now and then how far the
// check is. It ends when ctx does.
func (c *Client) Verify(ctx context.Context, v Verify, finding func(repair.Finding), progress func(repair.Summary)) (s repair.Summary, err error) {
	body, err := c.open(ctx, http.MethodPost, "/v1/verify", v)
	if err != nil {
		return s, err
	}
	defer body.Close()
	for d := json.NewDecoder(body); ; {
		var l VerifyLine
		if err := d.Decode(&l); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return s, store.Errorf(store.Unavailable, "the answer broke off: %w", err)
		}
		switch {
		case l.Finding != nil:
			finding(*l.Finding)
		case l.Progress != nil:
			s = *l.Progress
			progress(s)
		case l.Summary != nil:
			if l.Problem != nil {
				err = &remoteError{kindOf(l.Problem.Kind), l.Problem.Error}
			}
			return *l.Summary, err
		}
	}
}
