package policysim

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/evenkeel/evenkeel/internal/cells"
	"github.com/evenkeel/evenkeel/internal/rebalance/policy"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// tally measures the results of a simulation, e.g. how many rows are copied, and how many rows each partition really
// has. It is a wrapper of the store that all parts of the simulation use, so it sees every write. Requests and the
// decisions of the balancer are reported to it. tally is safe for concurrent use.
type tally struct {
	store.Store
	s     *Scenario
	f     *faults
	begin time.Time
	now   func() time.Time

	mu      sync.Mutex
	groups  []*Result
	buckets map[store.BucketID]*tallied
	parts   map[store.PartitionID]*measured
}

// tallied has the measurements of one simulated bucket, for the results of a simulation.
type tallied struct {
	*Result
	ranges int
	since  time.Time // time since when the bucket has had this number of ranges
	// cut are the cuts that splits made, and joined are the intervals of keys that merges joined, both within the last
	// hour.
	cut    map[string]time.Time
	joined []joined
	hot    map[store.PartitionID]int64
}

type joined struct {
	start, end []byte
	at         time.Time
}

// measured has the measurements of one partition of a simulated bucket: its present numbers of rows and tombstones.
type measured struct {
	rows, dead int64
	over, far  time.Time // time since when the partition has had more rows than the limit, and than 1.2 times the limit
}

const (
	// undone is the time within which a merge counts as undoing a split, and a split as undoing a merge.
	undone = time.Hour
	// farOver is the multiple of the maximum number of rows above which a partition is much too large.
	farOver = 1.2
)

func newTally(in store.Store, f *faults, begin time.Time, now func() time.Time) *tally {
	return &tally{
		Store: in, s: f.s, f: f, begin: begin, now: now, buckets: map[store.BucketID]*tallied{},
		parts: map[store.PartitionID]*measured{},
	}
}

// group adds an empty result for a tenant, which is a group of buckets that behave alike, and returns the result. The
// measurements of the group's buckets are added to the result.
func (t *tally) group(of *Tenant) *Result {
	r := &Result{Name: of.Name, Kind: of.Kind, Buckets: of.Count}
	t.groups = append(t.groups, r)
	return r
}

// bucket begins the measurements of a new bucket. The parameter `of` is the result of the group of buckets to which the
// bucket belongs.
func (t *tally) bucket(id store.BucketID, of *Result) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buckets[id] = &tallied{
		Result: of, ranges: 1, since: t.now(), cut: map[string]time.Time{}, hot: map[store.PartitionID]int64{},
	}
}

// requested counts a simulated request to a bucket, as a row written or deleted.
func (t *tally) requested(id store.BucketID, r request) {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := t.buckets[id]
	switch r.do {
	case Put:
		b.Written++
		if r.fresh {
			b.New++
		}
	case Delete:
		b.Deleted++
	}
}

// hottest counts one request to the partition p, in order to find the partition with the most requests. Only the last
// tenth of the simulated time counts.
func (t *tally) hottest(p store.Partition) {
	if t.now().Sub(t.begin) < t.s.end()*9/10 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if b := t.buckets[p.Bucket]; b != nil {
		b.hot[p.ID]++
	}
}

// Put writes rows to the simulated store, and measures how many rows of the partition are new.
func (t *tally) Put(ctx context.Context, p store.Partition, rows ...store.Row) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	b, x := t.at(p)
	if b == nil {
		return t.Store.Put(ctx, p, rows...)
	}
	for i := range rows {
		was := t.has(ctx, p, rows[i].Key)
		if err := t.Store.Put(ctx, p, rows[i]); err != nil {
			return err
		}
		is := !cells.IsMarker(rows[i].Value)
		if cells.IsCopied(rows[i].Value) {
			b.Moved++
			is = t.has(ctx, p, rows[i].Key)
		}
		x.change(was, is)
	}
	t.measure(b, x)
	return nil
}

