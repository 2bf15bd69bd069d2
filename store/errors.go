package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// Kind is the class of an error. Callers decide by the kind whether to retry, to give up or to report the error.
type Kind uint8

const (
	// Other is the zero Kind: the error did not come from a store.
	Other Kind = iota
	// Unavailable: the store, or too many of its replicas, can't be reached, or the store refuses work, for example
	// because the disk is full. A write that failed may nevertheless have been applied.
	Unavailable
	// Timeout: the store did not answer in time, or the context ended. A write may have been applied, or may be applied
	// later.
	Timeout
	// InvalidArgument: the call exceeds a documented limit. Nothing was done.
	InvalidArgument
	// Conflict: a compare-and-swap found another version than the expected one. Nothing was done.
	Conflict
	// NotFound: there is no such record or node. Nothing was done.
	NotFound
	// Corrupt: the data that was read does not fit its checksum or its place. The error names the damaged record or
	// file.
	Corrupt
	// TooMuchDeadData: the store can't read past the tombstones of a range, even a few rows at a time.
	TooMuchDeadData
)

var kindNames = [...]string{
	"other", "unavailable", "timeout", "invalid argument", "conflict", "not found", "corrupt", "too much dead data",
}

func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// Error returns the name of the kind of error as text. The method makes a Kind an error, so that errors.Is accepts it
// as the target: errors.Is(err, store.NotFound).
func (k Kind) Error() string { return k.String() }

// Error is the failure of an operation.
type Error struct {
	Kind Kind
	// Op is the failed operation and its subject, such as "slice 1f…/2a…"; it may be empty.
	Op string
	// Err is the cause; it may be nil.
	Err error
}

// Error returns the operation, the kind and the cause as text. The kind appears only once, however often the error was
// wrapped.
func (e *Error) Error() string {
	var parts []string
	if e.Op != "" {
		parts = append(parts, e.Op)
	}
	inner, ok := e.Err.(*Error)
	switch {
	case ok && inner.Kind == e.Kind:
	case e.Kind == Timeout && errors.Is(e.Err, context.Canceled): // whose text says so
	default:
		parts = append(parts, e.Kind.String())
	}
	if e.Err != nil {
		parts = append(parts, e.Err.Error())
	}
	return strings.Join(parts, ": ")
}

func (e *Error) Unwrap() error { return e.Err }

// Is reports whether target is the Kind of the error e. The function errors.Is calls it, so that errors.Is(err,
// store.NotFound) works.
func (e *Error) Is(target error) bool {
	k, ok := target.(Kind)
	return ok && k == e.Kind
}

// Errorf returns an error of the given kind with a formatted message. The verb %w wraps a cause.
func Errorf(k Kind, format string, args ...any) error {
	return &Error{Kind: k, Err: fmt.Errorf(format, args...)}
}

// Wrap returns an error with the text of err behind op, the name of the operation that failed. The new error has the
// same kind as err (see KindOf). Wrap returns nil if err is nil.
func Wrap(op string, err error) error {
	if err == nil {
		return nil
	}
	return &Error{Kind: KindOf(err), Op: op, Err: err}
}

// KindOf returns the kind of an error: that of the outermost Error in its chain. Without an Error it returns a Kind
// that was wrapped directly, or Timeout for the error of an ended context. For any other error, and for nil, it returns
// Other.
func KindOf(err error) Kind {
	var e *Error
	var k Kind
	switch {
	case err == nil:
		return Other
	case errors.As(err, &e):
		return e.Kind
	case errors.As(err, &k):
		return k
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return Timeout
	}
	return Other
}

// ErrClosed is the error of a call on a store that is closed; other errors may wrap it. The call has done nothing.
var ErrClosed = Errorf(Unavailable, "the store is closed")

// These are causes of an Unavailable error of a write that a store refuses; the store wraps one of them. Nothing was
// done, and the same write may succeed later.
var (
	// ErrFull: the disk has too little free space for the write.
	ErrFull = errors.New("disk full")
	// ErrUnwritable: the store accepts no writes at present (see Writable).
	ErrUnwritable = errors.New("nothing was written")
)

// OutcomeUnknown reports whether a write that failed with the error err may have been applied, or may still be applied
// later. It returns false (certainly not applied) for nil, for the kinds InvalidArgument, Conflict and NotFound, and
// for ErrClosed, ErrFull and ErrUnwritable. It returns true for all other errors, those of kind Other included.
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
