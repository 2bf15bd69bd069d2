package keys

import (
	"fmt"
	"sync"
	"time"
)

// A Snowflake id is a positive number of 63 bits. Its bits are laid out as Twitter laid them out, and its times count
// from Twitter's epoch, in November of 2010. The ids last until 2080.
//
//	| 41 bits: milliseconds since the epoch | 10 bits: worker | 12 bits: sequence |
const (
	// maxWorker is the greatest number of a worker, 1023. A worker is a maker of ids, such as a process.
	maxWorker = 1<<workerBits - 1

	epoch        = 1288834974657 // milliseconds since 1970
	workerBits   = 10
	sequenceBits = 12
	lastMilli    = 1<<41 - 1
	maxSequence  = 1<<sequenceBits - 1
)

// These limits bound how far the time in a new id may be later than the clock, as it is after a burst of ids, or after
// the clock was set back. Up to the limit ahead (1 s) Next returns the id immediately. Up to the limit behind (2 s)
// Next waits. Above that limit Next fails.
const (
	ahead  = time.Second
	behind = 2 * time.Second
)

// Snowflakes makes unique ids that always grow, even within one millisecond and while the clock is set back. It is safe
// for concurrent use. Each id contains the number of a worker, the maker of the id. Two Snowflakes with the same worker
// may make the same ids, so the program must give each of them a worker of its own.
type Snowflakes struct {
	worker int64
	mu     sync.Mutex
	last   int64 // milliseconds and sequence of the newest id; -1 before the first id
}

// NewSnowflakes returns a maker of unique ids. Each id contains the number worker, from 0 to 1023. No other maker
// of ids may use the same worker at the same time, or both could make the same id. NewSnowflakes fails if worker is out
// of bounds.
func NewSnowflakes(worker int) (*Snowflakes, error) {
	if worker < 0 || worker > maxWorker {
		return nil, fmt.Errorf("keys: worker %d: 0 to %d are possible", worker, maxWorker)
	}
	return &Snowflakes{worker: int64(worker), last: -1}, nil
}

// Above makes all later ids greater than the given id. Call Above after a restart, with the newest id that the program
// has stored: the clock may have been set back meanwhile.
func (s *Snowflakes) Above(id int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sequence := id & maxSequence
	if id>>sequenceBits&maxWorker != s.worker { // within a millisecond, workers come before sequences
		sequence = maxSequence
	}
	s.last = max(s.last, id>>(workerBits+sequenceBits)<<sequenceBits|sequence)
}

// Next returns a new id, greater than all ids before. If more than 4,096 ids are made in one millisecond, the
// additional ids get the times of the next milliseconds, up to a second ahead of the clock. Then Next waits for the
// clock. Next fails while the clock is more than two seconds behind the newest id, or outside the years from 2010 to
// 2080.
func (s *Snowflakes) Next() (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		id, wait, err := s.next(time.Now())
		if wait == 0 || err != nil {
			return id, err
		}
		time.Sleep(wait)
	}
}

// next returns the id that follows the newest id. The parameter at is the present time of the clock. There are three
// cases:
//   - err is not nil: no id can be made.
//   - wait is above 0: the clock is too far behind for a new id. The caller waits that long and calls next again.
//   - Otherwise id is valid.
func (s *Snowflakes) next(at time.Time) (id int64, wait time.Duration, err error) {
	now := at.UnixMilli() - epoch
	if now < 0 || now > lastMilli {
		return 0, 0, fmt.Errorf("keys: the clock says %v: ids are for 2010 to 2080", at.UTC())
	}
	next := max(s.last+1, now<<sequenceBits)
	milli := next >> sequenceBits
	early := time.Duration(milli-now) * time.Millisecond
	switch {
	case milli > lastMilli || early > behind:
		return 0, 0, fmt.Errorf("keys: the newest id is %v ahead of the clock, which was set back: "+
			"ids follow once that is at most %v", early, behind)
	case early > ahead:
		return 0, early - ahead, nil
	}
	s.last = next
	return milli<<(workerBits+sequenceBits) | s.worker<<sequenceBits | next&maxSequence, 0, nil
}

// SnowflakeTime returns the time for which Snowflakes has made the given id, to the millisecond. The time is by the
// clock of the process that made the id.
func SnowflakeTime(id int64) time.Time {
	return time.UnixMilli(id>>(workerBits+sequenceBits) + epoch)
}

// FirstSnowflake returns the smallest id of Snowflakes that can have the time t, to the millisecond. Use it as a bound
// in listings: ids from this bound on were made at t or later, smaller ids before t. A time before 2010 or after 2080
// counts as the first or the last millisecond of ids.
func FirstSnowflake(t time.Time) int64 {
	return min(max(t.UnixMilli()-epoch, 0), lastMilli) << (workerBits + sequenceBits)
}
