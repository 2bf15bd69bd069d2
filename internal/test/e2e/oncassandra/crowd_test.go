package oncassandra

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/test/e2e/harness"
	"github.com/evenkeel/evenkeel/internal/test/history"
	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
)

// timeVariable names the environment variable that makes the tests under load run
// for longer than they need to.
const timeVariable = "EVENKEEL_CASSANDRA_TIME"

// atLeast is how long each part of a test under load lasts: d, or longer where
// timeVariable says so.
func atLeast(t testing.TB, d time.Duration) time.Duration {
	text := os.Getenv(timeVariable)
	if text == "" {
		return d
	}
	given, err := time.ParseDuration(text)
	require.NoError(t, err, timeVariable)
	return max(d, given)
}

// crowd is clients that put, delete, get and list in one bucket, all the time, and
// what they were told.
type crowd struct {
	t      *testing.T
	record *history.Recorder
	bucket string
	keys   []string

	stop     chan struct{}
	stopping sync.Once
	work     sync.WaitGroup
	lists    atomic.Int64 // listings that came to their end
	mu       sync.Mutex
	failures map[string]*failures // by site

}

// failures are what clients of one site were told instead of an answer.
type failures struct {
	kinds    map[store.Kind]int
	answered int64
	// slowest is the longest that a call took that was answered; gap the longest time
	// from one answer to the next of the same worker.
	slowest, gap time.Duration
	last         error
}

// callTimeout is each call's deadline. One that has not come back after ignored
// does not know of it.
const (
	callTimeout = 4 * time.Second
	ignored     = 30 * time.Second
)

// pause is the time that a client rests after each call that was answered. A crowd of twelve clients still makes some
// 300 calls a second, and leaves processors to the nodes, to the mover and to the tests beside it while moves wait for
// leases. With rests of 10 ms TestKilledNodesOfThree took 200 s of processors.
const pause = 30 * time.Millisecond

func newCrowd(t *testing.T, bucket string, keys int) *crowd {
	l := &crowd{
		t: t, record: &history.Recorder{}, bucket: bucket, stop: make(chan struct{}), failures: map[string]*failures{},
	}
	for i := range keys {
		l.keys = append(l.keys, fmt.Sprintf("key/%04d", i))
	}
	t.Cleanup(l.halt)
	return l
}

// client is a process whose timestamps are taken down.
func (l *crowd) client(s listing.Store, m *mapclient.Client) *listing.Client {
	return harness.Client(l.t, s, m, listing.Options{Timestamps: l.record.Timestamps(m.Time())})
}

// run lets a client work, from several goroutines.
func (l *crowd) run(site string, c *listing.Client, writers, listers int) {
	b := c.Bucket(l.bucket)
	for range writers {
		r := seed.New(l.t)
		l.work.Go(func() { l.worker(site, func(ctx context.Context) error { return l.write(ctx, site, b, r) }) })
	}
	for range listers {
		r := seed.New(l.t)
		l.work.Go(func() { l.worker(site, func(ctx context.Context) error { return l.list(ctx, site, b, r) }) })
	}
}

// worker does one thing after the other until the end.
func (l *crowd) worker(site string, do func(ctx context.Context) error) {
	answered := time.Now()
	for {
		select {
		case <-l.stop:
			return
		default:
		}
		if err := do(l.t.Context()); err != nil {
			time.Sleep(10 * time.Millisecond)
			continue
		}
		l.mu.Lock()
		l.of(site).gap = max(l.of(site).gap, time.Since(answered))
		l.mu.Unlock()
		answered = time.Now()
		time.Sleep(pause)
	}
}

func (l *crowd) of(site string) *failures {
	f := l.failures[site]
	if f == nil {
		f = &failures{kinds: map[store.Kind]int{}}
		l.failures[site] = f
	}
	return f
}

// count counts an answered call.
func (l *crowd) count(site string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.of(site).answered++
}

