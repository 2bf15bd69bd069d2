package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon"
	"github.com/evenkeel/evenkeel/cmd/internal/daemon/adminserver"
	"github.com/evenkeel/evenkeel/cmd/internal/daemon/logging"
	"github.com/evenkeel/evenkeel/cmd/internal/daemon/rebalanceflags"
	"github.com/evenkeel/evenkeel/cmd/internal/daemon/tracing"
	"github.com/evenkeel/evenkeel/cmd/internal/daemon/version"
	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/counter/rediscounter"
	"github.com/evenkeel/evenkeel/internal/adminapi"
	"github.com/evenkeel/evenkeel/internal/door"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/rebalance/engine"
	"github.com/evenkeel/evenkeel/internal/rebalance/executor"
	"github.com/evenkeel/evenkeel/internal/rebalance/leader"
	"github.com/evenkeel/evenkeel/internal/rebalance/move"
	"github.com/evenkeel/evenkeel/internal/test/promtest"
	"github.com/evenkeel/evenkeel/internal/test/redistest"
	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// deadly is the view that a process has of a shared store, until it loses it.
type deadly struct {
	store.Store
	dead atomic.Bool
}

func (d *deadly) err() error {
	if d.dead.Load() {
		return store.Errorf(store.Unavailable, "the process is cut off")
	}
	return nil
}

func (d *deadly) Read(ctx context.Context, t store.Table, key []byte, l store.Level) (store.Record, error) {
	if err := d.err(); err != nil {
		return store.Record{}, err
	}
	return d.Store.Read(ctx, t, key, l)
}

func (d *deadly) Swap(ctx context.Context, t store.Table, key []byte, old store.Version, rec store.Record) error {
	if err := d.err(); err != nil {
		return err
	}
	return d.Store.Swap(ctx, t, key, old, rec)
}

// keyspace is a store that several processes share.
type keyspace struct {
	t     *testing.T
	s     store.Store
	redis *redistest.Server
	seed  uint64
	// traces of the processes that run; nil: none.
	traces *tracing.Tracing
}

func newKeyspace(t *testing.T) *keyspace {
	k := &keyspace{t: t, s: memstore.New(), redis: redistest.Start(t), seed: seed.Number(t)}
	require.NoError(t, mapclient.InitClocks(t.Context(), k.s, 2))
	return k
}

const testLease = 100 * time.Millisecond

func (k *keyspace) client(s store.Store, rec listing.Recorder) *listing.Client {
	maps, err := mapclient.NewNetwork(s, mapclient.Options{Lease: testLease, Clocks: 2})
	require.NoError(k.t, err)
	k.t.Cleanup(maps.Close)
	c, err := listing.New(mapclient.With(s, maps), listing.Options{Recorder: rec})
	require.NoError(k.t, err)
	return c
}

func (k *keyspace) counts() counter.Backend {
	b, err := rediscounter.Open(rediscounter.Options{Addr: k.redis.Addr, Timeout: time.Second})
	require.NoError(k.t, err)
	k.t.Cleanup(func() { _ = b.Close() })
	return b
}

// TestRequestsAreTraced: requests to the admin address come to a receiver, by their patterns.
func TestRequestsAreTraced(t *testing.T) {
	var mu sync.Mutex
	var got strings.Builder
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		_, _ = io.Copy(&got, r.Body)
	}))
	defer receiver.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.URL)
	k := newKeyspace(t)
	var err error
	k.traces, err = tracing.Open(t.Context(), "rebalancer", slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	r := k.run("one", 1000)
	r.status(t)
	r.end(t)
	k.traces.End()
	mu.Lock()
	defer mu.Unlock()
	// Texts stand in protobuf as they are.
	require.Contains(t, got.String(), "rebalancer")
	require.Contains(t, got.String(), "GET /v1/status")
}

