package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/adminapi"
	"github.com/evenkeel/evenkeel/internal/realkeys"
)

// moving is a listd that splits ranges by itself.
type moving struct {
	t              *testing.T
	bin, s3, admin string
	cmd            *exec.Cmd
	log            *os.File
	stopped        atomic.Bool
}

func startMoving(t *testing.T, bin, data string, args ...string) *moving {
	t.Helper()
	m := &moving{t: t, bin: bin}
	m.cmd = exec.Command(filepath.Join(bin, "listd"), append([]string{"serve", "--data", data, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"}, args...)...)
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var err error
	m.log, err = os.CreateTemp(t.TempDir(), "log")
	require.NoError(t, err)
	m.cmd.Stderr = m.log
	stdout, err := m.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, m.cmd.Start())
	t.Cleanup(m.kill)
	in := bufio.NewScanner(stdout)
	for _, to := range []*string{&m.s3, &m.admin} {
		require.True(t, in.Scan(), "listd said nothing")
		_, *to, _ = strings.Cut(in.Text(), " on ")
	}
	go func() { _, _ = io.Copy(io.Discard, stdout) }()
	return m
}

func (m *moving) kill() {
	if !m.stopped.Swap(true) {
		_ = m.cmd.Process.Kill()
		_ = m.cmd.Wait()
		_ = m.log.Close()
	}
}

// run runs a program against it and returns what it printed.
func (m *moving) run(name string, args ...string) []byte {
	m.t.Helper()
	var stderr bytes.Buffer
	cmd := exec.Command(filepath.Join(m.bin, name), args...)
	cmd.Stderr = &stderr
	cmd.Env = append(os.Environ(), "EVENKEEL_SERVER="+m.s3, "EVENKEEL_ADMIN_URL="+m.admin)
	out, err := cmd.Output()
	require.NoError(m.t, err, "%s %q: %s", name, args, stderr.String())
	return out
}

// lister lists a bucket over and over until stop: what was loaded before must be
// there, all in order, and no answer may be an error.
func (m *moving) lister(ctx context.Context, bucket string, loaded [][]byte) (lists int) {
	for ctx.Err() == nil {
		n, last := 0, []byte(nil)
		for after := ""; ; {
			page, err := getPage(ctx, m.s3, bucket, after, 1000)
			if ctx.Err() != nil {
				return lists
			}
			if err != nil {
				m.t.Errorf("a page after %q: %v", after, err)
				return lists
			}
			for _, k := range page.keys {
				if bytes.Compare(k, last) <= 0 {
					m.t.Errorf("%q comes after %q", k, last)
					return lists
				}
				last = k
				if n < len(loaded) {
					switch c := bytes.Compare(k, loaded[n]); {
					case c > 0:
						m.t.Errorf("%q is missing before %q", loaded[n], k)
						return lists
					case c == 0:
						n++
					}
				}
			}
			if after = page.next; after == "" {
				break
			}
		}
		if n != len(loaded) {
			m.t.Errorf("%d of %d keys were listed", n, len(loaded))
			return lists
		}
		lists++
	}
	return lists
}

// rest waits until nothing moves any more and no range is over the limit, and
// returns the sizes of the ranges.
func (m *moving) rest(bucket string, sorted [][]byte, most int) []int {
	m.t.Helper()
	deadline := time.Now().Add(3 * time.Minute)
	for {
		var st adminapi.Status
		require.NoError(m.t, json.Unmarshal(m.run("rebalancer", "status", "--format", "json"), &st))
		var mp adminapi.Map
		require.NoError(m.t, json.Unmarshal(m.run("rebalancer", "map", "show", bucket, "--format", "json"), &mp))
		var sizes []int
		settled := true
		for _, p := range mp.Partitions {
			lo, _ := slices.BinarySearchFunc(sorted, []byte(p.Start), bytes.Compare)
			hi := len(sorted)
			if len(p.End) > 0 {
				hi, _ = slices.BinarySearchFunc(sorted, []byte(p.End), bytes.Compare)
			}
			sizes = append(sizes, hi-lo)
			settled = settled && p.Phase == "settled" && !p.SweepPending
		}
		if settled && len(st.Buckets) == 0 && slices.Max(sizes) <= most {
			return sizes
		}
		require.True(m.t, time.Now().Before(deadline), "it does not come to rest: %v; %+v", sizes, st)
		time.Sleep(500 * time.Millisecond)
	}
}

// failedRequests counts the answers of 500 and above.
func (m *moving) failedRequests() (lines []string) {
	m.t.Helper()
	resp, err := http.Get(m.admin + "/metrics")
	require.NoError(m.t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(m.t, err)
	return regexp.MustCompile(`(?m)^evenkeel_s3_requests_total\{[^}]*status="5\d\d"[^}]*\}.*$`).FindAllString(string(body), -1)
}

// A bucket that begins as one range is loaded while listd splits it: nobody meets an
// error, no listing lacks what was there, and at rest no range is over the limit.
// Killed with -9 in the middle of it and started again, the same.
func TestLoadedWhileItSplits(t *testing.T) {
	if testing.Short() {
		t.Skip("loads many keys")
	}
	n := 24_000
	if os.Getenv("EVENKEEL_LARGE") != "" {
		n = 300_000
	}
	most := n / 30
	dir := t.TempDir()
	bin := filepath.Join(dir, "bin")
	out, err := exec.Command("go", "build", "-trimpath", "-o", bin+"/", "github.com/evenkeel/evenkeel/cmd/...").CombinedOutput()
	require.NoError(t, err, "%s", out)
	keys := realkeys.Collect(n, 7)
	half := len(keys) / 2
	first, second := filepath.Join(dir, "first"), filepath.Join(dir, "second")
	require.NoError(t, os.WriteFile(first, append(bytes.Join(keys[:half], []byte{0}), 0), 0o600))
	require.NoError(t, os.WriteFile(second, append(bytes.Join(keys[half:], []byte{0}), 0), 0o600))
	flags := []string{"--max-rows", fmt.Sprint(most), "--rebalance-interval", "500ms"}
	load := func(m *moving, file string) {
		m.run("listd", "load", "files", file, "-0", "--create", "--progress", "none")
	}
	listed := func(m *moving) [][]byte {
		return bytes.Split(bytes.TrimSuffix(m.run("listd", "ls", "files", "--format", "null"), []byte{0}), []byte{0})
	}

	m := startMoving(t, bin, filepath.Join(dir, "data"), flags...)
	load(m, first)
	loaded := sortedBySort(t, keys[:half])
	sizes := m.rest("files", loaded, most)
	t.Logf("%d keys in %d ranges, the largest of %d", half, len(sizes), slices.Max(sizes))
	require.Equal(t, lines(loaded), lines(listed(m)))

	// The second half goes in while everything is listed; the process is killed.
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	lists := 0
	wg.Go(func() { lists = m.lister(ctx, "files", loaded) })
	cut := exec.Command(filepath.Join(bin, "listd"), "load", "files", second, "-0", "--progress", "none", "--server", m.s3, "--patience", "1s")
	require.NoError(t, cut.Start())
	splits := func() int {
		var st adminapi.Status
		require.NoError(t, json.Unmarshal(m.run("rebalancer", "status", "--format", "json"), &st))
		running := 0
		for _, b := range st.Buckets {
			running += len(b.Batches)
		}
		return running
	}
	for splits() == 0 { // in the middle of a move
		time.Sleep(5 * time.Millisecond)
	}
	stop()
	wg.Wait()
	require.Empty(t, m.failedRequests())
	m.kill()
	require.Error(t, cut.Wait())

	m = startMoving(t, bin, filepath.Join(dir, "data"), flags...)
	ctx, stop = context.WithCancel(t.Context())
	wg.Go(func() { lists += m.lister(ctx, "files", loaded) })
	load(m, second)
	all := sortedBySort(t, keys)
	sizes = m.rest("files", all, most)
	stop()
	wg.Wait()
	t.Logf("%d keys in %d ranges, the largest of %d; %d whole listings meanwhile", len(keys), len(sizes), slices.Max(sizes), lists)
	require.Equal(t, lines(all), lines(listed(m)))
	require.Empty(t, m.failedRequests())
	require.Positive(t, lists)
}
