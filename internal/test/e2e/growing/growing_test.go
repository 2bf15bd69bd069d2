package growing

import (
	"crypto/md5"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/internal/rebalance/scheduler"
	"github.com/evenkeel/evenkeel/internal/test/realkeys"
	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/listing"
)

// tenants are ways in which keys come: the i-th key of n.
var tenants = []struct {
	name string
	key  func(r *rand.Rand, i, n int) string
}{
	{"random", func(r *rand.Rand, _, _ int) string { return fmt.Sprintf("%016x", r.Uint64()) }},
	{"md5", func(_ *rand.Rand, i, _ int) string { h := md5.Sum(fmt.Append(nil, i)); return hex.EncodeToString(h[:]) }},
	{"sequence", func(_ *rand.Rand, i, _ int) string { return fmt.Sprintf("%012d", i) }},
	{"reversed", func(_ *rand.Rand, i, _ int) string { return fmt.Sprintf("%012d", 1_000_000_000-i) }},
	{"dates", func(r *rand.Rand, i, n int) string {
		at := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(i) * 30 * 24 * time.Hour / time.Duration(n))
		return at.Format("2006/01/02/15/") + fmt.Sprintf("%08x", r.Uint32())
	}},
	{"hotspot", func(r *rand.Rand, i, _ int) string {
		if r.IntN(5) > 0 {
			return fmt.Sprintf("7777%08x", r.Uint32())
		}
		return fmt.Sprintf("%04x%08x", r.IntN(1<<16), r.Uint32())
	}},
}

// mixed are keys of all tenants, interleaved, some of them as object stores see them.
func mixed(r *rand.Rand, n int) [][]byte {
	each := n / (len(tenants) + 1)
	next := realkeys.Names(r.Uint64())
	var keys [][]byte
	for i := range each {
		for _, t := range tenants {
			keys = append(keys, []byte(t.name+"/"+t.key(r, i, each)))
		}
		keys = append(keys, []byte("names/"+next()))
	}
	return keys
}

func random(r *rand.Rand, n int) (keys [][]byte) {
	for range n {
		keys = append(keys, fmt.Appendf(nil, "%016x", r.Uint64()))
	}
	return keys
}

// A bucket starts as one partition and is loaded, while nobody looks after it.
func TestLoad(t *testing.T) {
	for _, c := range []struct {
		name  string
		world func(testing.TB, settings) *world
		rows  int // by default
		keys  func(*rand.Rand, int) [][]byte
	}{
		{"embedded/mixed", embedded, 60_000, mixed}, {"embedded/random", embedded, 60_000, random},
		{"cassandra/mixed", onCassandra, 15_000, mixed}, {"cassandra/random", onCassandra, 15_000, random},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			n := setting(t, "ROWS", c.rows)
			o := settings{
				maxRows: int64(setting(t, "MAX_ROWS", n/30)),
				every:   time.Duration(setting(t, "EVERY_MS", 1000)) * time.Millisecond,
				lease:   time.Duration(setting(t, "LEASE_MS", 1000)) * time.Millisecond,
				rate:    setting(t, "MOVE_RATE", 20_000),
			}
			order := c.keys(seed.New(t), n)
			load(t, c.world(t, o), o, order, setting(t, "WORKERS", 32), setting(t, "REST_S", 180))
		})
	}
}

