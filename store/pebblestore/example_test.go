package pebblestore_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/google/uuid"

	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/pebblestore"
)

// What was acknowledged is there after the next Open. Programs with buckets call evenkeel.Open, which opens the store,
// too.
func ExampleOpen() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "evenkeel")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	p := store.Partition{Bucket: store.BucketID(uuid.New()), ID: store.PartitionID(uuid.New())}
	for round := range 2 {
		s, err := pebblestore.Open(dir, pebblestore.Options{})
		if err != nil {
			log.Fatal(err)
		}
		row, found, err := s.Get(ctx, p, []byte("key"))
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("open", round, found, row.Timestamp)
		row = store.Row{Key: []byte("key"), Value: store.EntryCell([]byte("value")), Timestamp: 10}
		if err := s.Put(ctx, p, row); err != nil {
			log.Fatal(err)
		}
		if err := s.Close(); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// open 0 false 0
	// open 1 true 10
}
