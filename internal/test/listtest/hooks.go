package listtest

import (
	"context"

	"github.com/evenkeel/evenkeel/store"
)

// Hooked is a store that calls Hook before and after each call that reads or writes rows, as if much happened during
// the call. If Registers is true, calls that read or swap registers call Hook, too.
type Hooked struct {
	store.Store
	Hook      func()
	Registers bool
}

func (h *Hooked) call() {
	if h.Hook != nil {
		h.Hook()
	}
}

// Put puts rows into the embedded store, and calls Hook before and after.
func (h *Hooked) Put(ctx context.Context, p store.Partition, rows ...store.Row) error {
	h.call()
	defer h.call()
	return h.Store.Put(ctx, p, rows...)
}

// Delete deletes a row of the embedded store, and calls Hook before and after.
func (h *Hooked) Delete(ctx context.Context, p store.Partition, key []byte, ts store.Timestamp) error {
	h.call()
	defer h.call()
	return h.Store.Delete(ctx, p, key, ts)
}

// Get reads a row of the embedded store, and calls Hook before and after.
func (h *Hooked) Get(ctx context.Context, p store.Partition, key []byte) (store.Row, bool, error) {
	h.call()
	defer h.call()
	return h.Store.Get(ctx, p, key)
}

// Slice reads rows of the embedded store, and calls Hook before and after.
func (h *Hooked) Slice(
	ctx context.Context, p store.Partition, b store.Bounds, o store.SliceOptions,
) (store.Page, error) {
	h.call()
	defer h.call()
	return h.Store.Slice(ctx, p, b, o)
}

// Read reads a record of the embedded store. If Registers is true, Read calls Hook before and after.
func (h *Hooked) Read(ctx context.Context, t store.Table, key []byte, l store.Level) (store.Record, error) {
	if h.Registers {
		h.call()
		defer h.call()
	}
	return h.Store.Read(ctx, t, key, l)
}

// Swap swaps a record of the embedded store. If Registers is true, Swap calls Hook before and after.
func (h *Hooked) Swap(ctx context.Context, t store.Table, key []byte, old store.Version, next store.Record) error {
	if h.Registers {
		h.call()
		defer h.call()
	}
	return h.Store.Swap(ctx, t, key, old, next)
}

// Morsels is a store whose slices return only a few rows, so that a page of a listing needs many slices.
type Morsels struct {
	store.Store
	Rows int
}

// Slice reads at most m.Rows rows of the embedded store.
func (m *Morsels) Slice(
	ctx context.Context, p store.Partition, b store.Bounds, o store.SliceOptions,
) (store.Page, error) {
	o.Limit = min(o.Limit, m.Rows)
	return m.Store.Slice(ctx, p, b, o)
}
