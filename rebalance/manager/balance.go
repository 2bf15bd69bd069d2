package manager

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/rebalance/plain"
	"github.com/evenkeel/evenkeel/store"
)

// Written is how many rows clients have written into a partition.
type Written struct{ Puts, Deletes int64 }

// Changes knows what clients write.
type Changes interface {
	// Take returns what was written since the last call.
	Take() map[store.Partition]Written
}

// Balance has a manager split and merge ranges by itself.
type Balance struct {
	Limits plain.Limits
	// Every is the pause between two rounds; 0: none are made.
	Every time.Duration
	// Changes spares counting what has not changed. It has to know of all writes to
	// the store. nil: each round counts everything.
	Changes Changes
}

// Round is one round of balancing.
type Round struct {
	Began, Ended time.Time
	// Buckets looked at, Counted ranges and Rows.
	Buckets, Counted int
	Rows             int64
	Splits, Merges   int
	// Why are ranges outside the limits for which nothing is done, the last ones.
	Why []Reason
	Err error
}

// Reason is why nothing is done about a range.
type Reason struct {
	Bucket     store.BucketID
	Start, End []byte
	Text       string
}

// balancer is what rounds remember.
type balancer struct {
	g *Manager
	b Balance
	// sizes of ranges, as counted and with what was written since.
	sizes *lru.Cache[rangeKey, *size]
	// again are buckets to look at in the next round, whether written to or not, with
	// what was written to them and not taken in yet.
	again map[store.BucketID]map[store.PartitionID]Written
	all   bool // a round over all buckets has been made
}

type rangeKey struct {
	partition  store.PartitionID
	start, end string
}

type size struct{ rows, puts, deletes int64 }

const (
	sizesKept = 200_000
	// A round judges so many ranges of a bucket together: merges join none beyond.
	rangesJudged = 4096
	// Cuts are noted each so-many-th part of the target.
	cutsPerTarget = 32
	reasonsKept   = 100
)

// balance makes rounds until ctx ends.
func (g *Manager) balance(ctx context.Context) {
	sizes, err := lru.New[rangeKey, *size](sizesKept)
	if err != nil {
		panic(err) // its size is positive
	}
	b := &balancer{g: g, b: *g.o.Balance, sizes: sizes, again: map[store.BucketID]map[store.PartitionID]Written{}}
	for g.sleep(ctx, b.b.Every) == nil {
		g.mu.Lock()
		paused := g.paused
		g.mu.Unlock()
		if !paused {
			b.round(ctx)
		}
	}
}

func (b *balancer) round(ctx context.Context) {
	r := Round{Began: b.g.o.Now()}
	defer func() {
		r.Ended = b.g.o.Now()
		if ctx.Err() == nil && r.Err != nil {
			b.g.o.Logger.Warn("balancing met an error", "error", r.Err)
		}
		b.g.mu.Lock()
		defer b.g.mu.Unlock()
		b.g.lastRound = r
	}()
	if b.b.Changes == nil {
		b.sizes.Purge()
		clear(b.again)
		r.Err = b.everywhere(ctx, &r)
		return
	}
	for p, w := range b.b.Changes.Take() {
		b.remember(p.Bucket, p.ID, w)
	}
	if !b.all {
		if r.Err = b.everywhere(ctx, &r); r.Err == nil {
			b.all = true
		}
		return
	}
	for _, id := range slices.Collect(maps.Keys(b.again)) {
		if err := b.bucket(ctx, &r, id); err != nil {
			r.Err = errors.Join(r.Err, err)
		}
	}
}

// remember has a bucket looked at in the next round.
func (b *balancer) remember(id store.BucketID, p store.PartitionID, w Written) {
	if b.again[id] == nil {
		b.again[id] = map[store.PartitionID]Written{}
	}
	if w != (Written{}) {
		was := b.again[id][p]
		b.again[id][p] = Written{was.Puts + w.Puts, was.Deletes + w.Deletes}
	}
}

// everywhere looks at all buckets.
func (b *balancer) everywhere(ctx context.Context, r *Round) error {
	var after []byte
	var failed error
	for {
		keys, err := b.g.store.Scan(ctx, store.Roots, after, 100)
		if err != nil || len(keys) == 0 {
			return errors.Join(failed, err)
		}
		for _, key := range keys {
			after = key
			if err := b.bucket(ctx, r, store.BucketID(key)); err != nil {
				failed = err
			}
			if ctx.Err() != nil {
				return store.Wrap("balance", context.Cause(ctx))
			}
		}
	}
}

