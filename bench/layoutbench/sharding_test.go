package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/bench/sharding"
)

func TestShardingIsPrinted(t *testing.T) {
	small := []string{"sharding", "--items", "2000", "--seeds", "2", "--long-seeds", "3"}
	code, out, errs := ran(t, small...)
	require.Zero(t, code, errs)
	for _, s := range sharding.Schemes() {
		require.Contains(t, out, s.Name)
		require.Contains(t, errs, "measured "+s.Name)
	}
	require.Contains(t, out, "2000 items on 20 shards, then on 21")
	require.Contains(t, out, "97.50 (97.50 to 97.50)")

	code, out, _ = ran(t, append(small, "--format", "json")...)
	require.Zero(t, code)
	var got struct {
		Items, Shards int
		Rows          []sharding.Row
	}
	d := json.NewDecoder(strings.NewReader(out))
	d.DisallowUnknownFields()
	require.NoError(t, d.Decode(&got))
	require.Equal(t, 2000, got.Items)
	require.Equal(t, 20, got.Shards)
	require.Len(t, got.Rows, len(sharding.Schemes()))
	require.Equal(t, 3, got.Rows[4].Seeds)

	code, _, errs = ran(t, "sharding", "--shards", "61")
	require.Equal(t, exitUsage, code)
	require.Contains(t, errs, "61 shards: 1 to 60 can be compared")
}
