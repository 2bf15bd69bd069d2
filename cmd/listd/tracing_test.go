package main

import (
	protobuf "encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon"
	"github.com/evenkeel/evenkeel/cmd/internal/daemon/tracing"
	"github.com/evenkeel/evenkeel/store/cassandrastore"
)

// message is one of protobuf: the values of its fields of bytes.
type message map[uint64][]string

// parse reads the fields of a message that have bytes.
func parse(t *testing.T, b string) message {
	t.Helper()
	m := message{}
	for len(b) > 0 {
		tag, n := protobuf.Uvarint([]byte(b))
		require.Positive(t, n)
		b = b[n:]
		switch tag & 7 {
		case 0:
			_, n := protobuf.Uvarint([]byte(b))
			b = b[n:]
		case 1:
			b = b[8:]
		case 5:
			b = b[4:]
		case 2:
			size, n := protobuf.Uvarint([]byte(b))
			require.LessOrEqual(t, size, uint64(len(b)-n))
			m[tag>>3] = append(m[tag>>3], b[n:n+int(size)])
			b = b[n+int(size):]
		default:
			require.Fail(t, "no protobuf")
		}
	}
	return m
}

// span is what a receiver has got of one.
type span struct{ trace, id, parent, name string }

// collector is a receiver of OTLP over HTTP.
type collector struct {
	*httptest.Server
	mu       sync.Mutex
	refusals int // of the next requests
	spans    []span
	resource string
	auth     []string
}

func newCollector(t *testing.T) *collector {
	c := &collector{refusals: 1}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.auth = append(c.auth, r.Method+" "+r.URL.Path+" "+r.Header.Get("Authorization"))
		if c.refusals > 0 || err != nil {
			c.refusals--
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		for _, resource := range parse(t, string(body))[1] {
			fields := parse(t, resource)
			c.resource = strings.Join(fields[1], "")
			for _, scope := range fields[2] {
				for _, s := range parse(t, scope)[2] {
					f := parse(t, s)
					at := func(field uint64) string { return hex.EncodeToString([]byte(strings.Join(f[field], ""))) }
					c.spans = append(c.spans, span{at(1), at(2), at(4), strings.Join(f[5], "")})
				}
			}
		}
	}))
	t.Cleanup(c.Close)
	return c
}

// below are the names of the spans below one, sorted.
func (c *collector) below(id string) (names []string) {
	for _, s := range c.spans {
		if s.parent == id {
			names = append(names, s.name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// TestTraces: requests, leases and calls of the store come to a receiver, below the span of the client.
func TestTraces(t *testing.T) {
	c := newCollector(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", c.URL)
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20secret,x=y")
	t.Setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "none")
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
	p := start(t, t.TempDir(), "--request-log", "all")
	require.Contains(t, p.errs.String(), "requests are traced")
	ok(t, "", "bucket", "create", "abc", "--server", p.s3)
	const trace, client = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	send := func(method, path string) {
		req, err := http.NewRequestWithContext(t.Context(), method, p.s3+path, nil)
		require.NoError(t, err)
		req.Header.Set("Traceparent", "00-"+trace+"-"+client+"-01")
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		_, err = io.Copy(io.Discard, resp.Body)
		require.NoError(t, errors.Join(err, resp.Body.Close()))
	}
	send(http.MethodPut, "/abc/secret-key")
	send(http.MethodGet, "/abc/secret-key")
	send(http.MethodGet, "/abc?list-type=2")
	send(http.MethodDelete, "/abc/secret-key")
	send(http.MethodGet, "/nothing?list-type=2")
	require.Contains(t, p.errs.String(), "trace="+trace)
	_, status := get(t, p.admin+"/readyz")
	require.Equal(t, "ok\n", status)
	require.Equal(t, 0, p.end(syscall.SIGTERM), p.errs) // all spans are sent by then
	c.mu.Lock()
	defer c.mu.Unlock()
	require.Contains(t, c.resource, "listd")
	require.Contains(t, c.resource, "deployment.environment.name")
	require.Equal(t, []string{"POST /v1/traces Bearer secret"}, slices.Compact(c.auth))
	require.Equal(t, []string{"DeleteObject", "GetObject", "ListObjectsV2", "PutObject"}, c.below(client))
	require.Contains(t, c.below(""), "CreateBucket", "a client without a trace gets one")
	require.NotContains(t, p.errs.String(), "not exported", "what may pass is sent again")
	for _, s := range c.spans {
		require.NotContains(t, s.name, "secret")
		if s.parent != client {
			continue
		}
		require.Equal(t, trace, s.trace)
		want := map[string]string{
			"PutObject": "store put", "GetObject": "store slice", "ListObjectsV2": "store slice",
			"DeleteObject": "store put", // of a delete marker
		}
		names := slices.DeleteFunc(c.below(s.id), func(name string) bool { return name == "store read directory" })
		if slices.Contains(names, "map lease") {
			require.Equal(t, []string{"map lease", want[s.name]}, names, s.name)
		} else {
			require.Equal(t, "ListObjectsV2", s.name, "the list of a bucket that does not exist")
		}
	}
}

// Without an endpoint there are no spans, and settings that are not understood are refused.
func TestSettingsOfTraces(t *testing.T) {
	for name, value := range map[string]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT": "localhost:4317", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "nonsense",
		"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_EXPORTER_OTLP_TRACES_COMPRESSION": "zstd",
		"OTEL_EXPORTER_OTLP_TIMEOUT": "10s", "OTEL_EXPORTER_OTLP_HEADERS": "secret",
		"OTEL_EXPORTER_OTLP_CERTIFICATE": "/no/such/file", "OTEL_TRACES_EXPORTER": "zipkin",
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
			t.Setenv(name, value)
			o := listd(t, "", "serve", "--data", t.TempDir(), "--listen", "127.0.0.1:0", "--admin", "")
			require.Equal(t, daemon.ExitUsage, o.code, o.err)
			require.Contains(t, o.err, "OTEL_")
			require.NotContains(t, o.err, "secret")
		})
	}
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
	t.Setenv("OTEL_SDK_DISABLED", "true")
	p := start(t, t.TempDir())
	require.NotContains(t, p.errs.String(), "traced")
	require.Equal(t, 0, p.end(syscall.SIGTERM), p.errs)
}

// A store whose calls are traced still has its metrics.
func TestTracedStoresHaveMetrics(t *testing.T) {
	traced := (&tracing.Tracing{}).Cassandra(struct{ cassandrastore.Store }{})
	_, has := traced.(interface{ Metrics() prometheus.Collector })
	require.True(t, has)
}
