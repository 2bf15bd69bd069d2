package mapclient

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/commontime"
	"github.com/evenkeel/evenkeel/store/record"
)

// A term is a setting that all processes of a store must share. The register in store.Process
// has its number, 8 bytes big-endian: of a time the nanoseconds.
type term[T ~int64] struct {
	key    string
	form   byte
	what   string // for error messages
	preset T
}

var (
	leaseTerm = term[time.Duration]{key: "lease", form: 1, what: "a lease of", preset: DefaultLease}
	skewTerm  = term[time.Duration]{
		key: "clock skew", form: 1, what: "a limit for the skew of clocks of", preset: commontime.DefaultLimit,
	}
	countingTerm = term[Counting]{key: "counting", form: 1, what: "sizes of partitions"}
	idTerm       = term[StoreID]{key: "id", form: 1, what: "an id"}
)

// Counting is how the sizes of the partitions of a store are known.
type Counting int64

// The ways. Their numbers are part of the format.
const (
	// NotCounted: they are not. Nothing is split automatically.
	NotCounted Counting = 1
	// ByLooks: who leads reads all rows, at an interval or at times of the day.
	ByLooks Counting = 2
	// InRedis: every process counts what it writes in one Redis.
	InRedis Counting = 3
	// Elsewhere is no way but a claim: this process counts nothing, and others look after sizes.
	Elsewhere Counting = -1
)

// String is the way, for people.
func (c Counting) String() string {
	switch c {
	case NotCounted, Elsewhere:
		return "not counted"
	case ByLooks:
		return "counted by looks at all rows"
	case InRedis:
		return "counted in Redis"
	}
	return "counted in a way that this program does not know"
}

// AgreeOnCounting does the same as AgreeOnLease for how sizes are counted, and returns it. Where
// one process does not count what it writes and others rely on it, rows are invisible. With 0 it
// takes what there is; that is 0 where no process has said it. A process that says Elsewhere may
// start unless sizes are counted in Redis, and as the first one says ByLooks.
func AgreeOnCounting(ctx context.Context, s store.Registers, mine Counting, change bool) (Counting, error) {
	const doing = "agree on how sizes are counted"
	there, err := countingTerm.read(ctx, s)
	switch {
	case err != nil:
		return 0, store.Wrap(doing, err)
	case mine == 0:
		return there, nil
	case mine == Elsewhere && (there == NotCounted || there == ByLooks):
		return there, nil
	case mine == Elsewhere && there == 0:
		mine = ByLooks
	case there != 0 && mine != there && (mine == Elsewhere || !change):
		return 0, store.Wrap(doing, store.Errorf(
			store.InvalidArgument, "sizes of partitions are %v in this store, and would be %v by this process: "+
				"use the same; or, to change it for all, end all other processes first", there, mine,
		))
	}
	agreed, err := countingTerm.agree(ctx, s, mine, change)
	return agreed, store.Wrap(doing, err)
}

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

// read returns what is stored; 0: nothing is.
func (t *term[T]) read(ctx context.Context, s store.Registers) (T, error) {
	v, err := record.ReadAs(func() (store.Record, error) {
		return s.Read(ctx, store.Process, []byte(t.key), store.Serial)
	}, t.decode)
	if errors.Is(err, store.NotFound) {
		return 0, nil
	}
	return v, err
}

