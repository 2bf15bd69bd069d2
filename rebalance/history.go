package rebalance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/internal/rebalance/balancer"
	"github.com/evenkeel/evenkeel/internal/rebalance/heat"
	"github.com/evenkeel/evenkeel/internal/rebalance/scheduler"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/wait"
)

const (
	// sampleEvery is the pause between two samples.
	sampleEvery = heat.Finest * time.Second
	// saveEvery is the pause between two writes of the file: so much is lost by kill -9.
	saveEvery = 5 * time.Minute
	// historyBytes bounds the columns; events have a bound of their own.
	historyBytes = 64 << 20
	// mostActive bounds the buckets of a sample, mostOmitted those that wait for the next one, and carriedPartitions those
	// whose rows are remembered while they take no requests.
	mostActive        = 512
	mostOmitted       = 1 << 16
	carriedPartitions = 1 << 18
	// noticesKept bounds the notices that those who follow may still read.
	noticesKept = 512
)

// History is what the ranges of buckets had and took, and how they moved, while this process has led. Its methods are
// safe for concurrent use.
type History struct {
	file string
	log  *slog.Logger
	// loaded is used by the process's one loop.
	loaded bool

	drawing sync.Mutex // held for long at times; before mu
	book    *heat.Book

	mu      sync.Mutex
	moves   *heat.Log
	under   map[underway]int64 // events of moves that have begun
	touched map[store.BucketID]map[store.PartitionID]bool
	omitted map[store.BucketID]bool // they took requests, but there was no room in touched
	without int                     // how many the last sample omitted
	carried map[store.BucketID]map[store.PartitionID]carried
	gaps    map[store.BucketID]Gap
	notices []Notice
	noted   int64
	failure error // of the last save
}

// Gap is a time in which a bucket could not be sampled, and why.
type Gap struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
	Why  string    `json:"why"`
}

// underway is a move of a job.
type underway struct {
	job        string
	start, end string
}

// carried is what a range had when it was asked about last, and what its partition had taken.
type carried struct {
	rows, bytes float32
	taken       counter.Taken
	at          int64 // Unix milliseconds
	// guessed is in how many samples in a row rows and bytes have been a guess: no count of the range's own bounds says it.
	guessed uint8
}

// guesses is after how many samples a guess is asked about no more until the range takes requests.
const guesses = 30

func counted(s *counter.Stats, at time.Time) carried {
	return carried{rows: float32(s.Rows), bytes: float32(s.Bytes), taken: s.Taken(), at: at.UnixMilli()}
}

// since returns the writes and reads per second of the time of a sample: if the bucket was known before, those since the
// partition was asked about last, or was made; else its present rates.
func (c *carried) since(known bool, s *counter.Stats, at time.Time) (writes, reads float32) {
	if !known {
		return float32(s.PutsPerS + s.DeletesPerS), float32(s.ReadsPerS)
	}
	over, before := sampleEvery, c.taken
	if c.at != 0 {
		over = max(time.Second, at.Sub(time.UnixMilli(c.at)))
	}
	if idle := over - sampleEvery; idle > 0 { // else it would have been asked about before
		over, before = sampleEvery, before.Faded(idle)
	}
	w, r := s.Taken().Since(before, over)
	return float32(w / over.Seconds()), float32(r / over.Seconds())
}

// Notice is news for those who follow the history: a sample of some buckets, or an event.
type Notice struct {
	// ID grows with each notice.
	ID      int64
	At      time.Time
	Buckets []store.BucketID
	Move    *heat.Event
}

func newHistory(file string, log *slog.Logger) *History {
	return &History{
		file: file, log: log, book: heat.New(historyBytes), moves: &heat.Log{}, under: map[underway]int64{},
		touched: map[store.BucketID]map[store.PartitionID]bool{}, carried: map[store.BucketID]map[store.PartitionID]carried{},
		omitted: map[store.BucketID]bool{}, gaps: map[store.BucketID]Gap{},
	}
}

// load reads the file, once, before anything is noted. What can't be read is set aside.
func (h *History) load() {
	if h.file == "" || h.loaded {
		return
	}
	h.loaded = true
	data, err := os.ReadFile(h.file)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err == nil {
		var book *heat.Book
		var moves *heat.Log
		if book, moves, err = heat.Decode(data, historyBytes); err == nil {
			h.drawing.Lock()
			defer h.drawing.Unlock()
			h.mu.Lock()
			defer h.mu.Unlock()
			h.book, h.moves = book, moves
			return
		}
	}
	aside := h.file + ".damaged"
	h.log.Error("the history of the console can't be read: it is set aside, and begins anew; nothing else depends on it",
		"file", h.file, "aside", aside, "error", err)
	if err := os.Rename(h.file, aside); err != nil {
		h.log.Error("the damaged history can't be set aside: it is overwritten", "file", h.file, "error", err)
	}
}

