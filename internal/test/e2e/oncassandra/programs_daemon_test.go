package oncassandra

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/test/e2e/harness"
	"github.com/evenkeel/evenkeel/internal/test/redistest"
	"github.com/evenkeel/evenkeel/internal/test/seed"
)

// TestProgramsKeepInShape: two daemons, of which one leads, and a server that only
// counts. Nobody says anything to them: what is loaded is cut, also after the leader was
// killed with -9.
func TestProgramsKeepInShape(t *testing.T) {
	t.Parallel()
	p := build(t)
	s := p.LaidOut(cassandra.Address(t))
	const maxRows, each = 200, 1500
	counter := []string{"--lease", "300ms", "--counter", "redis://" + redistest.Start(t).Addr + "/0"}
	server := p.ServeSite(s, append(counter, "--rebalance", "elsewhere")...)
	keep := func() *harness.Server {
		return p.Rebalance(s, append(counter, "--max-rows", fmt.Sprint(maxRows), "--rebalance-interval", "1s")...)
	}
	a, b := keep(), keep()
	leading := func(srv *harness.Server) bool {
		var st struct{ Leading bool }
		require.NoError(t, json.Unmarshal([]byte(p.Run("rebalancer", "status", "--format", "json", "--admin",
			srv.Admin)), &st))
		return st.Leading
	}
	p.Run("listd", "bucket", "create", "abc", "--server", server.S3)

	r := seed.New(t)
	var all []string
	load := func(prefix string) {
		var keys []string
		for range each {
			keys = append(keys, prefix+fmt.Sprintf("%016x", r.Uint64()))
		}
		file := filepath.Join(p.Dir, "keys")
		require.NoError(t, os.WriteFile(file, []byte(strings.Join(keys, "\n")+"\n"), 0o600))
		p.Run("listd", "load", "abc", file, "--server", server.S3, "--progress", "none")
		all = append(all, keys...)
		slices.Sort(all)
	}
	inShape := func(srv *harness.Server) {
		t.Helper()
		harness.Eventually(t, "no partition is over its limit", func() bool {
			var m struct {
				Partitions []struct{ Start, End, Phase string }
			}
			require.NoError(t, json.Unmarshal([]byte(p.Run("rebalancer", "map", "show", "abc", "--format", "json",
				"--admin", srv.Admin)), &m))
			for _, x := range m.Partitions {
				end := len(all)
				if x.End != "" {
					end = sort.SearchStrings(all, x.End)
				}
				if x.Phase != "settled" || end-sort.SearchStrings(all, x.Start) > maxRows {
					return false
				}
			}
			return true
		})
		require.Equal(t, strings.Join(all, "\n")+"\n", p.Run("listd", "ls", "abc", "--server", server.S3))
	}
	load("")
	harness.Eventually(t, "each of them leads some shards", func() bool { return leading(a) && leading(b) })
	first, second := a, b
	inShape(second)

	first.Kill()
	load("8000")
	inShape(second)
	require.True(t, leading(second), "nobody else can have cut the second load")
	require.Contains(t, p.Run("rebalancer", "verify", "abc", "--admin", second.Admin), "; 0 problems")

	// It says what is wrong with its flags, and ends when it is told to.
	code, _, errs := p.Try("rebalancer",
		append(s.Flags("run", "--local-dc", "dc1", "--admin-listen", strings.TrimPrefix(second.Admin, "http://")),
			counter...)...)
	require.Equal(t, 1, code)
	require.Contains(t, errs, "--admin-listen")
	nowhere := s
	nowhere.Name = "nowhere"
	code, _, errs = p.Try("rebalancer",
		append(nowhere.Flags("run", "--local-dc", "dc1", "--admin-listen", "127.0.0.1:0"), counter...)...)
	require.Equal(t, 3, code)
	require.Contains(t, errs, "nowhere")
	code, _, errs = p.Try("rebalancer", s.Flags("run", "--local-dc", "dc1")...)
	require.Equal(t, 2, code)
	require.Contains(t, errs, "--counter is missing")
	require.Zero(t, second.End(syscall.SIGTERM), second.Log)
	require.NotContains(t, strings.ToLower(second.Log.String()), "level=error")
}