// call does one call under its deadline, and takes down how that went.
func (l *crowd) call(ctx context.Context, site string, do func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	begun := time.Now()
	err := do(ctx)
	took := time.Since(begun)
	if took > ignored {
		l.t.Errorf("a call with a deadline of %v took %v: %v", callTimeout, took, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.of(site)
	if err == nil || errors.Is(err, listing.ErrNotFound) {
		f.slowest = max(f.slowest, took)
		f.answered++
		return err
	}
	f.kinds[store.KindOf(err)]++
	f.last = err
	if k := store.KindOf(err); k != store.Unavailable && k != store.Timeout {
		l.t.Errorf("clients may be told that the store is unavailable or late, nothing else: %v", err)
	}
	return err
}

func (l *crowd) write(ctx context.Context, site string, b *listing.Bucket, r *rand.Rand) error {
	key := l.keys[r.IntN(len(l.keys))]
	switch p := r.IntN(100); {
	case p < 45:
		return l.record.Put(ctx, site, key, func(ctx context.Context, value []byte) error {
			return l.call(ctx, site, func(ctx context.Context) error { return b.Put(ctx, []byte(key), value) })
		})
	case p < 75:
		return l.record.Delete(ctx, site, key, func(ctx context.Context) error {
			return l.call(ctx, site, func(ctx context.Context) error { return b.Delete(ctx, []byte(key)) })
		})
	}
	return l.get(ctx, site, b, key)
}

func (l *crowd) get(ctx context.Context, site string, b *listing.Bucket, key string) error {
	return l.record.Get(site, key, func() ([]byte, bool, error) {
		var e listing.Entry
		err := l.call(ctx, site, func(ctx context.Context) (err error) { e, err = b.Get(ctx, []byte(key)); return err })
		if errors.Is(err, listing.ErrNotFound) {
			return nil, false, nil
		}
		return e.Value, err == nil, err
	})
}

func (l *crowd) list(ctx context.Context, site string, b *listing.Bucket, r *rand.Rand) error {
	h := history.Listing{Site: site, Reverse: r.IntN(2) == 0, KeysOnly: r.IntN(4) == 0}
	if r.IntN(3) == 0 {
		h.From = l.keys[r.IntN(len(l.keys))]
	}
	return l.pages(ctx, b, h, []int{7, 50, 1000}[r.IntN(3)])
}

func (l *crowd) pages(ctx context.Context, b *listing.Bucket, h history.Listing, limit int) error {
	q := listing.Query{From: []byte(h.From), To: []byte(h.To), Reverse: h.Reverse, KeysOnly: h.KeysOnly, Limit: limit}
	err := l.record.List(h, func() ([]history.Item, bool, error) {
		var page listing.Page
		err := l.call(ctx, h.Site, func(ctx context.Context) (err error) { page, err = b.List(ctx, q); return err })
		if err != nil {
			return nil, false, err
		}
		items := make([]history.Item, len(page.Items))
		for i, item := range page.Items {
			items[i] = history.Item{Key: string(item.Key), Value: string(item.Value)}
		}
		q.Token = page.Next
		return items, page.Next != "", nil
	}, func(error) bool { // the same page again, with the same token
		select {
		case <-l.stop:
			return false
		case <-time.After(10 * time.Millisecond):
			return ctx.Err() == nil
		}
	})
	if err == nil {
		l.lists.Add(1)
	}
	return err
}

// progress waits until clients of each site were answered so many more calls, and
// at least for d.
func (l *crowd) progress(calls int64, d time.Duration, sites ...string) {
	l.t.Helper()
	answered := func(site string) int64 {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.of(site).answered
	}
	begun := time.Now()
	for _, site := range sites {
		for from := answered(site); answered(site) < from+calls; {
			if time.Since(begun) > time.Minute {
				l.t.Fatalf("clients of %q: %d calls of %d were answered in a minute; %s", site, answered(site)-from,
					calls, l.told())
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	time.Sleep(d - time.Since(begun))
}

// told sums up the failures.
func (l *crowd) told() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	text := ""
	for site, f := range l.failures {
		text += fmt.Sprintf("%s: failures %v (last: %v), slowest answer %v, longest gap between a worker's answers %v; ",
			site, f.kinds, f.last, f.slowest.Round(time.Millisecond), f.gap.Round(time.Millisecond))
	}
	return text
}

// halt ends the work.
func (l *crowd) halt() {
	l.stopping.Do(func() { close(l.stop) })
	l.work.Wait()
}

// end ends the work and checks the history, with a last look at every key through
// each of the given clients, by their sites.
func (l *crowd) end(clients map[string]*listing.Client) {
	l.t.Helper()
	l.halt()
	for site, c := range clients {
		b := c.Bucket(l.bucket)
		require.NoError(l.t, l.pages(l.t.Context(), b, history.Listing{Site: site}, 1000))
		require.NoError(l.t, l.pages(l.t.Context(), b, history.Listing{Site: site, Reverse: true}, 10))
		for _, key := range l.keys {
			require.NoError(l.t, l.get(l.t.Context(), site, b, key))
		}
	}
	h := l.record.History()
	acknowledged, unknown := 0, 0
	for _, w := range h.Writes {
		switch w.Outcome {
		case history.Acknowledged:
			acknowledged++
		case history.Unknown:
			unknown++
		}
	}
	l.t.Logf("%d writes acknowledged, %d of unknown outcome, %d gets, %d listings; %s", acknowledged, unknown,
		len(h.Reads), l.lists.Load(), l.told())
	require.Positive(l.t, l.lists.Load())
	violations := append(h.Check(), h.Overtaken()...)
	for i, v := range violations[:min(len(violations), 10)] {
		l.t.Errorf("%d of %d: %s", i+1, len(violations), v)
	}
}
