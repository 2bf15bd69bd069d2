package oncassandra

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/rebalance/move"
	"github.com/evenkeel/evenkeel/internal/test/child"
	"github.com/evenkeel/evenkeel/internal/test/e2e/harness"
	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/internal/timestamps"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store/cassandrastore"
)

// site is what a process of TestWhatBeginsLaterWinsOverCassandra is told.
type site struct {
	Hosts    []string
	Keyspace string
	Lease    time.Duration
	Ahead    time.Duration // its wall clock
	Own      bool          // timestamps are those of its wall clock
}

const siteVariable = "EVENKEEL_TEST_SITE"

// A call of a site, and its answer: lines of JSON.
type call struct {
	ID         int64
	Op         string // put, delete or get
	Key, Value string
}

type reply struct {
	ID    int64
	Value string
	Error string
}

// serveSite makes this binary a process that does what it is told on its standard
// input, many calls at once, until that ends.
func serveSite(ctx context.Context, encoded string) error {
	var x site
	if err := json.Unmarshal([]byte(encoded), &x); err != nil {
		return err
	}
	s, err := cassandrastore.Open(ctx, harness.Patient(cassandrastore.Options{
		Hosts: x.Hosts, Keyspace: x.Keyspace, DataCentre: "dc1", AllowSingleReplica: true,
	}))
	if err != nil {
		return err
	}
	now := func() time.Time { return time.Now().Add(x.Ahead) }
	m, err := mapclient.NewNetwork(s, mapclient.Options{Clocks: harness.Clocks, Lease: x.Lease, Now: now})
	if err != nil {
		return err
	}
	o := listing.Options{Now: now}
	if x.Own {
		o.Timestamps = timestamps.New(now)
	}
	c, err := listing.New(mapclient.With(s, m), o)
	if err != nil {
		return err
	}
	b := c.Bucket("b")
	var mu sync.Mutex
	out := json.NewEncoder(os.Stdout)
	var calls sync.WaitGroup
	for lines := json.NewDecoder(os.Stdin); ; {
		var one call
		if err := lines.Decode(&one); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return err
		}
		calls.Go(func() {
			r := reply{ID: one.ID}
			var err error
			switch one.Op {
			case "put":
				err = b.Put(ctx, []byte(one.Key), []byte(one.Value))
			case "delete":
				err = b.Delete(ctx, []byte(one.Key))
			default:
				var e listing.Entry
				e, err = b.Get(ctx, []byte(one.Key))
				if r.Value = string(e.Value); errors.Is(err, listing.ErrNotFound) {
					r.Value, err = "nothing", nil
				}
			}
			if err != nil {
				r.Error = err.Error()
			}
			mu.Lock()
			defer mu.Unlock()
			_ = out.Encode(r)
		})
	}
	calls.Wait()
	m.Close()
	return s.Close()
}

// remote is such a process, seen from the test.
type remote struct {
	mu    sync.Mutex
	in    io.WriteCloser
	next  int64
	waits map[int64]chan reply
}

func startSite(t *testing.T, x site) *remote {
	encoded, err := json.Marshal(x)
	require.NoError(t, err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), siteVariable+"="+string(encoded))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, outside, err := os.Pipe()
	require.NoError(t, err)
	cmd.Stdout = outside
	exited, err := child.Start(cmd)
	require.NoError(t, err)
	require.NoError(t, outside.Close())
	r := &remote{in: in, waits: map[int64]chan reply{}}
	go func() {
		for lines := json.NewDecoder(bufio.NewReader(out)); ; {
			var one reply
			if lines.Decode(&one) != nil {
				return
			}
			r.mu.Lock()
			answered := r.waits[one.ID]
			delete(r.waits, one.ID)
			r.mu.Unlock()
			answered <- one
		}
	}()
	t.Cleanup(func() {
		_ = in.Close()
		<-exited
		_ = out.Close()
		require.True(t, cmd.ProcessState.Success(), "%v", cmd.ProcessState)
	})
	return r
}

