package mapclient_test

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

func newUUID(rng *rand.Rand) (id uuid.UUID) {
	binary.BigEndian.PutUint64(id[:], rng.Uint64())
	binary.BigEndian.PutUint64(id[8:], rng.Uint64()|1)
	return id
}

// hooked is a store whose calls a test can see and change.
type hooked struct {
	mapclient.Store
	mu sync.Mutex
	// lose is asked before a read, whose error is what it returns.
	lose func(ctx context.Context, t store.Table) error
	// levels is told the level of each read.
	levels func(l store.Level)
	read   func(ctx context.Context, rec store.Record, err error) (store.Record, error)
	swap   func(ctx context.Context, do func() error) error
	node   func(ctx context.Context, id store.NodeID, blob []byte, err error) ([]byte, error)
}

func newHooked() *hooked { return &hooked{Store: memstore.New()} }

func hook[T any](h *hooked, f *T) T {
	h.mu.Lock()
	defer h.mu.Unlock()
	return *f
}

func set[T any](h *hooked, f *T, to T) {
	h.mu.Lock()
	defer h.mu.Unlock()
	*f = to
}

func (h *hooked) Read(ctx context.Context, t store.Table, key []byte, l store.Level) (store.Record, error) {
	if f := hook(h, &h.lose); f != nil {
		if err := f(ctx, t); err != nil {
			return store.Record{}, err
		}
	}
	if f := hook(h, &h.levels); f != nil {
		f(l)
	}
	rec, err := h.Store.Read(ctx, t, key, l)
	if f := hook(h, &h.read); f != nil {
		return f(ctx, rec, err)
	}
	return rec, err
}

func (h *hooked) Swap(ctx context.Context, t store.Table, key []byte, old store.Version, next store.Record) error {
	do := func() error { return h.Store.Swap(ctx, t, key, old, next) }
	if f := hook(h, &h.swap); f != nil {
		return f(ctx, do)
	}
	return do()
}

func (h *hooked) Node(ctx context.Context, b store.BucketID, id store.NodeID) ([]byte, error) {
	blob, err := h.Store.Node(ctx, b, id)
	if f := hook(h, &h.node); f != nil {
		return f(ctx, id, blob, err)
	}
	return blob, err
}

// world is a client on a hooked store with one bucket.
type world struct {
	*mapclient.Client
	t     *testing.T
	ctx   context.Context
	store *hooked
	id    store.BucketID
}

func newWorld(t *testing.T, ranges int, o mapclient.Options) *world {
	w := &world{t: t, ctx: context.Background(), store: newHooked(), id: store.BucketID(uuid.New())}
	w.Client = mapclient.NewEmbedded(w.store, o)
	_, err := w.Create(w.ctx, w.id, cutsOf(ranges-1))
	require.NoError(t, err)
	return w
}

func (w *world) lease() *mapclient.Lease {
	w.t.Helper()
	l, err := w.Acquire(w.ctx, w.id)
	require.NoError(w.t, err)
	return l
}

// rehome makes a change that gives the range from start another home.
func (w *world) rehome(start []byte) partmap.Change {
	w.t.Helper()
	root, err := w.Load(w.ctx, w.id)
	require.NoError(w.t, err)
	e := w.Edit(w.ctx, root)
	var end []byte
	for r, err := range w.Ranges(w.ctx, root, start) {
		require.NoError(w.t, err)
		end = r.End
		break
	}
	entries := []partmap.Entry{{Start: start, Partition: store.PartitionID(uuid.New())}}
	require.NoError(w.t, e.Replace(start, end, entries))
	c, err := e.Change()
	require.NoError(w.t, err)
	return c
}

// step swaps to the next epoch.
func (w *world) step() {
	w.t.Helper()
	require.NoError(w.t, w.Swap(w.ctx, w.rehome(nil)))
}
