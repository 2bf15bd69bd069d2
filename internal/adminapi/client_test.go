package adminapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/adminapi"
	"github.com/evenkeel/evenkeel/internal/rebalance/balancer"
	"github.com/evenkeel/evenkeel/internal/rebalance/engine"
	"github.com/evenkeel/evenkeel/internal/rebalance/repair"
	"github.com/evenkeel/evenkeel/internal/test/tlstest"
	"github.com/evenkeel/evenkeel/rebalance"
	"github.com/evenkeel/evenkeel/store"
)

// answering is a server that gives one answer to all requests.
func answering(t *testing.T, code int, body string) *httptest.Server {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(s.Close)
	return s
}

func clientOf(t *testing.T, url string) *adminapi.Client {
	c, err := adminapi.NewClient(url, "")
	require.NoError(t, err)
	return c
}

func problemText(kind store.Kind) string { return fmt.Sprintf(`{"error":"one thing","kind":%q}`, kind) }

// Whatever a server answers, the error has the kind and the words from which its cause is found.
func TestErrorsOfAnswers(t *testing.T) {
	for _, x := range []struct {
		code int
		body string
		kind store.Kind
		says string
	}{
		{400, problemText(store.InvalidArgument), store.InvalidArgument, "one thing"},
		{503, problemText(store.Timeout), store.Timeout, "one thing"},
		{500, problemText(store.TooMuchDeadData), store.TooMuchDeadData, "one thing"},
		{500, problemText(store.Other), store.Other, "one thing"},
		{500, `{"error":"one thing","kind":"of a later version"}`, store.Other, "one thing"},
		{404, problemText(store.NotFound), store.NotFound, "one thing"},
		{404, `{"kind":"Timeout"}`, store.NotFound, "there is no admin API at 127.0.0.1:"},
		{404, "404 page not found\n", store.NotFound, "there is no admin API at 127.0.0.1:"},
		{401, " who are you\n", store.InvalidArgument, "does not let this client in: who are you; give --admin-token"},
		{502, " a proxy\n", store.Unavailable, "the answer is 502 Bad Gateway: a proxy"},
		{400, "Client sent an HTTP request to an HTTPS server.\n", store.Unavailable,
			"speaks TLS: give --admin https://"},
		{200, "<html>", store.Unavailable, "the answer is not understood"},
	} {
		_, err := clientOf(t, answering(t, x.code, x.body).URL).Status(t.Context())
		require.Equal(t, x.kind, store.KindOf(err), "%d %s", x.code, x.body)
		require.ErrorContains(t, err, x.says)
	}
}

// A server that can't be reached is told from one with which the client does not agree on TLS, and from a client that
// has given up.
func TestServersThatCanNotBeReached(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "other.crt"), filepath.Join(dir, "other.key")
	tlstest.Write(t, cert, key, "other")
	secret := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(secret.Close)
	plain := answering(t, 200, "{}")
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	for address, says := range map[string]string{
		gone.URL: "can't be reached (is `listd serve` or `rebalancer run` running?)",
		strings.Replace(plain.URL, "http:", "https:", 1):  "speaks plain HTTP there, not TLS: give --admin http://",
		strings.Replace(secret.URL, "https:", "http:", 1): "speaks TLS: give --admin https://",
		secret.URL: "by an authority that this host does not know: name its certificate by --admin-ca-file",
	} {
		flags := adminapi.Flags{Admin: []string{address}, AdminCAFile: cert}
		c, err := flags.Client()
		require.NoError(t, err)
		_, err = c.Status(t.Context())
		require.ErrorIs(t, err, store.Unavailable)
		require.ErrorContains(t, err, says)
	}
	for _, wrong := range []adminapi.Flags{
		{}, {Admin: []string{"nonsense"}}, {Admin: []string{plain.URL, "nonsense"}},
		{Admin: []string{plain.URL}, AdminCAFile: filepath.Join(dir, "none")},
		{Admin: []string{plain.URL}, AdminCertFile: cert},
	} {
		_, err := wrong.Client()
		require.ErrorContains(t, err, "--admin")
		_, err = wrong.At("one", plain.URL)
		require.ErrorContains(t, err, "--admin")
	}
	require.NoError(t, adminapi.CheckURL("--admin-url", ""))
	require.NoError(t, adminapi.CheckURL("--admin-url", plain.URL))
	require.ErrorContains(t, adminapi.CheckURL("--admin-url", "nonsense"), "--admin-url: ")

	ctx, stop := context.WithCancelCause(t.Context())
	enough := errors.New("enough of it")
	stop(enough)
	_, err := clientOf(t, plain.URL).Status(ctx)
	require.ErrorIs(t, err, enough)
}

