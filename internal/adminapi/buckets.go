package adminapi

import (
	"bytes"
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/evenkeel/evenkeel/internal/rebalance/balancer"
	"github.com/evenkeel/evenkeel/internal/rebalance/policy"
	"github.com/evenkeel/evenkeel/internal/rebalance/scheduler"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// Limits are the limits of the sizes of ranges that automatic moves keep. MaxRows, MinRows and TargetRows are in rows,
// MaxBytes is in bytes.
type Limits struct {
	MaxRows    int64 `json:"max_rows"`
	MinRows    int64 `json:"min_rows"`
	TargetRows int64 `json:"target_rows"`
	MaxBytes   int64 `json:"max_bytes"`
}

func (h *handler) limits() Limits {
	p := &h.o.Balance.Policy
	return Limits{p.MaxRows, p.MinRows, p.TargetRows, p.MaxBytes}
}

// Buckets is the answer to GET /v1/buckets: one page of the list of buckets, ordered by name, with the sizes of each
// bucket.
type Buckets struct {
	Buckets []Figures `json:"buckets"`
	// Next is the name of the last bucket on this page; a request for the next page gives it as the parameter after. It
	// is absent on the last page.
	Next   string `json:"next,omitempty"`
	Keeper Keeper `json:"keeper"`
	Limits Limits `json:"limits"`
}

// Keeper describes the process that watches the sizes of ranges, and moves these ranges, as far as the answering
// process knows it.
type Keeper struct {
	Name    string `json:"name"`
	Leading bool   `json:"leading"`
	// Unattended says which sizes no process watches, and why. It is empty if all sizes are watched.
	Unattended string `json:"unattended,omitempty"`
}

// Figures are the estimated sizes and the load of one bucket, as of the time At. Usually they are at most ten seconds
// old. If reading them takes long, they are reused for up to fifty times as long.
type Figures struct {
	Bucket string `json:"bucket"`
	ID     string `json:"id"`
	Epoch  uint64 `json:"epoch"`
	State  string `json:"state"`
	Paused bool   `json:"paused"`
	// Known is true if the sizes of all ranges are based on exact counts.
	Known bool `json:"known"`
	// Largest is the number of rows of the largest range.
	Largest int64   `json:"largest_rows"`
	Growth  float64 `json:"growth_rows_per_s"`
	Total
	At time.Time `json:"at"`
	// Error is the reason why the figures are not known; empty if they are known.
	Error string `json:"error,omitempty"`
}

// Total holds the sums of the sizes and loads of several ranges of one bucket. Moving and Unknown are the numbers of
// ranges that move, and of ranges of unknown size.
type Total struct {
	Ranges  int     `json:"ranges"`
	Moving  int     `json:"moving_ranges"`
	Unknown int     `json:"unknown_ranges"`
	Rows    int64   `json:"rows"`
	Bytes   int64   `json:"bytes"`
	Dead    int64   `json:"dead"`
	Writes  float64 `json:"writes_per_s"`
	Reads   float64 `json:"reads_per_s"`
	// Over and Under are the numbers of ranges above the maximum and below the minimum number of rows. Waiting is the
	// number of ranges that should be split, merged or moved, but about which nothing is done now.
	Over    int `json:"over_max"`
	Under   int `json:"under_min"`
	Waiting int `json:"waiting"`
}

func (t *Total) add(x *balancer.Seen, max, min int64) {
	s := &x.Stats
	t.Ranges++
	t.Rows, t.Bytes, t.Dead = t.Rows+s.Rows, t.Bytes+s.Bytes, t.Dead+s.Dead
	t.Writes, t.Reads = t.Writes+s.PutsPerS+s.DeletesPerS, t.Reads+s.ReadsPerS
	for _, c := range [...]struct {
		n   *int
		yes bool
	}{
		{&t.Moving, x.Moves}, {&t.Unknown, !s.Known}, {&t.Over, s.Rows > max},
		{&t.Under, s.Known && s.Rows < min}, {&t.Waiting, waits(x)},
	} {
		if c.yes {
			*c.n++
		}
	}
}

// waits reports whether the range x should be split, merged or moved, but nothing is done about it now.
func waits(x *balancer.Seen) bool {
	return x.Verdict.Kind == policy.None && x.Verdict.Why != policy.Within && x.Verdict.Why != policy.Moving
}

const (
	bucketsShown = 50
	mostBuckets  = 200
	// figuresFor is the shortest time for which the figures of a bucket are reused. If reading them took long, they are
	// reused for figuresShare times the duration of the read.
	figuresFor   = 10 * time.Second
	figuresShare = 50
	// mostFigures is the largest number of buckets whose figures are remembered. Beyond that all figures are forgotten.
	mostFigures = 4096
	// pageTime is the time limit for reading the figures of one page of buckets.
	pageTime = 10 * time.Second
)

// leads returns nil if this process can answer a request about the sizes of the named bucket, or an error for the
// client if it can't. To answer, the process must watch sizes, and lead the moves of the bucket. If the name is empty,
// it need lead only one shard (a group of buckets).
func (h *handler) leads(ctx context.Context, bucket string) error {
	var id store.BucketID
	var err error
	if bucket == "" {
		err = h.Leads(ctx)
	} else if id, err = h.bucket(ctx, bucket); err == nil {
		err = h.LeadsShardOf(ctx, id)
	}
	if err == nil && h.Balancer() == nil {
		err = errNoBalancer
	}
	return err
}

func (h *handler) buckets(r *http.Request) (any, error) {
	q := paramsOf(r)
	limit := q.limit("limit", bucketsShown, mostBuckets)
	if q.err != nil {
		return nil, q.err
	}
	out := Buckets{Buckets: []Figures{}, Keeper: h.keeper(r.Context()), Limits: h.limits()}
	paused, _ := h.pauses(r.Context())
	ctx, cancel := context.WithTimeout(r.Context(), pageTime)
	defer cancel()
	for info, err := range h.o.Buckets.Buckets(r.Context(), q.Get("prefix"), q.Get("after")) {
		if err != nil {
			return nil, err
		}
		if len(out.Buckets) == limit {
			out.Next = out.Buckets[limit-1].Bucket
			break
		}
		h.Names().Remember(info.ID, info.Name)
		f := h.figures(ctx, info.ID)
		f.Bucket = info.Name
		f.Paused = slices.ContainsFunc(paused, func(p Paused) bool { return p.Bucket == "" || p.Bucket == info.Name })
		out.Buckets = append(out.Buckets, f)
	}
	return out, nil
}

func (h *handler) keeper(ctx context.Context) Keeper {
	k := Keeper{Name: h.self(), Leading: h.Leading(), Unattended: h.Unattended()}
	if holder, known, mine := h.Leader(ctx); known && !mine {
		k.Name = cmp.Or(holder.Name, holder.ID.String())
	}
	return k
}

// kept holds the figures of a bucket (sizes and load) for later requests, and the time until which they are reused.
type kept struct {
	Figures
	until time.Time
}

// figures returns the sizes and the load of the bucket id for the list of buckets. It reads them only if the remembered
// ones are too old. If the read fails, the field Error of the result says why.
func (h *handler) figures(ctx context.Context, id store.BucketID) Figures {
	h.looking.Lock() // one request reads, and others wait for its result
	defer h.looking.Unlock()
	now := time.Now()
	if k, ok := h.seen[id]; ok && now.Before(k.until) {
		return k.Figures
	}
	f := Figures{ID: id.String(), State: partmap.Open.String(), Known: true, At: now.UTC()}
	p := &h.o.Balance.Policy
	epoch, err := h.Balancer().Look(ctx, id, nil, func(x balancer.Seen) error {
		f.Total.add(&x, p.MaxRows, p.MinRows)
		f.Known, f.Largest, f.Growth = f.Known && x.Stats.Known, max(f.Largest, x.Stats.Rows), f.Growth+x.Stats.GrowthRowsPerS
		return nil
	})
	if f.Epoch = epoch; err != nil {
		f.Error, f.Known = err.Error(), false
		return f
	}
	took := time.Since(now)
	if len(h.seen) >= mostFigures {
		clear(h.seen)
	}
	h.seen[id] = kept{f, now.Add(max(figuresFor, figuresShare*took))}
	return f
}

// Shape is a bar chart of a bucket along its keys, for the console. Each bar sums up the sizes of some neighbouring
// ranges.
type Shape struct {
	Bucket string `json:"bucket"`
	Epoch  uint64 `json:"epoch"`
	Limits Limits `json:"limits"`
	Ranges int    `json:"ranges"`
	Bars   []Bar  `json:"bars"`
}

// Bar is one bar of a chart of a bucket. It stands for some neighbouring ranges, and has the sums of their sizes and
// loads.
type Bar struct {
	Span
	Total
	Largest int64 `json:"largest_rows"`
}

const (
	barsShown = 200
	mostBars  = 1000
)

func (h *handler) shape(r *http.Request) (any, error) {
	q := paramsOf(r)
	bars := q.limit("bars", barsShown, mostBars)
	name, id, err := h.asked(r, q)
	if err != nil {
		return nil, err
	}
	c := newBars(bars, h.o.Balance.Policy.MaxRows, h.o.Balance.Policy.MinRows)
	end := []byte(q.Get("end"))
	out := Shape{Bucket: name, Limits: h.limits()}
	out.Epoch, err = h.Balancer().Look(r.Context(), id, []byte(q.Get("start")), func(x balancer.Seen) error {
		if len(end) > 0 && bytes.Compare(x.Start, end) >= 0 {
			return balancer.ErrEnough
		}
		out.Ranges++
		c.add(&x)
		return nil
	})
	out.Bars = c.bars
	return out, err
}

// bars builds a bar chart of a bucket. Each bar stands for the same number of neighbouring ranges, and there are at
// most `most` bars.
//
// Since the number of ranges is not known at the beginning, the bars are small at first. When there are too many, each
// two neighbours are joined, so that every bar has twice as many ranges.
type bars struct {
	most     int
	each     int // ranges of a bar
	max, min int64
	bars     []Bar
}

func newBars(most int, maxRows, minRows int64) *bars {
	return &bars{most: max(most, 1), each: 1, max: maxRows, min: minRows, bars: []Bar{}}
}

func (b *bars) add(x *balancer.Seen) {
	if n := len(b.bars); n > 0 && b.bars[n-1].Ranges < b.each {
		last := &b.bars[n-1]
		last.Total.add(x, b.max, b.min)
		last.End, last.Largest = bytes.Clone(x.End), max(last.Largest, x.Stats.Rows)
		return
	}
	if len(b.bars) == b.most {
		b.halve()
		b.add(x)
		return
	}
	bar := Bar{Span: Span{Start: bytes.Clone(x.Start), End: bytes.Clone(x.End)}, Largest: x.Stats.Rows}
	bar.Total.add(x, b.max, b.min)
	b.bars = append(b.bars, bar)
}

func (b *bars) halve() {
	b.each *= 2
	half := b.bars[:0]
	for i := 0; i < len(b.bars); i += 2 {
		bar := b.bars[i]
		if i+1 < len(b.bars) {
			o := &b.bars[i+1]
			bar.End, bar.Largest = o.End, max(bar.Largest, o.Largest)
			bar.Total.join(&o.Total)
		}
		half = append(half, bar)
	}
	b.bars = half
}

func (t *Total) join(o *Total) {
	*t = Total{
		Ranges: t.Ranges + o.Ranges, Moving: t.Moving + o.Moving, Unknown: t.Unknown + o.Unknown, Rows: t.Rows + o.Rows,
		Bytes: t.Bytes + o.Bytes, Dead: t.Dead + o.Dead, Writes: t.Writes + o.Writes, Reads: t.Reads + o.Reads,
		Over: t.Over + o.Over, Under: t.Under + o.Under, Waiting: t.Waiting + o.Waiting,
	}
}

// Ranges is the answer to GET /v1/ranges: one page of the list of the ranges of a bucket, in the order of their keys.
type Ranges struct {
	Bucket string  `json:"bucket"`
	Epoch  uint64  `json:"epoch"`
	Limits Limits  `json:"limits"`
	Ranges []Range `json:"ranges"`
	// Next is the key at which the next page begins. It is absent on the last page.
	Next *Key `json:"next,omitempty"`
}

// Range describes a range of a bucket: its size, its move if it moves, and whether the rebalancer would split, merge or
// move it now.
type Range struct {
	Size
	Phase string `json:"phase"`
	// To is the id of the partition to which the range moves, or empty.
	To           string `json:"to,omitempty"`
	SweepPending bool   `json:"sweep_pending,omitempty"`
	// Until is the time at which the reason for the rebalancer's decision ends if nothing changes.
	Until time.Time `json:"until,omitzero"`
	// Job is the id of the job that moves the range, or empty if no job does.
	Job string `json:"job,omitempty"`
}

const (
	rangesShown = 100
	mostRanges  = 1000
)

func (h *handler) ranges(r *http.Request) (any, error) {
	q := paramsOf(r)
	limit, only := q.limit("limit", rangesShown, mostRanges), q.Get("only")
	if only != "" && only != "notable" {
		q.bad("only is notable, or absent, not %q", only)
	}
	name, id, err := h.asked(r, q)
	if err != nil {
		return nil, err
	}
	out := Ranges{Bucket: name, Limits: h.limits(), Ranges: []Range{}}
	jobs := h.Rebalancer.Status().Jobs
	out.Epoch, err = h.Balancer().Look(r.Context(), id, []byte(q.Get("from")), func(x balancer.Seen) error {
		if only != "" && !x.Moves && x.Verdict.Kind == policy.None && x.Verdict.Why == policy.Within {
			return nil
		}
		if len(out.Ranges) == limit {
			out.Next = new(Key(bytes.Clone(x.Start)))
			return balancer.ErrEnough
		}
		one := Range{
			Size: sizeOf(&x), Phase: x.Place.Phase.String(), SweepPending: x.Place.SweepPending, Until: utc(x.Verdict.Until),
		}
		if !x.Place.To.IsZero() {
			one.To = x.Place.To.String()
		}
		for i := range jobs {
			moves := func(g scheduler.GoalState) bool {
				return store.Within(x.Start, store.Bounds{Start: g.Start, End: g.End})
			}
			if j := &jobs[i]; j.Bucket == id && j.Ended.IsZero() && slices.ContainsFunc(j.Goals, moves) {
				one.Job = j.ID
			}
		}
		out.Ranges = append(out.Ranges, one)
		return nil
	})
	return out, err
}

// Buckets returns one page of the list of buckets, which begins behind the name `after`. The argument limit is the
// maximum number of buckets on the page; 0 stands for the server's default of 50.
func (c *Client) Buckets(ctx context.Context, after string, limit int) (b Buckets, err error) {
	q := url.Values{"after": {after}, "limit": {strconv.Itoa(limit)}}
	return b, c.do(ctx, http.MethodGet, "/v1/buckets?"+q.Encode(), nil, &b)
}
