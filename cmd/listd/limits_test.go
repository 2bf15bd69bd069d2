package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon"
	"github.com/evenkeel/evenkeel/cmd/internal/daemon/adminserver"
)

// put sends a small object and returns the status of the answer.
func put(t *testing.T, url string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, url, strings.NewReader("v"))
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return resp.StatusCode
}

// TestReadyzWhileTheDiskIsFull: a server that refuses puts says so, and is not ready; it is again
// once there is space. Reads, listings and deletes go on.
func TestReadyzWhileTheDiskIsFull(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64m"); err != nil {
		t.Skipf("a file system can't be mounted here: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(dir, syscall.MNT_DETACH)) })
	p := start(t, filepath.Join(dir, "data"))
	ok(t, "a\n", "load", "abc", "--create", "--server", p.s3)
	status, _ := get(t, p.admin+"/readyz")
	require.Equal(t, 200, status)

	ballast := filepath.Join(dir, "ballast")
	f, err := os.Create(ballast)
	require.NoError(t, err)
	for chunk := make([]byte, 1<<20); err == nil; {
		_, err = f.Write(chunk)
	}
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.NoError(t, f.Close())
	waitFor(t, func() bool { return put(t, p.s3+"/abc/b") == 507 })
	// Within the reserve of 3.2 MiB. The store looks at the free space every 100 ms.
	info, err := os.Stat(ballast)
	require.NoError(t, err)
	require.NoError(t, os.Truncate(ballast, info.Size()-5<<19))
	waitFor(t, func() bool { return gauge(t, p, "evenkeel_disk_free_bytes") > 2<<20 })
	require.Less(t, gauge(t, p, "evenkeel_disk_free_bytes"), gauge(t, p, "evenkeel_disk_reserve_bytes"))
	require.InDelta(t, 64<<20, gauge(t, p, "evenkeel_disk_size_bytes"), 0)
	require.Positive(t, gauge(t, p, "evenkeel_disk_used_bytes"))
	require.Zero(t, gauge(t, p, "evenkeel_store_writable"))
	waitFor(t, func() bool { return listd(t, "", "rm", "abc", "gone", "--server", p.s3).code == 0 })
	for _, refused := range []string{"/abc/c", "/def"} { // an object, and a bucket
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, p.s3+refused, nil)
		require.NoError(t, err)
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, errors.Join(err, resp.Body.Close()))
		require.Equal(t, 507, resp.StatusCode, "%s: %s", refused, text)
		require.Contains(t, string(text), "<Code>InsufficientStorage</Code><Message>The server")
	}
	// b may have been written before the store saw that the disk is full.
	require.Equal(t, "a\n", strings.ReplaceAll(ok(t, "", "ls", "abc", "--server", p.s3), "b\n", ""), "listings go on")
	require.Equal(t, "abc\n", ok(t, "", "bucket", "list", "--server", p.s3), "nothing was written")
	status, body := get(t, p.admin+"/readyz")
	require.Equal(t, 503, status)
	require.Contains(t, body, "disk full: free at least")
	status, _ = get(t, p.s3+"/abc/a")
	require.Equal(t, 200, status, "reads go on")
	status, _ = get(t, p.admin+"/healthz")
	require.Equal(t, 200, status)

	require.NoError(t, os.Remove(ballast))
	waitFor(t, func() bool { return put(t, p.s3+"/abc/b") == 200 })
	status, _ = get(t, p.admin+"/readyz")
	require.Equal(t, 200, status)
	require.InDelta(t, 1, gauge(t, p, "evenkeel_store_writable"), 0)
	require.Equal(t, 0, p.end(syscall.SIGTERM), p.errs)
}

// gauge returns a metric without labels.
func gauge(t *testing.T, p *process, name string) float64 {
	t.Helper()
	_, metrics := get(t, p.admin+"/metrics")
	_, rest, found := strings.Cut(metrics, "\n"+name+" ")
	require.True(t, found, name)
	value, _, _ := strings.Cut(rest, "\n")
	v, err := strconv.ParseFloat(value, 64)
	require.NoError(t, err)
	return v
}

