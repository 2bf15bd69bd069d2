package oncassandra

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/test/cassandratest"
	"github.com/evenkeel/evenkeel/internal/test/child"
	"github.com/evenkeel/evenkeel/internal/test/e2e/harness"
	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/listing"
)

// endangered is a copy that something happens to.
type endangered struct {
	*harness.Programs
	site    harness.Site
	client  *listing.Client
	session *gocql.Session
	want    map[string]string
}

const (
	endangeredRows = 4000
	exitUnusable   = 3 // of rebalancer: it can't reach the keyspace
)

// endanger makes a table, "app", whose rows have a value in the column meta.
func endanger(t *testing.T, host string) *endangered {
	p := build(t)
	e := &endangered{Programs: p, site: p.LaidOut(host), want: map[string]string{}}
	p.ServeSite(e.site, "--lease", "1s")
	store := harness.Open(t, harness.Patient(e.site.Options()))
	e.client = harness.Client(t, store, harness.Maps(t, store, time.Second), listing.Options{})
	e.session = harness.Session(t, host, e.site.Name)
	require.NoError(t, e.session.Query("CREATE TABLE app (room text, name text, meta text, other text, "+
		"PRIMARY KEY (room, name))").Exec())
	const step = 200
	for first := 0; first < endangeredRows; first += step {
		b := e.session.NewBatch(gocql.UnloggedBatch)
		for i := first; i < first+step; i++ {
			name := fmt.Sprintf("%06d", i)
			e.want[name] = "value of " + name
			b.Query("INSERT INTO app (room, name, meta, other) VALUES ('r', ?, ?, 'x')", name, e.want[name])
		}
		require.NoError(t, e.session.ExecuteBatch(b))
	}
	return e
}

func (e *endangered) command(more ...string) []string {
	return e.site.Flags(append([]string{
		"adopt", "cql", "adopted", "--table", e.site.Name + ".app", "--partition", "room=r", "--local-dc", "dc1",
		"--lease", "1s",
	}, more...)...)
}

// during begins a copy that would take a minute, does something once rows have come, and returns how the copy ends.
func (e *endangered) during(t *testing.T, checkpoint string, command []string, do func()) (code int, errs string) {
	t.Helper()
	var stderr bytes.Buffer
	cmd := exec.Command(filepath.Join(e.Bin, "rebalancer"), append(command, "--checkpoint", checkpoint)...)
	cmd.Stderr = &stderr
	exited, err := child.Start(cmd)
	require.NoError(t, err)
	defer func() { _ = cmd.Process.Kill(); <-exited }()
	ended := func() bool {
		select {
		case <-exited:
			return true
		default:
			return false
		}
	}
	harness.Eventually(t, "it has copied something", func() bool {
		text, _ := os.ReadFile(checkpoint)
		require.False(t, ended(), "%s", &stderr)
		return strings.Contains(string(text), `"last"`) || strings.Contains(string(text), `"ended"`)
	})
	do()
	harness.Eventually(t, "the copy has ended", ended)
	return cmd.ProcessState.ExitCode(), stderr.String()
}

func (e *endangered) rows(t *testing.T) map[string]string {
	t.Helper()
	got := map[string]string{}
	for item, err := range e.client.Bucket("adopted").All(t.Context(), listing.Query{}) {
		require.NoError(t, err)
		got[string(item.Key)] = string(item.Value)
	}
	return got
}

var slowly = []string{"--rate", fmt.Sprint(endangeredRows / 60)}

// TestAdoptFromATableThatChanges: a copy whose table loses a column, or is dropped, ends and says why; what it has
// copied stays, also where a catch-up is tried.
func TestAdoptFromATableThatChanges(t *testing.T) {
	t.Parallel()
	e := endanger(t, cassandra.Address(t))
	code, errs := e.during(t, filepath.Join(t.TempDir(), "c.json"),
		e.command(append(slowly, "--value", "meta,other")...),
		func() { require.NoError(t, e.session.Query("ALTER TABLE app DROP other").Exec()) })
	require.Equal(t, 1, code, errs)
	require.Contains(t, errs, "the table seems to have been changed or dropped meanwhile")
	require.Contains(t, errs, "other")
	require.NotEmpty(t, e.rows(t))
	code, _, errs = e.Try("rebalancer", e.command("--value", "meta,other")...)
	require.Equal(t, 4, code)
	require.Contains(t, errs, "other")
	e.Run("rebalancer", e.command("--value", "meta", "--catch-up")...) // the values of before were of two columns
	requireEqual(t, e.want, e.rows(t))

	for name := range e.want { // all rows, so that there are some to copy
		require.NoError(t, e.client.Bucket("adopted").Delete(t.Context(), []byte(name)))
	}
	code, errs = e.during(t, filepath.Join(t.TempDir(), "c.json"), e.command(append(slowly, "--value", "meta")...),
		func() { require.NoError(t, e.session.Query("DROP TABLE app").Exec()) })
	require.Equal(t, 1, code, errs)
	require.Contains(t, errs, "the table seems to have been changed or dropped meanwhile")
	require.NoError(t, e.client.Bucket("adopted").Put(t.Context(), []byte("stays"), nil))
	for _, more := range []string{"--catch-up", "--verify", "--back"} {
		code, _, errs = e.Try("rebalancer", e.command("--value", "meta", more)...)
		require.Equal(t, 4, code)
		require.Contains(t, errs, "there is no table")
	}
	require.Contains(t, e.rows(t), "stays")
}

