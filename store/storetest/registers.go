package storetest

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/internal/storekit"
	"github.com/evenkeel/evenkeel/store"
)

func (s *suite) runRegisters(t *testing.T) {
	for _, table := range store.Tables() {
		t.Run("register in "+table.String(), func(t *testing.T) {
			t.Run("what is absent is not found", func(t *testing.T) { s.registerAbsent(t, table) })
			t.Run("a swap from the right version is read back", func(t *testing.T) { s.registerSwap(t, table) })
			t.Run("a swap from another version is a conflict", func(t *testing.T) { s.registerConflict(t, table) })
			t.Run("of concurrent swappers one wins each epoch", func(t *testing.T) { s.registerRace(t, table) })
			t.Run("a scan finds every key once", func(t *testing.T) { s.registerScan(t, table) })
			t.Run("blobs are not shared", func(t *testing.T) { s.registerBlobs(t, table) })
		})
	}
	t.Run("tables know nothing of each other", s.tablesApart)
	t.Run("keys of registers are any bytes", s.registerKeys)
	t.Run("replaced roots are kept until forgotten", s.rootHistory)
}

// A register is the table and the key of a stored record that changes only by compare-and-swap, together with the
// record that the test expects to read.
type register struct {
	table store.Table
	key   []byte
	store.Record
}

func newRegisterKey() []byte {
	id := uuid.New()
	return id[:]
}

func nextRecord(old store.Version, blob string) store.Record {
	return store.Record{Version: store.Version{Epoch: old.Epoch + 1, Token: storekit.NewToken()}, Blob: []byte(blob)}
}

// newRegister creates a register, which is a record that changes only by compare-and-swap, with a random key in the
// given table of the store. It returns the register with its first record. The test fails if the store returns an
// error.
func newRegister(ctx context.Context, t *testing.T, s store.Store, table store.Table) *register {
	t.Helper()
	r := &register{table: table, key: newRegisterKey()}
	r.swap(ctx, t, s, "first")
	return r
}

func (r *register) swap(ctx context.Context, t *testing.T, s store.Store, blob string) {
	t.Helper()
	next := nextRecord(r.Version, blob)
	require.NoError(t, s.Swap(ctx, r.table, r.key, r.Version, next))
	r.Record = next
}

// requireIs reads the register r from the store at both levels of consistency. The test fails if a read does not return
// the record that r expects.
func (r *register) requireIs(t *testing.T, s store.Store) {
	t.Helper()
	for _, level := range []store.Level{store.Serial, store.Local} {
		got, err := s.Read(t.Context(), r.table, r.key, level)
		require.NoError(t, err)
		requireRecord(t, r.Record, got)
	}
}

func requireRecord(t *testing.T, want, got store.Record) {
	t.Helper()
	require.Equal(t, want.Version, got.Version)
	require.True(t, bytes.Equal(want.Blob, got.Blob), "the blob of epoch %d differs: %s", want.Epoch, clip(got.Blob))
}

func (s *suite) registerAbsent(t *testing.T, table store.Table) {
	for _, level := range []store.Level{store.Serial, store.Local} {
		_, err := s.store.Read(t.Context(), table, newRegisterKey(), level)
		requireKind(t, store.NotFound, err)
	}
}

func (s *suite) registerSwap(t *testing.T, table store.Table) {
	r := newRegister(t.Context(), t, s.store, table)
	require.EqualValues(t, 1, r.Epoch)
	r.requireIs(t, s.store)
	for _, blob := range []string{"second", "", "\x00\xff", string(make([]byte, 10_000)), "short again"} {
		r.swap(t.Context(), t, s.store, blob)
		r.requireIs(t, s.store)
	}
	require.EqualValues(t, 6, r.Epoch)
}

func (s *suite) registerConflict(t *testing.T, table store.Table) {
	ctx := t.Context()
	r := newRegister(ctx, t, s.store, table)
	first := r.Version
	r.swap(ctx, t, s.store, "second")
	conflict := func(key []byte, old store.Version) {
		t.Helper()
		err := s.store.Swap(ctx, table, key, old, nextRecord(old, "never"))
		requireKind(t, store.Conflict, err)
		require.False(t, store.OutcomeUnknown(err))
	}
	conflict(r.key, store.Version{})                                                 // it is not absent
	conflict(r.key, first)                                                           // an old version
	conflict(r.key, store.Version{Epoch: r.Epoch + 1, Token: r.Token})               // a later epoch
	conflict(r.key, store.Version{Epoch: r.Epoch, Token: storekit.NewToken()})       // another's token
	conflict(r.key, store.Version{Epoch: r.Epoch, Token: first.Token})               // the token of the version before
	conflict(newRegisterKey(), r.Version)                                            // the register does not exist
	requireKind(t, store.Conflict, s.store.Swap(ctx, table, r.key, first, r.Record)) // what was swapped in already
	r.requireIs(t, s.store)
	r.swap(ctx, t, s.store, "third")
	r.requireIs(t, s.store)
}

