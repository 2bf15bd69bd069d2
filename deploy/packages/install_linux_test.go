package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// These tests take minutes and the network: make test-packages sets this.
const installs = "EVENKEEL_TEST_INSTALLS"

const s3 = "http://127.0.0.1:9000"

// debian is the root of a fresh Debian, which is made once and then copied.
func debian(t *testing.T) string {
	t.Helper()
	if os.Getenv(installs) == "" {
		t.Skip("takes minutes: make test-packages")
	}
	cache, err := os.UserCacheDir()
	require.NoError(t, err)
	archive := filepath.Join(cache, "evenkeel", "debian-bookworm-1.tar")
	if _, err := os.Stat(archive); err != nil {
		require.NoError(t, os.MkdirAll(filepath.Dir(archive), 0o700))
		part := archive + ".part"
		output(t, "mmdebstrap", "--variant=apt", "--include=systemd-sysv,dbus,ca-certificates,procps", "--format=tar",
			"bookworm", part)
		require.NoError(t, os.Rename(part, archive))
	}
	root, err := os.MkdirTemp("", "evenkeel-debian-")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	require.NoError(t, os.Chmod(root, 0o755))
	output(t, "tar", "-C", root, "--numeric-owner", "-xf", archive)
	return root
}

// machine is a Debian that systemd has booted, in namespaces of its own.
type machine struct {
	t    *testing.T
	root string
	net  *network
	pid  int // of its systemd, outside
}

// boot starts the systemd of a root, and waits until it is up.
func boot(t *testing.T, root string) *machine {
	t.Helper()
	m := &machine{t: t, root: root, net: newNetwork(t)}
	nspawn := exec.Command("systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--machine=evenkeel-test",
		"--directory="+root, "--console=pipe", "--boot")
	var console bytes.Buffer
	nspawn.Stdout, nspawn.Stderr = &console, &console
	ended := m.net.start(t, nspawn)
	t.Cleanup(func() {
		_ = nspawn.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(30 * time.Second):
		}
		if t.Failed() {
			t.Log(console.String())
		}
	})
	until(t, "systemd is up", func() bool {
		if m.pid = childOf(nspawn.Process.Pid); m.pid == 0 { // its first child ends soon
			return false
		}
		state, _ := m.run("systemctl is-system-running")
		return strings.HasPrefix(state, "running") || strings.HasPrefix(state, "degraded")
	})
	return m
}

// childOf is the only child of a process, or 0.
func childOf(pid int) int {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	child, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	return child
}

func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !done(); time.Sleep(200 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within two minutes: %s", what)
		}
	}
}

