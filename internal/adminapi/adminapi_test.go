package adminapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/adminapi"
	"github.com/evenkeel/evenkeel/internal/rebalance/balancer"
	"github.com/evenkeel/evenkeel/internal/rebalance/engine"
	"github.com/evenkeel/evenkeel/internal/rebalance/policy"
	"github.com/evenkeel/evenkeel/internal/rebalance/scheduler"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// process is one that may move ranges, with a bucket "b" of 100 keys.
type process struct {
	c      *listing.Client
	r      *engine.Rebalancer
	server *httptest.Server
}

func start(t *testing.T, s store.Store, name string) *process {
	p := &process{}
	var err error
	p.c, err = listing.New(s, listing.Options{})
	require.NoError(t, err)
	if name == "first" {
		require.NoError(t, p.c.CreateBucket(t.Context(), "b"))
		for i := range 100 {
			require.NoError(t, p.c.Bucket("b").Put(t.Context(), fmt.Appendf(nil, "k%02d", i), []byte("v")))
		}
	}
	p.server = httptest.NewUnstartedServer(nil)
	p.r = engine.New(engine.Options{
		Store: s, Buckets: p.c, Balance: &balancer.Options{Policy: policy.Policy{MaxRows: 50}},
		Leader: &engine.Candidate{Name: name, Admin: "http://" + p.server.Listener.Addr().String()},
	})
	p.server.Config.Handler = adminapi.New(p.r)
	p.server.Start()
	t.Cleanup(p.server.Close)
	return p
}

// leads makes a process the leader until the test ends.
func (p *process) leads(t *testing.T) {
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = p.r.Run(ctx)
	}()
	t.Cleanup(func() { stop(); <-done })
	for !p.r.Leading() {
		time.Sleep(time.Millisecond)
	}
}

func (p *process) client(t *testing.T) *adminapi.Client {
	c, err := adminapi.NewClient(p.server.URL, "")
	require.NoError(t, err)
	return c
}

var refresh = scheduler.Ask{Kind: scheduler.Refresh}

func finished(t *testing.T, c *adminapi.Client, id string) scheduler.Job {
	for {
		j, err := c.Job(t.Context(), id)
		require.NoError(t, err)
		if !j.Ended.IsZero() {
			return j
		}
		time.Sleep(time.Millisecond)
	}
}

func theMap(t *testing.T, c *adminapi.Client, bucket string, epoch uint64) (m adminapi.Map) {
	body, err := c.Map(t.Context(), bucket, epoch)
	require.NoError(t, err)
	defer body.Close()
	require.NoError(t, json.NewDecoder(body).Decode(&m))
	return m
}

func TestMovesMapsAndHistory(t *testing.T) {
	s := memstore.New()
	p := start(t, s, "first")
	p.leads(t)
	c := p.client(t)
	split := scheduler.Ask{Kind: scheduler.Split, Keys: [][]byte{[]byte("k50"), []byte("k50\xff")}}
	a, err := c.Moves(t.Context(), adminapi.Moves{Bucket: "b", Ask: split, DryRun: true})
	require.NoError(t, err)
	require.Nil(t, a.Job)
	require.Len(t, a.Moves, 1)
	require.EqualValues(t, 100, a.Moves[0].Rows)
	require.Len(t, theMap(t, c, "b", 0).Partitions, 1, "a dry run changes nothing")

	a, err = c.Moves(t.Context(), adminapi.Moves{Bucket: "b", Ask: split})
	require.NoError(t, err)
	j := finished(t, c, a.Job.ID)
	require.Equal(t, scheduler.JobDone, j.State)
	require.Equal(t, j.Rows, j.Copied)
	m := theMap(t, c, "b", 0)
	require.Len(t, m.Partitions, 3)
	require.Equal(t, "k5", string(m.Partitions[1].Start))
	require.Equal(t, "k50\xff", string(m.Partitions[1].End), "keys that are not UTF-8, too")
	require.Empty(t, m.Partitions[2].End)
	require.Equal(t, "settled", m.Partitions[0].Phase)

	h, err := c.History(t.Context(), "b", 0)
	require.NoError(t, err)
	require.Equal(t, m.Epoch, h.Epochs[0].Epoch)
	require.EqualValues(t, 1, h.Epochs[len(h.Epochs)-1].Epoch)
	require.Len(t, theMap(t, c, "b", 1).Partitions, 1)
	_, err = c.Map(t.Context(), "b", m.Epoch+1)
	require.ErrorIs(t, err, store.NotFound)

	// By its id, too: the list of buckets has no name.
	id, err := p.c.BucketID(t.Context(), "b")
	require.NoError(t, err)
	require.Equal(t, m.Partitions, theMap(t, c, id.String(), 0).Partitions)

	st, err := c.Status(t.Context())
	require.NoError(t, err)
	require.True(t, st.Leading)
	require.Equal(t, "first", st.Leader.Name)
	require.Len(t, st.Jobs, 1)
	require.Equal(t, "b", st.Jobs[0].Name)
}