// registerRace tests compare-and-swap with several goroutines that swap the record of one register. Each swap that
// succeeds begins a new epoch, and is the winner of this epoch. An acknowledged swap must be the only winner of its
// epoch. A swap with an unknown outcome may be the winner or not.
func (s *suite) registerRace(t *testing.T, table store.Table) {
	const swappers = 4
	ctx, key := t.Context(), newRegisterKey()
	epochs := uint64(s.scale(100))
	var mu sync.Mutex
	tried := map[store.Version]bool{} // the value says whether the swap was acknowledged
	seen := map[uint64]store.Token{}
	look := func(level store.Level) (store.Version, error) {
		got, err := s.store.Read(ctx, table, key, level)
		if store.KindOf(err) == store.NotFound {
			return store.Version{}, nil
		}
		if err != nil {
			return store.Version{}, err
		}
		mu.Lock()
		defer mu.Unlock()
		if token, known := seen[got.Epoch]; known && token != got.Token {
			return got.Version, fmt.Errorf("epoch %d has two winners", got.Epoch)
		}
		seen[got.Epoch] = got.Token
		if string(got.Blob) != fmt.Sprint(got.Version) {
			return got.Version, fmt.Errorf("epoch %d has the blob of another: %s", got.Epoch, got.Blob)
		}
		return got.Version, nil
	}
	var g errgroup.Group
	for range swappers {
		g.Go(func() error {
			for {
				old, err := look(store.Serial)
				if err != nil || old.Epoch >= epochs {
					return err
				}
				next := nextRecord(old, "")
				next.Blob = fmt.Append(nil, next.Version)
				mu.Lock()
				tried[next.Version] = false
				mu.Unlock()
				switch err := s.store.Swap(ctx, table, key, old, next); {
				case err == nil:
					mu.Lock()
					tried[next.Version] = true
					mu.Unlock()
					if now, err := look(store.Serial); err != nil || now.Epoch < next.Epoch {
						return fmt.Errorf("epoch %d, acknowledged before, is gone: %w", next.Epoch, err)
					}
				case store.KindOf(err) == store.Conflict:
					mu.Lock()
					delete(tried, next.Version)
					mu.Unlock()
				case !store.OutcomeUnknown(err):
					return err
				}
				if _, err := look(store.Local); err != nil {
					return err
				}
			}
		})
	}
	require.NoError(t, g.Wait())
	winners := map[uint64][]store.Token{}
	for v, acknowledged := range tried {
		if acknowledged {
			winners[v.Epoch] = append(winners[v.Epoch], v.Token)
		}
	}
	for epoch, tokens := range winners {
		require.Len(t, tokens, 1, "epoch %d", epoch)
	}
	for epoch, token := range seen {
		v := store.Version{Epoch: epoch, Token: token}
		require.Contains(t, tried, v, "epoch %d was won by a swap that nobody tried, or that met a conflict", epoch)
		if tokens := winners[epoch]; len(tokens) > 0 {
			require.Equal(t, tokens[0], token, "epoch %d", epoch)
		}
	}
}

func (s *suite) registerScan(t *testing.T, table store.Table) {
	ctx := t.Context()
	want := map[string]bool{}
	for range s.scale(50) + 10 {
		want[string(newRegister(ctx, t, s.store, table).key)] = true
	}
	for _, limit := range []int{3, 1000} {
		found := map[string]bool{}
		for after := []byte(nil); ; {
			keys, err := s.store.Scan(ctx, table, after, limit)
			require.NoError(t, err)
			if len(keys) == 0 {
				break
			}
			require.LessOrEqual(t, len(keys), limit)
			for _, key := range keys {
				require.False(t, found[string(key)], "%x is found twice", key)
				found[string(key)] = true
			}
			after = slices.Clone(keys[len(keys)-1])
			for _, key := range keys {
				clear(key) // the keys are the caller's
			}
		}
		for key := range want {
			require.True(t, found[key], "%x is missing", key)
		}
	}
}