// run runs a line of the shell in the machine.
func (m *machine) run(line string) (string, error) {
	out, err := exec.Command("nsenter", "--target", strconv.Itoa(m.pid), "--all", "--wdns=/", "env", "-i",
		"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C.UTF-8",
		"sh", "-c", line).CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

func (m *machine) must(line string) string {
	m.t.Helper()
	out, err := m.run(line)
	if err != nil {
		log, _ := m.run("journalctl --no-pager -n 40 -u 'evenkeel-*'")
		m.t.Fatalf("%s: %v: %s\n%s", line, err, out, log)
	}
	return out
}

// aws runs the client of others, as it is installed outside of the machine.
func (m *machine) aws(args ...string) string {
	m.t.Helper()
	cmd := exec.Command("aws", append([]string{"--endpoint-url", s3, "--no-sign-request", "--output", "text"}, args...)...)
	cmd.Env = append(os.Environ(), "AWS_DEFAULT_REGION=us-east-1", "AWS_EC2_METADATA_DISABLED=true",
		"AWS_RETRY_MODE=standard", "AWS_MAX_ATTEMPTS=10")
	out, err := m.net.output(cmd)
	require.NoError(m.t, err, "aws %s: %s", strings.Join(args, " "), out)
	return strings.TrimSpace(out)
}

func TestDebIsInstalledUpgradedAndRemoved(t *testing.T) {
	root := debian(t)
	next := filepath.Join(t.TempDir(), "next")
	require.NoError(t, of("1.1.0").build(checkout, next))
	for from, to := range map[string]string{debOf(built(t), "1.0.0"): "old.deb", debOf(next, "1.1.0"): "new.deb"} {
		text, err := os.ReadFile(from)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(root, to), text, 0o644))
	}
	m := boot(t, root)
	const install = "apt-get install -y --no-install-recommends "

	m.must(install + "/old.deb")
	require.Equal(t, "inactive", first(m.run("systemctl is-active evenkeel-listd")))
	require.Equal(t, "640 root evenkeel", m.must("stat -c '%a %U %G' /etc/evenkeel/evenkeel.yaml"))
	require.Equal(t, "750 root evenkeel", m.must("stat -c '%a %U %G' /etc/evenkeel"))

	m.must("systemctl enable --now evenkeel-listd")
	m.aws("s3api", "create-bucket", "--bucket", "photos") // at once: systemctl has waited until it serves
	m.aws("s3api", "put-object", "--bucket", "photos", "--key", "first")
	require.Contains(t, m.aws("s3api", "list-objects-v2", "--bucket", "photos"), "first")
	require.Contains(t, m.must("rebalancer status"), "This process leads")
	require.Equal(t, "700 evenkeel evenkeel", m.must("stat -c '%a %U %G' /var/lib/evenkeel"))
	require.Equal(t, "evenkeel", m.must("stat -c %U /proc/$(systemctl show -P MainPID evenkeel-listd)"))
	// What does not fit the settings is said once, and not tried again.
	m.run("systemctl start evenkeel-rebalancer")
	require.Contains(t, m.must("journalctl --no-pager -u evenkeel-rebalancer"), "--cassandra is missing")
	require.Equal(t, "failed", first(m.run("systemctl is-active evenkeel-rebalancer")))

	m.must("sed -i 's/^#log-level: .*/log-level: debug/' /etc/evenkeel/evenkeel.yaml && systemctl restart evenkeel-listd")
	before := m.must("systemctl show -P MainPID evenkeel-listd")
	load := m.load("photos")
	load.more(t, 500)
	m.must(install + "/new.deb")
	require.NotEqual(t, before, m.must("systemctl show -P MainPID evenkeel-listd"))
	load.more(t, 500)
	t.Log(load.end(t))
	m.aws("s3api", "put-object", "--bucket", "photos", "--key", "last")
	require.Equal(t, "log-level: debug", m.must("grep log-level /etc/evenkeel/evenkeel.yaml"))
	require.Equal(t, "1.1.0", m.must("dpkg-query -W -f '${Version}' evenkeel"))

	before = m.must("systemctl show -P MainPID evenkeel-listd")
	m.must("systemctl kill --signal KILL evenkeel-listd")
	until(t, "it is started again", func() bool {
		return first(m.run("systemctl is-active evenkeel-listd")) == "active" &&
			m.must("systemctl show -P MainPID evenkeel-listd") != before
	})
	m.aws("s3api", "head-object", "--bucket", "photos", "--key", "last")

	m.must("apt-get remove -y evenkeel")
	require.Equal(t, "inactive", first(m.run("systemctl is-active evenkeel-listd")))
	require.Empty(t, m.must("ls /usr/bin | grep -E '^(listd|rebalancer)$' || :"))
	m.must(install + "/new.deb && systemctl start evenkeel-listd")
	m.aws("s3api", "head-object", "--bucket", "photos", "--key", "first")
	require.Equal(t, "log-level: debug", m.must("grep log-level /etc/evenkeel/evenkeel.yaml"))
	said := m.must("apt-get purge -y evenkeel")
	require.Contains(t, said, "the data stay in /var/lib/evenkeel")
	m.must("test -d /var/lib/evenkeel/data && test ! -e /etc/evenkeel && test ! -e /usr/share/doc/evenkeel")
	require.Empty(t, m.must("find /etc /usr /var/lib/systemd -name '*evenkeel*'"))
}

func first(out string, _ error) string { return out }

// load puts keys, reads them again and lists them, until end.
type load struct {
	client  http.Client
	bucket  string
	stop    context.CancelFunc
	working sync.WaitGroup
	puts    atomic.Int64 // acknowledged: the keys below are there
	retries atomic.Int64
	longest atomic.Int64 // time of an operation with its retries
	failed  atomic.Pointer[error]
	done    [4]atomic.Int64 // of each worker
}

func (m *machine) load(bucket string) *load {
	ctx, stop := context.WithCancel(context.Background())
	l := &load{bucket: bucket, stop: stop, client: http.Client{
		Transport: &http.Transport{DialContext: m.net.dial}, Timeout: 10 * time.Second,
	}}
	for worker := range l.done {
		l.working.Go(func() {
			for i := int64(0); ctx.Err() == nil; i++ {
				key := fmt.Sprintf("load/%d/%08d", worker, i)
				for _, r := range []struct{ method, path, want string }{
					{http.MethodPut, "/" + key, ""},
					{http.MethodGet, "/" + key, "the value of " + key},
					{http.MethodGet, "?list-type=2&max-keys=1&prefix=" + key, "<Key>" + key + "</Key>"},
				} {
					if err := l.try(r.method, r.path, "the value of "+key, r.want); err != nil {
						l.failed.CompareAndSwap(nil, &err)
						return
					}
				}
				l.done[worker].Store(i + 1)
				l.puts.Add(1)
			}
		})
	}
	m.t.Cleanup(func() {
		stop()
		l.working.Wait()
	})
	return l
}

