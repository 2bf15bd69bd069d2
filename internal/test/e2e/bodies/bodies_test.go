package bodies

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/base64"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/internal/test/e2e/harness"
	"github.com/evenkeel/evenkeel/internal/test/seed"
)

func TestMain(m *testing.M) { os.Exit(harness.Run(m, nil)) }

const (
	keyID  = "FRONT"
	secret = "the secret of the store of bodies"
)

// pair is a server, front, that keeps its bodies in a bucket of another one.
type pair struct {
	p           *harness.Programs
	front, back *harness.Server
	// flags of both.
	frontFlags, backFlags []string
}

func newPair(t *testing.T, backFlags ...string) *pair {
	p := harness.Build(t)
	p.Environment = []string{"AWS_ACCESS_KEY_ID=" + keyID, "AWS_SECRET_ACCESS_KEY=" + secret}
	keys := filepath.Join(p.Dir, "keys.yaml")
	require.NoError(t, os.WriteFile(keys, []byte("keys:\n- {id: "+keyID+", secret: "+secret+
		", access: read-write, only: [bodies]}\ncomplete: true\n"), 0o600))
	two := &pair{p: p, backFlags: append(backFlags,
		"--data", filepath.Join(p.Dir, "back"), "--keys-file", keys)}
	two.back = p.Serve(two.backFlags...)
	address := strings.TrimPrefix(two.back.S3, "http://")
	two.backFlags = append(two.backFlags, "--listen", address)
	two.backCommand("bucket", "create", "bodies")
	two.frontFlags = []string{"--data", filepath.Join(p.Dir, "front"),
		"--bodies", "s3://bodies?endpoint=" + url.QueryEscape(two.back.S3)}
	two.front = p.Serve(two.frontFlags...)
	p.Run("listd", "bucket", "create", "files", "--server", two.front.S3)
	return two
}

// backCommand runs a command against the store of bodies.
func (two *pair) backCommand(args ...string) string {
	two.p.T.Helper()
	return two.p.Run("listd", append(args, "--server", two.back.S3, "--access-key", keyID, "--secret-key", secret)...)
}

// blobs are the names of what the store of bodies has, but for whose they are.
func (two *pair) blobs() []string {
	two.p.T.Helper()
	return slices.DeleteFunc(strings.Fields(two.backCommand("ls", "bodies")), func(s string) bool { return s == "_owner" })
}

func (two *pair) put(body io.Reader, size int64, headers ...string) (int, string) {
	req, err := http.NewRequestWithContext(two.p.T.Context(), http.MethodPut, two.front.S3+"/files/a/b", body)
	if err != nil {
		return 0, err.Error()
	}
	req.ContentLength = size
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text)
}

// has checks that the object is what was put.
func (two *pair) has(body []byte) {
	t := two.p.T
	t.Helper()
	got := harness.Request(t, http.MethodGet, two.front.S3+"/files/a/b", "")
	require.Equal(t, 200, got.Status)
	require.True(t, bytes.Equal(body, []byte(got.Body)))
}

// listed checks that listings and small objects do not need the store of bodies.
func (two *pair) listed() {
	t := two.p.T
	t.Helper()
	require.Equal(t, "a/b\n", two.p.Run("listd", "ls", "files", "--server", two.front.S3, "--prefix", "a/"))
	require.Equal(t, 200, harness.Request(t, http.MethodHead, two.front.S3+"/files/a/b", "").Status)
	require.Equal(t, 200, harness.Request(t, http.MethodPut, two.front.S3+"/files/small", "hello").Status)
	require.Equal(t, "hello", harness.Request(t, http.MethodGet, two.front.S3+"/files/small", "").Body)
}

func random(t *testing.T, n int) []byte {
	var key [32]byte
	for i, r := 0, seed.New(t); i < len(key); i++ {
		key[i] = byte(r.Uint32())
	}
	b := make([]byte, n)
	_, _ = rand.NewChaCha8(key).Read(b)
	return b
}

