package repair_test

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/rebalance/repair"
	"github.com/evenkeel/evenkeel/store/memstore"
)

var update = flag.Bool("update", false, "rewrite testdata/findings.txt")

// TestWhatFindingsSay: operators act on the text of a finding, and programs on its numbers. testdata/findings.txt has
// both for each damage, as a look finds it, and what a repair says
// otherwise.
func TestWhatFindingsSay(t *testing.T) {
	const path = "testdata/findings.txt"
	var text strings.Builder
	for _, d := range append(slices.Clone(damages), restores...) {
		fmt.Fprintln(&text, d.name)
		known := map[string]bool{}
		for _, how := range []string{"", "repair: "} {
			if how == "" && d.want == nil && !d.mends {
				continue
			}
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, memstore.New())
				f.o.Skew = tick
				d.do(f)
				found, sum := f.check(both(d.tune, func(o *repair.Options) {
					o.Repair, o.Parallel = o.Repair || how != "", 1
				}))
				if d.want != nil {
					require.ElementsMatch(t, d.want, kinds(found), d.name)
				}
				var lines []string
				for _, x := range found {
					line := fmt.Sprintf("%s {key %q, count %d, missing %d}\n", x, x.Key, x.Count, x.Missing)
					if line = ids.ReplaceAllString(line, "#"); !known[line] || how == "" {
						lines, known[line] = append(lines, "\t"+how+line), true
					}
				}
				slices.Sort(lines)
				fmt.Fprintf(&text, "%s\t%s%+v\n", strings.Join(lines, ""), how, sum)
			})
		}
	}
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(text.String()), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), text.String(), "see whether it is better, then: go test -run FindingsSay -update")
}

// ids are those of buckets, partitions and nodes.
var ids = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f-]{27}|\b[0-9a-f]{32}\b`)
