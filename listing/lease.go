package listing

import (
	"bytes"
	"context"
	"sync/atomic"

	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/store"
)

// A hold is a lease on the map of a bucket that several users share: an operation, and the writes that the operation
// has started. The lease is released when its last user has ended. A write may end after its operation, if the caller
// gave up.
type hold struct {
	*mapclient.Lease
	// holders is the number of users of the lease: the operation, and each of its writes that has not ended.
	holders atomic.Int32
	// ended, if not nil, is closed when the lease is released. The operation sets ended before it stops using the
	// lease.
	ended chan struct{}
}

// newHold returns a hold of the lease l, which an operation will share with its writes. At first the operation is the
// only user of the lease.
func newHold(l *mapclient.Lease) *hold {
	h := &hold{Lease: l}
	h.holders.Store(1)
	return h
}

// release ends the use of a lease by one of its users: an operation, or one of its writes. After the last user the
// lease is released.
func (h *hold) release() {
	if h.holders.Add(-1) == 0 {
		h.Release()
		if h.ended != nil {
			close(h.ended)
		}
	}
}

// leave ends the use of a shared lease by the operation itself; its writes may still use the lease. The parameter err
// is the error of the operation, and leave returns it. If err is not nil and writes are still running, the returned
// error also tells when they have ended (see door.UnderWay).
func (h *hold) leave(err error) error {
	if err != nil && h.holders.Load() > 1 {
		h.ended = make(chan struct{})
		err = &underWay{err, h.ended}
	}
	h.release()
	return err
}

// finish runs f, a write that must not outlive the lease h. There are two forms of leases:
//   - In an embedded store the lease lasts until the write has really ended. If ctx ends first, finish returns at once,
//     with an unknown outcome, and leaves f running. So f does not see the end of ctx, and must use memory of its own.
//   - On Cassandra, for example, leases end after some time by themselves. Then finish only calls f: nothing waits for
//     the real end of the write.
func (h *hold) finish(ctx context.Context, f func(ctx context.Context) error) error {
	if ctx.Done() == nil || h.Timed() {
		return f(ctx)
	}
	free := context.WithoutCancel(ctx)
	h.holders.Add(1)
	done := make(chan error, 1)
	go func() {
		defer h.release()
		done <- f(free)
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// A thenPutter is a store whose puts may outlast the call. PutThen returns as soon as ctx ends, while the put goes on.
// PutThen calls ended once, when the put has really ended. It does not use the memory of the rows after it has
// returned.
type thenPutter interface {
	PutThen(ctx context.Context, p store.Partition, ended func(), rows ...store.Row) error
}

// put writes a row to the partition p. The lease h lasts until the write has really ended. If ctx ends first, put
// returns at once and leaves the write running. put does not use the memory of the row after it has returned.
func (h *hold) put(ctx context.Context, rows store.Rows, p store.Partition, row store.Row) error {
	if _, ok := rows.(thenPutter); !ok && ctx.Done() != nil && !h.Timed() {
		row.Key, row.Value = bytes.Clone(row.Key), bytes.Clone(row.Value)
	}
	return h.putOwn(ctx, rows, p, row)
}

// putOwn writes rows to the partition p; the caller must never change the memory of the rows. The lease h lasts until
// the write has really ended, even if ctx ends first.
func (h *hold) putOwn(ctx context.Context, rows store.Rows, p store.Partition, own ...store.Row) error {
	// Some stores give up a write by themselves, for example if the disk is full. So PutThen, which reports the real
	// end of the write, is used even if ctx never ends.
	then, ok := rows.(thenPutter)
	if !ok || h.Timed() {
		return h.finish(ctx, func(ctx context.Context) error { return rows.Put(ctx, p, own...) })
	}
	h.holders.Add(1)
	err := then.PutThen(ctx, p, h.release, own...)
	if ctx.Err() != nil && store.OutcomeUnknown(err) {
		return context.Cause(ctx)
	}
	return err
}
