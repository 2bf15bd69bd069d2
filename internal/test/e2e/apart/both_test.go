package apart

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/test/e2e/harness"
	"github.com/evenkeel/evenkeel/internal/test/history"
	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/store"
)

// both has clients of both data centres put, overwrite, delete, get and list the same keys through a cut, while ranges
// are split and merged, and lets package history judge every answer.
//
// The oracle knows of data centres: what a data centre has acknowledged or shown holds there at once, and in the other
// one only once both have been seen to agree. Which of two writes of a key wins is decided by their timestamps, that
// is, by the common time. It is known here to within order, which is more than the common time leaves open between data
// centres (docs/decisions/one-common-time.md: 100 ms).
func (b *bed) both(t *testing.T) {
	const check, bucket, keys, workers, movers = "a history of both", "both", 200, 3, 4
	const order = 150 * time.Millisecond
	b.cluster.Link.SetDistance(b.distance)
	servers := []*server{b.serve(t, b.sites[0]), b.serve(t, b.sites[1])}
	b.bucket(t, servers[0], bucket)
	fill(t, servers[0], bucket) // so that ranges have something to move
	leading(t, servers)

	c := newClients(bucket, keys, order+b.ahead.Abs())
	r := seed.New(t)
	var failed, moves atomic.Int64
	var said atomic.Value // by the last command that moved nothing
	t.Cleanup(func() { t.Log(said.Load()) })
	var work []func(context.Context)
	for _, s := range servers {
		for range workers {
			r := rand.New(rand.NewPCG(r.Uint64(), r.Uint64()))
			work = append(work, func(ctx context.Context) {
				for ctx.Err() == nil {
					if err := c.step(ctx, s, r); err != nil && ctx.Err() == nil {
						failed.Add(1)
						t.Logf("in %s: %v", s.name, err)
					}
					time.Sleep(10 * time.Millisecond)
				}
			})
		}
	}
	for range movers {
		r := rand.New(rand.NewPCG(r.Uint64(), r.Uint64()))
		work = append(work, func(ctx context.Context) { b.move(ctx, t, servers, bucket, r, &moves, &said) })
	}

	end := harness.Meanwhile(t, work...)
	harness.Eventually(t, "a range has moved", func() bool { return moves.Load() > 0 })
	b.cluster.Link.Cut()
	apart := &pairs{name: "cut", bucket: bucket, many: 50}
	apart.put(t, servers, b.distance) // news may travel by another way
	time.Sleep(b.cutFor)
	moved := moves.Load()
	b.cluster.Link.Heal()
	harness.Eventually(t, "ranges move again", func() bool { return moves.Load() > moved })
	end()

	var shown [2]map[string]string
	harness.Eventually(t, "both data centres show the same", func() bool {
		for i, s := range servers {
			var err error
			shown[i], err = c.everything(t.Context(), s)
			require.NoError(t, err)
		}
		return maps.Equal(shown[0], shown[1])
	})
	c.record.Join()
	for _, s := range servers {
		for i := range keys {
			require.NoError(t, c.get(t.Context(), s, c.key(i)))
		}
		require.NoError(t, c.list(t.Context(), s))
	}
	wrong := apart.check(t, servers)
	b.report.add(check, "pairs of writes in the cut", float64(apart.many), "")
	b.report.add(check, "pairs of writes in the cut in the wrong order", float64(wrong), "")
	require.Zero(t, wrong)
	h := c.record.History()
	b.report.add(check, "writes", float64(len(h.Writes)), "")
	b.report.add(check, "answered gets and listings", float64(len(h.Reads)+len(h.Listings)), "")
	b.report.add(check, "requests that failed", float64(failed.Load()), "")
	b.report.add(check, "splits and merges", float64(moves.Load()), "")
	for _, v := range h.Check() {
		t.Error(v)
	}
}

// leading returns the server that leads, once one does: those of the test before were killed.
func leading(t *testing.T, servers []*server) (leads *server) {
	t.Helper()
	harness.Eventually(t, "a server leads", func() bool {
		for _, s := range servers {
			if strings.Contains(s.log.String(), "this process leads the moves now") {
				leads = s
			}
		}
		return leads != nil
	})
	return leads
}

