package oncassandra

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/adminapi"
	"github.com/evenkeel/evenkeel/internal/test/e2e/harness"
)

// beforeVariable names a commit from before keyspaces had a version of their schema; make before sets it.
const beforeVariable = "EVENKEEL_BEFORE"

// buildBefore builds the programs of an earlier commit.
func buildBefore(t *testing.T) *harness.Programs {
	t.Helper()
	commit := os.Getenv(beforeVariable)
	if commit == "" {
		t.Skip("builds the programs of an earlier commit: only by make before")
	}
	top, err := exec.Command("git", "rev-parse", "--show-toplevel").Output()
	if err != nil || exec.Command("git", "cat-file", "-e", commit+"^{commit}").Run() != nil {
		t.Skipf("there is no commit %s here: not a clone, or a shallow one", commit)
	}
	sources, bin := t.TempDir(), t.TempDir()
	archive := filepath.Join(sources, "archive.tar")
	git := exec.Command("git", "archive", "--output", archive, commit)
	git.Dir = strings.TrimSpace(string(top))
	out, err := git.CombinedOutput()
	require.NoError(t, err, "%s", out)
	out, err = exec.Command("tar", "-xf", archive, "-C", sources).CombinedOutput()
	require.NoError(t, err, "%s", out)
	command := exec.Command("go", "build", "-buildvcs=false", "-o", bin+"/", "./cmd/...")
	command.Dir = sources
	out, err = command.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return &harness.Programs{T: t, Bin: bin, Dir: t.TempDir()}
}

// TestProgramsOfTheCommitBefore serve and move beside the present ones, over a keyspace that they laid out: whichever
// leads. The keyspace is upgraded meanwhile.
func TestProgramsOfTheCommitBefore(t *testing.T) {
	t.Parallel()
	present := build(t)
	before := buildBefore(t)
	s := before.LaidOut(cassandra.Address(t))

	cluster := func(server *harness.Server) (c adminapi.Cluster) {
		t.Helper()
		require.NoError(t, json.Unmarshal([]byte(harness.Request(t, "GET", server.Admin+"/v1/cluster", "").Body), &c))
		return c
	}
	split := func(p *harness.Programs, leader *harness.Server, at string) {
		t.Helper()
		harness.Eventually(t, "it leads", func() bool { return cluster(leader).Leading })
		out := p.Run("rebalancer", "split", "files", "--at", at, "--admin", leader.Admin)
		require.Contains(t, out, "done", out)
	}
	old := before.ServeSite(s)
	harness.Eventually(t, "the old program leads", func() bool { return cluster(old).Leading })
	young := present.ServeSite(s)
	before.Run("listd", "bucket", "create", "files", "--server", old.S3)

	n := 0
	put := func() {
		t.Helper()
		for range 20 {
			for _, server := range []*harness.Server{old, young} {
				require.Equal(t, 200, harness.Request(t, "PUT", fmt.Sprintf("%s/files/%04d", server.S3, n), "v").Status)
				n++
			}
		}
		for _, server := range []*harness.Server{old, young} {
			require.Len(t, strings.Fields(present.Run("listd", "ls", "files", "--server", server.S3)), n)
		}
	}
	put()
	split(present, old, "0010")
	put()
	processes := cluster(young).Processes
	require.Len(t, processes, 2)
	require.Equal(t, []int64{0, 3}, processes[0].Schemas)
	require.True(t, processes[1].Leads)
	require.Empty(t, processes[1].Schemas, "what leaves no entry is known only while it leads")
	require.Contains(t, present.Run("rebalancer", "status", "--admin", young.Admin), "Schema of the keyspace: version 0")

	require.Zero(t, old.End(syscall.SIGTERM))
	harness.Eventually(t, "the present program leads", func() bool { return cluster(young).Leading })
	old = before.ServeSite(s)
	put()
	split(before, young, "0030")
	put()
	upgrade := s.Flags("schema", "upgrade", "--local-dc", "dc1", "--yes")
	require.Contains(t, present.Run("rebalancer", upgrade...), "the schema is of version 3 now")
	require.Contains(t, present.Run("rebalancer", upgrade...), "the schema is of version 3 already")
	require.EqualValues(t, 3, cluster(young).Terms.Schema)
	put()
	split(present, young, "0050")
	require.Zero(t, old.End(syscall.SIGTERM))
	old = before.ServeSite(s)
	put()
	present.Run("rebalancer", s.Flags("verify", "--local-dc", "dc1")...)
	require.Empty(t, append(old.FailedRequests(), young.FailedRequests()...))

	// A process that has ended is not listed any more, and one that was killed for an hour.
	more := present.ServeSite(s)
	require.Len(t, cluster(more).Processes, 2)
	require.Zero(t, more.End(syscall.SIGTERM))
	harness.Eventually(t, "its entry is gone", func() bool {
		time.Sleep(time.Second)
		return len(cluster(young).Processes) == 1
	})
}