// bucket judges the ranges of one bucket and asks for what is to be done.
func (b *balancer) bucket(ctx context.Context, r *Round, id store.BucketID) (err error) {
	if b.g.held(id) {
		b.remember(id, store.PartitionID{}, Written{})
		return nil
	}
	written := b.again[id]
	delete(b.again, id)
	defer func() {
		if err != nil {
			for p, w := range written {
				b.remember(id, p, w)
			}
			b.remember(id, store.PartitionID{}, Written{})
		}
	}()
	root, err := b.g.maps.Load(ctx, id)
	if err != nil || root.State != partmap.Open {
		return err
	}
	r.Buckets++
	plan := &Plan{Bucket: id, Epoch: root.Epoch}
	var ranges []plain.Range
	judge := func() {
		for _, v := range plain.Judge(ranges, b.b.Limits, b.g.o.Now()) {
			b.remember(id, store.PartitionID{}, Written{})
			switch v.Kind {
			case plain.None:
				if len(r.Why) < reasonsKept {
					r.Why = append(r.Why, Reason{Bucket: id, Start: v.Goal.Start, End: v.Goal.End, Text: v.Reason})
				}
				continue
			case plain.Split:
				r.Splits++
			case plain.Merge:
				r.Merges++
			}
			plan.Moves = append(plan.Moves, Planned{Goal: v.Goal, Rows: v.Rows, Copies: v.Copies})
			b.g.o.Logger.Info("balancing", "bucket", id.String(), "kind", string(v.Kind), "start", string(v.Goal.Start), "why", v.Reason)
		}
		ranges = ranges[:0]
	}
	for rg, err := range b.g.maps.Ranges(ctx, root, nil) {
		if err != nil {
			return err
		}
		x, err := b.look(ctx, r, id, &rg, written[rg.Partition])
		if err != nil {
			return err
		}
		if ranges = append(ranges, x); len(ranges) == rangesJudged {
			judge()
		}
	}
	judge()
	if len(plan.Moves) > 0 {
		b.g.Submit(id, "balance", plan)
	}
	return nil
}

// look finds out how many rows a range has, counting them where what is known may
// not be true any more and could matter.
func (b *balancer) look(ctx context.Context, r *Round, id store.BucketID, rg *partmap.Range, w Written) (plain.Range, error) {
	l := &b.b.Limits
	x := plain.Range{Start: rg.Start, End: rg.End, PinUntil: rg.PinUntil, Created: rg.Created, Rows: l.MinRows}
	if x.Moves = rg.Phase != partmap.Settled || rg.SweepPending; x.Moves {
		b.remember(id, rg.Partition, w)
		return x, nil
	}
	key := rangeKey{rg.Partition, string(rg.Start), string(rg.End)}
	s, known := b.sizes.Get(key)
	if known {
		s.puts, s.deletes = s.puts+w.Puts, s.deletes+w.Deletes
		if s.rows+s.puts <= l.MaxRows && (s.rows < l.MinRows && s.puts == 0 || s.rows-s.deletes >= l.MinRows) {
			x.Rows = s.rows
			return x, nil
		}
		if s.puts+s.deletes == 0 && s.rows <= l.MaxRows {
			x.Rows = s.rows
			return x, nil
		}
	}
	step := max(1, l.TargetRows/cutsPerTarget)
	x.Rows = 0
	var last []byte
	err := b.g.rows(ctx, id, rg, func(k []byte) error {
		if x.Rows > 0 && x.Rows%step == 0 {
			x.Cuts = append(x.Cuts, plain.Cut{At: partmap.Separator(last, k), Below: x.Rows})
		}
		x.Rows++
		last = k
		return nil
	})
	if err != nil {
		return x, err
	}
	r.Counted++
	r.Rows += x.Rows
	if x.Rows <= l.MaxRows {
		x.Cuts = nil
	}
	b.sizes.Add(key, &size{rows: x.Rows})
	return x, nil
}

// held reports whether there are goals for a bucket that have not begun: it is not
// judged again before.
func (g *Manager) held(id store.BucketID) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if b := g.buckets[id]; b != nil && b.paused {
		return true
	}
	for _, j := range g.jobs {
		if j.Bucket != id || !j.Ended.IsZero() {
			continue
		}
		for i := range j.Goals {
			if j.Goals[i].Stage == Waiting {
				return true
			}
		}
	}
	return false
}