// withFiles runs the program with a limit of open files.
func withFiles(limit string) []string {
	return []string{"sh", "-c", "ulimit -n " + limit + ` && exec "$0" "$@"`, binary}
}

// puts sends small objects, each over a connection of its own.
func puts(t *testing.T, url string, n int) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}
	for i := range n {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, fmt.Sprintf("%s/%d", url, i),
			strings.NewReader("v"))
		require.NoError(t, err)
		resp, err := client.Do(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, 200, resp.StatusCode)
	}
}

// TestIdleConnectionsLeaveFilesToTheStore: many more connections than there are file
// descriptors, to both addresses, with and without a request on them before, keep
// neither other clients nor the store from their work.
func TestIdleConnectionsLeaveFilesToTheStore(t *testing.T) {
	t.Parallel() // it waits for the end of connections without a request
	p := startBy(t, withFiles("256"), filepath.Join(t.TempDir(), "data"))
	require.Contains(t, p.errs.String(), "connections=80")
	ok(t, "a\n", "load", "abc", "--create", "--server", p.s3)
	busy := dial(t, p.s3) // is not cut off: its request is under way
	fmt.Fprintf(busy, "PUT /abc/busy HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhel")
	waitFor(t, func() bool {
		_, body := get(t, p.admin+"/metrics")
		return strings.Contains(body, "evenkeel_s3_requests_in_flight 1")
	})
	for i := range 400 {
		c := dial(t, p.s3)
		if i%2 == 0 {
			fmt.Fprint(c, "GET /abc/a HTTP/1.1\r\nHost: localhost\r\n\r\n")
		}
		if i%4 == 0 {
			dial(t, p.admin)
		}
	}
	puts(t, p.s3+"/abc", 50)
	status, body := get(t, p.admin+"/readyz")
	require.Equal(t, 200, status, body)
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.cmd.Process.Pid))
	require.NoError(t, err)
	require.Less(t, len(files), 80+32+64+1, "tables aside, of which there are few")
	fmt.Fprintf(busy, "lo")
	answer, err := http.ReadResponse(bufio.NewReader(busy), nil)
	require.NoError(t, err)
	require.Equal(t, 200, answer.StatusCode)
	require.NotContains(t, p.errs.String(), "too many open files")
	require.Equal(t, 0, p.end(syscall.SIGTERM), p.errs)
}

// TestFewFilesAreRefused: with less than what it needs the server does not start.
func TestFewFilesAreRefused(t *testing.T) {
	command := append(withFiles("255"), "serve", "--data", t.TempDir(), "--listen", "127.0.0.1:0", "--admin", "")
	out, err := exec.Command(command[0], command[1:]...).CombinedOutput()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	require.Equal(t, daemon.ExitUsage, exit.ExitCode())
	require.Contains(t, string(out), "at least 256 are needed; raise it (ulimit -n")
}

func TestShareFiles(t *testing.T) {
	for _, c := range []struct {
		limit        uint64
		wanted       int
		conns, table int
	}{
		{256, 4096, 80, 80}, {1024, 4096, 464, 464}, {1024, 100, 100, 464}, {2096, 4096, 1000, 1000}, {4096, 4096,
			3000, 1000},
		{1 << 20, 4096, 4096, 1000}, {1<<64 - 1, 4096, 4096, 1000},
	} {
		got, err := shareFiles(c.limit, c.wanted)
		require.NoError(t, err)
		require.Equal(t, shares{c.conns, c.table}, got, "%+v", c)
		require.LessOrEqual(t, uint64(got.connections+got.tables+otherFiles+adminserver.MostConnections), c.limit)
		require.GreaterOrEqual(t, got.tables, 64, "the least that the store takes")
	}
	_, err := shareFiles(255, 1)
	require.ErrorContains(t, err, "255")
}

