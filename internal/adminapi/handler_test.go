package adminapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/internal/adminapi"
	"github.com/evenkeel/evenkeel/internal/countbook"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/processes"
	"github.com/evenkeel/evenkeel/internal/rebalance/balancer"
	"github.com/evenkeel/evenkeel/internal/rebalance/engine"
	"github.com/evenkeel/evenkeel/internal/test/faultstore"
	"github.com/evenkeel/evenkeel/internal/wait"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/retention"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// readTime is the limit of answeringSlowly on the time in which it reads a request.
const readTime = 100 * time.Millisecond

// slow is a store that takes its time to read rows, while it is told so.
type slow struct {
	store.Store
	now atomic.Bool
}

func (s *slow) Slice(
	ctx context.Context, p store.Partition, b store.Bounds, o store.SliceOptions,
) (store.Page, error) {
	if s.now.Load() {
		if err := wait.Sleep(ctx, 2*readTime); err != nil {
			return store.Page{}, store.Wrap("read", err)
		}
	}
	return s.Store.Slice(ctx, p, b, o)
}

// answeringSlowly returns the address of a process that reads requests within readTime, and rows more slowly.
func answeringSlowly(t *testing.T) string {
	s := &slow{Store: memstore.New()}
	p := start(t, s, "first")
	s.now.Store(true)
	server := httptest.NewUnstartedServer(p.server.Config.Handler)
	server.Config.ReadTimeout = readTime
	server.Start()
	t.Cleanup(server.Close)
	return server.URL
}

// Each call of the store fails in turn, for each request: the answer is then an error with its cause, or the same as
// without the failure. Only what says so itself may lack a part.
func TestEachCallOfTheStoreFailsInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full := memstore.New()
		c, err := listing.New(full, listing.Options{})
		require.NoError(t, err)
		for _, name := range []string{"a", "b"} {
			require.NoError(t, c.CreateBucket(t.Context(), name, []byte("k5"), []byte("k7")))
			for i := range 20 {
				require.NoError(t, c.Bucket(name).Put(t.Context(), fmt.Appendf(nil, "k%02d", 5*i), []byte("v")))
			}
		}
		b, err := c.BucketID(t.Context(), "b")
		require.NoError(t, err)
		presplit(t, full, c, b) // so that there is a history
		mapclient.Of(c).Close()
		rules, err := retention.Parse([]byte(`rules: [{bucket: b, prefix: k, keep: 720h, time: decimal-day}]`))
		require.NoError(t, err)

		// ask makes a new process, of which only the call number nth fails, and asks it.
		ask := func(method, path, body string, nth int) (code int, answer string, calls int) {
			failing, faults := faultstore.New(full, faultstore.Options{
				Choose: func(faultstore.Op, int) (f faultstore.Fault) {
					if calls++; calls == nth {
						f = faultstore.Fault{Ending: faultstore.Refused, Kind: store.Timeout}
					}
					return f
				},
			})
			faults.Enable(false)
			c, err := listing.New(failing, listing.Options{})
			require.NoError(t, err)
			defer mapclient.Of(c).Close()
			balance := balancer.For(5, 0, time.Hour, time.Second)
			r := engine.New(engine.Options{
				Store: failing, Buckets: c, Balance: &balance, Counts: countbook.NewMemory(nil), Retention: rules,
			})
			api := adminapi.New(r)
			faults.Enable(true)
			w := httptest.NewRecorder()
			api.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body)))
			faults.Enable(false)
			return w.Code, timePattern.ReplaceAllString(w.Body.String(), "TIME"), calls
		}
		for _, x := range []struct {
			method, path, body string
			stable             bool // two answers without a failure are the same
		}{
			{"GET", "/v1/buckets", "", false},
			{"GET", "/v1/shape?bucket=b", "", true},
			{"GET", "/v1/ranges?bucket=b", "", true},
			{"GET", "/v1/usage?bucket=b", "", true},
			{"GET", "/v1/heat?bucket=b&from=10&to=20", "", true},
			{"GET", "/v1/moves?bucket=b", "", true},
			{"GET", "/v1/map?bucket=b", "", true},
			{"GET", "/v1/map?bucket=b&epoch=1", "", true},
			{"GET", "/v1/history?bucket=b", "", true},
			{"POST", "/v1/moves", `{"bucket":"b","kind":"refresh","dry_run":true}`, true},
			{"POST", "/v1/pause", `{"bucket":"b","dry_run":true}`, true},
			{"POST", "/v1/resume", `{"bucket":"b"}`, true},
			{"POST", "/v1/resume", `{}`, true},
			{"POST", "/v1/abort", `{"bucket":"b"}`, true},
			{"POST", "/v1/sizes?bucket=b", "", true},
			{"POST", "/v1/recount", `{"bucket":"b"}`, true},
			{"POST", "/v1/layout?bucket=b", "", true},
			{"POST", "/v1/retention", `{"bucket":"b"}`, true},
			{"POST", "/v1/plan", `{"bucket":"b"}`, false},
			{"POST", "/v1/apply", `{"bucket":"b","dry_run":true}`, true},
			{"POST", "/v1/verify", `{"bucket":"b","skip_orphans":true}`, true},
			{"POST", "/v1/quiet", `{"bucket":"b"}`, true},
		} {
			name := x.method + " " + x.path + " " + x.body
			code, whole, calls := ask(x.method, x.path, x.body, 0)
			require.Positive(t, calls, name)
			failed := 0
			for nth := 1; nth <= calls; nth++ {
				got, answer, _ := ask(x.method, x.path, x.body, nth)
				switch {
				case got == code && answer == whole:
				case strings.Contains(answer, "injected fault"):
					failed++
					var p adminapi.Problem
					if json.Unmarshal([]byte(answer), &p) == nil && p.Error != "" {
						require.Equal(t, http.StatusServiceUnavailable, got, name)
						require.Equal(t, store.Timeout.Error(), p.Kind, name)
					} else {
						require.Equal(t, http.StatusOK, got, name)
					}
				case x.stable:
					require.Equal(t, whole, answer, "%s: the failure of call %d of %d is not told", name, nth, calls)
				}
			}
			// A check of hours makes each call again.
			require.Equal(t, x.path != "/v1/verify", failed > 0, name)
		}
	})
}