// Bodies are in the other server's bucket, whole or not at all.
func TestBodiesInAnotherStore(t *testing.T) {
	t.Parallel()
	two := newPair(t)
	body := random(t, 12<<20)
	sum := md5.Sum(body)
	for name, put := range map[string]func() (int, string){
		"another digest": func() (int, string) {
			return two.put(bytes.NewReader(body), int64(len(body)),
				"Content-MD5", base64.StdEncoding.EncodeToString(make([]byte, md5.Size)))
		},
		"another digest, unknown length": func() (int, string) {
			return two.put(io.MultiReader(bytes.NewReader(body)), -1,
				"Content-MD5", base64.StdEncoding.EncodeToString(make([]byte, md5.Size)))
		},
	} {
		status, text := put()
		require.Equal(t, 400, status, name)
		require.Contains(t, text, "BadDigest", name)
	}
	for _, header := range []string{fmt.Sprintf("Content-Length: %d", len(body)), "Transfer-Encoding: chunked"} {
		c, err := net.Dial("tcp", strings.TrimPrefix(two.front.S3, "http://"))
		require.NoError(t, err)
		_, err = fmt.Fprintf(c, "PUT /files/a/b HTTP/1.1\r\nHost: 127.0.0.1\r\n%s\r\n\r\n", header)
		require.NoError(t, err)
		if strings.HasPrefix(header, "T") {
			_, err = fmt.Fprintf(c, "%x\r\n", len(body)-1)
			require.NoError(t, err)
		}
		_, err = c.Write(body[:len(body)-1])
		require.NoError(t, err)
		require.NoError(t, c.Close())
	}
	harness.Eventually(t, "both uploads have ended", func() bool {
		m := harness.Request(t, http.MethodGet, two.front.Admin+"/metrics", "").Body
		return strings.Contains(m, `status="400"} 4`)
	})
	require.Equal(t, 404, harness.Request(t, http.MethodGet, two.front.S3+"/files/a/b", "").Status)
	require.Empty(t, two.blobs())

	for _, size := range []int64{int64(len(body)), -1} {
		status, text := two.put(io.MultiReader(bytes.NewReader(body)), size)
		require.Equal(t, 200, status, text)
		two.has(body)
	}
	require.Len(t, two.blobs(), 2, "replaced ones stay for a day")
	got, err := harness.RequestOf(t.Context(), http.MethodGet, two.front.S3+"/files/a/b", "",
		"Range", "bytes=7000000-7000009")
	require.NoError(t, err)
	require.Equal(t, string(body[7000000:7000010]), got.Body)
	require.Equal(t, fmt.Sprintf("%q", fmt.Sprintf("%x", sum)), got.Header.Get("ETag"))

	require.Equal(t, 0, two.front.End(syscall.SIGTERM))
	require.NotContains(t, two.front.Log.String(), secret)
	two.front = two.p.Serve(two.frontFlags...)
	two.has(body)

	// What the store loses is reported, and does not spoil anything else.
	for _, name := range two.blobs() {
		two.backCommand("rm", "bodies", name)
	}
	lost := harness.Request(t, http.MethodGet, two.front.S3+"/files/a/b", "")
	require.Equal(t, 500, lost.Status)
	require.Contains(t, lost.Body, "the body of the version is lost from the store of blobs")
	two.listed()
}

