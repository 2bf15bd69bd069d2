package balancer

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/internal/rebalance/policy"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// tail is a range that was appended to when the counters answered last, or that its appends have
// gone on to since.
type tail struct {
	start []byte
	end   []byte // up to where the ranges above it were empty, or had just been reached
	rows  int64
	top   []byte // the highest key that was counted
	perS  float64
	at    time.Time // when that was so
}

const (
	// tailBuckets bounds the buckets whose tails are remembered, tailsKept those of one bucket.
	tailBuckets = 4096
	tailsKept   = 64
	// tailGain is the growth, as a share of the maximum, from one direct read of a tail to the next.
	tailGain = 0.02
	// telling is how long it takes until writers have told counters that were away what was written meanwhile: they try
	// each second.
	telling = 5 * time.Second
	// emptyAhead bounds the ranges above a tail that one look finds to be empty.
	emptyAhead = 256
)

// answered notes whether the counters answer, and reports whether they can be relied on: when they come back, writers
// first tell what was written meanwhile, and what they have not told of looks empty.
func (b *Balancer) answered(ctx context.Context, err error) bool {
	if ctx.Err() != nil {
		return false
	}
	now := b.o.Now()
	away := false
	b.set(func(s *Status) {
		switch {
		case err == nil:
			away = !s.Away.IsZero()
			s.Away = time.Time{}
		case s.Away.IsZero():
			s.Away = now
		}
	})
	if away {
		b.back = now
	}
	since := now.Sub(b.back)
	return err == nil && (since < 0 || since >= telling)
}

// remember keeps the tails of neighbouring ranges of a bucket, for when the counters are away.
func (b *Balancer) remember(id store.BucketID, in *policy.Input) {
	last, _ := b.tails.Get(id)
	first, end := in.Ranges[0].Start, in.Ranges[len(in.Ranges)-1].End
	span := store.Bounds{Start: first, End: end}
	kept := slices.DeleteFunc(slices.Clone(last), func(t tail) bool { return store.Within(t.start, span) })
	for i := range in.Ranges {
		s := &in.Ranges[i].Stats
		if s.Known && len(s.Top) > 0 && s.AppendShare >= in.Policy.AppendShare && s.AppendsPerS >= in.Policy.AppendsPerS {
			last := i
			for last+1 < len(in.Ranges) && untold(&in.Policy, &in.Ranges[last+1].Stats) {
				last++
			}
			kept = append(kept, tail{
				start: in.Ranges[i].Start, end: in.Ranges[last].End, rows: s.Rows, top: s.Top, perS: s.AppendsPerS, at: in.Now,
			})
		}
	}
	if len(kept) > tailsKept {
		slices.SortFunc(kept, func(a, b tail) int { return b.at.Compare(a.at) })
		kept = kept[:tailsKept]
	}
	if len(kept) > 0 {
		b.tails.Add(id, kept)
	} else {
		b.tails.Remove(id)
	}
}

// untold reports whether counts do not tell whether a range is appended to: it is empty, or so little was put into it
// that the appends may have just gone on there.
func untold(p *policy.Policy, s *counter.Stats) bool {
	const few = 512 // after so many puts, or a second, those above them count as appends
	return s.Rows == 0 || s.Puts < few && s.Rows <= s.Puts && s.AppendShare < p.AppendShare
}

// rollTails reads the tails of all buckets directly, while the counters are away, and cuts ahead of them. Nothing else
// is decided then.
func (b *Balancer) rollTails(ctx context.Context) (err error) {
	for _, id := range b.tails.Keys() {
		if !b.o.Led().Bucket(id) {
			continue
		}
		if ctx.Err() != nil {
			break
		}
		tails, _ := b.tails.Peek(id)
		tails = slices.Clone(tails)
		for i := range tails {
			t := &tails[i]
			gained := t.perS * b.o.Now().Sub(t.at).Seconds()
			if gained < tailGain*float64(b.o.Policy.MaxRows) || b.mover.Held(id) {
				continue
			}
			if terr := b.rollTail(ctx, id, t); terr != nil && store.KindOf(terr) != store.NotFound {
				err = errors.Join(err, store.Wrap("read the tail of bucket "+id.String(), terr))
			}
		}
		b.tails.Add(id, tails)
	}
	return err
}

