package console

import (
	"io/fs"
	"net/http"
	"net/http/httptest"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func get(method, target string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	Handler().ServeHTTP(w, r)
	return w
}

func files(t *testing.T) (names []string) {
	t.Helper()
	require.NoError(t, fs.WalkDir(embedded, "assets", func(name string, d fs.DirEntry, err error) error {
		if !d.IsDir() {
			names = append(names, strings.TrimPrefix(name, "assets/"))
		}
		return err
	}))
	return names
}

func TestEveryFileIsServed(t *testing.T) {
	for _, name := range files(t) {
		w := get("GET", "/console/"+name)
		require.Equal(t, 200, w.Code, name)
		require.Equal(t, types[path.Ext(name)], w.Header().Get("Content-Type"), name)
		require.Contains(t, w.Header().Get("Content-Security-Policy"), "script-src 'self';", name)
		require.Equal(t, "nosniff", w.Header().Get("X-Content-Type-Options"), name)
		tag := w.Header().Get("ETag")
		require.Equal(t, 304, get("GET", "/console/"+name, "If-None-Match", tag).Code, name)
	}
	require.Equal(t, get("GET", "/console/index.html").Body.String(), get("GET", "/console/").Body.String())
}

func TestNothingElseIsServed(t *testing.T) {
	for target, want := range map[string]int{
		"/console/nothing": 404, "/console/../console.go": 404, "/console/assets/index.html": 404,
		"/console": 404, "/index.html": 404,
	} {
		require.Equal(t, want, get("GET", target).Code, target)
	}
	w := get("POST", "/console/")
	require.Equal(t, http.StatusMethodNotAllowed, w.Code)
	require.Equal(t, "GET, HEAD", w.Header().Get("Allow"))
}

// TestPagesLoadOnlyWhatIsThere: each file that a page or a script names exists, none is on another
// server, and none holds what the Content-Security-Policy forbids.
func TestPagesLoadOnlyWhatIsThere(t *testing.T) {
	loads := regexp.MustCompile(`(?m)^(?:import .* |\} )from '([^']+)'|\s(?:src|href)="([^"#]+)"`)
	forbidden := regexp.MustCompile(`(?i)<script(?:[^>]*[^>\s])?\s*>\s*[^<\s]|<style|\sstyle=|\son[a-z]+="|\beval\(|` +
		`new Function\(|innerHTML|outerHTML|insertAdjacentHTML|document\.write`)
	found := 0
	for _, name := range files(t) {
		text := get("GET", "/console/"+name).Body.String()
		require.Empty(t, forbidden.FindString(text), name)
		for _, m := range loads.FindAllStringSubmatch(text, -1) {
			found++
			require.Equal(t, 200, get("GET", "/console/"+path.Join(path.Dir(name), m[1]+m[2])).Code, m[0])
		}
		for _, m := range regexp.MustCompile(`https?://[^\s"')]+`).FindAllString(text, -1) {
			require.Equal(t, "http://www.w3.org/2000/svg", m, name) // a namespace, not an address
		}
	}
	require.Greater(t, found, 30, "files that others load")
}

// TestPagesFindTheAPIBesideThemselves: no script asks for a path from the root of a host, as a program may have the
// console below any path.
func TestPagesFindTheAPIBesideThemselves(t *testing.T) {
	asks := regexp.MustCompile(`\b(?:fetch|EventSource|WebSocket|Request)\((.{3})`)
	found := 0
	for _, name := range files(t) {
		for _, m := range asks.FindAllStringSubmatch(get("GET", "/console/"+name).Body.String(), -1) {
			found++
			require.Equal(t, "at(", m[1], "%s: %s", name, m[0])
		}
	}
	require.Equal(t, 2, found)
}
