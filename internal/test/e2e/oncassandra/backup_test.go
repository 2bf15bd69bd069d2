package oncassandra

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/rebalance/executor"
	"github.com/evenkeel/evenkeel/internal/rebalance/move"
	"github.com/evenkeel/evenkeel/internal/test/cassandratest"
	"github.com/evenkeel/evenkeel/internal/test/e2e/harness"
	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/listing"
)

// page runs the commands of docs/backup.md, word for word.
type page struct {
	t      *testing.T
	blocks map[string]string
	env    map[string]string
	path   string
}

func openPage(t *testing.T, p *harness.Programs, node *cassandratest.Node) *page {
	text, err := os.ReadFile("../../../../docs/backup.md")
	require.NoError(t, err)
	blocks := map[string]string{}
	for _, m := range regexp.MustCompile("(?s)<!-- run: ([^>]*) -->\n```sh\n(.*?)```").
		FindAllStringSubmatch(string(text), -1) {
		blocks[m[1]] = m[2]
	}
	require.Equal(t, strings.Count(string(text), "```sh"), len(blocks), "each block of commands has a name, and is run")
	tools := t.TempDir()
	require.NoError(t, node.WriteNodetool(tools))
	return &page{t: t, blocks: blocks, path: tools + ":" + p.Bin + ":" + os.Getenv("PATH"), env: map[string]string{
		"CLUSTER": "--cassandra " + node.Address + " --local-dc dc1 --allow-single-replica", "DATA": node.Data(), "REPLICATION": "dc1=1",
	}}
}

// with is the same page with other settings.
func (p *page) with(settings ...string) *page {
	q := *p
	q.env = map[string]string{}
	for k, v := range p.env {
		q.env[k] = v
	}
	for i := 0; i < len(settings); i += 2 {
		q.env[settings[i]] = settings[i+1]
	}
	return &q
}

// try runs a block to its end; it returns what it printed.
func (p *page) try(name string) (string, error) {
	p.t.Helper()
	require.Contains(p.t, p.blocks, name)
	cmd := exec.CommandContext(p.t.Context(), "bash", "-euo", "pipefail", "-c", p.blocks[name])
	cmd.Env = append(os.Environ(), "PATH="+p.path)
	for k, v := range p.env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	began := time.Now()
	out, err := cmd.CombinedOutput()
	p.t.Logf("%s: %v", name, time.Since(began).Round(100*time.Millisecond))
	return string(out), err
}

func (p *page) run(name string) string {
	p.t.Helper()
	out, err := p.try(name)
	require.NoError(p.t, err, "%s: %s", name, out)
	return out
}

// TestBackups is docs/backup.md on a real node.
func TestBackups(t *testing.T) {
	t.Parallel()
	build(t)
	node := cassandratest.New(t, cassandratest.SharedOptions()).Nodes[0]
	t.Run("under a pause", func(t *testing.T) { backupUnderAPause(t, build(t), node) })
	t.Run("at two moments", func(t *testing.T) { snapshotsAtTwoMoments(t, build(t), node) })
}