// A client follows the names of leaders a few times, stays with the last one for later requests, and does not ask one
// that names itself again.
func TestClientsFollowLeaders(t *testing.T) {
	var asked []string
	var servers [5]*httptest.Server
	next := func(i int) int { return i + 1 }
	for i := range servers {
		servers[i] = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			require.NoError(t, err)
			asked = append(asked, fmt.Sprint(i, string(body)))
			k := next(i)
			if k < 0 {
				_, _ = io.WriteString(w, `{"lifted":true}`)
				return
			}
			w.WriteHeader(http.StatusMisdirectedRequest)
			leader := &engine.Holder{ID: uuid.UUID{7}}
			if k < len(servers) {
				leader.Admin = servers[k].URL + "/"
			}
			p := adminapi.Problem{Error: fmt.Sprint("not ", i), Kind: "Unavailable", Leader: leader}
			require.NoError(t, json.NewEncoder(w).Encode(p))
		}))
		t.Cleanup(servers[i].Close)
	}
	const ask = `{"bucket":"b"}`
	for _, x := range []struct {
		next  func(i int) int
		fails string
		asked []string
	}{
		{next, "not 2", []string{"0" + ask, "1" + ask, "2" + ask}},
		{func(i int) int { return []int{2, -1, -1}[i] }, "", []string{"0" + ask, "2" + ask}},
		{func(i int) int { return i }, "not 0", []string{"0" + ask}},
		{func(int) int { return len(servers) }, "not 0", []string{"0" + ask}}, // the leader has no address
	} {
		next, asked = x.next, nil
		c := clientOf(t, servers[0].URL)
		_, err := c.Resume(t.Context(), adminapi.Which{Bucket: "b"})
		require.Equal(t, x.asked, asked)
		if x.fails != "" {
			require.EqualError(t, err, x.fails)
			continue
		}
		require.NoError(t, err)
		_, err = c.Resume(t.Context(), adminapi.Which{Bucket: "b"})
		require.NoError(t, err)
		require.Equal(t, append(x.asked, x.asked[len(x.asked)-1]), asked, "the leader is asked at once")
	}
	// Errors name a leader without a name by its id.
	next = func(int) int { return 1 }
	c, err := adminapi.NewClient(servers[0].URL, "token")
	require.NoError(t, err)
	_, err = c.Status(t.Context())
	require.ErrorContains(t, err, uuid.UUID{7}.String()+" leads, at ")
}

// Answers of lines end by a last line, a problem, an error of the caller, or by breaking off.
func TestAnswersOfLines(t *testing.T) {
	stop := errors.New("stop here")
	const size, counted, part = `{"size":{"partition":"p","rows":%d}}` + "\n", `{"recounted":{"Rows":%d}}` + "\n",
		`{"partition":{"id":"%d"}}` + "\n"
	const end, problem = `{"end":{"epoch":9,"max_rows":5}}` + "\n",
		`{"problem":{"error":"away","kind":"timeout"}}` + "\n"
	for name, call := range map[string]struct {
		line string
		do   func(c *adminapi.Client, each func() error) (adminapi.End, error)
	}{
		"sizes": {size, func(c *adminapi.Client, each func() error) (adminapi.End, error) {
			return c.Sizes(t.Context(), "b", func(adminapi.Size) error { return each() })
		}},
		"recount": {counted, func(c *adminapi.Client, each func() error) (adminapi.End, error) {
			return c.Recount(t.Context(), adminapi.Recount{Bucket: "b"},
				func(balancer.Recounted) error { return each() })
		}},
		"layout": {part, func(c *adminapi.Client, each func() error) (adminapi.End, error) {
			return c.Layout(t.Context(), "b", true, func(rebalance.Partition) error { return each() })
		}},
	} {
		one, two := fmt.Sprintf(call.line, 1), fmt.Sprintf(call.line, 2)
		for _, x := range []struct {
			answer string
			stops  bool
			seen   int
			kind   store.Kind
			says   string
		}{
			{one + two + end, false, 2, 0, ""},
			{one + "{}\n" + end + two, false, 1, 0, ""}, // a line of a later version
			{one + problem + end, false, 1, store.Timeout, "away"},
			{one + two, false, 2, store.Unavailable, "broke off"},
			{one + "{", false, 1, store.Unavailable, "broke off"},
			{one + two + end, true, 1, store.Other, "stop here"},
		} {
			seen := 0
			got, err := call.do(clientOf(t, answering(t, 200, x.answer).URL), func() error {
				if seen++; x.stops {
					return stop
				}
				return nil
			})
			require.Equal(t, x.seen, seen, "%s of %s", name, x.answer)
			if x.says == "" {
				require.NoError(t, err)
				require.EqualValues(t, 9, got.Epoch)
				require.EqualValues(t, 5, got.MaxRows)
				continue
			}
			require.ErrorContains(t, err, x.says)
			require.Equal(t, x.kind, store.KindOf(err))
			require.Equal(t, x.stops, errors.Is(err, stop))
			require.Zero(t, got)
		}
	}
}

