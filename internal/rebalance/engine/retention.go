package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/evenkeel/evenkeel/internal/door"
	"github.com/evenkeel/evenkeel/internal/keytext"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/rebalance/pause"
	"github.com/evenkeel/evenkeel/internal/wait"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/retention"
	"github.com/evenkeel/evenkeel/store"
)

// Drop describes the old keys of one bucket that a rule of retention, e.g. "keep 30 days", would delete or has deleted.
type Drop struct {
	Bucket string `json:"bucket"`
	Rule   string `json:"rule"`
	// Began is when the rule was checked. Ended is when all old keys were deleted; Ended is zero before, and after a
	// failure.
	Began time.Time `json:"began"`
	Ended time.Time `json:"ended,omitzero"`
	// From and To are the bounds of the old keys: From is included, To is not, and an empty key is no bound. First and
	// Last are the first and the last existing key between the bounds.
	From  keytext.Key `json:"from"`
	To    keytext.Key `json:"to"`
	First keytext.Key `json:"first,omitempty"`
	Last  keytext.Key `json:"last,omitempty"`
	// Whole is the number of ranges of the bucket that lie within the bounds and may have rows. Rows is about the
	// number of rows in these ranges, by the counters. Unknown is the number of ranges of which the counters know
	// nothing.
	Whole   int64 `json:"whole_ranges"`
	Rows    int64 `json:"rows"`
	Unknown int64 `json:"ranges_of_unknown_size"`
	// Parts is the number of ranges that lie only partly within the bounds. PartRows is about the number of rows in
	// these ranges.
	Parts    int64 `json:"parts_of_ranges"`
	PartRows int64 `json:"rows_of_these_ranges"`
	// PutBefore is set for rules by the time of the put: entries that were put before PutBefore are deleted. Then Rows
	// is an exact count, and Whole is the number of all ranges with such entries.
	PutBefore time.Time `json:"put_before,omitzero"`
	// Error is the reason why not all old keys were deleted, or why the rule can't be applied; empty if there was no
	// error.
	Error string `json:"error,omitempty"`
}

// RetentionRun describes one run of all rules of retention, which delete old entries, over all buckets: its times and
// what was deleted.
type RetentionRun struct {
	Began time.Time `json:"began"`
	// Ended is when the run ended; zero while the run goes on.
	Ended time.Time `json:"ended,omitzero"`
	// Buckets is the number of buckets with a rule. Whole is the number of ranges that were deleted as a whole, and
	// Rows is about the number of their rows. Failed is the number of failures.
	Buckets int64 `json:"buckets"`
	Whole   int64 `json:"whole_ranges"`
	Rows    int64 `json:"rows"`
	Failed  int64 `json:"failed"`
}

// RetentionStatus describes what the rules of retention, which delete old entries, have deleted in this process, and
// when they are applied next.
type RetentionStatus struct {
	Rules []string `json:"rules"`
	Every string   `json:"every"`
	// Paused is true if the last run left out buckets because moves are paused.
	Paused bool `json:"paused"`
	// Next is when the next run begins. It is zero while a run goes on, and if this process does not apply the rules.
	Next time.Time     `json:"next,omitzero"`
	Last *RetentionRun `json:"last,omitempty"`
	Now  *RetentionRun `json:"now,omitempty"`
	// Drops are the last deletions by this process that were completed or failed, the newest first, at most 100.
	Drops []Drop `json:"drops"`
}

// Retention deletes the old entries of buckets by the rules in Options.Retention, at regular times, while this process
// leads the first group of buckets (shard 0).
type Retention struct {
	o   *Options
	log *slog.Logger

	mu    sync.Mutex
	state RetentionStatus
	since time.Time    // when this process began to apply rules; zero while it does not
	read  []time.Time  // for each rule by the time of the put: its last application, which reads all entries
	runs  int64        // number of runs that have ended
	sums  RetentionRun // totals of all runs
}

