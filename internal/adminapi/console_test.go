package adminapi_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/internal/adminapi"
	"github.com/evenkeel/evenkeel/internal/countbook"
	"github.com/evenkeel/evenkeel/internal/keytext"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/rebalance/balancer"
	"github.com/evenkeel/evenkeel/internal/rebalance/engine"
	"github.com/evenkeel/evenkeel/internal/rebalance/heat"
	"github.com/evenkeel/evenkeel/internal/rebalance/scheduler"
	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/rebalance"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// console is a process that keeps buckets in shape and counts what they take, in virtual time.
type console struct {
	*testing.T
	c   *listing.Client
	r   *engine.Rebalancer
	api http.Handler
	log *lines
	end func()
}

// lines is a log.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), text)
}

// newConsole makes a process over a store, whose ranges have at most 1000 rows.
func newConsole(t *testing.T, s store.Store, counts counter.Backend, file string) *console {
	recorder := counter.NewRecorder(counts, counter.RecorderOptions{})
	c, err := listing.New(s, listing.Options{Recorder: recorder})
	require.NoError(t, err)
	balance := balancer.For(1000, 0, 10*time.Second, time.Second)
	x := &console{T: t, c: c, log: &lines{}}
	x.r = engine.New(engine.Options{
		Store: s, Buckets: c, Counts: counts, Balance: &balance, HistoryFile: file,
		Log: slog.New(slog.NewTextHandler(x.log, nil)),
	})
	x.api = adminapi.New(x.r)
	ctx, stop := context.WithCancel(context.Background())
	over := make(chan struct{})
	go func() { defer close(over); _ = x.r.Run(ctx) }()
	x.end = func() {
		stop()
		<-over
		_ = recorder.Close(context.Background())
		mapclient.Of(c).Close()
	}
	return x
}

// inTime runs f with a console in virtual time.
func inTime(t *testing.T, f func(x *console)) {
	synctest.Test(t, func(t *testing.T) {
		x := newConsole(t, memstore.New(), countbook.NewMemory(nil), "")
		defer x.end()
		f(x)
	})
}

func (x *console) ask(method, path, body string, out any) (code int) {
	x.Helper()
	w := httptest.NewRecorder()
	x.api.ServeHTTP(w, httptest.NewRequestWithContext(x.Context(), method, path, strings.NewReader(body)))
	if w.Code == http.StatusOK {
		require.NoError(x, json.Unmarshal(w.Body.Bytes(), out), w.Body)
	} else {
		require.NoError(x, json.Unmarshal(w.Body.Bytes(), &adminapi.Problem{}), w.Body)
	}
	return w.Code
}

func (x *console) get(path string, out any) {
	x.Helper()
	require.Equal(x, http.StatusOK, x.ask("GET", path, "", out), path)
}

// load puts random keys below hot/ and ascending ones below tail/, so many of each per second, and reads as many
// of the former.
func (x *console) load(bucket string, perS, seconds int) {
	r, b := seed.New(x), x.c.Bucket(bucket)
	for i := range seconds {
		for k := range perS {
			require.NoError(x, b.Put(x.Context(), fmt.Appendf(nil, "hot/%06d", r.IntN(1e6)), []byte("value")))
			require.NoError(x, b.Put(x.Context(), fmt.Appendf(nil, "tail/%08d", i*perS+k), []byte("value")))
			_, _ = b.Get(x.Context(), fmt.Appendf(nil, "hot/%06d", r.IntN(1e6)))
		}
		time.Sleep(time.Second)
	}
}

