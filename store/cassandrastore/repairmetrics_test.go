package cassandrastore

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
)

// The age of repairs is that of the part that waits longest, beside the share of which none is known.
func TestMetricsOfRepairs(t *testing.T) {
	const day = 24 * time.Hour
	now := time.Now()
	for name, c := range map[string]struct {
		repairs *repairState
		want    map[string]float64
	}{
		"they are not watched": {nil, map[string]float64{}},
		"none is known": {&repairState{unknown: 1, grace: 10 * day}, map[string]float64{
			"evenkeel_store_unrepaired_ratio": 1, "evenkeel_store_tombstone_grace_seconds": 864_000,
		}},
		"all was repaired": {&repairState{oldest: now.Add(-9 * day), grace: 10 * day}, map[string]float64{
			"evenkeel_store_repair_age_seconds": 777_600, "evenkeel_store_unrepaired_ratio": 0,
			"evenkeel_store_tombstone_grace_seconds": 864_000,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMeasures()
			m.repairs.Store(c.repairs)
			registry := prometheus.NewPedanticRegistry()
			registry.MustRegister(m)
			families, err := registry.Gather()
			require.NoError(t, err)
			got := map[string]float64{}
			for _, f := range families {
				require.Equal(t, "rows", f.GetMetric()[0].GetLabel()[0].GetValue())
				got[f.GetName()] = f.GetMetric()[0].GetGauge().GetValue()
			}
			require.InDeltaMapValues(t, c.want, got, 600)
		})
	}
}
