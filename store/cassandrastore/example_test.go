package cassandrastore_test

import (
	"context"
	"fmt"
	"log"

	"github.com/evenkeel/evenkeel/store/cassandrastore"
)

// The keyspace must have its tables: `rebalancer schema apply` creates them. Programs with buckets call
// evenkeel.OpenCassandra, which opens the store, too, and agrees with all other processes.
func ExampleOpen() {
	s, err := cassandrastore.Open(context.Background(), cassandrastore.Options{
		Hosts: []string{"10.0.0.1", "10.0.0.2"}, DataCentre: "dc1", Keyspace: "evenkeel",
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(s.Close())
}
