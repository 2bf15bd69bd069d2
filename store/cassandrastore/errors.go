package cassandrastore

import (
	"context"
	"errors"
	"fmt"

	"github.com/gocql/gocql"

	"github.com/evenkeel/evenkeel/store"
)

// kind returns the store.Kind to which an error of the Cassandra driver belongs, e.g. Timeout. It judges by the type
// and the protocol code of the error, never by the text. For an error that it does not know it returns Unavailable.
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
	// All other errors mean that the cluster can't be reached or refuses the request: a lost connection, too few
	// replicas, a full disk, a missing table.
	return store.Unavailable
}

// code returns the error code of Cassandra's protocol that a server has sent. The bool is false if err does not come
// from a server; e.g. it may be a lost connection.
func code(err error) (int, bool) {
	if r, ok := errors.AsType[gocql.RequestError](err); ok {
		return r.Code(), true
	}
	return 0, false
}

// readFailed reports whether err says that replicas have refused a read, which is almost always because the read met
// too many tombstones.
func readFailed(err error) bool {
	var failure *gocql.RequestErrReadFailure
	return errors.As(err, &failure)
}

// unauthorized reports whether err says that the server has refused a request because the user lacks a permission.
func unauthorized(err error) bool {
	c, fromServer := code(err)
	return fromServer && c == gocql.ErrCodeUnauthorized
}

// worthRetrying reports whether a request that failed with err may succeed if it is repeated, at another coordinator or
// a little later. The result is false if a server has refused the request by its rules, e.g. for wrong syntax, or if
// err is nil.
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

// fail returns err with the name op of the failed operation and its subject, such as a partition. It returns nil if err
// is nil. If ctx has ended, the kind of the error is Timeout, and the cause is kept. If the store was closed during the
// call, an error with an unknown outcome gets the kind Unavailable.
func (s *database) fail(ctx context.Context, err error, op string, subject fmt.Stringer) error {
	if err == nil {
		return nil
	}
	if ctx.Err() == nil && s.closed.Load() && store.OutcomeUnknown(err) {
		err = store.Errorf(store.Unavailable, "the store was closed meanwhile: %w", err)
	}
	return fail(ctx, err, op, subject.String())
}

// fail returns err with the name op of the failed operation and its subject, such as a keyspace. It returns nil if err
// is nil. If ctx has ended, the kind of the error is Timeout, and the cause is kept. If the user lacks a permission,
// the error says how to find the missing grants.
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
	if store.KindOf(err) == store.Other {
		err = store.Errorf(k, "%w", err)
	}
	return store.Wrap(op+" "+subject, err)
}

// text is a fixed text that names the subject of a failed operation in an error message, such as "partitions".
type text string

func (t text) String() string { return string(t) }
