package main

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/evenkeel/evenkeel/partmap/mapclient"
)

// mapMetrics shows what the map client counts. Embedded there are no map clocks
// and no servers' wall clocks: then those counts stay zero.
type mapMetrics struct{ maps *mapclient.Client }

// mapCount is one figure: of what was done so far, or of what is held now.
type mapCount struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(mapclient.Counts, mapclient.Usage) int64
}

func mapDesc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("evenkeel_"+name, help, labels, nil)
}

var mapCounts = []mapCount{
	counted("map_clock_polls_total", "Polls of map clocks.", func(c mapclient.Counts) int64 { return c.Polls }),
	counted("map_clock_poll_retries_total", "Polls of map clocks that were tried a second time.", func(c mapclient.Counts) int64 { return c.Retries }),
	counted("map_clock_poll_failures_total", "Polls of map clocks that failed twice. Leases run out if this goes on.", func(c mapclient.Counts) int64 { return c.Failures }),
	counted("map_clock_bumps_total", "Bumps of map clocks by this process.", func(c mapclient.Counts) int64 { return c.Bumps }),
	counted("map_clock_bump_failures_total", "Bumps of map clocks that were not acknowledged.", func(c mapclient.Counts) int64 { return c.BumpFailures }),
	counted("lease_renewals_total", "Leases renewed by a poll alone.", func(c mapclient.Counts) int64 { return c.Renewals }),
	counted("lease_root_reads_total", "Roots read for a lease: the bucket was new here, or its map had changed.", func(c mapclient.Counts) int64 { return c.RootReads }),
	counted("lease_refusals_total", "Operations that got no lease and failed.", func(c mapclient.Counts) int64 { return c.Refused }),
	counted("wall_clock_answers_total", "Answers of the store's servers to what time it is.", func(c mapclient.Counts) int64 { return c.ClockAnswers }),
	counted("wall_clock_failures_total", "Times that a server was asked and gave no answer that counts.", func(c mapclient.Counts) int64 { return c.ClockFailures }),
	counted("wall_clock_refusals_total", "Writes refused because the wall clock is off, or could not be compared.", func(c mapclient.Counts) int64 { return c.ClockRefusals }),
	held("map_cache_nodes", "Decoded segments and index nodes of maps in memory.", func(u mapclient.Usage) int64 { return u.Nodes }),
	held("map_cache_node_bytes", "Memory of the decoded segments and index nodes, about.", func(u mapclient.Usage) int64 { return u.NodeBytes }),
	held("map_cache_buckets", "Buckets whose roots are in memory.", func(u mapclient.Usage) int64 { return u.Buckets }),
	held("map_cache_bucket_bytes", "Memory of the decoded roots and their leases, about.", func(u mapclient.Usage) int64 { return u.BucketBytes }),
}

func counted(name, help string, value func(mapclient.Counts) int64) mapCount {
	return mapCount{mapDesc(name, help), prometheus.CounterValue, func(c mapclient.Counts, _ mapclient.Usage) int64 { return value(c) }}
}

func held(name, help string, value func(mapclient.Usage) int64) mapCount {
	return mapCount{mapDesc(name, help), prometheus.GaugeValue, func(_ mapclient.Counts, u mapclient.Usage) int64 { return value(u) }}
}

var (
	aheadDesc  = mapDesc("wall_clock_ahead_seconds", "By how much this process's wall clock is ahead of the store's servers' (negative: behind), their median. Absent while nothing is known.")
	boundDesc  = mapDesc("wall_clock_error_seconds", "Bound of the error of evenkeel_wall_clock_ahead_seconds.")
	serverDesc = mapDesc("wall_clock_ahead_of_server_seconds", "By how much this process's wall clock is ahead of one server's. A server that differs from the others has a wrong clock.", "server")
)

// Describe implements prometheus.Collector.
func (m mapMetrics) Describe(to chan<- *prometheus.Desc) {
	for _, c := range mapCounts {
		to <- c.desc
	}
	to <- aheadDesc
	to <- boundDesc
	to <- serverDesc
}

// Collect implements prometheus.Collector.
func (m mapMetrics) Collect(to chan<- prometheus.Metric) {
	counts, usage := m.maps.Counts(), m.maps.Usage()
	for _, c := range mapCounts {
		to <- prometheus.MustNewConstMetric(c.desc, c.kind, float64(c.value(counts, usage)))
	}
	skew := m.maps.Skew()
	if len(skew.Servers) == 0 {
		return
	}
	to <- prometheus.MustNewConstMetric(aheadDesc, prometheus.GaugeValue, skew.Ahead.Seconds())
	to <- prometheus.MustNewConstMetric(boundDesc, prometheus.GaugeValue, skew.Bound.Seconds())
	for _, s := range skew.Servers {
		to <- prometheus.MustNewConstMetric(serverDesc, prometheus.GaugeValue, s.Ahead.Seconds(), s.Server)
	}
}
