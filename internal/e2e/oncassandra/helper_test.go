package oncassandra

import (
	"os"
	"testing"

	"github.com/evenkeel/evenkeel/internal/cassandratest"
	"github.com/evenkeel/evenkeel/internal/e2e/harness"
)

var cassandra cassandratest.Shared

func TestMain(m *testing.M) { os.Exit(harness.Run(m, &cassandra)) }

// build builds the programs; tests with them need a node, too.
func build(t *testing.T) *harness.Programs {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a Cassandra node: not in -short")
	}
	return harness.Build(t)
}