// While a range moves, the pages show it, with its job and its new partition; other buckets have none of that, and
// plans that would move it again are refused.
func TestRangesThatMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &failing{Store: memstore.New()}
		x := newConsole(t, s, countbook.NewMemory(nil), "")
		defer x.end()
		for _, name := range []string{"a", "b", "c"} {
			require.NoError(x, x.c.CreateBucket(x.Context(), name, []byte("m")))
			for i := range 1000 {
				key := fmt.Appendf(nil, "%c%03d", "am"[i%2], i*7%1000)
				require.NoError(x, x.c.Bucket(name).Put(x.Context(), key, []byte("v")))
			}
		}
		time.Sleep(time.Minute)
		s.now.Store(true) // moves begin, and get no further
		jobs := map[string]string{}
		for _, name := range []string{"a", "b"} {
			var a adminapi.Answer
			ask := fmt.Sprintf(`{"bucket":%q,"kind":"refresh","ranges":[{"start":"m","end":""}]}`, name)
			require.Equal(x, http.StatusOK, x.ask("POST", "/v1/moves", ask, &a))
			require.Equal(x, name, a.Job.Name)
			jobs[name] = a.Job.ID
		}
		time.Sleep(5 * time.Second)
		for _, name := range []string{"a", "b", "c"} {
			var r adminapi.Ranges
			x.get("/v1/ranges?bucket="+name, &r)
			require.Len(x, r.Ranges, 2)
			require.Equal(x, "settled", r.Ranges[0].Phase)
			require.Empty(x, r.Ranges[0].To)
			require.Empty(x, r.Ranges[0].Job)
			require.Equal(x, jobs[name], r.Ranges[1].Job, name)
			require.Equal(x, name == "c", r.Ranges[1].Phase == "settled", r.Ranges[1].Phase)
			require.Equal(x, name == "c", r.Ranges[1].To == "")
			var notable adminapi.Ranges
			x.get("/v1/ranges?only=notable&bucket="+name, &notable)
			last := func(all []adminapi.Range) (partition string) {
				if len(all) > 0 {
					partition = all[len(all)-1].Partition
				}
				return partition
			}
			require.Equal(x, name != "c", last(notable.Ranges) == last(r.Ranges))
			var s adminapi.Shape
			x.get("/v1/shape?bucket="+name, &s)
			require.Equal(x, name != "c", s.Bars[1].Moving == 1)
			require.Zero(x, s.Bars[0].Moving)
			apply := fmt.Sprintf(`{"bucket":%q,"dry_run":true,"partitions":[{"id":%q,"start":"","rows":500},`+
				`{"id":%q,"start":"m","rows":500}]}`, name, r.Ranges[0].Partition, r.Ranges[1].Partition)
			code := http.StatusConflict
			if name == "c" {
				code = http.StatusOK
			}
			require.Equal(x, code, x.ask("POST", "/v1/apply", apply, &adminapi.Answer{}), name)
		}
		s.now.Store(false)
		time.Sleep(time.Minute)
		for _, name := range []string{"a", "b"} {
			var r adminapi.Ranges
			x.get("/v1/ranges?bucket="+name, &r)
			require.Equal(x, "settled", r.Ranges[1].Phase)
			require.Empty(x, r.Ranges[1].Job, "the job has ended")
		}
	})
}

