package evenkeel_test

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel"
	"github.com/evenkeel/evenkeel/store"
)

// ask sends a request to a handler that is below /admin, and returns the answer.
func ask(h http.Handler, method, target string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, strings.NewReader("{}"))
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	http.StripPrefix("/admin", h).ServeHTTP(w, r)
	return w
}

// TestHandlerIsBelowAnyPath: browsers find the console and its API below the path of the handler, and at /.
func TestHandlerIsBelowAnyPath(t *testing.T) {
	db := openDB(t, evenkeel.Options{})
	mux := http.NewServeMux()
	mux.Handle("/some/where/", http.StripPrefix("/some/where", db.Handler(evenkeel.HandlerOptions{})))
	mux.Handle("/slash/", http.StripPrefix("/slash/", db.Handler(evenkeel.HandlerOptions{})))
	mux.Handle("/bare", http.StripPrefix("/bare", db.Handler(evenkeel.HandlerOptions{})))
	mux.Handle("/bare/", http.StripPrefix("/bare", db.Handler(evenkeel.HandlerOptions{})))
	mux.Handle("/", db.Handler(evenkeel.HandlerOptions{}))
	server := httptest.NewServer(mux)
	defer server.Close()
	for from, to := range map[string]string{
		"/": "/console/", "/console": "/console/", "/console/": "/console/",
		"/some/where": "/some/where/console/", "/some/where/": "/some/where/console/",
		"/some/where/console": "/some/where/console/",
		"/slash/":             "/slash/console/", "/slash/console": "/slash/console/",
		"/bare": "/bare/console/", "/bare/?x=1": "/bare/console/", "/bare?x=/y/z": "/bare/console/",
	} {
		answer, err := http.Get(server.URL + from)
		require.NoError(t, err)
		page, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		require.Equal(t, 200, answer.StatusCode, from)
		require.Equal(t, to, answer.Request.URL.Path, from)
		require.Contains(t, string(page), `src="app.js"`)
		api, err := answer.Request.URL.Parse("../v1/session") // as api.js does
		require.NoError(t, err)
		answer, err = http.Get(api.String())
		require.NoError(t, err)
		var session map[string]bool
		require.NoError(t, json.NewDecoder(answer.Body).Decode(&session))
		require.NoError(t, answer.Body.Close())
		require.Equal(t, map[string]bool{"required": false, "signed_in": true}, session)
	}
}

// TestHandlerOnlyShows, unless the program allows commands; and never what a page of another origin asks for.
func TestHandlerOnlyShows(t *testing.T) {
	db := openDB(t, evenkeel.Options{})
	require.NoError(t, db.CreateBucket(t.Context(), "photos"))
	shows := db.Handler(evenkeel.HandlerOptions{})
	commands := db.Handler(evenkeel.HandlerOptions{Commands: true})
	for _, c := range []struct {
		h              http.Handler
		method, target string
		headers        []string
		want           int
	}{
		{shows, "GET", "/admin/v1/status", nil, 200},
		{shows, "HEAD", "/admin/v1/status", nil, 200},
		{shows, "GET", "/admin/v1/ranges?bucket=photos", nil, 200},
		{shows, "GET", "/admin/v1/map?bucket=photos", nil, 200},
		{shows, "GET", "/admin/v1/map?bucket=nothing", nil, 404},
		{shows, "GET", "/admin/v1/nothing", nil, 404},
		{shows, "GET", "/admin/nothing", nil, 404},
		{shows, "GET", "/admin/console/nothing", nil, 404},
		{shows, "GET", "/admin/console/../v1/pause", nil, 404},
		{shows, "POST", "/admin/console/", nil, 405},
		{shows, "POST", "/admin/v1/pause", nil, 403},
		{shows, "POST", "/admin/v1/plan", nil, 403},
		{shows, "POST", "/admin/v1/backup", nil, 403},
		{shows, "DELETE", "/admin/v1/status", nil, 403},
		{shows, "post", "/admin/v1/pause", nil, 403},
		{shows, "GET", "/admin/v1/status", []string{"Sec-Fetch-Site", "same-origin"}, 200},
		{shows, "GET", "/admin/v1/status", []string{"Sec-Fetch-Site", "cross-site"}, 403},
		{shows, "GET", "/admin/v1/session", []string{"Origin", "http://evil.test"}, 403},
		{commands, "POST", "/admin/v1/pause", []string{"Sec-Fetch-Site", "cross-site"}, 403},
		{commands, "POST", "/admin/v1/pause", []string{"Origin", "http://evil.test"}, 403},
		{commands, "POST", "/admin/v1/pause", nil, 200},
		{commands, "POST", "/admin/v1/resume", nil, 200},
	} {
		w := ask(c.h, c.method, c.target, c.headers...)
		require.Equal(t, c.want, w.Code, "%s %s %v: %s", c.method, c.target, c.headers, w.Body)
		if strings.HasPrefix(c.target, "/admin/v1/") && c.want != 200 && c.method != "HEAD" {
			var problem struct{ Error, Kind string }
			require.NoError(t, json.Unmarshal(w.Body.Bytes(), &problem), "%s", w.Body)
			require.NotEmpty(t, problem.Error)
		}
	}
}

