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
	"github.com/evenkeel/evenkeel/store/wait"
)

// A term is a setting that all processes of a store must share. Its register in store.Process has its value in force,
// or the announcement of a change (see terms).
//
// A process that starts reads the term at Local: if its own value is in force there, that is proof enough, and no
// start needs the other data centres. For a value is changed in two steps, each acknowledged in every data centre:
// first it is announced, then it is in force. Once the announcement is acknowledged, no read at Local finds the old
// value in force any more; and the new one is in force only after that. So of two processes with different values the
// one with the old value has read it before the change was announced everywhere, and whoever makes a change ends those
// first. A process that finds an announcement does not start: neither value is safe. docs/model/terms.pml searches all
// of this.
type term[T ~int64] struct {
	key    string
	what   string // for error messages
	preset T
	// ready, if not nil, has to return nil between the announcement of a change and the change.
	ready func(ctx context.Context) error
}

// terms is the content of the register of a term. In force it is form 1: the value, 8 bytes big-endian, of a time the
// nanoseconds. An announcement is form 2, of which earlier programs make nothing: the value before, and the one to
// come.
type terms[T ~int64] struct {
	value T // in force, or before the change
	next  T // announced; 0: none is
}

const (
	inForceForm   = 1
	announcedForm = 2
)

var (
	leaseTerm = term[time.Duration]{key: "lease", what: "a lease of", preset: DefaultLease}
	skewTerm  = term[time.Duration]{
		key: "clock skew", what: "a limit for the skew of clocks of", preset: commontime.DefaultLimit,
	}
	countingTerm = term[Counting]{key: "counting", what: "sizes of partitions"}
	idTerm       = term[StoreID]{key: "id", what: "an id"}
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
	change = change && mine > 0 // the others have no value to change to
	agreed, err := countingTerm.agree(ctx, s, change, func(there Counting) (Counting, error) {
		switch {
		case mine == 0 || mine == Elsewhere && (there == NotCounted || there == ByLooks):
			return there, nil
		case mine == Elsewhere && there == 0:
			return ByLooks, nil
		case there != 0 && mine != there && !change:
			return 0, store.Errorf(
				store.InvalidArgument, "sizes of partitions are %v in this store, and would be %v by this process: "+
					"use the same; or, to change it for all, end all other processes first", there, mine,
			)
		}
		return mine, nil
	})
	return agreed, store.Wrap("agree on how sizes are counted", err)
}

// AgreeOnLease makes all processes of a store use the same lease, and returns it: the first process
// stores its own, and for any other value it fails with InvalidArgument. A mover waits for the length
// of its own lease; a client with a longer one could still use an old map after the wait. With lease 0
// it returns the stored lease, or stores the default if there is none.
//
// With change the lease replaces the stored one. That is safe only while no other process uses
// the store. If it fails or is interrupted, no process may be able to start until it is repeated, with the
// new lease or with the old one; before that all other processes must have ended again.
//
// A process whose lease is in force needs a read at Local only. Any other outcome, a refusal included, is
// decided at Serial, and what is written is acknowledged in every data centre: then it fails with
// Unavailable or Timeout while these are away, also if the lease was stored, but not acknowledged; repeat
// the call.
func AgreeOnLease(ctx context.Context, s store.Registers, lease time.Duration, change bool) (time.Duration, error) {
	lease, err := leaseTerm.agreeOn(ctx, s, lease, change)
	return lease, store.Wrap("agree on the lease", err)
}

// AgreeOnClockSkew does the same for Options.MaxClockSkew, and returns it. A mover removes rows
// at a timestamp above all that clients may have drawn, which it computes from its own skew. With
// skew 0 it returns the stored skew, or stores the default if there is none.
func AgreeOnClockSkew(ctx context.Context, s store.Registers, skew time.Duration, change bool) (time.Duration, error) {
	skew, err := skewTerm.agreeOn(ctx, s, skew, change)
	return skew, store.Wrap("agree on the skew of clocks", err)
}

// agreeOn is agree for a process that takes no other value than mine; with 0 it takes what there is, or the preset.
func (t *term[T]) agreeOn(ctx context.Context, s store.Registers, mine T, change bool) (T, error) {
	change = change && mine != 0
	return t.agree(ctx, s, change, func(there T) (T, error) {
		switch {
		case mine == 0 && there == 0:
			return t.preset, nil
		case mine == 0:
			return there, nil
		case there != 0 && mine != there && !change:
			return 0, store.Errorf(
				store.InvalidArgument, "the processes of this store have %s %v, this one has %v: "+
					"use the same; or, to change it for all, end all of them first", t.what, there, mine,
			)
		}
		return mine, nil
	})
}

// read returns the value in force; 0: there is none. It fails where a change is announced.
func (t *term[T]) read(ctx context.Context, s store.Registers, l store.Level) (T, error) {
	found, err := t.found(ctx, s, l)
	if err == nil && found.next != 0 {
		return 0, t.unfinished(found)
	}
	return found.value, err
}

