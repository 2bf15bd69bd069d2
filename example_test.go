package evenkeel_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/evenkeel/evenkeel"
	"github.com/evenkeel/evenkeel/listing"
)

// One process has the directory for itself; sizes are kept in shape from Open to Close.
func ExampleOpen() {
	ctx, dir := context.Background(), temporary()
	defer os.RemoveAll(dir)

	db, err := evenkeel.Open(dir, evenkeel.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	err = db.CreateBucket(ctx, "photos")
	photos := db.Bucket("photos")
	err = photos.Put(ctx, []byte("2024/a.jpg"), []byte("…"))
	for item, err := range photos.All(ctx, listing.Query{Prefix: []byte("2024/")}) {
		fmt.Println(string(item.Key), err)
	}
	// Output: 2024/a.jpg <nil>
}

// Any number of processes open a keyspace, which `rebalancer schema apply` has laid out.
func ExampleOpenCassandra() {
	ctx := context.Background()

	db, err := evenkeel.OpenCassandra(ctx, evenkeel.Cassandra{
		Hosts: []string{"10.0.0.1", "10.0.0.2"}, DataCentre: "dc1",
		Counter: "redis://10.0.0.9:6379/0",
	})
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	err = db.Bucket("photos").Put(ctx, []byte("2024/a.jpg"), []byte("…"))
	fmt.Println(err)
}

func temporary() string {
	dir, err := os.MkdirTemp("", "evenkeel")
	if err != nil {
		log.Fatal(err)
	}
	return dir
}
