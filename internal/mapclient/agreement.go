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

	"github.com/evenkeel/evenkeel/internal/commontime"
	"github.com/evenkeel/evenkeel/internal/record"
	"github.com/evenkeel/evenkeel/internal/wait"
	"github.com/evenkeel/evenkeel/store"
)

// A term is a setting that must be the same in all processes of a store, such as the length of leases. The store keeps
// it in a register, a small record that changes by compare-and-swap.
//
// A process that starts reads the register in its own data centre (Local). It runs if its own value is in force. A
// change of the value takes two steps, each acknowledged in every data centre:
//
//	3 s in force  ->  a change from 3 s to 5 s announced  ->  5 s in force
//
// While a change is announced, no process starts, since neither value is safe.
//
// The read at Local is enough. Once the announcement is acknowledged, no such read finds the old value in force any
// more, and only then does the new value come into force. A process that runs with the old value has read it earlier,
// and whoever makes a change ends such processes first. docs/model/terms.pml searches all of this.
type term[T ~int64] struct {
	// key is the key of the register in which the setting is stored.
	key string
	// what names the setting before its value in error messages: "a lease of" 3s.
	what string
	// preset is the value that the first process of a store stores if it has no value of its own.
	preset T
	// ready, if not nil, is called after a change of the setting was announced and before the new value comes into
	// force. An error of ready stops the change.
	ready func(ctx context.Context) error
}

