package executor_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/internal/fsck"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/rebalance/executor"
	"github.com/evenkeel/evenkeel/rebalance/migrate"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/pebblestore"
)

// The crash matrix: a process splits, merges and refreshes while a writer of its
// own writes, and kills itself with -9 at one failpoint. Another process starts on
// the same directory and goes on. In the end the layout is the one that was
// wanted, and nothing acknowledged is lost.

const (
	crashEnv  = "EVENKEEL_CRASH"
	crashRows = 300
)

// crashCuts is the layout that crashGoals leads to.
var crashCuts = []string{string(key(50)), string(key(150)), string(key(250))}

// crashGoals lead in two rounds through a split and then a merge.
func crashGoals() [][]migrate.Goal {
	return [][]migrate.Goal{
		{migrate.Split(nil, nil, 1, key(50), key(100), key(150), key(200), key(250))},
		{migrate.Merge(key(50), key(150)), migrate.Merge(key(150), key(250))},
	}
}

// TestMain makes this binary the child, too.
func TestMain(m *testing.M) {
	if dir := os.Getenv(crashEnv); dir != "" {
		if err := crashChild(dir, os.Getenv(crashEnv+"_POINT")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// crashChild works until its goals are met, or it dies at a point, which is named
// with the number of times that it is passed: "copy batch#2".
func crashChild(dir, point string) error {
	ctx := context.Background()
	s, err := pebblestore.Open(filepath.Join(dir, "data"), pebblestore.Options{})
	if err != nil {
		return err
	}
	c, err := listing.NewEmbedded(s, listing.Options{})
	if err != nil {
		return err
	}
	id, err := crashBucket(dir)
	if err != nil {
		return err
	}
	// What is acknowledged is noted, so that the parent knows what must be there.
	log, err := os.OpenFile(filepath.Join(dir, "acked"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	stop, stopped := make(chan struct{}), make(chan error, 1)
	go func() { stopped <- crashWriter(ctx, c.Bucket("b"), log, stop) }()

	name, times, _ := strings.Cut(point, "#")
	left, _ := strconv.Atoi(times)
	x := executor.New(s, c.Maps(), id, executor.Options{PageRows: 40, BatchRows: 20, Writers: 1, Parallel: 1,
		Failpoint: func(_ context.Context, at, _ string) error {
			if at == name {
				if left--; left == 0 {
					return syscall.Kill(os.Getpid(), syscall.SIGKILL)
				}
			}
			return nil
		}})
	done, err := os.ReadFile(filepath.Join(dir, "round"))
	if err != nil {
		return err
	}
	round, _ := strconv.Atoi(string(done))
	for ; round < len(crashGoals()); round++ {
		x.Add(crashGoals()[round]...)
		if err := x.Run(ctx); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, "round"), []byte(strconv.Itoa(round+1)), 0o600); err != nil {
			return err
		}
	}
	close(stop)
	return errors.Join(<-stopped, s.Close())
}

// crashWriter puts and deletes keys of its own, and notes what was acknowledged.
func crashWriter(ctx context.Context, b *listing.Bucket, log *os.File, stop chan struct{}) error {
	run := os.Getpid()
	for i := 0; ; i++ {
		select {
		case <-stop:
			return nil
		default:
		}
		k := fmt.Sprintf("%s-%d-%d", key(i*37%crashRows), run, i) // never the same key twice
		if err := b.Put(ctx, []byte(k), []byte("own")); err != nil {
			return err
		}
		what := "put"
		if i%3 == 0 {
			if err := b.Delete(ctx, []byte(k)); err != nil {
				return err
			}
			what = "delete"
		}
		if _, err := fmt.Fprintf(log, "%s %s\n", what, k); err != nil {
			return err
		}
		if i >= crashRows {
			time.Sleep(time.Millisecond) // it only keeps going
		}
	}
}

func crashBucket(dir string) (id store.BucketID, err error) {
	b, err := os.ReadFile(filepath.Join(dir, "bucket"))
	copy(id[:], b)
	return id, err
}

// crashesAtOnce is how many processes run at once: what takes their time is the
// disk, which they wait for side by side.
const crashesAtOnce = 12

func TestKilledAtEachFailpoint(t *testing.T) {
	if testing.Short() {
		t.Skip("starts many processes")
	}
	var points []string
	for _, p := range executor.Failpoints() {
		switch {
		case strings.Contains(p, "reopen"), strings.Contains(p, "collect"), p == "swap unknown", p == "verify batch":
			continue // not part of these moves
		}
		points = append(points, p+"#1")
		if !strings.HasSuffix(p, "swept") && p != "sweep checked" && p != "sweep markers read" {
			points = append(points, p+"#2") // within the second round, or another range
		}
	}
	// All begin with copies of one directory.
	first := t.TempDir()
	s, err := pebblestore.Open(filepath.Join(first, "data"), pebblestore.Options{NoSync: true})
	require.NoError(t, err)
	f := newFixtureIn(t, s, crashRows)
	require.NoError(t, s.Close())
	require.NoError(t, os.WriteFile(filepath.Join(first, "bucket"), f.id[:], 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(first, "round"), []byte("0"), 0o600))

	var died atomic.Int64
	var g errgroup.Group
	g.SetLimit(crashesAtOnce)
	dirs := make([]string, len(points))
	for i, point := range points {
		dirs[i] = filepath.Join(t.TempDir(), "copy")
		require.NoError(t, os.CopyFS(dirs[i], os.DirFS(first)))
		g.Go(func() error {
			killed, err := crashRun(dirs[i], point)
			if err != nil || !killed { // then the point was not reached
				return err
			}
			died.Add(1)
			if _, err = crashRun(dirs[i], ""); err != nil {
				return fmt.Errorf("started again after %s: %w", point, err)
			}
			return nil
		})
	}
	require.NoError(t, g.Wait())
	for i, point := range points {
		crashCheck(t, dirs[i], point)
	}
	t.Logf("killed at %d of %d points", died.Load(), len(points))
	require.GreaterOrEqual(t, int(died.Load()), len(points)*9/10)
}

// crashRun runs a child to its end, or until it kills itself.
func crashRun(dir, point string) (killed bool, err error) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), crashEnv+"="+dir, crashEnv+"_POINT="+point)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if point != "" && errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("%w: %s", err, out)
	}
	return false, nil
}

