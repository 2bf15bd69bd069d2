package listing

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/evenkeel/evenkeel/internal/commontime"
	"github.com/evenkeel/evenkeel/store"
)

// The errors of operations on buckets. Each has a store.Kind, such as NotFound: errors.Is works with the error itself
// and with its kind.
var (
	// ErrNoSuchBucket means that no bucket has the name, or that the bucket was deleted meanwhile.
	ErrNoSuchBucket = store.Errorf(store.NotFound, "there is no such bucket")
	// ErrBucketExists means that a bucket with the name exists already.
	ErrBucketExists = store.Errorf(store.Conflict, "the bucket exists already")
	// ErrBucketClosing means that a DeleteBucket is searching the bucket for entries. Soon the bucket is either deleted
	// or open again.
	ErrBucketClosing = store.Errorf(
		store.Unavailable, "the bucket is being deleted: in a moment it is gone, or back if it is not empty; try again",
	)
	// ErrNotEmpty means that a bucket can't be deleted because it has entries.
	ErrNotEmpty = store.Errorf(store.Conflict, "the bucket is not empty: delete its entries first")
	// ErrNotFound means that the bucket has no entry with the key.
	ErrNotFound = store.Errorf(store.NotFound, "there is no entry of that key")
	// ErrOutcomeUnknown means that the write may have been applied, or may be applied later. Read the key to see its
	// present state, or write it again.
	ErrOutcomeUnknown = store.Errorf(
		store.Timeout, "outcome unknown: it may have happened, or may yet; do it again to be sure",
	)
	// ErrBadToken means that the token of a query was altered, or is from another bucket or query.
	ErrBadToken = store.Errorf(
		store.InvalidArgument, "the token is not one of this bucket and query, or it was altered; start without one",
	)
)

// ErrTimeUnknown means that this process does not know the time of the store's servers well enough to write. Nothing
// was written; reads work. The kind of the error is Unavailable, and the returned error says why the time is unknown.
var ErrTimeUnknown = commontime.ErrUnknown

// Error is the failure of an operation on a bucket. Op names the operation, such as "put". Bucket is the name of the
// bucket, and Err is the cause.
type Error struct {
	Op, Bucket string
	Err        error
}

func (e *Error) Error() string { return fmt.Sprintf("%s %q: %v", e.Op, e.Bucket, e.Err) }

func (e *Error) Unwrap() error { return e.Err }

// Is reports whether target is the store.Kind of the error, such as Unavailable, so that errors.Is(err, kind) works.
// The kind of an ended context is Timeout.
func (e *Error) Is(target error) bool {
	k, ok := target.(store.Kind)
	return ok && k == store.KindOf(e.Err)
}

// wrap returns err as an *Error with the operation op, such as "put", and the name of the bucket on which op failed. It
// returns nil if err is nil.
func wrap(op, bucket string, err error) error {
	if err == nil {
		return nil
	}
	return &Error{Op: op, Bucket: bucket, Err: err}
}

// notBegun marks the failure of a call before its first write, so that callers know that nothing was done: the result
// is also store.ErrUnwritable. It marks only a cause of the kind Unavailable or Timeout, and returns any other cause as
// it is.
func notBegun(cause error) error {
	switch store.KindOf(cause) {
	case store.Unavailable, store.Timeout:
		return fmt.Errorf("%w: %w", store.ErrUnwritable, cause)
	}
	return cause
}

// unknown returns an error that is ErrOutcomeUnknown: a write may have been applied or not. The cause is the failure of
// the write, which the result wraps.
func unknown(cause error) error {
	return &unknownError{cause}
}

// unknownError is an error that is ErrOutcomeUnknown and also has a cause, the failure of the write of unknown outcome.
type unknownError struct{ cause error }

// Error returns the text of the error of a write whose outcome is unknown, with the cause. If the caller has canceled
// the context, the text does not speak of a timeout.
func (e *unknownError) Error() string {
	text := ErrOutcomeUnknown.Error()
	if errors.Is(e.cause, context.Canceled) {
		text = strings.TrimPrefix(text, store.Timeout.Error()+": ")
	}
	return text + ": " + e.cause.Error()
}

func (e *unknownError) Unwrap() []error { return []error{ErrOutcomeUnknown, e.cause} }

// underWay is the error of an operation that has returned while its writes were still running. ended is closed when
// these writes have ended.
type underWay struct {
	error
	ended <-chan struct{}
}

func (u *underWay) Unwrap() error { return u.error }

// ended returns a channel that is closed once the writes of the failed operation have ended (see door.UnderWay).
func ended(err error) <-chan struct{} {
	var u *underWay
	if errors.As(err, &u) {
		return u.ended
	}
	return nil
}

// BatchError is the error of a PutBatch that could not store all of its entries. errors.Is considers the errors of all
// entries.
type BatchError struct {
	// Outcomes has one element for each entry of the batch, in the order of the entries. The element is nil if the
	// entry is stored.
	Outcomes []error
}

func (e *BatchError) Error() string {
	failures := e.Unwrap()
	if len(failures) == 0 {
		return "a batch without a failure"
	}
	first := slices.IndexFunc(e.Outcomes, func(err error) bool { return err != nil })
	return fmt.Sprintf(
		"%d of %d entries failed, the first is number %d: %v", len(failures), len(e.Outcomes), first+1, failures[0],
	)
}

// Unwrap returns the errors of those entries that PutBatch has not stored.
func (e *BatchError) Unwrap() []error {
	return slices.DeleteFunc(slices.Clone(e.Outcomes), func(err error) bool { return err == nil })
}

// invalid returns an error of the kind InvalidArgument, with a text formatted like that of fmt.Errorf.
func invalid(format string, args ...any) error {
	return store.Errorf(store.InvalidArgument, format, args...)
}