// TestThePictureShowsWhatTheCountersCount: requests per second and rows, by prefix and by time, with the moves where and
// when they happened.
func TestThePictureShowsWhatTheCountersCount(t *testing.T) {
	inTime(t, func(x *console) {
		// No range has keys of both: a picture does not know where within a range its requests go.
		require.NoError(x, x.c.CreateBucket(x.Context(), "b", []byte("tail/")))
		require.NoError(x, x.c.CreateBucket(x.Context(), "idle"))
		began := time.Now()
		x.load("b", 20, 300)
		// The last two minutes of the load.
		window := fmt.Sprintf("bucket=b&from=%d&to=%d&width=1", began.Unix()+180, began.Unix()+300)
		for _, c := range []struct {
			prefix, metric string
			want, off      float64
		}{
			{"hot/", "writes", 20, 1}, {"hot/", "reads", 20, 1}, {"tail/", "writes", 20, 1}, {"tail/", "reads", 0, 0.1},
			{"", "writes", 40, 2}, {"", "reads", 20, 1},
			{"hot/", "rows", 6000, 300}, {"tail/", "rows", 6000, 300},
		} {
			var p adminapi.Heat
			x.get("/v1/heat?"+window+"&metric="+c.metric+"&prefix="+c.prefix, &p)
			require.Len(x, p.Times, 2)
			require.Len(x, p.Metrics, 1)
			require.Len(x, p.Keys, len(p.Spans)+1)
			sum := 0.0
			for _, v := range p.Metrics[c.metric].Cells {
				sum += v
			}
			require.InDelta(x, c.want, sum, c.off, "%s of %q", c.metric, c.prefix)
		}
		var all adminapi.Heat
		x.get("/v1/heat?bucket=b", &all)
		kinds := map[string]int{}
		for i := range all.Events {
			e := &all.Events[i]
			kinds[e.Kind]++
			require.Equal(x, "b", e.Name)
			require.NotEmpty(x, e.Why)
			require.NotEmpty(x, e.Cause)
			require.Equal(x, "automatic", e.By)
			if e.State == heat.Met {
				require.False(x, e.Ended.Before(e.Began))
			}
		}
		require.NotZero(x, kinds["split"], kinds)
		require.NotZero(x, kinds["roll"], kinds)

		// The log has one line for each decision.
		time.Sleep(2 * time.Minute)
		require.Equal(x, http.StatusOK, x.ask("POST", "/v1/pause", `{"why":"test"}`, &adminapi.Paused{}))
		time.Sleep(time.Minute)
		var moved adminapi.Moved
		x.get("/v1/moves?limit=1000", &moved)
		clear(kinds)
		for i := range moved.Moves {
			kinds[moved.Moves[i].Kind]++
		}
		for _, j := range x.r.Status().Jobs {
			for i := range j.Goals {
				if j.Goals[i].Stage == scheduler.Waiting { // for the end of the pause
					kinds[j.Goals[i].Kind]++
				}
			}
		}
		for kind, n := range kinds {
			require.Equal(x, n, x.log.count(" kind="+kind+" "), kind)
		}

		// Nothing was known of it; asking has it looked at.
		idle := fmt.Sprintf("/v1/heat?bucket=idle&metric=rows&width=1&from=%d&to=%d", time.Now().Unix(), time.Now().Unix()+30)
		var p adminapi.Heat
		x.get(idle, &p)
		require.Equal(x, []float64{heat.Unknown}, p.Metrics["rows"].Cells)
		time.Sleep(15 * time.Second)
		x.get(idle, &p)
		require.Equal(x, []float64{0}, p.Metrics["rows"].Cells)
	})
}

// TestThePictureFollowsRecounts: a recount corrects a range that takes no requests.
func TestThePictureFollowsRecounts(t *testing.T) {
	inTime(t, func(x *console) {
		require.NoError(x, x.c.CreateBucket(x.Context(), "b"))
		put := func(c *listing.Client, prefix string, n int) {
			for i := range n {
				require.NoError(x, c.Bucket("b").Put(x.Context(), fmt.Appendf(nil, "%s%04d", prefix, i), []byte("value")))
			}
		}
		rows := func() float64 {
			now := time.Now().Unix()
			var p adminapi.Heat
			x.get(fmt.Sprintf("/v1/heat?bucket=b&metric=rows&width=1&height=1&from=%d&to=%d", now-30, now), &p)
			return p.Metrics["rows"].Cells[0]
		}
		put(x.c, "counted", 250)
		time.Sleep(time.Minute)
		require.Equal(x, 250.0, rows())
		// What a client without a recorder writes is found by a recount.
		other, err := listing.New(x.r.Options().Store, listing.Options{})
		require.NoError(x, err)
		defer mapclient.Of(other).Close()
		put(other, "uncounted", 250)
		time.Sleep(time.Minute)
		require.Equal(x, 250.0, rows())
		_, err = x.r.Balancer().Recount(x.Context(), bucketID(x, "b"), keytext.Span{},
			func(balancer.Recounted) error { return nil })
		require.NoError(x, err)
		time.Sleep(20 * time.Second) // two samples
		require.Equal(x, 500.0, rows())
	})
}

func bucketID(x *console, name string) store.BucketID {
	x.Helper()
	id, err := x.c.BucketID(x.Context(), name)
	require.NoError(x, err)
	return id
}