// Delete deletes a row in the simulated store, and counts the tombstone.
func (t *tally) Delete(ctx context.Context, p store.Partition, key []byte, ts store.Timestamp) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	b, x := t.at(p)
	if b == nil {
		return t.Store.Delete(ctx, p, key, ts)
	}
	was := t.has(ctx, p, key)
	if err := t.Store.Delete(ctx, p, key, ts); err != nil {
		return err
	}
	x.change(was, t.has(ctx, p, key))
	x.dead++
	t.measure(b, x)
	return nil
}

// Remove deletes all rows in an interval of keys of the simulated store, and measures how many rows are left.
func (t *tally) Remove(ctx context.Context, p store.Partition, s store.Bounds, ts store.Timestamp) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.Store.Remove(ctx, p, s, ts); err != nil {
		return err
	}
	b, x := t.at(p)
	if b == nil {
		return nil
	}
	if x.rows = 0; len(s.Start) == 0 && len(s.End) == 0 {
		x.dead = 0
	} else if err := t.count(ctx, p, &x.rows); err != nil {
		return err
	}
	t.measure(b, x)
	return nil
}

// count adds the number of rows of the partition p to *n. Markers of deleted rows do not count.
func (t *tally) count(ctx context.Context, p store.Partition, n *int64) error {
	var b store.Bounds
	for {
		page, err := t.Store.Slice(ctx, p, b, store.SliceOptions{Limit: store.MaxPageRows})
		if err != nil {
			return err
		}
		for i := range page.Rows {
			if !cells.IsMarker(page.Rows[i].Value) {
				*n++
			}
		}
		if !page.More {
			return nil
		}
		b.Start, b.StartExclusive = page.Rows[len(page.Rows)-1].Key, true
	}
}

func (t *tally) at(p store.Partition) (*tallied, *measured) {
	b := t.buckets[p.Bucket]
	if b == nil {
		return nil, nil
	}
	x := t.parts[p.ID]
	if x == nil {
		x = &measured{}
		t.parts[p.ID] = x
	}
	return b, x
}

// has reports whether the partition p has a row with the given key. A marker of a deleted row does not count.
func (t *tally) has(ctx context.Context, p store.Partition, key []byte) bool {
	row, found, err := t.Store.Get(ctx, p, key)
	return err == nil && found && !cells.IsMarker(row.Value)
}

func (x *measured) change(was, is bool) {
	switch {
	case is && !was:
		x.rows++
	case was && !is:
		x.rows--
	}
}

// measure compares the present numbers of rows and tombstones of the partition x with their limits, and records the
// largest multiples in the bucket b.
func (t *tally) measure(b *tallied, x *measured) {
	now := t.now()
	limit := float64(t.s.MaxRows)
	size := float64(x.rows) / limit
	b.Worst = max(b.Worst, size)
	if t.s.Policy.MaxDead > 0 {
		b.Tombstones = max(b.Tombstones, float64(x.dead)/float64(t.s.Policy.MaxDead))
	}
	t.span(b, x, now, size > 1, size > farOver)
}

// span measures for how long the partition x of the bucket b is too large. It is called after each change of the size
// of the partition. When a period of too large a size ends, its length is added to the results of the bucket. The
// parameters are:
//   - now: the simulated time
//   - over: true if the partition has more rows than the maximum
//   - far: true if the partition has more than 1.2 times the maximum
func (t *tally) span(b *tallied, x *measured, now time.Time, over, far bool) {
	if !x.over.IsZero() && !over {
		b.LongestOver = max(b.LongestOver, now.Sub(x.over))
		b.overSeconds += now.Sub(x.over).Seconds()
		x.over = time.Time{}
	}
	if !x.far.IsZero() && !far {
		b.LongestFar = max(b.LongestFar, now.Sub(x.far))
		x.far = time.Time{}
	}
	if over && x.over.IsZero() {
		x.over = now
	}
	if far && x.far.IsZero() {
		x.far = now
	}
}

