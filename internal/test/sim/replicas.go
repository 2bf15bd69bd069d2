package sim

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/evenkeel/evenkeel/internal/record"
	"github.com/evenkeel/evenkeel/store"
)

// replicas is the store in memory as a cluster shows it, as far as registers go:
// what was swapped in is seen at once by reads at Serial, but by reads at Local
// only after a while, or once it was acknowledged. Until then a root may be read
// torn: the newer version beside the older content.
type replicas struct {
	store.Store
	lag  time.Duration // at most
	torn float64       // probability of such a read

	mu   sync.Mutex
	r    *rand.Rand
	past map[string][]state
}

// state is one that a register came to.
type state struct {
	rec     store.Record
	swapped time.Time
	shown   time.Time // from then on reads at Local find it
}

func register(t store.Table, key []byte) string { return fmt.Sprintf("%s/%x", t, key) }

func (s *replicas) Swap(ctx context.Context, t store.Table, key []byte, old store.Version, next store.Record) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := register(t, key)
	if len(s.past[name]) == 0 {
		if rec, err := s.Store.Read(ctx, t, key, store.Serial); err == nil {
			s.past[name] = []state{{rec: rec}}
		}
	}
	if err := s.Store.Swap(ctx, t, key, old, next); err != nil {
		return err
	}
	lag := time.Duration(0)
	if s.lag > 0 && s.r.IntN(2) == 0 {
		lag = time.Duration(s.r.Int64N(int64(s.lag)))
	}
	next.Blob = bytes.Clone(next.Blob)
	s.past[name] = append(s.past[name], state{next, time.Now(), time.Now().Add(lag)})
	return nil
}

func (s *replicas) Read(ctx context.Context, t store.Table, key []byte, l store.Level) (store.Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	past := s.past[register(t, key)]
	if l == store.Serial || len(past) == 0 {
		return s.Store.Read(ctx, t, key, l)
	}
	i := len(past) - 1
	for ; i > 0 && past[i].shown.After(time.Now()); i-- {
	}
	rec := past[i].rec
	if t == store.Roots && i+1 < len(past) && s.r.Float64() < s.torn {
		rec.Version = past[i+1].rec.Version
	}
	rec.Blob = bytes.Clone(rec.Blob)
	return rec, nil
}

// Acknowledge is what a store with replicas offers to map clients.
func (s *replicas) Acknowledge(ctx context.Context, t store.Table, key []byte) (store.Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	past := s.past[register(t, key)]
	for i := range past {
		if past[i].shown.After(time.Now()) {
			past[i].shown = time.Now()
		}
	}
	return s.Store.Read(ctx, t, key, store.Serial)
}

// mend gives a torn record the version that belongs to its content.
func (s *replicas) mend(t store.Table, key []byte, torn store.Record) store.Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.past[register(t, key)] {
		if bytes.Equal(p.rec.Blob, torn.Blob) {
			torn.Version = p.rec.Version
		}
	}
	return torn
}

// acknowledgedAt is when reads at Local began to find a register at an epoch or a
// later one; false: they do not yet.
func (s *replicas) acknowledgedAt(t store.Table, key []byte, epoch uint64) (first time.Time, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.past[register(t, key)] {
		if p.rec.Epoch >= epoch && !p.shown.After(time.Now()) && (!ok || p.shown.Before(first)) {
			first, ok = p.shown, true
		}
	}
	return first, ok
}

// waitedFor says how a wait that has just ended falls short of I6: it begins at
// the acknowledged bump of a clock for a bucket, made after the bucket's root was
// acknowledged at an epoch.
func (s *replicas) waitedFor(id store.BucketID, epoch uint64, least time.Duration) error {
	swap, ok := s.acknowledgedAt(store.Roots, id[:], epoch)
	if !ok {
		return fmt.Errorf("epoch %d is not acknowledged", epoch)
	}
	s.mu.Lock()
	bumps := s.past[register(store.Clocks, clockKey)]
	s.mu.Unlock()
	before := uint64(0)
	for _, bump := range bumps {
		c := openClock(bump.rec)
		named := c.names(id, before)
		before = c.value
		if !named || bump.swapped.Before(swap) {
			continue
		}
		at, ok := s.acknowledgedAt(store.Clocks, clockKey, bump.rec.Epoch)
		if !ok || time.Since(at) < least {
			return fmt.Errorf("the wait for epoch %d did not begin at an acknowledged bump", epoch)
		}
		return nil
	}
	return fmt.Errorf("no bump came after epoch %d was acknowledged", epoch)
}

// clockKey is that of the one map clock of a simulation.
var clockKey = make([]byte, 4)

// mapClock is the content of a map clock's register, as package mapclient writes
// it: the value, and the buckets of the last bumps, the newest last.
type mapClock struct {
	value uint64
	ring  [][16]byte
}

const clockForm = 1

func openClock(rec store.Record) (c mapClock) {
	payload, err := record.Open(clockForm, rec)
	if err != nil || len(payload)%16 != 8 {
		panic(fmt.Sprintf("sim: a map clock of another form: %v", err))
	}
	for _, b := range payload[:8] {
		c.value = c.value<<8 | uint64(b)
	}
	for p := payload[8:]; len(p) > 0; p = p[16:] {
		c.ring = append(c.ring, [16]byte(p))
	}
	return c
}

// names reports whether a bump after the clock stood at since was for the bucket.
func (c mapClock) names(id store.BucketID, since uint64) bool {
	n := uint64(len(c.ring))
	for i := range n {
		if c.value-i <= since {
			return false
		}
		if store.BucketID(c.ring[n-1-i]) == id {
			return true
		}
	}
	return false
}

// bumped is the record of a clock after one more bump.
func (c mapClock) bumped(old store.Version, token store.Token, id store.BucketID) store.Record {
	payload := make([]byte, 8)
	for i := range 8 {
		payload[i] = byte((c.value + 1) >> (8 * (7 - i)))
	}
	for _, b := range c.ring {
		payload = append(payload, b[:]...)
	}
	payload = append(payload, id[:]...)
	return record.Seal(clockForm, store.Version{Epoch: old.Epoch + 1, Token: token}, payload)
}
