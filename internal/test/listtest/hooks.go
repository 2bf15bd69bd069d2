package listtest

import (
	"context"

	"github.com/evenkeel/evenkeel/store"
)

// Hooked is a store that calls Hook before and after each call that reads or
// writes rows, as if much happened while the call was on its way; with
// Registers also of those that read and swap registers.
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

// Put implements store.Rows.
func (h *Hooked) Put(ctx context.Context, p store.Partition, rows ...store.Row) error {
	h.call()
	defer h.call()
	return h.Store.Put(ctx, p, rows...)
}

// Delete implements store.Rows.
func (h *Hooked) Delete(ctx context.Context, p store.Partition, key []byte, ts store.Timestamp) error {
	h.call()
	defer h.call()
	return h.Store.Delete(ctx, p, key, ts)
}

// Get implements store.Rows.
func (h *Hooked) Get(ctx context.Context, p store.Partition, key []byte) (store.Row, bool, error) {
	h.call()
	defer h.call()
	return h.Store.Get(ctx, p, key)
}

// Slice implements store.Rows.
func (h *Hooked) Slice(
	ctx context.Context, p store.Partition, b store.Bounds, o store.SliceOptions,
) (store.Page, error) {
	h.call()
	defer h.call()
	return h.Store.Slice(ctx, p, b, o)
}

// Read implements store.Registers.
func (h *Hooked) Read(ctx context.Context, t store.Table, key []byte, l store.Level) (store.Record, error) {
	if h.Registers {
		h.call()
		defer h.call()
	}
	return h.Store.Read(ctx, t, key, l)
}

// Swap implements store.Registers.
func (h *Hooked) Swap(ctx context.Context, t store.Table, key []byte, old store.Version, next store.Record) error {
	if h.Registers {
		h.call()
		defer h.call()
	}
	return h.Store.Swap(ctx, t, key, old, next)
}

// Morsels is a store whose slices have a few rows at most, so that a page takes many
// of them.
type Morsels struct {
	store.Store
	Rows int
}

// Slice implements store.Rows.
func (m *Morsels) Slice(
	ctx context.Context, p store.Partition, b store.Bounds, o store.SliceOptions,
) (store.Page, error) {
	o.Limit = min(o.Limit, m.Rows)
	return m.Store.Slice(ctx, p, b, o)
}