// changed notes that the counts of partitions may have changed.
func (h *History) changed(all []store.Partition) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range all {
		h.touch(p.Bucket)[p.ID] = true
	}
}

// touch returns the partitions of a bucket that took requests, as far as there is room. History.mu is held.
func (h *History) touch(id store.BucketID) map[store.PartitionID]bool {
	t := h.touched[id]
	if t == nil {
		t = map[store.PartitionID]bool{}
		switch {
		case len(h.touched) < mostActive:
			h.touched[id] = t
		case len(h.omitted) < mostOmitted:
			h.omitted[id] = true
		}
	}
	return t
}

// moved notes that a move has begun or ended.
func (h *History) moved(j *scheduler.Job, g *scheduler.GoalState) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.touch(j.Bucket)
	key := underway{j.ID, string(g.Start), string(g.End)}
	now := time.Now().UTC()
	change := func(e *heat.Event) {
		switch e.State = heat.State(g.Stage); g.Stage {
		case scheduler.Begun:
			e.Began = now
		default:
			e.Ended, e.Copied = now, g.Copied
			if g.Err != nil {
				e.Error = g.Err.Error()
			}
		}
	}
	var e heat.Event
	if id, there := h.under[key]; there {
		e, there = h.moves.Change(id, change)
		if !there {
			delete(h.under, key)
			return
		}
	} else {
		e = heat.Event{
			Bucket: j.Bucket, Kind: g.Kind, By: "automatic", Start: g.Start, End: g.End, Cuts: g.Cuts, Parts: len(g.Cuts) + 1,
			Rows: g.Rows, Copies: g.Copies, Cause: g.Cause, Why: g.Why, Asked: j.Asked.UTC(), Job: j.ID,
		}
		if e.Kind == "" {
			e.Kind, e.By = j.What, "request"
		}
		change(&e)
		e = h.moves.Add(e)
	}
	if g.Stage == scheduler.Begun {
		h.under[key] = e.ID
	} else {
		delete(h.under, key)
	}
	h.notice(Notice{At: now, Move: &e})
}

// notice appends news. History.mu is held.
func (h *History) notice(n Notice) {
	h.noted++
	n.ID = h.noted
	h.notices = append(h.notices, n)
	if over := len(h.notices) - noticesKept; over > 0 {
		h.notices = slices.Delete(h.notices, 0, over)
	}
}

// Noted is the id of the last notice.
func (h *History) Noted() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.noted
}

// Notices returns the news after the one with an id, as far as they are kept. An id that there has not been yet is of a
// process before this one: then it returns all.
func (h *History) Notices(after int64) []Notice {
	h.mu.Lock()
	defer h.mu.Unlock()
	if after > h.noted {
		after = 0
	}
	i, _ := slices.BinarySearchFunc(h.notices, after+1, func(n Notice, id int64) int { return int(n.ID - id) })
	return slices.Clone(h.notices[i:])
}

// Moves calls f for the events below an id (0: all), the newest first, until f is false. f must not call the History.
func (h *History) Moves(before int64, f func(*heat.Event) bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.moves.Before(before, f)
}

// Draw draws a window that its Check accepts. A bucket of which nothing is known is sampled soon.
func (h *History) Draw(w heat.Window) heat.Picture {
	h.mu.Lock()
	if h.carried[w.Bucket] == nil {
		h.touch(w.Bucket)
	}
	h.mu.Unlock()
	h.drawing.Lock()
	defer h.drawing.Unlock()
	return h.book.Draw(w)
}

// Gap returns the last time in which a bucket could not be sampled, if there was one while this process has led.
func (h *History) Gap(id store.BucketID) (g Gap, there bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	g, there = h.gaps[id]
	return g, there
}

// Omitted is how many buckets that took requests the last sample had no room for.
func (h *History) Omitted() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.without
}

// Usage is how much is kept, where, and why it could not be written last; empty and nil if it is in memory only or was
// written.
func (h *History) Usage() (u heat.Usage, file string, failure error) {
	h.drawing.Lock()
	u = h.book.Usage()
	h.drawing.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	return u, h.file, h.failure
}

