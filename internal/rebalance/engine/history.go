package engine

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
	"github.com/evenkeel/evenkeel/internal/countbook"
	"github.com/evenkeel/evenkeel/internal/rebalance/balancer"
	"github.com/evenkeel/evenkeel/internal/rebalance/heat"
	"github.com/evenkeel/evenkeel/internal/rebalance/scheduler"
	"github.com/evenkeel/evenkeel/internal/wait"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

const (
	// sampleEvery is the pause between two samples of the sizes and requests of ranges.
	sampleEvery = heat.Finest * time.Second
	// saveEvery is the pause between two writes of the history's file. A killed process loses at most the history of
	// this time.
	saveEvery = 5 * time.Minute
	// historyBytes bounds the memory of the samples, in bytes. The list of moves has a bound of its own.
	historyBytes = 64 << 20
	// mostActive is the largest number of buckets in a sample. Further buckets wait for the next sample: at most
	// mostOmitted, and the rest is left out. carriedPartitions is the largest number of partitions whose rows are
	// remembered while they take no requests.
	mostActive        = 512
	mostOmitted       = 1 << 16
	carriedPartitions = 1 << 18
	// noticesKept is the largest number of notices (news for browsers that follow the history) in memory. The oldest
	// are dropped, so that a follower that is further behind misses some.
	noticesKept = 512
)

// History is a record, by time, of the ranges of all buckets: how many rows each range had, how many requests it took,
// and how it was moved. The record covers the time in which this process led the moves. The methods of History are safe
// for concurrent use.
type History struct {
	file string
	log  *slog.Logger
	// loaded is true once the method load has read the file. Only the goroutine that runs the history uses it.
	loaded bool

	drawing sync.Mutex // guards book; may be held for long; locked before mu
	book    *heat.Book

	mu      sync.Mutex
	moves   *heat.Log
	under   map[underway]int64 // ids of the events of moves that are running
	touched map[store.BucketID]map[store.PartitionID]bool
	omitted map[store.BucketID]bool // buckets that took requests but had no room in touched
	without int                     // buckets that the last sample omitted
	carried map[store.BucketID]map[store.PartitionID]carried
	gaps    map[store.BucketID]Gap
	notices []Notice
	noted   int64
	failure error // of the last save
}

// Gap is an interval of time for which the history of a bucket has no figures, and the reason (Why), e.g. an error of
// the store.
type Gap struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
	Why  string    `json:"why"`
}

// underway identifies a move that is running, by the id of its job and by the range that moves: the range's first key
// and its end.
type underway struct {
	job        string
	start, end string
}

// carried is what the history remembers of a range from one sample to the next: its size, and the number of requests to
// its partition up to that time. The next sample reuses the size if the range has got no requests since, so that the
// counters need not be read.
type carried struct {
	rows, bytes float32
	taken       countbook.Taken
	at          int64 // Unix milliseconds
	// guessed is the number of consecutive samples in which rows and bytes were a guess, because the counters had no
	// exact count of this range.
	guessed uint8
}

// guesses is the largest number of samples in a row for which the history asks the counters for the size of a range
// that is only guessed. After so many samples it keeps the guess until the range gets requests.
const guesses = 30

func counted(s *counter.Stats, at time.Time) carried {
	return carried{rows: float32(s.Rows), bytes: float32(s.Bytes), taken: countbook.TakenOf(s), at: at.UnixMilli()}
}

// since returns the writes and reads per second that a partition got in the time of one sample. c has the counts of an
// earlier sample, from which the rates are computed. The parameters are:
//   - known: false if there was no earlier sample. The result has the present rates in s then.
//   - s: the present counts of the partition
//   - at: the end of the sample
func (c *carried) since(known bool, s *counter.Stats, at time.Time) (writes, reads float32) {
	if !known {
		return float32(s.PutsPerS + s.DeletesPerS), float32(s.ReadsPerS)
	}
	over, before := sampleEvery, c.taken
	if c.at != 0 {
		over = max(time.Second, at.Sub(time.UnixMilli(c.at)))
	}
	if idle := over - sampleEvery; idle > 0 { // the partition was idle, or an earlier sample would have it
		over, before = sampleEvery, before.Faded(idle)
	}
	w, r := countbook.TakenOf(s).Since(before, over)
	return float32(w / over.Seconds()), float32(r / over.Seconds())
}

