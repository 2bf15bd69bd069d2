package moverkilled

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/internal/door"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/rebalance/executor"
	"github.com/evenkeel/evenkeel/internal/rebalance/move"
	"github.com/evenkeel/evenkeel/internal/rebalance/repair"
	"github.com/evenkeel/evenkeel/internal/test/cassandratest"
	"github.com/evenkeel/evenkeel/internal/test/crashtest"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/cassandrastore"
)

const (
	moverEnv = "EVENKEEL_KILLED_MOVER"
	lease    = 300 * time.Millisecond
	clocks   = 2
	rows     = 300
	// atOnce is how many movers run at once: they mostly wait.
	atOnce = 12
)

var cassandra cassandratest.Shared

// TestMain makes this binary the mover, too.
func TestMain(m *testing.M) {
	if encoded := os.Getenv(moverEnv); encoded != "" {
		var x task
		err := json.Unmarshal([]byte(encoded), &x)
		if err == nil {
			err = mover(context.Background(), x)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(cassandra.Run(m))
}

func bucketName(i int) string { return fmt.Sprintf("bucket-%d", i) }

// leftName is that of the bucket that was left behind.
func leftName(i int) string { return fmt.Sprintf("left-%d", i) }

func key(i int) []byte { return fmt.Appendf(nil, "key-%05d", i) }

// The layout to begin with, and what it becomes: a split and a merge in one batch.
var before, after = [][]byte{key(100), key(200)}, []string{string(key(50)), string(key(100))}

func goals() []move.Goal {
	return []move.Goal{move.Split(nil, key(100), 0, key(50)), move.Merge(key(100), nil)}
}

func keys() (all [][]byte) {
	for i := range rows {
		all = append(all, key(i))
	}
	return all
}

// task is what a mover has to do.
type task struct {
	Host, Keyspace, Point string
	Notes                 crashtest.Notes
	Bucket, Left          store.BucketID
}

// options: the shared node is patient, so its clients have to be more so.
func options(host, keyspace string) cassandrastore.Options {
	const patience = 35 * time.Second
	return cassandrastore.Options{
		Hosts: []string{host}, DataCentre: "dc1", AllowSingleReplica: true, Keyspace: keyspace,
		ReadTimeout: patience, WriteTimeout: patience, SwapTimeout: patience, ConnectTimeout: patience,
	}
}

// losing is a store that can lose answers.
type losing struct {
	cassandrastore.Store
	loss crashtest.Loss
}

func (s *losing) Swap(ctx context.Context, t store.Table, k []byte, old store.Version, next store.Record) error {
	return s.loss.Swap(ctx, s.Store, t, k, old, next)
}

func (s *losing) Read(ctx context.Context, t store.Table, k []byte, l store.Level) (store.Record, error) {
	return s.loss.Read(ctx, s.Store, t, k, l)
}

// mover works with leases and a session of its own, until nothing is left to do or
// it dies at the task's point.
func mover(ctx context.Context, t task) (err error) {
	c, err := cassandrastore.Open(ctx, options(t.Host, t.Keyspace))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	s := &losing{Store: c}
	m, err := mapclient.NewNetwork(s, mapclient.Options{Clocks: clocks, Lease: lease})
	if err != nil {
		return err
	}
	defer m.Close()
	x := crashtest.Mover{
		Store: s, Maps: m, Loss: &s.loss, Bucket: t.Bucket, Rounds: [][]move.Goal{goals()}, Left: t.Left, Keys: keys(),
		Notes: t.Notes, Point: t.Point, Options: executor.Options{PageRows: 40, BatchRows: 20, Writers: 1},
	}
	return x.Run(ctx)
}

// quiet is the lease where nothing moves: on a busy machine the short one may run
// out at any time.
const quiet = 30 * time.Second

// process is what one process has of its own.
func process(t *testing.T, o cassandrastore.Options, lease time.Duration) (cassandrastore.Store, *listing.Client) {
	s, err := cassandrastore.Open(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	m, err := mapclient.NewNetwork(s, mapclient.Options{Clocks: clocks, Lease: lease})
	require.NoError(t, err)
	t.Cleanup(m.Close)
	c, err := listing.New(mapclient.With(s, m), listing.Options{})
	require.NoError(t, err)
	return s, c
}

// writer puts and deletes keys of its own, each once, and knows what became of
// them.
type writer struct {
	b *listing.Bucket
	// there says whether a key was put, or put and deleted; keys whose outcome is
	// unknown are in neither state.
	there   map[string]bool
	unknown int
}

// acknowledged reports whether a write is. Under load a lease of 300 ms may run
// out at any time: then nothing is known, or nothing happened.
func (w *writer) acknowledged(err error) (bool, error) {
	if k := store.KindOf(err); err != nil && k != store.Unavailable && k != store.Timeout {
		return false, err
	}
	if err != nil {
		w.unknown++
	}
	return err == nil, nil
}

func (w *writer) run(ctx context.Context, stop *atomic.Bool) error {
	for i := 0; !stop.Load(); i++ {
		k := fmt.Appendf(key(i*37%rows), "-%d", i)
		put, err := w.acknowledged(w.b.Put(ctx, k, []byte("own")))
		if err != nil {
			return err
		}
		if put {
			w.there[string(k)] = true
		}
		if i%2 == 0 {
			delete(w.there, string(k))
			gone, err := w.acknowledged(w.b.Delete(ctx, k))
			if err != nil {
				return err
			}
			if gone && put { // a put of unknown outcome may come after it
				w.there[string(k)] = false
			}
		}
		time.Sleep(2 * time.Millisecond)
	}
	return nil
}

func TestMoversOfAClusterKilledAtEachFailpoint(t *testing.T) {
	host := cassandra.Address(t)
	o := options(host, "t"+strings.ReplaceAll(uuid.NewString(), "-", ""))
	admin, err := cassandrastore.OpenAdmin(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(func() {
		defer admin.Close()
		_ = admin.Drop(context.WithoutCancel(t.Context()))
	})
	require.NoError(t, admin.Apply(t.Context(), cassandrastore.Replication{"dc1": 1}))
	s, calm := process(t, o, quiet)
	require.NoError(t, mapclient.InitClocks(t.Context(), s, clocks))
	_, c := process(t, o, lease)

	points := crashtest.Points()
	ctx := t.Context()
	var batch []listing.Entry
	for _, k := range keys() {
		batch = append(batch, listing.Entry{Key: k, Value: []byte("value")})
	}
	var large [][]byte // its map has nodes
	for i := range 200 {
		large = append(large, key(i+1))
	}
	writers := make([]*writer, len(points))
	died := make([]bool, len(points))
	tasks := make([]task, len(points))
	var g errgroup.Group
	g.SetLimit(atOnce)
	for i := range points {
		tasks[i] = task{Host: host, Keyspace: o.Keyspace, Notes: crashtest.Notes(t.TempDir())}
		g.Go(func() (err error) {
			if tasks[i].Bucket, err = create(ctx, calm, bucketName(i), before, batch); err != nil {
				return err
			}
			if !crashtest.LeftBehind(points[i]) {
				return nil
			}
			if tasks[i].Left, err = create(ctx, calm, leftName(i), large, batch[:1]); err != nil {
				return err
			}
			return crashtest.Leave(ctx, mapclient.Of(calm), tasks[i].Left)
		})
	}
	require.NoError(t, g.Wait())
	mapclient.Of(calm).Close() // nobody with such a lease is there while ranges move
	for i, point := range points {
		w := &writer{b: c.Bucket(bucketName(i)), there: map[string]bool{}}
		writers[i] = w
		g.Go(func() error {
			var stop atomic.Bool
			written := make(chan error, 1)
			go func() { written <- w.run(ctx, &stop) }()
			err := func() (err error) {
				x := tasks[i]
				x.Point = point
				encoded, err := json.Marshal(x)
				if err != nil {
					return err
				}
				if died[i], err = crashtest.Run(moverEnv + "=" + string(encoded)); err != nil {
					return err
				}
				return mover(ctx, tasks[i]) // somebody else goes on
			}()
			stop.Store(true)
			if err = errors.Join(err, <-written); err != nil {
				return fmt.Errorf("killed at %s: %w", point, err)
			}
			return nil
		})
	}
	require.NoError(t, g.Wait())
	for i, point := range points {
		require.True(t, died[i], "nobody came to %s", point)
	}
	require.Empty(t, crashtest.Missed(points))

	mapclient.Of(c).Close()
	_, calm = process(t, o, quiet)
	unknown := map[string]bool{}
	for i, point := range points {
		unknown[bucketName(i)] = writers[i].unknown > 0
		check(t, calm, i, point, writers[i], tasks[i].Notes)
	}
	sum, err := repair.New(s, calm, repair.Options{Patience: time.Second, Report: func(x repair.Finding) {
		// What was late may have left a marker after the sweep. Map nodes that no root
		// names are reported too: there are none.
		if x.Kind != repair.LeftMarker || !unknown[string(x.Bucket)] {
			t.Errorf("%s", x)
		}
	}}).All(ctx)
	require.NoError(t, err)
	t.Logf("%+v", sum)
}

// create makes a bucket with entries.
func create(
	ctx context.Context, c *listing.Client, name string, cuts [][]byte, entries []listing.Entry,
) (store.BucketID, error) {
	if err := c.CreateBucket(ctx, name, cuts...); err != nil {
		return store.BucketID{}, err
	}
	if err := c.Bucket(name).PutBatch(ctx, entries); err != nil {
		return store.BucketID{}, err
	}
	owner, err := door.Client(c).Owner(ctx, name)
	return owner.ID, err
}

// check looks for the layout that was wanted, and for all that was acknowledged or
// came late.
func check(t *testing.T, c *listing.Client, i int, point string, w *writer, notes crashtest.Notes) {
	ctx := t.Context()
	owner, err := door.Client(c).Owner(ctx, bucketName(i))
	require.NoError(t, err)
	root, err := mapclient.Of(c).Load(ctx, owner.ID)
	require.NoError(t, err)
	require.Empty(t, root.Batches, point)
	var cuts []string
	for rg, err := range mapclient.Of(c).Ranges(ctx, root, nil) {
		require.NoError(t, err)
		require.Equal(t, partmap.Settled, rg.Phase, point)
		if len(rg.Start) > 0 {
			cuts = append(cuts, string(rg.Start))
		}
	}
	require.Equal(t, after, cuts, point)
	want := map[string]bool{}
	for _, k := range keys() {
		want[string(k)] = true
	}
	n := len(want)
	notes.Expect("late", want)
	require.Greater(t, len(want), n, "killed at %s: nothing came late", point)
	for k, there := range w.there {
		want[k] = there
	}
	listed := map[string]bool{}
	for e, err := range c.Bucket(bucketName(i)).All(ctx, listing.Query{}) {
		require.NoError(t, err, point)
		listed[string(e.Key)] = true
	}
	for k, there := range want {
		require.Equal(t, there, listed[k], "killed at %s: %s", point, k)
	}
	if crashtest.LeftBehind(point) {
		_, err = c.Bucket(leftName(i)).Get(ctx, key(0))
		require.NoError(t, err, "killed at %s: what was left behind is open again", point)
	}
	t.Logf("killed at %s: %d keys of the writer, %d outcomes unknown", point, len(w.there), w.unknown)
}
