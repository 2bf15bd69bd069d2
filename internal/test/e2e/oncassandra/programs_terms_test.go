package oncassandra

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/record"
	"github.com/evenkeel/evenkeel/internal/test/e2e/harness"
	"github.com/evenkeel/evenkeel/store"
)

// TestCommandsTakeTheTermsOfTheKeyspace: what brings, repairs, compares or moves rows beside servers does so with their
// lease and their limit of clocks, and is refused with others. Where the terms are damaged only a check goes on, with
// those that it is told.
func TestCommandsTakeTheTermsOfTheKeyspace(t *testing.T) {
	t.Parallel()
	p := build(t)
	s, dir := p.LaidOut(cassandra.Address(t)), t.TempDir()
	file, bodies := filepath.Join(dir, "keys"), "file://"+filepath.Join(dir, "bodies")
	require.NoError(t, os.WriteFile(file, []byte("a\nb\n"), 0o600))
	server := p.ServeSite(s, "--lease", "30s", "--max-clock-skew", "2s", "--bodies", bodies)
	p.Run("listd", "bucket", "create", "objects", "--server", server.S3)
	require.Equal(t, 200, harness.Request(t, "PUT", server.S3+"/objects/k", strings.Repeat("v", 10_000)).Status)

	commands := map[string][]string{
		"adopt file":      {"adopt", "file", "plain", file},
		"audit":           {"audit", "objects", "--bodies", bodies},
		"audit --condemn": {"audit", "objects", "--bodies", bodies, "--condemn"},
		"clean":           {"clean", "objects", "--bodies", bodies, "--dry-run"},
		"verify":          {"verify"},
		"verify --repair": {"verify", "--repair"},
		"map show":        {"map", "show", "objects"},
	}
	try := func(command []string, more ...string) (code int, errs string) {
		code, _, errs = p.Try("rebalancer", append(s.Flags(command...), append(more, "--local-dc", "dc1")...)...)
		return code, errs
	}
	for name, command := range commands {
		code, errs := try(command, "--lease", "3s")
		require.Equal(t, 3, code, "%s: %s", name, errs)
		require.Contains(t, errs, "a lease of 30s, this one has 3s", name)
		require.Contains(t, errs, "without --lease", name)
		for _, more := range [][]string{nil, {"--lease", "30s"}} {
			code, errs = try(command, more...)
			require.Zero(t, code, "%s: %s", name, errs)
		}
	}
	for _, lease := range []string{"3s", "30s"} {
		code, errs := try(commands["verify"], "--lease", lease, "--max-clock-skew", "500ms")
		require.Equal(t, 3, code, errs)
		require.Contains(t, errs, map[string]string{"3s": "a lease of 30s", "30s": "clocks of 2s"}[lease])
	}

	regs := harness.Open(t, harness.Patient(s.Options()))
	old, err := regs.Read(t.Context(), store.Process, []byte("lease"), store.Serial)
	require.NoError(t, err)
	damaged := store.Record{Version: record.Next(old.Version), Blob: []byte("damaged")}
	require.NoError(t, regs.Swap(t.Context(), store.Process, []byte("lease"), old.Version, damaged))
	for name, command := range commands {
		code, errs := try(command, "--lease", "30s")
		require.Equal(t, 3, code, "%s: %s", name, errs)
		require.Contains(t, errs, "agree on the lease", name)
	}
	code, errs := try(commands["verify"])
	require.Equal(t, 3, code, errs)
	require.Contains(t, errs, "give --lease and --max-clock-skew of the servers")
	for _, name := range []string{"verify", "verify --repair"} {
		code, errs = try(commands[name], "--lease", "30s", "--max-clock-skew", "2s")
		require.Zero(t, code, errs)
	}
	code, errs = try(commands["verify"], "--lease", "30s", "--max-clock-skew", "500ms")
	require.Equal(t, 3, code, errs)
	require.Contains(t, errs, "clocks of 2s")
}
