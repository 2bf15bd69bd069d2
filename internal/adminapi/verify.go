package adminapi

import (
	"context"
	"net/http"
	"time"

	"github.com/evenkeel/evenkeel/internal/rebalance/repair"
	"github.com/evenkeel/evenkeel/internal/wait"
	"github.com/evenkeel/evenkeel/store"
)

// Verify is a request to check whether the content of the store is consistent, and to report each fault.
type Verify struct {
	// Bucket is the name of the bucket to check; empty means all buckets.
	Bucket string `json:"bucket,omitempty"`
	repair.Options
	StuckAfterMs int64 `json:"stuck_after_ms,omitempty"`
}

// VerifyLine is one line of the answer to a request to check the store: either a fault that was found (Finding), or the
// progress. The last line has the summary, and also a Problem if the check could not go on.
type VerifyLine struct {
	Finding  *repair.Finding `json:"finding,omitempty"`
	Progress *repair.Summary `json:"progress,omitempty"`
	Summary  *repair.Summary `json:"summary,omitempty"`
	Problem  *Problem        `json:"problem,omitempty"`
}

// verify answers a request to check the content of the store. Meanwhile it sends lines to the client, about each fault
// that it finds and about the progress.
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

// Verify lets the server check its store, and returns the summary. It calls finding with each fault that is found, and
// progress about once a second. If ctx ends, the check stops. The argument v says what to check.
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
