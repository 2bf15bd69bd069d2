package oncassandra

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/test/e2e/harness"
)

// TestProgramsShareAKeyspace: what one server acknowledged the other one lists,
// and what was deleted through one is gone in both.
func TestProgramsShareAKeyspace(t *testing.T) {
	t.Parallel()
	p := build(t)
	s := p.LaidOut(cassandra.Address(t))
	a, b := p.ServeSite(s), p.ServeSite(s)
	p.Run("listd", "bucket", "create", "abc", "--server", a.S3)
	for i := range 50 {
		from, to := a, b
		if i%2 == 1 {
			from, to = b, a
		}
		key := fmt.Sprintf("k%02d", i)
		require.Equal(t, 200, harness.Request(t, "PUT", from.S3+"/abc/"+key, key).Status)
		require.Equal(t, harness.Answer{Status: 200, Body: key}, bare(harness.Request(t, "GET", to.S3+"/abc/"+key, "")))
		if i%5 == 0 {
			require.Equal(t, 204, harness.Request(t, "DELETE", to.S3+"/abc/"+key, "").Status)
			require.Equal(t, 404, harness.Request(t, "GET", from.S3+"/abc/"+key, "").Status)
		}
	}
	want := ""
	for i := range 50 {
		if i%5 != 0 {
			want += fmt.Sprintf("k%02d\n", i)
		}
	}
	for _, srv := range []*harness.Server{a, b} {
		require.Equal(t, want, p.Run("listd", "ls", "abc", "--server", srv.S3))
		require.Equal(t, "abc\n", p.Run("listd", "bucket", "list", "--server", srv.S3))
		require.Equal(t, 200, harness.Request(t, "GET", srv.Admin+"/readyz", "").Status)
	}
	metrics := harness.Request(t, "GET", a.Admin+"/metrics", "").Body
	for name, above := range map[string]float64{
		"evenkeel_map_clock_polls_total": 1, "evenkeel_lease_root_reads_total": 1,
		"evenkeel_wall_clock_answers_total": 1, "evenkeel_map_cache_buckets": 1,
		"evenkeel_common_time_width_seconds": 0, "evenkeel_wall_clock_refusals_total": 0,
		`evenkeel_wall_clock_ahead_of_server_seconds{server="` + s.Host + `:9042"}`: -0.5,
	} {
		at := strings.Index(metrics, "\n"+name+" ")
		require.Positive(t, at, "%s in %s", name, metrics)
		var value float64
		_, err := fmt.Sscan(metrics[at+len(name)+2:], &value)
		require.NoError(t, err)
		require.GreaterOrEqual(t, value, above, name)
	}
	// A bucket that was deleted through one is gone in the other.
	p.Run("listd", "bucket", "create", "gone", "--server", b.S3)
	require.Equal(t, 200, harness.Request(t, "PUT", a.S3+"/gone/k", "v").Status)
	code, _, errs := p.Try("listd", "bucket", "delete", "gone", "--server", b.S3)
	require.Equal(t, 1, code)
	require.Contains(t, errs, "BucketNotEmpty")
	require.Equal(t, 204, harness.Request(t, "DELETE", b.S3+"/gone/k", "").Status)
	p.Run("listd", "bucket", "delete", "gone", "--server", a.S3)
	require.Equal(t, 404, harness.Request(t, "PUT", b.S3+"/gone/k", "v").Status)
	for _, srv := range []*harness.Server{a, b} {
		require.Equal(t, "abc\n", p.Run("listd", "bucket", "list", "--server", srv.S3))
		require.Equal(t, 0, srv.End(syscall.SIGTERM), srv.Log)
	}
}

func bare(a harness.Answer) harness.Answer { a.Header = nil; return a }

// TestProgramsRefuseToStart on a keyspace on which they could not keep their
// promises, and say what to do.
func TestProgramsRefuseToStart(t *testing.T) {
	t.Parallel()
	p := build(t)
	p.Patience = time.Minute // a server that is not refused would go on
	host := cassandra.Address(t)
	refused := func(s harness.Site, says string, args ...string) {
		t.Helper()
		args = append(s.Flags("serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"), args...)
		code, out, errs := p.Try("listd", append(args, "--log-level", "error")...)
		require.Equal(t, 3, code, errs)
		require.Empty(t, out)
		require.Contains(t, errs, says)
	}
	refused(harness.NewSite(t, host), "rebalancer schema apply", "--local-dc", "dc1")
	s := p.LaidOut(host)
	refused(s, `no data centre "dc9"`, "--local-dc", "dc9")
	refused(harness.Site{Host: "127.0.0.1:1", Name: s.Name}, "is Cassandra running there", "--local-dc", "dc1")
	refused(harness.Site{Host: host, Name: s.Name, Copies: true}, "one copy", "--local-dc", "dc1")
	require.Equal(t, 0, p.ServeSite(s, "--lease", "2s").End(syscall.SIGTERM))
	refused(s, "a lease of 2s", "--local-dc", "dc1")
	require.Equal(t, 0, p.ServeSite(s, "--change-lease").End(syscall.SIGTERM))
	refused(s, "a lease of 3s", "--local-dc", "dc1", "--lease", "2s")
	code, _, errs := p.Try("rebalancer", s.Flags("split", "abc", "--at", "m", "--local-dc", "dc1", "--lease", "1s")...)
	require.NotZero(t, code)
	require.Contains(t, errs, "a lease of 3s")
	refused(s, "clocks of 500ms", "--local-dc", "dc1", "--max-clock-skew", "2s")
	require.Equal(t, 0, p.ServeSite(s, "--change-lease", "--max-clock-skew", "2s").End(syscall.SIGTERM))
	refused(s, "clocks of 2s", "--local-dc", "dc1")
	require.Equal(t, 0, p.ServeSite(s, "--change-lease").End(syscall.SIGTERM))
	refused(s, "are not counted in this store, and would be counted in Redis by this process", "--local-dc", "dc1",
		"--counter", "redis://127.0.0.1:1")
	require.Equal(t, 0, p.ServeSite(s, "--change-lease", "--counter", "redis://127.0.0.1:1").End(syscall.SIGTERM))
	refused(s, "end all other processes first (--lease, --max-clock-skew; --counter", "--local-dc", "dc1")
	refused(s, "are counted in Redis in this store, and would be not counted by this process", "--local-dc", "dc1",
		"--rebalance", "elsewhere")
	code, _, errs = p.Try("rebalancer", s.Flags("run", "--local-dc", "dc1", "--rebalance-interval", "1m")...)
	require.NotZero(t, code)
	require.Contains(t, errs, "are counted in Redis in this store, and would be counted by looks at all rows by this process")
	require.Equal(t, 0, p.ServeSite(s, "--change-lease").End(syscall.SIGTERM))
	raw := harness.Session(t, s.Host, s.Name)
	for _, c := range []struct{ cql, says string }{
		{"ALTER TABLE rows WITH default_time_to_live = 60", "default_time_to_live is 60"},
		{"ALTER TABLE rows WITH default_time_to_live = 0", ""},
		{"DROP TABLE busy", "the table is missing"},
		{"CREATE TABLE busy (key text PRIMARY KEY)", "use a fresh keyspace"},
		{"ALTER KEYSPACE " + s.Name + " WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
			"SimpleStrategy"},
	} {
		require.NoError(t, raw.Query(c.cql).Exec())
		if c.says == "" {
			require.Equal(t, 0, p.ServeSite(s).End(syscall.SIGTERM))
			continue
		}
		refused(s, c.says, "--local-dc", "dc1")
	}
}
