package executor_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/internal/door"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/rebalance/executor"
	"github.com/evenkeel/evenkeel/internal/rebalance/move"
	"github.com/evenkeel/evenkeel/internal/rebalance/repair"
	"github.com/evenkeel/evenkeel/internal/test/crashtest"
	"github.com/evenkeel/evenkeel/internal/test/faulttest"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/pebblestore"
)

// The crash matrix: a process splits, merges and refreshes while a writer of its
// own writes, and kills itself with -9 at one failpoint. Another process starts on
// the same directory and goes on. In the end the layout is the one that was
// wanted, and nothing acknowledged is lost. Package crashtest says what happens on
// the way, so that each failpoint is come to.

const (
	crashEnv  = "EVENKEEL_CRASH"
	crashRows = 300
)

// crashCuts is the layout that crashGoals leads to.
var crashCuts = []string{string(key(50)), string(key(150)), string(key(250))}

// crashGoals lead in two rounds through a split and then a merge.
func crashGoals() [][]move.Goal {
	return [][]move.Goal{
		{move.Split(nil, nil, 1, key(50), key(100), key(150), key(200), key(250))},
		{move.Merge(key(50), key(150)), move.Merge(key(150), key(250))},
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

// losing is a store that can lose answers.
type losing struct {
	pebblestore.Store
	loss crashtest.Loss
}

func (s *losing) Swap(ctx context.Context, t store.Table, k []byte, old store.Version, next store.Record) error {
	return s.loss.Swap(ctx, s.Store, t, k, old, next)
}

func (s *losing) Read(ctx context.Context, t store.Table, k []byte, l store.Level) (store.Record, error) {
	return s.loss.Read(ctx, s.Store, t, k, l)
}

// crashChild works until its goals are met, or it dies at a point.
func crashChild(dir, point string) error {
	ctx := context.Background()
	pebble, err := pebblestore.Open(filepath.Join(dir, "data"), pebblestore.Options{})
	if err != nil {
		return err
	}
	s := &losing{Store: pebble}
	c, err := listing.New(s, listing.Options{})
	if err != nil {
		return err
	}
	bucket, left, err := crashBuckets(dir)
	if err != nil {
		return err
	}
	stop, stopped := make(chan struct{}), make(chan error, 1)
	go func() { stopped <- crashWriter(ctx, c.Bucket("b"), crashtest.Notes(dir), stop) }()
	m := crashtest.Mover{
		Store: s, Maps: mapclient.Of(c), Loss: &s.loss, Bucket: bucket, Rounds: crashGoals(), Left: left, Keys: crashKeys(),
		Notes: crashtest.Notes(dir), Point: point, Options: executor.Options{PageRows: 40, BatchRows: 20, Writers: 1,
			Parallel: 1},
	}
	if err := m.Run(ctx); err != nil {
		return err
	}
	close(stop)
	return errors.Join(<-stopped, s.Close())
}

func crashKeys() (keys [][]byte) {
	for i := range crashRows {
		keys = append(keys, key(i))
	}
	return keys
}

// crashWriter puts and deletes keys of its own, and notes what was acknowledged.
func crashWriter(ctx context.Context, b *listing.Bucket, notes crashtest.Notes, stop chan struct{}) error {
	run := os.Getpid()
	for i := 0; ; i++ {
		select {
		case <-stop:
			return nil
		default:
		}
		k := fmt.Sprintf("%s-%d-%d", key(i*37%crashRows), run, i) // never the same key twice
		what, err := "put", b.Put(ctx, []byte(k), []byte("own"))
		if i%3 == 0 && err == nil {
			what, err = "delete", b.Delete(ctx, []byte(k))
		}
		if err == nil {
			err = notes.Add("acked", what+" "+k)
		} else if errors.Is(err, listing.ErrBucketClosing) { // until the mover opens it again
			time.Sleep(time.Millisecond)
			err = nil
		}
		if err != nil {
			return err
		}
		if i >= crashRows {
			time.Sleep(time.Millisecond) // it only keeps going
		}
	}
}

func crashBuckets(dir string) (bucket, left store.BucketID, err error) {
	b, err := os.ReadFile(filepath.Join(dir, "buckets"))
	if err == nil && len(b) != len(bucket)+len(left) {
		err = fmt.Errorf("%d bytes are not two buckets", len(b))
	}
	if err == nil {
		copy(bucket[:], b)
		copy(left[:], b[len(bucket):])
	}
	return bucket, left, err
}

// crashesAtOnce is how many processes run at once: what takes their time is the
// disk, which they wait for side by side.
const crashesAtOnce = 12

func TestKilledAtEachFailpoint(t *testing.T) {
	if testing.Short() {
		t.Skip("starts many processes")
	}
	points := append(crashtest.Points(), crashtest.Again()...)
	require.Empty(t, crashtest.Missed(points))
	var sample faulttest.Sample
	points = slices.DeleteFunc(points, func(string) bool { return sample.Skips() })
	// All begin with copies of one directory.
	first := t.TempDir()
	crashBegin(t, first)

	died := make([]bool, len(points))
	var g errgroup.Group
	g.SetLimit(crashesAtOnce)
	dirs := make([]string, len(points))
	for i, point := range points {
		dirs[i] = filepath.Join(t.TempDir(), "copy")
		require.NoError(t, os.CopyFS(dirs[i], os.DirFS(first)))
		g.Go(func() (err error) {
			if died[i], err = crashtest.Run(crashEnv+"="+dirs[i], crashEnv+"_POINT="+point); err != nil || !died[i] {
				return err
			}
			if again, err := crashtest.Run(crashEnv+"="+dirs[i], crashEnv+"_POINT="); err != nil || again {
				return fmt.Errorf("started again after %s: %w", point, err)
			}
			return nil
		})
	}
	require.NoError(t, g.Wait())
	for i, point := range points {
		require.True(t, died[i], "nobody came to %s", point)
		crashCheck(t, dirs[i], point)
	}
	t.Logf("killed at %d points", len(points))
}

// crashBegin makes the directory that all begin with: a bucket with rows, and one
// that was left behind.
func crashBegin(t *testing.T, dir string) {
	ctx := t.Context()
	s, err := pebblestore.Open(filepath.Join(dir, "data"), pebblestore.Options{NoSync: true})
	require.NoError(t, err)
	f := newFixtureIn(t, s, crashRows)
	require.NoError(t, f.c.CreateBucket(ctx, "left", cuts(crashRows, 200)...))
	require.NoError(t, f.c.Bucket("left").Put(ctx, key(7), []byte("left")))
	owner, err := door.Client(f.c).Owner(ctx, "left")
	require.NoError(t, err)
	require.NoError(t, crashtest.Leave(ctx, mapclient.Of(f.c), owner.ID))
	require.NoError(t, s.Close())
	require.NoError(t, os.WriteFile(filepath.Join(dir, "buckets"), append(f.id[:], owner.ID[:]...), 0o600))
}

func crashCheck(t *testing.T, dir, point string) {
	ctx := context.Background()
	s, err := pebblestore.Open(filepath.Join(dir, "data"), pebblestore.Options{NoSync: true})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	c, err := listing.New(s, listing.Options{})
	require.NoError(t, err)
	id, _, err := crashBuckets(dir)
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
	notes := crashtest.Notes(dir)
	notes.Expect("acked", want)
	late := len(want)
	notes.Expect("late", want)
	require.Greater(t, len(want), late, "%s: nothing came late", point)
	values, rows := map[string]string{}, 0
	for e, err := range f.b.All(ctx, listing.Query{}) {
		require.NoError(t, err)
		values[string(e.Key)] = string(e.Value)
		rows++
	}
	for k, there := range want {
		value, found := values[k]
		require.Equal(t, there, found, "%s: key %s", point, k)
		if found {
			require.Equal(t, crashValue(k), value, "%s: key %s", point, k)
		}
	}
	total := 0
	for home := range homes {
		total += f.rowsOf(t, home)
	}
	require.Equal(t, rows, total, "%s: markers are left", point)
	e, err := c.Bucket("left").Get(ctx, key(7))
	require.NoError(t, err, point)
	require.Equal(t, "left", string(e.Value), point)
	// What was left behind is open, and has no nodes but those that it names, or
	// this would report it.
	_, err = repair.New(s, c, repair.Options{Report: func(x repair.Finding) {
		t.Errorf("killed at %s: %s", point,
			x)
	}}).All(ctx)
	require.NoError(t, err)
}

// crashValue is the value that a key must have.
func crashValue(k string) string {
	for i := range crashRows {
		if k == string(key(i)) {
			return fmt.Sprintf("value %d", i)
		}
	}
	if strings.Contains(k, "!late") {
		return "late"
	}
	return "own"
}