// run takes samples until ctx ends, and saves them now and then.
func (h *History) run(ctx context.Context, b *balancer.Balancer) {
	last, saved := time.Now(), time.Now()
	for wait.Sleep(ctx, sampleEvery-time.Duration(time.Now().UnixNano())%sampleEvery) == nil {
		now := time.Now()
		h.sample(ctx, b, last, now)
		last = now
		if since := now.Sub(saved); since >= saveEvery || since < 0 {
			saved = now
			h.save()
		}
	}
	h.save()
}

// due takes the buckets to be sampled, with their partitions that took requests, and reports whether there were others.
// Those come first in the next sample.
func (h *History) due() (touched map[store.BucketID]map[store.PartitionID]bool, omitted bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	touched, h.touched = h.touched, map[store.BucketID]map[store.PartitionID]bool{}
	h.without = len(h.omitted)
	for id := range h.omitted {
		if len(h.touched) == mostActive {
			break
		}
		delete(h.omitted, id)
		delete(h.carried, id) // which of its partitions took requests is not known
		h.touch(id)
	}
	return touched, h.without > 0
}

// sample adds a column: the buckets that took requests since the last one. One that can't be read has a gap.
func (h *History) sample(ctx context.Context, b *balancer.Balancer, from, to time.Time) {
	touched, omitted := h.due()
	var samples []heat.Sample
	var ids []store.BucketID
	for id, parts := range touched {
		spans, err := h.spans(ctx, b, id, parts, to)
		if ctx.Err() != nil {
			return
		}
		if store.KindOf(err) == store.NotFound { // it was deleted
			h.mu.Lock()
			delete(h.carried, id)
			delete(h.gaps, id)
			h.mu.Unlock()
			continue
		}
		if err != nil {
			h.missed(id, parts, from, to, err)
		}
		samples, ids = append(samples, heat.Sample{Bucket: id, Spans: spans}), append(ids, id)
	}
	h.drawing.Lock()
	h.book.Add(from, to, samples, omitted)
	h.drawing.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	slices.SortFunc(ids, func(a, b store.BucketID) int { return bytes.Compare(a[:], b[:]) })
	h.notice(Notice{At: to.UTC(), Buckets: ids})
}

// missed notes that a bucket could not be sampled, and has the next sample try again.
func (h *History) missed(id store.BucketID, parts map[store.PartitionID]bool, from, to time.Time, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	maps.Copy(h.touch(id), parts)
	g, there := h.gaps[id]
	if !there && len(h.gaps) >= mostActive {
		clear(h.gaps)
	}
	if !there || g.To.Before(from) {
		g.From = from.UTC()
		h.log.Warn("the history of the console has a gap", "bucket", id.String(), "error", err)
	}
	g.To, g.Why = to.UTC(), err.Error()
	h.gaps[id] = g
}

// spans are the ranges of a bucket with what they have and take. Only those that took requests, and those of which it is
// not known or guessed what they have, are asked about.
func (h *History) spans(
	ctx context.Context, b *balancer.Balancer, id store.BucketID, touched map[store.PartitionID]bool, at time.Time,
) ([]heat.Span, error) {
	h.mu.Lock()
	before := h.carried[id]
	h.mu.Unlock()
	after := make(map[store.PartitionID]carried, len(before))
	var spans []heat.Span
	var group []ranged
	flush := func() {
		spans = append(spans, sharedOut(group, before, after)...)
		if group = group[:0]; len(spans) >= 8*heat.MostSpans {
			spans = heat.Thin(spans, 4*heat.MostSpans, heat.Sum(spans))
		}
	}
	wanted := func(rg *partmap.Range) bool {
		was, known := before[rg.WriteTo()]
		return !known || was.guessed > 0 || touched[rg.WriteTo()] || touched[rg.Partition] || rg.Phase != partmap.Settled
	}
	err := b.Figures(ctx, id, wanted, func(rg *partmap.Range, now, leaves *counter.Stats) {
		x := ranged{start: string(rg.Start), from: rg.Partition, to: rg.WriteTo()}
		if n := len(group); n > 0 && group[n-1].from != x.from && group[n-1].to != x.to {
			flush()
		}
		x.had, x.known = before[x.to]
		if now != nil {
			x.writes, x.reads = x.had.since(x.known || before != nil, now, at)
			x.had = present(x.had, x.known, rg, now, at)
		}
		if leaves != nil {
			was, known := before[x.from]
			x.writesThere, x.readsThere = was.since(known, leaves, at)
			x.leaves = counted(leaves, at)
		}
		group = append(group, x)
	})
	flush()
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.carried[id] = after
	for _, c := range after {
		if c.guessed > 0 && c.guessed < guesses {
			h.touch(id) // the next sample may know more
			break
		}
	}
	n := 0
	for other, parts := range h.carried {
		if n += len(parts); n > carriedPartitions && other != id {
			n -= len(parts)
			delete(h.carried, other)
		}
	}
	return spans, nil
}

