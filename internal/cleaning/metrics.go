package cleaning

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/evenkeel/evenkeel/objects"
)

var (
	leadingDesc = prometheus.NewDesc("evenkeel_objects_cleaner_leading",
		"1 while this process cleans buckets of objects, else 0.", nil, nil)
	pausedDesc = prometheus.NewDesc("evenkeel_objects_cleaner_paused",
		"1 if the last round of this process passed over buckets whose moves are paused, else 0.", nil, nil)
	ageDesc = prometheus.NewDesc("evenkeel_objects_cleaner_round_age_seconds",
		"Time since the last whole round over all buckets of objects ended, or since this process began to clean. "+
			"Absent where another one cleans.", nil, nil)
	roundsDesc = prometheus.NewDesc("evenkeel_objects_cleaner_rounds_total",
		"Whole rounds over all buckets of objects.", nil, nil)
	rowsDesc = prometheus.NewDesc("evenkeel_objects_cleaner_rows_total",
		"Rows of buckets of objects that the cleaner has looked at.", nil, nil)
	bytesDesc = prometheus.NewDesc("evenkeel_objects_cleaner_deleted_bytes_total",
		"Bytes of the versions that the cleaner has deleted for good.", nil, nil)
	stepsDesc = prometheus.NewDesc("evenkeel_objects_cleaned_total",
		"Steps of the cleaner of buckets of objects: versions superseded, deleted for good, and others.",
		[]string{"step"}, nil)
	failuresDesc = prometheus.NewDesc("evenkeel_objects_cleaner_failures_total",
		"Steps, rounds and audits of the cleaner of buckets of objects that failed, by the kind of the error; they are "+
			"due again.",
		[]string{"reason"}, nil)
	auditAgeDesc = prometheus.NewDesc("evenkeel_objects_audit_age_seconds",
		"Time since the last whole audit of the bodies of objects ended. Absent before the first, and where another "+
			"process cleans.", nil, nil)
	findingsDesc = prometheus.NewDesc("evenkeel_objects_audit_findings",
		"What the last whole audit of the bodies of objects has found. Absent like its age.", []string{"fault"}, nil)
	auditRowsDesc = prometheus.NewDesc("evenkeel_objects_audit_rows_total",
		"Rows of versions that audits have compared with bodies.", nil, nil)
	auditBlobsDesc = prometheus.NewDesc("evenkeel_objects_audit_bodies_total",
		"Bodies, and parts of them, that audits have compared with versions.", nil, nil)
)

// Describe implements prometheus.Collector.
func (*Cleaning) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		leadingDesc, pausedDesc, ageDesc, roundsDesc, rowsDesc, bytesDesc, stepsDesc, failuresDesc,
		auditAgeDesc, findingsDesc, auditRowsDesc, auditBlobsDesc,
	} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (c *Cleaning) Collect(to chan<- prometheus.Metric) {
	send := func(d *prometheus.Desc, kind prometheus.ValueType, v float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, kind, v, labels...)
	}
	yes := func(b bool) float64 {
		if b {
			return 1
		}
		return 0
	}
	leading := c.Leading()
	c.mu.Lock()
	defer c.mu.Unlock()
	send(leadingDesc, prometheus.GaugeValue, yes(leading))
	send(pausedDesc, prometheus.GaugeValue, yes(leading && c.state.Paused))
	since := c.state.Since
	if c.state.Last != nil && c.state.Last.Ended.After(since) {
		since = c.state.Last.Ended
	}
	if leading && !since.IsZero() {
		send(ageDesc, prometheus.GaugeValue, time.Since(since).Seconds())
	}
	send(roundsDesc, prometheus.CounterValue, float64(c.sums.rounds))
	send(rowsDesc, prometheus.CounterValue, float64(c.sums.rows))
	send(bytesDesc, prometheus.CounterValue, float64(c.sums.bytes))
	if last := c.state.LastAudit; leading && last != nil {
		send(auditAgeDesc, prometheus.GaugeValue, time.Since(last.Ended).Seconds())
		for _, fault := range objects.Faults() {
			if fault == objects.DamagedBody {
				continue // audits of servers read no bodies
			}
			send(findingsDesc, prometheus.GaugeValue, float64(last.Faults[fault]), string(fault))
		}
	}
	send(auditRowsDesc, prometheus.CounterValue, float64(c.sums.comparedRows))
	send(auditBlobsDesc, prometheus.CounterValue, float64(c.sums.comparedBlobs))
	for step, n := range c.sums.steps {
		send(stepsDesc, prometheus.CounterValue, float64(n), step)
	}
	for reason, n := range c.sums.failures {
		send(failuresDesc, prometheus.CounterValue, float64(n), reason)
	}
}
