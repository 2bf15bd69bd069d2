package versions

import (
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/test/e2e/harness"
)

// TestServersClean has two servers over one keyspace and one directory of bodies. One of them cleans what both
// were told, not under a pause, and audits what both have; the commands show it.
func TestServersClean(t *testing.T) {
	p := harness.Build(t)
	s := p.LaidOut(cassandra.Address(t))
	dir := filepath.Join(t.TempDir(), "bodies")
	bodies := "file://" + dir
	var servers []*harness.Server
	for range 2 {
		servers = append(servers, p.ServeSite(s, "--bodies", bodies, "--clean-every", "200ms", "--clean-all-every", "0",
			"--audit-every", "300ms", "--rebalance-interval", "0"))
		// The first one has all shards when the second one begins: at once they would share them.
		const all = "cleans shards 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15"
		for end := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
			status := p.Run("rebalancer", "status", "--admin", servers[0].Admin)
			if strings.Contains(status, all) {
				break
			}
			require.True(t, time.Now().Before(end), status)
		}
	}
	p.Run("listd", "bucket", "create", "photos", "--server", servers[0].S3)
	put := func(i int) {
		answer := harness.Request(t, http.MethodPut, servers[i].S3+"/photos/key", strings.Repeat("body", 5000))
		require.Equal(t, http.StatusOK, answer.Status, answer.Body)
	}
	metric := func(name string) (sum string) {
		for _, x := range servers {
			_, value, _ := strings.Cut(harness.Request(t, http.MethodGet, x.Admin+"/metrics", "").Body, "\n"+name+" ")
			value, _, _ = strings.Cut(value, "\n")
			sum += value + " "
		}
		return sum
	}
	becomes := func(want, name string) {
		t.Helper()
		require.Eventually(t, func() bool { return regexp.MustCompile(want).MatchString(metric(name)) }, time.Minute,
			100*time.Millisecond, "%s: %s", name, want)
	}
	put(0)
	put(1)
	becomes(`^(1 0|0 1) $`, "evenkeel_objects_cleaner_leading")
	becomes(`^(1 0?|0? 1) $`, `evenkeel_objects_cleaned_total{step="superseded"}`)
	becomes(`^[1-9]\d* [1-9]\d* $`, "evenkeel_objects_hints_written_total")
	status := p.Run("rebalancer", "status", "--admin", servers[0].Admin) +
		p.Run("rebalancer", "status", "--admin", servers[1].Admin)
	require.Contains(t, status, "This process cleans buckets of objects: last round begun ")
	require.Contains(t, status, "Another process cleans buckets of objects: listd on ")

	p.Run("rebalancer", s.Flags("pause", "--local-dc", "dc1", "--wait", "--why", "a snapshot")...)
	becomes(`1`, "evenkeel_objects_cleaner_paused")
	put(0)
	require.Contains(t, p.Run("rebalancer", s.Flags("clean", "--local-dc", "dc1", "--dry-run", "--bodies", bodies)...),
		"supersede bucket photos, key key, version ")
	p.Run("rebalancer", s.Flags("resume", "--local-dc", "dc1")...)
	becomes(`^(2 0?|0? 2) $`, `evenkeel_objects_cleaned_total{step="superseded"}`)

	audit := s.Flags("audit", "--local-dc", "dc1", "--bodies", bodies)
	out := p.Run("rebalancer", audit...)
	require.Contains(t, out, "1 buckets, 3 rows, 3 bodies (0 of uploads, 2 of deleted versions")
	require.Contains(t, out, "\nclean\n")
	lost := `evenkeel_objects_audit_findings{fault="lost body"}`
	becomes(`^(0  | 0 )$`, lost) // the one that cleans
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "photos")))
	becomes(`^(1  | 1 )$`, lost)
	code, out, _ := p.Try("rebalancer", audit...)
	require.Equal(t, 1, code)
	require.Contains(t, out, "lost body: bucket photos, key key, version ")
	require.Contains(t, out, "; 1 problems, ")
}
