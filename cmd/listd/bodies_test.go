package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon"
	"github.com/evenkeel/evenkeel/internal/assembly"
	"github.com/evenkeel/evenkeel/objects"
	"github.com/evenkeel/evenkeel/store"
)

// Objects of any size survive a restart, below --bodies, and what was replaced is cleaned.
func TestBodies(t *testing.T) {
	data, dir := t.TempDir(), filepath.Join(t.TempDir(), "bodies")
	// Hints are followed 20 minutes after they are due: too late for a test.
	flags := []string{"--bodies", "file://" + dir, "--clean-every", "20ms", "--clean-all-every", "0"}
	p := start(t, data, flags...)
	ok(t, "", "bucket", "create", "files", "--server", p.s3)
	large := strings.Repeat("0123456789", 100_000)
	put := func(body string) {
		t.Helper()
		req, err := http.NewRequest(http.MethodPut, p.s3+"/files/a/b", strings.NewReader(body))
		require.NoError(t, err)
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, 200, resp.StatusCode)
	}
	put("replaced" + large)
	put(large)
	require.Eventually(t, func() bool {
		_, metrics := get(t, p.admin+"/metrics")
		return strings.Contains(metrics, `evenkeel_objects_cleaned_total{step="superseded"} 1`)
	}, 30*time.Second, 10*time.Millisecond)
	require.Equal(t, 0, p.end(syscall.SIGTERM), p.errs)
	p = start(t, data, flags...)
	status, body := get(t, p.s3+"/files/a/b")
	require.Equal(t, 200, status)
	require.Equal(t, large, body)
	_, err := os.Stat(filepath.Join(data, "bodies"))
	require.ErrorIs(t, err, os.ErrNotExist)
	for _, bad := range []string{"/srv/bodies", "file://host/srv", "s3://bucket/prefix", "file:srv", "file:///srv?x"} {
		says(t, daemon.ExitUsage, "serve --bodies "+bad, "--bodies")
	}
	says(t, daemon.ExitUsage, "serve --audit-every -1s", "--audit-every")
	says(t, daemon.ExitUsage, "serve --condemn-orphans --audit-every 0", "--condemn-orphans")
	says(t, daemon.ExitUsage, "serve --scrub-mib-per-second -1", "--scrub-mib-per-second")
	says(t, daemon.ExitUsage, "serve --scrub-mib-per-second 1 --audit-every 0", "--scrub-mib-per-second")
}

// A running server finds bodies without a version, and versions without a body.
func TestServersAuditBodies(t *testing.T) {
	data := t.TempDir()
	flags := []string{"--clean-every", "20ms", "--audit-every", "30ms"}
	p := start(t, data, flags...)
	ok(t, "", "bucket", "create", "files", "--server", p.s3)
	put := func(key string) {
		t.Helper()
		req, err := http.NewRequest(http.MethodPut, p.s3+"/files/"+key, strings.NewReader(strings.Repeat(key, 10_000)))
		require.NoError(t, err)
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, 200, resp.StatusCode)
	}
	put("first")
	body := bodyFiles(t, data)
	require.Len(t, body, 1)
	put("second")

	finds := func(fault string, n int) {
		t.Helper()
		want := fmt.Sprintf("\nevenkeel_objects_audit_findings{fault=%q} %d\n", fault, n)
		require.Eventually(t, func() bool {
			_, metrics := get(t, p.admin+"/metrics")
			return strings.Contains(metrics, want)
		}, 30*time.Second, 10*time.Millisecond, "%s: %s", want, p.errs)
	}
	finds("orphan", 0)
	// The body of a put of twelve days ago, which has ended before its row was written.
	old := objects.ID{Stamp: store.Timestamp(time.Now().Add(-12 * 24 * time.Hour).UnixMicro())}
	orphan := filepath.Join(filepath.Dir(body[0]), old.String())
	content, err := os.ReadFile(body[0])
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(orphan, content, 0o600))
	finds("orphan", 1)
	finds("lost body", 0)
	_, status := get(t, p.admin+"/v1/status")
	require.Contains(t, status, `"found":[{"bucket":"files","faults":{"orphan":1}}]`)
	require.Contains(t, p.errs.String(), "key first, version "+old.String())
	require.Equal(t, 0, p.end(syscall.SIGTERM), p.errs)

	p = start(t, data, append(flags, "--condemn-orphans")...)
	finds("orphan", 0)
	require.NoFileExists(t, orphan)
	got, text := get(t, p.s3+"/files/first")
	require.Equal(t, 200, got)
	require.Equal(t, string(content), text)

	require.NoError(t, os.Rename(body[0], body[0]+"-elsewhere"))
	finds("lost body", 1)
	finds("stranger", 1)
	require.NoError(t, os.Rename(body[0]+"-elsewhere", body[0]))
	finds("lost body", 0)
	require.Equal(t, 0, p.end(syscall.SIGTERM), p.errs)

	p = start(t, data, append(flags, "--scrub-mib-per-second", "100")...)
	finds("damaged body", 0)
	require.NoError(t, os.WriteFile(body[0], []byte(strings.ToUpper(string(content))), 0o600))
	finds("damaged body", 1)
	finds("lost body", 0)
	require.Equal(t, 0, p.end(syscall.SIGTERM), p.errs)
}