// found returns the content of the term's register, or the zero value if there is none.
func (t *term[T]) found(ctx context.Context, s store.Registers, l store.Level) (terms[T], error) {
	found, err := record.ReadAs(func() (store.Record, error) {
		return s.Read(ctx, store.Process, []byte(t.key), l)
	}, t.decode)
	if errors.Is(err, store.NotFound) {
		return terms[T]{}, nil
	}
	return found, err
}

// agree returns the value with which this process may run. want is what the process wants where a value is in force
// (0: none is), or an error that refuses it; with 0 it wants nothing.
func (t *term[T]) agree(
	ctx context.Context, s store.Registers, change bool, want func(there T) (T, error),
) (T, error) {
	a := agreement[T]{term: t, s: s, change: change, want: want, acknowledge: change}
	const tries = 5
	pauses := wait.Backoff{First: 250 * time.Millisecond, Most: 2 * time.Second}
	for failures := 0; ; {
		if !a.acknowledge {
			// A refusal is given by the newest value alone: what is found here may be older.
			there, err := t.read(ctx, s, store.Local)
			if err == nil && there != 0 {
				if mine, err := want(there); err == nil && mine == there {
					return there, nil
				}
			}
		}
		agreed, done, err := a.step(ctx)
		if done {
			return agreed, err
		}
		if err == nil {
			continue
		}
		if failures++; failures == tries || wait.Sleep(ctx, wait.Turn(pauses.Pause(failures))) != nil {
			return 0, err // many may start at once
		}
	}
}

// agreement is the work of a process to which its data centre does not tell enough.
type agreement[T ~int64] struct {
	*term[T]
	s      store.Registers
	change bool
	want   func(there T) (T, error)
	// acknowledge: what is in force may be of this process, or of an earlier try to change it.
	acknowledge bool
	began       bool
	from        T // the value in force, or before an announcement, when it began
}

// step does what is due by the newest record of the term. Unless it is done it has to be called again, also after an
// error, which may be that of a swap of unknown outcome.
func (a *agreement[T]) step(ctx context.Context) (agreed T, done bool, err error) {
	rec, err := a.s.Read(ctx, store.Process, []byte(a.key), store.Serial)
	var found terms[T]
	if err == nil {
		found, err = a.decode(rec)
	}
	if err != nil && !errors.Is(err, store.NotFound) {
		return 0, store.KindOf(err) == store.Corrupt, err
	}
	announced := found.next != 0
	if announced && !a.change {
		return 0, true, a.unfinished(found)
	}
	mine, err := a.want(found.value)
	switch {
	case err != nil:
		return 0, true, err
	case !announced && mine == found.value:
		if !a.acknowledge || mine == 0 {
			return mine, true, nil
		}
		return a.ended(ctx, mine, rec.Version)
	case a.began && found.value != a.from:
		return 0, true, store.Errorf(
			store.Conflict, "another process has changed it to %v meanwhile: end all other processes, and try again",
			found.value,
		)
	}
	a.began, a.from = true, found.value
	next := terms[T]{value: mine}
	switch {
	case found.value == 0: // the first one
	case announced && mine == found.value: // back: the other value was never in force
	case announced && mine == found.next:
		// It comes into force by a swap of the very version that is acknowledged.
		if err := a.seen(ctx, rec.Version); err != nil {
			return 0, !errors.Is(err, store.Conflict), store.Wrap("the change is announced, but perhaps not in every data "+
				"centre, and not in force: end all other processes again, and repeat it", err)
		}
		if a.ready != nil {
			if err := a.ready(ctx); err != nil {
				return 0, true, err
			}
		}
	default:
		next = terms[T]{value: found.value, next: mine}
	}
	v := record.Next(rec.Version)
	err = a.s.Swap(ctx, store.Process, []byte(a.key), rec.Version, next.seal(v))
	if err != nil {
		// After a Conflict another process looks after what is there.
		a.acknowledge = a.acknowledge || store.OutcomeUnknown(err)
		return 0, false, err
	}
	if next.next != 0 {
		return 0, false, nil
	}
	return a.ended(ctx, mine, v)
}

// ended is the end of step by a value that came into force at a version. Acknowledged, it spares others a read at
// Serial.
func (a *agreement[T]) ended(ctx context.Context, mine T, v store.Version) (agreed T, done bool, err error) {
	if err := a.seen(ctx, v); err != nil {
		return 0, !errors.Is(err, store.Conflict), store.Wrap("it is stored, but perhaps not in every data centre", err)
	}
	return mine, true, nil
}

