package oncassandra

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/rebalance/executor"
	"github.com/evenkeel/evenkeel/internal/rebalance/move"
	"github.com/evenkeel/evenkeel/internal/test/cassandratest"
	"github.com/evenkeel/evenkeel/internal/test/e2e/harness"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/cassandrastore"
)

// Two active data centres. The second one stands still for a while, then the link
// between them is cut: clients of whichever runs go on, map changes and moves
// pause, and go on by themselves afterwards. What was written on both sides of the
// cut is the same everywhere after repair.
func TestDataCentresApart(t *testing.T) {
	t.Parallel()
	c := cassandratest.New(t, cassandratest.Options{DataCentres: []int{1, 1}, Apart: true})
	o := harness.Keyspace(t, c.Nodes[0].Address, cassandrastore.Replication{"dc1": 1, "dc2": 1})
	l := newCrowd(t, "bucket", 200)
	clients, stores := map[string]*listing.Client{}, map[string]cassandrastore.Store{}
	var mover *mapclient.Client
	for i, site := range []string{"dc1", "dc2"} {
		o := o
		o.Hosts, o.DataCentre = []string{c.Nodes[i].Address}, site
		s := harness.Open(t, o)
		m := harness.Maps(t, s, time.Second)
		if i == 0 {
			mover = m
			require.NoError(t, mapclient.InitClocks(t.Context(), s, harness.Clocks))
		}
		stores[site] = s
		clients[site] = l.client(s, m)
	}
	require.NoError(t, clients["dc1"].CreateBucket(t.Context(), l.bucket, []byte(l.keys[100])))
	var id store.BucketID
	for info, err := range clients["dc1"].Buckets(t.Context(), l.bucket, "") {
		require.NoError(t, err)
		id = info.ID
	}
	for site, c := range clients {
		l.run(site, c, 2, 1)
	}
	part := atLeast(t, 2*time.Second)
	l.progress(200, part, "dc1", "dc2")

	// refused wants map changes to fail, in time and with a reason.
	refused := func(when string) {
		for site := range clients {
			if when == "dc2 stands still" && site == "dc2" {
				continue
			}
			const patience = 2 * time.Second
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			begun := time.Now()
			err := clients[site].CreateBucket(ctx, "another in "+site)
			cancel()
			require.Error(t, err)
			require.Contains(t, []store.Kind{store.Unavailable, store.Timeout}, store.KindOf(err), "%v", err)
			require.Less(t, time.Since(begun), ignored, "a call with a deadline of %v", patience)
			t.Logf("%s: a bucket in %s: %v", when, site, err)
		}
	}

	// A move that is under way when the second data centre stops.
	first := newMove(stores["dc1"], mover, id, move.Split(nil, []byte(l.keys[100]), 0, []byte(l.keys[50])))
	first.reaches(t, "copying")
	require.NoError(t, c.Nodes[1].Pause())
	l.progress(200, part, "dc1")
	refused("dc2 stands still")
	first.stands(t)
	require.NoError(t, c.Nodes[1].Resume())
	first.ends(t)
	l.progress(200, 0, "dc1", "dc2")
	t.Log(l.told())

	// And one that is under way when the link is cut.
	second := newMove(stores["dc1"], mover, id, move.Merge(nil, nil))
	second.reaches(t, "copying")
	c.Link.Cut()
	l.progress(200, part, "dc1", "dc2")
	refused("the link is cut")
	second.stands(t)
	l.progress(200, part, "dc1", "dc2")
	c.Link.Heal()
	second.ends(t)
	l.progress(200, 0, "dc1", "dc2")
	l.halt()

	_, err := c.Nodes[0].Nodetool(t.Context(), "repair", "-full", o.Keyspace)
	require.NoError(t, err)
	admin, err := cassandrastore.OpenAdmin(t.Context(), o)
	require.NoError(t, err)
	defer admin.Close()
	const young = 8*24*time.Hour - 10*time.Minute // then a repair that is older than ten minutes now is too old
	problems, err := admin.CheckRepairs(t.Context(), time.Now().Add(young))
	require.NoError(t, err)
	require.Empty(t, problems, "Cassandra has recorded the repair")
	l.record.Join()
	l.end(clients)
	shown := map[string][]listing.Item{}
	for site, c := range clients {
		for e, err := range c.Bucket(l.bucket).All(t.Context(), listing.Query{}) {
			require.NoError(t, err)
			shown[site] = append(shown[site], e)
		}
	}
	require.Equal(t, shown["dc1"], shown["dc2"])
	require.NoError(t, clients["dc2"].CreateBucket(t.Context(), "another"))
	requireFarPuts(t, c, o, "another")
}

