package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/store"
)

func (s *suite) runEnds(t *testing.T) {
	t.Run("an ended context is a timeout with its cause", s.endedContext)
	t.Run("a call cancelled on the way is done whole or not at all", s.cancelledOnTheWay)
	t.Run("a closed store is unavailable", s.closed)
	t.Run("closing ends calls under way", s.closing)
}

// A call is the call of one method of a store with valid arguments, and a name for the report of a test.
type call struct {
	name string
	do   func(ctx context.Context) error
}

func everyCall(s store.Store, p store.Partition, key []byte, id store.NodeID) []call {
	row := store.Row{Key: []byte("k"), Value: []byte("new"), Timestamp: 20}
	calls := []call{
		{"put", func(ctx context.Context) error { return s.Put(ctx, p, row) }},
		{"put nothing", func(ctx context.Context) error { return s.Put(ctx, p) }},
		{"delete", func(ctx context.Context) error { return s.Delete(ctx, p, []byte("k"), 20) }},
		{"remove", func(ctx context.Context) error { return s.Remove(ctx, p, store.Bounds{}, 20) }},
		{"remove a range", func(ctx context.Context) error {
			return s.Remove(ctx, p, store.Bounds{Start: []byte("k")}, 20)
		}},
		{"get", func(ctx context.Context) error { _, _, err := s.Get(ctx, p, []byte("k")); return err }},
		{"slice", func(ctx context.Context) error {
			_, err := s.Slice(ctx, p, store.Bounds{}, store.SliceOptions{Limit: 1})
			return err
		}},
		{
			"read serial", func(ctx context.Context) error { _, err := s.Read(ctx, store.Roots, key, store.Serial); return err },
		},
		{"read local", func(ctx context.Context) error { _, err := s.Read(ctx, store.Roots, key, store.Local); return err }},
		{"swap", func(ctx context.Context) error {
			return s.Swap(ctx, store.Roots, key, store.Version{}, nextRecord(store.Version{}, "v"))
		}},
		{"scan", func(ctx context.Context) error { _, err := s.Scan(ctx, store.Roots, nil, 1); return err }},
		{"history", func(ctx context.Context) error { _, err := s.History(ctx, p.Bucket, 0, 1); return err }},
		{"forget", func(ctx context.Context) error { return s.Forget(ctx, p.Bucket, 1) }},
		{"write node", func(ctx context.Context) error { return s.WriteNode(ctx, p.Bucket, id, []byte("n")) }},
		{"node", func(ctx context.Context) error { _, err := s.Node(ctx, p.Bucket, id); return err }},
		{"delete node", func(ctx context.Context) error { return s.DeleteNode(ctx, p.Bucket, id) }},
		{
			"scan nodes",
			func(ctx context.Context) error { _, err := s.ScanNodes(ctx, p.Bucket, store.NodeID{}, 1); return err },
		},
	}
	if l, ok := s.(store.PartitionLister); ok {
		calls = append(calls, call{"partitions", func(ctx context.Context) error {
			_, err := l.Partitions(ctx, store.Partition{}, 1)
			return err
		}})
	}
	if a, ok := s.(store.Acknowledger); ok {
		calls = append(
			calls,
			call{"acknowledge", func(ctx context.Context) error { _, err := a.Acknowledge(ctx, store.Roots, key); return err }},
		)
	}
	if e, ok := s.(store.EachQuorum); ok {
		calls = append(
			calls, call{"put each quorum", func(ctx context.Context) error { return e.EachQuorum().Put(ctx, p, row) }},
		)
	}
	return calls
}

func (s *suite) endedContext(t *testing.T) {
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancelLate := context.WithDeadline(t.Context(), time.Unix(1, 0))
	defer cancelLate()
	for cause, ctx := range map[error]context.Context{context.Canceled: cancelled, context.DeadlineExceeded: late} {
		p := newPartition()
		require.NoError(t, s.store.Put(t.Context(), p, put("k", "old", 10).rows...))
		key := newRegisterKey()
		for _, c := range everyCall(s.store, p, key, newNodeID()) {
			t.Run(c.name+" "+cause.Error(), func(t *testing.T) {
				err := c.do(ctx)
				requireKind(t, store.Timeout, err)
				require.ErrorIs(t, err, cause)
			})
		}
		// The writes may have been done or not; a newer write must win in either case.
		require.NoError(t, s.store.Put(t.Context(), p, put("k", "newest", 30).rows...))
		s.requireContent(t, p, "k=newest@30")
	}
}