// ranged is a range with what is known of its partitions: the one that takes its writes, and the one that it leaves while it
// moves.
type ranged struct {
	start         string
	from, to      store.PartitionID
	had           carried
	known         bool // had was known before
	leaves        carried
	writes, reads float32
	// Requests of the partition that it leaves.
	writesThere, readsThere float32
}

// sharedOut returns the spans of neighbours that share partitions, as while ranges move: each gets an equal share of what a
// partition takes, and of what one has that they leave. It notes what they have.
func sharedOut(group []ranged, before, after map[store.PartitionID]carried) []heat.Span {
	if len(group) == 1 && group[0].from == group[0].to { // nearly all
		x := &group[0]
		after[x.to] = x.had
		return []heat.Span{{Start: x.start, Figures: heat.Figures{x.writes, x.reads, x.had.rows, x.had.bytes}}}
	}
	from, to := map[store.PartitionID]float32{}, map[store.PartitionID]float32{}
	fresh := map[store.PartitionID]bool{}
	for i := range group {
		x := &group[i]
		from[x.from]++
		to[x.to]++
		fresh[x.from] = fresh[x.from] || !x.known
	}
	spans := make([]heat.Span, 0, len(group))
	for i := range group {
		x := &group[i]
		had := x.had
		switch n := from[x.from]; {
		case x.to != x.from && (!x.known || to[x.to] > 1): // it fills with what the range has
			had.rows, had.bytes, had.guessed = x.leaves.rows/n, x.leaves.bytes/n, max(had.guessed, 1)
		case x.to == x.from && n > 1 && fresh[x.from] && x.known: // others have just begun to leave it
			had.rows, had.bytes, had.guessed = before[x.to].rows/n, before[x.to].bytes/n, max(had.guessed, 1)
		}
		spans = append(spans, heat.Span{Start: x.start, Figures: heat.Figures{
			heat.Writes: x.writes/to[x.to] + x.writesThere/from[x.from],
			heat.Reads:  x.reads/to[x.to] + x.readsThere/from[x.from],
			heat.Rows:   had.rows, heat.Bytes: had.bytes,
		}})
		if sum, there := after[x.to]; there && x.to != x.from { // it gets what several ranges have
			had.rows, had.bytes = had.rows+sum.rows, had.bytes+sum.bytes
		}
		after[x.to] = had
		if _, there := after[x.from]; !there {
			left := before[x.from]
			left.taken, left.at = x.leaves.taken, x.leaves.at
			after[x.from] = left
		}
	}
	return spans
}

// present is what a range has, by the counts of its partition. After a split those of the partition that stays are of more
// than the range, until it is recounted; those of a fresh one are of what was put since.
func present(was carried, known bool, rg *partmap.Range, s *counter.Stats, at time.Time) carried {
	now := counted(s, at)
	if s.Known && s.Covers(rg.Start, rg.End) {
		return now
	}
	now.guessed = min(was.guessed+1, guesses)
	switch {
	case !known:
	case !s.Recounted.IsZero():
		now.rows, now.bytes = was.rows, was.bytes
	default:
		now.rows, now.bytes = max(was.rows, now.rows), max(was.bytes, now.bytes)
	}
	return now
}

// save writes the file.
func (h *History) save() {
	if h.file == "" {
		return
	}
	h.mu.Lock()
	moves := h.moves.Clone() // who notes moves must not wait for the compression
	h.mu.Unlock()
	h.drawing.Lock()
	data := heat.Encode(h.book, moves)
	h.drawing.Unlock()
	err := replaceFile(h.file, data)
	h.mu.Lock()
	before := h.failure
	h.failure = err
	h.mu.Unlock()
	if err != nil && before == nil {
		h.log.Warn("the history of the console can't be written: it is in memory only", "file", h.file, "error", err)
	}
}

// replaceFile writes a file so that a reader finds either all of it or the one before.
func replaceFile(name string, data []byte) error {
	next := name + ".new"
	f, err := os.OpenFile(next, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(next, name)
	}
	if err != nil {
		_ = os.Remove(next)
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}
