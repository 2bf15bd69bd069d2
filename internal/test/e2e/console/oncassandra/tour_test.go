// Package oncassandra looks at the console of processes that share a keyspace of a Cassandra node, in a real Chromium.
package oncassandra

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/test/cassandratest"
	"github.com/evenkeel/evenkeel/internal/test/e2e/console"
	"github.com/evenkeel/evenkeel/internal/test/e2e/harness"
	"github.com/evenkeel/evenkeel/internal/test/redistest"
)

var cassandra cassandratest.Shared

func TestMain(m *testing.M) { os.Exit(harness.Run(m, &cassandra)) }

const token = "a-token-of-the-tour"

// TestConsoleOfASharedKeyspace: the process that leads has the figures, and its cluster page what all have agreed on; the
// one that stands by says where they are.
func TestConsoleOfASharedKeyspace(t *testing.T) {
	const keys, maxRows = 3000, 500
	node := cassandra.Address(t)
	redis := redistest.Start(t)
	p := harness.Build(t)
	site := p.LaidOut(node)
	flags := []string{
		"--lease", "500ms", "--counter", "redis://" + redis.Addr, "--max-rows", fmt.Sprint(maxRows), "--admin-token", token,
	}
	leader := p.Rebalance(site, append(flags, "--rebalance-interval", "1s")...)
	server := p.ServeSite(site, append(flags, "--rebalance", "elsewhere")...)
	var lines strings.Builder
	for i := range keys {
		fmt.Fprintf(&lines, "hot/%04d.jpg\n", i*7919%keys)
	}
	load := p.Command(t.Context(), "listd", "load", "photos", "--create", "--server", server.S3, "--progress", "none")
	load.Stdin = strings.NewReader(lines.String())
	out, err := load.CombinedOutput()
	require.NoError(t, err, "%s", out)

	b := console.NewBrowser(t, console.Desk)
	b.Go(leader.Admin + "/console/")
	b.Says("Admin token")
	b.Press(token, kb.Enter)
	b.Says("Sizes are looked after by")
	b.Says("photos")
	b.Click("Moves")
	b.Await(`[...document.querySelectorAll('td strong')].some((e) => e.innerText === 'split')`)
	b.Go(leader.Admin + "/console/#/keys?b=photos&last=300&of=rows")
	b.Await("document.querySelector('.legend .ticks span')")
	b.Picture("cassandra-keys")

	b.Click("Cluster")
	for _, text := range []string{
		"Apache Cassandra", "Redis", "unless it renews its lease", "by time", "of 1", "Agreed on by all processes",
		"counted in Redis", "to 500 rows", "Error at most", strings.Split(node, ":")[0],
	} {
		b.Says(text)
	}
	require.NotContains(t, console.Value[string](b, "document.body.innerText"), "does not answer")
	b.Picture("cassandra-cluster")

	require.Empty(t, b.Problems())

	// The other process knows who leads, and answers questions about buckets with that.
	b.Go(server.Admin + "/console/#/cluster")
	b.Says("Admin token")
	b.Press(token, kb.Enter)
	b.Says("stands by")
	b.Says(leader.Admin)
	b.Click("Buckets")
	b.Says(leader.Admin)
	b.Picture("cassandra-standby")
	for _, problem := range b.Problems() {
		require.Contains(t, problem, "421 (Misdirected Request)")
	}
}
