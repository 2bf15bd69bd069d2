// Package timestamps draws the timestamps of writes: microseconds since 1970, strictly
// increasing within a process and, where they are kept in a store, across its restarts.
package timestamps

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/record"
)

// Alone implements the methods of listing.Timestamps but Next for a source that is the only
// one of its store: its next timestamp is above all that were acknowledged or read.
type Alone struct{}

// Passed implements listing.Timestamps.
func (Alone) Passed(context.Context, store.Timestamp) error { return nil }

// Seen implements listing.Timestamps.
func (Alone) Seen(store.Timestamp) {}

// Source draws unique timestamps. It follows the wall clock and never goes back: where the
// clock steps back it increments by one. All methods are safe for concurrent use.
type Source struct {
	Alone
	now func() time.Time

	mu   sync.Mutex
	last store.Timestamp // the highest one drawn
	// Of a kept source: timestamps up to ceiling are reserved in the store.
	ceiling store.Timestamp
	regs    store.Registers
	ahead   store.Timestamp
	version store.Version // of the register at which ceiling was written
}

// New makes a source that keeps nothing across restarts, for processes whose clocks are
// synchronised by other means. A nil now is time.Now.
func New(now func() time.Time) *Source {
	if now == nil {
		now = time.Now
	}
	return &Source{now: now}
}

// Ahead is how far ahead a kept source reserves timestamps. It costs one swap per Ahead, and
// a jump of Ahead after a restart.
const Ahead = 10 * time.Second

// registerKey is where a kept source writes its ceiling, in store.Process.
const registerKey = "timestamps"

// form of the payload: the ceiling, 8 bytes big-endian.
const form = 1

// Kept makes a source whose timestamps never repeat, also after a restart with a clock that
// was set back: it reserves timestamps before it returns them, by a compare-and-swap of a
// ceiling in store.Process. Two sources over one store never draw the same timestamp. A nil
// now is time.Now.
func Kept(regs store.Registers, now func() time.Time) *Source {
	s := New(now)
	s.regs, s.ahead = regs, store.Timestamp(Ahead.Microseconds())
	return s
}

// Next returns the first of n consecutive timestamps (n >= 1), all above every earlier one.
// It fails with Unavailable or Timeout where a reservation fails.
func (s *Source) Next(ctx context.Context, n int) (store.Timestamp, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := max(s.last+1, store.Timestamp(s.now().UnixMicro()), 1)
	for s.regs != nil && first+store.Timestamp(n)-1 > s.ceiling {
		moved, err := s.reserve(ctx, first+store.Timestamp(n)-1+s.ahead)
		if err != nil {
			return 0, store.Wrap("reserve timestamps", err)
		}
		first = max(first, moved+1)
	}
	s.last = first + store.Timestamp(n) - 1
	return first, nil
}

// reserve raises the stored ceiling to want. Where another source, or an earlier run, has
// reserved since, it returns the highest timestamp that may be taken.
func (s *Source) reserve(ctx context.Context, want store.Timestamp) (taken store.Timestamp, err error) {
	const attempts = 5
	var mine []store.Token // swaps whose outcome is unknown, or not known yet
	for range attempts {
		if s.version == (store.Version{}) || len(mine) > 0 || err != nil {
			v, stored, rerr := s.read(ctx)
			switch {
			case rerr != nil:
				err = rerr
				continue
			case v.Epoch > 0 && slices.Contains(mine, v.Token):
				s.version, s.ceiling = v, stored
				return taken, nil
			case v != s.version:
				s.version, taken = v, stored
				want = max(want, stored+s.ahead)
			}
		}
		next := record.Next(s.version)
		mine = append(mine, next.Token)
		err = s.regs.Swap(ctx, store.Process, []byte(registerKey), s.version,
			record.Seal(form, next, binary.BigEndian.AppendUint64(nil, uint64(want))))
		if err == nil {
			s.version, s.ceiling = next, want
			return taken, nil
		}
		if store.KindOf(err) == store.InvalidArgument || ctx.Err() != nil {
			break
		}
	}
	// The outcome of the swaps is unknown: the next call reads before it reserves.
	s.version, s.ceiling = store.Version{}, 0
	if store.KindOf(err) == store.Conflict {
		err = store.Errorf(store.Unavailable, "others reserve at the same time: %w", err)
	}
	return 0, err
}

func (s *Source) read(ctx context.Context) (store.Version, store.Timestamp, error) {
	r, err := s.regs.Read(ctx, store.Process, []byte(registerKey), store.Serial)
	if errors.Is(err, store.NotFound) {
		return store.Version{}, 0, nil
	}
	if err != nil {
		return store.Version{}, 0, err
	}
	payload, err := record.Open(form, r)
	if err != nil {
		return store.Version{}, 0, err
	}
	if len(payload) != 8 {
		return store.Version{}, 0, store.Errorf(store.Corrupt, "the ceiling of timestamps has %d bytes", len(payload))
	}
	return r.Version, store.Timestamp(binary.BigEndian.Uint64(payload)), nil
}
