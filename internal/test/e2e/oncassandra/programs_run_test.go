package oncassandra

import (
	"bufio"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/test/e2e/harness"
)

// TestRunCassandra runs what `make run-cassandra` runs, on free ports: a key put
// through one server is listed by the other, and Ctrl-C leaves nothing behind.
func TestRunCassandra(t *testing.T) {
	t.Parallel()
	p := build(t)
	temporary := t.TempDir()
	cmd := exec.Command(filepath.Join(p.Bin, "run-cassandra"), "-first", "0", "-second", "0")
	cmd.Env = append(os.Environ(), "TMPDIR="+temporary)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	errs := &harness.Log{}
	cmd.Stderr = errs
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	exited := make(chan struct{})
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-exited
	})
	said := make(chan string, 1)
	go func() {
		var text strings.Builder
		lines := bufio.NewScanner(stdout)
		for lines.Scan() {
			text.WriteString(lines.Text() + "\n")
			if strings.HasPrefix(lines.Text(), "Ctrl-C") {
				break
			}
		}
		said <- text.String()
		_, _ = io.Copy(io.Discard, stdout)
		_ = cmd.Wait()
		close(exited)
	}()
	text := <-said
	node := regexp.MustCompile(`Cassandra on (127\.\S+:9042)`).FindStringSubmatch(text)
	listd := regexp.MustCompile(`S3 on (\S+), admin on (\S+)`).FindAllStringSubmatch(text, -1)
	require.NotNil(t, node, "%s%s", text, errs)
	require.Len(t, listd, 2, "%s%s", text, errs)
	first, second := listd[0][1], listd[1][1]
	p.Run("listd", "bucket", "create", "files", "--server", first)
	require.Equal(t, 200, harness.Request(t, "PUT", first+"/files/greeting", "hello").Status)
	require.Equal(t, "greeting\n", p.Run("listd", "ls", "files", "--server", second))
	require.Equal(t, "hello", harness.Request(t, "GET", second+"/files/greeting", "").Body)
	redis := regexp.MustCompile(`Redis on (127\.\S+),`).FindStringSubmatch(text)
	require.NotNil(t, redis, "%s%s", text, errs)
	for _, server := range listd {
		status := harness.Request(t, "GET", server[2]+"/v1/status", "").Body
		require.Contains(t, status, `"counting":"counted in Redis"`)
		require.NotContains(t, status, `"unattended"`)
	}

	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	select {
	case <-exited:
	case <-time.After(time.Minute):
		require.FailNow(t, "it did not end", "%s", errs)
	}
	require.Equal(t, 0, cmd.ProcessState.ExitCode(), "%s", errs)
	for _, address := range []string{node[1], redis[1], listd[0][1], listd[0][2], listd[1][1], listd[1][2]} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(address, "http://"))
		if err == nil {
			_ = conn.Close()
		}
		require.Error(t, err, "%s still answers", address)
	}
	left, err := os.ReadDir(temporary)
	require.NoError(t, err)
	for _, entry := range left {
		require.NotContains(t, entry.Name(), "evenkeel", "left behind")
	}
}
