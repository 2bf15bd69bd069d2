package listing

import (
	"errors"
	"fmt"

	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/commontime"
)

// The errors of this package's own. Each has a kind of the store's closed set,
// so that errors.Is works with the error itself and with the kind.
var (
	// ErrNoSuchBucket: the name has no bucket, or it was deleted meanwhile.
	ErrNoSuchBucket = store.Errorf(store.NotFound, "there is no such bucket")
	// ErrBucketExists: the name is taken already.
	ErrBucketExists = store.Errorf(store.Conflict, "the bucket exists already")
	// ErrBucketClosing: somebody deletes the bucket and looks whether it is
	// empty. In a moment it is gone, or back.
	ErrBucketClosing = store.Errorf(store.Unavailable, "the bucket is being deleted: in a moment it is gone, or back if it is not empty; try again")
	// ErrNotEmpty: only empty buckets are deleted.
	ErrNotEmpty = store.Errorf(store.Conflict, "the bucket is not empty: delete its entries first")
	// ErrNotFound: the bucket has no entry of that key.
	ErrNotFound = store.Errorf(store.NotFound, "there is no entry of that key")
	// ErrOutcomeUnknown: a write may have happened, may happen yet, or never.
	// Reading the key tells what is so now; writing it again settles it. UnderWay
	// tells whether it may happen yet.
	ErrOutcomeUnknown = store.Errorf(store.Timeout, "outcome unknown: it may have happened, or may yet; do it again to be sure")
	// ErrBadToken: the token was altered, or belongs to another bucket or query.
	ErrBadToken = store.Errorf(store.InvalidArgument, "the token is not one of this bucket and query, or it was altered; start without one")
)

// ErrTimeUnknown: this process does not know the time of the store's servers well
// enough to write. Nothing was written; reads go on. What is returned is Unavailable
// and names the cause.
var ErrTimeUnknown = commontime.ErrUnknown

// Error says which operation failed, on which bucket.
type Error struct {
	Op, Bucket string
	Err        error
}

func (e *Error) Error() string { return fmt.Sprintf("%s %q: %v", e.Op, e.Bucket, e.Err) }

func (e *Error) Unwrap() error { return e.Err }

// Is makes errors.Is(err, kind) true, also for an ended context, a Timeout.
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

// unknown marks a write's failure as one of unknown outcome.
func unknown(cause error) error {
	if cause == nil {
		return ErrOutcomeUnknown
	}
	return fmt.Errorf("%w: %w", ErrOutcomeUnknown, cause)
}

// UnderWay looks into the failure of a write that its caller gave up, and returns a
// channel that is closed once nothing of the write can happen any more: by then all
// that begins later comes after it. It is nil where that is so already, and where it
// can't be told because leases end by time, as on Cassandra. Of a *BatchError it
// looks at the first such outcome only: ask for each one.
func UnderWay(err error) <-chan struct{} {
	var u *underWay
	if errors.As(err, &u) {
		return u.ended
	}
	return nil
}

// underWay is the failure of an operation that has left writes on their way.
type underWay struct {
	error
	ended <-chan struct{}
}

func (u *underWay) Unwrap() error { return u.error }

// BatchError tells, entry by entry, what became of a PutBatch that did not
// succeed as a whole. errors.Is looks at all of them.
type BatchError struct {
	// Outcomes has one element per entry, in their order; nil: it is stored.
	Outcomes []error
}

func (e *BatchError) Error() string {
	failed, first := 0, -1
	for i, err := range e.Outcomes {
		if err != nil {
			if failed++; first < 0 {
				first = i
			}
		}
	}
	if failed == 0 {
		return "a batch without a failure"
	}
	return fmt.Sprintf("%d of %d entries failed, the first is number %d: %v", failed, len(e.Outcomes), first+1, e.Outcomes[first])
}

// Unwrap returns the failures.
func (e *BatchError) Unwrap() []error {
	var failures []error
	for _, err := range e.Outcomes {
		if err != nil {
			failures = append(failures, err)
		}
	}
	return failures
}

func invalid(format string, args ...any) error {
	return store.Errorf(store.InvalidArgument, format, args...)
}
