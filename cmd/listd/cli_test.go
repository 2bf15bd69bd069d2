package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon"
)

func TestHelpTeaches(t *testing.T) {
	for _, command := range []string{"serve", "load", "ls", "bucket create", "bucket delete", "bucket list", "config"} {
		help := ok(t, "", append(strings.Fields(command), "--help")...)
		require.Contains(t, help, "Example", command)
		require.Contains(t, help, "listd "+command, command)
	}
	all := ok(t, "", "--help")
	require.Contains(t, all, "Exit codes:")
	require.Equal(t, all, ok(t, ""))
	require.Contains(t, ok(t, "", "--version"), "go1.")
}

func TestBadCommandLines(t *testing.T) {
	for _, args := range []string{
		"nonsense", "serve --nonsense", "serve extra", "load", "ls", "ls b --format xml", `ls b --prefix \q`,
		"ls b --limit -1", "ls b --parallel 0", "ls b --parallel 1000",
		"bucket", "bucket create", "load b --concurrency 0", "load b --cuts-file x", "load b /no/such/file --create",
		"load b /", "bucket create b --cuts-file /no/such/file",
		"ls b --server nonsense", "ls b --server ftp://h", "ls b --server http://h/path",
		"serve --request-timeout fast",
		"serve --listen 0.0.0.0:0", "serve --listen :0", "serve --listen x:y:z",
		"serve --admin 0.0.0.0:0", "--config /no/such/file serve", "serve --max-requests=-1",
	} {
		o := listd(t, "", append(strings.Fields(args), "--log-level=error")...)
		require.Equal(t, daemon.ExitUsage, o.code, "listd %s: %s%s", args, o.out, o.err)
		require.Contains(t, o.err, "listd: ", args)
		require.Empty(t, o.out, args)
	}
	_, err := os.Stat("evenkeel-data")
	require.ErrorIs(t, err, os.ErrNotExist, "a refused command made a data directory")
}

func TestConfiguration(t *testing.T) {
	file := filepath.Join(t.TempDir(), "listd.yaml")
	require.NoError(t, os.WriteFile(file,
		[]byte("log-level: warn\nserve:\n  data: /from/file\n  region: eu-file-1\n  max-requests: 7\nls:\n  parallel: 3\n"),
		0o600))
	t.Setenv("EVENKEEL_REGION", "eu-env-1")
	t.Setenv("EVENKEEL_MAX_REQUESTS", "8")
	t.Setenv("EVENKEEL_ADMIN_TOKEN", "secret")
	out := ok(t, "", "--config", file, "config", "--max-requests", "9")
	for _, want := range []string{
		"log-level: WARN # file", "data: /from/file # file", "region: eu-env-1 # EVENKEEL_REGION",
		"max-requests: 9 # flag",
		"listen: 127.0.0.1:9000 # default", "admin-token: (set) # EVENKEEL_ADMIN_TOKEN",
		"request-timeout: 30s # default",
	} {
		require.Contains(t, out, want)
	}
	require.NotContains(t, out, "secret")

	// What is printed reads back as the same, and from the environment's file.
	again := filepath.Join(t.TempDir(), "again.yaml")
	require.NoError(t, os.WriteFile(again, []byte(out), 0o600))
	t.Setenv("EVENKEEL_CONFIG", again)
	os.Unsetenv("EVENKEEL_REGION")
	os.Unsetenv("EVENKEEL_MAX_REQUESTS")
	os.Unsetenv("EVENKEEL_ADMIN_TOKEN")
	out = ok(t, "", "config")
	require.Contains(t, out, "region: eu-env-1 # file")
	require.Contains(t, out, "max-requests: 9 # file")

	t.Setenv("EVENKEEL_CONFIG", "/no/such/file")
	require.Equal(t, daemon.ExitUsage, listd(t, "", "config").code)
	os.Unsetenv("EVENKEEL_CONFIG")
	for _, bad := range []string{"serve:\n  dta: /x\n", "serve: [1", "lisen: x\n", "serve:\n  max-requests: many\n"} {
		require.NoError(t, os.WriteFile(file, []byte(bad), 0o600))
		o := listd(t, "", "--config", file, "config")
		require.Equal(t, daemon.ExitUsage, o.code, bad)
		require.NotEmpty(t, o.err, bad)
	}
	t.Setenv("EVENKEEL_MAX_REQUESTS", "many")
	require.Equal(t, daemon.ExitUsage, listd(t, "", "config").code)
}