// Notice is a piece of news for browsers that follow the history: either some buckets were sampled (Buckets), or a move
// has begun or ended (Move).
type Notice struct {
	// ID is the number of the notice. It grows by one with each notice.
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

// load reads the file of the history, if there is one, before anything is recorded. Calls after the first one do
// nothing. A file that can't be read is renamed to *.damaged, and the history begins anew.
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

// changed adds partitions that took requests to the next sample of the history, which then asks the counters about
// them.
func (h *History) changed(all []store.Partition) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range all {
		h.touch(p.Bucket)[p.ID] = true
	}
}

// touch adds the bucket id to the next sample of the history. It returns the set of the bucket's partitions that took
// requests, to which the caller adds partitions. If the sample has no room for another bucket, the set is not used. The
// caller must hold History.mu.
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

// moved records that a move has begun or ended. j is the job of the move. g describes the move: the range that changes,
// the keys at which it is cut, and the stage that the move has reached.
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

// notice stores n as the newest notice, for browsers that follow the history. It drops the oldest notices beyond
// noticesKept. The caller must hold History.mu.
func (h *History) notice(n Notice) {
	h.noted++
	n.ID = h.noted
	h.notices = append(h.notices, n)
	if over := len(h.notices) - noticesKept; over > 0 {
		h.notices = slices.Delete(h.notices, 0, over)
	}
}

// Noted returns the id of the last notice, which is a piece of news for browsers that follow the history, or 0 if there
// was no notice. A follower passes the id to Notices to get only later news.
func (h *History) Noted() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.noted
}

// Notices returns the notices (news for browsers that follow the history) with an id above `after`, as far as they are
// still in memory. An id higher than all ids of this process comes from an earlier process. For such an id, Notices
// returns all notices.
func (h *History) Notices(after int64) []Notice {
	h.mu.Lock()
	defer h.mu.Unlock()
	if after > h.noted {
		after = 0
	}
	i, _ := slices.BinarySearchFunc(h.notices, after+1, func(n Notice, id int64) int { return int(n.ID - id) })
	return slices.Clone(h.notices[i:])
}

// Moves calls f with each recorded move, the newest first, until f returns false. It begins with the newest move whose
// id is lower than `before`, or with the newest of all if `before` is 0. f must not call a method of the History.
func (h *History) Moves(before int64, f func(*heat.Event) bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.moves.Before(before, f)
}

// Draw returns the figures of a picture for the console: the sizes and loads of one bucket's ranges, for the interval
// of keys and the interval of time in w. The window w must be valid (see its method Check). If nothing is known of the
// bucket, Draw puts the bucket into the next sample.
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

// Gap returns the last interval of time for which the history of the bucket id has no figures, because the bucket could
// not be read. The result `there` is false if there was no such interval while this process led.
func (h *History) Gap(id store.BucketID) (g Gap, there bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	g, there = h.gaps[id]
	return g, there
}

// Omitted returns the number of buckets that took requests but are missing in the last sample, because the sample had
// no room for them.
func (h *History) Omitted() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.without
}

// Usage returns how much memory the history takes, the name of its file, and the error of the last write to the file.
// The result file is empty if the history is in memory only. The result failure is nil if the last write succeeded.
func (h *History) Usage() (u heat.Usage, file string, failure error) {
	h.drawing.Lock()
	u = h.book.Usage()
	h.drawing.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	return u, h.file, h.failure
}

// run adds a sample to the history every sampleEvery, until ctx ends. It writes the history to its file every
// saveEvery, and at the end. b reads the sizes of ranges for the samples.
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

