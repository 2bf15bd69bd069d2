package engine_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/rebalance/engine"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store/pebblestore"
)

// A Rebalancer over an embedded store, with a split requested by hand.
func Example() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	st, err := pebblestore.Open(dir, pebblestore.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer st.Close()
	client, err := listing.New(st, listing.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer mapclient.Of(client).Close()

	// It works until ctx ends.
	ctx, stop := context.WithCancel(context.Background())
	r := engine.New(engine.Options{Store: st, Buckets: client})
	ended := make(chan error)
	go func() { ended <- r.Run(ctx) }()
	defer func() { stop(); <-ended }()

	if err := client.CreateBucket(ctx, "photos"); err != nil {
		log.Fatal(err)
	}
	for i := range 100 {
		if err := client.Bucket("photos").Put(ctx, fmt.Appendf(nil, "2024/%02d.jpg", i), []byte("1 MB")); err != nil {
			log.Fatal(err)
		}
	}
	id, err := client.BucketID(ctx, "photos")
	if err != nil {
		log.Fatal(err)
	}
	plan, err := r.Plan(ctx, id, engine.Request{Kind: engine.Split, Keys: [][]byte{[]byte("2024/75.jpg")}})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d move copies %d of %d rows\n", len(plan.Moves), plan.Moves[0].Copies, plan.Moves[0].Rows)

	job, err := r.Apply(ctx, "split", plan)
	for err == nil && job.Ended.IsZero() {
		time.Sleep(time.Millisecond)
		job, _ = r.Job(job.ID)
	}
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(job.State)
	// Output:
	// 1 move copies 25 of 100 rows
	// done
}
