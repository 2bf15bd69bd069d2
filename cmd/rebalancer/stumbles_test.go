package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon"
)

// says runs the program, which must end with a code, and with a text that has each part.
func says(t *testing.T, code int, args string, parts ...string) {
	t.Helper()
	got, out, errs := ran(t, 0, "", strings.Fields(args)...)
	require.Equal(t, code, got, "rebalancer %s: %s%s", args, out, errs)
	for _, part := range parts {
		require.Contains(t, out+errs, part, "rebalancer %s", args)
	}
}

func TestWrongAddressesAndValues(t *testing.T) {
	t.Parallel()
	sealed := httptest.NewTLSServer(http.NotFoundHandler())
	defer sealed.Close()
	host := strings.TrimPrefix(sealed.URL, "https://")
	says(t, daemon.ExitFailed, "status --admin http://"+host, "speaks TLS", "--admin https://"+host)
	says(t, daemon.ExitFailed, "status --admin "+sealed.URL, "--admin-ca-file")
	says(t, daemon.ExitFailed, "status --admin http://127.0.0.1:1", "connection refused", "`listd serve`")
	says(t, daemon.ExitUsage, "run --log-level loud", "--log-level", "debug, info, warn or error")
	says(t, daemon.ExitUsage, "map history b --limit -1", "--limit is at least 1, not -1")
	says(t, daemon.ExitUsage, "status --cassandra 127.0.0.1:1 --local-dc dc1 --move-rate -5", "--move-rate", "not -5")
}

// Exit codes mean the same in all commands: 3, what is to be worked on can't be used.
func TestExitCodesAreTheSameInAllCommands(t *testing.T) {
	t.Parallel()
	keyspace := " --cassandra 127.0.0.1:1 --local-dc dc1"
	for _, command := range []string{
		"status" + keyspace, "verify" + keyspace, "verify --data /no/such", "schema check --cassandra 127.0.0.1:1",
		"run --rebalance-interval 1m" + keyspace, "verify --admin http://127.0.0.1:1",
	} {
		says(t, 3, command)
	}
	says(t, daemon.ExitUsage, "verify --admin nonsense")
}

// rebalancer takes the settings file of listd, and the environment.
func TestSettings(t *testing.T) {
	file := filepath.Join(t.TempDir(), "evenkeel.yaml")
	write := func(text string) { require.NoError(t, os.WriteFile(file, []byte(text), 0o600)) }
	write("log-level: warn\nserve:\n  listen: 127.0.0.1:0\nmap:\n  history:\n    limit: -3\n")
	says(t, daemon.ExitUsage, "--config "+file+" map history b", "not -3")
	t.Setenv("EVENKEEL_LIMIT", "-4")
	says(t, daemon.ExitUsage, "--config "+file+" map history b", "not -4")
	says(t, daemon.ExitUsage, "--config "+file+" map history b --limit -5", "not -5")
	write("cassandra: 127.0.0.1:1\nlocal-dc: dc1\nmax-rows: 1\ncounter: redis://127.0.0.1:1\nload: {tsv: true}\n")
	says(t, daemon.ExitUsage, "--config "+file+" run", "--max-rows is at least 2, not 1")
	t.Setenv("EVENKEEL_CONFIG", file)
	says(t, daemon.ExitUsage, "run", "--max-rows is at least 2, not 1")
	says(t, 3, "run --max-rows 100", "127.0.0.1:1")
	write("cassandra: 127.0.0.1:1\nlocal-dc: dc1\nrun:\n  counter: redis://:secret@127.0.0.1:1\n")
	require.NoError(t, os.Chmod(file, 0o644))
	says(t, 3, "run", "can be read by everybody", file)
	write("max-rows: 50000\n")
	says(t, daemon.ExitUsage, "presplit b --count 2", "--count needs --like") // its own --max-rows is another thing
	for text, want := range map[string]string{
		"run: [1": "not YAML", "run:\n  max-row: 1\n": "run-max-row", "run:\n  max-rows: many\n": "many",
		"apply:\n  yes: true\n": "apply-yes", "verify: {adopt-all: true}\n": "verify-adopt-all",
	} {
		write(text)
		says(t, daemon.ExitUsage, "run", want, file)
	}
}

// The list of buckets is a bucket of its own, which nobody has created: where it is counted, the status says so.
func TestTheListOfBucketsIsNamedWhereItIsCounted(t *testing.T) {
	t.Parallel()
	k := newKeyspace(t)
	d := k.run("daemon", 200)
	require.NoError(t, k.client(k.s, nil).CreateBucket(t.Context(), "photos"))
	until(t, "it has looked at sizes", func() bool { return !d.status(t).Round.Ended.IsZero() })
	says(t, 0, "status --admin "+d.url, "with the list of buckets where it has changed")
}

func TestVersionAndHelp(t *testing.T) {
	t.Parallel()
	says(t, 0, "--version", "go1.")
	says(t, 0, "--help", "EVENKEEL_", "--config")
	_, help, _ := ran(t, 0, "", "status", "--help")
	for _, group := range []string{"Without --cassandra:", "With --cassandra:"} {
		require.Contains(t, help, "\n"+group+"\n")
	}
	own := strings.Index(help, "--format")
	require.Less(t, own, strings.Index(help, "Without --cassandra:"), "the command's own flags come first")
	require.Contains(t, help, "--tls ")
	require.NotContains(t, help, "--tls-cert-file")
	require.NotContains(t, help, "--consistency-swaps")
	require.Contains(t, help, "run --help")
	_, help, _ = ran(t, 0, "", "run", "--help")
	require.Contains(t, help, "--tls-cert-file")
	require.Contains(t, help, "--consistency-swaps")
}