const (
	// RetentionEvery is the default pause from the end of one run of the rules of retention to the beginning of the
	// next run.
	RetentionEvery = time.Hour
	// dropsKept is the number of deletions that RetentionStatus.Drops has at most.
	dropsKept = 100
	// dropsFor is the longest time for which a deletion of old entries goes on before it checks again whether moves are
	// paused.
	dropsFor = 30 * time.Second
	// rereads bounds how often all entries of a bucket are read for a rule by the time of the put: at most this number
	// of times within the time for which the rule keeps entries. For a rule that keeps entries for a day, that is about
	// once an hour.
	rereads = 24
)

// errRetentionPaused is the error with which the deletion of a bucket's old entries stops when it finds moves paused.
var errRetentionPaused = errors.New("moves are paused")

func newRetention(o *Options) *Retention {
	t := &Retention{o: o, log: o.Log, read: make([]time.Time, len(o.Retention))}
	t.state.Every, t.state.Rules, t.state.Drops = o.RetentionEvery.String(), []string{}, []Drop{}
	for i := range o.Retention {
		t.state.Rules = append(t.state.Rules, o.Retention[i].String())
	}
	return t
}

// Status returns the last deletions by the rules of retention, the last run of the rules, and the time of the next run.
func (t *Retention) Status() RetentionStatus {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.state
	s.Drops = slices.Clone(s.Drops)
	if s.Now != nil {
		now := *s.Now
		s.Now = &now
	}
	return s
}

// Run deletes old entries by the rules of retention, at regular times, until ctx ends. The first run begins after at
// most a minute. A Rebalancer calls Run while the process leads shard 0 (the first group of buckets), so that only one
// process applies the rules. Only one goroutine at a time may call Run.
func (t *Retention) Run(ctx context.Context) {
	const first = time.Minute // pause before the first run
	t.change(func(s *RetentionStatus) { t.since = time.Now() })
	defer t.change(func(s *RetentionStatus) { s.Now, s.Next, t.since = nil, time.Time{}, time.Time{} })
	for rest := min(first, t.o.RetentionEvery); ; rest = t.o.RetentionEvery {
		t.change(func(s *RetentionStatus) { s.Next = time.Now().Add(rest).UTC() })
		if wait.Sleep(ctx, rest) != nil {
			return
		}
		t.once(ctx)
	}
}

func (t *Retention) change(f func(*RetentionStatus)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f(&t.state)
}

// due returns the rules that a run at the time `now` applies. Rules by the time of the put have to read all entries of
// their buckets, so they are left out if they were applied lately (see rereads). All other rules are always due.
func (t *Retention) due(now time.Time) (rules []retention.Rule) {
	for i, r := range t.o.Retention {
		if r.Time == retention.Written {
			if now.Sub(t.read[i]) < r.Keep/rereads {
				continue
			}
			t.read[i] = now
		}
		rules = append(rules, r)
	}
	return rules
}

// once applies the rules of retention, which delete old entries, to all buckets once, and records the run in the
// status.
func (t *Retention) once(ctx context.Context) {
	r := &RetentionRun{Began: time.Now().UTC()}
	t.change(func(s *RetentionStatus) { s.Now, s.Next = r, time.Time{} })
	paused := false
	err := t.Look(ctx, "", t.due(time.Now()), func(id store.BucketID, d *Drop) error {
		var err error
		if d.Error != "" {
			err = errors.New(d.Error)
		} else {
			err = t.drop(ctx, id, d)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if errors.Is(err, errRetentionPaused) {
			paused = true
			return nil
		}
		if store.KindOf(err) == store.NotFound { // the bucket was deleted: there is nothing to drop any more
			return nil
		}
		t.dropped(r, d, err)
		return nil
	}, func() { t.change(func(*RetentionStatus) { r.Buckets++ }) })
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		t.log.Warn("rules of retention could not be applied to all buckets; it is tried again", "error", err)
	}
	t.change(func(s *RetentionStatus) {
		if err != nil {
			r.Failed++
			t.sums.Failed++
		}
		if paused || r.Failed > 0 {
			clear(t.read)
		}
		if paused && !s.Paused {
			t.log.Info("rules of retention are not applied while moves are paused")
		}
		r.Ended = time.Now().UTC()
		s.Now, s.Last, s.Paused = nil, r, paused
		t.runs++
		t.log.Debug("rules of retention are applied", "buckets", r.Buckets, "ranges", r.Whole, "rows", r.Rows,
			"failed", r.Failed, "took", r.Ended.Sub(r.Began).Round(time.Millisecond))
	})
}

