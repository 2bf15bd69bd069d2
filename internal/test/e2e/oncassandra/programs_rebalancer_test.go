package oncassandra

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/rebalance/leader"
	"github.com/evenkeel/evenkeel/internal/test/e2e/harness"
)

// TestProgramsMoveRanges: the rebalancer's commands over a keyspace that servers
// share, by itself, through the server that leads, and through one that does not.
func TestProgramsMoveRanges(t *testing.T) {
	t.Parallel()
	p := build(t)
	s := p.LaidOut(cassandra.Address(t))
	const lease = "300ms"
	direct := func(args ...string) []string {
		return s.Flags(append(args, "--local-dc", "dc1", "--lease", lease)...)
	}
	a, b := p.ServeSite(s, "--lease", lease), p.ServeSite(s, "--lease", lease)
	p.Run("listd", "bucket", "create", "abc", "--server", a.S3)
	want := ""
	for i := range 60 {
		require.Equal(t, 200, harness.Request(t, "PUT", fmt.Sprintf("%s/abc/k%02d", []*harness.Server{a, b}[i%2].S3, i),
			"v").Status)
		want += fmt.Sprintf("k%02d\n", i)
	}
	status := func(srv *harness.Server) (st struct {
		Leading bool
		Leader  struct{ Name, Admin string }
		Shards  []struct{ Here bool }
	}) {
		require.NoError(t, json.Unmarshal([]byte(p.Run("rebalancer", "status", "--format", "json", "--admin",
			srv.Admin)), &st))
		return st
	}
	var leads, follows *harness.Server
	for leads == nil {
		switch {
		case status(a).Leader.Admin == a.Admin:
			leads, follows = a, b
		case status(b).Leader.Admin == b.Admin:
			leads, follows = b, a
		default:
			time.Sleep(50 * time.Millisecond)
		}
	}
	require.Equal(t, leads.Admin, status(follows).Leader.Admin)
	cuts := func(args ...string) (cuts []string) {
		var m struct {
			Bucket     string
			Epoch      uint64
			Partitions []struct{ Start, End, Phase string }
		}
		require.NoError(t, json.Unmarshal([]byte(p.Run("rebalancer",
			append([]string{"map", "show", "abc", "--format", "json"}, args...)...)), &m))
		for _, x := range m.Partitions[1:] {
			cuts = append(cuts, x.Start)
		}
		return cuts
	}
	same := func() {
		t.Helper()
		for _, srv := range []*harness.Server{a, b} {
			select {
			case <-srv.Ended:
			default:
				require.Equal(t, want, p.Run("listd", "ls", "abc", "--server", srv.S3))
			}
		}
	}

	require.Contains(t, p.Run("rebalancer", "split", "abc", "--at", "k20", "--admin", leads.Admin),
		"done: 20 rows copied")
	same()
	require.Contains(t, p.Run("rebalancer", "split", "abc", "--at", "k40", "--admin", follows.Admin),
		"done: 20 rows copied")
	same()
	require.Equal(t, []string{"k2", "k4"}, cuts("--admin", follows.Admin))

	// By itself it is the second executor: it says who leads, and hands the command on.
	code, out, errs := p.Try("rebalancer", direct("merge", "abc", "--range", "..k4")...)
	require.Zero(t, code, errs)
	require.Contains(t, out, "done: 40 rows copied")
	require.Contains(t, errs, "leads: the command is forwarded to "+leads.Admin)
	require.Equal(t, []string{"k4"}, cuts(direct()...))
	require.Contains(t, p.Run("rebalancer", direct("pause", "abc")...), "abc paused")
	require.Contains(t, p.Run("rebalancer", direct("resume")...), "resumed")
	same()

	// When the leader ends, the other one leads; when it is killed, so does the next.
	require.Zero(t, leads.End(syscall.SIGTERM))
	for st := status(follows); len(st.Shards) != 1 || !st.Shards[0].Here; st = status(follows) {
		time.Sleep(50 * time.Millisecond)
	}
	require.Contains(t, p.Run("rebalancer", "refresh", "abc", "--admin", follows.Admin), "done: 60 rows copied")
	same()
	require.Zero(t, follows.End(syscall.SIGTERM))

	// Nobody leads: it does it itself.
	code, _, errs = p.Try("rebalancer", direct("status")...)
	require.Equal(t, 4, code)
	require.Contains(t, errs, "no rebalancer leads")
	require.Contains(t, p.Run("rebalancer", direct("split", "abc", "--at", "k10", "--dry-run")...), "nothing was done")
	require.Contains(t, p.Run("rebalancer", direct("split", "abc", "--at", "k10")...), "done: 10 rows copied")
	require.Equal(t, []string{"k1", "k4"}, cuts(direct()...))

	// A lease that is not the servers' would break what moves rest on.
	code, _, errs = p.Try("rebalancer",
		s.Flags("split", "abc", "--at", "k50", "--local-dc", "dc1", "--lease", "100ms")...)
	require.Equal(t, 3, code)
	require.Contains(t, errs, "a lease of "+lease)

	// Somebody leads who takes no commands.
	st := harness.Open(t, harness.Patient(s.Options()))
	require.NoError(t, leader.New(st, leader.Options{Name: "somebody else"}).
		Try(t.Context(), func(context.Context) error {
			code, _, errs := p.Try("rebalancer", direct("split", "abc", "--at", "k50")...)
			require.Equal(t, 4, code)
			require.Contains(t, errs, "somebody else")
			require.Contains(t, errs, "takes no commands")
			return nil
		}))
	require.Equal(t, []string{"k1", "k4"}, cuts(direct()...))
	c := p.ServeSite(s, "--lease", lease)
	require.Equal(t, want, p.Run("listd", "ls", "abc", "--server", c.S3))
	require.NotContains(t, strings.ToLower(c.Log.String()), "level=error")
}
