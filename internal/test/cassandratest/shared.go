package cassandratest

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
)

// AddressVariable names the environment variable that holds the address of a
// node that tests may share: patient, data centre dc1, no password. The
// command with-cassandra sets it. Each package works in a keyspace of its own.
const AddressVariable = "EVENKEEL_TEST_CASSANDRA"

// SharedOptions are those of a node that tests share: patient, and it refuses reads
// that meet more dead rows than a tenth of what Cassandra usually lets pass.
func SharedOptions() Options {
	return Options{Patient: true, Settings: []string{
		"tombstone_warn_threshold: 1000",
		fmt.Sprint("tombstone_failure_threshold: ", sharedDeadRows),
	}}
}

// sharedDeadRows is low so that tests of what goes on beyond it need a tenth of
// the deletes, and of the time; they cross it by the same factor as ever.
const sharedDeadRows = 10_000

// Shared is one node for all tests of a package: that of AddressVariable, else
// one that the first test to ask for it starts. It is safe for concurrent use.
//
//	var cassandra cassandratest.Shared
//	func TestMain(m *testing.M) { os.Exit(cassandra.Run(m)) }
type Shared struct {
	once    sync.Once
	address string
	cluster *Cluster
	err     error
}

// Run runs the tests, then ends the node if one was started.
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

// Address returns the address of the node.
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
