package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon"
)

// Flags that contradict each other, or would have no effect, are refused before
// anything is opened.
func TestFlagsOfCassandra(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "text")
	require.NoError(t, os.WriteFile(text, []byte("no certificate"), 0o600))
	cluster := "--cassandra 127.0.0.1:1 --local-dc dc1 "
	for args, says := range map[string]string{
		"--cassandra 127.0.0.1:1":                       "--local-dc is missing",
		cluster + "--data " + dir:                       "--data: only for the embedded store",
		cluster + "--cache-mib 1 --tombstone-grace 2h":  "--cache-mib, --tombstone-grace: only for the embedded store",
		"--keyspace other":                              "--keyspace: only with --cassandra",
		"--local-dc dc1 --lease 4s --max-clock-skew 1s": "--local-dc, --lease, --max-clock-skew: only with --cassandra",
		"--tls":                                   "--tls: only with --cassandra",
		"--consistency-read-rows QUORUM":          "--consistency-read-rows: only with --cassandra",
		cluster + "--lease 1ms":                   "--lease is from 50ms",
		cluster + "--clocks 0":                    "--clocks is from 1",
		cluster + "--max-clock-skew 1ms":          "--max-clock-skew is at least",
		cluster + "--user u":                      "--user needs --password-file",
		cluster + "--password-file f":             "--password-file needs --user",
		cluster + "--tls-ca-file f":               "--tls-ca-file needs --tls",
		cluster + "--tls --tls-ca-file /no/such":  "/no/such",
		cluster + "--tls --tls-ca-file " + text:   "holds no certificate",
		cluster + "--tls --tls-cert-file " + text: "need each other",
		cluster + "--tls --tls-cert-file " + text + " --tls-key-file " + text: "--tls-cert-file and --tls-key-file",
		cluster + "--consistency-read-roots LOCAL_ONE":                        "--consistency-read-roots must be one of",
		cluster + "--address-map 10.0.0.1=127.0.0.1:2":                        "each as HOST:PORT",
		cluster + "--address-map 10.0.0.1:9042":                               "each as HOST:PORT",
		cluster + "--address-map 10.0.0.1:1=a:2,10.0.0.1:1=b:2":               "has 10.0.0.1:1 twice",
		"--cassandra 127.0.0.1:1,,127.0.0.2 --local-dc dc1":                   "a node without a name",
	} {
		o := listd(t, "", append([]string{"serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"},
			strings.Fields(args)...)...)
		require.Equal(t, daemon.ExitUsage, o.code, "%s: %s", args, o.err)
		require.Contains(t, o.err, says, args)
		require.Empty(t, o.out, args)
	}
	o := listd(t, "", strings.Fields("serve --listen 127.0.0.1:0 --admin 127.0.0.1:0 "+cluster)...)
	require.Equal(t, daemon.ExitUnusable, o.code, o.err)
	require.Contains(t, o.err, "127.0.0.1:1")
	require.Contains(t, o.err, "is Cassandra running there")
	require.NoDirExists(t, "evenkeel-data")
}

// What is printed reads back as the same, with and without a cluster.
func TestConfigurationOfCassandra(t *testing.T) {
	t.Setenv("EVENKEEL_KEYSPACE", "listings")
	file := filepath.Join(t.TempDir(), "listd.yaml")
	require.NoError(t, os.WriteFile(file,
		[]byte("serve:\n  cassandra: [10.0.0.1, \"10.0.0.2:9043\"]\n  local-dc: east\n  consistency:\n    read-rows: "+
			"QUORUM\n  tls: true\n"), 0o600))
	out := ok(t, "", "--config", file, "config", "--lease", "5s")
	for _, want := range []string{
		"- 10.0.0.1", "- 10.0.0.2:9043", "keyspace: listings # EVENKEEL_KEYSPACE", "local-dc: east # file",
		"lease: 5s # flag",
		"consistency-read-rows: QUORUM # file", "consistency-write-rows: LOCAL_QUORUM # default", "tls: true # file",
		"data: ./evenkeel-data # default",
	} {
		require.Contains(t, out, want)
	}
	os.Unsetenv("EVENKEEL_KEYSPACE")
	for _, args := range [][]string{{"--config", file, "config"}, {"config"}} {
		out := ok(t, "", args...)
		again := filepath.Join(t.TempDir(), "again.yaml")
		require.NoError(t, os.WriteFile(again, []byte(out), 0o600))
		values := func(s string) (lines []string) {
			for _, line := range strings.Split(s, "\n") {
				value, _, _ := strings.Cut(line, " # ")
				lines = append(lines, value)
			}
			return lines
		}
		require.Equal(t, values(out), values(ok(t, "", "--config", again, "config")))
	}
	t.Setenv("EVENKEEL_CASSANDRA", "10.0.0.3,10.0.0.4")
	out = ok(t, "", "config", "--local-dc", "dc1")
	require.Contains(t, out, "- 10.0.0.3")
	require.Contains(t, out, "- 10.0.0.4")
}
