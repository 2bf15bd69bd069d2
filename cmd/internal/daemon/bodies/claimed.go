package bodies

import (
	"context"
	"errors"

	"github.com/evenkeel/evenkeel/internal/record"
	"github.com/evenkeel/evenkeel/store"
)

// The key and the form of a small record in the store of rows. It says that the servers have put a mark into the place
// where they keep bodies. Then a place without the mark is another one, such as the directory below a file system that
// is not mounted. Files alone prove nothing, as they may lie below the mount point. The record does not name the place,
// as each server may reach it by another path.
const (
	claimedKey  = "bodies"
	claimedForm = 1
)

// Claimed reports whether the store of rows has a record, made by Note, that its servers have put their mark into a
// place of bodies. It changes nothing.
func Claimed(ctx context.Context, rows store.Registers) (bool, error) {
	claimed, _, err := readClaim(ctx, rows)
	return claimed, store.Wrap("look whether the rows have a place of bodies", err)
}

// Note records in the store of rows that its servers have put their mark into the place where bodies are kept. The mark
// must be durable before.
func Note(ctx context.Context, rows store.Registers) error {
	claimed, old, err := readClaim(ctx, rows)
	if err == nil && !claimed {
		err = rows.Swap(ctx, store.Process, []byte(claimedKey), old,
			record.Seal(claimedForm, record.Next(old), []byte(`{"marked":true}`)))
		if errors.Is(err, store.Conflict) { // another server has just made the note
			return nil
		}
	}
	return store.Wrap("note the claim of the bodies", err)
}

// readClaim reads the record that the servers have marked their place of bodies, and returns its version, for a swap.
// claimed is true if there is a record. A record is never removed, so one that was read is enough. If there is none, it
// may just have been written in another data centre, so the read is repeated at level Serial.
func readClaim(ctx context.Context, rows store.Registers) (claimed bool, v store.Version, err error) {
	for _, level := range []store.Level{store.Local, store.Serial} {
		var note []byte
		note, v, err = record.Read(ctx, rows, store.Process, claimedKey, level, claimedForm)
		if err != nil || note != nil {
			break
		}
	}
	return v != (store.Version{}), v, err
}