// The first page has as many elements as were asked for, and says where the next one begins, unless there is none.
func TestPagesEndAtTheirLimit(t *testing.T) {
	inTime(t, func(x *console) {
		names := []string{"a", "b", "c", "d"}
		for _, name := range names {
			require.NoError(x, x.c.CreateBucket(x.Context(), name, []byte("k1"), []byte("k2"), []byte("k3")))
		}
		require.Equal(x, http.StatusOK, x.ask("POST", "/v1/pause", `{"bucket":"b"}`, &adminapi.Paused{}))
		require.Equal(x, http.StatusConflict, x.ask("POST", "/v1/moves", `{"bucket":"b","kind":"refresh"}`, nil))
		for limit := 1; limit <= 5; limit++ {
			var b adminapi.Buckets
			x.get(fmt.Sprint("/v1/buckets?limit=", limit), &b)
			require.Len(x, b.Buckets, min(limit, 4))
			require.Equal(x, limit >= 4, b.Next == "")
			if b.Next != "" {
				require.Equal(x, names[limit-1], b.Next)
			}
			for i := range b.Buckets {
				require.Equal(x, names[i] == "b", b.Buckets[i].Paused)
				require.Equal(x, 4, b.Buckets[i].Ranges)
			}
			var r adminapi.Ranges
			x.get(fmt.Sprint("/v1/ranges?bucket=a&limit=", limit), &r)
			require.Len(x, r.Ranges, min(limit, 4))
			require.Equal(x, limit >= 4, r.Next == nil)
			if r.Next != nil {
				require.Equal(x, fmt.Sprint("k", limit), string(*r.Next))
			}
		}
		var b adminapi.Buckets
		x.get("/v1/buckets?after=b&prefix=", &b)
		require.Len(x, b.Buckets, 2)
		x.get("/v1/buckets?prefix=c", &b)
		require.Len(x, b.Buckets, 1)
		for _, s := range []struct {
			start, end string
			bars       int
		}{
			{"", "", 4}, {"k1", "", 3}, {"", "k1", 1}, {"", "k1\x00", 2}, {"k1", "k2", 1}, {"k10", "k2", 1},
			{"k3", "k1", 0},
		} {
			var shape adminapi.Shape
			x.get("/v1/shape?"+url.Values{"bucket": {"a"}, "start": {s.start}, "end": {s.end}}.Encode(), &shape)
			require.Len(x, shape.Bars, s.bars, s)
			require.Equal(x, s.bars, shape.Ranges)
		}

		// Moves, the newest first.
		require.Equal(x, http.StatusOK, x.ask("POST", "/v1/resume", `{}`, &adminapi.Done{}))
		for _, name := range []string{"a", "c", "a"} {
			ask := fmt.Sprintf(`{"bucket":%q,"kind":"refresh","ranges":[{"start":"k1","end":"k2"}]}`, name)
			require.Equal(x, http.StatusOK, x.ask("POST", "/v1/moves", ask, &adminapi.Answer{}))
			time.Sleep(time.Minute)
		}
		var all adminapi.Moved
		x.get("/v1/moves", &all)
		require.GreaterOrEqual(x, len(all.Moves), 3)
		require.Zero(x, all.Next)
		for limit := 1; limit <= len(all.Moves)+1; limit++ {
			var page adminapi.Moved
			x.get(fmt.Sprint("/v1/moves?limit=", limit), &page)
			require.Equal(x, all.Moves[:min(limit, len(all.Moves))], page.Moves)
			require.Equal(x, limit >= len(all.Moves), page.Next == 0)
			if page.Next != 0 {
				x.get(fmt.Sprint("/v1/moves?before=", page.Next), &page)
				require.Equal(x, all.Moves[limit:], page.Moves)
			}
		}
		var ofA adminapi.Moved
		x.get("/v1/moves?bucket=a", &ofA)
		for i := range ofA.Moves {
			require.Equal(x, "a", ofA.Moves[i].Name)
		}
		require.GreaterOrEqual(x, len(ofA.Moves), 2)
		require.Equal(x, http.StatusNotFound, x.ask("GET", "/v1/moves?bucket=none", "", nil))
	})
}