// The raw form that other programs read.
func TestMapJSON(t *testing.T) {
	p := start(t, memstore.New(), "first")
	resp, err := http.Get(p.server.URL + "/v1/map?bucket=b")
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, "application/json", resp.Header.Get("Content-Type"))
	require.Regexp(t, `^\{"bucket":"b","epoch":1,"partitions":\[\s*\{"id":"[0-9a-f-]{36}","start":"","end":"","phase":"settled","to":""\}\s*\]\}\s*$`, string(text))
}

func TestWhoDoesNotLeadSendsOn(t *testing.T) {
	s := memstore.New()
	p := start(t, s, "first")
	other := start(t, s, "second")
	c := other.client(t)
	_, err := c.Moves(t.Context(), adminapi.Moves{Bucket: "b", Ask: refresh})
	require.ErrorIs(t, err, store.Unavailable)
	require.ErrorContains(t, err, "no process leads")

	p.leads(t)
	body, err := json.Marshal(adminapi.Moves{Bucket: "b", Ask: refresh})
	require.NoError(t, err)
	resp, err := http.Post(other.server.URL+"/v1/moves", "application/json", strings.NewReader(string(body)))
	require.NoError(t, err)
	defer resp.Body.Close()
	require.Equal(t, http.StatusMisdirectedRequest, resp.StatusCode)
	var problem adminapi.Problem
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&problem))
	require.Equal(t, p.server.URL, problem.Leader.Admin)
	require.Contains(t, problem.Error, "first")

	a, err := c.Moves(t.Context(), adminapi.Moves{Bucket: "b", Ask: refresh})
	require.NoError(t, err)
	require.Equal(t, scheduler.JobDone, finished(t, c, a.Job.ID).State)
	require.Len(t, p.r.Status().Jobs, 1)
	require.Empty(t, other.r.Status().Jobs)
}

// Candidates wait their turns before one of them leads. Whoever asks for moves in between need not ask again.
func TestRequestsWaitForALeader(t *testing.T) {
	s := memstore.New()
	p := start(t, s, "first")
	asked, began := start(t, s, "second"), make(chan struct{})
	t.Cleanup(func() { <-began })
	go func() {
		defer close(began)
		time.Sleep(300 * time.Millisecond)
		p.leads(t)
	}()
	c := asked.client(t)
	a, err := c.Moves(t.Context(), adminapi.Moves{Bucket: "b", Ask: refresh})
	require.NoError(t, err)
	require.Equal(t, scheduler.JobDone, finished(t, c, a.Job.ID).State)
	require.Len(t, p.r.Status().Jobs, 1)
}

func TestBadRequests(t *testing.T) {
	s := memstore.New()
	p := start(t, s, "first")
	p.leads(t)
	c := p.client(t)
	pinned := scheduler.Ask{Kind: scheduler.Presplit, Keys: [][]byte{[]byte("x")}, PinUntil: time.Unix(1, 0)}
	for _, x := range []struct {
		moves adminapi.Moves
		kind  store.Kind
		says  string
	}{
		{adminapi.Moves{Ask: refresh}, store.InvalidArgument, "name a bucket"},
		{adminapi.Moves{Bucket: "none", Ask: refresh}, store.NotFound, `no bucket "none"`},
		{adminapi.Moves{Bucket: "b", Ask: scheduler.Ask{Kind: "dance"}}, store.InvalidArgument, "dance"},
		{adminapi.Moves{Bucket: "b", Ask: pinned}, store.InvalidArgument, "is over already"},
	} {
		_, err := c.Moves(t.Context(), x.moves)
		require.ErrorIs(t, err, x.kind)
		require.ErrorContains(t, err, x.says)
	}
	_, err := c.Job(t.Context(), "77")
	require.ErrorIs(t, err, store.NotFound)
	require.ErrorContains(t, err, "started again")
	_, err = c.Pause(t.Context(), adminapi.PauseAsk{Which: adminapi.Which{Bucket: "none"}})
	require.ErrorIs(t, err, store.NotFound)
	_, err = c.Quiet(t.Context(), adminapi.Which{}, func(adminapi.Quiet) {})
	require.ErrorIs(t, err, store.Conflict)
	require.ErrorContains(t, err, "moves are not paused")
	_, err = c.Backup(t.Context(), "/backup", func(store.Size) {})
	require.ErrorContains(t, err, "nodetool snapshot")
	_, err = c.Map(t.Context(), "none", 0)
	require.ErrorIs(t, err, store.NotFound)

	for _, x := range []struct {
		method, path, body string
		status             int
	}{
		{"POST", "/v1/moves", `{"bucket":"b","kind":"refresh","knid":1}`, 400},
		{"POST", "/v1/moves", `{`, 400},
		{"POST", "/v1/moves", `{"bucket":"b","kind":"split","keys":[{"b65":""}]}`, 400},
		{"GET", "/v1/map?bucket=b&epoch=x", ``, 400},
		{"GET", "/v1/moves", ``, 404},
		{"GET", "/v1/nothing", ``, 404},
	} {
		req, err := http.NewRequest(x.method, p.server.URL+x.path, strings.NewReader(x.body))
		require.NoError(t, err)
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		var problem adminapi.Problem
		require.NoError(t, json.NewDecoder(resp.Body).Decode(&problem), x.path)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, x.status, resp.StatusCode, x.path)
		require.NotEmpty(t, problem.Error)
	}

	// A page of another site in a browser.
	req, err := http.NewRequest("POST", p.server.URL+"/v1/pause", strings.NewReader(`{}`))
	require.NoError(t, err)
	req.Header.Set("Origin", "http://evil.example")
	req.Header.Set("Sec-Fetch-Site", "cross-site")
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusForbidden, resp.StatusCode)
	st, err := c.Status(t.Context())
	require.NoError(t, err)
	require.Empty(t, st.Pauses)
}