// TestTheClusterAsAProcessSeesIt: itself and the leader, with their versions; leases with what is left of them; and what all
// have agreed on.
func TestTheClusterAsAProcessSeesIt(t *testing.T) {
	t.Parallel()
	k := newKeyspace(t)
	_, err := mapclient.AgreeOnLease(t.Context(), k.s, testLease, false)
	require.NoError(t, err)
	_, err = mapclient.AgreeOnClockSkew(t.Context(), k.s, 250*time.Millisecond, false)
	require.NoError(t, err)
	_, err = mapclient.AgreeOnCounting(t.Context(), k.s, mapclient.InRedis, false)
	require.NoError(t, err)
	first := k.run("first", 1000)
	until(t, "the first process leads", func() bool { return first.status(t).Leading })
	second := k.run("second", 2000)
	var c adminapi.Cluster
	until(t, "the second one knows what there is", func() bool {
		resp, err := http.Get(second.url + "/v1/cluster")
		require.NoError(t, err)
		defer resp.Body.Close()
		c = adminapi.Cluster{}
		require.NoError(t, json.NewDecoder(resp.Body).Decode(&c))
		return len(c.Processes) == 2 && c.Leases.MapClocks > 0 && c.Terms.MaxRows == 2000
	})
	require.False(t, c.Leading)
	here, leader := c.Processes[0], c.Processes[1]
	require.Equal(t, adminapi.Peer{Name: "second", Here: true, Version: version.Current().Version}, here)
	require.Len(t, leader.Shards, engine.Shards)
	leader.Shards = nil
	require.Equal(t, adminapi.Peer{Name: "first", Leads: true, Admin: first.url, Version: version.Current().Version}, leader)
	require.Equal(t, testLease.Seconds(), c.Leases.LengthS)
	require.LessOrEqual(t, c.Leases.LeftS, c.Leases.LengthS)
	require.Positive(t, c.Leases.LeaderLeftS)
	require.LessOrEqual(t, c.Leases.LeaderLeftS, 3.0)
	require.Equal(t, adminapi.Terms{
		LeaseS: testLease.Seconds(), MaxClockSkewS: 0.25, Sizes: "counted in Redis", MaxRows: 2000, MinRows: c.Terms.MinRows,
		MaxBytes: c.Terms.MaxBytes,
	}, *c.Terms)
	require.Contains(t, c.OtherLimits+second.log.String(), "max_rows 1000")
	require.True(t, c.Store.OK && c.Counters.OK)
}

// Who moves, brings, repairs or removes rows does so by the servers' terms, not by its own.
func TestCommandsTakeTheKeyspacesTerms(t *testing.T) {
	t.Parallel()
	s := memstore.New()
	_, err := openShared(t.Context(), kept{s}, terms{used: true}, nil)
	require.ErrorContains(t, err, "no server was ever started on it")
	const lease, skew = 30 * time.Second, 2 * time.Second
	maps, err := mapclient.Join(t.Context(), s, mapclient.Options{Lease: lease, MaxClockSkew: skew, Clocks: 3}, false)
	require.NoError(t, err)
	maps.Close()
	for _, said := range []terms{{}, {lease: lease}, {skew: skew, used: true}, {lease: lease, skew: skew, damaged: true}} {
		db, err := openShared(t.Context(), kept{s}, said, nil)
		require.NoError(t, err)
		require.Equal(t, lease, mapclient.Of(db.Client).Leases().Length)
		require.Equal(t, skew, mapclient.Of(db.Client).MaxClockSkew())
		require.Equal(t, engine.Wait(lease), db.Wait())
		require.NoError(t, db.Close())
	}
	for _, other := range []terms{
		{lease: mapclient.DefaultLease}, {skew: time.Second}, {lease: mapclient.DefaultLease, skew: skew, damaged: true},
	} {
		_, err = openShared(t.Context(), kept{s}, other, nil)
		require.ErrorIs(t, err, store.InvalidArgument)
		require.ErrorContains(t, err, "without --lease")
	}
	db, err := openShared(t.Context(), s, terms{sizes: mapclient.InRedis}, nil)
	require.NoError(t, err)
	clocks, err := countClocks(t.Context(), s)
	require.NoError(t, err)
	require.Equal(t, 3, clocks, "it makes no clocks of its own")
	require.Equal(t, mapclient.InRedis, db.Counting)
	require.NoError(t, db.Close())
}

// kept is a store that processes open one after the other.
type kept struct{ store.Store }

func (kept) Close() error { return nil }

// holding holds up puts of rows while held is not nil, like a node that is slow to answer.
type holding struct {
	kept
	held atomic.Pointer[chan struct{}]
}

