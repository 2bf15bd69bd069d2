package e2e

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/pebblestore"
)

// TestVerifyThePrograms checks a server with the program: while keys are loaded
// and ranges split, after kill -9, and with damage in its data directory.
func TestVerifyThePrograms(t *testing.T) {
	dir := t.TempDir()
	data := filepath.Join(dir, "data")
	listd, rebalancer := filepath.Join(dir, "listd"), filepath.Join(dir, "rebalancer")
	for _, program := range []string{listd, rebalancer} {
		out, err := exec.Command("go", "build", "-trimpath", "-o", program, "github.com/evenkeel/evenkeel/cmd/"+filepath.Base(program)).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	serve := func() (server, admin string, kill func()) {
		cmd := exec.Command(listd, "serve", "--data", data, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0",
			"--max-rows", "1000", "--rebalance-interval", "100ms", "--move-rate", "5000")
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		stdout, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		ended := false
		kill = func() {
			if !ended {
				ended = true
				_ = cmd.Process.Kill()
				_ = cmd.Wait()
			}
		}
		t.Cleanup(kill)
		lines := bufio.NewReader(stdout)
		for _, to := range []*string{&server, &admin} {
			line, err := lines.ReadString('\n')
			require.NoError(t, err)
			_, *to, _ = strings.Cut(strings.TrimSpace(line), " on ")
		}
		return server, admin, kill
	}
	verify := func(args ...string) (code int, out string) {
		cmd := exec.Command(rebalancer, append([]string{"verify"}, args...)...)
		b, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			require.NoError(t, err)
		}
		return cmd.ProcessState.ExitCode(), string(b)
	}
	clean := func(args ...string) string {
		t.Helper()
		code, out := verify(args...)
		require.Zero(t, code, "%q: %s", args, out)
		return out
	}

	const keys = 10_000
	file := filepath.Join(dir, "keys")
	var text bytes.Buffer
	for i := range keys {
		fmt.Fprintf(&text, "key-%06d\n", i*7919%keys)
	}
	require.NoError(t, os.WriteFile(file, text.Bytes(), 0o600))
	server, admin, kill := serve()
	load := exec.Command(listd, "load", "photos", file, "--create", "--progress", "none", "--server", server)
	var complaints bytes.Buffer
	load.Stderr = &complaints
	require.NoError(t, load.Start())
	loaded := make(chan error, 1)
	go func() { loaded <- load.Wait() }()
	checks, moving := 0, 0
	for done := false; !done || checks < 3; checks++ {
		if strings.Contains(clean("--admin", admin), "moving") {
			moving++
		}
		select {
		case err := <-loaded:
			require.NoError(t, err, "%s", &complaints)
			done = true
		default:
		}
	}
	t.Logf("%d checks while keys were loaded, %d saw moves", checks, moving)
	kill()
	clean("--data", data) // whatever was under way when it was killed

	_, admin, kill = serve()
	clean("--admin", admin)
	code, out := verify("--data", data)
	require.Equal(t, 2, code, "listd has it open: %s", out)
	code, out = verify("none", "--admin", admin)
	require.Equal(t, 2, code)
	require.Contains(t, out, "there is no such bucket")
	kill()
	code, out = verify("--admin", admin)
	require.Equal(t, 2, code)
	require.Contains(t, out, "can't be reached")

	s, err := pebblestore.Open(data, pebblestore.Options{})
	require.NoError(t, err)
	c, err := listing.NewEmbedded(s, listing.Options{})
	require.NoError(t, err)
	owner, err := c.Owner(t.Context(), "photos")
	require.NoError(t, err)
	for i := range 3 {
		stray := store.Partition{Bucket: owner.ID, ID: store.PartitionID(uuid.New())}
		row := store.Row{Key: fmt.Appendf(nil, "stray-%d", i), Value: store.EntryCell(nil), Timestamp: store.Timestamp(time.Now().UnixMicro())}
		require.NoError(t, s.Put(t.Context(), stray, row))
	}
	require.NoError(t, s.Close())
	_, admin, kill = serve()
	defer kill()
	code, out = verify("photos", "--admin", admin, "--format", "json")
	require.Equal(t, 1, code, out)
	require.Equal(t, 3, strings.Count(out, `"orphan partition"`), out)
	require.Contains(t, clean("photos", "--admin", admin, "--repair"), "mended: removed")
	require.NotContains(t, clean("--admin", admin), "orphan")
}