// resident is the resident memory of a process, in MiB.
func resident(t *testing.T, p *process) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	require.NoError(t, err)
	_, after, found := strings.Cut(string(text), "VmRSS:")
	require.True(t, found)
	kib, err := strconv.Atoi(strings.Fields(after)[0])
	require.NoError(t, err)
	return kib >> 10
}

// TestMemoryOfHostileRequests: headers of very many lines, pages that nobody reads and
// documents of nothing but elements take some memory and no more, and others are served.
func TestMemoryOfHostileRequests(t *testing.T) {
	p := start(t, t.TempDir())
	var keys strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&keys, "%0900d\n", i)
	}
	ok(t, keys.String(), "load", "abc", "--create", "--server", p.s3)
	lines := ""
	for i := range 5000 {
		lines += fmt.Sprintf("a%x:\n", i)
	}
	for name, text := range map[string]string{
		"headers": "GET /abc/k HTTP/1.1\r\nHost: h\r\n" + lines,
		"headers of requests that wait": "PUT /abc/k HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n" +
			strings.Repeat("a:\n", 8000) + "\r\n",
		"pages": strings.Repeat("GET /abc?list-type=2&encoding-type=url HTTP/1.1\r\nHost: h\r\n\r\n", 10),
		"documents": "POST /abc?delete HTTP/1.1\r\nHost: h\r\nContent-MD5: 1B2M2Y8AsgTpgAmY7PhCfg==\r\n" +
			"Content-Length: 8000000\r\n\r\n<Delete>" + strings.Repeat("<a/>", 1_000_000),
		"cuts": "PUT /cuts?evenkeel-cuts HTTP/1.1\r\nHost: h\r\nContent-Length: 4000000\r\n\r\n" +
			strings.Repeat("a\n", 100_000),
	} {
		t.Run(name, func(t *testing.T) {
			idle := resident(t, p)
			for range 400 {
				c := dial(t, p.s3)
				go c.Write([]byte(text))
			}
			highest := 0
			for end := time.Now().Add(2 * time.Second); time.Now().Before(end); {
				require.Equal(t, 200, put(t, p.s3+"/abc/honest"))
				status, _ := get(t, p.s3+"/abc/honest")
				require.Equal(t, 200, status)
				highest = max(highest, resident(t, p)-idle)
			}
			t.Logf("%d MiB at first, %d more", idle, highest)
			most := 128
			if name == "pages" {
				most = 320 // all that is for pages, and as much garbage
			}
			require.Less(t, highest, most)
		})
	}
	require.Equal(t, 0, p.end(syscall.SIGTERM), p.errs)
}

// TestMachineMemory: the lowest limit counts of all that there are.
func TestMachineMemory(t *testing.T) {
	for _, c := range []struct {
		files map[string]string
		want  int64
	}{
		{nil, 1 << 50},
		{map[string]string{"proc/meminfo": "MemTotal:       1024 kB\nMemFree: 1 kB\n"}, 1 << 20},
		{map[string]string{"proc/meminfo": "MemTotal: 2 MB\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"}, 2 << 10},
		{map[string]string{"proc/meminfo": "MemTotal: 4096 kB\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "4096\n"}, 4096},
		{map[string]string{"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "max\n",
			"sys/fs/cgroup/a/memory.max": "77\n"}, 77},
		{map[string]string{"proc/self/cgroup": "12:cpu:/x\n0::/\n", "sys/fs/cgroup/memory.max": "78\n"}, 78},
	} {
		root := t.TempDir()
		for name, text := range c.files {
			file := filepath.Join(root, name)
			require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
			require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		}
		require.Equal(t, c.want, machineMemory(root), "%v", c.files)
	}
	for machine, want := range map[int64]int64{1 << 20: 32 << 20, 512 << 20: 64 << 20, 1 << 50: 128 << 20} {
		require.Equal(t, want, (&serveCmd{}).requestMemory(machine))
	}
	require.EqualValues(t, 300<<20, (&serveCmd{RequestMemoryMiB: 300}).requestMemory(1))
}
