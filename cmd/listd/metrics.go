package main

import (
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/evenkeel/evenkeel/internal/commontime"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/cassandrastore"
)

// mapMetrics collects the Prometheus metrics about maps of buckets, and about the common time, which is computed from
// the clocks of Cassandra's nodes. With an embedded store the counts of map clocks are zero, and the metrics of the
// common time are missing.
type mapMetrics struct{ client *listing.Client }

// metric is one metric for Prometheus, with its value. The metric is a counter if its name ends with _total, and a
// gauge otherwise.
type metric struct {
	name, help string
	value      float64
}

func metricsOfMaps(c mapclient.Counts, u mapclient.Usage) []metric {
	return []metric{
		{"map_clock_polls_total", "Polls of map clocks.", float64(c.Polls)},
		{"map_clock_poll_retries_total", "Polls of map clocks that were tried a second time.", float64(c.Retries)},
		{"map_clock_poll_failures_total", "Polls of map clocks that failed twice. Leases run out if this goes on.",
			float64(c.Failures)},
		{"map_clock_bumps_total", "Bumps of map clocks by this process.", float64(c.Bumps)},
		{"map_clock_bump_failures_total", "Bumps of map clocks that were not acknowledged.", float64(c.BumpFailures)},
		{"lease_renewals_total", "Leases renewed by a poll alone.", float64(c.Renewals)},
		{"lease_root_reads_total", "Roots read for a lease: the bucket was new here, or its map had changed.",
			float64(c.RootReads)},
		{"lease_refusals_total", "Operations that got no lease and failed.", float64(c.Refused)},
		{"map_cache_nodes", "Decoded segments and index nodes of maps in memory.", float64(u.Nodes)},
		{"map_cache_node_bytes", "Memory of the decoded segments and index nodes, about.", float64(u.NodeBytes)},
		{"map_cache_buckets", "Buckets whose roots are in memory.", float64(u.Buckets)},
		{"map_cache_bucket_bytes", "Memory of the decoded roots and their leases, about.", float64(u.BucketBytes)},
	}
}

// metricsOfCache returns the metrics of one cache for maps of buckets. The caller adds a label with the kind of the
// cache: names of buckets, roots of maps, or nodes of large maps.
func metricsOfCache(c mapclient.CacheCounts) []metric {
	return []metric{
		{"map_cache_hits_total", "Names of buckets, roots of maps and nodes of large maps that were in memory when they " +
			"were needed. A root may still have been read again because its map had changed.", float64(c.Hits)},
		{
			"map_cache_misses_total", "Names of buckets, roots and nodes that were not in memory and were read.", float64(c.Misses),
		},
		{"map_cache_evictions_total", "Names of buckets, roots and nodes dropped from memory for others. " +
			"If this grows, --map-cache-mib is too small.",
			float64(c.Evictions)},
	}
}

func metricsOfClock(c commontime.Counts, now commontime.Status) []metric {
	return []metric{
		{"wall_clock_answers_total", "Answers of the store's servers to requests for their time.", float64(c.Answers)},
		{"wall_clock_failures_total", "Requests for the time without an answer.", float64(c.Failures)},
		{"common_time_contradictions_total", "Answers that contradict earlier ones: a clock was set, there or here.",
			float64(c.Contradictions)},
		{"wall_clock_refusals_total", "Writes refused because the time was not known well enough.", float64(c.Refusals)},
		{"common_time_unbelieved_total", "Timestamps read that no client of the store can have given out: " +
			"some other program writes with a wrong clock.", float64(c.Unbelieved)},
		{"common_time_waits_total", "Writes that were done and then waited for their timestamp to pass.", float64(c.Waits)},
		{"common_time_waited_seconds_total", "Total time of those waits.", c.Waited.Seconds()},
		{"servers_clocks_apart_seconds", "By how much the clocks of two of the store's servers are known to differ, at least.",
			now.Apart.Seconds()},
		{"servers_clocks_unknown", "Servers of the store that have not told their time for a minute.", float64(now.Silent)},
	}
}

// metricsOfTime returns the metrics about the common time, which is computed from the clocks of Cassandra's nodes. The
// caller exports the metrics only while the common time is known.
func metricsOfTime(now commontime.Status) []metric {
	return []metric{
		{"common_time_width_seconds", "How well the common time of the store's servers is known: latest less earliest " +
			"bound. A write takes at least that long. Absent while it is unknown.", now.Width.Seconds()},
		{"wall_clock_ahead_seconds", "By how much this machine's wall clock is ahead of the common time (negative: behind). " +
			"Nothing depends on it.", now.Ahead.Seconds()},
	}
}

// metricsOfDataCentre returns the metrics about the clocks of another data centre. The caller adds a label with the
// name of the data centre.
func metricsOfDataCentre(other commontime.DataCentreClocks) []metric {
	refused := 0.0
	if other.Refused {
		refused = 1
	}
	return []metric{
		{"data_centre_clocks_ahead_seconds", "By how much the clocks of most servers of another data centre are ahead of " +
			"those of this one (negative: behind), to within half a round trip.", other.Ahead.Seconds()},
		{"data_centre_clocks_refused", "1 while the clocks of another data centre are known to differ from those of this " +
			"one by more than --max-clock-skew, and writes are refused, else 0.", refused},
	}
}

