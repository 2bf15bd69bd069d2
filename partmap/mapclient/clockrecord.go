package mapclient

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/record"
)

// A map clock is a register in store.Clocks; its key is its number, 4 bytes big-endian.
//
// clockForm is the version of the payload (see store/record): the value (8 bytes, big-endian),
// then the 16 bytes of each bucket of the last bumps, the oldest first.
const clockForm = 1

// ringSize is the number of bumps that a clock has the buckets of.
const ringSize = 256

// mapClock is the content of a map clock.
type mapClock struct {
	// value is the number of bumps.
	value uint64
	// ring has the buckets of the last bumps, the newest last: the last bump made the value, the
	// one before it value-1, and so on.
	ring []store.BucketID
}

// bumped returns the clock after one bump for each bucket, in new memory.
func (c mapClock) bumped(ids ...store.BucketID) mapClock {
	ring := slices.Concat(c.ring, ids)
	return mapClock{value: c.value + uint64(len(ids)), ring: ring[max(0, len(ring)-ringSize):]}
}

// names reports whether the ring has a bump for the bucket above the value since.
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

// mayConcern reports whether there may be a bump for the bucket above the value since: there is
// one, or the ring does not reach back to since.
func (c mapClock) mayConcern(id store.BucketID, since uint64) bool {
	return since+uint64(len(c.ring)) < c.value || c.names(id, since)
}

// encodeClock returns the record of a clock at version v.
func encodeClock(v store.Version, c mapClock) store.Record {
	payload := binary.BigEndian.AppendUint64(nil, c.value)
	for _, id := range c.ring {
		payload = append(payload, id[:]...)
	}
	return record.Seal(clockForm, v, payload)
}

// decodeClock fails with Corrupt, or with Unavailable where the record is torn.
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

// readClock reads a clock. A missing row is Unavailable, and not a clock at zero: that would
// renew leases for which a mover has waited already.
func readClock(
	ctx context.Context, s store.Registers, number uint32, l store.Level,
) (c mapClock, v store.Version, err error) {
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

// InitClocks creates the map clocks 0 to n-1 where they are missing. It may be repeated,
// concurrently, and with a larger n later: a bucket keeps its clock. It fails with
// InvalidArgument, or with an error of the store, after which it must be repeated.
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

// CheckClock reads a map clock at Serial. It fails with NotFound if the clock is missing, with
// Corrupt if it is damaged.
func CheckClock(ctx context.Context, s store.Registers, number uint32) error {
	rec, err := s.Read(ctx, store.Clocks, clockKey(number), store.Serial)
	if err == nil {
		_, err = decodeClock(rec)
	}
	return store.Wrap(clockName(number), err)
}
