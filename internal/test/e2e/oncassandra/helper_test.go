package oncassandra

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/evenkeel/evenkeel/internal/test/cassandratest"
	"github.com/evenkeel/evenkeel/internal/test/e2e/harness"
)

var cassandra cassandratest.Shared

// TestMain makes this binary a process of TestWhatBeginsLaterWinsOverCassandra, too.
func TestMain(m *testing.M) {
	if encoded := os.Getenv(siteVariable); encoded != "" {
		if err := serveSite(context.Background(), encoded); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(harness.Run(m, &cassandra))
}

// build builds the programs; tests with them need a node, too.
func build(t *testing.T) *harness.Programs {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a Cassandra node: not in -short")
	}
	return harness.Build(t)
}
