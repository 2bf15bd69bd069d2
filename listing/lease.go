package listing

import (
	"bytes"
	"context"
	"iter"
	"sync/atomic"

	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/partmap/mapclient"
	"github.com/evenkeel/evenkeel/store"
)

// maps is what this package needs of a map client; see mapclient.Client.
type maps interface {
	Acquire(ctx context.Context, id store.BucketID) (lease, error)
	Find(ctx context.Context, l lease, key []byte) (partmap.Range, error)
	FindBefore(ctx context.Context, l lease, key []byte) (partmap.Range, error)
	Create(ctx context.Context, id store.BucketID, cuts [][]byte) (*partmap.Root, error)
	Load(ctx context.Context, id store.BucketID) (*partmap.Root, error)
	Swap(ctx context.Context, change partmap.Change) error
	Wait(ctx context.Context, id store.BucketID) error
	Stamp() partmap.Stamp
	Ranges(ctx context.Context, r *partmap.Root, from []byte) iter.Seq2[partmap.Range, error]
}

// lease is the right to act on one root; see mapclient.Lease.
type lease interface {
	Root() *partmap.Root
	Valid() bool
	Timed() bool
	Release()
}

// mapsOf makes a mapclient.Client a maps.
type mapsOf struct{ *mapclient.Client }

func (m mapsOf) Acquire(ctx context.Context, id store.BucketID) (lease, error) {
	l, err := m.Client.Acquire(ctx, id)
	if err != nil {
		return nil, err
	}
	return l, nil
}

func (m mapsOf) Find(ctx context.Context, l lease, key []byte) (partmap.Range, error) {
	return m.Client.Find(ctx, l.(*mapclient.Lease), key)
}

func (m mapsOf) FindBefore(ctx context.Context, l lease, key []byte) (partmap.Range, error) {
	return m.Client.FindBefore(ctx, l.(*mapclient.Lease), key)
}

// hold is a lease in the hands of one operation and of the writes that it has
// begun: it is released when the last of them has really ended, which may be
// after the operation's caller gave up.
type hold struct {
	lease
	holders atomic.Int32
	// ended is closed at the release, if it isn't nil. The operation itself sets it,
	// before it lets go.
	ended chan struct{}
}

func newHold(l lease) *hold {
	h := &hold{lease: l}
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