// metricOfServer returns the metric of how far this machine's clock is ahead of the clock of one Cassandra node. The
// caller adds a label with the address of the node.
func metricOfServer(server commontime.ServerClock) metric {
	return metric{"wall_clock_ahead_of_server_seconds", "By how much this machine's wall clock is ahead of one server's. " +
		"A server that differs from the others has a wrong clock.", -server.Ahead.Seconds()}
}

// storeMetrics collects the Prometheus metrics of the disk of the embedded store, or of the requests to Cassandra.
type storeMetrics struct{ store store.Store }

func metricsOfDisk(u store.DiskUsage) []metric {
	return []metric{
		{"disk_size_bytes", "Size of the file system of the data directory.", float64(u.Total)},
		{"disk_free_bytes", "Space of the data directory's file system that this process may use.", float64(u.Free)},
		{"disk_reserve_bytes", "Space of that file system that is kept: puts are refused while less is free.", float64(u.Reserve)},
		{"disk_used_bytes", "Space that the files of the embedded store take.", float64(u.Store)},
	}
}

func metricOfWrites(refused error) metric {
	m := metric{"store_writable", "1 while the embedded store accepts puts, else 0; /readyz has the reason.", 1}
	if refused != nil {
		m.value = 0
	}
	return m
}

// Describe sends the descriptions of the store's metrics to the channel `to`, for Prometheus.
func (storeMetrics) Describe(to chan<- *prometheus.Desc) {
	for _, one := range append(metricsOfDisk(store.DiskUsage{}), metricOfWrites(nil)) {
		to <- one.desc()
	}
	cassandrastore.Metrics().Describe(to)
}

// Collect sends the current values of the store's metrics to the channel `to`, for Prometheus.
func (m storeMetrics) Collect(to chan<- prometheus.Metric) {
	if cluster, ok := m.store.(interface{ Metrics() prometheus.Collector }); ok {
		cluster.Metrics().Collect(to)
	}
	s, embedded := m.store.(store.OnDisk)
	if !embedded {
		return
	}
	if u, known := s.Disk(); known {
		send(to, metricsOfDisk(u)...)
	}
	send(to, metricOfWrites(s.Writable()))
}

func send(to chan<- prometheus.Metric, metrics ...metric) {
	for _, one := range metrics {
		kind := prometheus.GaugeValue
		if strings.HasSuffix(one.name, "_total") {
			kind = prometheus.CounterValue
		}
		to <- prometheus.MustNewConstMetric(one.desc(), kind, one.value)
	}
}

func (m metric) desc(labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("evenkeel_"+m.name, m.help, labels, nil)
}

// Describe sends the descriptions of the metrics about maps to the channel `to`, for Prometheus.
func (mapMetrics) Describe(to chan<- *prometheus.Desc) {
	for _, one := range slices.Concat(metricsOfMaps(mapclient.Counts{}, mapclient.Usage{}),
		metricsOfClock(commontime.Counts{}, commontime.Status{}), metricsOfTime(commontime.Status{})) {
		to <- one.desc()
	}
	for _, one := range metricsOfCache(mapclient.CacheCounts{}) {
		to <- one.desc("cache")
	}
	to <- metricOfServer(commontime.ServerClock{}).desc("server")
	for _, one := range metricsOfDataCentre(commontime.DataCentreClocks{}) {
		to <- one.desc("data_centre")
	}
}

// Collect sends the current values of the metrics about maps to the channel `to`, for Prometheus.
func (m mapMetrics) Collect(to chan<- prometheus.Metric) {
	maps := mapclient.Of(m.client)
	u := maps.Usage()
	send(to, metricsOfMaps(maps.Counts(), u)...)
	for cache, counts := range map[string]mapclient.CacheCounts{
		"names": mapclient.NamesOf(m.client), "roots": u.RootCache, "nodes": u.NodeCache,
	} {
		for _, one := range metricsOfCache(counts) {
			to <- prometheus.MustNewConstMetric(one.desc("cache"), prometheus.CounterValue, one.value, cache)
		}
	}
	clock := maps.Time()
	if clock == nil {
		return
	}
	now := clock.Status()
	send(to, metricsOfClock(clock.Counts(), now)...)
	if now.Known {
		send(to, metricsOfTime(now)...)
	}
	for _, server := range now.Servers {
		one := metricOfServer(server)
		to <- prometheus.MustNewConstMetric(one.desc("server"), prometheus.GaugeValue, one.value, server.Address)
	}
	for _, other := range now.DataCentres {
		for _, one := range metricsOfDataCentre(other) {
			to <- prometheus.MustNewConstMetric(one.desc("data_centre"), prometheus.GaugeValue, one.value, other.DataCentre)
		}
	}
}