// The list of old keys has those of the rules that the process has, or of those that are given to try.
func TestOldKeys(t *testing.T) {
	s := memstore.New()
	c, err := listing.New(s, listing.Options{})
	require.NoError(t, err)
	for _, name := range []string{"a", "b", "c"} {
		require.NoError(t, c.CreateBucket(t.Context(), name))
		require.NoError(t, c.Bucket(name).Put(t.Context(), []byte("2020-01-01/x"), []byte("v")))
		require.NoError(t, c.Bucket(name).Put(t.Context(), []byte("2999-01-01/x"), []byte("v")))
	}
	rules, err := retention.Parse([]byte(`rules: [{bucket: "[ab]", keep: 720h, time: 2006-01-02}]`))
	require.NoError(t, err)
	for _, x := range []struct {
		rules   []retention.Rule
		ask     string
		code    int
		buckets []string
	}{
		{rules, `{}`, 200, []string{"a", "b"}},
		{rules, `{"bucket":"b"}`, 200, []string{"b"}},
		{rules, `{"bucket":"c"}`, 200, nil},
		{rules, `{"bucket":"none"}`, 404, nil},
		{rules, `{"rules":"rules: [{bucket: c, keep: 720h, time: 2006-01-02}]"}`, 200, []string{"c"}},
		{nil, `{"rules":"rules: [{bucket: c, keep: 720h, time: 2006-01-02}]"}`, 200, []string{"c"}},
		{rules, `{"rules":"rules: []"}`, 400, nil},
		{nil, `{}`, 404, nil},
	} {
		balance := balancer.For(1000, 0, time.Hour, time.Second)
		api := adminapi.New(engine.New(engine.Options{
			Store: s, Buckets: c, Balance: &balance, Retention: x.rules,
		}))
		w := httptest.NewRecorder()
		api.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "POST", "/v1/retention", strings.NewReader(x.ask)))
		require.Equal(t, x.code, w.Code, x.ask)
		var old adminapi.Old
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &old))
		var buckets []string
		for i := range old.Drops {
			d := &old.Drops[i]
			buckets = append(buckets, d.Bucket)
			require.Equal(t, "2020-01-01/x", string(d.First))
			require.Equal(t, "2020-01-01/x", string(d.Last))
		}
		require.Equal(t, x.buckets, buckets, x.ask)
		if x.code == 200 {
			require.Len(t, old.Rules, 1)
		}
	}
}

// ill is a store of an embedded process: what is set fails, and its disk has a size.
type ill struct {
	memstore.Store
	unwritable, unreadable error
	disk                   bool
}

func (s *ill) Writable() error { return s.unwritable }

func (s *ill) Disk() (store.DiskUsage, bool) { return store.DiskUsage{Total: 100, Free: 7}, s.disk }

func (s *ill) Backup(context.Context, string, func(store.Size)) (store.Size, error) {
	return store.Size{Files: 2}, s.unreadable
}

func (s *ill) Read(ctx context.Context, t store.Table, key []byte, l store.Level) (store.Record, error) {
	if s.unreadable != nil {
		return store.Record{}, s.unreadable
	}
	return s.Store.Read(ctx, t, key, l)
}

// away are counters that fail if they are told so.
type away struct {
	counter.Backend
	err error
}

func (a *away) Stats(ctx context.Context, all []store.Partition) ([]counter.Stats, error) {
	if a.err != nil {
		return nil, a.err
	}
	return a.Backend.Stats(ctx, all)
}