func (t *term[T]) agree(ctx context.Context, s store.Registers, mine T, change bool) (T, error) {
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
					store.InvalidArgument, "the processes of this store have %s %v, this one has %v: "+
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
func (t *term[T]) acknowledge(ctx context.Context, s store.Registers, written bool) error {
	if !written {
		return nil
	}
	_, err := store.Acknowledge(ctx, s, store.Process, []byte(t.key))
	return store.Wrap("it is stored, but perhaps not in every data centre", err)
}

func (t *term[T]) decode(rec store.Record) (T, error) {
	payload, err := record.Open(t.form, rec)
	if err != nil {
		return 0, err
	}
	if len(payload) != 8 {
		return 0, store.Errorf(store.Corrupt, "%d bytes are not %s", len(payload), strings.TrimSuffix(t.what, " of"))
	}
	return T(binary.BigEndian.Uint64(payload)), nil
}

// StoreID tells a store from others: a random number, which the first process that asks draws. Copies of a store have
// the same.
type StoreID int64

// String has 16 hexadecimal digits.
func (id StoreID) String() string { return fmt.Sprintf("%016x", uint64(id)) }

// Identify returns the store's id. It fails like AgreeOnLease.
func Identify(ctx context.Context, s store.Registers) (StoreID, error) {
	t := idTerm
	t.preset = StoreID(1 + rand.Int64N(math.MaxInt64))
	id, err := t.agree(ctx, s, 0, false)
	return id, store.Wrap("identify the store", err)
}

// Terms are what the processes of a store have agreed on; 0: nothing yet.
type Terms struct {
	ID               StoreID
	Lease, ClockSkew time.Duration
	Counting         Counting
	Limits           Limits // of the process that announced its own last
}

// Agreed returns the terms. It changes nothing.
func Agreed(ctx context.Context, s store.Registers) (t Terms, err error) {
	if t.Lease, err = leaseTerm.read(ctx, s); err == nil {
		t.ClockSkew, err = skewTerm.read(ctx, s)
	}
	if err == nil {
		t.Counting, err = countingTerm.read(ctx, s)
	}
	if err == nil {
		t.ID, err = idTerm.read(ctx, s)
	}
	if err == nil {
		t.Limits, err = AnnouncedLimits(ctx, s)
	}
	return t, store.Wrap("read what processes have agreed on", err)
}

// Limits are how large partitions may be, by which the process that leads decides.
type Limits struct{ MaxRows, MinRows, MaxBytes int64 }

func (l Limits) String() string {
	return fmt.Sprintf("max_rows %d, min_rows %d, max_bytes %d", l.MaxRows, l.MinRows, l.MaxBytes)
}

// Equal limits are no condition of safety, and are changed by restarting one process after the
// other. So no process is refused; each announces its own, and can say that they differ.
const (
	limitsKey  = "limits"
	limitsForm = 1
)

// AnnounceLimits stores the limits of a process that starts, for others to compare theirs with, and
// returns those that were there before; zero if there were none.
func AnnounceLimits(ctx context.Context, s store.Registers, mine Limits) (before Limits, err error) {
	const tries = 4
	for range tries {
		var rec store.Record
		rec, err = s.Read(ctx, store.Process, []byte(limitsKey), store.Serial)
		if err == nil {
			before, err = decodeLimits(rec)
		}
		if err != nil && !errors.Is(err, store.NotFound) || err == nil && before == mine {
			break
		}
		next := record.Next(rec.Version)
		var payload []byte
		for _, limit := range []int64{mine.MaxRows, mine.MinRows, mine.MaxBytes} {
			payload = binary.BigEndian.AppendUint64(payload, uint64(limit))
		}
		err = s.Swap(ctx, store.Process, []byte(limitsKey), rec.Version, record.Seal(limitsForm, next, payload))
		if !errors.Is(err, store.Conflict) {
			break
		}
	}
	return before, store.Wrap("announce the limits of partitions", err)
}

// AnnouncedLimits returns the limits of the process that announced its own last; zero if none has.
func AnnouncedLimits(ctx context.Context, s store.Registers) (Limits, error) {
	l, err := record.ReadAs(func() (store.Record, error) {
		return s.Read(ctx, store.Process, []byte(limitsKey), store.Serial)
	}, decodeLimits)
	if errors.Is(err, store.NotFound) {
		return Limits{}, nil
	}
	return l, store.Wrap("read the announced limits of partitions", err)
}

func decodeLimits(rec store.Record) (l Limits, err error) {
	payload, err := record.Open(limitsForm, rec)
	if err != nil {
		return l, err
	}
	const number = 8
	for _, limit := range []*int64{&l.MaxRows, &l.MinRows, &l.MaxBytes} {
		if len(payload) < number { // what a later version adds comes behind
			return Limits{}, store.Errorf(store.Corrupt, "too few bytes for limits of partitions")
		}
		*limit, payload = int64(binary.BigEndian.Uint64(payload)), payload[number:]
	}
	return l, nil
}