// requireFarPuts wants puts of a server that was started far from the other data centre to take no
// longer than the distance more than those of one that was started near it. make cluster measures
// how long they do take.
func requireFarPuts(t *testing.T, c *cassandratest.Cluster, o cassandrastore.Options, bucket string) {
	t.Helper()
	const distance = 160 * time.Millisecond
	p := build(t)
	p.Enter = c.Enter(0)
	site := harness.Site{Host: c.Nodes[0].Address, Name: o.Keyspace}
	client := &http.Client{Transport: &http.Transport{DialContext: c.Dial(0)}}
	defer client.CloseIdleConnections()
	// put is the shortest time of a few.
	put := func(s *harness.Server) time.Duration {
		shortest := time.Hour
		for range 5 {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, s.S3+"/"+bucket+"/key", nil)
			require.NoError(t, err)
			begun := time.Now()
			answer, err := client.Do(r)
			require.NoError(t, err)
			require.NoError(t, answer.Body.Close())
			require.Equal(t, http.StatusOK, answer.StatusCode)
			shortest = min(shortest, time.Since(begun))
		}
		return shortest
	}
	near := put(p.ServeSite(site, "--rebalance-interval", "0"))
	c.Link.SetDistance(distance)
	far := p.ServeSite(site, "--rebalance-interval", "0")
	var took time.Duration
	defer func() { t.Logf("a put: %v, and %v at a distance of %v", near, took, distance) }()
	harness.Eventually(t, "a put takes at most the distance more than without", func() bool {
		took = put(far)
		return took <= near+distance
	})
}

// moving is an executor with one goal, on its way.
type moving struct {
	x      *executor.Executor
	ended  chan error
	cancel context.CancelFunc

	mu     sync.Mutex
	done   []string
	failed error
}

func newMove(s cassandrastore.Store, m *mapclient.Client, id store.BucketID, g move.Goal) *moving {
	v := &moving{ended: make(chan error, 1)}
	v.x = executor.New(s, m, id, executor.Options{Observe: v.observe})
	v.x.Add(g)
	ctx, cancel := context.WithCancel(context.Background())
	v.cancel = cancel
	go func() { v.ended <- v.x.Run(ctx) }()
	return v
}

func (v *moving) observe(e executor.Event) {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case e.Kind == executor.GoalRefused:
		v.failed = errors.Join(v.failed, e.Err)
	case e.Err != nil:
		v.failed = e.Err
	case e.Kind == executor.Did:
		v.done = append(v.done, e.Effect.String())
	}
}

// reaches waits until the move is in a phase, or beyond.
func (v *moving) reaches(t *testing.T, phase string) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		for _, b := range v.x.Status().Batches {
			if b.Phase.String() == phase {
				return
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("the move did not come to %s: %+v", phase, v.x.Status())
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// stands checks that the move has not come to its end, and says why.
func (v *moving) stands(t *testing.T) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		v.mu.Lock()
		err := v.failed
		v.mu.Unlock()
		select {
		case err := <-v.ended:
			t.Fatalf("the move came to its end: %v", err)
		default:
		}
		if err != nil {
			require.Contains(t, []store.Kind{store.Unavailable, store.Timeout}, store.KindOf(err), "%v", err)
			t.Logf("the move pauses: %v", err)
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the move neither pauses nor ends")
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// ends waits for the move's end.
func (v *moving) ends(t *testing.T) {
	t.Helper()
	select {
	case err := <-v.ended:
		require.NoError(t, err)
	case <-time.After(2 * time.Minute):
		v.cancel()
		v.mu.Lock()
		defer v.mu.Unlock()
		t.Fatalf("the move did not end: %+v; %v", v.done, fmt.Errorf("last failure: %w", v.failed))
	}
}