// terms is the stored record of a setting on which all processes of a store agree, such as the length of leases. The
// record has one of two forms:
//   - Form 1 is a value in force: 8 bytes big-endian, in nanoseconds if the value is a time.
//   - Form 2 announces a change: it has the value before the change and the value after it. Older programs can't read
//     it.
type terms[T ~int64] struct {
	value T // the value in force, also while a change of it is announced; 0: none
	next  T // the announced value; 0: no change is announced
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

// Counting is the way in which the processes of a store learn how many rows and bytes its partitions have, such as
// InRedis. All processes must do so in the same way.
type Counting int64

// These are the ways in which the processes of a store learn the sizes of its partitions. The numbers are stored, so
// they must never change.
const (
	// NotCounted means that nobody knows the sizes of partitions. No partition is split automatically.
	NotCounted Counting = 1
	// ByLooks means that the leader, an elected process, reads all rows to know the sizes of partitions: at an interval
	// or at times of the day.
	ByLooks Counting = 2
	// InRedis means that every process counts its own writes, all in the same Redis.
	InRedis Counting = 3
	// Elsewhere is the choice of a process that counts nothing and leaves the sizes of partitions to other processes.
	// It is never stored.
	Elsewhere Counting = -1
)

// String returns the way of counting in words, such as "counted in Redis".
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

// AgreeOnCounting makes all processes of a store count the sizes of partitions in the same way, and returns that way.
// Otherwise a process that relies on counts would not see the rows of a process that does not count. The parameter mine
// is the way of this process:
//   - NotCounted, ByLooks or InRedis: mine must be equal to the stored way. If no way is stored, mine is stored. If
//     change is true, mine replaces the stored way, as in AgreeOnLease.
//   - 0: the result is the stored way, or 0 if none is stored.
//   - Elsewhere: the result is the stored way. If none is stored, ByLooks is stored. If the stored way is InRedis, the
//     call fails with InvalidArgument.
func AgreeOnCounting(ctx context.Context, s store.Registers, mine Counting, change bool) (Counting, error) {
	change = change && mine > 0 // 0 and Elsewhere are no ways to change to
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

// AgreeOnLease returns the length of leases on which all processes of a store agree. The first process stores its own
// lease. If the lease of another process differs from the stored one, the call fails with InvalidArgument. If the
// parameter lease is 0, the result is the stored lease, or the default, which is stored if no lease is.
//
// If change is true, the given lease replaces the stored lease. That is safe only while no other process uses the
// store. After a failed or interrupted change, processes may be unable to start. The change must then be repeated, with
// the new lease or the old one. Before the repetition all other processes must have ended again.
//
// If the lease of the process is in force already, the call needs only the own data centre. Otherwise the call fails
// with Unavailable or Timeout while data centres are away, even if the lease was stored. The caller then repeats the
// call.
func AgreeOnLease(ctx context.Context, s store.Registers, lease time.Duration, change bool) (time.Duration, error) {
	// Different leases would lose rows: a mover waits for the length of its own lease, and a process with a longer one
	// could use an old map.
	// If the lease of the process is in force, a single read at Local is enough. Any other outcome, also a refusal, is
	// decided at Serial, and a written lease is acknowledged in every data centre.
	lease, err := leaseTerm.agreeOn(ctx, s, lease, change)
	return lease, store.Wrap("agree on the lease", err)
}

// AgreeOnClockSkew returns the greatest difference between clocks (Options.MaxClockSkew) on which all processes of a
// store agree. If skew is 0, the result is the stored limit, or the default, which is stored if no limit is. If skew
// differs from the stored limit, the call fails with InvalidArgument. If change is true, skew replaces the stored limit
// instead, as in AgreeOnLease.
func AgreeOnClockSkew(ctx context.Context, s store.Registers, skew time.Duration, change bool) (time.Duration, error) {
	// All processes need the same limit: a mover removes rows at a timestamp above all that clients may have drawn,
	// and computes this timestamp from its own limit.
	skew, err := skewTerm.agreeOn(ctx, s, skew, change)
	return skew, store.Wrap("agree on the skew of clocks", err)
}

// agreeOn returns the value of a setting on which all processes of a store agree, such as the length of leases. The
// parameter mine is the value of this process; 0 means the stored value, or the default if none is stored. There are
// three cases:
//   - No value is stored: agreeOn stores the value of this process.
//   - A value other than mine is stored, and change is false: agreeOn fails with InvalidArgument.
//   - A value other than mine is stored, and change is true: agreeOn stores mine in its place.
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

// read returns the stored value of a setting on which all processes agree, or 0 if none is stored. The register is read
// at the consistency level l. read fails if a change of the value has been announced and has not ended.
func (t *term[T]) read(ctx context.Context, s store.Registers, l store.Level) (T, error) {
	found, err := t.found(ctx, s, l)
	if err == nil && found.next != 0 {
		return 0, t.unfinished(found)
	}
	return found.value, err
}

// found returns the stored record of a setting on which all processes agree, read at the consistency level l. It
// returns the zero value if no record is stored.
func (t *term[T]) found(ctx context.Context, s store.Registers, l store.Level) (terms[T], error) {
	found, err := record.ReadAs(func() (store.Record, error) {
		return s.Read(ctx, store.Process, []byte(t.key), l)
	}, t.decode)
	if errors.Is(err, store.NotFound) {
		return terms[T]{}, nil
	}
	return found, err
}

// agree returns the value of a setting with which this process may run, and stores the value if necessary. The
// parameters are:
//   - want: a function that gets the stored value (0 if none is stored), and returns the value that the process wants.
//     It returns an error if the process can't run with the stored value. Nothing is stored if it returns 0 when no
//     value is stored.
//   - change: true if the process was started to change the value
func (t *term[T]) agree(
	ctx context.Context, s store.Registers, change bool, want func(there T) (T, error),
) (T, error) {
	a := agreement[T]{term: t, s: s, change: change, want: want, acknowledge: change}
	const tries = 5
	pauses := wait.Backoff{First: 250 * time.Millisecond, Most: 2 * time.Second}
	for failures := 0; ; {
		if !a.acknowledge {
			// Only the newest value decides a refusal: the value found here may be older.
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
			return 0, err // the last of several tries: many processes may start at once
		}
	}
}

// agreement is the progress of a process that changes or checks a setting common to all processes. The process reads
// the newest record of the setting (at Serial), and swaps it if necessary. It does so only if a read in its own data
// centre (Local) was not enough.
type agreement[T ~int64] struct {
	*term[T]
	s      store.Registers
	change bool
	want   func(there T) (T, error)
	// acknowledge means that the value in force may have been written by this process, or by an earlier try of its
	// change. Then perhaps not every data centre knows the value, so step acknowledges it.
	acknowledge bool
	began       bool
	from        T // at the first step: the value in force, or before an announced change
}

// step takes the next step of a process towards a common value of a setting. It reads the newest record of the setting,
// and swaps the record if the value has to change. If the result done is true, agreed and err are the final results. If
// it is false, the caller calls step again, even after an error: a failed swap may have been applied.
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
	case found.value == 0: // this is the first value
	case announced && mine == found.value: // takes the change back: the other value was never in force
	case announced && mine == found.next:
		// The announced value comes into force by a swap of the very version that is acknowledged.
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
		// After a Conflict the record is another process's, which acknowledges it.
		a.acknowledge = a.acknowledge || store.OutcomeUnknown(err)
		return 0, false, err
	}
	if next.next != 0 {
		return 0, false, nil
	}
	return a.ended(ctx, mine, v)
}