// decided counts the decisions of the balancer about a bucket by kind. It also counts decisions that undo a recent
// decision, such as a merge soon after a split.
func (t *tally) decided(id store.BucketID, in *policy.Input, ds []policy.Decision) {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := t.buckets[id]
	if b == nil {
		return
	}
	for i := range ds {
		d := &ds[i]
		switch d.Kind {
		case policy.Split:
			b.Splits++
			b.split(in, d)
		case policy.Merge:
			b.Merges++
			b.merge(in, d)
		case policy.Roll:
			b.Rolls++
		case policy.Refresh:
			b.Refreshes++
		}
	}
}

func (b *tallied) split(in *policy.Input, d *policy.Decision) {
	found := false
	for _, j := range b.joined {
		recent := in.Now.Sub(j.at) < undone
		for _, c := range d.Cuts {
			found = found || recent && bytes.Compare(c, j.start) > 0 && (len(j.end) == 0 || bytes.Compare(c, j.end) < 0)
		}
	}
	if found {
		b.MergesUndone++
	}
	for _, c := range d.Cuts {
		b.cut[string(c)] = in.Now
	}
}

func (b *tallied) merge(in *policy.Input, d *policy.Decision) {
	found := false
	for k := d.From + 1; k < d.To; k++ {
		at, cut := b.cut[string(in.Ranges[k].Start)]
		found = found || cut && in.Now.Sub(at) < undone
	}
	if found {
		b.SplitsUndone++
	}
	b.joined = slices.DeleteFunc(b.joined, func(j joined) bool { return in.Now.Sub(j.at) >= undone })
	b.joined = append(b.joined, joined{bytes.Clone(in.Ranges[d.From].Start), bytes.Clone(in.Ranges[d.To-1].End), in.Now})
	maps.DeleteFunc(b.cut, func(_ string, at time.Time) bool { return in.Now.Sub(at) >= undone })
}

// recut records the number of ranges that a bucket has from now on. It is called after each change of the bucket's map.
func (t *tally) recut(id store.BucketID, ranges int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if b := t.buckets[id]; b != nil {
		b.lasted(t.now())
		b.ranges = ranges
	}
}

func (b *tallied) lasted(now time.Time) {
	b.rangeSeconds += float64(b.ranges) * now.Sub(b.since).Seconds()
	b.since = now
}

// finish completes the results of a bucket at the end of the simulation. ranges are all ranges of the bucket then.
func (t *tally) finish(id store.BucketID, ranges []partmap.Range, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := t.buckets[id]
	b.lasted(at)
	page := max(1, t.s.MaxRows/100)
	held := int64(0)
	hot, all := int64(0), int64(0)
	for i := range ranges {
		x := t.parts[ranges[i].WriteTo()]
		if x == nil {
			x = &measured{}
		}
		if y := t.parts[ranges[i].Partition]; y != nil {
			t.span(b, y, at, false, false)
		}
		held += x.rows
		b.reads += max(1, (x.rows+page-1)/page)
	}
	for _, n := range b.hot {
		hot, all = max(hot, n), all+n
	}
	if all > 0 {
		b.Hottest = max(b.Hottest, float64(hot)/float64(all))
	}
	b.Rows += held
	b.Partitions += int64(len(ranges))
	b.Ideal += max(1, (held+t.s.MaxRows-1)/t.s.MaxRows)
	b.fullPages += float64(held) / float64(page)
}

// report returns the report of the simulation, and is called once, after finish was called for each bucket.
func (t *tally) report() *Report {
	t.mu.Lock()
	defer t.mu.Unlock()
	rep := &Report{Scenario: t.s.Name, Days: t.s.Days}
	rep.Total.Name = "all"
	for _, g := range t.groups {
		rep.Total.add(g)
		g.finish()
		rep.Groups = append(rep.Groups, *g)
	}
	rep.Total.finish()
	rep.Missed = t.s.missed(&rep.Total)
	return rep
}
