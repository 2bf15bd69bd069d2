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

	"github.com/evenkeel/evenkeel/rebalance/leader"
	"github.com/evenkeel/evenkeel/store/cassandrastore"
)

// TestProgramsMoveRanges: the rebalancer's commands over a keyspace that servers
// share, by itself, through the server that leads, and through one that does not.
func TestProgramsMoveRanges(t *testing.T) {
	p := build(t)
	s := laidOut(p, cassandra.Address(t))
	const lease = "300ms"
	direct := func(args ...string) []string {
		return append(append(args, "--local-dc", "dc1", "--lease", lease), s.flags()...)
	}
	a, b := p.serve(s, "--lease", lease), p.serve(s, "--lease", lease)
	p.run("listd", "bucket", "create", "abc", "--server", a.s3)
	want := ""
	for i := range 60 {
		require.Equal(t, 200, request(t, "PUT", fmt.Sprintf("%s/abc/k%02d", []*server{a, b}[i%2].s3, i), "v").status)
		want += fmt.Sprintf("k%02d\n", i)
	}
	status := func(srv *server) (st struct {
		Leading bool
		Leader  struct{ Name, Admin string }
	}) {
		require.NoError(t, json.Unmarshal([]byte(p.run("rebalancer", "status", "--format", "json", "--admin", srv.admin)), &st))
		return st
	}
	var leads, follows *server
	for leads == nil {
		switch {
		case status(a).Leading:
			leads, follows = a, b
		case status(b).Leading:
			leads, follows = b, a
		default:
			time.Sleep(50 * time.Millisecond)
		}
	}
	require.Equal(t, leads.admin, status(follows).Leader.Admin)
	cuts := func(args ...string) (cuts []string) {
		var m struct {
			Bucket     string
			Epoch      uint64
			Partitions []struct{ Start, End, Phase string }
		}
		require.NoError(t, json.Unmarshal([]byte(p.run("rebalancer", append([]string{"map", "show", "abc", "--format", "json"}, args...)...)), &m))
		for _, x := range m.Partitions[1:] {
			cuts = append(cuts, x.Start)
		}
		return cuts
	}
	same := func() {
		t.Helper()
		for _, srv := range []*server{a, b} {
			select {
			case <-srv.ended:
			default:
				require.Equal(t, want, p.run("listd", "ls", "abc", "--server", srv.s3))
			}
		}
	}

	require.Contains(t, p.run("rebalancer", "split", "abc", "--at", "k20", "--admin", leads.admin), "done: 20 rows copied")
	same()
	require.Contains(t, p.run("rebalancer", "split", "abc", "--at", "k40", "--admin", follows.admin), "done: 20 rows copied")
	same()
	require.Equal(t, []string{"k2", "k4"}, cuts("--admin", follows.admin))

	// By itself it is the second executor: it says who leads, and hands the command on.
	code, out, errs := p.try("rebalancer", direct("merge", "abc", "--range", "..k4")...)
	require.Zero(t, code, errs)
	require.Contains(t, out, "done: 40 rows copied")
	require.Contains(t, errs, "leads: the command goes to "+leads.admin)
	require.Equal(t, []string{"k4"}, cuts(direct()...))
	require.Contains(t, p.run("rebalancer", direct("pause", "abc")...), "abc paused")
	require.Contains(t, p.run("rebalancer", direct("resume")...), "resumed")
	same()

	// When the leader ends, the other one leads; when it is killed, so does the next.
	require.Zero(t, leads.end(syscall.SIGTERM))
	for !status(follows).Leading {
		time.Sleep(50 * time.Millisecond)
	}
	require.Contains(t, p.run("rebalancer", "refresh", "abc", "--admin", follows.admin), "done: 60 rows copied")
	same()
	require.Zero(t, follows.end(syscall.SIGTERM))

	// Nobody leads: it does it itself.
	code, _, errs = p.try("rebalancer", direct("status")...)
	require.Equal(t, 4, code)
	require.Contains(t, errs, "no rebalancer leads")
	require.Contains(t, p.run("rebalancer", direct("split", "abc", "--at", "k10", "--dry-run")...), "nothing was done")
	require.Contains(t, p.run("rebalancer", direct("split", "abc", "--at", "k10")...), "done: 10 rows copied")
	require.Equal(t, []string{"k1", "k4"}, cuts(direct()...))

	// A lease that is not the servers' would break what moves rest on.
	code, _, errs = p.try("rebalancer", append([]string{"split", "abc", "--at", "k50", "--local-dc", "dc1", "--lease", "100ms"}, s.flags()...)...)
	require.Equal(t, 4, code)
	require.Contains(t, errs, "a lease of "+lease)

	// Somebody leads who takes no commands.
	st, err := cassandrastore.Open(t.Context(), cassandrastore.Options{Hosts: []string{s.host}, DataCentre: "dc1", Keyspace: s.keyspace, AllowSingleReplica: true})
	require.NoError(t, err)
	defer func() { require.NoError(t, st.Close()) }()
	require.NoError(t, leader.New(st, leader.Options{Name: "somebody else"}).Try(t.Context(), func(context.Context) error {
		code, _, errs := p.try("rebalancer", direct("split", "abc", "--at", "k50")...)
		require.Equal(t, 4, code)
		require.Contains(t, errs, "somebody else")
		require.Contains(t, errs, "takes no commands")
		return nil
	}))
	require.Equal(t, []string{"k1", "k4"}, cuts(direct()...))
	c := p.serve(s, "--lease", lease)
	require.Equal(t, want, p.run("listd", "ls", "abc", "--server", c.s3))
	require.NotContains(t, strings.ToLower(c.log.String()), "level=error")
}
