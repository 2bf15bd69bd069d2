package bodies

import (
	"context"
	"errors"

	"github.com/evenkeel/evenkeel/internal/record"
	"github.com/evenkeel/evenkeel/store"
)

// claimedKey and claimedForm are the key and the format number of a small record in the store of rows. The record says
// that the servers have put a marker file into the directory or bucket of object bodies. If the marker is missing
// there, it is the wrong directory, e.g. an empty mount point whose file system is not mounted.
//
// Other files in a directory prove nothing, as they may lie below the mount point. The record does not name the
// directory, as each server may reach it by another path.
const (
	claimedKey  = "bodies"
	claimedForm = 1
)

// Claimed reports whether the servers have put their marker into a directory or bucket of object bodies. It reads the
// record about this that Note has made in the store of rows, and changes nothing.
func Claimed(ctx context.Context, rows store.Registers) (bool, error) {
	claimed, _, err := readClaim(ctx, rows)
	return claimed, store.Wrap("look whether the rows have a place of bodies", err)
}

// Note records in the store of rows that the servers have put their marker into the directory or bucket of object
// bodies. The marker must be durable before the caller calls Note. A server that starts later checks that the marker is
// present.
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

// readClaim reads the record that says whether the servers have marked their directory of object bodies. The result
// claimed is true if the record exists. v is the record's version, for a compare-and-swap.
func readClaim(ctx context.Context, rows store.Registers) (claimed bool, v store.Version, err error) {
	// The record is never removed, so one read that finds it is enough. If the first read finds none, the record may
	// just have been written in another data centre, so the second read is at level Serial.
	for _, level := range []store.Level{store.Local, store.Serial} {
		var note []byte
		note, v, err = record.Read(ctx, rows, store.Process, claimedKey, level, claimedForm)
		if err != nil || note != nil {
			break
		}
	}
	return v != (store.Version{}), v, err
}
