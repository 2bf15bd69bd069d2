package adminapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/adminapi"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/rebalance/balancer"
	"github.com/evenkeel/evenkeel/internal/rebalance/engine"
	"github.com/evenkeel/evenkeel/internal/rebalance/scheduler"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

var update = flag.Bool("update", false, "rewrite testdata/answers.txt")

// failing is a store whose puts fail while it is told so.
type failing struct {
	store.Store
	now atomic.Bool
}

func (f *failing) Put(ctx context.Context, p store.Partition, rows ...store.Row) error {
	if f.now.Load() {
		return store.Errorf(store.Unavailable, "the disk is full")
	}
	return f.Store.Put(ctx, p, rows...)
}

// golden records requests and answers, without what differs between two runs.
type golden struct {
	t    *testing.T
	base string
	text strings.Builder
	ids  map[string]string
}

var (
	uuidPattern = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)
	timePattern = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)
	hostPattern = regexp.MustCompile(`127\.0\.0\.1:\d+`)
)

// do sends a request and records the answer. Each of drop is a field whose value is left out.
func (g *golden) do(method, path, body string, drop ...string) (answer []byte) {
	g.t.Helper()
	code, answer := g.send(method, path, body)
	fmt.Fprintf(&g.text, "%s %s %s\n%d\n", method, g.stable(path), g.stable(body), code)
	for d := json.NewDecoder(bytes.NewReader(answer)); ; {
		var v any
		if err := d.Decode(&v); err == io.EOF {
			break
		} else if err != nil {
			g.t.Fatalf("%s %s: %v in %s", method, path, err, answer)
		}
		for _, name := range drop {
			forget(v, name)
		}
		var line bytes.Buffer
		e := json.NewEncoder(&line)
		e.SetEscapeHTML(false)
		e.SetIndent("", " ")
		require.NoError(g.t, e.Encode(v))
		g.text.WriteString(g.stable(line.String()))
	}
	g.text.WriteString("\n")
	return answer
}

func (g *golden) send(method, path, body string) (code int, answer []byte) {
	req, err := http.NewRequestWithContext(g.t.Context(), method, g.base+path, strings.NewReader(body))
	require.NoError(g.t, err)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(g.t, err)
	defer resp.Body.Close()
	answer, err = io.ReadAll(resp.Body)
	require.NoError(g.t, err)
	return resp.StatusCode, answer
}

func forget(v any, name string) {
	switch v := v.(type) {
	case map[string]any:
		for k, x := range v {
			if k == name {
				v[k] = fmt.Sprintf("%T", x)
				continue
			}
			forget(x, name)
		}
	case []any:
		for _, x := range v {
			forget(x, name)
		}
	}
}

func (g *golden) stable(text string) string {
	text = uuidPattern.ReplaceAllStringFunc(text, func(id string) string {
		if g.ids[id] == "" {
			g.ids[id] = fmt.Sprintf("uuid-%d", len(g.ids)+1)
		}
		return g.ids[id]
	})
	return hostPattern.ReplaceAllString(timePattern.ReplaceAllString(text, "TIME"), "HOST")
}

// until repeats a request until its answer matches.
func (g *golden) until(path, pattern string) {
	g.t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		_, answer := g.send("GET", path, "")
		if regexp.MustCompile(pattern).Match(answer) {
			return
		}
		require.True(g.t, time.Now().Before(end), "%s: %s", path, answer)
	}
}

// moves asks for moves and waits until they have ended.
func (g *golden) moves(path, body string) {
	g.t.Helper()
	var a struct{ Job struct{ ID string } }
	require.NoError(g.t, json.Unmarshal(g.do("POST", path, body, "asked"), &a))
	require.NotEmpty(g.t, a.Job.ID, "%s", g.text.String()[max(0, g.text.Len()-600):])
	g.until("/v1/jobs/"+a.Job.ID, `"ended"`)
	g.until("/v1/status", `"buckets":\[\]`)
	g.do("GET", "/v1/jobs/"+a.Job.ID, "")
}

