package mapclient

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/record"
)

// A map clock's register (store.Clocks, by its number, 4 bytes big-endian) holds
// the clock's value and the buckets of its last bumps. store/record seals it:
// with the register's own epoch and token, so that a torn read shows.
//
// clockForm is the version of the payload: value (8 bytes, big-endian), then the
// 16 bytes of each bucket, the oldest bump first.
const clockForm = 1

// ringSize is how many bumps a clock remembers.
const ringSize = 256

// mapClock is what the register of a map clock says.
type mapClock struct {
	// value is how many bumps there were: it grows by one per bucket bumped.
	value uint64
	// ring names the buckets of the last bumps, the newest last: the last one
	// brought the clock to value, the one before it to value-1, and so on.
	ring []store.BucketID
}

// bumped returns the clock after bumps of these buckets. It shares no memory.
func (c mapClock) bumped(ids ...store.BucketID) mapClock {
	ring := make([]store.BucketID, 0, len(c.ring)+len(ids))
	ring = append(append(ring, c.ring...), ids...)
	return mapClock{value: c.value + uint64(len(ids)), ring: ring[max(0, len(ring)-ringSize):]}
}

// names reports whether a bump after the clock stood at since names the bucket.
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

// namesAll reports whether it names all of them.
func (c mapClock) namesAll(ids []store.BucketID, since uint64) bool {
	for _, id := range ids {
		if !c.names(id, since) {
			return false
		}
	}
	return true
}

// mayConcern reports whether the bucket may have been bumped after the clock
// stood at since: it was, or the ring does not reach back so far.
func (c mapClock) mayConcern(id store.BucketID, since uint64) bool {
	return since+uint64(len(c.ring)) < c.value || c.names(id, since)
}

// encodeClock makes the register's record at version v.
func encodeClock(v store.Version, c mapClock) store.Record {
	payload := binary.BigEndian.AppendUint64(make([]byte, 0, 8+16*len(c.ring)), c.value)
	for _, id := range c.ring {
		payload = append(payload, id[:]...)
	}
	return record.Seal(clockForm, v, payload)
}

// decodeClock reads a register's record. It fails with Corrupt, or with
// Unavailable where the record is torn.
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

// readClock reads a clock. A row that is missing is Unavailable, never a clock at
// zero: whoever took it for one would renew leases that have long been waited for.
func readClock(ctx context.Context, s store.Registers, number uint32, l store.Level) (mapClock, store.Version, error) {
	const tries = 3 // of reading a torn record
	for try := 1; ; try++ {
		rec, err := s.Read(ctx, store.Clocks, clockKey(number), l)
		if errors.Is(err, store.NotFound) {
			err = store.Errorf(store.Unavailable, "%w: were the map clocks initialised? (%w)", ErrNoClock, err)
			return mapClock{}, store.Version{}, store.Wrap(clockName(number), err)
		}
		if err != nil {
			return mapClock{}, store.Version{}, store.Wrap(clockName(number), err)
		}
		c, err := decodeClock(rec)
		if err == nil || try == tries || store.KindOf(err) != store.Unavailable {
			return c, rec.Version, store.Wrap(clockName(number), err)
		}
	}
}

func clockName(number uint32) string { return fmt.Sprintf("map clock %d", number) }

// InitClocks makes the map clocks number 0 to n-1 where they do not exist. It may
// be repeated, by several at once, and with a larger n later: a bucket keeps the
// clock that it got. It fails with InvalidArgument, or with what the store says;
// then it is to be called again.
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
	level := store.Local // so that a process starts also while Serial is away
	for range tries {
		_, err = s.Read(ctx, store.Clocks, clockKey(number), level)
		level = store.Serial
		if err == nil {
			return nil
		}
		if !errors.Is(err, store.NotFound) {
			continue
		}
		// Where a replica only lags, the swap meets the clock: Conflict.
		first := record.Next(store.Version{})
		err = s.Swap(ctx, store.Clocks, clockKey(number), store.Version{}, encodeClock(first, mapClock{}))
		if err == nil || errors.Is(err, store.Conflict) {
			return nil
		}
	}
	return err
}

// CheckClock reads a map clock at Serial and reports what is wrong with it:
// NotFound where it is missing, Corrupt where it is damaged.
func CheckClock(ctx context.Context, s store.Registers, number uint32) error {
	rec, err := s.Read(ctx, store.Clocks, clockKey(number), store.Serial)
	if err == nil {
		_, err = decodeClock(rec)
	}
	return store.Wrap(clockName(number), err)
}