// backupUnderAPause follows the page from its begin to its end while somebody writes.
func backupUnderAPause(t *testing.T, p *harness.Programs, node *cassandratest.Node) {
	pg := openPage(t, p, node)
	s, into := p.LaidOut(node.Address), harness.NewSite(t, node.Address)
	srv := p.ServeSite(s)
	const rows = 200
	var keys strings.Builder
	for i := range rows {
		fmt.Fprintf(&keys, "k%04d\n", i)
	}
	file := filepath.Join(t.TempDir(), "keys")
	require.NoError(t, os.WriteFile(file, []byte(keys.String()), 0o600))
	cuts := filepath.Join(t.TempDir(), "cuts")
	require.NoError(t, os.WriteFile(cuts, []byte("k0100\n"), 0o600))
	p.Run("listd", "load", "abc", file, "--create", "--cuts-file", cuts, "--server", srv.S3, "--progress", "none")
	status := func(method, key string) int { return harness.Request(t, method, srv.S3+"/abc/"+key, "v").Status }
	require.Equal(t, http.StatusNoContent, status("DELETE", "k0007"))

	var mu sync.Mutex
	var acknowledged []string
	end := harness.Meanwhile(t, func(ctx context.Context) {
		for i := 0; ctx.Err() == nil; i++ {
			key := fmt.Sprintf("k%04d/new", i)
			req, _ := http.NewRequest(http.MethodPut, srv.S3+"/abc/"+key, strings.NewReader("v"))
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Error(err)
				return
			}
			resp.Body.Close()
			mu.Lock()
			if resp.StatusCode == http.StatusOK {
				acknowledged = append(acknowledged, key)
			}
			mu.Unlock()
			time.Sleep(20 * time.Millisecond)
		}
	})
	at := pg.with("KEYSPACE", s.Name, "TAG", "monday", "BACKUP", filepath.Join(t.TempDir(), "monday"), "NEW", into.Name)
	require.Contains(t, at.run("pause"), "nothing moves")
	code, _, errs := p.Try("rebalancer", "split", "abc", "--at", "k0150", "--admin", srv.Admin)
	require.Equal(t, 4, code)
	require.Contains(t, errs, "(backup monday)")
	mu.Lock()
	before := append([]string{}, acknowledged...)
	mu.Unlock()
	at.run("snapshot")
	require.Contains(t, at.run("resume"), "resumed")
	require.Equal(t, http.StatusNoContent, status("DELETE", "k0001"), "that is later than the backup")
	at.run("copy")
	end()

	at.run("restore schema")
	at.run("restore import")
	require.Contains(t, at.run("restore check"), "\nclean\n")
	again := p.ServeSite(into)
	listed := "\n" + p.Run("listd", "ls", "abc", "--server", again.S3)
	for i := range rows {
		require.Equal(t, i != 7, strings.Contains(listed, fmt.Sprintf("\nk%04d\n", i)), "row %d", i)
	}
	require.NotEmpty(t, before)
	for _, key := range before {
		require.Contains(t, listed, "\n"+key+"\n")
	}
	// It is in use again: moves, writes, and all.
	require.Contains(t, p.Run("rebalancer", "status", "--admin", again.Admin), "All moves are paused since ")
	at.run("restore resume")
	require.Contains(t, p.Run("rebalancer", "merge", "abc", "--range", "..", "--admin", again.Admin, "--progress", "none"), "done: ")
	require.Equal(t, 200, harness.Request(t, "PUT", again.S3+"/abc/last", "v").Status)
	require.Equal(t, listed+"last\n", "\n"+p.Run("listd", "ls", "abc", "--server", again.S3))
	again.Kill()
	srv.Kill()
}