// seen ensures that every later read at Local finds the record at a version. It fails with Conflict if that is not the
// newest one.
func (a *agreement[T]) seen(ctx context.Context, v store.Version) error {
	rec, err := store.Acknowledge(ctx, a.s, store.Process, []byte(a.key))
	if err == nil && rec.Version != v {
		err = store.Errorf(store.Conflict, "another process has changed it meanwhile")
	}
	return err
}

// unfinished is the error of a process that finds an announcement.
func (t *term[T]) unfinished(found terms[T]) error {
	return store.Errorf(
		store.InvalidArgument, "a change of %s from %v to %v was begun, and has not ended: no process starts before it has. "+
			"End all processes of this store; then start one that makes the change to %v again, or one that makes the change "+
			"to %v, which takes it back", t.name(), found.value, found.next, found.next, found.value,
	)
}

func (c terms[T]) seal(v store.Version) store.Record {
	payload := binary.BigEndian.AppendUint64(nil, uint64(c.value))
	if c.next == 0 {
		return record.Seal(inForceForm, v, payload)
	}
	return record.Seal(announcedForm, v, binary.BigEndian.AppendUint64(payload, uint64(c.next)))
}

func (t *term[T]) decode(rec store.Record) (c terms[T], err error) {
	const number = 8
	payload, err := record.Open(announcedForm, rec)
	if err == nil && len(payload) == 2*number {
		c.next = T(binary.BigEndian.Uint64(payload[number:]))
	} else if store.KindOf(err) != store.Unavailable { // not torn
		payload, err = record.Open(inForceForm, rec)
		if err == nil && len(payload) != number {
			err = store.Errorf(store.Corrupt, "%d bytes are not %s", len(payload), t.name())
		}
	}
	if err != nil {
		return c, err
	}
	if c.value = T(binary.BigEndian.Uint64(payload)); c.value == 0 {
		return c, store.Errorf(store.Corrupt, "0 is not %s", t.name())
	}
	return c, nil
}

// name is what the term is, without its value.
func (t *term[T]) name() string { return strings.TrimSuffix(t.what, " of") }

// StoreID tells a store from others: a random number, which the first process that asks draws. Copies of a store have
// the same.
type StoreID int64

// String has 16 hexadecimal digits.
func (id StoreID) String() string { return fmt.Sprintf("%016x", uint64(id)) }

// Identify returns the store's id. It reads and fails like AgreeOnLease.
func Identify(ctx context.Context, s store.Registers) (StoreID, error) {
	t := idTerm
	t.preset = StoreID(1 + rand.Int64N(math.MaxInt64))
	id, err := t.agreeOn(ctx, s, 0, false)
	return id, store.Wrap("identify the store", err)
}

// Terms are what the processes of a store have agreed on; 0: nothing yet.
type Terms struct {
	ID               StoreID
	Lease, ClockSkew time.Duration
	Counting         Counting
	Schema           Schema
	Limits           Limits // of the process that announced its own last
}

// Agreed returns the terms for people to read. It changes nothing. It reads at Local: what is new may be missing, and
// the newest id is that of Identified. It fails where a change of a term was begun and has not ended.
func Agreed(ctx context.Context, s store.Registers) (t Terms, err error) {
	if t.Lease, err = leaseTerm.read(ctx, s, store.Local); err == nil {
		t.ClockSkew, err = skewTerm.read(ctx, s, store.Local)
	}
	if err == nil {
		t.Counting, err = countingTerm.read(ctx, s, store.Local)
	}
	if err == nil {
		t.ID, err = idTerm.read(ctx, s, store.Local)
	}
	if err == nil {
		var schema terms[Schema]
		schema, err = schemaTerm.found(ctx, s, store.Local)
		t.Schema = schema.value
	}
	if err == nil {
		t.Limits, err = AnnouncedLimits(ctx, s)
	}
	return t, store.Wrap("read what processes have agreed on", err)
}

// Identified returns the store's id; 0: no process has asked for it yet. It changes nothing.
func Identified(ctx context.Context, s store.Registers) (StoreID, error) {
	id, err := idTerm.read(ctx, s, store.Local) // an id stays what it is
	if id == 0 {
		id, err = idTerm.read(ctx, s, store.Serial)
	}
	return id, store.Wrap("identify the store", err)
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
// returns those that were there before; zero if there were none. Where a read at Local finds the same ones
// it does nothing more: if others were announced elsewhere just now, their process has told it.
func AnnounceLimits(ctx context.Context, s store.Registers, mine Limits) (before Limits, err error) {
	if before, err = AnnouncedLimits(ctx, s); err == nil && before == mine {
		return before, nil
	}
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

// AnnouncedLimits returns the limits of the process that announced its own last, as far as a read at Local tells; zero
// if none has.
func AnnouncedLimits(ctx context.Context, s store.Registers) (Limits, error) {
	l, err := record.ReadAs(func() (store.Record, error) {
		return s.Read(ctx, store.Process, []byte(limitsKey), store.Local)
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