func load(t *testing.T, w *world, o settings, order [][]byte, workers, rest int) {
	x := newWatch(w, newOracle(slices.Clone(order)), o.maxRows*12/10)
	done := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() { x.run(done) })
	watching.Go(func() { x.listings(done) })
	began := time.Now()
	value := []byte("a value of forty bytes, as a pointer has")
	g, ctx := errgroup.WithContext(t.Context())
	next := make(chan []byte, workers)
	g.Go(func() error {
		defer close(next)
		for _, k := range order {
			select {
			case next <- k:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
	for range workers {
		g.Go(func() error {
			for k := range next {
				if err := w.bucket.Put(ctx, k, value); err != nil {
					return err
				}
				x.o.put(k)
			}
			return nil
		})
	}
	err := g.Wait()
	took := time.Since(began)
	if err == nil { // the time that the promise leaves to come to rest; often less is needed
		for end := time.Now().Add(time.Duration(rest) * time.Second); time.Now().Before(end); time.Sleep(time.Second) {
			if slices.Max(x.sizes()) <= o.maxRows && !w.busy() {
				break
			}
		}
	}
	calm := time.Since(began) - took
	close(done)
	watching.Wait()
	require.NoError(t, err)
	require.NoError(t, x.failed)
	moved, st := w.moved(), w.sizes.Status()
	sizes := x.sizes()
	rows := int64(len(x.o.keys))
	t.Logf("%d rows in %v (%.0f/s), at rest after %v: %d partitions of %d to %d rows; moved %.3f per row (%v); over 1.2 x for %v at most; recounts read %.2f per row; %d looks",
		rows, took.Round(time.Second), float64(rows)/took.Seconds(), calm.Round(time.Second), len(sizes),
		slices.Min(sizes), slices.Max(sizes),
		float64(moved)/float64(rows), st.Moved, x.longest.Round(time.Second), float64(st.Read)/float64(rows), x.looks)
	t.Logf("decided %v", st.Decided)
	require.LessOrEqual(t, slices.Max(sizes), o.maxRows, "%v", sizes)
	x.complete()
	if limit := setting(t, "OVER_S", 0); limit > 0 {
		require.LessOrEqual(t, x.longest, time.Duration(limit)*time.Second)
	}
}

// busy says whether anything moves.
func (w *world) busy() bool {
	moves, _ := w.m.InFlight()
	return moves > 0 || w.sizes.Status().Waiting > 0
}

// moved are the rows that were copied, once all moves have ended.
func (w *world) moved() (n int64) {
	time.Sleep(2 * time.Second) // until the balancer has noticed that they have
	for _, of := range w.sizes.Status().Moved {
		n += of
	}
	return n
}

// Appends at a rate to an empty bucket: nobody cuts ahead but the bucket's own keeper.
func TestAppends(t *testing.T) {
	for _, on := range []struct {
		name    string
		world   func(testing.TB, settings) *world
		rate    int // per minute, by default
		maxRows int
	}{{"embedded", embedded, 200_000, 5000}, {"cassandra", onCassandra, 60_000, 4000}} {
		t.Run(on.name, func(t *testing.T) {
			t.Parallel()
			o := settings{
				maxRows: int64(setting(t, "MAX_ROWS", on.maxRows)),
				every:   time.Duration(setting(t, "EVERY_MS", 1000)) * time.Millisecond,
				lease:   time.Duration(setting(t, "LEASE_MS", 1000)) * time.Millisecond,
				rate:    setting(t, "MOVE_RATE", 20_000),
			}
			perMinute, seconds := setting(t, "RATE", on.rate), setting(t, "SECONDS", 20)
			appends(t, on.world(t, o), o, perMinute, seconds, setting(t, "BATCH", 50), setting(t, "WORKERS", 8),
				false)
		})
	}
}

// Appends that somebody told of before: no row moves at all.
func TestAppendsAfterPresplit(t *testing.T) {
	t.Parallel()
	o := settings{
		maxRows: int64(setting(t, "MAX_ROWS", 2000)),
		every:   time.Duration(setting(t, "EVERY_MS", 1000)) * time.Millisecond, rate: setting(t, "MOVE_RATE", 20_000),
	}
	appends(t, embedded(t, o), o, setting(t, "RATE", 100_000), setting(t, "SECONDS", 10), setting(t, "BATCH", 50),
		setting(t, "WORKERS", 8), true)
}

// presplit prepares for appends at a rate, as an operator does: told the rate, and
// keys like those to come.
func (w *world) presplit(o settings, perMinute, seconds int, like [][]byte) {
	p, err := w.m.Plan(w.Context(), w.id, scheduler.Ask{
		Kind: scheduler.Presplit, PinUntil: time.Now().Add(time.Hour),
		Append: &scheduler.Append{
			RowsPerSecond: float64(perMinute) / 60, ForS: float64(seconds), MaxRows: o.maxRows, Like: like,
		},
	})
	require.NoError(w, err)
	w.m.Submit(w.id, "presplit", p)
	for w.busy() || w.m.Held(w.id) {
		time.Sleep(10 * time.Millisecond)
	}
	time.Sleep(w.cycle)
}

func appends(t *testing.T, w *world, o settings, perMinute, seconds, batch, workers int, told bool) {
	n := perMinute / 60 * seconds / batch * batch
	keys := make([][]byte, n)
	for i := range keys {
		keys[i] = fmt.Appendf(nil, "log/%012d", i+1000)
	}
	if told {
		var like [][]byte
		for i := range 1000 {
			like = append(like, fmt.Appendf(nil, "log/%012d", i))
		}
		w.presplit(o, perMinute, seconds, like)
	}
	x := newWatch(w, newOracle(slices.Clone(keys)), o.maxRows*3/2)
	done := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() { x.run(done) })
	watching.Go(func() { x.listings(done) })
	began := time.Now()
	g, ctx := errgroup.WithContext(t.Context())
	g.SetLimit(workers)
	late := time.Duration(0)
	for at := 0; at < n && ctx.Err() == nil; at += batch {
		due := began.Add(time.Duration(float64(at) / float64(perMinute) * float64(time.Minute)))
		time.Sleep(time.Until(due))
		late = max(late, time.Since(due))
		g.Go(func() error {
			entries := make([]listing.Entry, batch)
			for i := range entries {
				entries[i] = listing.Entry{Key: keys[at+i], Value: []byte("a value of forty bytes, as a pointer has")}
			}
			if err := w.bucket.PutBatch(ctx, entries); err != nil {
				return err
			}
			for i := range entries {
				x.o.put(entries[i].Key)
			}
			return nil
		})
	}
	err := g.Wait()
	took := time.Since(began)
	close(done)
	watching.Wait()
	require.NoError(t, err)
	require.NoError(t, x.failed)
	rest := assert.Eventually(t, func() bool { return slices.Max(x.sizes()) <= o.maxRows && !w.busy() },
		2*time.Minute, time.Second, "at rest")
	sizes, moved := x.sizes(), w.moved()
	t.Logf("%d rows in %v (%.0f per minute, at most %v late): %d partitions; largest %d, over 1.5 x for %v at most (a cycle takes %v); "+
		"moved %d (%.2f %%: %v); %d looks",
		n, took.Round(time.Second), float64(n)/took.Minutes(), late.Round(time.Millisecond), len(sizes), x.largest,
		x.longest.Round(time.Second), w.cycle, moved, 100*float64(moved)/float64(n), w.sizes.Status().Moved, x.looks)
	t.Logf("decided %v; %v", w.sizes.Status().Decided, sizes)
	require.True(t, rest)
	// How large a partition gets meanwhile is a matter of how fast the machine is beside
	// other tests; package policysim tests it in virtual time.
	if setting(t, "STRICT", 0) > 0 {
		require.LessOrEqual(t, x.longest, w.cycle, "over 1.5 x max_rows")
		require.LessOrEqual(t, moved, int64(n/20), "at most 5 %% may move")
	}
	if told {
		require.Zero(t, moved)
	}
	x.complete()
}
