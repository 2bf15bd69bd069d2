// Package timestamps draws the timestamps of writes: microseconds since 1970. The timestamps of a process increase
// strictly. If their highest value is kept in a store, they also increase across restarts of the process.
package timestamps

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/evenkeel/evenkeel/internal/record"
	"github.com/evenkeel/evenkeel/store"
)

// Alone is embedded in a source of timestamps that is the only source of its store. It has the methods Passed and Seen
// of listing.Timestamps, which do nothing. The next timestamp of an only source is always above all timestamps that
// were acknowledged or read.
type Alone struct{}

// Passed returns nil immediately. A writer calls it before it acknowledges a write, to wait until the later timestamps
// of all sources are higher. With only one source of timestamps no write has to wait.
func (Alone) Passed(context.Context, store.Timestamp) error { return nil }

// Seen is told of a timestamp that was read from the store, and does nothing. With only one source of timestamps, later
// timestamps are above the given timestamp anyway.
func (Alone) Seen(store.Timestamp) {}

// Source draws unique timestamps for writes. They follow the wall clock but never go back. While the clock is behind
// the last timestamp, each timestamp is the last timestamp plus one microsecond. All methods are safe for concurrent
// use.
type Source struct {
	Alone
	now func() time.Time

	mu   sync.Mutex
	last store.Timestamp // the highest timestamp drawn
	// The next four fields are those of a source made by Kept. Timestamps up to ceiling are reserved in a register of
	// regs. The duration ahead (in microseconds) is how far beyond the clock timestamps are reserved.
	ceiling store.Timestamp
	regs    store.Registers
	ahead   store.Timestamp
	version store.Version // the register's version at which ceiling was written; zero: unknown
}

// New returns a source of timestamps that stores nothing, so after a restart it may draw the same timestamps again. It
// is for processes whose clocks are synchronised by other means. now returns the time of the wall clock; a nil now
// means time.Now.
func New(now func() time.Time) *Source {
	if now == nil {
		now = time.Now
	}
	return &Source{now: now}
}

// Ahead is how far ahead of the clock a source made by Kept reserves timestamps in the store, so that no other source
// draws the same timestamps. Reserving costs one compare-and-swap in each period of this length. After a restart the
// timestamps jump by up to Ahead.
const Ahead = 10 * time.Second

// registerKey is the key of a register in the table store.Process. In this register, a source of timestamps made by
// Kept stores its ceiling, the highest timestamp that it has reserved.
const registerKey = "timestamps"

// form is the version of the encoding of the highest timestamp that a source has reserved. The encoding is 8 bytes,
// big-endian.
const form = 1

// Kept returns a source whose timestamps never repeat, even after a restart with a clock that was set back. The source
// reserves timestamps before it returns them: a compare-and-swap in regs raises the highest reserved timestamp. So two
// sources over the same store never draw the same timestamp. now returns the time of the wall clock; a nil now means
// time.Now.
func Kept(regs store.Registers, now func() time.Time) *Source {
	s := New(now)
	s.regs, s.ahead = regs, store.Timestamp(Ahead.Microseconds())
	return s
}

// Next returns the first of n consecutive timestamps; n must be at least 1. All n are above every timestamp that the
// source has drawn before. If the source has to reserve timestamps in the store first and the store fails, Next fails
// with Unavailable or Timeout.
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

// reserve raises the ceiling, the timestamp in the store up to which all timestamps are reserved, to at least the
// timestamp want. Another source, or an earlier run of the process, may have reserved timestamps that this source does
// not know of. The result taken is the highest of these, above which the source must draw its timestamps, or 0 if there
// are none.
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

// read returns the version of the register in which the ceiling is stored, and the ceiling: the timestamp up to which
// all timestamps are reserved. Both are zero if nothing was ever reserved.
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
