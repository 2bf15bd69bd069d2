package cassandrastore

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestVersionProblems(t *testing.T) {
	for version, want := range map[string]struct {
		says  string
		fatal bool
	}{
		"5.0.0": {}, "5.0.8": {}, "5.1-SNAPSHOT": {}, "5.0-rc1": {},
		"4.1.7":                  {"every write would be refused", true},
		"3.0.8":                  {"every write would be refused", true}, // what ScyllaDB answers
		"6.0.0":                  {"tested with 5.0 only", false},
		"":                       {"not known", false},
		"five":                   {"not one of Cassandra", true},
		"-1.0":                   {"every write would be refused", true},
		"99999999999999999999.9": {"not one of Cassandra", true},
	} {
		what, fatal := versionProblem(version)
		require.Equal(t, want.fatal, fatal, version)
		if want.says == "" {
			require.Empty(t, what, version)
		} else {
			require.Contains(t, what, want.says, version)
		}
	}
}

func TestPaxosProblems(t *testing.T) {
	for variant, want := range map[string][2]string{ // what is said with one and with two data centres
		"": {}, "v2": {}, "v1": {"", "crosses the distance"},
		"v1_without_linearizable_reads_or_rejected_writes": {"linearizable reads", "linearizable reads"},
		"v2_without_linearizable_reads":                    {"linearizable reads", "linearizable reads"},
		"v2_without_linearizable_reads_or_rejected_writes": {"linearizable reads", "linearizable reads"},
		"v3": {"linearizable reads", "linearizable reads"},
	} {
		for i, says := range want {
			what, fatal := paxosProblem(variant, i+1)
			require.Equal(t, says == "linearizable reads", fatal, variant)
			if says == "" {
				require.Empty(t, what, variant)
			} else {
				require.Contains(t, what, says, variant)
			}
		}
	}
}