// TestBucketsRangesAndUsage: the pages about a bucket agree with each other and with what was put.
func TestBucketsRangesAndUsage(t *testing.T) {
	inTime(t, func(x *console) {
		for i := range 5 {
			require.NoError(x, x.c.CreateBucket(x.Context(), fmt.Sprintf("bucket-%d", i)))
		}
		x.load("bucket-2", 20, 200)
		// What moves ends, nothing else begins, and what is not known is counted.
		time.Sleep(time.Minute)
		require.Equal(x, http.StatusOK, x.ask("POST", "/v1/pause", `{"why":"test"}`, &adminapi.Paused{}))
		time.Sleep(3 * time.Minute)
		var names []string
		var loaded adminapi.Figures
		for after := ""; ; {
			var page adminapi.Buckets
			x.get("/v1/buckets?limit=2&after="+after, &page)
			require.Equal(x, int64(1000), page.Limits.MaxRows)
			require.True(x, page.Keeper.Leading)
			for _, b := range page.Buckets {
				names = append(names, b.Bucket)
				require.Empty(x, b.Error)
				if b.Bucket == "bucket-2" {
					loaded = b
				} else {
					require.Zero(x, b.Rows)
					require.Equal(x, 1, b.Ranges)
				}
			}
			if after = page.Next; after == "" {
				break
			}
		}
		require.Equal(x, []string{"bucket-0", "bucket-1", "bucket-2", "bucket-3", "bucket-4"}, names)
		require.InDelta(x, 8000, loaded.Rows, 400)
		require.Greater(x, loaded.Ranges, 8)
		require.LessOrEqual(x, loaded.Largest, int64(1000))

		for _, bars := range []int{1, 2, 3, 5, 1000} {
			var shape adminapi.Shape
			x.get(fmt.Sprintf("/v1/shape?bucket=bucket-2&bars=%d", bars), &shape)
			require.Equal(x, loaded.Ranges, shape.Ranges)
			require.LessOrEqual(x, len(shape.Bars), bars)
			rows, ranges, start := int64(0), 0, ""
			for i := range shape.Bars {
				b := &shape.Bars[i]
				require.Equal(x, start, string(b.Start))
				rows, ranges, start = rows+b.Rows, ranges+b.Ranges, string(b.End)
			}
			require.Empty(x, start)
			require.Equal(x, loaded.Rows, rows)
			require.Equal(x, loaded.Ranges, ranges)
		}

		var seen []adminapi.Range
		for from := ""; ; {
			var page adminapi.Ranges
			x.get("/v1/ranges?bucket=bucket-2&limit=3&from="+from, &page)
			seen = append(seen, page.Ranges...)
			if page.Next == nil {
				break
			}
			from = string(*page.Next)
		}
		require.Len(x, seen, loaded.Ranges)
		rows := int64(0)
		for i := range seen {
			rows += seen[i].Rows
			require.Equal(x, "settled", seen[i].Phase)
			require.NotEmpty(x, seen[i].Why)
			if i > 0 {
				require.Equal(x, seen[i-1].End, seen[i].Start)
			}
		}
		require.Equal(x, loaded.Rows, rows)
		var one adminapi.Ranges
		x.get("/v1/ranges?bucket=bucket-2&limit=1&from=hot/5&only=", &one)
		require.LessOrEqual(x, string(one.Ranges[0].Start), "hot/5")
		require.Greater(x, string(one.Ranges[0].End), "hot/5")

		var u adminapi.Usage
		x.get("/v1/usage?bucket=bucket-2", &u)
		require.InDelta(x, float64(loaded.Rows), u.Rows, 1)
		require.Len(x, u.Prefixes, 2)
		for i, want := range []string{"hot/", "tail/"} {
			require.Equal(x, want, string(u.Prefixes[i].Prefix))
			require.InDelta(x, 4000, u.Prefixes[i].Rows, 400)
			require.True(x, u.Prefixes[i].More)
		}
		x.get("/v1/usage?bucket=bucket-2&prefix=hot/&delimiter=0", &u)
		require.InDelta(x, 4000, u.Rows, 400)

		var c adminapi.Cluster
		x.get("/v1/cluster", &c)
		require.True(x, c.Store.OK && c.Counters.OK && c.Leading)
		require.Positive(x, c.History.Columns)
		require.LessOrEqual(x, c.History.Bytes, c.History.Limit)
	})
}

