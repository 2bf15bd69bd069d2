package keys

import (
	"fmt"
	"sync"
	"time"
)

// Snowflake ids have 63 bits: 41 of milliseconds since the epoch, 10 of the worker, 12 of a
// sequence, as Twitter made them, with Twitter's epoch. They last until 2080.
const (
	MaxWorker = 1<<workerBits - 1

	epoch        = 1288834974657 // milliseconds since 1970
	workerBits   = 10
	sequenceBits = 12
	lastMilli    = 1<<41 - 1
	maxSequence  = 1<<sequenceBits - 1
)

// Ids may run ahead of the clock, in bursts and while it was set back: up to ahead they are
// given at once, up to behind Next waits.
const (
	ahead  = time.Second
	behind = 2 * time.Second
)

// Snowflakes makes ids that grow, also those of one millisecond, and also while the clock is
// set back. It is safe for concurrent use. Two that have the same worker at the same time
// make the same ids: who gives out workers is up to the program.
type Snowflakes struct {
	worker int64
	mu     sync.Mutex
	last   int64 // milliseconds and sequence of the newest id
}

// NewSnowflakes makes ids of a worker, from 0 to MaxWorker.
func NewSnowflakes(worker int) (*Snowflakes, error) {
	if worker < 0 || worker > MaxWorker {
		return nil, fmt.Errorf("keys: worker %d: 0 to %d are possible", worker, MaxWorker)
	}
	return &Snowflakes{worker: int64(worker), last: -1}, nil
}

// Above makes all further ids greater than id: call it after a restart with the newest id
// that is stored, as the clock may have been set back meanwhile.
func (s *Snowflakes) Above(id int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sequence := id & maxSequence
	if id>>sequenceBits&MaxWorker != s.worker { // within a millisecond, workers come before sequences
		sequence = maxSequence
	}
	s.last = max(s.last, id>>(workerBits+sequenceBits)<<sequenceBits|sequence)
}

// Next returns a new id. More than 4,096 in a millisecond borrow from the next ones, up to a
// second; then Next waits. It fails while the clock is more than two seconds behind the
// newest id, or outside of the years from 2010 to 2080.
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

// next returns an id, or how long to wait for it.
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

// SnowflakeTime returns when an id was made, in whole milliseconds.
func SnowflakeTime(id int64) time.Time {
	return time.UnixMilli(id>>(workerBits+sequenceBits) + epoch)
}

// FirstSnowflake returns the least id of a time's millisecond: a bound for "since then" and
// "older than that". Times before 2010 or after 2080 count as the first or last millisecond.
func FirstSnowflake(t time.Time) int64 {
	return min(max(t.UnixMilli()-epoch, 0), lastMilli) << (workerBits + sequenceBits)
}
