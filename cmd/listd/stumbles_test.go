package main

import (
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/s3api"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// says runs the program, which must fail with a code, and with a text on standard error that has
// each part.
func says(t *testing.T, code int, args string, parts ...string) {
	t.Helper()
	o := listd(t, "a\n", strings.Fields(args)...)
	require.Equal(t, code, o.code, "listd %s: %s%s", args, o.out, o.err)
	for _, part := range parts {
		require.Contains(t, o.err, part, "listd %s", args)
	}
}

func TestAServerThatIsNotThereIsNotWaitedFor(t *testing.T) {
	for _, command := range []string{"bucket list", "ls abc", "load abc --create"} {
		says(t, daemon.ExitFailed, command+" --patience 1h --server http://127.0.0.1:1", "connection refused",
			"is `listd serve` running?")
	}
	says(t, daemon.ExitFailed, "bucket list --patience 1h --server http://nobody.invalid:9000", "nobody.invalid")
}

func TestWrongSchemesAndCertificates(t *testing.T) {
	sealed := httptest.NewTLSServer(http.NotFoundHandler())
	defer sealed.Close()
	sealed.Config.ErrorLog = nil
	host := strings.TrimPrefix(sealed.URL, "https://")
	says(t, daemon.ExitFailed, "bucket list --patience 1h --server http://"+host, "speaks TLS", "--server https://"+host)
	says(t, daemon.ExitFailed, "bucket list --patience 1h --server "+sealed.URL, "--server-ca-file")
	says(t, daemon.ExitFailed, "backup /backup --admin http://"+host, "speaks TLS", "--admin https://"+host)
	says(t, daemon.ExitFailed, "backup /backup --admin "+sealed.URL, "--admin-ca-file")
	open := strings.TrimPrefix(memServer(t), "http://")
	says(t, daemon.ExitFailed, "bucket list --patience 1h --server https://"+open, "plain HTTP", "--server http://"+open)
	says(t, daemon.ExitFailed, "backup /backup --admin https://"+open, "plain HTTP", "--admin http://"+open)

	ca := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(ca,
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: sealed.Certificate().Raw}), 0o600))
	other := strings.Replace(sealed.URL, "127.0.0.1", "localhost", 1)
	says(t, daemon.ExitFailed, "bucket list --patience 1h --server "+other+" --server-ca-file "+ca, "another host")
}

func TestValuesOfFlagsThatAreRefused(t *testing.T) {
	says(t, daemon.ExitUsage, "ls abc --log-level loud", "--log-level", "debug, info, warn or error", "loud")
	says(t, daemon.ExitUsage, "ls abc --limit -1", "--limit", "0", "not -1")
	says(t, daemon.ExitUsage, "ls abc --limit=-1", "--limit", "0", "not -1")
	says(t, daemon.ExitUsage, "ls abc --parallel 0", "--parallel", "1 to 256", "not 0")
	says(t, daemon.ExitUsage, "load abc --concurrency -7", "--concurrency", "1 to 4096", "not -7")
}

func TestBrokenSettingsFilesAreNamed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "listd.yaml")
	for text, want := range map[string][]string{
		"serve: [1":                                 {"not YAML"},
		"just a sentence":                           {"not YAML"},
		"serve:\n  dta: /x\nls: {paralel: 3}\n":     {"ls-paralel, serve-dta", "don't exist"},
		"serve:\n  max-requests: many\n":            {"--max-requests", "many"},
		"log-level: loud\n":                         {"--log-level", "debug, info, warn or error"},
		"log-format: xml\n":                         {"--log-format", "text, json", "xml"},
		"serve:\n  listen: 127.0.0.1:0\n  data: /x": nil,
	} {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		args := "--config " + file + " config"
		if want == nil {
			ok(t, "", strings.Fields(args)...)
			continue
		}
		o := listd(t, "", strings.Fields(args)...)
		require.Equal(t, daemon.ExitUsage, o.code, text)
		for _, part := range append(want, file) {
			require.Contains(t, o.err, part, text)
		}
	}
	says(t, daemon.ExitUsage, "--config /no/such/file config", "--config", "/no/such/file: no such file")
	t.Setenv("EVENKEEL_CONFIG", "/no/such/file")
	says(t, daemon.ExitUsage, "config", "EVENKEEL_CONFIG", "/no/such/file")
}