// TestAPlanIsMadeAndApplied as the console does it, and its moves are in the history.
func TestAPlanIsMadeAndApplied(t *testing.T) {
	inTime(t, func(x *console) {
		require.NoError(x, x.c.CreateBucket(x.Context(), "b", []byte("c"), []byte("d"), []byte("e")))
		for i := range 300 { // not in their order: no plan joins what lies ahead of appends
			require.NoError(x, x.c.Bucket("b").Put(x.Context(), fmt.Appendf(nil, "a%04d", i*7%300), []byte("v")))
		}
		time.Sleep(5 * time.Second)
		require.Equal(x, http.StatusOK, x.ask("POST", "/v1/pause", `{"why":"test"}`, &adminapi.Paused{}))
		require.Equal(x, http.StatusOK, x.ask("POST", "/v1/resume", `{}`, &adminapi.Done{}))
		var p struct {
			Before    []rebalance.Range
			Was, Will adminapi.State
			Plan      adminapi.Apply
		}
		require.Equal(x, http.StatusOK, x.ask("POST", "/v1/plan", `{"bucket":"b"}`, &p))
		require.Len(x, p.Before, 4)
		require.Equal(x, 4, p.Was.Partitions)
		require.Less(x, p.Will.Partitions, 4)
		require.Equal(x, p.Will.Partitions, len(p.Plan.Partitions))
		ask := adminapi.Apply{Bucket: "b", Partitions: p.Plan.Partitions, Moves: p.Plan.Moves, DryRun: true}
		body, err := json.Marshal(ask)
		require.NoError(x, err)
		var a adminapi.Answer
		require.Equal(x, http.StatusOK, x.ask("POST", "/v1/apply", string(body), &a))
		require.Nil(x, a.Job)
		ask.DryRun = false
		body, err = json.Marshal(ask)
		require.NoError(x, err)
		require.Equal(x, http.StatusOK, x.ask("POST", "/v1/apply", string(body), &a))
		time.Sleep(time.Minute)
		var moved adminapi.Moved
		x.get("/v1/moves?bucket=b", &moved)
		require.NotEmpty(x, moved.Moves)
		last := moved.Moves[len(moved.Moves)-1]
		require.Equal(x, "apply", last.Kind)
		require.Equal(x, "request", last.By)
		require.Equal(x, heat.Met, last.State)
		require.Equal(x, a.Job.ID, last.Job)
		var first adminapi.Moved
		x.get("/v1/moves?limit=1", &first)
		require.Len(x, first.Moves, 1)
		require.Equal(x, moved.Moves[0].ID, first.Moves[0].ID)
	})
}

// TestTheHistorySurvivesARestart, and a damaged file is set aside.
func TestTheHistorySurvivesARestart(t *testing.T) {
	file := filepath.Join(t.TempDir(), "history")
	synctest.Test(t, func(t *testing.T) {
		s, counts := memstore.New(), countbook.NewMemory(nil)
		x := newConsole(t, s, counts, file)
		require.NoError(t, x.c.CreateBucket(t.Context(), "b"))
		x.load("b", 20, 120)
		var before, after adminapi.Moved
		x.get("/v1/moves", &before)
		require.NotEmpty(t, before.Moves)
		from, to := time.Now().Unix()-100, time.Now().Unix()-20
		path := fmt.Sprintf("/v1/heat?bucket=b&from=%d&to=%d", from, to)
		var was, is adminapi.Heat
		x.get(path, &was)
		x.end()
		x = newConsole(t, s, counts, file)
		time.Sleep(time.Second)
		defer func() { x.end() }()
		// It goes on from there, and may have moved something already.
		x.get(fmt.Sprintf("/v1/moves?before=%d", before.Moves[0].ID+1), &after)
		require.Len(t, after.Moves, len(before.Moves))
		for i := range after.Moves {
			require.Equal(t, before.Moves[i].ID, after.Moves[i].ID)
			require.NotEqual(t, heat.Begun, after.Moves[i].State)
		}
		x.get(path, &is)
		require.Equal(t, was.Metrics, is.Metrics)
	})
}

