package cassandrastore

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/store"
)

// closings counts how often a session was closed.
type closings struct{ n int }

func (c *closings) Close() { c.n++ }

// opener opens sessions to a data centre that is far, and may be away.
type opener struct {
	takes  time.Duration
	away   error
	opened []*closings
	began  []time.Time
	atOnce int // openings under way
	most   int // the most at once
	mu     sync.Mutex
}

func (o *opener) open(context.Context, string) (*closings, error) {
	o.mu.Lock()
	o.began = append(o.began, time.Now())
	o.atOnce++
	o.most = max(o.most, o.atOnce)
	o.mu.Unlock()
	time.Sleep(o.takes) // the driver can't be interrupted
	o.mu.Lock()
	defer o.mu.Unlock()
	o.atOnce--
	if o.away != nil {
		return nil, o.away
	}
	s := &closings{}
	o.opened = append(o.opened, s)
	return s, nil
}

// ask asks for a session, for half a second at most.
func ask(t *testing.T, f *far[*closings]) (*closings, error) {
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	return f.in(ctx, "dc2")
}

func TestFarSessions(t *testing.T) {
	for name, test := range map[string]func(*testing.T, *opener, *far[*closings]){
		"one that takes longer than each caller waits is opened once, for all of them": func(
			t *testing.T, o *opener, f *far[*closings],
		) {
			o.takes = 3 * time.Second
			var callers sync.WaitGroup
			for range 10 {
				callers.Go(func() {
					begun := time.Now()
					_, err := ask(t, f)
					require.ErrorIs(t, err, store.Unavailable)
					require.ErrorIs(t, err, context.DeadlineExceeded)
					require.Equal(t, 500*time.Millisecond, time.Since(begun))
				})
			}
			callers.Wait()
			time.Sleep(o.takes)
			for range 10 {
				s, err := ask(t, f)
				require.NoError(t, err)
				require.Same(t, o.opened[0], s)
			}
			require.Len(t, o.opened, 1)
			f.close()
			f.close()
			require.Equal(t, 1, o.opened[0].n)
			_, err := ask(t, f)
			require.ErrorIs(t, err, store.ErrClosed)
		},
		"an opening that fails is repeated after a pause, which grows": func(
			t *testing.T, o *opener, f *far[*closings],
		) {
			o.away = errors.New("away")
			for range 600 {
				_, err := ask(t, f)
				require.ErrorIs(t, err, o.away)
				time.Sleep(100 * time.Millisecond)
			}
			require.Greater(t, len(o.began), 10)
			require.Less(t, len(o.began), 50)
			for i := range o.began[1:] {
				pause := o.began[i+1].Sub(o.began[i])
				require.GreaterOrEqual(t, pause, farPauses.First/2)
				require.Less(t, pause, farPauses.Most+100*time.Millisecond)
			}
			o.away = nil
			time.Sleep(farPauses.Most)
			_, err := ask(t, f)
			require.NoError(t, err)
			require.Equal(t, 1, o.most)
			f.close()
			require.Equal(t, 1, o.opened[0].n)
		},
		"one that is opened after the end is closed, once": func(t *testing.T, o *opener, f *far[*closings]) {
			o.takes = time.Minute
			var caller sync.WaitGroup
			caller.Go(func() {
				_, err := f.in(t.Context(), "dc2")
				require.ErrorIs(t, err, store.ErrClosed)
			})
			time.Sleep(time.Second)
			f.close()
			caller.Wait()
			require.Len(t, o.opened, 1)
			require.Equal(t, 1, o.opened[0].n)
		},
		"data centres do not wait for each other": func(t *testing.T, o *opener, f *far[*closings]) {
			o.takes = time.Second
			_, err := ask(t, f)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			begun := time.Now()
			_, err = f.in(t.Context(), "dc3")
			require.NoError(t, err)
			require.Equal(t, o.takes, time.Since(begun))
			f.close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := &opener{}
				test(t, o, newFar(o.open))
			})
		})
	}
}
