package mapclient

import (
	"context"
	"errors"
	"fmt"

	"github.com/evenkeel/evenkeel/store"
)

// Schema is the version of the form in which all processes of a store keep what they share. It is a term of the store:
// see term for how it is changed, and why a read at Local is enough at a start.
type Schema int64

const (
	// Unversioned is a store that was made before there were versions. Its form is that of version 1, but that movers leave
	// no notes.
	Unversioned Schema = 0
	// OldestSchema and NewestSchema are the versions that this program knows.
	OldestSchema, NewestSchema = Unversioned, Schema(1)
)

var schemaTerm = term[Schema]{key: "schema", what: "a schema of version"}

func (s Schema) String() string {
	if s == Unversioned {
		return "none"
	}
	return fmt.Sprint(int64(s))
}

// AgreeOnSchema returns the version of a store's schema. It fails with InvalidArgument where this program does not know
// the version that is in force, or the one that a change has begun to bring. The first process of a store writes the
// newest version that it knows. A store that other processes have used before stays Unversioned, until UpgradeSchema.
func AgreeOnSchema(ctx context.Context, s store.Registers) (Schema, error) {
	v, err := agreeOnSchema(ctx, s, NewestSchema)
	return v, store.Wrap("agree on the version of the schema", err)
}

func agreeOnSchema(ctx context.Context, s store.Registers, newest Schema) (Schema, error) {
	found, err := schemaTerm.found(ctx, s, store.Local)
	if err == nil && found.value == 0 {
		// The first process of a store writes the version first, and goes on once that is seen everywhere. So a store with
		// a lease and no version is older than versions, but for a version that came between these reads: read it again.
		_, err = s.Read(ctx, store.Process, []byte(leaseTerm.key), store.Local)
		switch {
		case errors.Is(err, store.NotFound):
			return schemaTerm.agree(ctx, s, false, func(there Schema) (Schema, error) {
				if there == 0 {
					return newest, nil
				}
				return there, knows(newest, terms[Schema]{value: there})
			})
		case err == nil:
			found, err = schemaTerm.found(ctx, s, store.Local)
		}
	}
	if err != nil {
		return 0, err
	}
	return found.value, knows(newest, found)
}

// knows fails where a program does not know the version in force, or the announced one. Versions only grow, so what a
// read at Local finds is enough to refuse.
func knows(newest Schema, found terms[Schema]) error {
	switch {
	case max(found.value, found.next) <= newest:
		return nil
	case found.next == 0:
		return store.Errorf(store.InvalidArgument, "the keyspace's schema is of version %v, and this program knows versions "+
			"up to %v: install a newer program", found.value, newest)
	}
	return store.Errorf(store.InvalidArgument, "the keyspace's schema is being upgraded from version %v to %v, and this "+
		"program knows versions up to %v: install a newer program", found.value, found.next, newest)
}

// UpgradeSchema brings a store's schema to the newest version that this program knows, and returns the version before.
// If the schema has the newest version already, UpgradeSchema only ensures that every data centre knows it. It may be
// repeated after any error, and goes on where it ended.
//
// A change from one version to another is announced first. After the announcement, no program can start that does not
// know the new version. The function ready has to find out whether such a program is still running that was started
// earlier. An error from ready ends UpgradeSchema, while the announcement stays.
func UpgradeSchema(
	ctx context.Context, s store.Registers, ready func(ctx context.Context) error,
) (before Schema, err error) {
	before, err = upgradeSchema(ctx, s, NewestSchema, ready)
	return before, store.Wrap("upgrade the schema", err)
}

func upgradeSchema(
	ctx context.Context, s store.Registers, newest Schema, ready func(ctx context.Context) error,
) (Schema, error) {
	found, err := schemaTerm.found(ctx, s, store.Serial)
	if err == nil {
		err = knows(newest, found)
	}
	if err == nil && found.value != newest && found.next == 0 {
		err = ready(ctx) // before an announcement that would stay
	}
	if err != nil {
		return 0, err
	}
	t := schemaTerm
	t.ready = ready
	_, err = t.agree(ctx, s, true, func(there Schema) (Schema, error) {
		return newest, knows(newest, terms[Schema]{value: there})
	})
	return found.value, err
}