// dropped records how the deletion d of old keys has ended: with success if err is nil, or else with err. It adds the
// result to the log, to the figures of the run r, and to the status.
func (t *Retention) dropped(r *RetentionRun, d *Drop, err error) {
	if err != nil {
		d.Error = err.Error()
		t.log.Warn("old entries could not be dropped; it is tried again", "bucket", d.Bucket, "rule", d.Rule, "error", err)
	} else {
		d.Ended = time.Now().UTC()
		t.log.Info("old entries are dropped", "bucket", d.Bucket, "rule", d.Rule, "first", d.First.String(),
			"last", d.Last.String(), "ranges", d.Whole, "rows", d.Rows, "took", d.Ended.Sub(d.Began).Round(time.Millisecond))
	}
	t.change(func(s *RetentionStatus) {
		for _, sum := range []*RetentionRun{r, &t.sums} {
			if err != nil {
				sum.Failed++
			} else {
				sum.Whole, sum.Rows = sum.Whole+d.Whole, sum.Rows+d.Rows
			}
		}
		s.Drops = slices.Insert(s.Drops, 0, *d)
		s.Drops = s.Drops[:min(len(s.Drops), dropsKept)]
	})
}

// drop deletes the old entries that d describes from the bucket id. If moves are paused meanwhile, drop stops and
// returns errRetentionPaused.
func (t *Retention) drop(ctx context.Context, id store.BucketID, d *Drop) error {
	b, from := t.o.Buckets.BucketOf(listing.BucketInfo{Name: d.Bucket, ID: id}), []byte(d.From)
	for {
		s, err := pause.Read(ctx, t.o.Store, store.Local)
		if err != nil {
			return err
		}
		if _, paused := s.Of(id, time.Now()); paused {
			return errRetentionPaused
		}
		until := time.Now().Add(dropsFor)
		if d.PutBefore.IsZero() {
			from, err = b.DeleteRangeUntil(ctx, from, d.To, until)
		} else {
			before := store.Timestamp(d.PutBefore.UnixMicro())
			from, err = door.Bucket(b).DeleteOlderUntil(ctx, from, d.To, before, until)
		}
		if err != nil || from == nil {
			return err
		}
	}
}

