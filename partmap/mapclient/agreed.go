package mapclient

import (
	"context"
	"encoding/binary"
	"errors"
	"time"

	"github.com/evenkeel/evenkeel/internal/record"
	"github.com/evenkeel/evenkeel/store"
)

// The lease of a store is written down in store.Process, as a mover that waits for a
// shorter one than clients hold breaks what moves rest on.
const (
	agreedKey = "lease"
	// agreedForm: nanoseconds, 8 bytes big-endian.
	agreedForm = 1
)

// AgreeLease fails with InvalidArgument unless a lease is the one that all processes
// of a store use. The first to ask decides it. It fails with what the store says,
// too.
func AgreeLease(ctx context.Context, s store.Registers, lease time.Duration) error {
	const tries = 4
	var err error
	for range tries {
		var agreed time.Duration
		var v store.Version
		if agreed, v, err = readAgreed(ctx, s); err == nil && v.Epoch > 0 {
			if agreed != lease {
				return store.Errorf(store.InvalidArgument, "the servers of this keyspace hold leases of %v, not %v: give --lease %v. To change it, end all of them, then run rebalancer schema lease --set", agreed, lease, agreed)
			}
			return nil
		}
		if err == nil {
			if err = writeAgreed(ctx, s, v, lease); err == nil {
				return nil
			}
		}
	}
	return store.Wrap("agree on the lease", err)
}

// AgreedLease returns the lease of a store, 0 if nobody has asked yet.
func AgreedLease(ctx context.Context, s store.Registers) (time.Duration, error) {
	agreed, _, err := readAgreed(ctx, s)
	return agreed, store.Wrap("read the lease", err)
}

// SetLease changes the lease of a store. No process that uses the store may be
// running.
func SetLease(ctx context.Context, s store.Registers, lease time.Duration) error {
	if lease < MinLease || lease > MaxLease {
		return store.Errorf(store.InvalidArgument, "a lease of %v: %v to %v", lease, MinLease, MaxLease)
	}
	_, v, err := readAgreed(ctx, s)
	if err == nil {
		err = writeAgreed(ctx, s, v, lease)
	}
	return store.Wrap("set the lease", err)
}

func readAgreed(ctx context.Context, s store.Registers) (time.Duration, store.Version, error) {
	const tries = 3 // of reading a torn record
	for try := 1; ; try++ {
		rec, err := s.Read(ctx, store.Process, []byte(agreedKey), store.Serial)
		if errors.Is(err, store.NotFound) {
			return 0, store.Version{}, nil
		}
		var payload []byte
		if err == nil {
			payload, err = record.Open(agreedForm, rec)
		}
		if err == nil && len(payload) != 8 {
			err = store.Errorf(store.Corrupt, "%d bytes are no lease", len(payload))
		}
		if err == nil {
			return time.Duration(binary.BigEndian.Uint64(payload)), rec.Version, nil
		}
		if try == tries || store.KindOf(err) != store.Unavailable {
			return 0, store.Version{}, err
		}
	}
}

func writeAgreed(ctx context.Context, s store.Registers, old store.Version, lease time.Duration) error {
	payload := binary.BigEndian.AppendUint64(nil, uint64(lease))
	return s.Swap(ctx, store.Process, []byte(agreedKey), old, record.Seal(agreedForm, record.Next(old), payload))
}
