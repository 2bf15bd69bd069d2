package mapclient

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/evenkeel/evenkeel/internal/record"
	"github.com/evenkeel/evenkeel/store"
)

// clockForm is the version of the stored form of a map clock. A map clock is a counter that many buckets share; it is
// raised (bumped) after every change of one of their maps. It is a register in store.Clocks, whose key is the number of
// the clock, 4 bytes big-endian. Its content is the value (8 bytes, big-endian), then the bucket ids (16 bytes each) of
// the last bumps, the oldest first:
//
//	value 7    ring a, b, a    bump 5 was for a, bump 6 for b, bump 7 for a
const clockForm = 1

// ringSize is the number of its last bumps that a map clock remembers. A map clock is a counter; each bump raises it by
// one, after a change of the map of one bucket.
const ringSize = 256

// mapClock is the stored content of a map clock: a counter that is raised after each change of a bucket's map, and the
// buckets for which it was raised last. Many buckets share a map clock.
type mapClock struct {
	// value is the number of times that the map clock was raised (bumped) since it was created.
	value uint64
	// ring has the bucket of each of the last raises of the map clock, the newest last. The last raise took the clock
	// to value, the raise before it to value-1, and so on.
	ring []store.BucketID
}

// bumped returns what the map clock c, a counter, contains after it was raised once for each of the buckets ids. The
// result is in new memory.
func (c mapClock) bumped(ids ...store.BucketID) mapClock {
	ring := slices.Concat(c.ring, ids)
	return mapClock{value: c.value + uint64(len(ids)), ring: ring[max(0, len(ring)-ringSize):]}
}

// names reports whether the map clock c was raised for the bucket id after it had the value `since`. A clock is a
// counter that remembers the buckets of its last 256 raises (ringSize). Older raises are forgotten, and do not count.
func (c mapClock) names(id store.BucketID, since uint64) bool {
	for i := len(c.ring) - 1; i >= 0; i-- {
		if c.value-uint64(len(c.ring)-1-i) <= since {
			return false
		}
		if c.ring[i] == id {
			return true
		}
	}
	return false
}

// mayConcern reports whether the map clock c, a counter of changes of maps, may have been raised for the bucket id
// after it had the value `since`. The clock remembers the buckets of only its last raises. So the result is also true
// if some of the raises after that value are forgotten.
func (c mapClock) mayConcern(id store.BucketID, since uint64) bool {
	return since+uint64(len(c.ring)) < c.value || c.names(id, since)
}

// encodeClock returns the record, at version v, that stores the content c of a map clock.
func encodeClock(v store.Version, c mapClock) store.Record {
	payload := binary.BigEndian.AppendUint64(nil, c.value)
	for _, id := range c.ring {
		payload = append(payload, id[:]...)
	}
	return record.Seal(clockForm, v, payload)
}

// decodeClock returns the content of a map clock, a counter, from its stored record. It fails with Corrupt if the
// record is damaged. It fails with Unavailable if the record contradicts its version, because the read was torn.
func decodeClock(rec store.Record) (c mapClock, err error) {
	payload, err := record.Open(clockForm, rec)
	if err != nil {
		return mapClock{}, err
	}
	n := len(payload) / 16
	if len(payload)%16 != 8 || n > ringSize {
		return mapClock{}, store.Errorf(store.Corrupt, "%d bytes are not a map clock", len(payload))
	}
	c.value = binary.BigEndian.Uint64(payload)
	if uint64(n) > c.value {
		return mapClock{}, store.Errorf(store.Corrupt, "a map clock at %d remembers %d bumps", c.value, n)
	}
	c.ring = make([]store.BucketID, n)
	for i := range c.ring {
		c.ring[i] = store.BucketID(payload[8+16*i:])
	}
	return c, nil
}

func clockKey(number uint32) []byte { return binary.BigEndian.AppendUint32(nil, number) }

// readClock returns the content of the map clock with the given number, a counter that is raised after changes of maps,
// and the version of its record. The parameter l is the consistency level of the read. A missing record is Unavailable.
func readClock(
	ctx context.Context, s store.Registers, number uint32, l store.Level,
) (c mapClock, v store.Version, err error) {
	// A missing record does not count as a clock with value zero: with that value, a process could renew leases whose
	// end a mover has already waited for.
	c, err = record.ReadAs(func() (store.Record, error) {
		rec, err := s.Read(ctx, store.Clocks, clockKey(number), l)
		if errors.Is(err, store.NotFound) {
			err = store.Errorf(store.Unavailable, "%w: were the map clocks initialised? (%w)", ErrNoClock, err)
		}
		v = rec.Version
		return rec, err
	}, decodeClock)
	return c, v, store.Wrap(clockName(number), err)
}

func clockName(number uint32) string { return fmt.Sprintf("map clock %d", number) }

// InitClocks creates the map clocks with the numbers 0 to n-1, except those that exist. Map clocks are counters by
// which processes learn of changed maps. InitClocks may be repeated, also concurrently, and later with a larger n. If n
// is not within 1 to MaxClocks, it fails with InvalidArgument. After any other error it must be repeated.
func InitClocks(ctx context.Context, s store.Registers, n int) error {
	if n < 1 || n > MaxClocks {
		return store.Errorf(store.InvalidArgument, "%d map clocks: 1 to %d", n, MaxClocks)
	}
	for number := range uint32(n) {
		if err := initClock(ctx, s, number); err != nil {
			return store.Wrap(fmt.Sprintf("initialise map clock %d", number), err)
		}
	}
	return nil
}

func initClock(ctx context.Context, s store.Registers, number uint32) error {
	const tries = 4
	var err error
	level := store.Local // so that processes start while Serial is unavailable
	for range tries {
		_, err = s.Read(ctx, store.Clocks, clockKey(number), level)
		level = store.Serial
		if err == nil {
			return nil
		}
		if !errors.Is(err, store.NotFound) {
			continue
		}
		// If the replica was only stale, the swap fails with Conflict.
		first := record.Next(store.Version{})
		err = s.Swap(ctx, store.Clocks, clockKey(number), store.Version{}, encodeClock(first, mapClock{}))
		if err == nil || errors.Is(err, store.Conflict) {
			return nil
		}
	}
	return err
}

// CheckClock returns nil if the map clock with the given number, a counter that is raised after changes of maps, can be
// read from the store. It fails with NotFound if the clock is missing, and with Corrupt if the clock is damaged.
func CheckClock(ctx context.Context, s store.Registers, number uint32) error {
	rec, err := s.Read(ctx, store.Clocks, clockKey(number), store.Serial)
	if err == nil {
		_, err = decodeClock(rec)
	}
	return store.Wrap(clockName(number), err)
}
