package cassandrastore

import (
	"context"
	"errors"
	"fmt"

	"github.com/gocql/gocql"

	"github.com/evenkeel/evenkeel/store"
)

// kind classifies the driver's errors, by type and protocol code, never by text.
func kind(err error) store.Kind {
	if k := store.KindOf(err); k != store.Other {
		return k
	}
	if errors.Is(err, gocql.ErrTimeoutNoResponse) {
		return store.Timeout
	}
	switch c, _ := code(err); c {
	case gocql.ErrCodeWriteTimeout, gocql.ErrCodeReadTimeout, gocql.ErrCodeCASWriteUnknown:
		return store.Timeout
	}
	// All others mean that the cluster can't be reached or refuses the request: a lost
	// connection, too few replicas, a full disk, a missing table.
	return store.Unavailable
}

// code returns the protocol's error code, if the server answered with an error.
func code(err error) (int, bool) {
	if r, ok := errors.AsType[gocql.RequestError](err); ok {
		return r.Code(), true
	}
	return 0, false
}

// readFailed reports whether replicas refused the read, almost always for too many tombstones.
func readFailed(err error) bool {
	var failure *gocql.RequestErrReadFailure
	return errors.As(err, &failure)
}

// unauthorized reports whether the user lacks a permission.
func unauthorized(err error) bool {
	c, fromServer := code(err)
	return fromServer && c == gocql.ErrCodeUnauthorized
}

// worthRetrying reports whether another coordinator, or the same one a little later, may succeed.
// A server that refuses a request by its rules refuses it again.
func worthRetrying(err error) bool {
	if err == nil {
		return false
	}
	switch c, fromServer := code(err); {
	case !fromServer:
		k := kind(err)
		return (k == store.Timeout || k == store.Unavailable) && !errors.Is(err, gocql.ErrSessionClosed)
	default:
		switch c {
		case gocql.ErrCodeProtocol, gocql.ErrCodeCredentials, gocql.ErrCodeSyntax, gocql.ErrCodeUnauthorized,
			gocql.ErrCodeInvalid, gocql.ErrCodeConfig, gocql.ErrCodeAlreadyExists, gocql.ErrCodeReadFailure:
			return false
		}
		return true
	}
}

// fail adds the operation and its subject. An ended context becomes Timeout with its cause, and
// any error of a call during which the store was closed Unavailable.
func (s *Store) fail(ctx context.Context, err error, op string, subject fmt.Stringer) error {
	if err == nil {
		return nil
	}
	if ctx.Err() == nil && s.closed.Load() && store.OutcomeUnknown(err) {
		err = store.Errorf(store.Unavailable, "the store was closed meanwhile: %w", err)
	}
	return fail(ctx, err, op, subject.String())
}

// fail is Store.fail without a store.
func fail(ctx context.Context, err error, op, subject string) error {
	if err == nil {
		return nil
	}
	if ended := ctx.Err(); ended != nil && !errors.Is(err, ended) {
		err = store.Errorf(store.Timeout, "%w (last: %w)", ended, err)
	}
	k := kind(err)
	if unauthorized(err) {
		err = fmt.Errorf("%w: `rebalancer schema grants` prints what the user needs", err)
	}
	return &store.Error{Kind: k, Op: op + " " + subject, Err: err}
}

// text is a fixed subject.
type text string

func (t text) String() string { return string(t) }
