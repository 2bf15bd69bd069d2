package main

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon/secrecy"
)

// TestNoSecretIsPrinted by config or by the log, wherever it was given.
func TestNoSecretIsPrinted(t *testing.T) {
	const token, password = "a-very-secret-token", "a-secret-password"
	url := "redis://user:" + password + "@127.0.0.1:1/3"
	file := filepath.Join(t.TempDir(), "listd.yaml")
	require.NoError(t, os.WriteFile(file, []byte("serve:\n  admin-token: "+token+"\n  counter: "+url+"\n"), 0o644))
	t.Setenv("EVENKEEL_COUNTER", url)
	for _, args := range [][]string{
		{"config", "--admin-token", token, "--counter", url}, {"--config", file, "config"}, {"config"},
		{"config", "--counter", "redis://" + password + "@127.0.0.1:1"},
		{"config", "--counter", "redis://h/" + password},
		{"config", "--counter", "redis://u:x/" + password + "@h/0"},
		{"config", "--counter", "redis://u:%zz" + password + "@h/0"},
	} {
		o := listd(t, "", args...)
		require.NotContains(t, o.out+o.err, token)
		require.NotContains(t, o.out+o.err, password, "%q", args)
		if o.code == 0 {
			require.Regexp(t, `counter: redis://\S*@?127.0.0.1:1`, o.out)
		}
	}
	os.Unsetenv("EVENKEEL_COUNTER")

	dir := t.TempDir()
	require.NoError(t, os.Chmod(file, 0o644))
	require.NoError(t, os.Chmod(dir, 0o755))
	p := startBy(t, []string{binary, "--config", file, "--log-level", "debug"}, dir)
	_, body := get(t, p.admin+"/debug/pprof/cmdline", "Authorization", "Bearer "+token)
	require.Equal(t, binary, body)
	require.Regexp(t, `can be read by everybody.*--config`, p.errs.String())
	require.Regexp(t, `open to others.*`+dir, p.errs.String())
	require.Equal(t, 0, p.end(syscall.SIGTERM), p.errs)
	require.NotContains(t, p.errs.String(), token)
	require.NotContains(t, p.errs.String(), password)

	// Whatever flag comes to hold a secret is hidden, too.
	parser, err := program(stdio{out: io.Discard, err: io.Discard}).Parser(&cli{})
	require.NoError(t, err)
	secret := regexp.MustCompile("token|secret|password|counter")
	var serve *kong.Node
	for _, n := range parser.Model.Children {
		if n.Name == "serve" {
			serve = n
		}
	}
	for _, f := range serve.Flags {
		if secret.MatchString(f.Name) && !strings.HasSuffix(f.Name, "-file") {
			require.Contains(t, secrecy.Flags, f.Name)
		}
	}
}

// TestWhatIsStoredIsPrivate, also with a umask that leaves everything open.
func TestWhatIsStoredIsPrivate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	p := startBy(t, []string{"sh", "-c", `umask 0; exec "$0" "$@"`, binary}, dir)
	ok(t, "a\nb\n", "load", "abc", "--create", "--server", p.s3)
	backup := filepath.Join(t.TempDir(), "new", "backup")
	require.NoError(t, os.Mkdir(filepath.Dir(backup), 0o755))
	ok(t, "", "backup", backup, "--admin", p.admin)
	require.Equal(t, 0, p.end(syscall.SIGTERM), p.errs)
	require.NotContains(t, p.errs.String(), "open to others")
	p = startBy(t, []string{"sh", "-c", `umask 0; exec "$0" "$@"`, binary}, dir)
	require.Equal(t, 0, p.end(syscall.SIGTERM), p.errs)
	restored := filepath.Join(t.TempDir(), "restored")
	ok(t, "", "restore", backup, "--data", restored)
	for _, top := range []string{dir, backup, restored} {
		files := 0
		require.NoError(t, filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
			require.NoError(t, err)
			info, err := d.Info()
			require.NoError(t, err)
			require.Zero(t, info.Mode().Perm()&0o077, "%s: %v", path, info.Mode())
			files++
			return nil
		}))
		require.Greater(t, files, 5)
	}
}

// TestLogsAreBounded: whoever asks for what is refused, as fast and as long as can be, does
// not fill the disk.
func TestLogsAreBounded(t *testing.T) {
	p := start(t, t.TempDir(), "--log-rate", "50")
	const clients, each = 4, 500
	began := time.Now()
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			for range each {
				path := "/none/" + strings.Repeat("%01", 1000) + "?x=" + strings.Repeat("a", 2000)
				r, err := http.NewRequest(http.MethodGet, p.s3+path, nil)
				if err != nil {
					panic(err)
				}
				r.Header.Set("User-Agent", strings.Repeat("\"", 2000))
				resp, err := http.DefaultClient.Do(r)
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}
		})
	}
	all.Wait()
	seconds := time.Since(began).Seconds() + 2
	// It says how many are missing although nothing more is logged.
	lines := func() (shown, dropped int) {
		shown = strings.Count(p.errs.String(), "msg=request ")
		for _, m := range regexp.MustCompile(`lines=(\d+) kind=request`).FindAllStringSubmatch(p.errs.String(), -1) {
			n, err := strconv.Atoi(m[1])
			require.NoError(t, err)
			dropped += n
		}
		return shown, dropped
	}
	waitFor(t, func() bool { shown, dropped := lines(); return shown+dropped == clients*each })
	shown, dropped := lines()
	require.LessOrEqual(t, float64(shown), 50*seconds)
	_, metrics := get(t, p.admin+"/metrics")
	require.Contains(t, metrics, fmt.Sprintf("evenkeel_log_lines_dropped_total %d\n", dropped))
	for line := range bytes.Lines([]byte(p.errs.String())) {
		require.Less(t, len(line), 5000)
	}
	require.Equal(t, 0, p.end(syscall.SIGTERM))
}