// Look finds the old keys that the given rules would delete now, in the named bucket, or in all buckets if the name is
// empty. It deletes nothing itself.
//   - It calls f with a Drop for each bucket and rule with old keys. If a rule can't be applied, Drop.Error says why.
//   - It calls each, if not nil, for each bucket that has a rule.
//
// The present time is the common time of the store, so a wrong clock of this process does no harm. Look fails with f's
// error, or if the list of buckets can't be read.
func (t *Retention) Look(
	ctx context.Context, bucket string, rules []retention.Rule, f func(store.BucketID, *Drop) error, each func(),
) error {
	for info, err := range t.o.Buckets.Buckets(ctx, bucket, "") {
		if err != nil {
			return err
		}
		if bucket != "" && info.Name != bucket {
			return nil
		}
		about := false
		for i := range rules {
			r := &rules[i]
			if !r.Applies(info.Name) {
				continue
			}
			d := &Drop{Bucket: info.Name, Rule: r.String(), Began: time.Now().UTC()}
			some, err := t.look(ctx, &info, r, d)
			switch {
			case err != nil && store.KindOf(err) == store.NotFound: // the bucket was deleted
				continue
			case errors.Is(err, errOtherLayer) && r.Bucket != info.Name: // a pattern may also match buckets of objects
				continue
			case err != nil && ctx.Err() != nil:
				return context.Cause(ctx)
			case err != nil:
				d.Error = err.Error()
			}
			if !about && each != nil {
				each()
			}
			about = true
			if some || err != nil {
				if err := f(info.ID, d); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// errOtherLayer is the error of a rule of retention for a bucket of objects. The rules are only for buckets of plain
// entries; buckets of objects have lifecycle rules instead.
var errOtherLayer = store.Errorf(store.InvalidArgument,
	"the bucket has objects: rules of retention are for plain entries; give it a lifecycle rule")

// look finds the keys of one bucket that are old by the rule r, and describes them in d. The bool is true if the bucket
// has old keys.
func (t *Retention) look(ctx context.Context, info *listing.BucketInfo, r *retention.Rule, d *Drop) (bool, error) {
	b := t.o.Buckets.BucketOf(*info)
	settings, err := b.Settings(ctx)
	if err == nil && len(settings) > 0 {
		err = errOtherLayer
	}
	if err != nil {
		return false, err
	}
	now, err := door.Bucket(b).Mark(ctx)
	if err != nil {
		return false, err
	}
	var some bool
	if d.From, d.To, some = r.Old(time.UnixMicro(int64(now.At()))); !some {
		return false, nil
	}
	if r.Time == retention.Written {
		d.PutBefore = time.UnixMicro(int64(now.At())).Add(-r.Keep).UTC()
		old, err := door.Bucket(b).OlderThan(ctx, d.From, d.To, store.Timestamp(d.PutBefore.UnixMicro()))
		d.First, d.Last, d.Whole, d.Rows = old.First, old.Last, old.Ranges, old.Entries
		return old.Entries > 0, err
	}
	// The keys at both ends show whether the bucket's keys have the rule's form at all. If there are no old keys, the
	// first key with the prefix shows it.
	end := func(q listing.Query) (key []byte, err error) {
		q.Limit, q.KeysOnly = 1, true
		for item, err := range b.All(ctx, q) {
			if err == nil {
				_, err = r.TimeOf(item.Key)
			}
			return item.Key, err
		}
		return nil, nil
	}
	if d.First, err = end(listing.Query{From: d.From, To: d.To}); err != nil {
		return false, err
	}
	if d.First == nil {
		_, err = end(listing.Query{Prefix: r.Prefix})
		return false, err
	}
	if d.Last, err = end(listing.Query{From: d.From, To: d.To, Reverse: true}); err != nil || d.Last == nil {
		return false, err
	}
	return true, t.measure(ctx, info.ID, d)
}

// measure counts the ranges of the bucket id that have keys from d.First to d.Last, and adds up their rows by the
// estimates of the counters. It stores the sums in d.
func (t *Retention) measure(ctx context.Context, id store.BucketID, d *Drop) error {
	maps := mapclient.Of(t.o.Buckets)
	root, err := maps.Load(ctx, id)
	if err != nil {
		return err
	}
	const atOnce = 1000
	var run []partmap.Range
	flush := func() error {
		defer func() { run = run[:0] }()
		return t.count(ctx, id, run, d)
	}
	for rg, err := range maps.Ranges(ctx, root, d.First) {
		if err != nil {
			return err
		}
		if bytes.Compare(rg.Start, d.Last) > 0 {
			break
		}
		if run = append(run, rg); len(run) == atOnce {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	return flush()
}

func (t *Retention) count(ctx context.Context, id store.BucketID, run []partmap.Range, d *Drop) error {
	parts := make([]store.Partition, len(run))
	for i := range run {
		parts[i] = store.Partition{Bucket: id, ID: run[i].WriteTo()}
	}
	known := func(int) (rows int64, known bool) { return 0, false }
	if t.o.Counts != nil && len(run) > 0 {
		stats, err := t.o.Counts.Stats(ctx, parts)
		if err != nil {
			return fmt.Errorf("read the sizes of ranges: %w", err)
		}
		known = func(i int) (int64, bool) { return stats[i].Rows, stats[i].Known }
	}
	for i := range run {
		rg := &run[i]
		rows, known := known(i)
		whole := bytes.Compare(rg.Start, d.From) >= 0 &&
			(len(d.To) == 0 || len(rg.End) > 0 && bytes.Compare(rg.End, d.To) <= 0)
		switch {
		case known && rows == 0:
			continue
		case whole:
			d.Whole, d.Rows = d.Whole+1, d.Rows+rows
		default:
			d.Parts, d.PartRows = d.Parts+1, d.PartRows+rows
		}
		if !known {
			d.Unknown++
		}
	}
	return nil
}