// TestADamagedHistoryIsSetAside and begins anew; so is one that is no history.
func TestADamagedHistoryIsSetAside(t *testing.T) {
	file := filepath.Join(t.TempDir(), "history")
	for _, damaged := range []string{"", "evenkeel history 2\n", "not a history", "evenkeel history 9\nof a later version"} {
		require.NoError(t, os.WriteFile(file, []byte(damaged), 0o600))
		synctest.Test(t, func(t *testing.T) {
			x := newConsole(t, memstore.New(), countbook.NewMemory(nil), file)
			require.NoError(t, x.c.CreateBucket(t.Context(), "b"))
			x.load("b", 1, 30)
			var p adminapi.Heat
			x.get("/v1/heat?bucket=b", &p)
			require.Positive(t, p.Metrics["rows"].Max)
			x.end()
		})
		aside, err := os.ReadFile(file + ".damaged")
		require.NoError(t, err)
		require.Equal(t, damaged, string(aside))
		fresh, err := os.ReadFile(file)
		require.NoError(t, err)
		_, _, err = heat.Decode(fresh, 1<<20)
		require.NoError(t, err)
	}
}

// refusing are counters that do not know the partitions of one bucket.
type refusing struct {
	counter.Backend
	bucket atomic.Pointer[store.BucketID]
}

func (r *refusing) Stats(ctx context.Context, all []store.Partition) ([]counter.Stats, error) {
	for _, p := range all {
		if id := r.bucket.Load(); id != nil && p.Bucket == *id {
			return nil, store.Errorf(store.Unavailable, "the counters are away")
		}
	}
	return r.Backend.Stats(ctx, all)
}

// TestGapsAreThoseOfTheirBucket: of a bucket that can't be sampled nothing is known for so long, and the page says why; of
// others all is known. What it took meanwhile is found afterwards.
func TestGapsAreThoseOfTheirBucket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		counts := &refusing{Backend: countbook.NewMemory(nil)}
		x := newConsole(t, memstore.New(), counts, "")
		defer x.end()
		put := func(from, to int) {
			for _, name := range []string{"away", "there"} {
				for i := from; i < to; i++ {
					require.NoError(t, x.c.Bucket(name).Put(t.Context(), fmt.Appendf(nil, "%04d", i), []byte("value")))
				}
			}
			time.Sleep(21 * time.Second) // two samples
		}
		picture := func(name string) ([]float64, *engine.Gap) {
			now := time.Now().Truncate(10 * time.Second)
			var p adminapi.Heat
			x.get(fmt.Sprintf("/v1/heat?bucket=%s&metric=rows&width=2&height=1&from=%d&to=%d", name, now.Unix()-20, now.Unix()), &p)
			return p.Metrics["rows"].Cells, p.Gap
		}
		for _, name := range []string{"away", "there"} {
			require.NoError(t, x.c.CreateBucket(t.Context(), name))
		}
		put(0, 100)
		id := bucketID(x, "away")
		counts.bucket.Store(&id)
		put(100, 150)
		rows, gap := picture("there")
		require.Equal(t, []float64{150, 150}, rows)
		require.Nil(t, gap)
		rows, gap = picture("away")
		require.Equal(t, []float64{heat.Unknown, heat.Unknown}, rows)
		require.Contains(t, gap.Why, "the counters are away")
		counts.bucket.Store(nil)
		time.Sleep(20 * time.Second)
		rows, gap = picture("away")
		require.Equal(t, []float64{150, 150}, rows)
		require.Nil(t, gap, "it is before what the picture shows")
	})
}

// TestBucketsBeyondASample: of those that a sample omits nothing is known, and the answers count them; they come first in
// the next one.
func TestBucketsBeyondASample(t *testing.T) {
	const buckets, room = 600, 512
	inTime(t, func(x *console) {
		name := func(i int) string { return fmt.Sprintf("bucket-%03d", i) }
		for i := range buckets {
			require.NoError(x, x.c.CreateBucket(x.Context(), name(i)))
		}
		require.NoError(x, x.c.CreateBucket(x.Context(), "idle"))
		time.Sleep(5 * time.Minute) // until the list of buckets, which has grown, is recounted: a recount is a sample, too
		time.Sleep(10*time.Second - time.Duration(time.Now().UnixNano())%(10*time.Second) + time.Second)
		for i := range buckets {
			require.NoError(x, x.c.Bucket(name(i)).Put(x.Context(), []byte("key"), []byte("value")))
		}
		known := func() (n, not, omitted int) {
			now := time.Now().Truncate(10 * time.Second).Unix()
			for i := range buckets {
				var p adminapi.Heat
				x.get(fmt.Sprintf("/v1/heat?bucket=%s&width=1&height=1&from=%d&to=%d", name(i), now-10, now), &p)
				if p.Metrics["rows"].Cells[0] == 1 {
					n++
				}
				if p.Metrics["writes"].Cells[0] == heat.Unknown {
					not++
				}
				omitted = p.Omitted
			}
			return n, not, omitted
		}
		time.Sleep(10 * time.Second)
		var c adminapi.Cluster
		x.get("/v1/cluster", &c)
		require.Equal(x, buckets-room, c.History.Omitted)
		n, not, omitted := known()
		require.Equal(x, [3]int{room, buckets - room, buckets - room}, [3]int{n, not, omitted})
		time.Sleep(10 * time.Second)
		n, not, omitted = known()
		require.Equal(x, [3]int{buckets, 0, 0}, [3]int{n, not, omitted})
	})
}

