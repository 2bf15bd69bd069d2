package sizing

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/dustin/go-humanize"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the table of docs/sizing.md anew")

// TestDocument holds the table of docs/sizing.md, which is made of the plans that it describes.
func TestDocument(t *testing.T) {
	t.Parallel()
	const file, begin, end = "../../../docs/sizing.md", " -update -->\n", "<!-- end -->"
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	before, rest, ok := strings.Cut(string(text), begin)
	require.True(t, ok)
	_, after, ok := strings.Cut(rest, end)
	require.True(t, ok)

	var table strings.Builder
	table.WriteString("| servers | keys | nodes | first walls |\n|---|---|---|---|\n")
	for _, servers := range []int{10, 100, 1000} {
		for _, power := range []int{9, 11, 12} {
			in := plan(func(in *Input) {
				*in = Input{
					Servers: servers, DataCentres: in.DataCentres, RoundTrip: in.RoundTrip, Paxos: in.Paxos,
					Buckets: 100 * int64(servers), BusyBuckets: 10 * int64(servers), Keys: 1, KeyBytes: 50, ValueBytes: 120,
					Inserts: 20 * float64(servers), Appends: 80 * float64(servers), Requests: 500 * float64(servers),
					MaxRows: in.MaxRows, MoveRate: in.MoveRate, CleanRate: in.CleanRate, Lease: in.Lease,
					MapCacheMiB: in.MapCacheMiB, NodeRequests: in.NodeRequests, NodeGiB: in.NodeGiB, RedisGiB: in.RedisGiB,
				}
				for range power {
					in.Keys *= 10
				}
			})
			const share = 0.8
			for in.Nodes = 6; in.line(t, "requests at a node, all together").Share > share ||
				in.line(t, "bytes of rows on a node").Share > share; {
				in.Nodes += 2
			}
			require.NoError(t, in.Check())
			var walls []string
			for _, l := range Of(in) {
				fromNodes := l.What == "requests at a node, all together" || l.What == "bytes of rows on a node"
				if !fromNodes && (len(walls) == 0 || l.Share >= 1) {
					walls = append(walls, fmt.Sprintf("%s (%s): %s", l.What, Percent(l.Share), l.MovedBy))
				}
			}
			fmt.Fprintf(&table, "| %s | 10^%d | %d | %s |\n", humanize.Comma(int64(servers)), power, in.Nodes,
				strings.Join(walls, "; "))
		}
	}
	want := before + begin + table.String() + end + after
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(want), 0o600))
		return
	}
	require.Equal(t, want, string(text), "docs/sizing.md is not what the code computes: run "+
		"go test ./internal/rebalance/sizing -run Document -update")
}
