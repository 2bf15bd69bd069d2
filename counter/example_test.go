package counter_test

import (
	"context"
	"fmt"
	"log"

	"github.com/google/uuid"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// A Recorder counts the writes of a client; a Recount makes the estimate exact. A
// listing.Client takes the recorder as an option and calls it itself.
func Example() {
	ctx := context.Background()
	counts := counter.NewMemory(nil)
	recorder := counter.NewRecorder(counts, counter.RecorderOptions{})
	rows := memstore.New()
	p := store.Partition{Bucket: store.BucketID(uuid.New()), ID: store.PartitionID(uuid.New())}
	for i := range 100 {
		key, value, at := fmt.Appendf(nil, "key %03d", i), []byte("value"), store.Timestamp(1+i)
		if err := rows.Put(ctx, p, store.Row{Key: key, Value: store.EntryCell(value), Timestamp: at}); err != nil {
			log.Fatal(err)
		}
		recorder.Put(p, key, len(key)+len(value), at)
	}
	if err := recorder.Close(ctx); err != nil { // flushes, as it does each second
		log.Fatal(err)
	}
	show := func() {
		stats, err := counts.Stats(ctx, []store.Partition{p})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(stats[0].Rows, "rows, known:", stats[0].Known)
	}
	show()
	count, err := counter.NewRecount(rows, p, store.Bounds{}, counter.RecountOptions{}).Run(ctx)
	if err != nil {
		log.Fatal(err)
	}
	if err := counts.Correct(ctx, p, count); err != nil {
		log.Fatal(err)
	}
	show()
	// Output:
	// 100 rows, known: false
	// 100 rows, known: true
}