func (r *remote) do(op, key, value string) reply {
	answered := make(chan reply, 1)
	r.mu.Lock()
	r.next++
	line, _ := json.Marshal(call{r.next, op, key, value})
	r.waits[r.next] = answered
	_, err := r.in.Write(append(line, '\n'))
	r.mu.Unlock()
	if err != nil {
		return reply{Error: err.Error()}
	}
	return <-answered
}

// TestWhatBeginsLaterWinsOverCassandra: of pairs of operations, each begun when the one
// before was acknowledged by another process, the second one always shows, while ranges
// move. The processes' own clocks are almost a second apart.
//
// EVENKEEL_PAIRS is how many (default 10,000).
func TestWhatBeginsLaterWinsOverCassandra(t *testing.T) {
	t.Parallel()
	pairs := 10_000
	if s := os.Getenv("EVENKEEL_PAIRS"); s != "" {
		n, err := strconv.Atoi(s)
		require.NoError(t, err)
		pairs = n
	}
	done, lost, moves := pairsOverCassandra(t, pairs, false)
	require.Zero(t, lost)
	require.Greater(t, done, pairs*9/10)
	require.Positive(t, moves)
}

// TestOwnClocksLoseWritesOverCassandra: the test above finds it where timestamps are
// those of the processes' own clocks.
func TestOwnClocksLoseWritesOverCassandra(t *testing.T) {
	t.Parallel()
	_, lost, _ := pairsOverCassandra(t, 100, true)
	require.Positive(t, lost)
}

func pairsOverCassandra(t *testing.T, pairs int, own bool) (done, lost, moves int) {
	o := harness.Shared(t, &cassandra)
	s := harness.Open(t, o)
	require.NoError(t, mapclient.InitClocks(t.Context(), s, harness.Clocks))
	const lease = time.Second
	m := harness.Maps(t, s, lease)
	c := harness.Client(t, s, m, listing.Options{})
	require.NoError(t, c.CreateBucket(t.Context(), "b", []byte("key/2"), []byte("key/4")))
	seed := seed.Number(t)
	sites := []*remote{
		startSite(t, site{o.Hosts, o.Keyspace, lease, 490 * time.Millisecond, own}),
		startSite(t, site{o.Hosts, o.Keyspace, lease, -490 * time.Millisecond, own}),
	}

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var moving sync.WaitGroup
	var ended atomic.Int64
	moving.Go(func() {
		for info, err := range c.Buckets(ctx, "b", "") {
			if err != nil {
				return
			}
			for ctx.Err() == nil {
				root, err := m.Load(ctx, info.ID)
				if err != nil {
					return
				}
				for rg, err := range m.Ranges(ctx, root, nil) {
					if err != nil {
						return
					}
					v := newMove(s, m, info.ID, move.Refresh(&rg))
					select {
					case <-v.ended:
						ended.Add(1)
					case <-ctx.Done():
					}
					v.cancel()
				}
			}
		}
	})
	const workers = 64
	var work sync.WaitGroup
	var count, wrong, unknown atomic.Int64
	for w := range workers {
		r := rand.New(rand.NewPCG(seed, uint64(w)))
		work.Go(func() {
			key := fmt.Sprintf("key/%d/%02d", w%6, w)
			for i := 0; i < (pairs+workers-1)/workers || ended.Load() == 0; i++ {
				from := r.IntN(2)
				ops := []string{[]string{"put", "put", "delete"}[r.IntN(3)], []string{"put", "delete"}[r.IntN(2)]}
				first := sites[from].do(ops[0], key, fmt.Sprint("first ", i))
				second := sites[1-from].do(ops[1], key, fmt.Sprint("second ", i))
				shown := sites[r.IntN(2)].do("get", key, "")
				if first.Error != "" || second.Error != "" || shown.Error != "" {
					unknown.Add(1) // the lease ran out in a move
					continue
				}
				want := fmt.Sprint("second ", i)
				if ops[1] == "delete" {
					want = "nothing"
				}
				if count.Add(1); shown.Value != want {
					wrong.Add(1)
				}
			}
		})
	}
	work.Wait()
	stop()
	moving.Wait()
	t.Logf("%d pairs, %d lost, %d with an unknown outcome, %d moves", count.Load(), wrong.Load(), unknown.Load(),
		ended.Load())
	return int(count.Load()), int(wrong.Load()), int(ended.Load())
}