func (h *holding) Put(ctx context.Context, p store.Partition, rows ...store.Row) error {
	if held := h.held.Load(); held != nil {
		*held <- struct{}{} // it waits
		<-*held
	}
	return h.Store.Put(ctx, p, rows...)
}

// TestWhatACommandBringsIsNotLost: a row that is written late, when its range has moved away by the servers' lease, is
// not reported as stored.
func TestWhatACommandBringsIsNotLost(t *testing.T) {
	for _, agreed := range []time.Duration{300 * time.Millisecond, 3 * time.Second, 30 * time.Second} {
		t.Run(agreed.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, s := t.Context(), memstore.New()
				maps, err := mapclient.Join(ctx, s, mapclient.Options{Lease: agreed, Clocks: 1}, false)
				require.NoError(t, err)
				defer maps.Close()
				server, err := listing.New(mapclient.With(s, maps), listing.Options{})
				require.NoError(t, err)
				require.NoError(t, server.CreateBucket(ctx, "b"))
				id, err := server.BucketID(ctx, "b")
				require.NoError(t, err)

				slow := &holding{kept: kept{s}}
				db, err := openShared(ctx, slow, terms{used: true}, nil)
				require.NoError(t, err)
				defer func() { require.NoError(t, db.Close()) }()
				b := db.Bucket("b")
				m, err := door.Bucket(b).Mark(ctx)
				require.NoError(t, err)
				held := make(chan struct{})
				slow.held.Store(&held)
				outcome := make(chan error, 1)
				row := store.Row{Key: []byte("k"), Value: []byte("v"), Timestamp: 17}
				go func() { outcome <- door.Bucket(b).Bring(ctx, m, []store.Row{row}) }()
				<-held
				slow.held.Store(nil)
				root, err := maps.Load(ctx, id)
				require.NoError(t, err)
				x := executor.New(s, maps, id, executor.Options{})
				for rg, err := range maps.Ranges(ctx, root, nil) {
					require.NoError(t, err)
					x.Add(move.Refresh(&rg))
				}
				require.NoError(t, x.Run(ctx))
				close(held)
				err = <-outcome
				_, found := server.Bucket("b").Get(ctx, row.Key)
				require.ErrorIs(t, found, listing.ErrNotFound, "it came too late")
				require.ErrorIs(t, err, listing.ErrOutcomeUnknown)
			})
		})
	}
}

// running is a daemon in this process.
type running struct {
	url  string
	view *deadly
	stop context.CancelFunc
	done chan error
	log  *logged
}

type logged struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (k *keyspace) run(name string, maxRows int64) *running {
	r := &running{view: &deadly{Store: k.s}, done: make(chan error, 1), log: &logged{}}
	every := 200 * time.Millisecond
	cmd := &runCmd{Sizes: rebalanceflags.Flags{
		MaxRows: maxRows, Cool: time.Hour, RebalanceInterval: &every, Counter: "redis://" + k.redis.Addr,
	}}
	out, in := io.Pipe()
	log, lines := (&logging.Flags{LogFormat: "text"}).Logger(r.log)
	d := runner{
		store: r.view, names: k.client(r.view, nil), counts: k.counts(), wait: testLease + testLease/10,
		leader: leader.Options{Name: name, Lease: 3 * time.Second, Skew: 100 * time.Millisecond},
		log:    log, lines: lines, traces: k.traces, out: stdio{out: in, err: io.Discard, now: time.Now},
	}
	var ctx context.Context
	ctx, r.stop = context.WithCancel(context.Background())
	who, err := (&adminserver.Flags{}).Open(log)
	require.NoError(k.t, err)
	d.who = who
	address, err := who.Resolve("--admin-listen", "127.0.0.1:0", d.log)
	require.NoError(k.t, err)
	go func() { r.done <- d.run(ctx, cmd, address) }()
	line := make([]byte, 100)
	n, err := out.Read(line)
	require.NoError(k.t, err)
	r.url = strings.TrimSpace(strings.TrimPrefix(string(line[:n]), "admin on "))
	late, _ := whenLate.LoadOrStore(k.t, &[]func(){})
	says := late.(*[]func())
	*says = append(*says, func() { k.t.Logf("%s: %+v", name, r.status(k.t).Round) })
	k.t.Cleanup(func() {
		whenLate.Delete(k.t)
		r.end(k.t)
		if k.t.Failed() {
			k.t.Logf("%s:\n%s", name, r.log)
		}
	})
	return r
}

