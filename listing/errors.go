package listing

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/commontime"
)

// The errors of this package. Each has a store.Kind: errors.Is works with the error and
// with its kind.
var (
	// ErrNoSuchBucket: no bucket has the name, or it was deleted meanwhile.
	ErrNoSuchBucket = store.Errorf(store.NotFound, "there is no such bucket")
	// ErrBucketExists: the name is taken.
	ErrBucketExists = store.Errorf(store.Conflict, "the bucket exists already")
	// ErrBucketClosing: DeleteBucket is checking whether the bucket is empty. Soon it is
	// deleted, or open again.
	ErrBucketClosing = store.Errorf(
		store.Unavailable, "the bucket is being deleted: in a moment it is gone, or back if it is not empty; try again",
	)
	// ErrNotEmpty: only empty buckets can be deleted.
	ErrNotEmpty = store.Errorf(store.Conflict, "the bucket is not empty: delete its entries first")
	// ErrNotFound: the bucket has no entry with the key.
	ErrNotFound = store.Errorf(store.NotFound, "there is no entry of that key")
	// ErrOutcomeUnknown: the write may have been applied, or may be later. Read the key to
	// see its present state, or write it again. UnderWay says whether the write may still
	// be applied.
	ErrOutcomeUnknown = store.Errorf(
		store.Timeout, "outcome unknown: it may have happened, or may yet; do it again to be sure",
	)
	// ErrBadToken: the token is altered, or of another bucket or query.
	ErrBadToken = store.Errorf(
		store.InvalidArgument, "the token is not one of this bucket and query, or it was altered; start without one",
	)
)

// ErrTimeUnknown means that this process does not know the time of the store's servers well
// enough to write. Nothing was written; reads work. Its kind is Unavailable, and the
// returned error names the cause.
var ErrTimeUnknown = commontime.ErrUnknown

// Error is the failure of an operation on a bucket.
type Error struct {
	Op, Bucket string
	Err        error
}

func (e *Error) Error() string { return fmt.Sprintf("%s %q: %v", e.Op, e.Bucket, e.Err) }

func (e *Error) Unwrap() error { return e.Err }

// Is makes errors.Is(err, kind) true. An ended context is a Timeout.
func (e *Error) Is(target error) bool {
	k, ok := target.(store.Kind)
	return ok && k == store.KindOf(e.Err)
}

func wrap(op, bucket string, err error) error {
	if err == nil {
		return nil
	}
	return &Error{Op: op, Bucket: bucket, Err: err}
}

// notBegun marks a failure before the first write of a call as store.ErrUnwritable: nothing was done.
func notBegun(cause error) error {
	switch store.KindOf(cause) {
	case store.Unavailable, store.Timeout:
		return fmt.Errorf("%w: %w", store.ErrUnwritable, cause)
	}
	return cause
}

// unknown marks the failure of a write as ErrOutcomeUnknown.
func unknown(cause error) error {
	return &unknownError{cause}
}

// unknownError is ErrOutcomeUnknown with its cause.
type unknownError struct{ cause error }

// Error calls an end that the caller has asked for no timeout.
func (e *unknownError) Error() string {
	text := ErrOutcomeUnknown.Error()
	if errors.Is(e.cause, context.Canceled) {
		text = strings.TrimPrefix(text, store.Timeout.String()+": ")
	}
	return text + ": " + e.cause.Error()
}

func (e *unknownError) Unwrap() []error { return []error{ErrOutcomeUnknown, e.cause} }

// UnderWay takes the error of a write whose context ended, and returns a channel that is
// closed once the write can't be applied any more. It returns nil where that is so already,
// and where it can't be known because leases end by time, as on Cassandra. Of a *BatchError
// it looks at the first such outcome only: call it for each outcome.
func UnderWay(err error) <-chan struct{} {
	var u *underWay
	if errors.As(err, &u) {
		return u.ended
	}
	return nil
}

// underWay is the error of an operation that has left writes running.
type underWay struct {
	error
	ended <-chan struct{}
}

func (u *underWay) Unwrap() error { return u.error }

// BatchError has the outcomes of a PutBatch of which some entries failed. errors.Is looks at
// all of them.
type BatchError struct {
	// Outcomes has one element per entry, in order; nil for those that are stored.
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

// Unwrap returns the failures.
func (e *BatchError) Unwrap() []error {
	return slices.DeleteFunc(slices.Clone(e.Outcomes), func(err error) bool { return err == nil })
}

func invalid(format string, args ...any) error {
	return store.Errorf(store.InvalidArgument, format, args...)
}
