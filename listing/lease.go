package listing

import (
	"bytes"
	"context"
	"sync/atomic"

	"github.com/evenkeel/evenkeel/partmap/mapclient"
	"github.com/evenkeel/evenkeel/store"
)

// hold is a lease that one operation shares with the writes that it has started. It is
// released when the last of them has really ended, perhaps after the caller gave up.
type hold struct {
	*mapclient.Lease
	holders atomic.Int32
	// ended, if not nil, is closed at the release. The operation sets it before it
	// releases its own share.
	ended chan struct{}
}

func newHold(l *mapclient.Lease) *hold {
	h := &hold{Lease: l}
	h.holders.Store(1)
	return h
}

func (h *hold) release() {
	if h.holders.Add(-1) == 0 {
		h.Release()
		if h.ended != nil {
			close(h.ended)
		}
	}
}

// leave is the release by the operation itself. If err is not nil and writes are still
// under way, the returned error says when they have ended (see UnderWay).
func (h *hold) leave(err error) error {
	if err != nil && h.holders.Load() > 1 {
		h.ended = make(chan struct{})
		err = &underWay{err, h.ended}
	}
	h.release()
	return err
}

// finish runs a write that must not outlive the lease. Where leases are counted, f does not
// see the end of ctx, so that its return is the real end of the write; finish itself returns
// at the end of ctx and leaves the write running, with unknown outcome. So f must use memory
// of its own. Where leases end by time, nothing waits for the real end of a write.
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

// A thenPutter is a store whose puts need no goroutine to be abandoned: PutThen returns at
// the end of ctx, does not use rows after that, and calls ended once, when the write has
// really ended.
type thenPutter interface {
	PutThen(ctx context.Context, p store.Partition, ended func(), rows ...store.Row) error
}

// put is finish for a put of one row. It does not use the row's memory after it returns.
func (h *hold) put(ctx context.Context, rows store.Rows, p store.Partition, row store.Row) error {
	if _, ok := rows.(thenPutter); !ok && ctx.Done() != nil && !h.Timed() {
		row.Key, row.Value = bytes.Clone(row.Key), bytes.Clone(row.Value)
	}
	return h.putOwn(ctx, rows, p, row)
}

// putOwn is put for rows whose memory never changes. A thenPutter may also abandon a write
// on its own, for lack of disk space for example; so it reports the real end even if ctx
// never ends.
func (h *hold) putOwn(ctx context.Context, rows store.Rows, p store.Partition, own ...store.Row) error {
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