func TestWithin(t *testing.T) {
	s := memstore.New()
	p := start(t, s, "first")
	p.leads(t)
	c, end := adminapi.Within(p.server.Config.Handler)
	paused, err := c.Pause(t.Context(), adminapi.PauseAsk{By: "me", Why: "to see", ForS: 60})
	require.NoError(t, err)
	require.False(t, paused.Already)
	st, err := c.Status(t.Context())
	require.NoError(t, err)
	require.Equal(t, []adminapi.Paused{paused}, st.Pauses)
	q, err := c.Quiet(t.Context(), adminapi.Which{}, func(adminapi.Quiet) {})
	require.NoError(t, err)
	require.True(t, q.Scanned)
	require.Empty(t, q.Moving)
	_, err = c.Moves(t.Context(), adminapi.Moves{Bucket: "b", Ask: refresh})
	require.ErrorIs(t, err, store.Conflict)
	require.ErrorContains(t, err, "by me (to see), until ")
	again, err := c.Resume(t.Context(), adminapi.Which{})
	require.NoError(t, err)
	require.True(t, again.Lifted)
	d, err := c.Abort(t.Context(), adminapi.Which{Bucket: "b"})
	require.NoError(t, err)
	require.Zero(t, d.Dropped)
	end()
	_, err = c.Status(t.Context())
	require.ErrorIs(t, err, store.Unavailable)
}

// TestTokensGoToConfiguredServersOnly: neither to whom an answer names nor along a redirect.
func TestTokensGoToConfiguredServersOnly(t *testing.T) {
	var mu sync.Mutex
	var got []string // tokens, by the thief
	thief := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, r.Header.Get("Authorization"))
		_, _ = io.WriteString(w, "{}")
	}))
	defer thief.Close()
	var named string
	redirects := false
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if redirects {
			http.Redirect(w, r, named+r.URL.Path, http.StatusTemporaryRedirect)
			return
		}
		w.WriteHeader(http.StatusMisdirectedRequest)
		leader := &engine.Holder{Name: "the thief", Admin: named}
		p := adminapi.Problem{Error: "another one leads", Kind: "Unavailable", Leader: leader}
		require.NoError(t, json.NewEncoder(w).Encode(p))
	}))
	defer server.Close()
	const token = "a token of no one else"
	thiefs := strings.TrimPrefix(thief.URL, "http://")
	for _, f := range []struct {
		named     string
		redirects bool
	}{
		{thief.URL, false}, {"http://" + strings.TrimPrefix(server.URL, "http://") + "@" + thiefs, false},
		{strings.Replace(thief.URL, "127.0.0.1", "localhost", 1), false}, {thief.URL + "/" + server.URL, false},
		{"HTTP://" + thiefs, false}, {"nonsense", false}, {thief.URL, true},
	} {
		named, redirects = f.named, f.redirects
		flags := adminapi.Flags{Admin: []string{server.URL, "http://10.0.0.1:9001"}, AdminToken: token}
		c, err := flags.Client()
		require.NoError(t, err)
		_, err = c.Status(t.Context())
		require.Error(t, err, f)
		require.NotContains(t, err.Error(), token)
		if f.named == thief.URL && !redirects {
			require.ErrorContains(t, err, "--admin "+server.URL+",http://10.0.0.1:9001,"+thief.URL)
		}
		if !redirects {
			_, err = flags.At("the thief", f.named)
			require.ErrorIs(t, err, store.InvalidArgument)
		}
		require.Empty(t, got, f)
	}
	// Whoever is configured gets it, and without a token nothing is given away.
	named, redirects = thief.URL, false
	for want, f := range map[string]adminapi.Flags{
		"Bearer " + token: {Admin: []string{server.URL, thief.URL + "/"}, AdminToken: token},
		"":                {Admin: []string{server.URL}},
	} {
		c, err := f.Client()
		require.NoError(t, err)
		_, err = c.Status(t.Context())
		require.NoError(t, err)
		require.Equal(t, []string{want}, got)
		got = nil
	}
	for _, bad := range []string{
		"", "127.0.0.1:9001", "ftp://x", "http://", "http://:9001", "http://u:secret@x", "http://x?y",
	} {
		_, err := (&adminapi.Flags{Admin: []string{bad}}).Client()
		require.ErrorContains(t, err, "--admin: ")
		require.NotContains(t, err.Error(), "secret")
	}
}