// presplit cuts a bucket in two and pins the cut.
func presplit(t *testing.T, st store.Store, c *listing.Client, id store.BucketID) {
	m := scheduler.New(st, mapclient.Of(c), scheduler.Options{})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = m.Run(ctx) }()
	p, err := m.Plan(ctx, id, scheduler.Ask{
		Kind: scheduler.Presplit, Keys: [][]byte{[]byte("3")}, PinUntil: time.Now().Add(time.Hour),
	})
	require.NoError(t, err)
	j := m.Submit(id, "presplit", p)
	for j.Ended.IsZero() {
		time.Sleep(time.Millisecond)
		j, _ = m.Job(j.ID)
	}
	stop()
	<-done
}

// TestGoldenAnswers holds the answers of every endpoint, by names and meaning of the fields.
func TestGoldenAnswers(t *testing.T) {
	st := &failing{Store: memstore.New()}
	c, err := listing.New(st, listing.Options{})
	require.NoError(t, err)
	require.NoError(t, c.CreateBucket(t.Context(), "b"))
	for i := range 100 {
		require.NoError(t, c.Bucket("b").Put(t.Context(), fmt.Appendf(nil, "k%02d", i), []byte("v")))
	}
	require.NoError(t, c.Bucket("b").Put(t.Context(), []byte("z\xff<&>"), []byte("v")))

	// Two small ranges that a pin keeps apart: the look at sizes has to say why they stay.
	require.NoError(t, c.CreateBucket(t.Context(), "c"))
	for i := range 6 {
		require.NoError(t, c.Bucket("c").Put(t.Context(), fmt.Appendf(nil, "%d", i), []byte("v")))
	}
	pinned, err := c.BucketID(t.Context(), "c")
	require.NoError(t, err)
	presplit(t, st, c, pinned)

	server := httptest.NewUnstartedServer(nil)
	address := "http://" + server.Listener.Addr().String()
	balance := balancer.For(60, 0, time.Hour, time.Second)
	k := engine.New(engine.Options{
		Store: st, Buckets: c, Leader: &engine.Candidate{Name: "one", Admin: address},
		Balance: &balance,
	})
	server.Config.Handler = adminapi.New(k)
	server.Start()
	t.Cleanup(server.Close)
	g := &golden{t: t, base: address, ids: map[string]string{}}

	g.do("POST", "/v1/moves", `{"bucket":"b","kind":"refresh"}`) // no leader
	// A pause lets the look at sizes end without moves.
	g.do("POST", "/v1/pause", `{"bucket":"b","by":"me","why":"to see","for_s":3600}`)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = k.Run(ctx) }()
	t.Cleanup(func() { stop(); <-done })
	g.until("/v1/status", `"scan":\{[^}]*"ended":[^}]*\}.*"balance":\{[^}]*"ended":`)

	g.do("GET", "/v1/status", "")
	g.do("POST", "/v1/sizes?bucket=b", "")
	g.do("POST", "/v1/layout?bucket=b", "")
	g.do("POST", "/v1/layout?bucket=b&exact=1", "", "quanta")
	g.do("POST", "/v1/recount", `{"bucket":"b","ranges":[{"start":"","end":"k1"}]}`)
	g.do("GET", "/v1/map?bucket=b", "")
	g.do("POST", "/v1/moves", `{"bucket":"b","kind":"refresh"}`) // paused
	g.do("POST", "/v1/pause", `{"by":"you","dry_run":true}`)
	g.do("POST", "/v1/pause", `{"by":"you"}`)
	g.do("POST", "/v1/pause", `{"bucket":"b","by":"me again"}`)
	g.do("GET", "/v1/status", "", "pauses", "buckets", "scan", "balance")
	g.do("POST", "/v1/quiet", `{}`)
	g.do("POST", "/v1/resume", `{"bucket":"b"}`)
	g.do("POST", "/v1/resume", `{"dry_run":true}`)
	g.do("POST", "/v1/resume", `{}`)
	g.do("POST", "/v1/resume", `{}`)
	g.do("POST", "/v1/quiet", `{}`)

	// Moves of each kind.
	g.do("POST", "/v1/moves", `{"bucket":"b","kind":"split","keys":["k50","k51","zz"],"dry_run":true}`)
	g.moves("/v1/moves", `{"bucket":"b","kind":"split","keys":["k50",{"b64":"ev88"}]}`)
	g.do("GET", "/v1/map?bucket=b", "")
	g.do("POST", "/v1/sizes?bucket=b", "")
	g.do("POST", "/v1/recount", `{"bucket":"b"}`)
	g.do("POST", "/v1/layout?bucket=b", "", "quanta")
	g.moves("/v1/moves", `{"bucket":"b","kind":"presplit","keys":["k5","m",{"b64":"ev88"}],"pin_until":"2999-01-02T03:04:05Z"}`)
	g.do("GET", "/v1/map?bucket=b", "")
	g.do("GET", "/v1/map?bucket=b&epoch=1", "")
	g.moves("/v1/moves", `{"bucket":"b","kind":"refresh","ranges":[{"start":{"b64":"ev88"},"end":""}]}`)
	g.do("POST", "/v1/moves", `{"bucket":"b","kind":"merge","ranges":[{"start":"m","end":""}],"force":true}`) // pinned
	g.moves("/v1/moves", `{"bucket":"b","kind":"merge","ranges":[{"start":"m","end":{"b64":"ev88"}}],"force":true}`)
	appends := `{"bucket":"b","kind":"presplit","append":{"rows_per_second":10,"for_s":20,"max_rows":50,` +
		`"like":["1001","1002","1003","1004","1005","1006","1007","1008","1009","1010","1011","1012"]},"dry_run":true}`
	g.do("POST", "/v1/moves", appends)
	g.do("GET", "/v1/history?bucket=b", "")
	g.do("GET", "/v1/history?bucket=b&limit=1", "")

	// Plans.
	var m struct{ Partitions []struct{ ID string } }
	_, body := g.send("GET", "/v1/map?bucket=b", "")
	require.NoError(t, json.Unmarshal(body, &m))
	require.Len(t, m.Partitions, 4)
	plan := fmt.Sprintf(`{"bucket":"b","partitions":[{"id":%q,"start":"","rows":50},{"id":"new-1","start":"k5","rows":30},`+
		`{"id":"new-2","start":"k8","rows":20},{"id":%q,"start":"m","rows":0},{"id":%q,"start":{"b64":"ev88"},"rows":1}],"moves":[`+
		`{"from":%q,"to":"new-1","start":"k5","end":"k8","rows":30},{"from":%q,"to":"new-2","start":"k8","end":"m","rows":20}]`,
		m.Partitions[0].ID, m.Partitions[2].ID, m.Partitions[3].ID, m.Partitions[1].ID, m.Partitions[1].ID)
	g.do("POST", "/v1/apply", plan+`,"dry_run":true}`)
	g.moves("/v1/apply", plan+`}`)
	g.do("POST", "/v1/apply", plan+`}`)                         // the bucket has changed
	g.do("POST", "/v1/apply", plan+`,"unknown":true}`)          // no such field
	g.do("POST", "/v1/apply", `{"bucket":"b","partitions":[]}`) // not a plan

	g.do("GET", "/v1/status", "", "scan")

	// A move that fails and is tried again.
	st.now.Store(true)
	g.do("POST", "/v1/moves", `{"bucket":"b","kind":"refresh","ranges":[{"start":"k8","end":"m"}]}`, "asked")
	g.until("/v1/status", `"failures":\[\{`)
	g.do("GET", "/v1/status", "", "scan", "running", "failures")
	g.do("POST", "/v1/recount", `{"bucket":"b"}`)
	g.do("POST", "/v1/abort", `{"bucket":"b"}`)
	st.now.Store(false)
	g.until("/v1/status", `"buckets":\[\]`)
	g.do("POST", "/v1/abort", `{}`)

	g.do("POST", "/v1/verify", `{"bucket":"b"}`)
	g.do("POST", "/v1/verify", `{"discard":["nonsense"]}`)
	g.do("POST", "/v1/backup", `{"dir":"/backup"}`)
	g.do("GET", "/v1/jobs/77", "")
	g.do("GET", "/v1/map?bucket=none", "")
	g.do("GET", "/v1/nothing", "")

	const file = "testdata/answers.txt"
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(file, []byte(g.text.String()), 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want), g.text.String())
}
