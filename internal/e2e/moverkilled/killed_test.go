package moverkilled

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/internal/cassandratest"
	"github.com/evenkeel/evenkeel/internal/fsck"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/partmap/mapclient"
	"github.com/evenkeel/evenkeel/rebalance/executor"
	"github.com/evenkeel/evenkeel/rebalance/migrate"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/cassandrastore"
)

const (
	moverEnv = "EVENKEEL_KILLED_MOVER"
	lease    = 300 * time.Millisecond
	clocks   = 2
	rows     = 300
	// atOnce is how many movers run at once: they mostly wait.
	atOnce = 6
)

// usual are the points at which movers are killed in every run, about one for each
// phase; all of them where EVENKEEL_SIM_TIME is set.
var usual = map[string]bool{
	"after swap marking": true, "before wait": true, "after swap copying": true, "copy batch": true, "before swap verifying": true,
	"after verify": true, "after swap draining": true, "after remove": true, "after swap settled": true, "sweep checked": true,
	"before swap swept": true,
}

var cassandra cassandratest.Shared

// TestMain makes this binary the mover, too.
func TestMain(m *testing.M) {
	if task := os.Getenv(moverEnv); task != "" {
		if err := mover(task); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(cassandra.Run(m))
}

func bucketName(i int) string { return fmt.Sprintf("bucket-%d", i) }

func key(i int) []byte { return fmt.Appendf(nil, "key-%05d", i) }

// The layout to begin with, and what it becomes: a split and a merge in one batch.
var before, after = [][]byte{key(100), key(200)}, []string{string(key(50)), string(key(100))}

func goals() []migrate.Goal {
	return []migrate.Goal{migrate.Split(nil, key(100), 0, key(50)), migrate.Merge(key(100), nil)}
}

// task is what a mover has to do.
type task struct {
	Host, Keyspace, Point string
	Bucket                store.BucketID
}

// options: the shared node is patient, so its clients have to be more so.
func options(host, keyspace string) cassandrastore.Options {
	const patience = 35 * time.Second
	return cassandrastore.Options{
		Hosts: []string{host}, DataCentre: "dc1", AllowSingleReplica: true, Keyspace: keyspace,
		ReadTimeout: patience, WriteTimeout: patience, SwapTimeout: patience, ConnectTimeout: patience,
	}
}

func moves(s store.Store, m *mapclient.Client, id store.BucketID, point string) error {
	x := executor.New(s, m, id, executor.Options{
		PageRows: 40, BatchRows: 20, Writers: 1,
		Failpoint: func(_ context.Context, at, _ string) error {
			if at == point {
				return syscall.Kill(os.Getpid(), syscall.SIGKILL)
			}
			return nil
		},
	})
	x.Add(goals()...)
	return x.Run(context.Background())
}

// mover is the process that is killed.
func mover(encoded string) error {
	var t task
	if err := json.Unmarshal([]byte(encoded), &t); err != nil {
		return err
	}
	s, err := cassandrastore.Open(context.Background(), options(t.Host, t.Keyspace))
	if err != nil {
		return err
	}
	m, err := mapclient.NewNetwork(s, mapclient.Options{Clocks: clocks, Lease: lease})
	if err != nil {
		return err
	}
	return moves(s, m, t.Bucket, t.Point)
}

// quiet is the lease where nothing moves: on a busy machine the short one may run
// out at any time.
const quiet = 30 * time.Second

// process is what one process has of its own.
func process(t *testing.T, o cassandrastore.Options, lease time.Duration) (*cassandrastore.Store, *listing.Client) {
	s, err := cassandrastore.Open(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	m, err := mapclient.NewNetwork(s, mapclient.Options{Clocks: clocks, Lease: lease})
	require.NoError(t, err)
	t.Cleanup(m.Close)
	c, err := listing.New(s, m, listing.Options{})
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

	var points []string
	for _, p := range executor.Failpoints() {
		switch {
		case strings.Contains(p, "reopen"), strings.Contains(p, "collect"), p == "swap unknown", p == "verify batch":
			continue // not part of these moves
		case usual[p] || os.Getenv("EVENKEEL_SIM_TIME") != "":
			points = append(points, p)
		}
	}
	ctx := t.Context()
	var batch []listing.Entry
	for i := range rows {
		batch = append(batch, listing.Entry{Key: key(i), Value: []byte("value")})
	}
	writers := make([]*writer, len(points))
	var killed atomic.Int64
	var g errgroup.Group
	g.SetLimit(atOnce)
	ids := make([]store.BucketID, len(points))
	for i := range points {
		require.NoError(t, calm.CreateBucket(ctx, bucketName(i), before...))
		require.NoError(t, calm.Bucket(bucketName(i)).PutBatch(ctx, batch))
		owner, err := calm.Owner(ctx, bucketName(i))
		require.NoError(t, err)
		ids[i] = owner.ID
	}
	calm.Maps().Close() // nobody with such a lease is there while ranges move
	for i, point := range points {
		w := &writer{b: c.Bucket(bucketName(i)), there: map[string]bool{}}
		writers[i] = w
		g.Go(func() error {
			var stop atomic.Bool
			written := make(chan error, 1)
			go func() { written <- w.run(ctx, &stop) }()
			err := func() error {
				died, err := run(task{Host: host, Keyspace: o.Keyspace, Bucket: ids[i], Point: point})
				if err != nil {
					return err
				}
				if died {
					killed.Add(1)
				}
				// Somebody else goes on: with leases and a session of its own.
				next, nc, err := another(ctx, o)
				if err != nil {
					return err
				}
				defer func() { nc.Close(); _ = next.Close() }()
				return moves(next, nc, ids[i], "")
			}()
			stop.Store(true)
			if err = errors.Join(err, <-written); err != nil {
				return fmt.Errorf("killed at %s: %w", point, err)
			}
			return nil
		})
	}
	require.NoError(t, g.Wait())
	t.Logf("killed at %d of %d points", killed.Load(), len(points))
	require.GreaterOrEqual(t, int(killed.Load()), len(points)*9/10)

	c.Maps().Close()
	_, calm = process(t, o, quiet)
	unknown := map[string]bool{}
	for i, point := range points {
		unknown[bucketName(i)] = writers[i].unknown > 0
		check(t, calm, bucketName(i), point, writers[i])
	}
	sum, err := fsck.New(s, calm, fsck.Options{Patience: time.Second, Report: func(x fsck.Finding) {
		// What was late may have left a marker after the sweep; map nodes there are
		// none, as the maps are small.
		if x.Kind != fsck.LeftMarker || !unknown[x.Bucket] {
			t.Errorf("%s", x)
		}
	}}).All(ctx)
	require.NoError(t, err)
	t.Logf("%+v", sum)
}

// another opens a session and a map client, for a goroutine that is no test's.
func another(ctx context.Context, o cassandrastore.Options) (*cassandrastore.Store, *mapclient.Client, error) {
	s, err := cassandrastore.Open(ctx, o)
	if err != nil {
		return nil, nil, err
	}
	m, err := mapclient.NewNetwork(s, mapclient.Options{Clocks: clocks, Lease: lease})
	if err != nil {
		return nil, nil, errors.Join(err, s.Close())
	}
	return s, m, nil
}

// run runs a mover to its end, or until it kills itself.
func run(x task) (died bool, err error) {
	encoded, err := json.Marshal(x)
	if err != nil {
		return false, err
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), moverEnv+"="+string(encoded))
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("%w: %s", err, out)
	}
	return false, nil
}

// check looks for the layout that was wanted, and for all that was acknowledged.
func check(t *testing.T, c *listing.Client, name, point string, w *writer) {
	ctx := t.Context()
	owner, err := c.Owner(ctx, name)
	require.NoError(t, err)
	root, err := c.Maps().Load(ctx, owner.ID)
	require.NoError(t, err)
	require.Empty(t, root.Batches, point)
	var cuts []string
	for rg, err := range c.Maps().Ranges(ctx, root, nil) {
		require.NoError(t, err)
		require.Equal(t, partmap.Settled, rg.Phase, point)
		if len(rg.Start) > 0 {
			cuts = append(cuts, string(rg.Start))
		}
	}
	require.Equal(t, after, cuts, point)
	listed := map[string]bool{}
	for e, err := range c.Bucket(name).All(ctx, listing.Query{}) {
		require.NoError(t, err, point)
		listed[string(e.Key)] = true
	}
	for i := range rows {
		require.True(t, listed[string(key(i))], "killed at %s: %s", point, key(i))
	}
	for k, there := range w.there {
		require.Equal(t, there, listed[k], "killed at %s: %s", point, k)
	}
	t.Logf("killed at %s: %d keys of the writer, %d outcomes unknown", point, len(w.there), w.unknown)
}
