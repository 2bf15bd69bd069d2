package adminapi

import (
	"context"
	"math"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/evenkeel/evenkeel/internal/rebalance/engine"
	"github.com/evenkeel/evenkeel/internal/rebalance/heat"
	"github.com/evenkeel/evenkeel/store"
)

// Heat is a picture (a heat map) of how the sizes and loads of a bucket developed. Its columns are times, and its rows
// are intervals of the bucket's keys.
type Heat struct {
	Bucket string    `json:"bucket"`
	From   time.Time `json:"from"`
	To     time.Time `json:"to"`
	StepS  int64     `json:"step_s"`
	// Times are the times at which columns begin, in Unix seconds, and Keys are the keys at which rows begin. The last
	// element of each list is the end of the picture.
	Times []int64 `json:"times"`
	Keys  []Key   `json:"keys"`
	// Spans holds, for each row of the picture, the number of intervals of keys (ranges) that were recorded separately
	// at some time.
	Spans   []int            `json:"spans"`
	Metrics map[string]Cells `json:"metrics"`
	Events  []heat.Event     `json:"events"`
	// MinutesBefore and HoursBefore are times at which the recording gets coarser. Before HoursBefore it has one value
	// per hour, from then until MinutesBefore one per minute, and later one per ten seconds.
	MinutesBefore time.Time `json:"minutes_before"`
	HoursBefore   time.Time `json:"hours_before"`
	// Gap is the last interval of time in which the bucket could not be sampled. It is absent if it lies outside the
	// picture.
	Gap *engine.Gap `json:"gap,omitempty"`
	// Omitted is the number of buckets that took requests and for which the last sample had no room. If Omitted is
	// above 0, a missing sample of a bucket does not mean that the bucket had no requests.
	Omitted int `json:"omitted_buckets,omitempty"`
}

// Cells holds the values of one metric, such as writes per second, for all cells of a picture. The columns of the
// picture are times, and its rows are intervals of keys.
type Cells struct {
	Unit string  `json:"unit"`
	Max  float64 `json:"max"`
	// Cells are the values, column by column, with four digits. -1 means that nothing is known of this time.
	Cells []float64 `json:"cells"`
}

const (
	heatWidth, heatHeight = 240, 200
	heatTime              = 6 * time.Hour
	// heatEvents is the largest number of events (moves) in a picture.
	heatEvents = 2000
	movesShown = 100
	mostMoves  = 1000
)

func (h *handler) heat(r *http.Request) (any, error) {
	q := paramsOf(r)
	w := heat.Window{
		Start: q.Get("start"), End: q.Get("end"), Metrics: heat.All, To: q.time("to", time.Now()),
		Width: q.limit("width", heatWidth, heat.MostCells), Height: q.limit("height", heatHeight, heat.MostCells),
	}
	w.From = q.time("from", w.To.Add(-heatTime))
	name, id, err := h.asked(r, q)
	if err != nil {
		return nil, err
	}
	w.Bucket = id
	if p := q.Get("prefix"); p != "" {
		w.Start, w.End = p, string(store.PrefixEnd([]byte(p)))
	}
	if names := q.Values["metric"]; len(names) > 0 {
		if w.Metrics, err = metricsOf(names); err != nil {
			return nil, err
		}
	}
	if err := w.Check(); err != nil {
		return nil, store.Errorf(store.InvalidArgument, "%w", err)
	}
	pic := h.History().Draw(w)
	out := Heat{
		Bucket: name, From: utc(time.Unix(pic.Times[0], 0)), To: utc(time.Unix(pic.Times[len(pic.Times)-1], 0)), StepS: pic.Step,
		Times: pic.Times, Spans: pic.Spans, Metrics: map[string]Cells{}, Events: []heat.Event{},
		MinutesBefore: utc(time.Now().Add(-heat.Recent).Truncate(heat.Minute)),
		HoursBefore:   utc(time.Now().Add(-heat.Fine).Truncate(heat.Hour)),
	}
	if g, there := h.History().Gap(id); there && g.From.Before(out.To) && g.To.After(out.From) {
		out.Gap = &g
	}
	out.Omitted = h.History().Omitted()
	for _, s := range pic.Starts {
		out.Keys = append(out.Keys, Key(s))
	}
	out.Keys = append(out.Keys, Key(pic.End))
	for m, cells := range pic.Cells {
		c := Cells{Unit: m.Unit(), Cells: cells}
		for i, v := range cells {
			cells[i] = digits(v)
			c.Max = max(c.Max, cells[i])
		}
		out.Metrics[m.Name()] = c
	}
	h.History().Moves(0, func(e *heat.Event) bool {
		if e.Bucket == id && within(e, &w) {
			out.Events = append(out.Events, h.named(e))
		}
		return len(out.Events) < heatEvents
	})
	return out, nil
}

