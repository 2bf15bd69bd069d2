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

// A term is what all processes of a store have to have alike. It is written down in
// store.Process: its nanoseconds, 8 bytes big-endian.
type term struct {
	key    string
	form   byte
	what   string // of the messages
	preset time.Duration
}

var (
	leaseTerm = term{key: "lease", form: 1, what: "a lease", preset: DefaultLease}
	skewTerm  = term{key: "clock skew", form: 1, what: "a limit for the skew of clocks", preset: commontime.DefaultLimit}
)

// AgreeOnLease holds every process of a store to the same lease: the first one
// writes its own down, and it fails with InvalidArgument for whoever comes with
// another one. A mover waits for as long as its own lease; a client with a longer
// one would go on with a map that the mover takes for forgotten.
//
// With change the lease is written over whatever was agreed on. That is only safe
// while no other process uses the store.
//
// It reads at Serial, and what it writes counts only when every data centre has it:
// else a process in a data centre that lags behind would start with the old lease. So
// no process starts while Serial can't be had, and it fails with Unavailable or
// Timeout; also where the change is written, but not acknowledged: then repeat it.
func AgreeOnLease(ctx context.Context, s store.Registers, lease time.Duration, change bool) error {
	if lease == 0 {
		lease = DefaultLease
	}
	_, err := leaseTerm.agree(ctx, s, lease, change)
	return store.Wrap("agree on the lease", err)
}

// AgreeOnClockSkew does the same for Options.MaxClockSkew, and returns it: what a
// mover removes it removes at a timestamp above every one that a client may have given
// out, which its own limit tells. Skew 0 takes what was agreed on, or the default if
// nothing was: for movers, which have no reason to come with one of their own.
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
				return 0, store.Errorf(store.InvalidArgument, "the processes of this store have %s of %v, this one comes with %v: give it theirs; or, to change it for all, end every one of them first", t.what, agreed, mine)
			}
		case !errors.Is(err, store.NotFound):
			failed = err
			continue
		case mine == 0:
			write = t.preset
		}
		next := record.Next(rec.Version)
		failed = s.Swap(ctx, store.Process, []byte(t.key), rec.Version, record.Seal(t.form, next, binary.BigEndian.AppendUint64(nil, uint64(write))))
		if failed == nil {
			return write, t.acknowledge(ctx, s, true)
		}
	}
	return 0, failed
}

// acknowledge makes certain that every later read finds what was written.
func (t *term) acknowledge(ctx context.Context, s store.Registers, written bool) error {
	if !written {
		return nil
	}
	_, err := store.Acknowledge(ctx, s, store.Process, []byte(t.key))
	return store.Wrap("it is written, but not known to be everywhere", err)
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
