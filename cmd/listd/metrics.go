package main

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/evenkeel/evenkeel/partmap/mapclient"
	"github.com/evenkeel/evenkeel/store/commontime"
)

// mapMetrics are the metrics of the map client and of the common time. Embedded, the counts of
// map clocks stay zero, and the common time is absent.
type mapMetrics struct{ maps *mapclient.Client }

// mapCount is a counter or a gauge.
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
	counted("map_clock_poll_retries_total", "Polls of map clocks that were tried a second time.",
		func(c mapclient.Counts) int64 { return c.Retries }),
	counted("map_clock_poll_failures_total", "Polls of map clocks that failed twice. Leases run out if this goes on.",
		func(c mapclient.Counts) int64 { return c.Failures }),
	counted("map_clock_bumps_total", "Bumps of map clocks by this process.",
		func(c mapclient.Counts) int64 { return c.Bumps }),
	counted("map_clock_bump_failures_total", "Bumps of map clocks that were not acknowledged.",
		func(c mapclient.Counts) int64 { return c.BumpFailures }),
	counted("lease_renewals_total", "Leases renewed by a poll alone.",
		func(c mapclient.Counts) int64 { return c.Renewals }),
	counted("lease_root_reads_total", "Roots read for a lease: the bucket was new here, or its map had changed.",
		func(c mapclient.Counts) int64 { return c.RootReads }),
	counted("lease_refusals_total", "Operations that got no lease and failed.",
		func(c mapclient.Counts) int64 { return c.Refused }),
	held("map_cache_nodes", "Decoded segments and index nodes of maps in memory.",
		func(u mapclient.Usage) int64 { return u.Nodes }),
	held("map_cache_node_bytes", "Memory of the decoded segments and index nodes, about.",
		func(u mapclient.Usage) int64 { return u.NodeBytes }),
	held("map_cache_buckets", "Buckets whose roots are in memory.", func(u mapclient.Usage) int64 { return u.Buckets }),
	held("map_cache_bucket_bytes", "Memory of the decoded roots and their leases, about.",
		func(u mapclient.Usage) int64 { return u.BucketBytes }),
}

func counted(name, help string, value func(mapclient.Counts) int64) mapCount {
	of := func(c mapclient.Counts, _ mapclient.Usage) int64 { return value(c) }
	return mapCount{mapDesc(name, help), prometheus.CounterValue, of}
}

func held(name, help string, value func(mapclient.Usage) int64) mapCount {
	of := func(_ mapclient.Counts, u mapclient.Usage) int64 { return value(u) }
	return mapCount{mapDesc(name, help), prometheus.GaugeValue, of}
}

var (
	widthDesc = mapDesc("common_time_width_seconds",
		"How well the common time of the store's servers is known: latest less earliest bound. A write takes at least "+
			"that long. Absent while it is unknown.")
	aheadDesc = mapDesc("wall_clock_ahead_seconds",
		"By how much this machine's wall clock is ahead of the common time (negative: behind). Nothing depends on it.")
	apartDesc = mapDesc("servers_clocks_apart_seconds",
		"By how much the clocks of two of the store's servers are known to differ, at least.")
	silentDesc = mapDesc("servers_clocks_unknown", "Servers of the store that have not told their time for a minute.")
	serverDesc = mapDesc("wall_clock_ahead_of_server_seconds",
		"By how much this machine's wall clock is ahead of one server's. A server that differs from the others has a "+
			"wrong clock.", "server")
)

// timeCounts are the counters of the common time.
var timeCounts = []struct {
	desc  *prometheus.Desc
	value func(commontime.Counts) float64
}{
	{mapDesc("wall_clock_answers_total", "Answers of the store's servers to requests for their time."),
		func(c commontime.Counts) float64 { return float64(c.Answers) }},
	{mapDesc("wall_clock_failures_total", "Requests for the time without an answer."),
		func(c commontime.Counts) float64 { return float64(c.Failures) }},
	{mapDesc("common_time_contradictions_total", "Answers that contradict earlier ones: a clock was set, there or here."),
		func(c commontime.Counts) float64 { return float64(c.Contradictions) }},
	{mapDesc("wall_clock_refusals_total", "Writes refused because the time was not known well enough."),
		func(c commontime.Counts) float64 { return float64(c.Refusals) }},
	{mapDesc("common_time_unbelieved_total",
		"Timestamps read that no client of the store can have given out: some other program writes with a wrong clock."),
		func(c commontime.Counts) float64 { return float64(c.Unbelieved) }},
	{mapDesc("common_time_waits_total", "Writes that were done and then waited for their timestamp to pass."),
		func(c commontime.Counts) float64 { return float64(c.Waits) }},
	{mapDesc("common_time_waited_seconds_total", "Total time of those waits."),
		func(c commontime.Counts) float64 { return c.Waited.Seconds() }},
}

// Describe implements prometheus.Collector.
func (m mapMetrics) Describe(to chan<- *prometheus.Desc) {
	for _, c := range mapCounts {
		to <- c.desc
	}
	for _, c := range timeCounts {
		to <- c.desc
	}
	for _, d := range []*prometheus.Desc{widthDesc, aheadDesc, apartDesc, silentDesc, serverDesc} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (m mapMetrics) Collect(to chan<- prometheus.Metric) {
	counts, usage := m.maps.Counts(), m.maps.Usage()
	for _, c := range mapCounts {
		to <- prometheus.MustNewConstMetric(c.desc, c.kind, float64(c.value(counts, usage)))
	}
	clock := m.maps.Time()
	if clock == nil {
		return
	}
	asked := clock.Counts()
	for _, c := range timeCounts {
		to <- prometheus.MustNewConstMetric(c.desc, prometheus.CounterValue, c.value(asked))
	}
	now := clock.Status()
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	if now.Known {
		gauge(widthDesc, now.Width.Seconds())
		gauge(aheadDesc, now.Ahead.Seconds())
	}
	gauge(apartDesc, now.Apart.Seconds())
	gauge(silentDesc, float64(now.Silent))
	for _, server := range now.Servers {
		gauge(serverDesc, -server.Ahead.Seconds(), server.Address)
	}
}
