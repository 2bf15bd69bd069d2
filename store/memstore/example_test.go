package memstore_test

import (
	"context"
	"fmt"
	"log"

	"github.com/google/uuid"

	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// A row that was deleted stays deleted, also when an older put arrives later, as on Cassandra.
func Example() {
	ctx := context.Background()
	s := memstore.New()
	p := store.Partition{Bucket: store.BucketID(uuid.New()), ID: store.PartitionID(uuid.New())}
	if err := s.Delete(ctx, p, []byte("key"), 20); err != nil {
		log.Fatal(err)
	}
	late := store.Row{Key: []byte("key"), Value: store.EntryCell([]byte("value")), Timestamp: 10}
	if err := s.Put(ctx, p, late); err != nil {
		log.Fatal(err)
	}
	_, found, err := s.Get(ctx, p, []byte("key"))
	fmt.Println(found, err)
	// Output: false <nil>
}