func (r *running) end(t *testing.T) {
	r.stop()
	if r.done != nil {
		require.NoError(t, <-r.done)
		r.done = nil
	}
}

func (r *running) status(t *testing.T) adminapi.Status {
	c, err := adminapi.NewClient(r.url, "")
	require.NoError(t, err)
	s, err := c.Status(t.Context())
	require.NoError(t, err)
	return s
}

// whenLate says what there is to see of a test that does not come to its end: a *[]func() for each *testing.T.
var whenLate sync.Map

// until waits for something, for minutes at most: the machine may be busy.
func until(t *testing.T, what string, yes func() bool) {
	t.Helper()
	for deadline := time.Now().Add(100 * time.Second); !yes(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			if late, ok := whenLate.Load(t); ok {
				for _, say := range *late.(*[]func()) {
					say()
				}
			}
			require.FailNow(t, "it does not come to that: "+what)
		}
	}
}

// sizes are the rows of each range of bucket b.
func (k *keyspace) sizes(c *listing.Client) (out []int) {
	id, err := c.BucketID(k.t.Context(), "b")
	require.NoError(k.t, err)
	root, err := mapclient.Of(c).Load(k.t.Context(), id)
	require.NoError(k.t, err)
	for rg, err := range mapclient.Of(c).Ranges(k.t.Context(), root, nil) {
		require.NoError(k.t, err)
		b := store.Bounds{Start: slices.Clone(rg.Start), End: slices.Clone(rg.End)}
		n := 0
		for {
			page, err := k.s.Slice(k.t.Context(), store.Partition{Bucket: id, ID: rg.WriteTo()}, b,
				store.SliceOptions{Limit: 1000})
			require.NoError(k.t, err)
			n += len(page.Rows)
			if !page.More {
				break
			}
			b.Start, b.StartExclusive = page.Rows[len(page.Rows)-1].Key, true
		}
		out = append(out, n)
	}
	return out
}

// Two daemons: one leads, the other one waits and knows the first; when the first is
// cut off, the second takes over within the lease, and when that ends, nobody has to
// wait for its lease.
func TestTwoDaemons(t *testing.T) {
	t.Parallel()
	k := newKeyspace(t)
	recorder := counter.NewRecorder(k.counts(), counter.RecorderOptions{Every: 100 * time.Millisecond})
	defer recorder.Close(context.Background())
	c := k.client(k.s, recorder)
	require.NoError(t, c.CreateBucket(t.Context(), "b"))
	put := func(from, to int) {
		for _, i := range rand.New(rand.NewPCG(k.seed, uint64(from))).Perm(to - from) {
			require.NoError(t, c.Bucket("b").
				Put(t.Context(), fmt.Appendf(nil, "%06d", (from+i)*7919%1_000_000), []byte("v")))
		}
	}
	first := k.run("first", 200)
	until(t, "the first leads", func() bool { return first.status(t).Leading })
	second := k.run("second", 200)
	put(0, 1000)
	until(t, "it is in shape", func() bool { s := k.sizes(c); return len(s) > 4 && slices.Max(s) <= 200 })
	s := second.status(t)
	require.False(t, s.Leading)
	require.Equal(t, "first", s.Leader.Name)
	require.Equal(t, first.url, s.Leader.Admin)
	require.Empty(t, s.Jobs)
	// A command to the second one goes to the first, which has nothing else to do.
	until(t, "all has ended", func() bool { return len(first.status(t).Buckets) == 0 })
	code, out, errs := ran(t, time.Millisecond, "", "refresh", "b", "--admin", second.url)
	require.Zero(t, code, "%s %s", out, errs)
	require.NotContains(t, second.log.String(), "this process leads")

	first.view.dead.Store(true)
	put(1000, 2000)
	until(t, "the second leads", func() bool { return second.status(t).Leading })
	require.False(t, first.status(t).Leading)
	until(t, "it is in shape", func() bool { s := k.sizes(c); return len(s) > 8 && slices.Max(s) <= 200 })
	for _, i := range rand.New(rand.NewPCG(k.seed, 7)).Perm(1000) { // in the range of one partition
		require.NoError(t, c.Bucket("b").Put(t.Context(), fmt.Appendf(nil, "555555-%04d", i), []byte("v")))
	}
	until(t, "it is in shape", func() bool { return slices.Max(k.sizes(c)) <= 200 })
	require.NotEmpty(t, second.status(t).Jobs)

	first.view.dead.Store(false)
	until(t, "the first knows the second",
		func() bool { l := first.status(t).Leader; return l != nil && l.Name == "second" })
	second.end(t)
	until(t, "the first leads again", func() bool { return first.status(t).Leading })
	n := 0
	for _, err := range c.Bucket("b").All(t.Context(), listing.Query{}) {
		require.NoError(t, err)
		n++
	}
	require.Equal(t, 3000, n)
}

