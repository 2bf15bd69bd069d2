package s3tour

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/adminapi"
	"github.com/evenkeel/evenkeel/internal/rebalance/scheduler"
	"github.com/evenkeel/evenkeel/internal/test/seed"
)

// Mover splits, merges and refreshes ranges of a bucket while a tour runs, by the commands that operators have. It
// makes one move after the other until it is stopped.
type Mover struct {
	t      testing.TB
	admin  *adminapi.Client
	bucket string
	keys   []string

	moves  atomic.Int64
	failed atomic.Bool
	cancel context.CancelFunc
	work   sync.WaitGroup
}

// mostRanges is the largest number of ranges into which a Mover splits the bucket.
const mostRanges = 6

// Move starts a Mover for a bucket, which sends its commands to the admin address of a server. keys are the keys at
// which ranges may be cut. If patient is true, a failed command is repeated, e.g. while no process leads yet. If it is
// false, a failed command fails the test.
func Move(t testing.TB, admin, bucket string, keys []string, patient bool) *Mover {
	c, err := adminapi.NewClient(admin, "")
	require.NoError(t, err)
	m := &Mover{t: t, admin: c, bucket: bucket, keys: keys}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	m.cancel = cancel
	r := seed.New(t)
	m.work.Go(func() {
		for ctx.Err() == nil {
			moved, err := m.move(r)
			switch {
			case err != nil && patient:
				t.Logf("%s: %v", bucket, err)
				time.Sleep(100 * time.Millisecond)
			case err != nil:
				m.failed.Store(true)
				t.Errorf("%s, move %d: %v", bucket, m.moves.Load(), err)
				return
			case moved:
				m.moves.Add(1)
			}
		}
	})
	return m
}

// move makes one random move that fits the present map, and waits for its end. The result is false if nothing had to be
// moved, because the chosen key was a cut already.
func (m *Mover) move(r *rand.Rand) (bool, error) {
	ctx := context.WithoutCancel(m.t.Context())
	body, err := m.admin.Map(ctx, m.bucket, 0)
	if err != nil {
		return false, err
	}
	var now adminapi.Map
	err = json.NewDecoder(body).Decode(&now)
	_ = body.Close()
	if err != nil {
		return false, err
	}
	ranges := now.Partitions
	i := r.IntN(len(ranges))
	key := m.keys[r.IntN(len(m.keys))]
	ask := scheduler.Ask{Kind: scheduler.Refresh, Spans: []adminapi.Span{ranges[i].Span}}
	switch {
	case i > 0 && (len(ranges) >= mostRanges || r.IntN(3) == 0):
		ask.Kind, ask.Spans[0].Start = scheduler.Merge, ranges[i-1].Start
	case len(ranges) < mostRanges:
		ask.Kind, ask.Keys, ask.Spans = scheduler.Presplit, [][]byte{[]byte(key)}, nil
	}
	answer, err := m.admin.Moves(ctx, adminapi.Moves{Bucket: m.bucket, Ask: ask})
	if err != nil || answer.Job == nil {
		time.Sleep(5 * time.Millisecond)
		return false, err
	}
	for job := *answer.Job; ; {
		switch {
		case job.Error != "":
			return false, fmt.Errorf("%s: %s", ask.Kind, job.Error)
		case !job.Ended.IsZero():
			return true, nil
		}
		time.Sleep(20 * time.Millisecond)
		if job, err = m.admin.Job(ctx, job.ID); err != nil {
			return false, err
		}
	}
}

// Progress waits until the Mover has made one more move.
func (m *Mover) Progress(t testing.TB) {
	t.Helper()
	begun, from := time.Now(), m.moves.Load()
	for m.moves.Load() == from {
		require.False(t, m.failed.Load(), "the moves have ended")
		require.Less(t, time.Since(begun), 2*time.Minute, "no move comes to its end")
		time.Sleep(5 * time.Millisecond)
	}
}

// Stop ends the Mover after the move under way, and returns the number of moves that it has made.
func (m *Mover) Stop() int64 {
	m.cancel()
	m.work.Wait()
	return m.moves.Load()
}