// TestEventsAreStreamed: the status, columns and moves; and no more streams than there may be.
func TestEventsAreStreamed(t *testing.T) {
	inTime(t, func(x *console) {
		require.NoError(x, x.c.CreateBucket(x.Context(), "b"))
		ctx, stop := context.WithCancel(x.Context())
		var first *httptest.ResponseRecorder
		over := make(chan struct{})
		for range 16 {
			w := httptest.NewRecorder()
			if first == nil {
				first = w
			}
			go func() {
				x.api.ServeHTTP(w, httptest.NewRequestWithContext(ctx, "GET", "/v1/events", nil))
				over <- struct{}{}
			}()
		}
		time.Sleep(time.Second)
		w := httptest.NewRecorder()
		x.api.ServeHTTP(w, httptest.NewRequestWithContext(ctx, "GET", "/v1/events", nil))
		require.Equal(x, http.StatusServiceUnavailable, w.Code)
		require.NotEmpty(x, w.Header().Get("Retry-After"))
		x.load("b", 20, 60)
		require.Equal(x, http.StatusOK, x.ask("POST", "/v1/moves", `{"bucket":"b","kind":"refresh"}`, &adminapi.Answer{}))
		time.Sleep(30 * time.Second)
		stop()
		for range 16 {
			<-over
		}
		require.Equal(x, "text/event-stream", first.Header().Get("Content-Type"))
		seen, states := map[string]int{}, map[heat.State]int{}
		event := ""
		for lines := bufio.NewScanner(first.Body); lines.Scan(); {
			if name, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
				event = name
				seen[event]++
			}
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok && event == "move" {
				var e heat.Event
				require.NoError(x, json.Unmarshal([]byte(data), &e))
				states[e.State]++
			}
		}
		require.GreaterOrEqual(x, seen["status"], 2)
		require.GreaterOrEqual(x, seen["column"], 8)
		require.Equal(x, 1, seen["end"])
		require.Positive(x, states[heat.Begun])
		require.Positive(x, states[heat.Met])
	})
}

// TestBadQuestionsAreRefused with a cause.
func TestBadQuestionsAreRefused(t *testing.T) {
	inTime(t, func(x *console) {
		require.NoError(x, x.c.CreateBucket(x.Context(), "b"))
		for path, code := range map[string]int{
			"/v1/heat?bucket=b&width=0x": 400, "/v1/heat?bucket=b&width=2000": 400, "/v1/heat?bucket=b&height=2000": 400,
			"/v1/heat?bucket=b&width=1440&height=1024": 400, "/v1/heat?bucket=b&metric=dogs": 400,
			"/v1/heat?bucket=b&from=2026": 200, "/v1/heat?bucket=b&from=yesterday": 400,
			"/v1/heat?bucket=b&start=b&end=a": 400, "/v1/heat?bucket=none": 404, "/v1/heat": 400,
			"/v1/heat?bucket=b&from=10&to=5": 400, "/v1/heat?bucket=b&from=10&to=99999999999999": 400,
			"/v1/ranges?bucket=b&only=dogs": 400, "/v1/ranges?bucket=none": 404, "/v1/shape?bucket=b&bars=-1": 400,
			"/v1/usage?bucket=none": 404, "/v1/buckets?limit=x": 400, "/v1/moves?before=x": 400,
		} {
			var any map[string]any
			if path == "/v1/heat?bucket=b&from=2026" { // 1970
				code = 400
			}
			require.Equal(x, code, x.ask("GET", path, "", &any), path)
		}
		for body, code := range map[string]int{
			`{"bucket":"none"}`: 404, `{"bucket":"b","planner":"dogs"}`: 400, `{"bucket":"b","objective":"dogs"}`: 400, `{`: 400,
		} {
			var any map[string]any
			require.Equal(x, code, x.ask("POST", "/v1/plan", body, &any), body)
		}
	})
}
