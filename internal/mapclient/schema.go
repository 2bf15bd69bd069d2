package mapclient

import (
	"context"
	"errors"
	"fmt"

	"github.com/evenkeel/evenkeel/store"
)

// Schema is the version of the format of the data that all processes of a store share. The version is stored in a
// register, and changes in two steps, as the type term describes. A process that starts needs to read the version only
// in its own data centre.
type Schema int64

const (
	// Unversioned is the schema of a store that was made before schemas had versions. The format is that of version 1,
	// except that movers leave no notes in the ranges that they empty (see Client.LeavesNotes).
	Unversioned Schema = 0
	// OldestSchema and NewestSchema are the lowest and the highest version of the schema that this program knows. From
	// version 2 on, an object that was uploaded in parts may have another ID than the one in the names of its parts:
	// see Client.StampsCompletions. From version 3 on, the same holds for a whole body: see Client.StampsEnds.
	OldestSchema, NewestSchema = Unversioned, Schema(3)
)

var schemaTerm = term[Schema]{key: "schema", what: "a schema of version"}

func (s Schema) String() string {
	if s == Unversioned {
		return "none"
	}
	return fmt.Sprint(int64(s))
}

// AgreeOnSchema returns the version of a store's schema, the format of its data. If the store has none yet, the first
// process stores the newest version that it knows. A store that is older than the versions stays Unversioned until
// UpgradeSchema. AgreeOnSchema fails with InvalidArgument if this program does not know the store's version, or the
// version to which an upgrade has begun.
func AgreeOnSchema(ctx context.Context, s store.Registers) (Schema, error) {
	v, err := agreeOnSchema(ctx, s, NewestSchema)
	return v, store.Wrap("agree on the version of the schema", err)
}

func agreeOnSchema(ctx context.Context, s store.Registers, newest Schema) (Schema, error) {
	found, err := schemaTerm.found(ctx, s, store.Local)
	if err == nil && found.value == 0 {
		// The first process of a store writes the version before the lease, and goes on once the version is
		// seen everywhere. So a store with a lease and no version is older than versions. But the version may
		// have been written between these reads: so it is read again.
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

// knows checks whether a program can use a store. The parameter newest is the highest version of the schema that the
// program knows, and found is the stored record of the store's schema. The error is InvalidArgument if the store has a
// higher version, or if an upgrade to a higher version has been announced.
func knows(newest Schema, found terms[Schema]) error {
	// Versions only grow, so a refusal stays right even if the record found was not the newest.
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

// UpgradeSchema brings a store's schema to the newest version that this program knows, and returns the version that the
// store had until then. If the store has the newest version already, UpgradeSchema only ensures that every data centre
// knows it. After any error the call may be repeated, and goes on where it ended.
//
// The upgrade has three steps:
//   - It is announced. From then on a program that does not know the new version can't start.
//   - The function ready is called, to find out whether such a program, started earlier, still runs. An error of ready
//     ends UpgradeSchema, and the announcement stays.
//   - The new version is stored.
//
// Before a new announcement ready is called once more, so that an upgrade that can't succeed is not announced.
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
		err = ready(ctx) // before the announcement, which would stay after an error
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