func crashCheck(t *testing.T, dir, point string) {
	ctx := context.Background()
	s, err := pebblestore.Open(filepath.Join(dir, "data"), pebblestore.Options{NoSync: true})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	c, err := listing.NewEmbedded(s, listing.Options{})
	require.NoError(t, err)
	id, err := crashBucket(dir)
	require.NoError(t, err)
	f := &fixture{s: s, c: c, b: c.Bucket("b"), id: id}

	var cuts []string
	homes := map[store.PartitionID]bool{}
	for _, rg := range f.ranges(t) {
		require.Equal(t, partmap.Settled, rg.Phase, point)
		require.False(t, rg.SweepPending, point)
		homes[rg.Partition] = true
		if len(rg.Start) > 0 {
			cuts = append(cuts, string(rg.Start))
		}
	}
	require.Equal(t, crashCuts, cuts, point)

	want := map[string]bool{}
	for i := range crashRows {
		want[string(key(i))] = true
	}
	log, err := os.Open(filepath.Join(dir, "acked"))
	require.NoError(t, err)
	defer log.Close()
	for lines := bufio.NewScanner(log); lines.Scan(); {
		what, k, ok := strings.Cut(lines.Text(), " ")
		require.True(t, ok)
		want[k] = what == "put"
	}
	found, rows := map[string]bool{}, 0
	for e, err := range f.b.All(ctx, listing.Query{}) {
		require.NoError(t, err)
		found[string(e.Key)] = true
		rows++
	}
	for k, there := range want {
		require.Equal(t, there, found[k], "%s: key %s", point, k)
	}
	total := 0
	for home := range homes {
		total += f.rowsOf(t, home)
	}
	require.Equal(t, rows, total, "%s: markers are left", point)
	_, err = fsck.New(s, c, fsck.Options{Report: func(x fsck.Finding) { t.Errorf("killed at %s: %s", point, x) }}).All(ctx)
	require.NoError(t, err)
}