// Requests that take long report their progress, and after an error the last one.
func TestAnswersWithProgress(t *testing.T) {
	const one = `{"progress":{"files":1}}` + "\n"
	for _, x := range []struct {
		answer   string
		progress int
		files    int
		says     string
	}{
		{one + `{"progress":{"files":2}}` + "\n" + `{"done":{"files":3}}`, 2, 3, ""},
		{one + "{}\n" + `{"problem":{"error":"the disk is full","kind":"Unavailable"}}`, 1, 1, "the disk is full"},
		{one, 1, 1, "broke off"},
	} {
		seen := 0
		size, err := clientOf(t, answering(t, 200, x.answer).URL).Backup(t.Context(), "/d", func(s store.Size) {
			seen++
			require.EqualValues(t, seen, s.Files)
		})
		require.Equal(t, x.progress, seen)
		require.EqualValues(t, x.files, size.Files)
		if x.says == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, x.says)
		}
	}
	for _, x := range []struct {
		answer, says    string
		found, progress int
		rows            int64
	}{
		{`{"finding":{}}{"progress":{"rows":1}}{"finding":{}}{}{"summary":{"rows":2}}{"finding":{}}`, "", 2, 1, 2},
		{`{"progress":{"rows":1}}{"summary":{"rows":1},"problem":{"error":"away","kind":"Timeout"}}`, "away", 0, 1, 1},
		{`{"progress":{"rows":1}}`, "broke off", 0, 1, 1},
	} {
		found, progress := 0, 0
		s, err := clientOf(t, answering(t, 200, x.answer).URL).Verify(t.Context(), adminapi.Verify{},
			func(repair.Finding) { found++ }, func(repair.Summary) { progress++ })
		require.Equal(t, [2]int{x.found, x.progress}, [2]int{found, progress})
		require.EqualValues(t, x.rows, s.Rows)
		if x.says == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, x.says)
		}
	}
	// An answer that breaks off because the caller has given up is told by the caller's own cause.
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, one)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	t.Cleanup(server.Close)
	ctx, stop := context.WithCancelCause(t.Context())
	enough := errors.New("enough of it")
	_, err := clientOf(t, server.URL).Backup(ctx, "/d", func(store.Size) { stop(enough) })
	require.ErrorIs(t, err, enough)
}

// What a client asks for is what is sent: parameters that are not given are left to the server.
func TestWhatClientsAsk(t *testing.T) {
	var asked string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.Method + " " + r.URL.RequestURI()
		_, _ = io.WriteString(w, `{"end":{}}`)
	}))
	t.Cleanup(server.Close)
	c := clientOf(t, server.URL)
	for want, do := range map[string]func(ctx context.Context) error{
		"GET /v1/map?bucket=a%26b": func(ctx context.Context) error {
			_, err := c.Map(ctx, "a&b", 0)
			return err
		},
		"GET /v1/map?bucket=b&epoch=1": func(ctx context.Context) error {
			_, err := c.Map(ctx, "b", 1)
			return err
		},
		"GET /v1/history?bucket=b": func(ctx context.Context) error {
			_, err := c.History(ctx, "b", 0)
			return err
		},
		"GET /v1/history?bucket=b&limit=1": func(ctx context.Context) error {
			_, err := c.History(ctx, "b", 1)
			return err
		},
		"GET /v1/jobs/a%2Fb": func(ctx context.Context) error {
			_, err := c.Job(ctx, "a/b")
			return err
		},
		"GET /v1/buckets?after=a%26b&limit=7": func(ctx context.Context) error {
			_, err := c.Buckets(ctx, "a&b", 7)
			return err
		},
		"GET /v1/explain?bucket=b": func(ctx context.Context) error {
			_, err := c.Explain(ctx, "b")
			return err
		},
		"GET /v1/heat?metric=reads": func(ctx context.Context) error {
			_, err := c.Heat(ctx, url.Values{"metric": {"reads"}})
			return err
		},
		"POST /v1/retention": func(ctx context.Context) error {
			_, err := c.Old(ctx, adminapi.OldAsk{})
			return err
		},
		"POST /v1/layout?bucket=b": func(ctx context.Context) error {
			_, err := c.Layout(ctx, "b", false, nil)
			return err
		},
		"POST /v1/layout?bucket=b&exact=1": func(ctx context.Context) error {
			_, err := c.Layout(ctx, "b", true, nil)
			return err
		},
	} {
		require.NoError(t, do(t.Context()))
		require.Equal(t, want, asked)
	}
}

// The limit on the time in which a server reads requests is for requests, not for answers: those that take longer end
// as they should.
func TestAnswersMayTakeLongerThanRequests(t *testing.T) {
	s := answeringSlowly(t)
	began := time.Now()
	sum, err := clientOf(t, s).Verify(t.Context(), adminapi.Verify{},
		func(repair.Finding) {}, func(repair.Summary) {})
	require.NoError(t, err)
	require.Greater(t, sum.Rows, int64(0))
	require.Greater(t, time.Since(began), 2*readTime, "else the test shows nothing")
}