// A store of bodies that stops, or is away, costs what needs it an error within a bounded time, and nothing else.
func TestStoreOfBodiesAway(t *testing.T) {
	t.Parallel()
	two := newPair(t)
	body := random(t, 1<<20)
	large := make([]byte, 64<<20)
	status, text := two.put(bytes.NewReader(body), int64(len(body)))
	require.Equal(t, 200, status, text)

	refused := func() {
		t.Helper()
		var g errgroup.Group
		g.Go(func() error {
			status, text := two.put(bytes.NewReader(large), int64(len(large)))
			if status != 503 {
				return fmt.Errorf("the put: %d %s", status, text)
			}
			return nil
		})
		g.Go(func() error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			got, err := harness.RequestOf(ctx, http.MethodGet, two.front.S3+"/files/a/b", "")
			if err == nil && got.Status != 503 {
				err = fmt.Errorf("the get: %d", got.Status)
			}
			return err
		})
		two.listed()
		require.NoError(t, g.Wait())
	}
	harness.Halt(t, two.back.Cmd.Process)
	refused()
	require.NoError(t, two.back.Cmd.Process.Signal(syscall.SIGCONT))
	two.has(body)

	two.back.Kill()
	refused()
	// It starts without, too.
	require.Equal(t, 0, two.front.End(syscall.SIGTERM))
	two.front = two.p.Serve(two.frontFlags...)
	require.Contains(t, two.front.Log.String(), "can't be reached")
	refused()
	two.back = two.p.Serve(two.backFlags...)
	two.has(body)
	status, text = two.put(bytes.NewReader(large), int64(len(large)))
	require.Equal(t, 200, status, text)
	two.has(large)
}

// A store of bodies that is full is reported as what it is.
func TestStoreOfBodiesFull(t *testing.T) {
	t.Parallel()
	disk := t.TempDir()
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=4m"); err != nil {
		t.Skipf("a file system can't be mounted here: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(disk, syscall.MNT_DETACH)) })
	two := newPair(t, "--bodies", "file://"+disk)
	body := random(t, 1<<20)
	status, text := two.put(bytes.NewReader(body), int64(len(body)))
	require.Equal(t, 200, status, text)
	for _, size := range []int64{6 << 20, -1} {
		status, text = two.put(io.MultiReader(bytes.NewReader(make([]byte, 6<<20))), size)
		require.Equal(t, 507, status, text)
		require.Contains(t, text, "InsufficientStorage")
	}
	two.has(body)
	two.listed()
	require.Len(t, two.blobs(), 1)
}

// Mistakes that will not pass by themselves end the start.
func TestStartsThatAreRefused(t *testing.T) {
	t.Parallel()
	two := newPair(t)
	try := func(environment []string, bodies string) (int, string) {
		p := harness.Build(t)
		p.Environment = environment
		code, _, errs := p.Try("listd", "serve", "--data", filepath.Join(p.Dir, "data"), "--listen", "127.0.0.1:0",
			"--admin", "127.0.0.1:0", "--bodies", bodies)
		return code, errs
	}
	noKey := []string{"AWS_ACCESS_KEY_ID=", "AWS_SHARED_CREDENTIALS_FILE=/nowhere"}
	anotherKey := []string{"AWS_ACCESS_KEY_ID=" + keyID, "AWS_SECRET_ACCESS_KEY=another"}
	at := "?endpoint=" + url.QueryEscape(two.back.S3)
	for name, c := range map[string]struct {
		environment  []string
		bodies, says string
		code         int
	}{
		"no key":          {noKey, "s3://bodies" + at, "AWS_ACCESS_KEY_ID", 3},
		"another key":     {anotherKey, "s3://bodies" + at, "not good", 3},
		"no such bucket":  {two.p.Environment, "s3://others" + at, "others", 3},
		"a key in it":     {two.p.Environment, "s3://FRONT:" + url.QueryEscape(secret) + "@bodies" + at, "do not belong", 2},
		"another form":    {two.p.Environment, "gs://bodies", "s3://BUCKET", 2},
		"what it has not": {two.p.Environment, "s3://bodies" + at + "&prefix=x", "endpoint and region", 2},
	} {
		code, errs := try(c.environment, c.bodies)
		require.Equal(t, c.code, code, "%s: %s", name, errs)
		require.Contains(t, errs, c.says, name)
		require.NotContains(t, errs, url.QueryEscape(secret))
	}
}
