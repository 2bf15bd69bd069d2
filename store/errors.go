package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// Kind is the class of an error, by which callers decide what to do.
type Kind uint8

const (
	// Other is the zero Kind: an error that did not come from a store.
	Other Kind = iota
	// Unavailable: the store, or too many of its replicas, can't be reached, or
	// refuses work (a full disk, say). A write may nevertheless have been applied.
	Unavailable
	// Timeout: no answer in time, or the context ended. A write may have been
	// applied, or may be later.
	Timeout
	// InvalidArgument: the call breaks a documented limit. Nothing was done.
	InvalidArgument
	// Conflict: a compare-and-swap met another version. Nothing was done.
	Conflict
	// NotFound: there is no such record or node. Nothing was done.
	NotFound
	// Corrupt: what was read contradicts its checksum or its place. The error names what
	// is damaged.
	Corrupt
	// TooMuchDeadData: the store can't read past the tombstones, even in the smallest
	// steps.
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

// Error makes a Kind usable as a target: errors.Is(err, store.NotFound).
func (k Kind) Error() string { return k.String() }

// Error is the failure of an operation.
type Error struct {
	Kind Kind
	// Op is the operation and its subject, such as "slice 1f…/2a…"; may be empty.
	Op string
	// Err is the cause; may be nil.
	Err error
}

// Error has the kind once, however often the error was wrapped.
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

// Is makes errors.Is(err, kind) true.
func (e *Error) Is(target error) bool {
	k, ok := target.(Kind)
	return ok && k == e.Kind
}

// Errorf makes an error of a kind. %w wraps a cause.
func Errorf(k Kind, format string, args ...any) error {
	return &Error{Kind: k, Err: fmt.Errorf(format, args...)}
}

// Wrap adds the operation that failed with err. It keeps the kind of err (see KindOf).
// Wrap(nil) is nil.
func Wrap(op string, err error) error {
	if err == nil {
		return nil
	}
	return &Error{Kind: KindOf(err), Op: op, Err: err}
}

// KindOf returns the kind of an error: that of the outermost Error, Timeout for an ended
// context, else Other.
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

// ErrClosed is, or is wrapped in, the error of a call after Close. Nothing was done.
var ErrClosed = Errorf(Unavailable, "the store is closed")

// These are wrapped in the error, Unavailable, of a write that a store has refused. Nothing was
// done, and the same write may succeed later.
var (
	// ErrFull: the disk is too full for it.
	ErrFull = errors.New("disk full")
	// ErrUnwritable: the store can't be written at present (see Writable).
	ErrUnwritable = errors.New("nothing was written")
)

// OutcomeUnknown reports whether a write that failed with err may have been applied, or may
// be later. An error of kind Other counts as unknown.
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
