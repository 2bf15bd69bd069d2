package s3tour

import (
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/sigv4"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/s3api"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// farAddress is one of this machine that is not loopback.
func farAddress(t *testing.T) string {
	t.Helper()
	all, err := net.InterfaceAddrs()
	require.NoError(t, err)
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && !n.IP.IsLoopback() && !n.IP.IsLinkLocalUnicast() {
			return n.IP.String()
		}
	}
	t.Skip("this machine has loopback addresses only")
	return ""
}

// All clients reach a server over plain HTTP from other machines with what they send
// of their own accord: nothing that is stored is sent with an open body. What stands
// for the bodies of objects is as docs/s3.md has it.
func TestPlainHTTPFromAfar(t *testing.T) {
	st := memstore.New()
	t.Cleanup(func() { require.NoError(t, st.Close()) })
	c, err := listing.New(st, listing.Options{})
	require.NoError(t, err)
	text, err := os.ReadFile(KeysFile(t, t.TempDir()))
	require.NoError(t, err)
	keys, err := s3api.ParseKeys(text)
	require.NoError(t, err)
	h, err := s3api.New(s3api.Over(c), s3api.Options{Keys: keys})
	require.NoError(t, err)
	l, err := net.Listen("tcp4", net.JoinHostPort(farAddress(t), "0"))
	require.NoError(t, err)
	const file = "file with a name"
	var mu sync.Mutex
	stands := map[string]string{} // by bucket, which is the client
	srv := &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			if bucket, key, _ := strings.Cut(r.URL.Path[1:], "/"); r.Method == http.MethodPut && key == file {
				mu.Lock()
				stands[bucket] = r.Header.Get("X-Amz-Content-Sha256")
				mu.Unlock()
			}
			h.ServeHTTP(w, r)
		},
	)}}
	srv.Start()
	t.Cleanup(srv.Close)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte("hello"), 0o600))
	digest := sigv4.PayloadOf([]byte("hello"))
	want := map[string]string{
		"aws-sdk-go": digest, "awscli": digest, "boto3": digest, "s3cmd": digest,
		"minio-go": sigv4.SignedChunks,
		"rclone":   sigv4.UnsignedPayload, // with a signed Content-MD5
	}
	t.Run("clients", func(t *testing.T) {
		for name, client := range Clients(t, At(srv.URL)) {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				require.NoError(t, client.Create(t.Context(), name))
				require.NoError(t, client.Up(t.Context(), dir, name, ""))
				found, err := client.Keys(t.Context(), name, "")
				require.NoError(t, err)
				require.Equal(t, []string{file}, found)
				require.NoError(t, client.Empty(t.Context(), name))
				require.NoError(t, client.Remove(t.Context(), name))
			})
		}
	})
	require.Equal(t, want, stands)
}