// Processes with other limits work, and all say so: the later one in its log, each in its status.
func TestProcessesWithOtherLimits(t *testing.T) {
	t.Parallel()
	k := newKeyspace(t)
	first := k.run("first", 200)
	until(t, "the first leads", func() bool { return first.status(t).Leading })
	require.Empty(t, first.status(t).OtherLimits)
	second := k.run("second", 300)
	const differs = "started with other limits"
	until(t, "the second says it", func() bool { return strings.Contains(second.log.String(), differs) })
	require.NotContains(t, first.log.String(), differs)
	require.Contains(t, first.status(t).OtherLimits, "max_rows 200, min_rows 50, max_bytes 0 here, but max_rows 300, min_rows 75")
	require.Empty(t, second.status(t).OtherLimits)
	code, out, errs := ran(t, time.Millisecond, "", "status", "--admin", first.url)
	require.Zero(t, code, errs)
	require.Contains(t, out, "Limits differ: max_rows 200")
	second.end(t)
	again := k.run("again", 200)
	until(t, "it is as before", func() bool { return first.status(t).OtherLimits == "" })
	require.Contains(t, again.log.String(), differs)
}

// Redis is gone, restarted, wiped and full in the middle of a load: no put fails, and
// when it is back the bucket gets into shape.
func TestRedisComesAndGoes(t *testing.T) {
	t.Parallel()
	k := newKeyspace(t)
	recorder := counter.NewRecorder(k.counts(),
		counter.RecorderOptions{Every: 100 * time.Millisecond, Timeout: time.Second})
	defer recorder.Close(context.Background())
	c := k.client(k.s, recorder)
	require.NoError(t, c.CreateBucket(t.Context(), "b"))
	d := k.run("daemon", 200)
	until(t, "it leads", func() bool { return d.status(t).Leading })
	keys := rand.New(rand.NewPCG(k.seed, 1)).Perm(1_000_000)
	n := 0
	put := func(rows int) {
		for range rows {
			key := fmt.Appendf(nil, "%06d", keys[n])
			// On a busy machine the client may be paused for longer than its short lease while the range moves.
			var err error
			for range 10 {
				if err = c.Bucket("b").Put(t.Context(), key, []byte("v")); !errors.Is(err, listing.ErrOutcomeUnknown) {
					break
				}
			}
			require.NoError(t, err)
			n++
		}
	}
	inShape := func(when string) {
		until(t, "in shape after "+when, func() bool { s := k.sizes(c); return len(s) > n/250 && slices.Max(s) <= 200 })
	}
	put(600)
	inShape("the beginning")

	k.redis.Kill()
	put(400)
	until(t, "the status says that the counters are gone", func() bool { return d.status(t).Round.Error != "" })
	put(400)
	k.redis.Restart()
	put(100)
	inShape("a restart")
	until(t, "it fails no more", func() bool { return d.status(t).Round.Error == "" })

	put(200)
	k.redis.Wipe()
	put(400)
	k.redis.Restart()
	inShape("a wipe") // without another write

	k.redis.MaxMemory(1)
	put(800)
	failures := recorder.Counts().Failures
	until(t, "writes to it fail", func() bool { return recorder.Counts().Failures > failures })
	k.redis.MaxMemory(0)
	inShape("being full")
	until(t, "it fails no more", func() bool { return d.status(t).Round.Error == "" })

	// The metrics say what was done.
	for _, want := range []string{
		`(?m)^evenkeel_balance_decisions_total\{kind="split",why="(rows|forecast)"\} [1-9]`,
		`(?m)^evenkeel_balance_moved_rows_total\{kind="split"\} [1-9]`,
		`(?m)^evenkeel_recounts_total [1-9]`, `(?m)^evenkeel_recount_rows_total [1-9]`,
		`(?m)^evenkeel_moves\{state="met"\} [1-9]`,
		`(?m)^evenkeel_balance_failing 0$`, `(?m)^evenkeel_partition_rows_bucket\{le="200"\}`,
		`(?m)^evenkeel_moves_rate_rows_per_second 0$`,
	} {
		until(t, "the metrics have "+want, func() bool {
			resp, err := http.Get(d.url + "/metrics")
			require.NoError(t, err)
			defer resp.Body.Close()
			metrics, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			return regexp.MustCompile(want).Match(metrics)
		})
	}

	got := 0
	last := ""
	for e, err := range c.Bucket("b").All(t.Context(), listing.Query{}) {
		require.NoError(t, err)
		require.Less(t, last, string(e.Key))
		last = string(e.Key)
		got++
	}
	require.Equal(t, n, got)
	require.True(t, d.status(t).Leading)
}

