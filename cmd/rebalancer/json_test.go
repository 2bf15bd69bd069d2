package main

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

// What is printed as JSON has the version of its format, and --json is short for --format json.
func TestJSONHasAVersion(t *testing.T) {
	t.Parallel()
	s := serveMoves(t)
	s.ok("split", "b", "--at", "k100", "--progress", "none")
	for _, args := range [][]string{
		{"status"}, {"map", "show", "b"}, {"map", "history", "b"}, {"map", "diff", "b"}, {"pause", "b"}, {"resume", "b"},
		{"abort", "b"}, {"verify"}, {"split", "b", "--at", "k150", "--dry-run"},
	} {
		for _, flag := range []string{"--json", "--format=json"} {
			var v struct{ Version int }
			out := s.ok(append(args, flag)...)
			require.NoError(t, json.Unmarshal([]byte(out), &v), "%q: %s", args, out)
			require.Equal(t, 1, v.Version, "%q: %s", args, out)
		}
	}
}
