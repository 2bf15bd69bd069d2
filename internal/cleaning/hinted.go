package cleaning

import (
	"context"
	"slices"
	"time"

	"github.com/evenkeel/evenkeel/internal/care"
	"github.com/evenkeel/evenkeel/internal/hints"
	"github.com/evenkeel/evenkeel/internal/wait"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
)

// mode says what a round of cleaning reads of each bucket: all rows, or only the rows of multipart uploads.
type mode struct {
	// all means that the round reads all rows. Without all, the round reads all rows only in buckets with lifecycle
	// rules that delete by age, and otherwise only uploads.
	all bool
	// handsOver means that the round writes a hint, which is a key for a cleaner to look at later, for each object that
	// may have something to delete later. So after the round hints lead to all these objects.
	handsOver bool
	// byHints means that hints should have led cleaners to everything that was due before the round. So if the round
	// finds something that was due for hours, a hint was lost.
	byHints bool
}

// nextMode returns what the next round of cleaning reads: all rows, or little more than uploads. It reads all rows
// unless hints lead to every object with something to delete. Three conditions must hold for that:
//   - all processes write hints,
//   - they have done so since a round over all rows began, and
//   - cleaners follow the hints in time.
func (s *rounds) nextMode(ctx context.Context) mode {
	c := s.c
	if c.o.Hints == nil {
		return mode{all: true}
	}
	if c.o.Noting != nil {
		noting, err := c.o.Noting(ctx)
		if err != nil && ctx.Err() == nil {
			c.o.Log.Warn("whether all processes write hints for the cleaner is not known: it looks at all rows", "error", err)
		}
		if err == nil && !noting && !s.lastAll.IsZero() {
			s.keepAll(ctx, time.Time{})
		}
		if err != nil || !noting {
			return mode{all: true}
		}
	}
	c.mu.Lock()
	behind := time.Since(s.position.Time())
	c.mu.Unlock()
	since := time.Since(s.lastAll)
	if since < -late { // the time was kept by a clock that was ahead
		since = c.o.AllEvery
	}
	if (behind > late || behind < -late) && !s.lastAll.IsZero() {
		return mode{all: true}
	}
	due := s.lastAll.IsZero() || since >= c.o.AllEvery
	return mode{all: due, handsOver: due, byHints: !s.lastAll.IsZero()}
}

// allKey and positionKey are the keys of registers, which are small values in the store. The registers tell the next
// process when the last round over all rows began, and up to which position hints were followed. The other constants
// are limits for following hints.
const (
	allKey       = "cleaner's round over all rows"
	positionKey  = "cleaner's hints"
	hintForm     = 1
	mostHinted   = 20_000    // the most keys in memory at a time
	tryBucketsIn = time.Hour // until a hint is followed again in a bucket whose moves are paused, or that can't be read
	// late is the longest delay with which cleaners may follow hints. If the delay is longer, rounds of cleaning read
	// all rows instead.
	late = 24 * time.Hour
)

type lastAll struct {
	Began time.Time `json:"began"`
}

func (s *rounds) keepAll(ctx context.Context, began time.Time) {
	if began.IsZero() {
		s.lastAll = began // also where that can't be noted
	}
	if err := s.c.write(ctx, s.keyOf(allKey), hintForm, lastAll{began}); err != nil {
		if ctx.Err() == nil {
			s.c.o.Log.Warn("that the cleaner has looked at all rows could not be noted", "error", err)
		}
		return
	}
	s.lastAll = began
}

func (s *rounds) recallAll(ctx context.Context) time.Time {
	var last lastAll
	if _, err := s.c.read(ctx, s.keyOf(allKey), hintForm, &last); err != nil {
		return time.Time{}
	}
	return last.Began
}

// followHints runs a cleaner on the objects to which hints lead, again after each pause of Options.Every, until ctx
// ends. A hint is the key of an object that may have something to delete.
func (s *rounds) followHints(ctx context.Context) {
	c := s.c
	at := s.recallPosition(ctx)
	for pause := min(c.o.Every, firstRound); wait.Sleep(ctx, pause) == nil; pause = c.o.Every {
		next, err := s.follow(ctx, at)
		if err == nil && next.Slot != at.Slot {
			err = c.write(ctx, s.keyOf(positionKey), hintForm, next)
		}
		if err == nil {
			at = next
			c.mu.Lock()
			s.position, s.followed = at, time.Now()
			c.mu.Unlock()
			continue
		}
		if ctx.Err() == nil {
			c.failed(&Round{}, 1, map[store.Kind]int64{store.KindOf(err): 1}, err)
			c.o.Log.Warn("hints for the cleaner could not all be followed; it is tried again", "error", err)
		}
	}
}

func (s *rounds) recallPosition(ctx context.Context) (at hints.Position) {
	if _, err := s.c.read(ctx, s.keyOf(positionKey), hintForm, &at); err != nil {
		at = hints.Position{}
	}
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.position = at
	return at
}

