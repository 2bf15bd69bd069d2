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

// tail is the range to which new keys of a bucket are appended. It is known from the counters of ranges, and is used
// while they cannot be reached. Then the balancer reads the rows of the tail directly, so that empty ranges are still
// cut for the next appends. When the appends go on to another range, that range becomes the tail.
type tail struct {
	start []byte
	end   []byte // end of the ranges above that were empty, or that appends had just reached
	rows  int64
	top   []byte    // the highest key that was counted
	perS  float64   // rows appended per second
	at    time.Time // when rows, top and perS were true
}

const (
	// tailBuckets is the maximum number of buckets for which ranges with appends are remembered. tailsKept is the
	// maximum number of ranges remembered for one bucket.
	tailBuckets = 4096
	tailsKept   = 64
	// tailGain is the expected growth of a range with appends, as a share of the maximum number of rows, after which
	// the range is read directly again.
	tailGain = 0.02
	// telling is the time after which writers have reported their rows to counters that could not be reached for a
	// while. Writers try again each second.
	telling = 5 * time.Second
	// emptyAhead is the maximum number of empty ranges above a range with appends that one check reads.
	emptyAhead = 256
)

// answered records whether the counters can be reached, and reports whether their counts can be relied on. The
// parameter err is the error of the last request to the counters, or nil. In the first 5 seconds (telling) after the
// counters come back, the result is false.
func (b *Balancer) answered(ctx context.Context, err error) bool {
	// In that time writers still report the rows that they have written meanwhile, so a range with such rows may look
	// empty.
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

// remember keeps the ranges of a bucket to which keys are appended, for a time when the counters cannot be reached. It
// searches them among the ranges in the parameter `in`, which is the input of a decision.
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

// untold reports whether it cannot be told yet if keys are appended to a range. The parameter s has the counters of the
// range. The result is true if
//   - the range is empty, or
//   - the range got so few puts that appends may have just reached it.
//
// The parameter p is the policy, which says when a range counts as appended to.
func untold(p *policy.Policy, s *counter.Stats) bool {
	const few = 512 // after this many puts, or a second, puts above them count as appends
	return s.Rows == 0 || s.Puts < few && s.Rows <= s.Puts && s.AppendShare < p.AppendShare
}

// rollTails cuts empty ranges for appends while the counters cannot be reached. In all buckets, it directly reads the
// ranges to which keys were last appended. No other decisions are made in that time.
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

// rollTail reads the rows that were appended to a range of a bucket since the range was last read, and cuts empty
// ranges for the next appends. t is that range, as the counters or the last read saw it.
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

// follow counts the rows that were appended to the range t, and to higher ranges, since t was last read. The result run
// has the range that the appends have reached by now, and the empty ranges above it.
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
			// The tail was cut meanwhile, or the appends have gone on to this range.
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

// above counts the rows of range rg whose keys are greater than the key after. It reads no faster than exact counts do.
// The result top is the highest key that was read, or nil if there is no row.
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

// direct returns the input for a decision about the range t, to which keys are appended, while the counters cannot be
// reached. It is made from rows that were read directly. The parameter run has the range t and the empty ranges above.
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
	// A tail above the maximum is cut ahead like a full one. It can be split only when the counters are back.
	rows := min(t.rows, b.o.Policy.MaxRows)
	s.Rows, s.AtMost, s.RecountedRows, s.Top = rows, rows, rows, t.top
	s.PutsPerS, s.AppendsPerS, s.GrowthRowsPerS, s.AppendShare = t.perS, t.perS, t.perS, 1
	s.Puts, s.LastPut = t.rows, in.Now
	return in
}