// The page about the cluster says what is ill, with the reason, and of which kind the store and the counters are.
func TestHealth(t *testing.T) {
	full := store.Errorf(store.Unavailable, "the disk is full")
	lost := store.Errorf(store.Unavailable, "the disk is lost")
	for _, x := range []struct {
		s               store.Store
		counts          counter.Backend
		store, counters adminapi.Health
		leases          string
	}{
		{memstore.New(), nil, adminapi.Health{Kind: "cassandra", OK: true},
			adminapi.Health{Kind: "none", OK: true}, "timed"},
		{memstore.New(), &away{Backend: countbook.NewMemory(nil)}, adminapi.Health{Kind: "cassandra", OK: true},
			adminapi.Health{Kind: "redis", OK: true}, "timed"},
		{&ill{Store: memstore.New(), disk: true}, &away{Backend: countbook.NewMemory(nil), err: lost},
			adminapi.Health{Kind: "embedded", OK: true, DiskBytes: 100, DiskFreeBytes: 7},
			adminapi.Health{Kind: "directory", Error: lost.Error()}, "counted"},
		{&ill{Store: memstore.New(), unwritable: full}, nil, adminapi.Health{Kind: "embedded", Error: full.Error()},
			adminapi.Health{Kind: "none", OK: true}, "counted"},
		{&ill{Store: memstore.New(), unreadable: lost}, nil, adminapi.Health{Kind: "embedded", Error: lost.Error()},
			adminapi.Health{Kind: "none", OK: true}, "counted"},
	} {
		c, err := listing.New(x.s, listing.Options{})
		require.NoError(t, err)
		balance := balancer.For(1000, 0, time.Hour, time.Second)
		client, end := adminapi.Within(adminapi.New(engine.New(engine.Options{
			Store: x.s, Buckets: c, Balance: &balance, Counts: x.counts, Version: "v1",
		})))
		got, err := client.Cluster(t.Context())
		require.NoError(t, err)
		require.Contains(t, got.Store.Error, x.store.Error)
		for _, h := range []*adminapi.Health{&got.Store, &got.Counters} {
			require.GreaterOrEqual(t, h.LatencyMs, 0.0)
			require.Less(t, h.LatencyMs, 10_000.0)
			h.LatencyMs = 0
		}
		got.Store.Error = x.store.Error
		require.Equal(t, x.store, got.Store)
		require.Equal(t, x.counters, got.Counters)
		require.Equal(t, x.leases, got.Leases.Kind)
		require.Equal(t, "v1", got.Process.Version)
		require.True(t, got.Leading)
		require.Nil(t, got.Terms)
		require.Nil(t, got.Clocks)
		require.Len(t, got.Processes, 1)
		require.True(t, got.Processes[0].Here && got.Processes[0].Leads)
		size, err := client.Backup(t.Context(), "/d", func(store.Size) {})
		if e, embedded := x.s.(*ill); embedded {
			require.Equal(t, e.unreadable != nil, err != nil)
			require.Equal(t, err == nil, size.Files == 2)
			_, err = client.Backup(t.Context(), "d", func(store.Size) {})
		}
		if _, embedded := x.s.(*ill); embedded || err != nil {
			require.ErrorIs(t, err, store.InvalidArgument)
		}
		end()
		mapclient.Of(c).Close()
	}
}

