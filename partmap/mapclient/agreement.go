package mapclient

import (
	"context"
	"encoding/binary"
	"errors"
	"time"

	"github.com/evenkeel/evenkeel/internal/record"
	"github.com/evenkeel/evenkeel/store"
)

// leaseKey is where the lease of a store is written down, in store.Process: its
// nanoseconds, 8 bytes big-endian.
const (
	leaseKey  = "lease"
	leaseForm = 1
)

// AgreeOnLease holds every process of a store to the same lease: the first one
// writes its own down, and it fails with InvalidArgument for whoever comes with
// another one. A mover waits for as long as its own lease; a client with a longer
// one would go on with a map that the mover takes for forgotten.
//
// With change the lease is written over whatever was agreed on. That is only safe
// while no other process uses the store.
func AgreeOnLease(ctx context.Context, s store.Registers, lease time.Duration, change bool) error {
	if lease == 0 {
		lease = DefaultLease
	}
	return store.Wrap("agree on the lease", agreeOnLease(ctx, s, lease, change))
}

func agreeOnLease(ctx context.Context, s store.Registers, lease time.Duration, change bool) error {
	const tries = 4
	level := store.Local // so that a process starts also while Serial is away
	var failed error
	for range tries {
		rec, err := s.Read(ctx, store.Process, []byte(leaseKey), level)
		level = store.Serial
		switch {
		case err == nil:
			agreed, err := decodeLease(rec)
			if err != nil {
				failed = err
				continue
			}
			if agreed == lease {
				return nil
			}
			if !change {
				return store.Errorf(store.InvalidArgument, "the processes of this store have a lease of %v, this one comes with %v: give it theirs; or, to change it for all, end every one of them first", agreed, lease)
			}
		case !errors.Is(err, store.NotFound):
			failed = err
			continue
		}
		next := record.Next(rec.Version)
		failed = s.Swap(ctx, store.Process, []byte(leaseKey), rec.Version, record.Seal(leaseForm, next, binary.BigEndian.AppendUint64(nil, uint64(lease))))
		if failed == nil {
			return nil
		}
	}
	return failed
}

func decodeLease(rec store.Record) (time.Duration, error) {
	payload, err := record.Open(leaseForm, rec)
	if err != nil {
		return 0, err
	}
	if len(payload) != 8 {
		return 0, store.Errorf(store.Corrupt, "%d bytes are not a lease", len(payload))
	}
	return time.Duration(binary.BigEndian.Uint64(payload)), nil
}
