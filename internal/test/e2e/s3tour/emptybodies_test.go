package s3tour

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/s3api"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// TestEmptyAndFullBodies: AWS's clients for Python, which announce the bodies of all puts, empty ones too, send
// each put once. A client that waits for an answer in vain would time out, and fail or send it again.
func TestEmptyAndFullBodies(t *testing.T) {
	t.Parallel()
	st := memstore.New()
	t.Cleanup(func() { require.NoError(t, st.Close()) })
	c, err := listing.New(st, listing.Options{})
	require.NoError(t, err)
	h, err := s3api.New(s3api.Over(c), s3api.Options{})
	require.NoError(t, err)
	var mu sync.Mutex
	puts, announced := map[string]int{}, map[string]bool{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut {
			mu.Lock()
			puts[r.URL.Path]++
			announced[r.URL.Path] = r.Header.Get("Expect") != ""
			mu.Unlock()
		}
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	boto, err := Boto(At(server.URL))
	require.NoError(t, err)
	cli := AWSCLI(At(server.URL))
	dir := t.TempDir()
	want := map[string]int{}
	for i := range 6 { // every other one is empty
		name := fmt.Sprint("f", i)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("full")[:i%2*4], 0o600))
		want["/awscli/"+name] = 1
	}
	for _, name := range []string{"a/", "b", "c", "d"} {
		want["/boto3/"+name] = 1
	}
	require.NoError(t, c.CreateBucket(t.Context(), "boto3"))
	require.NoError(t, c.CreateBucket(t.Context(), "awscli"))
	_, err = boto.(commands).run(t.Context(), "puts BUCKET", "boto3", "", "")
	require.NoError(t, err)
	require.NoError(t, cli.Up(t.Context(), dir, "awscli", ""))
	require.Equal(t, want, puts)
	for name := range want {
		require.True(t, announced[name], "%s was not announced: the clients have changed", name)
	}
}