// unfollowed reports whether a round must read all rows, since hints may be missing. A hint is the key of an object
// that may have something to delete. The result is true if no process has followed hints for longer than Options.Every
// and an hour.
func (s *rounds) unfollowed(ctx context.Context) bool {
	// In that time an older program, which writes no hints, may have written objects.
	at := s.recallPosition(ctx)
	return at.Slot > 0 && time.Since(at.Time()) > s.c.o.Every+time.Hour
}

// follow runs cleaners on the objects that hints name. A hint is the key of an object that may have something to
// delete. Only hints after the position from are followed, up to those whose time has come. The result end is the
// position up to which hints are followed. While an operator has paused all moves, follow does nothing, and end is
// from.
func (s *rounds) follow(ctx context.Context, from hints.Position) (end hints.Position, err error) {
	if paused, err := s.c.paused(ctx, hints.Bucket); err != nil || paused {
		return from, err
	}
	for i, n := range s.of.List() {
		at := from
		for more := true; more; {
			var rows []hints.Row
			if rows, at, err = s.c.o.Hints.Due(ctx, n, at, mostHinted); err != nil {
				return from, err
			}
			if more = len(rows) > 0; more {
				if err := s.followRows(ctx, rows); err != nil {
					return from, err
				}
			}
		}
		if i == 0 || at.Slot < end.Slot {
			end = at
		}
	}
	return end, nil
}

// followRows runs cleaners on the objects whose keys are in the given rows of hints, and then deletes the rows. A hint
// is the key of an object that may have something to delete. For objects that must be looked at again, e.g. in a bucket
// whose moves are paused, followRows first writes new hints.
func (s *rounds) followRows(ctx context.Context, rows []hints.Row) error {
	c := s.c
	keys := map[store.BucketID][]string{}
	for i := range rows {
		id := rows[i].Bucket
		keys[id] = append(keys[id], rows[i].Keys...)
	}
	there, done := map[store.BucketID]bool{}, map[store.BucketID]bool{}
	wanted := func(info listing.BucketInfo) bool {
		there[info.ID] = true
		return keys[info.ID] != nil
	}
	_, listed, err := c.each(ctx, "follow hints into", wanted, func(ctx context.Context, b *bucket) error {
		list := keys[b.id]
		slices.Sort(list)
		err := s.passOver(ctx, b, slices.Compact(list))
		done[b.id] = err == nil
		return err
	})
	if !listed || ctx.Err() != nil {
		return store.Wrap("list the buckets", err)
	}
	if err != nil {
		c.failed(&Round{}, 1, map[store.Kind]int64{store.KindOf(err): 1}, err)
		c.o.Log.Warn("hints for the cleaner could not be followed in all buckets; it is tried again", "error", err)
	}
	for id, list := range keys {
		for _, key := range list {
			if there[id] && !done[id] {
				c.o.Hints.Note(id, []byte(key), tryBucketsIn)
			}
		}
	}
	for id := range s.hinted {
		if !there[id] {
			delete(s.hinted, id)
		}
	}
	if err := c.o.Hints.Flush(ctx); err != nil {
		return store.Wrap("write hints for the cleaner", err)
	}
	for i := range rows {
		if err := c.o.Hints.Forget(ctx, &rows[i]); err != nil {
			return err
		}
	}
	return nil
}

// note returns a func that stores a hint for the bucket id, or nil if no hints are used. A hint says that a cleaner may
// find something to delete in the object key. The parameter after of the func is the time from now until then.
func (c *Cleaning) note(id store.BucketID) func(key []byte, after time.Duration) {
	if c.o.Hints == nil {
		return nil
	}
	return func(key []byte, after time.Duration) { c.o.Hints.Note(id, key, after) }
}

// aging records that the bucket id has lifecycle rules that delete objects by age. From then on each round of cleaning
// reads all its rows, and ignores hints, which lead to single objects.
func (s *rounds) aging(id store.BucketID) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.aged[id]++
}

// passOver runs a cleaner on single objects of the bucket b, to which hints lead. The parameter keys has the keys of
// the objects. If the bucket has lifecycle rules that delete by age, passOver does nothing.
func (s *rounds) passOver(ctx context.Context, b *bucket, keys []string) error {
	// Each round of cleaning reads all rows of such a bucket.
	c := s.c
	byAge, err := b.ByAge(ctx)
	if err != nil {
		return err
	}
	if byAge {
		s.aging(b.id)
		return nil
	}
	cleaner := s.hinted[b.id]
	if cleaner == nil {
		cleaner, err = b.Cleaner(care.CleanOptions{Pacer: c.pacer, Later: c.note(b.id)})
		if err != nil {
			return err
		}
		s.hinted[b.id] = cleaner
	}
	did, err := cleaner.PassOver(ctx, keys)
	c.count(&s.byHints, care.Cleaned{}, did)
	c.mu.Lock()
	c.sums.hinted += int64(len(keys))
	c.mu.Unlock()
	if did.FirstFailure != nil {
		c.failed(&s.byHints, did.Failed, did.Reasons, did.FirstFailure)
	}
	return err
}