// TestAdoptFromANodeThatGoesAway: the copy gives up after a while, and the same command goes on once the node is back.
func TestAdoptFromANodeThatGoesAway(t *testing.T) {
	t.Parallel()
	build(t)
	node := cassandratest.New(t, cassandratest.Options{DurableWrites: true}).Nodes[0]
	e := endanger(t, node.Address)
	_, err := node.Nodetool(t.Context(), "flush") // of what the node must know of its tables
	require.NoError(t, err)
	checkpoint := filepath.Join(t.TempDir(), "c.json")
	command := e.command("--value", "meta")
	code, errs := e.during(t, checkpoint, append(command, slowly...), func() { require.NoError(t, node.Kill()) })
	require.Equal(t, 1, code, errs)
	require.Contains(t, errs, "what has been done stays: run the same command again")
	require.NoError(t, node.Start(context.WithoutCancel(t.Context())))
	harness.Eventually(t, "the node answers the command", func() bool {
		code, out, errs := e.Try("rebalancer", append(command, "--checkpoint", checkpoint)...)
		require.Contains(t, []int{0, exitUnusable}, code, errs)
		require.NotContains(t, out, "4,000 rows read", "it went on where it was")
		return code == 0
	})
	harness.Eventually(t, "this process is connected again", func() bool {
		_, err := e.client.Bucket("adopted").List(t.Context(), listing.Query{Limit: 1})
		return err == nil
	})
	requireEqual(t, e.want, e.rows(t))
	require.Contains(t, e.Run("rebalancer", "adopt", "status", checkpoint), "copied: 4,000 of about 4,000 rows")
}

// TestAdoptOnFullDisks: a full disk below the temporary store changes nothing. One below the checkpoint is reported,
// and once there is space, the same command goes on.
func TestAdoptOnFullDisks(t *testing.T) {
	t.Parallel()
	random := seed.New(t)
	small := func(size string) string {
		dir := t.TempDir()
		if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
			t.Skipf("a file system can't be mounted here: %v", err)
		}
		t.Cleanup(func() { require.NoError(t, syscall.Unmount(dir, syscall.MNT_DETACH)) })
		return dir
	}
	temp, saved := small("8m"), small("64k")
	e := endanger(t, cassandra.Address(t))
	file := filepath.Join(t.TempDir(), "lines")
	var lines strings.Builder
	for i := range 200_000 {
		fmt.Fprintf(&lines, "%d\t%016x%016x%016x%016x\n", i, random.Uint64(), random.Uint64(), random.Uint64(),
			random.Uint64())
	}
	require.NoError(t, os.WriteFile(file, []byte(lines.String()), 0o600))
	code, _, errs := e.Try("rebalancer", e.site.Flags("adopt", "file", "adopted", file, "--form", "tsv", "--local-dc", "dc1",
		"--lease", "1s", "--temp", temp)...)
	require.Equal(t, 4, code, errs)
	require.Contains(t, errs, "disk full")
	require.Contains(t, errs, "nothing was changed: free space, or set --temp")
	_, err := e.client.BucketID(t.Context(), "adopted")
	require.ErrorIs(t, err, listing.ErrNoSuchBucket)
	left, err := os.ReadDir(temp)
	require.NoError(t, err)
	require.Empty(t, left)

	checkpoint, ballast := filepath.Join(saved, "c.json"), filepath.Join(saved, "ballast")
	fill := func() {
		f, err := os.Create(ballast)
		require.NoError(t, err)
		for err == nil {
			_, err = f.Write(make([]byte, 4096))
		}
		require.ErrorIs(t, err, syscall.ENOSPC)
		require.NoError(t, f.Close())
	}
	command := e.command("--value", "meta", "--rate", fmt.Sprint(endangeredRows/10))
	code, errs = e.during(t, checkpoint, command, fill)
	require.Equal(t, 1, code, errs)
	require.Contains(t, errs, "free space for --checkpoint, and run the same command again")
	require.Equal(t, 2, strings.Count(errs, "the progress can't be saved"), "once on the way, and at the end")
	requireEqual(t, e.want, e.rows(t))
	code, _, errs = e.Try("rebalancer", append(command, "--checkpoint", checkpoint+"2")...)
	require.Equal(t, 1, code)
	require.Contains(t, errs, "the progress can't be saved")
	require.NoError(t, os.Remove(ballast))
	e.Run("rebalancer", append(command, "--checkpoint", checkpoint)...)
	require.Contains(t, e.Run("rebalancer", "adopt", "status", checkpoint), "copied: 4,000 of about 4,000 rows")
	requireEqual(t, e.want, e.rows(t))
}