// Processes of a shared store list each other, with what each of them leads, and read the list once in ten seconds.
func TestPeers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		require.NoError(t, mapclient.InitClocks(t.Context(), s, 1))
		_, err := mapclient.AgreeOnLease(t.Context(), s, 3*time.Second, false)
		require.NoError(t, err)
		type peer struct {
			r   *engine.Rebalancer
			api http.Handler
		}
		begin := func(name string) (p peer, end func()) {
			c, err := listing.New(s, listing.Options{})
			require.NoError(t, err)
			here, err := processes.Appear(t.Context(), s, processes.Process{Name: name, Version: "v-" + name}, nil)
			require.NoError(t, err)
			balance := balancer.For(1000, 0, 10*time.Second, time.Second)
			p.r = engine.New(engine.Options{
				Store: s, Buckets: c, Balance: &balance, Presence: here, Version: "v-" + name,
				Leader: &engine.Candidate{Name: name, Admin: "http://" + name},
			})
			p.api = adminapi.New(p.r)
			ctx, stop := context.WithCancel(context.Background())
			done := make(chan struct{})
			go func() { defer close(done); _ = p.r.Run(ctx) }()
			return p, func() { stop(); <-done; here.Close(); mapclient.Of(c).Close() }
		}
		cluster := func(p peer) (c adminapi.Cluster) {
			w := httptest.NewRecorder()
			p.api.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/v1/cluster", nil))
			require.NoError(t, json.Unmarshal(w.Body.Bytes(), &c))
			return c
		}
		a, endA := begin("a")
		time.Sleep(time.Minute)
		b, endB := begin("b")
		time.Sleep(10 * time.Minute)
		for _, x := range []struct {
			p     peer
			names []string
		}{{a, []string{"a", "b"}}, {b, []string{"b", "a"}}} {
			c := cluster(x.p)
			require.Empty(t, c.ProcessesError)
			require.Len(t, c.Processes, 2)
			leads := 0
			for i, name := range x.names {
				p := &c.Processes[i]
				require.Equal(t, name, p.Name)
				require.Equal(t, i == 0, p.Here)
				require.Equal(t, "http://"+name, p.Admin)
				require.Equal(t, "v-"+name, p.Version)
				require.True(t, p.Leads)
				require.False(t, p.Silent)
				leads += len(p.Shards)
			}
			require.Equal(t, engine.Shards, leads, "each shard has one leader")
			require.Positive(t, c.Leases.LeaderLeftS)
			require.NotNil(t, c.Leader)
		}
		endB()
		require.Len(t, cluster(a).Processes, 2, "the list is read once in ten seconds")
		time.Sleep(10*time.Second - time.Nanosecond)
		require.Len(t, cluster(a).Processes, 2)
		time.Sleep(time.Minute)
		c := cluster(a)
		require.Len(t, c.Processes, 1)
		require.Len(t, c.Processes[0].Shards, engine.Shards)
		endA()
	})
}

// A stream of events begins behind the last event that the client has seen, or with the next one. It ends when the
// stream is old or the client goes, and gives signs of life before.
func TestStreamsOfEvents(t *testing.T) {
	inTime(t, func(x *console) {
		require.NoError(x, x.c.CreateBucket(x.Context(), "b"))
		stream := func(last string, end time.Duration) (text string, took time.Duration) {
			ctx, stop := context.WithTimeout(x.Context(), end)
			defer stop()
			r := httptest.NewRequestWithContext(ctx, "GET", "/v1/events", nil)
			if last != "" {
				r.Header.Set("Last-Event-ID", last)
			}
			w, began := httptest.NewRecorder(), time.Now()
			x.api.ServeHTTP(w, r)
			return w.Body.String(), time.Since(began)
		}
		event := regexp.MustCompile(`(?m)^event: (move|column)\nid: (\d+)\ndata: .*\n\n`)
		ids := func(text string) (all []string) {
			for _, m := range event.FindAllStringSubmatch(text, -1) {
				all = append(all, m[2])
			}
			return all
		}
		x.load("b", 20, 60)
		// What moves ends, nothing else begins, and the next sample is seconds away.
		require.Equal(x, http.StatusOK, x.ask("POST", "/v1/pause", `{"why":"test"}`, &adminapi.Paused{}))
		time.Sleep(time.Minute)
		time.Sleep(time.Until(time.Now().Truncate(10 * time.Second).Add(15 * time.Second)))
		whole, _ := stream("0", time.Millisecond)
		all := ids(whole)
		require.Greater(x, len(all), 4)
		require.Contains(x, whole, `"buckets":["b"]`)
		fresh, _ := stream("", time.Millisecond)
		require.Empty(x, ids(fresh))
		require.Regexp(x, `^event: status\ndata: \{.*\}\n\n: ok\n\nevent: end\ndata: \{\}\n\n$`, fresh)
		for _, last := range []string{"-1", "nonsense"} {
			text, _ := stream(last, time.Millisecond)
			require.Empty(x, ids(text), last)
		}
		after, _ := stream(all[2], time.Millisecond)
		require.Equal(x, all[3:], ids(after))
		// Nothing happens any more.
		time.Sleep(10 * time.Minute)
		text, took := stream("", time.Hour)
		require.Equal(x, 15*time.Minute, took)
		require.InDelta(x, 15*60/15, strings.Count(text, ": ok\n\n"), 10)
		require.True(x, strings.HasSuffix(text, "event: end\ndata: {}\n\n"))
		_, took = stream("", time.Minute)
		require.Equal(x, time.Minute, took)
	})
}

