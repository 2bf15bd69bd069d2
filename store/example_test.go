package store_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/google/uuid"

	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// Rows are ordered by their timestamps, never by arrival. Registers change by
// compare-and-swap.
func Example() {
	ctx := context.Background()
	s := memstore.New()
	defer func() { _ = s.Close() }()
	p := store.Partition{Bucket: store.BucketID(uuid.New()), ID: store.PartitionID(uuid.New())}
	for _, row := range []store.Row{
		{Key: []byte("a"), Value: store.EntryCell([]byte("newer")), Timestamp: 20},
		{Key: []byte("a"), Value: store.EntryCell([]byte("late, but older")), Timestamp: 10},
		{Key: []byte("b"), Value: store.EntryCell([]byte("deleted")), Timestamp: 10},
	} {
		if err := s.Put(ctx, p, row); err != nil {
			log.Fatal(err)
		}
	}
	if err := s.Delete(ctx, p, []byte("b"), 30); err != nil {
		log.Fatal(err)
	}
	page, err := s.Slice(ctx, p, store.Bounds{}, store.SliceOptions{Limit: 10})
	if err != nil {
		log.Fatal(err)
	}
	for _, row := range page.Rows {
		value, _, err := store.EntryValue(row.Value)
		fmt.Printf("%s: %s %v\n", row.Key, value, err)
	}

	key, next := []byte("my process"), store.Record{Version: store.Version{Epoch: 1, Token: store.Token(uuid.New())}}
	for range 2 {
		err := s.Swap(ctx, store.Process, key, store.Version{}, next)
		fmt.Println("conflict:", errors.Is(err, store.Conflict))
	}
	// Output:
	// a: newer <nil>
	// conflict: false
	// conflict: true
}
