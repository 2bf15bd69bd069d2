package listing

import (
	"bytes"
	"context"
	"sync/atomic"

	"github.com/evenkeel/evenkeel/partmap/mapclient"
	"github.com/evenkeel/evenkeel/store"
)

// hold is a lease in the hands of one operation and of the writes that it has
// begun: it is released when the last of them has really ended, which may be
// after the operation's caller gave up.
type hold struct {
	*mapclient.Lease
	holders atomic.Int32
	// ended is closed at the release, if it isn't nil. The operation itself sets it,
	// before it lets go.
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

// leave is release for the operation itself, at its end. If it failed and leaves
// writes on their way, the error that it returns tells when those have ended.
func (h *hold) leave(err error) error {
	if err != nil && h.holders.Load() > 1 {
		h.ended = make(chan struct{})
		err = &underWay{err, h.ended}
	}
	h.release()
	return err
}

// finish runs a write that must not outlive the lease. Where leases are counted
// the write never sees the end of ctx, or its real end could not be told; the
// caller of finish does, and then leaves it to itself: its outcome is unknown. What
// f uses must not be changed after that. Where leases end by time nobody waits for
// a write's real end, and late ones are reckoned with.
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

// A thenPutter is a store whose puts need no goroutine of their own to be given up:
// PutThen returns at the end of ctx by itself, keeps nothing of rows after that, and
// calls ended once, when the write has really ended.
type thenPutter interface {
	PutThen(ctx context.Context, p store.Partition, ended func(), rows ...store.Row) error
}

// put is finish for a put of one row, whose memory is the caller's again when put
// returns.
func (h *hold) put(ctx context.Context, rows store.Rows, p store.Partition, row store.Row) error {
	if _, ok := rows.(thenPutter); !ok && ctx.Done() != nil && !h.Timed() {
		row.Key, row.Value = bytes.Clone(row.Key), bytes.Clone(row.Value)
	}
	return h.putOwn(ctx, rows, p, row)
}

// putOwn is put for rows whose memory nobody changes any more. A store that can be
// given up by itself may also give up by itself, for lack of disk space for example:
// so it is asked for the real end whether ctx can end or not.
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
