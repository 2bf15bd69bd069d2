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

// replicas is a store in memory that shows registers as a cluster does. Reads at level Serial see each swap at once.
// Reads at level Local see a swap after a while, or once it was acknowledged. Until then a root may be read torn, which
// means with the newer version beside the older content.
type replicas struct {
	store.Store
	lag  time.Duration // at most
	torn float64       // probability of such a read

	mu   sync.Mutex
	r    *rand.Rand
	past map[string][]state
}

// state is one record that a register had, and when reads at level Local began to find the record.
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

// Acknowledge makes the current record of a register visible to reads at level Local, and returns the record. Map
// clients call Acknowledge where a store has replicas.
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

// mend returns a torn record with the version that belongs to its content.
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

// acknowledgedAt returns the time at which reads at level Local began to find a register at the given epoch or a later
// one. The result ok is false if they do not find it yet.
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

// waitedFor checks a wait of a mover that has just ended (invariant I6). The wait must have begun at an acknowledged
// bump of a map clock for the bucket, made after the bucket's root was acknowledged at the given epoch. least is the
// shortest time that a wait may take.
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

// clockKey is the key of the only map clock of a simulation.
var clockKey = make([]byte, 4)

// mapClock is the content of a map clock's register, as package mapclient writes it: a value, and the buckets of the
// last bumps, the newest last. A bump tells clients that the map of a bucket has changed.
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

// names reports whether a bump after the clock had the value since was for the bucket id.
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

// bumped returns the record of the clock after one more bump, for the bucket id.
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
