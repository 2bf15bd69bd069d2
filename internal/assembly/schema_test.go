package assembly_test

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/assembly"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/record"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// putSchema writes the register of the schema's version: in force, or with one that is announced.
func putSchema(t *testing.T, s store.Registers, versions ...uint64) {
	t.Helper()
	key := []byte("schema")
	old, err := s.Read(t.Context(), store.Process, key, store.Serial)
	if err != nil {
		require.ErrorIs(t, err, store.NotFound)
	}
	var payload []byte
	for _, v := range versions {
		payload = binary.BigEndian.AppendUint64(payload, v)
	}
	next := record.Next(old.Version)
	rec := record.Seal(byte(len(versions)), next, payload)
	require.NoError(t, s.Swap(t.Context(), store.Process, key, old.Version, rec))
}

// TestAProgramThatIsTooOldForTheKeyspaceDoesNotStart, nor while a change to what it does not know is under way. A
// version that is damaged stops all but a check.
func TestAProgramThatIsTooOldForTheKeyspaceDoesNotStart(t *testing.T) {
	s := kept{memstore.New()}
	o := assembly.Options{Shared: &mapclient.Options{Lease: time.Second, MaxClockSkew: time.Second}}
	open := func(o assembly.Options) error {
		db, err := assembly.Open(t.Context(), s, o)
		if err == nil {
			err = db.Close()
		}
		return err
	}
	require.NoError(t, open(o))
	for _, versions := range [][]uint64{{4}, {1, 4}, {3, 4}} {
		putSchema(t, s, versions...)
		err := open(o)
		require.ErrorIs(t, err, store.InvalidArgument, versions)
		require.ErrorContains(t, err, "this program knows versions up to 3")
	}
	putSchema(t, s, 1)
	require.NoError(t, open(o))

	rec, err := s.Read(t.Context(), store.Process, []byte("schema"), store.Serial)
	require.NoError(t, err)
	damaged := store.Record{Version: record.Next(rec.Version), Blob: []byte("damaged")}
	require.NoError(t, s.Swap(t.Context(), store.Process, []byte("schema"), rec.Version, damaged))
	require.ErrorIs(t, open(o), store.Corrupt)
	o.Damaged = true
	require.NoError(t, open(o))
}
