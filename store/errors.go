package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// Kind is the class of an error of a store, such as Timeout or NotFound. Callers decide by the kind whether to retry,
// to give up or to report the error.
type Kind uint8

const (
	// Other is the zero Kind: the error did not come from a store.
	Other Kind = iota
	// Unavailable: the store, or too many of its replicas, can't be reached, or the store refuses work, for example
	// because the disk is full. A write that failed with this kind may nevertheless have been applied.
	Unavailable
	// Timeout: the store did not answer in time, or the context ended. A write may have been applied, or may be applied
	// later.
	Timeout
	// InvalidArgument: the call exceeds a documented limit. Nothing was done.
	InvalidArgument
	// Conflict: a compare-and-swap found another version than the one that the caller expected. Nothing was done.
	Conflict
	// NotFound: there is no record or map node under the given key or id. Nothing was done.
	NotFound
	// Corrupt: the data that was read does not fit its checksum or the key under which it is stored. The error names
	// the damaged record or file.
	Corrupt
	// TooMuchDeadData: the store can't read an interval of keys because it holds too many tombstones. Reading a few
	// rows at a time does not help.
	TooMuchDeadData
)

var kindNames = [...]string{
	"other", "unavailable", "timeout", "invalid argument", "conflict", "not found", "corrupt", "too much dead data",
}

// Error returns the name of the kind of error, e.g. "not found". The method makes a Kind an error, so that callers can
// write errors.Is(err, store.NotFound).
func (k Kind) Error() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// opError is the error of a failed operation of a store.
type opError struct {
	kind Kind
	op   string // the failed operation and its subject, such as "slice 1f…/2a…"; may be empty
	err  error  // the cause
}

// Error returns the operation, the kind and the cause as one text. If errors of the same kind wrap each other, the kind
// appears only once.
func (e *opError) Error() string {
	var parts []string
	if e.op != "" {
		parts = append(parts, e.op)
	}
	inner, ok := e.err.(*opError)
	switch {
	case ok && inner.kind == e.kind:
	case e.kind == Timeout && errors.Is(e.err, context.Canceled): // whose text says so
	default:
		parts = append(parts, e.kind.Error())
	}
	return strings.Join(append(parts, e.err.Error()), ": ")
}

func (e *opError) Unwrap() error { return e.err }

// Is reports whether target is the Kind of the error e. The standard function errors.Is calls this method, so that
// errors.Is(err, store.NotFound) works.
func (e *opError) Is(target error) bool {
	k, ok := target.(Kind)
	return ok && k == e.kind
}

// Errorf returns an error of the kind k with a message that is formatted as by fmt.Errorf. The verb %w wraps a cause.
func Errorf(k Kind, format string, args ...any) error {
	return &opError{kind: k, err: fmt.Errorf(format, args...)}
}

// Wrap returns an error that puts op, the name of the operation that failed, before the text of err. The new error has
// the same kind as err (see KindOf). Wrap returns nil if err is nil.
func Wrap(op string, err error) error {
	if err == nil {
		return nil
	}
	return &opError{kind: KindOf(err), op: op, err: err}
}

// KindOf returns the kind of an error: the kind of the outermost error of this package in its chain. If there is none,
// KindOf returns a Kind that was wrapped directly, or Timeout for the error of an ended context. For any other error,
// and for nil, KindOf returns Other.
func KindOf(err error) Kind {
	var e *opError
	var k Kind
	switch {
	case err == nil:
		return Other
	case errors.As(err, &e):
		return e.kind
	case errors.As(err, &k):
		return k
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return Timeout
	}
	return Other
}

// ErrClosed is the error of a call on a store that is closed. The call has done nothing. Callers test with errors.Is,
// since a returned error may wrap ErrClosed.
var ErrClosed = Errorf(Unavailable, "the store is closed")

// These errors are causes for which a store refuses a write. The store returns an Unavailable error that wraps one of
// them. Nothing was written, and the same write may succeed later.
var (
	// ErrFull means that the disk has too little free space for the write.
	ErrFull = errors.New("disk full")
	// ErrUnwritable means that the store accepts no writes at present (see Writable).
	ErrUnwritable = errors.New("nothing was written")
)

// OutcomeUnknown reports whether a write that failed with the error err may nevertheless be applied, now or later. The
// result is false if the write was certainly not applied:
//   - for the kinds InvalidArgument, Conflict and NotFound,
//   - for ErrClosed, ErrFull and ErrUnwritable, and
//   - for nil.
//
// The result is true for all other errors, including those of the kind Other.
func OutcomeUnknown(err error) bool {
	if err == nil || errors.Is(err, ErrClosed) || errors.Is(err, ErrFull) || errors.Is(err, ErrUnwritable) {
		return false
	}
	switch KindOf(err) {
	case InvalidArgument, Conflict, NotFound:
		return false
	}
	return true
}