// within reports whether the move e belongs in the picture of the window w. The result is true if the time of the move
// overlaps the window's time, and the moved keys overlap the window's keys.
func within(e *heat.Event, w *heat.Window) bool {
	began, ended := e.Began, e.Ended
	if began.IsZero() {
		began = ended
	}
	return began.Before(w.To) && (ended.IsZero() || ended.After(w.From)) &&
		(w.End == "" || string(e.Start) < w.End) && (len(e.End) == 0 || string(e.End) > w.Start)
}

// named returns a copy of the event e, which describes a move, with the name of its bucket filled in.
func (h *handler) named(e *heat.Event) heat.Event {
	out := *e
	out.Name = h.nameOf(e.Bucket)
	return out
}

// digits returns v rounded to four significant digits, so that the JSON is short: 12345.6 becomes 12350.
func digits(v float64) float64 {
	if v == 0 || v == heat.Unknown {
		return v
	}
	const four = 1e4
	unit := math.Pow(10, math.Ceil(math.Log10(math.Abs(v)))) / four
	if unit >= 1 {
		return math.Round(v/unit) * unit
	}
	return math.Round(v/unit) / math.Round(1/unit) // division by an exact power of ten gives short decimals
}

func metricsOf(names []string) (out []heat.Metric, err error) {
	for _, name := range names {
		at := slices.IndexFunc(heat.All, func(m heat.Metric) bool { return m.Name() == name })
		if at < 0 {
			return nil, store.Errorf(store.InvalidArgument, "metric is writes, reads, rows or bytes, not %q", name)
		}
		out = append(out, heat.All[at])
	}
	return out, nil
}

// Moved is the answer to GET /v1/moves: one page of the list of moves that the leader remembers, the newest first.
type Moved struct {
	Moves []heat.Event `json:"moves"`
	// Next is the id of the last move on this page; a request for the next page gives it as the parameter before. It is
	// absent on the last page.
	Next int64 `json:"next,omitempty"`
}

func (h *handler) moved(r *http.Request) (any, error) {
	q := paramsOf(r)
	limit, before := q.limit("limit", movesShown, mostMoves), q.number("before")
	if q.err != nil {
		return nil, q.err
	}
	id, err := h.one(r.Context(), q.Get("bucket"))
	if err != nil {
		return nil, err
	}
	out := Moved{Moves: []heat.Event{}}
	var ids []store.BucketID
	h.History().Moves(int64(min(before, math.MaxInt64)), func(e *heat.Event) bool {
		if id != nil && e.Bucket != *id {
			return true
		}
		if len(out.Moves) == limit {
			out.Next = out.Moves[limit-1].ID
			return false
		}
		out.Moves, ids = append(out.Moves, *e), append(ids, e.Bucket)
		return true
	})
	h.Names().Learn(r.Context(), ids)
	for i := range out.Moves {
		out.Moves[i].Name = h.nameOf(out.Moves[i].Bucket)
	}
	return out, nil
}

// Heat returns a picture of the sizes and loads of a bucket by time and key. The argument q holds the parameters of the
// HTTP request: bucket is required, and the server has defaults for the others.
func (c *Client) Heat(ctx context.Context, q url.Values) (p Heat, err error) {
	return p, c.do(ctx, http.MethodGet, "/v1/heat?"+q.Encode(), nil, &p)
}
