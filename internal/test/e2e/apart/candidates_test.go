package apart

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/rebalance/leader"
	"github.com/evenkeel/evenkeel/internal/test/e2e/harness"
	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/cassandrastore"
)

// candidates has many processes that may lead beside one that does: they hinder neither it nor each
// other, so that somebody leads each shard all along, and no read fails. When the leader of shard 0 dies, one of them
// leads it.
func (b *bed) candidates(t *testing.T) {
	const check = "candidates"
	b.cluster.Link.SetDistance(b.distance)
	server := b.serve(t, b.sites[0])
	s := harness.Open(t, b.options(b.sites[0]))
	r := seed.New(t)
	for _, n := range []int{max(1, b.many/10), b.many} {
		// A server that was killed before seems to lead until its lease is over.
		harness.Eventually(t, "the server leads", func() bool {
			h, leads := leads(t.Context(), s)
			return leads && h.Admin == server.admin
		})
		when := fmt.Sprintf("%d + %d", n, n)
		before, _ := leads(t.Context(), s)
		stop := watch(t, s)
		all := b.send(t, crew{Do: "candidates", Processes: n, For: b.long, Seed: r.Uint64()})
		led, leaders := stop()
		after, _ := leads(t.Context(), s)
		holders := map[uuid.UUID]bool{}
		ledShards := 0
		for _, h := range leader.NewShards(s, leader.Options{}, nil).Leaders(t.Context()) {
			if h != nil && time.Now().Before(h.Until) {
				ledShards++
				holders[h.ID] = true
			}
		}
		b.report.add(check, when+": shards that are led at the end", float64(ledShards), "")
		b.report.add(check, when+": number of processes that lead them", float64(len(holders)), "")
		// Each swap of a record is one epoch.
		b.report.add(check, when+": swaps of the leader's record in a minute",
			float64(after.Epoch-before.Epoch)/b.long.Minutes(), "")
		sums := b.count(check, when, all)
		b.report.add(check, when+": share of the time that somebody leads", led, "")
		b.report.add(check, when+": who led", float64(leaders), "")
		for _, kind := range []string{"reads at SERIAL", "local reads"} {
			if n := sums[kind]; n.Failed > 0 {
				t.Errorf("%s candidates: %d of %d %s failed, such as: %s", when, n.Failed, len(n.Took), kind, n.Last)
			}
		}
		if led < 0.98 || leaders != 1 {
			t.Errorf("%s candidates: %d processes led, %.0f %% of the time", when, leaders, 100*led)
		}
	}

	const alive, dead = 15 * time.Second, time.Minute
	var replaced time.Duration
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		time.Sleep(alive)
		server.kill()
		died := time.Now()
		for end := died.Add(dead); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
			if h, leads := leads(t.Context(), s); leads && h.Admin != server.admin {
				replaced = time.Since(died)
				return
			}
		}
	}()
	b.send(t, crew{Do: "candidates", Processes: b.many, For: alive + dead, Seed: r.Uint64()})
	<-watched
	require.NotZero(t, replaced, "nobody leads a minute after the leader has died")
	b.report.add(check, fmt.Sprintf("%d + %d: time until another one leads after the leader has died", b.many, b.many),
		replaced.Seconds(), "s")
}

// options are those of a store of a data centre.
func (b *bed) options(at *site) cassandrastore.Options {
	return cassandrastore.Options{Hosts: at.hosts, DataCentre: at.name, Keyspace: b.keyspace}
}

// localReads reads at Local whatever is asked for: a look that hinders nobody.
type localReads struct{ store.Registers }

func (l localReads) Read(ctx context.Context, t store.Table, key []byte, _ store.Level) (store.Record, error) {
	return l.Registers.Read(ctx, t, key, store.Local)
}

// leads returns the process that leads now; false: none does.
func leads(ctx context.Context, s store.Registers) (leader.Holder, bool) {
	h, err := leader.Current(ctx, localReads{s}, leader.Moves)
	return h, err == nil && h.ID != uuid.Nil && time.Now().Before(h.Until)
}

// watch looks who leads until stop, which returns the share of looks that found somebody, and how
// many different processes those were.
func watch(t *testing.T, s store.Registers) (stop func() (led float64, leaders int)) {
	ctx, end := context.WithCancelCause(t.Context())
	var g sync.WaitGroup
	found, looks := map[uuid.UUID]bool{}, []bool{}
	g.Go(func() {
		for ctx.Err() == nil {
			h, leads := leads(ctx, s)
			if errors.Is(context.Cause(ctx), errEnded) {
				return
			}
			if looks = append(looks, leads); leads {
				found[h.ID] = true
			}
			time.Sleep(200 * time.Millisecond)
		}
	})
	return func() (float64, int) {
		end(errEnded)
		g.Wait()
		n := 0
		for _, leads := range looks {
			if leads {
				n++
			}
		}
		require.NotEmpty(t, looks)
		return float64(n) / float64(len(looks)), len(found)
	}
}
