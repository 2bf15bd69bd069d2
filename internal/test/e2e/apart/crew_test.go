package apart

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/assembly"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/rebalance/leader"
	"github.com/evenkeel/evenkeel/internal/test/child"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/cassandrastore"
)

// crewVariable holds a crew in JSON, for this binary as a process of it.
const crewVariable = "EVENKEEL_APART_CREW"

// crew is what many processes of a data centre do, all in one, with one session: so many programs
// would not fit into the memory.
type crew struct {
	Do         string // "candidates" or "starts"
	Processes  int
	For        time.Duration // candidates
	Hosts      []string
	DataCentre string
	Keyspace   string
	Seed       uint64
}

// told is what a crew did.
type told struct {
	Calls map[string]*calls // by kind
	Took  []time.Duration   // of starts that succeeded
	Errs  []string          // of those that failed
}

type calls struct {
	Took   []time.Duration
	Failed int // of them
	Last   string
}

// counted counts calls of registers.
type counted struct {
	cassandrastore.Store
	mu   sync.Mutex
	told *told
}

func (c *counted) count(ctx context.Context, kind string, begun time.Time, err error) {
	if ctx.Err() != nil && errors.Is(context.Cause(ctx), errEnded) {
		return // the crew has ended it
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.told.Calls[kind]
	if n == nil {
		n = &calls{}
		c.told.Calls[kind] = n
	}
	n.Took = append(n.Took, time.Since(begun))
	switch store.KindOf(err) {
	case store.Timeout, store.Unavailable:
		n.Failed++
		n.Last = err.Error()
	}
}

func (c *counted) Read(ctx context.Context, t store.Table, key []byte, l store.Level) (store.Record, error) {
	kind := "reads at SERIAL"
	if l == store.Local {
		kind = "local reads"
	}
	begun := time.Now()
	r, err := c.Store.Read(ctx, t, key, l)
	c.count(ctx, kind, begun, err)
	return r, err
}

func (c *counted) Swap(ctx context.Context, t store.Table, key []byte, old store.Version, next store.Record) error {
	begun := time.Now()
	err := c.Store.Swap(ctx, t, key, old, next)
	c.count(ctx, "swaps", begun, err)
	return err
}

// Close does nothing: the store is that of many.
func (c *counted) Close() error { return nil }

var errEnded = errors.New("the time of the crew is over")

// serveCrew is what a crew's process does: it prints what it did.
func serveCrew(ctx context.Context, encoded string) error {
	var c crew
	if err := json.Unmarshal([]byte(encoded), &c); err != nil {
		return err
	}
	s, err := cassandrastore.Open(ctx, cassandrastore.Options{
		Hosts: c.Hosts, DataCentre: c.DataCentre, Keyspace: c.Keyspace,
	})
	if err != nil {
		return err
	}
	defer s.Close()
	of := &counted{Store: s, told: &told{Calls: map[string]*calls{}}}
	switch c.Do {
	case "candidates":
		c.candidates(ctx, of)
	case "starts":
		c.starts(ctx, of)
	default:
		return fmt.Errorf("nobody knows how to do %q", c.Do)
	}
	return json.NewEncoder(os.Stdout).Encode(of.told)
}

// candidates wait to lead.
func (c *crew) candidates(ctx context.Context, s *counted) {
	ctx, end := context.WithCancelCause(ctx)
	r := rand.New(rand.NewPCG(c.Seed, 0))
	var all sync.WaitGroup
	for range c.Processes {
		// Processes of a fleet start one after the other.
		later := time.Duration(r.Int64N(int64(leader.DefaultLease / 3)))
		all.Go(func() {
			select {
			case <-ctx.Done():
				return
			case <-time.After(later):
			}
			all := func(context.Context) (int, error) { return 2*c.Processes + 1, nil } // and a server
			candidate := leader.NewShards(s, leader.Options{Name: "one of many"}, all)
			_ = candidate.Run(ctx, func(ctx context.Context, _ int) error {
				<-ctx.Done()
				return ctx.Err()
			}, nil)
		})
	}
	time.Sleep(c.For)
	end(errEnded)
	all.Wait()
}

// starts do at once what listd does to join a store.
func (c *crew) starts(ctx context.Context, s *counted) {
	var all sync.WaitGroup
	for range c.Processes {
		all.Go(func() {
			begun := time.Now()
			err := join(ctx, s)
			took := time.Since(begun)
			s.mu.Lock()
			defer s.mu.Unlock()
			if err != nil {
				s.told.Errs = append(s.told.Errs, err.Error())
			} else {
				s.told.Took = append(s.told.Took, took)
			}
		})
	}
	all.Wait()
}

func join(ctx context.Context, s *counted) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute) // as listd has it
	defer cancel()
	db, err := assembly.Open(ctx, s, assembly.Options{Shared: &mapclient.Options{}, Counting: mapclient.InRedis})
	if err != nil {
		return err
	}
	_, err = mapclient.Identify(ctx, s)
	return errors.Join(err, db.Close())
}

// send runs a crew in each data centre, and returns what they did.
func (b *bed) send(t *testing.T, c crew) (all [2]told) {
	t.Helper()
	type running struct {
		cmd       *exec.Cmd
		out, errs bytes.Buffer
		exited    <-chan struct{}
	}
	var crews [2]*running
	for i, at := range b.sites {
		c.Hosts, c.DataCentre, c.Keyspace = at.hosts, at.name, b.keyspace
		c.Seed++
		encoded, err := json.Marshal(c)
		require.NoError(t, err)
		line := append(b.cluster.Enter(at.number), os.Args[0])
		r := &running{cmd: exec.Command(line[0], line[1:]...)}
		r.cmd.Env = append(os.Environ(), crewVariable+"="+string(encoded))
		r.cmd.Stdout, r.cmd.Stderr = &r.out, &r.errs
		r.exited, err = child.Start(r.cmd)
		require.NoError(t, err)
		t.Cleanup(func() {
			_ = r.cmd.Process.Kill()
			<-r.exited
		})
		crews[i] = r
	}
	for i, r := range crews {
		<-r.exited
		require.True(t, r.cmd.ProcessState.Success(), "%s", &r.errs)
		require.NoError(t, json.Unmarshal(r.out.Bytes(), &all[i]))
	}
	return all
}

// count adds the calls of crews to the report, and returns the sum of a kind.
func (b *bed) count(check, when string, all [2]told) map[string]calls {
	sums := map[string]calls{}
	for _, of := range all {
		for kind, n := range of.Calls {
			sum := sums[kind]
			sum.Took = append(sum.Took, n.Took...)
			sum.Failed += n.Failed
			if n.Last != "" {
				sum.Last = n.Last
			}
			sums[kind] = sum
		}
	}
	for _, kind := range []string{"reads at SERIAL", "local reads", "swaps"} {
		if n, some := sums[kind]; some {
			b.report.add(check, fmt.Sprintf("%s: %s", when, kind), float64(len(n.Took)), "")
			b.report.add(check, fmt.Sprintf("%s: %s that failed", when, kind), float64(n.Failed), "")
			b.report.took(check, fmt.Sprintf("%s: %s", when, kind), n.Took)
		}
	}
	return sums
}