// Of two stores only the first one gets a place of bodies, or the cleaner of one would delete what the other needs.
func TestAPlaceOfBodiesIsOfOneStore(t *testing.T) {
	first, second, place := t.TempDir(), t.TempDir(), t.TempDir()
	flag := "file://" + place
	for range 2 {
		require.Equal(t, 0, start(t, first, "--bodies", flag).end(syscall.SIGTERM))
	}
	args := "serve --listen 127.0.0.1:0 --admin 127.0.0.1:0 --bodies " + flag + " --data "
	says(t, daemon.ExitUnusable, args+second, "--bodies", "belong to another store", "delete _owner there")
	require.NoError(t, os.CopyFS(filepath.Join(second, "copy"), os.DirFS(first)))
	require.Equal(t, 0, start(t, filepath.Join(second, "copy"), "--bodies", flag).end(syscall.SIGTERM), "what was restored")
	require.NoError(t, os.Remove(filepath.Join(place, "_owner")))
	require.Equal(t, 0, start(t, second, "--bodies", flag).end(syscall.SIGTERM))
	says(t, daemon.ExitUnusable, args+first, "belong to another store")
}

// A place of bodies that is not mounted is an empty directory: it is no new place of a store that has objects.
func TestAPlaceOfBodiesThatIsNotMounted(t *testing.T) {
	data, place := filepath.Join(t.TempDir(), "data"), filepath.Join(t.TempDir(), "bodies")
	flag := "file://" + place
	p := start(t, data, "--bodies", flag)
	ok(t, "", "bucket", "create", "files", "--server", p.s3)
	body := strings.Repeat("body", 2000)
	req, err := http.NewRequest(http.MethodPut, p.s3+"/files/k", strings.NewReader(body))
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, 200, resp.StatusCode)
	require.Equal(t, 0, p.end(syscall.SIGTERM))
	serves := func(status int, flags ...string) {
		t.Helper()
		p := start(t, data, append(flags, "--bodies", flag)...)
		got, text := get(t, p.s3+"/files/k")
		require.Equal(t, status, got)
		if status == 200 {
			require.Equal(t, body, text)
		}
		require.Equal(t, 0, p.end(syscall.SIGTERM))
	}

	require.NoError(t, os.Rename(place, place+".away"))
	require.NoError(t, os.Mkdir(place, 0o700))
	args := "serve --listen 127.0.0.1:0 --admin 127.0.0.1:0 --bodies " + flag + " --data " + data
	for range 2 {
		says(t, daemon.ExitUnusable, args, "has no mark _owner", "mount it", "--bodies-new")
		require.NoFileExists(t, filepath.Join(place, "_owner"))
	}
	require.NoError(t, os.RemoveAll(place))
	require.NoError(t, os.Rename(place+".away", place))
	serves(200)

	// What is in the place proves nothing: it may lie below the mount point.
	require.NoError(t, os.Remove(filepath.Join(place, "_owner")))
	says(t, daemon.ExitUnusable, args, "has no mark _owner", "bring the mark back", "--bodies-new")
	serves(200, "--bodies-new")
	require.FileExists(t, filepath.Join(place, "_owner"))

	require.NoError(t, os.Rename(place, place+".lost"))
	serves(500, "--bodies-new")
	serves(500)
}

// bodyFiles are the files of bodies in a data directory.
func bodyFiles(t *testing.T, data string) (names []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(filepath.Join(data, "bodies"), func(name string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && d.Name() != "_owner" && d.Name() != ".unfinished" { // the marks
			names = append(names, name)
		}
		return err
	}))
	return names
}

// Without a place of bodies all would seem to be lost.
func TestServersWithoutBodiesDoNotAuditThem(t *testing.T) {
	s := &serveCmd{AuditEvery: time.Hour, CondemnOrphans: true}
	require.Equal(t, time.Hour, s.cleaning(&assembly.DB{}, nil, nil, nil, nil, "").AuditEvery)
	s.Cassandra = []string{"10.0.0.1"}
	require.Zero(t, s.cleaning(&assembly.DB{}, nil, nil, nil, nil, "").AuditEvery)
	s.Bodies = "file:///srv/bodies"
	require.Equal(t, time.Hour, s.cleaning(&assembly.DB{}, nil, nil, nil, nil, "").AuditEvery)
}
