package mapclient

import (
	"context"
	"encoding/binary"
	"errors"
	"time"

	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/commontime"
	"github.com/evenkeel/evenkeel/store/record"
)

// A term is a setting that all processes of a store must share. The register in store.Process
// has its nanoseconds, 8 bytes big-endian.
type term struct {
	key    string
	form   byte
	what   string // for error messages
	preset time.Duration
}

var (
	leaseTerm = term{key: "lease", form: 1, what: "a lease", preset: DefaultLease}
	skewTerm  = term{key: "clock skew", form: 1, what: "a limit for the skew of clocks", preset: commontime.DefaultLimit}
)

// AgreeOnLease makes all processes of a store use the same lease: the first process stores its
// own, and for any other value it fails with InvalidArgument. A mover waits for the length of its
// own lease; a client with a longer one could still use an old map after the wait.
//
// With change the lease replaces the stored one. That is safe only while no other process uses
// the store.
//
// It reads at Serial, and acknowledges what it writes in every data centre: otherwise a process
// in a stale data centre could start with the old lease. So no process starts while Serial is
// unavailable: it fails with Unavailable or Timeout. It also does if the lease was stored, but
// not acknowledged; then repeat the call.
func AgreeOnLease(ctx context.Context, s store.Registers, lease time.Duration, change bool) error {
	if lease == 0 {
		lease = DefaultLease
	}
	_, err := leaseTerm.agree(ctx, s, lease, change)
	return store.Wrap("agree on the lease", err)
}

// AgreeOnClockSkew does the same for Options.MaxClockSkew, and returns it. A mover removes rows
// at a timestamp above all that clients may have drawn, which it computes from its own skew. With
// skew 0 it returns the stored skew, or stores the default if there is none.
func AgreeOnClockSkew(ctx context.Context, s store.Registers, skew time.Duration, change bool) (time.Duration, error) {
	skew, err := skewTerm.agree(ctx, s, skew, change)
	return skew, store.Wrap("agree on the skew of clocks", err)
}

func (t *term) agree(ctx context.Context, s store.Registers, mine time.Duration, change bool) (time.Duration, error) {
	const tries = 4
	var failed error
	for range tries {
		rec, err := s.Read(ctx, store.Process, []byte(t.key), store.Serial)
		write := mine
		switch {
		case err == nil:
			agreed, err := t.decode(rec)
			if err != nil {
				failed = err
				continue
			}
			if mine == 0 || agreed == mine {
				return agreed, t.acknowledge(ctx, s, change || failed != nil)
			}
			if !change {
				return 0, store.Errorf(
					store.InvalidArgument, "the processes of this store have %s of %v, this one has %v: "+
						"use the same; or, to change it for all, end all of them first", t.what, agreed, mine,
				)
			}
		case !errors.Is(err, store.NotFound):
			failed = err
			continue
		case mine == 0:
			write = t.preset
		}
		next := record.Next(rec.Version)
		payload := binary.BigEndian.AppendUint64(nil, uint64(write))
		failed = s.Swap(ctx, store.Process, []byte(t.key), rec.Version, record.Seal(t.form, next, payload))
		if failed == nil {
			return write, t.acknowledge(ctx, s, true)
		}
	}
	return 0, failed
}

// acknowledge ensures that every later read returns what was written.
func (t *term) acknowledge(ctx context.Context, s store.Registers, written bool) error {
	if !written {
		return nil
	}
	_, err := store.Acknowledge(ctx, s, store.Process, []byte(t.key))
	return store.Wrap("it is stored, but perhaps not in every data centre", err)
}

func (t *term) decode(rec store.Record) (time.Duration, error) {
	payload, err := record.Open(t.form, rec)
	if err != nil {
		return 0, err
	}
	if len(payload) != 8 {
		return 0, store.Errorf(store.Corrupt, "%d bytes are not %s", len(payload), t.what)
	}
	return time.Duration(binary.BigEndian.Uint64(payload)), nil
}
