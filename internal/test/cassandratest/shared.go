package cassandratest

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
)

// AddressVariable is the name of the environment variable with the address of a node that tests may share. The node is
// patient, in the data centre dc1, and needs no password. The command with-cassandra sets the variable. Each package
// uses a keyspace of its own.
const AddressVariable = "EVENKEEL_TEST_CASSANDRA"

// SharedOptions returns the options of a node that tests share. The node is patient, and refuses reads that meet more
// tombstones than a tenth of Cassandra's default limit.
func SharedOptions() Options {
	return Options{Patient: true, Settings: []string{
		"tombstone_warn_threshold: 1000",
		fmt.Sprint("tombstone_failure_threshold: ", sharedDeadRows),
	}}
}

// sharedDeadRows is the limit of tombstones that a read may meet on a shared node. The limit is low, so that tests of
// what happens beyond the limit need only a tenth of the deletes and of the time.
const sharedDeadRows = 10_000

// Shared is one Cassandra node for all tests of a package. It is the node of AddressVariable, or else one that the
// first test starts. The methods are safe for concurrent use.
//
//	var cassandra cassandratest.Shared
//	func TestMain(m *testing.M) { os.Exit(cassandra.Run(m)) }
type Shared struct {
	once    sync.Once
	address string
	cluster *Cluster
	err     error
}

// Run runs the tests of m, stops the node if a test has started one, and returns the exit code.
func (s *Shared) Run(m *testing.M) int {
	code := m.Run()
	if s.cluster != nil {
		if err := s.cluster.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return code
}

// Address returns the address of the shared node, and starts the node if necessary. In -short mode Address skips the
// test t.
func (s *Shared) Address(t testing.TB) string {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a Cassandra node: not in -short")
	}
	s.once.Do(func() {
		if s.address = os.Getenv(AddressVariable); s.address != "" {
			return
		}
		// Not the test's context: the node outlives the test that asks first.
		s.cluster, s.err = Start(context.Background(), SharedOptions())
		if s.err == nil {
			s.address = s.cluster.Nodes[0].Address
		}
	})
	if s.err != nil {
		t.Fatal(s.err)
	}
	return s.address
}