// ended is the last part of step, after the value mine of a setting was stored. It makes the stored record known in
// every data centre, so that other processes need to read only in their own. The parameter v is the version of the
// record. The results are those of step.
func (a *agreement[T]) ended(ctx context.Context, mine T, v store.Version) (agreed T, done bool, err error) {
	if err := a.seen(ctx, v); err != nil {
		return 0, !errors.Is(err, store.Conflict), store.Wrap("it is stored, but perhaps not in every data centre", err)
	}
	return mine, true, nil
}

// seen makes the record of a setting known in every data centre: once it has returned nil, every later read at Local
// finds version v. It fails with Conflict if the newest version of the record is not v.
func (a *agreement[T]) seen(ctx context.Context, v store.Version) error {
	rec, err := record.Acknowledge(ctx, a.s, store.Process, []byte(a.key))
	if err == nil && rec.Version != v {
		err = store.Errorf(store.Conflict, "another process has changed it meanwhile")
	}
	return err
}

// unfinished returns the error of a process that finds an announced change of a setting that has not ended. The text of
// the error says how to end the change.
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

// name returns the name of the setting for error messages, such as "a lease".
func (t *term[T]) name() string { return strings.TrimSuffix(t.what, " of") }

// StoreID is a random number that distinguishes a store from other stores. The first process that asks for the number
// draws it. A copy of a store has the same StoreID.
type StoreID int64

// String returns the id as 16 hexadecimal digits.
func (id StoreID) String() string { return fmt.Sprintf("%016x", uint64(id)) }

// Identify returns the id of a store, which distinguishes it from other stores. If the store has no id yet, Identify
// draws a random id and stores it. It fails if the store fails, or while a change of the id is announced.
func Identify(ctx context.Context, s store.Registers) (StoreID, error) {
	t := idTerm
	t.preset = StoreID(1 + rand.Int64N(math.MaxInt64))
	id, err := t.agreeOn(ctx, s, 0, false)
	return id, store.Wrap("identify the store", err)
}

// Terms are the settings on which all processes of a store have agreed, such as the length of leases. A field is zero
// if no process has stored a value yet.
type Terms struct {
	ID               StoreID
	Lease, ClockSkew time.Duration
	Counting         Counting
	Schema           Schema
	Limits           Limits // limits of the process that announced its limits last
}

// Agreed returns the settings on which all processes of a store have agreed, for reports. It changes nothing. It reads
// in this data centre only (Local), so the newest values may be missing. While a change of one of the settings is
// announced and has not ended, Agreed fails.
func Agreed(ctx context.Context, s store.Registers) (t Terms, err error) {
	// An id that is missing here is found by Identified.
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

// Identified returns the id of a store, which distinguishes it from other stores. The result is 0 if no process has
// asked for the id yet. Unlike Identify, Identified changes nothing.
func Identified(ctx context.Context, s store.Registers) (StoreID, error) {
	id, err := idTerm.read(ctx, s, store.Local) // an id never changes
	if id == 0 {
		id, err = idTerm.read(ctx, s, store.Serial)
	}
	return id, store.Wrap("identify the store", err)
}

// Limits are the sizes of partitions, in rows and bytes, at which a process splits and merges ranges of keys. Of all
// processes of a store, only the elected leader uses its limits.
type Limits struct{ MaxRows, MinRows, MaxBytes int64 }

func (l Limits) String() string {
	return fmt.Sprintf("max_rows %d, min_rows %d, max_bytes %d", l.MaxRows, l.MinRows, l.MaxBytes)
}

// limitsKey is the key of a register with the limits that a process has announced last: the sizes of partitions at
// which it splits and merges ranges. limitsForm is the version of the encoding. Processes compare their own limits with
// the announced ones, to report a difference. Different limits are allowed, as processes are restarted one after the
// other.
const (
	limitsKey  = "limits"
	limitsForm = 1
)

// AnnounceLimits stores the limits of a process that starts, so that other processes can compare theirs. The result is
// the limits that were stored before, or zero if none were stored. If a read in this data centre (Local) finds the same
// limits, nothing is stored.
func AnnounceLimits(ctx context.Context, s store.Registers, mine Limits) (before Limits, err error) {
	// The read may miss different limits that a process in another data centre has just stored. That process has then
	// reported the difference.
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

// AnnouncedLimits returns the sizes of partitions (limits) that the last process stored with AnnounceLimits, or zero if
// no process did. It reads in this data centre only (Local), so the newest limits may be missing.
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
		if len(payload) < number { // later versions append further numbers
			return Limits{}, store.Errorf(store.Corrupt, "too few bytes for limits of partitions")
		}
		*limit, payload = int64(binary.BigEndian.Uint64(payload)), payload[number:]
	}
	return l, nil
}
