package oncassandra

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/counter/rediscounter"
	"github.com/evenkeel/evenkeel/internal/test/e2e/harness"
	"github.com/evenkeel/evenkeel/internal/test/redistest"
	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/store"
)

// TestProgramsKeepInShape: two daemons, of which one leads, and a server that only
// counts. Nobody says anything to them: what is loaded is cut, also after the leader was
// killed with -9.
func TestProgramsKeepInShape(t *testing.T) {
	t.Parallel()
	p := build(t)
	s := p.LaidOut(cassandra.Address(t))
	const maxRows, each = 200, 1500
	redis := redistest.Start(t)
	counting := []string{"--lease", "300ms", "--counter", "redis://" + redis.Addr + "/0"}
	server := p.ServeSite(s, append(counting, "--rebalance", "elsewhere")...)
	keep := func() *harness.Server {
		return p.Rebalance(s, append(counting, "--max-rows", fmt.Sprint(maxRows), "--rebalance-interval", "1s")...)
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

	// A Redis that has lost everything gets the sizes from Cassandra, at the next write: few rows are read again.
	counted := func() int64 {
		var st struct {
			Balance struct {
				Rows int64 `json:"counted_rows"`
			} `json:"balance"`
		}
		require.NoError(t, json.Unmarshal([]byte(p.Run("rebalancer", "status", "--format", "json", "--admin",
			second.Admin)), &st))
		return st.Balance.Rows
	}
	counts, err := rediscounter.Open(rediscounter.Options{Addr: redis.Addr})
	require.NoError(t, err)
	defer func() { require.NoError(t, counts.Close()) }()
	known := func() {
		t.Helper()
		harness.Eventually(t, "all sizes are known", func() bool {
			var m struct {
				Partitions []struct{ ID uuid.UUID }
			}
			require.NoError(t, json.Unmarshal([]byte(p.Run("rebalancer", "map", "show", "abc", "--format", "json",
				"--admin", second.Admin)), &m))
			var all []store.Partition
			for _, x := range m.Partitions {
				all = append(all, store.Partition{ID: store.PartitionID(x.ID)})
			}
			stats, err := counts.Stats(t.Context(), all)
			require.NoError(t, err)
			return !slices.ContainsFunc(stats, func(s counter.Stats) bool { return !s.Known })
		})
	}
	known()
	before := int64(-1)
	harness.Eventually(t, "nothing is counted any more", func() bool {
		last := before
		time.Sleep(5 * time.Second)
		before = counted()
		return before == last
	})
	redis.Wipe()
	redis.Restart()
	put, err := http.NewRequestWithContext(t.Context(), http.MethodPut, server.S3+"/abc/8", nil)
	require.NoError(t, err)
	answer, err := http.DefaultClient.Do(put)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.Equal(t, http.StatusOK, answer.StatusCode)
	known()
	require.Less(t, counted()-before, int64(len(all)/2))

	// It says what is wrong with its flags, and ends when it is told to.
	code, _, errs := p.Try("rebalancer",
		append(s.Flags("run", "--local-dc", "dc1", "--admin-listen", strings.TrimPrefix(second.Admin, "http://")),
			counting...)...)
	require.Equal(t, 1, code)
	require.Contains(t, errs, "--admin-listen")
	nowhere := s
	nowhere.Name = "nowhere"
	code, _, errs = p.Try("rebalancer",
		append(nowhere.Flags("run", "--local-dc", "dc1", "--admin-listen", "127.0.0.1:0"), counting...)...)
	require.Equal(t, 3, code)
	require.Contains(t, errs, "nowhere")
	code, _, errs = p.Try("rebalancer", s.Flags("run", "--local-dc", "dc1")...)
	require.Equal(t, 2, code)
	require.Contains(t, errs, "--counter is missing")
	require.Zero(t, second.End(syscall.SIGTERM), second.Log)
	require.NotContains(t, strings.ToLower(second.Log.String()), "level=error")
}