// TestStatusKnowsOfPauses, which commands set.
func TestStatusKnowsOfPauses(t *testing.T) {
	ctx, db := t.Context(), openDB(t, evenkeel.Options{})
	h := db.Handler(evenkeel.HandlerOptions{Commands: true})
	require.Equal(t, 200, ask(h, "POST", "/admin/v1/pause").Code)
	s, err := db.Status(ctx)
	require.NoError(t, err)
	require.Len(t, s.Problems, 1)
	require.Contains(t, s.Problems[0], "all moves are paused since 2")
	require.Equal(t, 200, ask(h, "POST", "/admin/v1/resume").Code)
	s, err = db.Status(ctx)
	require.NoError(t, err)
	require.Empty(t, s.Problems)
}

// TestHandlerOfAnUnbalancedDirectory shows maps and the status, has no figures, and takes no commands.
func TestHandlerOfAnUnbalancedDirectory(t *testing.T) {
	db := openDB(t, evenkeel.Options{Unbalanced: true})
	require.NoError(t, db.CreateBucket(t.Context(), "photos"))
	h := db.Handler(evenkeel.HandlerOptions{Commands: true})
	w := ask(h, "GET", "/admin/v1/status")
	require.Equal(t, 200, w.Code)
	var status struct{ Leading bool }
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &status))
	require.False(t, status.Leading)
	require.Equal(t, 200, ask(h, "GET", "/admin/v1/map?bucket=photos").Code)
	require.Equal(t, 200, ask(h, "GET", "/admin/v1/cluster").Code)
	for _, path := range []string{"buckets", "ranges?bucket=photos", "events", "heat?bucket=photos", "moves", "usage"} {
		require.Equal(t, 404, ask(h, "GET", "/admin/v1/"+path).Code, path)
	}
	require.Equal(t, 403, ask(h, "POST", "/admin/v1/moves").Code)
}

// TestHandlerEndsWithTheDB: requests under way end, and later ones are refused.
func TestHandlerEndsWithTheDB(t *testing.T) {
	db, err := evenkeel.Open(t.TempDir(), evenkeel.Options{})
	require.NoError(t, err)
	h := db.Handler(evenkeel.HandlerOptions{Commands: true})
	server := httptest.NewServer(h)
	defer server.Close()
	events, err := http.Get(server.URL + "/v1/events")
	require.NoError(t, err)
	defer events.Body.Close()
	stream := bufio.NewReader(events.Body)
	first, err := stream.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "event: status\n", first)
	require.NoError(t, db.Close())
	_, err = io.Copy(io.Discard, stream)
	require.NoError(t, err, "the stream has ended")
	for _, target := range []string{"/admin/v1/status", "/admin/v1/session", "/admin/v1/map?bucket=b"} {
		w := ask(h, "GET", target)
		require.Equal(t, http.StatusServiceUnavailable, w.Code, target)
		require.Contains(t, w.Body.String(), store.Unavailable.Error())
	}
	require.Equal(t, 200, ask(h, "GET", "/admin/console/").Code, "the page says that nothing answers")
}