// try sends a request until it is answered, as clients do: for half a minute, a tenth of a second apart.
func (l *load) try(method, path, value, want string) error {
	begun := time.Now()
	var last error
	for time.Since(begun) < 30*time.Second {
		if last != nil {
			l.retries.Add(1)
			time.Sleep(100 * time.Millisecond)
		}
		var body io.Reader
		if method == http.MethodPut {
			body = strings.NewReader(value)
		}
		req, err := http.NewRequest(method, s3+"/"+l.bucket+path, body)
		if err != nil {
			return err
		}
		answer, err := l.client.Do(req)
		if last = err; err != nil {
			continue
		}
		text, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		switch {
		case err != nil:
			last = err
		case answer.StatusCode >= 500:
			last = fmt.Errorf("%s: %s", answer.Status, text)
		case answer.StatusCode != http.StatusOK || !strings.Contains(string(text), want):
			return fmt.Errorf("%s %s: %s: %s", method, path, answer.Status, text)
		default:
			for {
				took, longest := int64(time.Since(begun)), l.longest.Load()
				if took <= longest || l.longest.CompareAndSwap(longest, took) {
					return nil
				}
			}
		}
	}
	return fmt.Errorf("%s %s failed for half a minute: %w", method, path, last)
}

// more waits for n more puts.
func (l *load) more(t *testing.T, n int64) {
	t.Helper()
	for want := l.puts.Load() + n; l.puts.Load() < want; time.Sleep(50 * time.Millisecond) {
		if err := l.failed.Load(); err != nil {
			t.Fatal(*err)
		}
	}
}

// end ends the load, and checks that every acknowledged key is listed.
func (l *load) end(t *testing.T) string {
	t.Helper()
	l.stop()
	l.working.Wait()
	if err := l.failed.Load(); err != nil {
		t.Fatal(*err)
	}
	for worker := range l.done {
		listed, after := map[string]bool{}, ""
		for more := true; more; {
			query := fmt.Sprintf("?list-type=2&prefix=load/%d/&start-after=%s", worker, after)
			answer, err := l.client.Get(s3 + "/" + l.bucket + query)
			require.NoError(t, err)
			text, err := io.ReadAll(answer.Body)
			require.NoError(t, err)
			require.NoError(t, answer.Body.Close())
			parts := strings.Split(string(text), "<Key>")[1:]
			for _, part := range parts {
				after, _, _ = strings.Cut(part, "</Key>")
				listed[after] = true
			}
			more = strings.Contains(string(text), "<IsTruncated>true")
		}
		for i := range l.done[worker].Load() {
			require.True(t, listed[fmt.Sprintf("load/%d/%08d", worker, i)], "acknowledged, and not listed")
		}
	}
	return fmt.Sprintf("%d keys put, read and listed, %d retries, the longest operation took %v",
		l.puts.Load(), l.retries.Load(), time.Duration(l.longest.Load()).Round(time.Millisecond))
}

func TestRPMIsInstalledAndRemoved(t *testing.T) {
	root := debian(t)
	in := func(args ...string) string {
		return output(t, "rpm", append([]string{"--root", root}, args...)...)
	}
	// Debian has no rpm of systemd, which the package requires.
	in("--install", "--nodeps", rpmOf(t, built(t)))
	chroot := func(args ...string) string {
		return strings.TrimSpace(output(t, "chroot", append([]string{root}, args...)...))
	}
	require.Equal(t, "640 root evenkeel", chroot("stat", "-c", "%a %U %G", "/etc/evenkeel/evenkeel.yaml"))
	require.Equal(t, "750 root evenkeel", chroot("stat", "-c", "%a %U %G", "/etc/evenkeel"))
	require.Contains(t, chroot("getent", "passwd", "evenkeel"), ":/var/lib/evenkeel:")
	chroot("/usr/bin/listd", "--version")
	chroot("runuser", "-u", "evenkeel", "--", "/usr/bin/listd", "--config", "/etc/evenkeel/evenkeel.yaml", "config")

	next := filepath.Join(t.TempDir(), "next")
	require.NoError(t, of("1.1.0").build(checkout, next))
	settings := filepath.Join(root, "etc/evenkeel/evenkeel.yaml")
	text, err := os.ReadFile(settings)
	require.NoError(t, err)
	text = append(text, "log-level: debug\n"...)
	require.NoError(t, os.WriteFile(settings, text, 0o640))
	in("--upgrade", "--nodeps", rpmOf(t, next))
	require.Equal(t, "1.1.0\n", in("--query", "--queryformat", "%{VERSION}\n", "evenkeel"))
	kept, err := os.ReadFile(settings)
	require.NoError(t, err)
	require.Equal(t, string(text), string(kept))

	in("--verify", "--nodeps", "--noconfig", "evenkeel")
	in("--erase", "evenkeel")
	require.NoFileExists(t, filepath.Join(root, "usr/bin/listd"))
	require.FileExists(t, settings+".rpmsave")
}