// What a daemon answers at its admin address, and how it ends.
func TestDaemonsAdminAddress(t *testing.T) {
	t.Parallel()
	k := newKeyspace(t)
	d := k.run("daemon", 200)
	until(t, "it leads", func() bool { return d.status(t).Leading })
	get := func(path string) (int, string) {
		resp, err := http.Get(d.url + path)
		require.NoError(t, err)
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return resp.StatusCode, string(body)
	}
	for path, want := range map[string]string{"/healthz": "ok", "/readyz": "ok",
		"/metrics": "evenkeel_balance_leading 1", "/v1/status": `"leading"`, "/debug/pprof/": "goroutine"} {
		code, body := get(path)
		require.Equal(t, 200, code, path)
		require.Contains(t, body, want)
		if path == "/metrics" {
			require.Contains(t, body, "evenkeel_build_info{")
			promtest.Check(t, body)
		}
	}
	d.view.dead.Store(true)
	code, _ := get("/healthz")
	require.Equal(t, 200, code)
	until(t, "it is in the log that nobody is reached", func() bool {
		return regexp.MustCompile("does not lead").MatchString(d.log.String()) || !d.status(t).Leading
	})
	d.view.dead.Store(false)
	until(t, "it leads all again", func() bool {
		_, body := get("/metrics")
		return strings.Contains(body, "evenkeel_balance_shards 16")
	})
	d.end(t)
	require.Contains(t, d.log.String(), "msg=ending")
	_, err := http.Get(d.url + "/healthz")
	require.Error(t, err)
	h, err := leader.Current(t.Context(), k.s, leader.Moves)
	require.Error(t, err, "%v has given up its lease", h)
}

func TestDaemonsFlags(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ args, says string }{
		{"run", "--cassandra is missing"},
		{"run --cassandra x --local-dc dc1", "--counter is missing"},
		{"run --cassandra x --counter redis://y", "--local-dc"},
		{"run --cassandra x --counter nonsense://y", "--counter"},
		{"run --cassandra x --local-dc dc1 --counter redis://y --schedule sometimes", "--schedule"},
		{"run --cassandra x --local-dc dc1 --counter redis://y --schedule @daily --rebalance-interval 5s",
			"--schedule"},
		{"run --cassandra x --local-dc dc1 --counter redis://y --max-rows 1", "--max-rows"},
		{"run --cassandra x --local-dc dc1 --counter redis://y --lease 1ms", "--lease"},
		{"run --cassandra x --local-dc dc1 --counter redis://y --admin-listen 0.0.0.0:0", "--admin-token"},
		{"run --cassandra x --local-dc dc1 --counter redis://y --admin-token short", "openssl rand"},
		{"run --cassandra x --local-dc dc1 --counter redis://y --admin-url http://a:1,http://b:2", "--admin-url"},
		{"run --cassandra x --local-dc dc1 --counter redis://y --log-rate -1", "--log-rate"},
	} {
		code, out, errs := ran(t, time.Millisecond, "", strings.Fields(c.args)...)
		require.Equal(t, daemon.ExitUsage, code, "%s: %s %s", c.args, out, errs)
		require.Contains(t, errs, c.says, c.args)
	}
	code, out, _ := ran(t, time.Millisecond, "", "run", "--help")
	require.Zero(t, code)
	require.Contains(t, out, "--schedule")
}
