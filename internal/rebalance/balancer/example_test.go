package balancer_test

import (
	"context"
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/internal/countbook"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/rebalance/balancer"
	"github.com/evenkeel/evenkeel/internal/rebalance/policy"
	"github.com/evenkeel/evenkeel/internal/rebalance/scheduler"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// A service that keeps its own buckets in shape, as listd does: a recorder tells the
// counters of each write, a balancer looks at them and decides, a manager moves. Over
// Cassandra the counters are rediscounter's, which all processes share, and the one
// that leads (internal/rebalance/leader) runs the balancer and the manager.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	s, counts := memstore.New(), countbook.NewMemory(nil)
	recorder := counter.NewRecorder(counts, counter.RecorderOptions{})
	defer func() { _ = recorder.Close(context.Background()) }()
	c, err := listing.New(s, listing.Options{Recorder: recorder, Sizes: counts})
	if err != nil {
		log.Fatal(err)
	}

	const maxRows = 1000
	mover := scheduler.New(s, mapclient.Of(c), scheduler.Options{RowsPerSecond: 100_000})
	keeper := balancer.New(s, mapclient.Of(c), mover, counts, balancer.Options{
		Policy: policy.Default(maxRows), Every: 100 * time.Millisecond,
	})
	var g sync.WaitGroup
	g.Go(func() { _ = mover.Run(ctx) })
	g.Go(func() { _ = keeper.Run(ctx) })
	defer g.Wait()
	defer stop()

	if err := c.CreateBucket(ctx, "photos"); err != nil {
		log.Fatal(err)
	}
	b := c.Bucket("photos")
	var entries []listing.Entry
	for i := range 5 * maxRows {
		entries = append(entries, listing.Entry{Key: fmt.Appendf(nil, "%08x.jpg", uint32(i)*2654435761)})
	}
	if err := b.PutBatch(ctx, entries); err != nil {
		log.Fatal(err)
	}
	for keeper.Status().Moved[policy.Split] == 0 {
		time.Sleep(10 * time.Millisecond)
	}
	fmt.Println("split, while it was served")
	// Output: split, while it was served
}