// rollTail reads what was appended to a tail since it was read last, and cuts ahead of it.
func (b *Balancer) rollTail(ctx context.Context, id store.BucketID, t *tail) error {
	root, err := b.maps.Look(ctx, id)
	if err != nil || root.State != partmap.Open {
		return err
	}
	run, err := b.follow(ctx, root, t)
	if err != nil || len(run) == 0 {
		return err
	}
	in := b.direct(id, run, t)
	b.deciding.Lock()
	defer b.deciding.Unlock()
	o := b.outcome(&visit{id: id}, root, false)
	decisions, err := b.judge(ctx, o, run, in)
	if errors.Is(err, errOutdated) {
		return nil // the next look is by the newer map
	}
	if err != nil {
		return err
	}
	decisions = slices.DeleteFunc(decisions, func(d policy.Decision) bool { return d.Kind != policy.Roll })
	b.act(o, &window{ranges: run, core: slices.Repeat([]bool{true}, len(run))}, in, decisions)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.round.Ranges += o.ranges
	return nil
}

// follow counts what was appended since the tail was read last: in its range, and in those above through which the
// appends have gone. It returns the range that they have reached, and the empty ones above it.
func (b *Balancer) follow(ctx context.Context, root *partmap.Root, t *tail) (run []partmap.Range, err error) {
	began, gained := b.o.Now(), int64(0)
	for rg, err := range b.maps.Ranges(ctx, root, t.top) {
		if err != nil {
			return nil, err
		}
		if len(run) > emptyAhead || len(t.end) > 0 && bytes.Compare(rg.Start, t.end) >= 0 {
			break
		}
		rows, top, err := b.above(ctx, store.Partition{Bucket: root.Bucket, ID: rg.WriteTo()}, &rg, t.top)
		if err != nil {
			return nil, err
		}
		rg.Start, rg.End = bytes.Clone(rg.Start), bytes.Clone(rg.End)
		gained += rows
		switch {
		case len(run) == 0 && bytes.Equal(rg.Start, t.start):
			t.rows += rows
		case len(run) == 0 || rows > 0:
			// It was cut meanwhile, or the appends have gone on.
			n := rows
			if len(run) == 0 {
				if n, _, err = b.above(ctx, store.Partition{Bucket: root.Bucket, ID: rg.WriteTo()}, &rg, nil); err != nil {
					return nil, err
				}
			}
			t.start, t.rows, run = rg.Start, n, run[:0]
		}
		if rows > 0 {
			t.top = top
		}
		run = append(run, rg)
	}
	if took := began.Sub(t.at).Seconds(); took > 0 {
		t.perS, t.at = float64(gained)/took, began
	}
	return run, nil
}

// above counts the rows of a range above a key, at the pace of recounts, and returns the highest one.
func (b *Balancer) above(
	ctx context.Context, p store.Partition, rg *partmap.Range, after []byte,
) (rows int64, top []byte, err error) {
	at := store.Bounds{Start: rg.Start, End: rg.End}
	if bytes.Compare(after, rg.Start) >= 0 {
		at.Start, at.StartExclusive = after, len(after) > 0
	}
	for more := true; more; {
		const limit = 1000
		page, err := b.store.Slice(ctx, p, at, store.SliceOptions{Limit: limit})
		if err != nil {
			return 0, nil, err
		}
		for i := range page.Rows {
			if _, live, err := store.EntryValue(page.Rows[i].Value); err != nil {
				return 0, nil, err
			} else if live {
				rows++
			}
			top = page.Rows[i].Key
		}
		if more = page.More; len(page.Rows) > 0 {
			at.Start, at.StartExclusive = bytes.Clone(top), true
		}
		if err := b.mover.Pace(ctx, len(page.Rows)); err != nil {
			return 0, nil, err
		}
	}
	return rows, bytes.Clone(top), nil
}

// direct is what is known of a tail and the empty ranges above it by reading them.
func (b *Balancer) direct(id store.BucketID, run []partmap.Range, t *tail) *policy.Input {
	in := &policy.Input{Now: b.o.Now().Round(0), Policy: b.o.Policy, Ranges: make([]policy.Range, len(run))}
	for i := range run {
		rg := &run[i]
		in.Ranges[i] = policy.Range{
			Start: rg.Start, End: rg.End, Moves: moves(rg), Created: time.Unix(rg.Created, 0),
			PinUntil: time.Unix(rg.PinUntil, 0),
			Stats: counter.Stats{
				Partition: store.Partition{Bucket: id, ID: rg.WriteTo()}, Known: true, Recounted: in.Now,
			},
		}
	}
	s := &in.Ranges[0].Stats
	// One that is too large is cut ahead like a full one: it can only be split when the counters are back.
	rows := min(t.rows, b.o.Policy.MaxRows)
	s.Rows, s.AtMost, s.RecountedRows, s.Top = rows, rows, rows, t.top
	s.PutsPerS, s.AppendsPerS, s.GrowthRowsPerS, s.AppendShare = t.perS, t.perS, t.perS, 1
	s.Puts, s.LastPut = t.rows, in.Now
	return in
}
