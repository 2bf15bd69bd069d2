package adminapi

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/evenkeel/evenkeel/internal/rebalance/balancer"
	"github.com/evenkeel/evenkeel/internal/rebalance/engine"
	"github.com/evenkeel/evenkeel/internal/rebalance/scheduler"
	"github.com/evenkeel/evenkeel/store"
)

func (h *handler) status(r *http.Request) (any, error) {
	s := h.Rebalancer.Status()
	pauses, perr := h.pauses(r.Context())
	out := Status{
		// The scheduler may still be ending its work when the lease is over.
		Leading: s.Running && h.Leading(), Pauses: pauses, PausesError: text(perr), Rate: s.Rate, MostRate: s.MostRate,
		Buckets: []Bucket{}, Jobs: append([]scheduler.Job{}, s.Jobs...), Scan: s.Scan,
		Unattended: h.Unattended(),
	}
	if h.o.Counting != 0 {
		out.Counting = h.o.Counting.String()
	}
	out.OtherLimits = h.otherLimits(r.Context())
	if h.o.Leader != nil {
		leaders := h.Leaders(r.Context())
		if holder := leaders[0]; holder != nil {
			out.Leader = leaderOf(*holder)
		}
		out.Shards = shares(leaders[:], h.Led())
	}
	var ids []store.BucketID
	for _, b := range s.Buckets {
		ids = append(ids, b.ID)
	}
	for _, j := range s.Jobs {
		ids = append(ids, j.Bucket)
	}
	var sizes balancer.Status
	if b := h.Balancer(); b != nil {
		sizes = b.Status()
	}
	for _, w := range sizes.Round.Why {
		ids = append(ids, w.Bucket)
	}
	h.Names().Learn(r.Context(), ids)
	for _, b := range s.Buckets {
		x := Bucket{
			Name: h.Names().Of(b.ID), ID: b.ID.String(), Epoch: b.Epoch, State: b.State.String(), Ranges: b.Ranges, Batches: []Batch{},
			Goals: b.Goals, Running: b.Running, Paused: b.Paused, Failures: append([]scheduler.Failure{}, b.Failures...),
		}
		if b.Epoch == 0 {
			x.State = "" // the bucket's map was not read yet
		}
		for _, batch := range b.Batches {
			p := batch.Progress
			x.Batches = append(x.Batches, Batch{
				ID: batch.ID, Phase: batch.Phase.String(), Ranges: batch.Ranges,
				Copied: p.Copied, Verified: p.Compared, Mended: p.Mended, Searched: p.Searched, Swept: p.Swept,
			})
		}
		out.Buckets = append(out.Buckets, x)
	}
	for i := range out.Jobs {
		out.Jobs[i].Name = h.nameOf(out.Jobs[i].Bucket)
	}
	out.Round = h.round(&sizes)
	if c := h.o.Cleaning; c != nil {
		out.Cleaning = new(c.Status(r.Context()))
		out.CleaningShards = shares(c.Leaders(r.Context()), out.Cleaning.Shards)
	}
	if len(h.o.Retention) > 0 {
		s := h.Retention().Status()
		out.Retention = &s
	}
	return out, nil
}

// otherLimits returns a warning for people if the processes of the store have different limits for the sizes of
// partitions. The result is empty if the limits are equal or not known.
func (h *handler) otherLimits(ctx context.Context) string {
	mine, other, differ := h.OtherLimits(ctx)
	if !differ {
		return ""
	}
	return fmt.Sprintf("%s here, but %s of the process that was started last: whoever leads applies its own; "+
		"give all the same --max-rows, --min-rows and --max-bytes", mine, other)
}

// round returns the last check of the sizes of all ranges, which s describes, in the form for clients.
func (h *handler) round(s *balancer.Status) Round {
	r := &s.Round
	out := Round{
		Every: h.o.Balance.Every.String(), Began: utc(r.Began), Ended: utc(r.Ended), Everything: r.Everything,
		Buckets: r.Buckets, Ranges: r.Ranges,
		Waiting: s.Waiting, Counted: s.Recounts, Rows: s.Read,
		Decided: map[string]int64{}, Moved: map[string]int64{}, Why: []Reason{}, Error: text(r.Err),
		CountersAwaySince: utc(s.Away),
	}
	if late := s.Late.Truncate(time.Second); late > 0 {
		out.Late = late.String()
	}
	for d, n := range s.Decided {
		out.Decided[fmt.Sprintf("%s: %s", d.Kind, d.Why)] += n
	}
	for k, n := range s.Moved {
		out.Moved[string(k)] += n
	}
	for _, w := range r.Why {
		why := string(w.Verdict.Why)
		if w.Verdict.Text != "" {
			why += ": " + w.Verdict.Text
		}
		out.Why = append(out.Why, Reason{
			Bucket: h.Names().Of(w.Bucket), ID: w.Bucket.String(), Span: Span{Start: w.Start, End: w.End}, Text: why,
		})
	}
	return out
}

// leaderOf returns the leader h in the form for clients: the fields about its lease and its shards are left out.
func leaderOf(h engine.Holder) *engine.Holder {
	h.Lease, h.Shards = 0, 0
	return &h
}

// shares returns which process leads which shards (groups of buckets). leaders has the leader of each shard, or nil,
// and led lists the shards of this process. The result has one element for each process, ordered by the first shard of
// each. Shards without a leader share one element without a name.
func shares(leaders []*engine.Holder, led []int) (all []Share) {
	at := map[uuid.UUID]int{}
	for n, holder := range leaders {
		if holder == nil {
			holder = &engine.Holder{}
		}
		i, there := at[holder.ID]
		if !there {
			i = len(all)
			at[holder.ID] = i
			all = append(all, Share{Name: holder.Name, Admin: holder.Admin})
			if holder.ID != uuid.Nil {
				all[i].Name = cmp.Or(holder.Name, holder.ID.String())
			}
		}
		all[i].Shards = append(all[i].Shards, n)
		all[i].Here = all[i].Here || slices.Contains(led, n)
	}
	return all
}

// utc returns the time t in UTC. The zero time stays zero, so that JSON leaves it out.
func utc(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC()
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
