package console

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/test/e2e/harness"
)

// TestConsoleBelowAPath: the console is live below any path of another server, which programs that embed a DB, and
// proxies, give it.
func TestConsoleBelowAPath(t *testing.T) {
	p := harness.Build(t)
	s := p.Serve("--data", filepath.Join(p.Dir, "data"), "--admin-token", token)
	to, err := url.Parse(s.Admin)
	require.NoError(t, err)
	mux := http.NewServeMux()
	mux.Handle("/some/where/", http.StripPrefix("/some/where", httputil.NewSingleHostReverseProxy(to)))
	server := httptest.NewServer(mux)
	defer server.Close()
	b := NewBrowser(t, Desk)
	b.Go(server.URL + "/some/where/console/")
	b.Says("Admin token")
	b.Press(token, kb.Enter)
	b.Says("There is no bucket yet")
	b.Says("live")
	b.Go(server.URL + "/some/where/console/#/cluster")
	b.Says("This process")
	require.Empty(t, b.Problems())
	b.Click("Sign out")
	b.Says("Admin token")
}