// cancelledOnTheWay tests writes to a store whose contexts are cancelled at a random moment. A write that was
// acknowledged must be visible afterwards. Any other write must be visible as a whole or not at all.
func (s *suite) cancelledOnTheWay(t *testing.T) {
	const keys = 10
	r := s.rand(t.Name(), 0)
	p := newPartition()
	reg := newRegister(t.Context(), t, s.store, store.Directory)
	acknowledged := store.Timestamp(0)
	for round := range s.scale(300) {
		ts := store.Timestamp(round + 1)
		var rows []store.Row
		for k := range keys {
			rows = append(rows, store.Row{Key: fmt.Append(nil, k), Value: fmt.Append(nil, ts), Timestamp: ts})
		}
		switch err := s.cancelling(t, r, func(ctx context.Context) error { return s.store.Put(ctx, p, rows...) }); {
		case err == nil:
			acknowledged = ts
		default:
			requireKind(t, store.Timeout, err)
			require.ErrorIs(t, err, context.Canceled)
		}
		page, err := s.store.Slice(t.Context(), p, store.Bounds{}, store.SliceOptions{Limit: keys, Timestamps: true})
		require.NoError(t, err)
		if acknowledged > 0 {
			require.NotEmpty(t, page.Rows)
		}
		for _, row := range page.Rows {
			require.GreaterOrEqual(t, row.Timestamp, acknowledged)
			require.Equal(t, page.Rows[0].Timestamp, row.Timestamp)
		}

		next := nextRecord(reg.Version, fmt.Sprint(round))
		err = s.cancelling(t, r, func(ctx context.Context) error {
			return s.store.Swap(ctx, reg.table, reg.key, reg.Version, next)
		})
		if err != nil && store.KindOf(err) != store.Conflict {
			requireKind(t, store.Timeout, err)
		}
		now, readErr := s.store.Read(t.Context(), reg.table, reg.key, store.Serial)
		require.NoError(t, readErr)
		if err == nil {
			require.Equal(t, next.Version, now.Version)
		}
		reg.Record = now
	}
}

// cancelling runs f with a context that it cancels at a random moment, while f is under way. It returns the error of f.
func (s *suite) cancelling(t *testing.T, r *rand.Rand, f func(ctx context.Context) error) error {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	most := 50_000
	if s.Slow {
		most = 5_000_000
	}
	after := time.Duration(r.IntN(most))
	var g errgroup.Group
	g.Go(func() error {
		select {
		case <-time.After(after):
			cancel()
		case <-ctx.Done():
		}
		return nil
	})
	err := f(ctx)
	cancel()
	return errors.Join(err, g.Wait())
}

func (s *suite) closed(t *testing.T) {
	closing := s.open(t)
	p, key, id := newPartition(), newRegisterKey(), newNodeID()
	require.NoError(t, closing.Put(t.Context(), p, put("k", "v", 1).rows...))
	calls := everyCall(closing, p, key, id)
	require.NoError(t, closing.Close())
	for _, c := range calls {
		t.Run(c.name, func(t *testing.T) {
			err := c.do(t.Context())
			requireKind(t, store.Unavailable, err)
			require.ErrorIs(t, err, store.ErrClosed, "nothing was done")
		})
	}
	require.NoError(t, closing.Close(), "closing again does nothing")
}

// closing tests the Close of a store while other calls are under way. Each of these calls must end, with a result or
// with the error Unavailable. A call that begins after Close has returned must fail with Unavailable.
func (s *suite) closing(t *testing.T) {
	closing := s.open(t)
	p, id := newPartition(), newNodeID()
	underWay := make(chan struct{}, 100)
	var begun, closed atomic.Bool
	var g errgroup.Group
	for _, c := range everyCall(closing, p, newRegisterKey(), id) {
		g.Go(func() error {
			for {
				begunBefore, late := begun.Load(), closed.Load()
				err := c.do(t.Context())
				if late && store.KindOf(err) != store.Unavailable {
					return fmt.Errorf("%s after closing: %v", c.name, err)
				}
				select {
				case underWay <- struct{}{}:
				default:
				}
				switch store.KindOf(err) {
				case store.Unavailable:
					if begunBefore { // else the error may be that of a busy network, which passes
						return nil
					}
				case store.Conflict, store.NotFound:
				default:
					if err != nil {
						return fmt.Errorf("%s: %w", c.name, err)
					}
				}
			}
		})
	}
	for range 100 {
		<-underWay
	}
	begun.Store(true)
	require.NoError(t, closing.Close())
	closed.Store(true)
	require.NoError(t, g.Wait())
}
