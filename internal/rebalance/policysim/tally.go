package policysim

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/evenkeel/evenkeel/internal/rebalance/policy"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// tally measures what comes of a scenario: rows that are really copied, and what partitions really hold. It is the store
// of all that takes part, around another one; and it is told of requests and decisions. It is safe for concurrent use.
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

// tallied is a bucket.
type tallied struct {
	*Result
	ranges int
	since  time.Time // when it got so many ranges
	// cut are the cuts that splits made, joined the spans that merges joined, both within the last hour.
	cut    map[string]time.Time
	joined []joined
	hot    map[store.PartitionID]int64
}

type joined struct {
	start, end []byte
	at         time.Time
}

// measured is a partition.
type measured struct {
	rows, dead int64
	over, far  time.Time // since when it is over the limit, and 1.2 times the limit
}

const (
	// undone is within what time the reverse of a split or merge counts as undoing it.
	undone = time.Hour
	// farOver is the multiple of the limit that is far over it.
	farOver = 1.2
)

func newTally(in store.Store, f *faults, begin time.Time, now func() time.Time) *tally {
	return &tally{
		Store: in, s: f.s, f: f, begin: begin, now: now, buckets: map[store.BucketID]*tallied{},
		parts: map[store.PartitionID]*measured{},
	}
}

// group adds tenants.
func (t *tally) group(of *Tenant) *Result {
	r := &Result{Name: of.Name, Kind: of.Kind, Buckets: of.Count}
	t.groups = append(t.groups, r)
	return r
}

// bucket adds a bucket of tenants.
func (t *tally) bucket(id store.BucketID, of *Result) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buckets[id] = &tallied{
		Result: of, ranges: 1, since: t.now(), cut: map[string]time.Time{}, hot: map[store.PartitionID]int64{},
	}
}

// requested notes a request.
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

// hottest notes that a partition was asked for something.
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

// Put implements store.Rows.
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
		is := !store.IsMarker(rows[i].Value)
		if store.IsCopied(rows[i].Value) {
			b.Moved++
			is = t.has(ctx, p, rows[i].Key)
		}
		x.change(was, is)
	}
	t.measure(b, x)
	return nil
}

// Delete implements store.Rows.
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

// Remove implements store.Rows.
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

// count counts the entries of a partition.
func (t *tally) count(ctx context.Context, p store.Partition, n *int64) error {
	var b store.Bounds
	for {
		page, err := t.Store.Slice(ctx, p, b, store.SliceOptions{Limit: store.MaxPageRows})
		if err != nil {
			return err
		}
		for i := range page.Rows {
			if !store.IsMarker(page.Rows[i].Value) {
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

// has reports whether a partition has an entry.
func (t *tally) has(ctx context.Context, p store.Partition, key []byte) bool {
	row, found, err := t.Store.Get(ctx, p, key)
	return err == nil && found && !store.IsMarker(row.Value)
}

func (x *measured) change(was, is bool) {
	switch {
	case is && !was:
		x.rows++
	case was && !is:
		x.rows--
	}
}

// measure takes in the present size of a partition.
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

// span ends and begins the times for which a partition is too large.
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

// decided takes in what is decided about ranges.
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

// recut notes how many ranges a bucket has.
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

// finish takes in the ranges that a bucket has at the end.
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

// report sums up, when all buckets are finished.
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