// One file may be shared with rebalancer: what concerns both stands outside of the sections.
func TestASettingsFileForBothPrograms(t *testing.T) {
	file := filepath.Join(t.TempDir(), "evenkeel.yaml")
	require.NoError(t, os.WriteFile(file, []byte(`
cassandra: [10.0.0.1, 10.0.0.2]
local-dc: dc1
counter: redis://10.0.0.9/0
max-rows: 50000
plan:
  planner: exact
run:
  admin-listen: 127.0.0.1:9002
serve:
  max-rows: 60000
`), 0o600))
	out := ok(t, "", "--config", file, "config")
	for _, want := range []string{"- 10.0.0.2", "local-dc: dc1 # file", "counter: redis://10.0.0.9/0 # file",
		"max-rows: 60000 # file"} {
		require.Contains(t, out, want)
	}
}

// A bucket that the library has made may have a name that S3 does not allow.
func TestBucketsWithNamesThatS3DoesNotAllow(t *testing.T) {
	c, err := listing.New(memstore.New(), listing.Options{})
	require.NoError(t, err)
	h, err := s3api.New(s3api.Over(c), s3api.Options{})
	require.NoError(t, err)
	server := httptest.NewServer(h)
	defer server.Close()
	for _, name := range []string{"My Photos", "a/b", "x", "usual-name"} {
		require.NoError(t, c.CreateBucket(t.Context(), name))
	}
	require.NoError(t, c.Bucket("x").Put(t.Context(), []byte("key"), nil))
	require.Equal(t, "My Photos\na/b\nusual-name\nx\n", ok(t, "", "bucket", "list", "--server", server.URL))
	for _, name := range []string{"My Photos", "a/b", "usual-name"} {
		ok(t, "", "bucket", "delete", name, "--server", server.URL)
	}
	require.Equal(t, "x\n", ok(t, "", "bucket", "list", "--server", server.URL))
	says(t, daemon.ExitFailed, "bucket delete x --server "+server.URL, "BucketNotEmpty")
	says(t, daemon.ExitFailed, "bucket delete Other_Name --server "+server.URL, "InvalidBucketName")
	says(t, daemon.ExitFailed, "bucket create Other_Name --server "+server.URL, "InvalidBucketName")
}

// A client that sends a large body in parts learns where it belongs.
func TestLargeBodiesAreRefusedWithTheRemedy(t *testing.T) {
	server := memServer(t)
	ok(t, "", "bucket", "create", "abc", "--server", server)
	resp, err := http.Post(server+"/abc/large?uploads", "", nil)
	require.NoError(t, err)
	defer resp.Body.Close()
	require.Equal(t, http.StatusNotImplemented, resp.StatusCode)
	text := make([]byte, 4096)
	n, _ := resp.Body.Read(text)
	for _, part := range []string{"CreateMultipartUpload", "metadata", "x-evenkeel-size", "x-evenkeel-etag"} {
		require.Contains(t, strings.ToLower(string(text[:n])), strings.ToLower(part))
	}
}

// A full disk does not pass within the patience for a server that restarts: commands say so at once.
func TestAFullDiskIsNotWaitedFor(t *testing.T) {
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodHead {
			return
		}
		asked.Add(1)
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusInsufficientStorage)
		fmt.Fprint(w, "<Error><Code>InsufficientStorage</Code><Message>the disk is full: make room</Message></Error>")
	}))
	defer server.Close()
	for _, command := range []string{"put abc k --value v", "load abc --progress none", "bucket create abc"} {
		asked.Store(0)
		says(t, daemon.ExitFailed, command+" --patience 20s --server "+server.URL, "InsufficientStorage", "make room")
		require.Equal(t, int64(1), asked.Load(), command)
	}
}

func TestHelpGroupsItsFlags(t *testing.T) {
	help := ok(t, "", "serve", "--help")
	for _, group := range []string{"Embedded store:", "Admin address:", "Sizes and moves:", "Cassandra:", "Log:"} {
		require.Contains(t, help, "\n"+group+"\n")
	}
	require.NotContains(t, help, "$EVENKEEL_MAX_ROWS", "the usual variables are explained once")
	require.Contains(t, ok(t, "", "ls", "--help"), "$AWS_ACCESS_KEY_ID")
}
