package adminapi

import (
	"context"
	"net/http"
	"time"

	"github.com/evenkeel/evenkeel/internal/rebalance/repair"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/wait"
)

// Verify asks for a check of what the store holds.
type Verify struct {
	// Bucket is the one to check; empty: all.
	Bucket string `json:"bucket,omitempty"`
	repair.Options
	StuckAfterMs int64 `json:"stuck_after_ms,omitempty"`
}

// VerifyLine is one line of the answer: a finding, how far the check is, or, in
// the last one, its summary, with what kept it from going on.
type VerifyLine struct {
	Finding  *repair.Finding `json:"finding,omitempty"`
	Progress *repair.Summary `json:"progress,omitempty"`
	Summary  *repair.Summary `json:"summary,omitempty"`
	Problem  *Problem        `json:"problem,omitempty"`
}

// verify checks the store while the client reads the answer.
func (h *handler) verify(w http.ResponseWriter, r *http.Request) {
	var v Verify
	err := decode(r, &v)
	if err == nil && (v.RowsPerSecond < 0 || v.Parallel < 0 || v.StuckAfterMs < 0) {
		err = store.Errorf(store.InvalidArgument, "rows_per_second, parallel and stuck_after_ms are above zero")
	}
	if err != nil {
		fail(w, err)
		return
	}
	line := lines[VerifyLine](w)
	v.StuckAfter = time.Duration(v.StuckAfterMs) * time.Millisecond
	v.Report = func(f repair.Finding) { _ = line(VerifyLine{Finding: &f}) }
	check := repair.New(h.o.Store, h.o.Buckets, v.Options)
	stop := wait.Every(progressEvery, func() {
		_ = line(VerifyLine{Progress: new(check.Progress())})
	})
	s, err := check.Run(r.Context(), v.Bucket)
	stop()
	last := VerifyLine{Summary: &s}
	if err != nil {
		last.Problem = problemOf(err)
	}
	_ = line(last)
}

// Verify checks the store. It calls finding with what is found, and progress now and then. It
// ends when ctx does.
func (c *Client) Verify(
	ctx context.Context, v Verify, finding func(repair.Finding), progress func(repair.Summary),
) (s repair.Summary, err error) {
	return s, eachLine(ctx, c, "/v1/verify", v, func(l *VerifyLine) (last bool, err error) {
		switch {
		case l.Finding != nil:
			finding(*l.Finding)
		case l.Progress != nil:
			s = *l.Progress
			progress(s)
		case l.Summary != nil:
			s = *l.Summary
			if l.Problem != nil {
				err = l.Problem.err()
			}
			return true, err
		}
		return false, nil
	})
}