// move splits ranges and merges them again until ctx ends, and counts what was carried out: during a cut that is
// nothing. It asks the server that did it last; another one may lead after a cut, and the admin API of one data centre
// can't be reached from the other.
func (b *bed) move(
	ctx context.Context, t *testing.T, servers []*server, bucket string, r *rand.Rand, done *atomic.Int64,
	last *atomic.Value,
) {
	for i := 0; ctx.Err() == nil; {
		s := servers[i]
		args := []string{"split", bucket, "--at", filledKey(r.IntN(filled))}
		if r.IntN(4) == 0 {
			args = []string{"merge", bucket, "--range", ".."}
		}
		cmd := b.programs(t, s.site).Command(ctx, "rebalancer", append(args, "--admin", s.admin, "--progress", "none")...)
		if out, err := cmd.CombinedOutput(); err == nil {
			done.Add(1)
		} else {
			last.Store(fmt.Sprintf("%v in %s: %v: %s", args, s.name, err, out))
			i = (i + 1) % len(servers)
			time.Sleep(time.Second)
		}
	}
}

// wall gives timestamps that are this machine's wall clock and a constant: one before a call and one after it bound the
// timestamp of the write that the call asks for.
type wall time.Duration

// Next implements history.Timestamps.
func (w wall) Next(context.Context, int) (store.Timestamp, error) {
	return store.Timestamp(time.Now().Add(time.Duration(w)).UnixMicro()), nil
}

// Passed implements history.Timestamps.
func (wall) Passed(context.Context, store.Timestamp) error { return nil }

// Seen implements history.Timestamps.
func (wall) Seen(store.Timestamp) {}

// clients do calls through servers, and take down the answers.
type clients struct {
	bucket        string
	keys          int
	record        *history.Recorder
	before, after history.Timestamps
}

func newClients(bucket string, keys int, order time.Duration) *clients {
	c := &clients{bucket: bucket, keys: keys, record: &history.Recorder{}}
	c.before, c.after = c.record.Timestamps(wall(-order)), c.record.Timestamps(wall(order))
	return c
}

func (c *clients) key(i int) string { return fmt.Sprintf("both-%04d", i) }

// step is one call of a client. What fails is taken down as a write of unknown outcome, or not at all.
func (c *clients) step(ctx context.Context, s *server, r *rand.Rand) error {
	key := c.key(r.IntN(c.keys))
	switch n := r.IntN(100); {
	case n < 40:
		return c.record.Put(ctx, s.name, key, func(ctx context.Context, value []byte) error {
			return c.write(ctx, s, http.MethodPut, key, string(value))
		})
	case n < 60:
		return c.record.Delete(ctx, s.name, key, func(ctx context.Context) error {
			return c.write(ctx, s, http.MethodDelete, key, "")
		})
	case n < 95:
		return c.get(ctx, s, key)
	}
	return c.list(ctx, s)
}

func (c *clients) write(ctx context.Context, s *server, method, key, value string) error {
	_, _ = c.before.Next(ctx, 1)
	_, err := s.request(ctx, method, s.s3+"/"+c.bucket+"/"+key, value)
	_, _ = c.after.Next(ctx, 1)
	return err
}

func (c *clients) get(ctx context.Context, s *server, key string) error {
	return c.record.Get(s.name, key, func() (value []byte, found bool, err error) {
		text, found, err := s.find(ctx, c.bucket, key)
		return []byte(text), found, err
	})
}

func (c *clients) list(ctx context.Context, s *server) error {
	token := ""
	return c.record.List(history.Listing{From: "both-", To: "both.", Site: s.name, KeysOnly: true},
		func() (items []history.Item, more bool, err error) {
			keys, next, err := s.list(ctx, c.bucket, token)
			for _, key := range keys {
				if strings.HasPrefix(key, "both-") {
					items = append(items, history.Item{Key: key})
				}
			}
			token = next
			return items, next != "", err
		}, nil)
}

// everything is all that a server shows: the values of the keys that are there.
func (c *clients) everything(ctx context.Context, s *server) (map[string]string, error) {
	shown := map[string]string{}
	for i := range c.keys {
		value, found, err := s.find(ctx, c.bucket, c.key(i))
		if err != nil {
			return nil, err
		}
		if found {
			shown[c.key(i)] = value
		}
	}
	return shown, nil
}

// find gets a key that may not be there.
func (s *server) find(ctx context.Context, bucket, key string) (value string, found bool, err error) {
	value, err = s.request(ctx, http.MethodGet, s.s3+"/"+bucket+"/"+key, "")
	if answer, ok := errors.AsType[*statusError](err); ok && answer.status == http.StatusNotFound {
		return "", false, nil
	}
	return value, err == nil, err
}
