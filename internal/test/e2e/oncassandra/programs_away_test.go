package oncassandra

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/test/cassandratest"
	"github.com/evenkeel/evenkeel/internal/test/e2e/harness"
)

// TestProgramsOutliveTheStore takes the only node away from two servers under
// load, hanging at first and then by kill -9: every request is answered 503 with
// Retry-After, the servers say that they are not ready, one ends cleanly without
// its store; the other goes on by itself when the node is back, and nothing that
// was acknowledged is lost.
func TestProgramsOutliveTheStore(t *testing.T) {
	t.Parallel()
	p := build(t)
	node := cassandratest.New(t, cassandratest.Options{DurableWrites: true}).Nodes[0]
	s := p.LaidOut(node.Address)
	ctx := t.Context()
	_, err := node.Nodetool(ctx, "flush") // of what the node must know of its tables
	require.NoError(t, err)
	a, b := p.ServeSite(s, "--request-timeout", "2s"), p.ServeSite(s, "--request-timeout", "2s")
	p.Run("listd", "bucket", "create", "abc", "--plain", "--server", a.S3)

	acked := load{t: t}
	acked.start(a, "a")
	acked.start(b, "b")
	acked.await(100)
	require.NoError(t, node.Pause())
	away(t, a, b)
	require.NoError(t, node.Resume())
	harness.Eventually(t, "the servers are ready", func() bool { return ready(t, a) && ready(t, b) })
	acked.await(100)

	require.NoError(t, node.Kill())
	away(t, a, b)
	require.Equal(t, 0, b.End(syscall.SIGTERM), b.Log)
	require.NoError(t, node.Start(context.WithoutCancel(ctx)))
	harness.Eventually(t, "the server is ready", func() bool { return ready(t, a) })
	acked.await(20)
	acked.stop()

	listed := map[string]bool{}
	for _, srv := range []*harness.Server{a, p.ServeSite(s)} {
		clear(listed)
		for _, key := range strings.Fields(p.Run("listd", "ls", "abc", "--server", srv.S3)) {
			listed[key] = true
		}
		for key := range acked.keys {
			require.True(t, listed[key], "%s was acknowledged and is lost", key)
		}
		require.Equal(t, 0, srv.End(syscall.SIGTERM), srv.Log)
	}
	t.Logf("%d puts acknowledged, %d keys listed", len(acked.keys), len(listed))
}

// away demands of servers that their store is away and that they say so.
func away(t *testing.T, servers ...*harness.Server) {
	t.Helper()
	var requests sync.WaitGroup
	for _, srv := range servers {
		// At first it may still answer from what it knows: leases are good for a while.
		harness.Eventually(t, "the server is not ready", func() bool { return !ready(t, srv) })
		require.Equal(t, 200, harness.Request(t, "GET", srv.Admin+"/healthz", "").Status)
		require.Equal(t, 200, harness.Request(t, "GET", srv.Admin+"/metrics", "").Status)
		for _, r := range []struct{ method, path string }{
			{"PUT", "/abc/k"}, {"GET", "/abc/k"}, {"HEAD", "/abc/k"}, {"DELETE", "/abc/k"}, {"GET", "/abc?list-type=2"},
			{"PUT", "/new"}, {"DELETE", "/abc"}, {"GET", "/abc?evenkeel-splits=2"},
		} {
			requests.Go(func() {
				got, err := harness.RequestOf(t.Context(), r.method, srv.S3+r.path, "")
				if err != nil || got.Status != http.StatusServiceUnavailable {
					t.Errorf("%s %s: %d %s %v", r.method, r.path, got.Status, got.Body, err)
					return
				}
				if wait, err := strconv.Atoi(got.Header.Get("Retry-After")); err != nil || wait < 1 {
					t.Errorf("%s %s: Retry-After %q", r.method, r.path, got.Header.Get("Retry-After"))
				}
			})
		}
	}
	requests.Wait()
}

func ready(t *testing.T, srv *harness.Server) bool {
	return harness.Request(t, "GET", srv.Admin+"/readyz", "").Status == 200
}

// load puts keys until it is stopped and remembers which were acknowledged.
type load struct {
	t    *testing.T
	mu   sync.Mutex
	keys map[string]bool
	n    atomic.Int64
	wg   sync.WaitGroup
	ends chan struct{}
}

func (l *load) start(srv *harness.Server, name string) {
	if l.keys == nil {
		l.keys, l.ends = map[string]bool{}, make(chan struct{})
		l.t.Cleanup(l.stop)
	}
	for worker := range 4 {
		l.wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-l.ends:
					return
				default:
				}
				key := fmt.Sprintf("%s-%d-%06d", name, worker, i)
				a, err := harness.RequestOf(l.t.Context(), "PUT", srv.S3+"/abc/"+key, key)
				switch {
				case err != nil:
					return // the server was ended
				case a.Status == 200:
					l.mu.Lock()
					l.keys[key] = true
					l.mu.Unlock()
					l.n.Add(1)
					time.Sleep(pause)
				case a.Status != http.StatusServiceUnavailable:
					l.t.Errorf("PUT %s: %d %s", key, a.Status, a.Body)
					return
				default:
					time.Sleep(20 * time.Millisecond)
				}
			}
		})
	}
}

// await waits for so many more acknowledgements.
func (l *load) await(n int64) {
	l.t.Helper()
	from := l.n.Load()
	harness.Eventually(l.t, "puts are acknowledged", func() bool { return l.n.Load() >= from+n })
}

func (l *load) stop() {
	select {
	case <-l.ends:
	default:
		close(l.ends)
	}
	l.wg.Wait()
}
