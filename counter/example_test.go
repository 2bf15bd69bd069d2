package counter_test

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

// A Recorder counts the writes of a client, and a Backend merges the counts of all clients. A listing.Client takes the
// recorder as an option and calls it itself. Until all rows have been counted exactly once, a size is a lower bound.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "counts")
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
		key, value, at := fmt.Appendf(nil, "key %03d", i), []byte("value"), store.Timestamp(1+i)
		recorder.Put(p, key, len(key)+len(value), at)
	}
	if err := recorder.Close(ctx); err != nil { // flushes, as it does each second
		log.Fatal(err)
	}
	stats, err := counts.Stats(ctx, []store.Partition{p})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(stats[0].Rows, "rows, known:", stats[0].Known)
	// Output:
	// 100 rows, known: false
}