// A server that shuts down does not wait for streams of events, however many servers have the handler and however often
// each is told to shut down.
func TestStreamsEndWithTheirServer(t *testing.T) {
	s := memstore.New()
	c, err := listing.New(s, listing.Options{})
	require.NoError(t, err)
	balance := balancer.For(1000, 0, time.Hour, time.Second)
	api := adminapi.New(engine.New(engine.Options{Store: s, Buckets: c, Balance: &balance}))
	servers := []*httptest.Server{httptest.NewServer(api), httptest.NewServer(api), httptest.NewServer(api)}
	var streams []*http.Response
	for _, server := range servers {
		t.Cleanup(server.Close)
		resp, err := http.Get(server.URL + "/v1/events")
		require.NoError(t, err)
		defer resp.Body.Close()
		require.Equal(t, http.StatusOK, resp.StatusCode)
		require.Equal(t, "no-store", resp.Header.Get("Cache-Control"))
		streams = append(streams, resp)
	}
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	for i, server := range servers {
		require.NoError(t, server.Config.Shutdown(ctx))
		require.NoError(t, server.Config.Shutdown(ctx))
		text, err := io.ReadAll(streams[i].Body)
		require.NoError(t, err)
		require.True(t, strings.HasSuffix(string(text), "event: end\ndata: {}\n\n"))
	}
}

// Pages have a usual and a largest size, whatever is asked for.
func TestLargestPages(t *testing.T) {
	inTime(t, func(x *console) {
		var cuts [][]byte
		for i := range 1001 {
			cuts = append(cuts, fmt.Appendf(nil, "%05d", i))
		}
		require.NoError(x, x.c.CreateBucket(x.Context(), "b", cuts...))
		for i := range 200 {
			require.NoError(x, x.c.CreateBucket(x.Context(), fmt.Sprintf("c%03d", i)))
		}
		refresh := `{"bucket":"b","kind":"refresh"}`
		require.Equal(x, http.StatusOK, x.ask("POST", "/v1/moves", refresh, &adminapi.Answer{}))
		time.Sleep(time.Minute)
		sizes := func(query string) []int {
			var b adminapi.Buckets
			var r adminapi.Ranges
			var s adminapi.Shape
			var m adminapi.Moved
			x.get("/v1/buckets?limit="+query, &b)
			x.get("/v1/ranges?bucket=b&limit="+query, &r)
			x.get("/v1/shape?bucket=b&bars="+query, &s)
			x.get("/v1/moves?bucket=b&limit="+query, &m)
			require.Equal(x, 1002, s.Ranges)
			require.NotEmpty(x, b.Next)
			require.NotNil(x, r.Next)
			require.NotZero(x, m.Next)
			return []int{len(b.Buckets), len(r.Ranges), len(s.Bars), len(m.Moves)}
		}
		require.Equal(x, []int{50, 100, 126, 100}, sizes("0"))          // bars of eight ranges
		require.Equal(x, []int{200, 1000, 501, 1000}, sizes("1000000")) // of two
	})
}

// Of more than a thousand drops the rest is counted.
func TestManyOldKeys(t *testing.T) {
	s := memstore.New()
	c, err := listing.New(s, listing.Options{})
	require.NoError(t, err)
	for i := range 1003 {
		name := fmt.Sprintf("b%04d", i)
		require.NoError(t, c.CreateBucket(t.Context(), name))
		require.NoError(t, c.Bucket(name).Put(t.Context(), []byte("2020-01-01/x"), []byte("v")))
	}
	rules, err := retention.Parse([]byte(`rules: [{bucket: "b*", keep: 720h, time: 2006-01-02}]`))
	require.NoError(t, err)
	balance := balancer.For(1000, 0, time.Hour, time.Second)
	client, end := adminapi.Within(adminapi.New(engine.New(engine.Options{
		Store: s, Buckets: c, Balance: &balance, Retention: rules,
	})))
	defer end()
	old, err := client.Old(t.Context(), adminapi.OldAsk{})
	require.NoError(t, err)
	require.Len(t, old.Drops, 1000)
	require.Equal(t, 3, old.Omitted)
}
