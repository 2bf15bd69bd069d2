package localcounter_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/google/uuid"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/counter/localcounter"
	"github.com/evenkeel/evenkeel/store"
)

// Counts that stay when the process ends. evenkeel.Open opens such a backend beside the store.
func ExampleOpen() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "counters")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	counts, err := localcounter.Open(dir, localcounter.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer counts.Close()

	recorder := counter.NewRecorder(counts, counter.RecorderOptions{})
	p := store.Partition{Bucket: store.BucketID(uuid.New()), ID: store.PartitionID(uuid.New())}
	for i := range 100 {
		recorder.Put(p, fmt.Appendf(nil, "key %03d", i), 12, store.Timestamp(1+i))
	}
	if err := recorder.Close(ctx); err != nil { // flushes, as the recorder does each second
		log.Fatal(err)
	}
	stats, err := counts.Stats(ctx, []store.Partition{p})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(stats[0].Rows, "rows")
	// Output: 100 rows
}