func (s *suite) registerBlobs(t *testing.T, table store.Table) {
	ctx, key := t.Context(), newRegisterKey()
	next := nextRecord(store.Version{}, "as it was")
	given := slices.Clone(key)
	require.NoError(t, s.store.Swap(ctx, table, given, store.Version{}, next))
	clear(next.Blob)
	clear(given)
	for range 2 {
		got, err := s.store.Read(ctx, table, key, store.Serial)
		require.NoError(t, err)
		require.Equal(t, "as it was", string(got.Blob))
		clear(got.Blob)
	}
}

func (s *suite) tablesApart(t *testing.T) {
	ctx, key := t.Context(), newRegisterKey()
	var all []*register
	for _, table := range store.Tables() {
		_, err := s.store.Read(ctx, table, key, store.Serial)
		requireKind(t, store.NotFound, err)
		r := &register{table: table, key: key}
		r.swap(ctx, t, s.store, "in "+table.String())
		all = append(all, r)
	}
	for i, r := range all {
		for range i {
			r.swap(ctx, t, s.store, "again in "+r.table.String())
		}
	}
	for _, r := range all {
		r.requireIs(t, s.store)
	}
	history, err := s.store.History(ctx, store.BucketID(key), 0, 100)
	require.NoError(t, err)
	require.Empty(t, history, "roots, the first table, was swapped once")
}

func (s *suite) registerKeys(t *testing.T) {
	ctx := t.Context()
	for _, table := range store.Tables() {
		if table == store.Roots {
			continue
		}
		prefix := string(newRegisterKey())
		var all []*register
		for _, tail := range append([][]byte{nil, bytes.Repeat([]byte{'x'}, 1024)}, trickyKeys...) {
			r := &register{table: table, key: []byte(prefix + string(tail))}
			r.swap(ctx, t, s.store, fmt.Sprintf("%q", tail))
			all = append(all, r)
		}
		for _, r := range all {
			r.requireIs(t, s.store)
		}
	}
}

func (s *suite) rootHistory(t *testing.T) {
	ctx := t.Context()
	root, other := newRegister(ctx, t, s.store, store.Roots), newRegister(ctx, t, s.store, store.Roots)
	require.Empty(t, s.history(t, root, 0, 100), "nothing is replaced yet")
	var replaced []store.Record
	for i := range 9 {
		replaced = append([]store.Record{root.Record}, replaced...)
		root.swap(ctx, t, s.store, fmt.Sprint("blob ", i))
		requireKind(
			t, store.Conflict, s.store.Swap(ctx, store.Roots, root.key, other.Version, nextRecord(other.Version, "never")),
		)
	}
	expect := func(before uint64, limit int, want []store.Record) {
		t.Helper()
		got := s.history(t, root, before, limit)
		require.Len(t, got, len(want))
		for i := range got {
			requireRecord(t, want[i], got[i])
			clear(got[i].Blob) // the blobs are the caller's
		}
	}
	for range 2 {
		expect(0, 100, replaced) // epochs 9 to 1
	}
	expect(0, 9, replaced)
	expect(0, 4, replaced[:4])
	expect(1, 100, nil)
	expect(2, 100, replaced[8:])
	expect(6, 2, replaced[4:6])
	expect(1000, 100, replaced)
	require.Empty(t, s.history(t, other, 0, 100))

	require.NoError(t, s.store.Forget(ctx, store.BucketID(root.key), 0))
	expect(0, 100, replaced)
	require.NoError(t, s.store.Forget(ctx, store.BucketID(root.key), 4))
	require.NoError(t, s.store.Forget(ctx, store.BucketID(root.key), 4))
	expect(0, 100, replaced[:6])
	require.NoError(t, s.store.Forget(ctx, store.BucketID(root.key), 1000))
	expect(0, 100, nil)
	root.requireIs(t, s.store)
	replaced = []store.Record{root.Record}
	root.swap(ctx, t, s.store, "after forgetting")
	expect(0, 100, replaced)
	require.NoError(t, s.store.Forget(ctx, newBucket(), 1000))
}

func (s *suite) history(t *testing.T, r *register, before uint64, limit int) []store.Record {
	t.Helper()
	got, err := s.store.History(t.Context(), store.BucketID(r.key), before, limit)
	require.NoError(t, err)
	return got
}