// snapshotsAtTwoMoments restores maps and rows of different moments, in both orders, of
// buckets in which nothing moves, a range is split, and ranges are merged.
func snapshotsAtTwoMoments(t *testing.T, p *harness.Programs, node *cassandratest.Node) {
	pg := openPage(t, p, node)
	seed := seed.Number(t)
	r := rand.New(rand.NewPCG(seed, 0))
	s := p.LaidOut(node.Address)
	st := harness.Open(t, harness.Patient(s.Options()))
	require.NoError(t, mapclient.InitClocks(t.Context(), st, harness.Clocks))
	maps := harness.Maps(t, st, 500*time.Millisecond)
	c := harness.Client(t, st, maps, listing.Options{})

	const rows = 120
	key := func(i int) []byte { return fmt.Appendf(nil, "k%04d", i) }
	names := []string{"quiet", "split", "merge"}
	there := map[string]map[string]bool{} // of each bucket; absent: known of no key
	for _, name := range names {
		var cuts [][]byte
		if name == "merge" {
			cuts = [][]byte{key(rows / 2)}
		}
		require.NoError(t, c.CreateBucket(t.Context(), name, cuts...))
		there[name] = map[string]bool{}
		var entries []listing.Entry
		for i := range rows {
			entries = append(entries, listing.Entry{Key: key(i), Value: []byte("v")})
			there[name][string(key(i))] = true
		}
		require.NoError(t, c.Bucket(name).PutBatch(t.Context(), entries))
	}
	// change puts and deletes some keys of each bucket.
	change := func(told func(name, key string, there bool)) {
		for _, name := range names {
			for range 15 {
				k := key(r.IntN(rows + 20))
				if r.IntN(2) == 0 {
					require.NoError(t, c.Bucket(name).Put(t.Context(), k, []byte("w")))
					told(name, string(k), true)
				} else {
					require.NoError(t, c.Bucket(name).Delete(t.Context(), k))
					told(name, string(k), false)
				}
			}
		}
	}
	know := func(name, key string, is bool) { there[name][key] = is }

	// Moves go on to some point, and wait there.
	points := []string{"after swap marking", "after swap copying", "after copy", "after swap verifying", "after swap draining", "before remove"}
	goOn := make(chan struct{})
	var moved sync.WaitGroup
	for _, name := range names[1:] {
		id, err := c.BucketID(t.Context(), name)
		require.NoError(t, err)
		stopAt, reached := points[r.IntN(len(points))], make(chan struct{})
		t.Logf("%s: a snapshot %s", name, stopAt)
		var once sync.Once
		x := executor.New(st, maps, id, executor.Options{Failpoint: func(_ context.Context, point, _ string) error {
			if point == stopAt {
				once.Do(func() { close(reached) })
				<-goOn
			}
			return nil
		}})
		if name == "split" {
			x.Add(move.Split(nil, nil, r.IntN(2), key(rows/2)))
		} else {
			x.Add(move.Merge(nil, nil))
		}
		change(know)
		moved.Go(func() {
			if err := x.Run(t.Context()); err != nil {
				t.Error(err)
			}
		})
		<-reached
	}
	change(know)
	dir := t.TempDir()
	first := pg.with("KEYSPACE", s.Name, "TAG", "first", "BACKUP", filepath.Join(dir, "first"))
	first.run("snapshot")
	// What is touched from here on may be as it was or as it is.
	forget := func(name, key string, _ bool) { delete(there[name], key) }
	change(forget)
	close(goOn)
	moved.Wait()
	change(forget)
	second := pg.with("KEYSPACE", s.Name, "TAG", "second", "BACKUP", filepath.Join(dir, "second"))
	second.run("snapshot")
	first.run("copy")
	second.run("copy")

	for _, x := range []struct{ name, maps, rows, mend string }{
		{"maps-older", "first", "second", "adopt"},
		{"rows-older", "second", "first", "adopt all"},
	} {
		into := harness.NewSite(t, node.Address)
		mixed := filepath.Join(dir, x.name)
		tables, err := os.ReadDir(filepath.Join(dir, x.maps, s.Name))
		require.NoError(t, err)
		for _, table := range tables {
			from := x.maps
			if table.Name() == "rows" {
				from = x.rows
			}
			require.NoError(t, os.CopyFS(filepath.Join(mixed, s.Name, table.Name()), os.DirFS(filepath.Join(dir, from, s.Name, table.Name()))))
		}
		at := pg.with("KEYSPACE", s.Name, "TAG", x.name, "BACKUP", mixed, "NEW", into.Name)
		at.run("restore schema")
		at.run("restore import")
		out, err := at.try("restore check")
		t.Logf("%s: %v\n%s", x.name, err, out)
		out, err = at.try(x.mend)
		t.Logf("%s: %v\n%s", x.name, err, out)
		require.NoError(t, err)
		out = at.run("restore check")
		require.Contains(t, out, "\nclean\n", x.name)

		again := harness.Open(t, harness.Patient(into.Options()))
		maps := harness.Maps(t, again, 500*time.Millisecond)
		restored := harness.Client(t, again, maps, listing.Options{})
		check := func(when string) {
			for _, name := range names {
				have := map[string]bool{}
				for item, err := range restored.Bucket(name).All(t.Context(), listing.Query{}) {
					require.NoError(t, err)
					have[string(item.Key)] = true
				}
				for k, is := range there[name] {
					require.Equal(t, is, have[k], "EVENKEEL_SEED=%d %s, %s: %s: %s", seed, x.name, when, name, k)
				}
			}
		}
		check("after the repair")
		// What was in flight comes to its end.
		for _, name := range names[1:] {
			id, err := restored.BucketID(t.Context(), name)
			require.NoError(t, err)
			require.NoError(t, executor.New(again, maps, id, executor.Options{}).Run(t.Context()))
		}
		check("after the moves")
		require.Contains(t, at.run("restore check"), "\nclean\n", x.name)
	}
}