// due returns the buckets to be sampled now, each with its partitions that got requests, and begins a new list. If the
// sample has no room for all buckets with requests, omitted is true, and the buckets that are left out come first in
// the next sample.
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
		delete(h.carried, id) // it is unknown which of the bucket's partitions took requests
		h.touch(id)
	}
	return touched, h.without > 0
}

// sample adds to the history the figures of all buckets that took requests between the times `from` and `to`. b reads
// the figures. If a bucket can't be read, its history has a gap for this time.
func (h *History) sample(ctx context.Context, b *balancer.Balancer, from, to time.Time) {
	touched, omitted := h.due()
	var samples []heat.Sample
	var ids []store.BucketID
	for id, parts := range touched {
		spans, err := h.spans(ctx, b, id, parts, to)
		if ctx.Err() != nil {
			return
		}
		if store.KindOf(err) == store.NotFound { // the bucket was deleted
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

// missed records a gap in the history of the bucket id, which could not be read because of err. The gap is the time
// between `from` and `to`. The bucket comes again in the next sample, with `parts`, its partitions that got requests.
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

// spans returns the ranges of the bucket id with their sizes and requests at the time `at`. It asks the counters only
// about some ranges:
//   - ranges that took requests, whose partitions are in touched,
//   - ranges that move, and
//   - ranges whose size is unknown or a guess.
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

// ranged is a range of a bucket with the counts of its partitions. A range that does not move has one partition. A
// moving range has two: the partition that takes its writes, and the partition that it leaves.
type ranged struct {
	start         string
	from, to      store.PartitionID
	had           carried
	known         bool // had was known before
	leaves        carried
	writes, reads float32
	// writesThere and readsThere are the requests per second of the partition that the range leaves.
	writesThere, readsThere float32
}

// sharedOut returns the figures of neighbouring ranges that share partitions, as happens while ranges move. Each range
// gets an equal share of the requests of its partitions. If its own rows are not known, it also gets an equal share of
// the rows of the partition that the ranges leave.
//
// The Go map `before` has the sizes of the partitions in the last sample. sharedOut stores the new sizes in `after`.
func sharedOut(group []ranged, before, after map[store.PartitionID]carried) []heat.Span {
	if len(group) == 1 && group[0].from == group[0].to { // most ranges do not move
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
		case x.to != x.from && (!x.known || to[x.to] > 1): // the partition fills with the rows of the range
			had.rows, had.bytes, had.guessed = x.leaves.rows/n, x.leaves.bytes/n, max(had.guessed, 1)
		case x.to == x.from && n > 1 && fresh[x.from] && x.known: // other ranges have just begun to leave the partition
			had.rows, had.bytes, had.guessed = before[x.to].rows/n, before[x.to].bytes/n, max(had.guessed, 1)
		}
		spans = append(spans, heat.Span{Start: x.start, Figures: heat.Figures{
			heat.Writes: x.writes/to[x.to] + x.writesThere/from[x.from],
			heat.Reads:  x.reads/to[x.to] + x.readsThere/from[x.from],
			heat.Rows:   had.rows, heat.Bytes: had.bytes,
		}})
		if sum, there := after[x.to]; there && x.to != x.from { // the partition gets the rows of several ranges
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

// present returns the size of the range rg at the time `at`. s has the counts of its partition, and was has the size of
// the range in the last sample, if there was one (known). If the counts do not fit the range, as after a split, the
// result is a guess from was.
func present(was carried, known bool, rg *partmap.Range, s *counter.Stats, at time.Time) carried {
	// After a split, a partition that stays has counts of more than the range, until its rows are counted again. A new
	// partition has only counts of the puts since the split.
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

// save writes the history to its file, if it has one. A failure is logged once, and Usage reports it until a later
// write succeeds.
func (h *History) save() {
	if h.file == "" {
		return
	}
	h.mu.Lock()
	moves := h.moves.Clone() // calls of moved must not wait for the compression
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

// replaceFile replaces the content of the named file by data in one step: a reader finds either all of the new data or
// all of the old data, even after a crash.
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
