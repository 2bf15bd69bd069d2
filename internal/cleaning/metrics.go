package cleaning

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/evenkeel/evenkeel/internal/care"
	"github.com/evenkeel/evenkeel/internal/rebalance/shard"
)

var (
	leadingDesc = prometheus.NewDesc("evenkeel_objects_cleaner_leading",
		"1 while this process cleans buckets of objects of a shard, else 0.", nil, nil)
	shardsDesc = prometheus.NewDesc("evenkeel_objects_cleaner_shards",
		"Shards whose buckets of objects this process cleans; of all processes together: 16.", nil, nil)
	pausedDesc = prometheus.NewDesc("evenkeel_objects_cleaner_paused",
		"1 if the last round of this process passed over buckets whose moves are paused, else 0.", nil, nil)
	ageDesc = prometheus.NewDesc("evenkeel_objects_cleaner_round_age_seconds",
		"Time since the last whole round over the buckets of objects of a shard ended and hints were followed, or since "+
			"this process began to clean them; of the shard that has waited longest. Absent where other processes clean all.",
		nil, nil)
	roundsDesc = prometheus.NewDesc("evenkeel_objects_cleaner_rounds_total",
		"Whole rounds over all buckets of objects; a round over one of 16 shards counts as a sixteenth.", nil, nil)
	rowsDesc = prometheus.NewDesc("evenkeel_objects_cleaner_rows_total",
		"Rows of buckets of objects that the cleaner has looked at.", nil, nil)
	hintedDesc = prometheus.NewDesc("evenkeel_objects_cleaner_hinted_total",
		"Objects that the cleaner has looked at because of hints.", nil, nil)
	overdueDesc = prometheus.NewDesc("evenkeel_objects_cleaner_overdue_total",
		"Steps that were due for more than six hours when a round over all rows found them: hints were lost.", nil, nil)
	notedDesc = prometheus.NewDesc("evenkeel_objects_hints_written_total",
		"Hints that this process has written: keys of objects in which a cleaner may find something to do.", nil, nil)
	droppedDesc = prometheus.NewDesc("evenkeel_objects_hints_dropped_total",
		"Hints that this process had no room for, as the store did not take them. A round over all rows finds the objects.",
		nil, nil)
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
		"What the last whole audit of the bodies of objects has found. Absent like its age. Of damaged bodies: what the "+
			"last whole scrub has found, or more of the present one; absent without --scrub-mib-per-second.",
		[]string{"fault"}, nil)
	scrubAgeDesc = prometheus.NewDesc("evenkeel_objects_scrub_age_seconds",
		"Time since the last whole scrub, which compares bodies with their checksums, ended. Absent before the first, and "+
			"where another process cleans.", nil, nil)
	scrubbedDesc = prometheus.NewDesc("evenkeel_objects_scrubbed_total",
		"Versions whose bodies scrubs have found to have the right checksum.", nil, nil)
	auditRowsDesc = prometheus.NewDesc("evenkeel_objects_audit_rows_total",
		"Rows of versions that audits have compared with bodies.", nil, nil)
	auditBlobsDesc = prometheus.NewDesc("evenkeel_objects_audit_bodies_total",
		"Bodies, and parts of them, that audits have compared with versions.", nil, nil)
)

// Describe sends the descriptions of all metrics of cleaning to the channel. It implements prometheus.Collector.
func (*Cleaning) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		leadingDesc, shardsDesc, pausedDesc, ageDesc, roundsDesc, rowsDesc, bytesDesc, stepsDesc, failuresDesc,
		hintedDesc, overdueDesc, notedDesc, droppedDesc,
		auditAgeDesc, findingsDesc, auditRowsDesc, auditBlobsDesc, scrubAgeDesc, scrubbedDesc,
	} {
		to <- d
	}
}

// Collect sends the present values of all metrics of cleaning to the channel. It implements prometheus.Collector.
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
	led := c.led()
	auditing := led.Has(0)
	c.mu.Lock()
	defer c.mu.Unlock()
	send(leadingDesc, prometheus.GaugeValue, yes(led != 0))
	send(shardsDesc, prometheus.GaugeValue, float64(led.Len()))
	send(pausedDesc, prometheus.GaugeValue, yes(c.sum(led).Paused))
	if oldest := c.oldestRound(led); !oldest.IsZero() {
		send(ageDesc, prometheus.GaugeValue, time.Since(oldest).Seconds())
	}
	send(roundsDesc, prometheus.CounterValue, c.sums.rounds)
	send(rowsDesc, prometheus.CounterValue, float64(c.sums.rows))
	if c.o.Hints != nil {
		counts := c.o.Hints.Counts()
		send(hintedDesc, prometheus.CounterValue, float64(c.sums.hinted))
		send(overdueDesc, prometheus.CounterValue, float64(c.sums.overdue))
		send(notedDesc, prometheus.CounterValue, float64(counts.Written))
		send(droppedDesc, prometheus.CounterValue, float64(counts.Dropped))
	}
	send(bytesDesc, prometheus.CounterValue, float64(c.sums.bytes))
	if last := c.audited.last; auditing && last != nil {
		send(auditAgeDesc, prometheus.GaugeValue, time.Since(last.Ended).Seconds())
		for _, fault := range care.Faults() {
			if fault == care.DamagedBody {
				continue // audits read no bodies
			}
			send(findingsDesc, prometheus.GaugeValue, float64(last.Faults[fault]), string(fault))
		}
	}
	if s := &c.scrubbed; auditing && (s.last != nil || s.now != nil) {
		if s.last != nil {
			send(scrubAgeDesc, prometheus.GaugeValue, time.Since(s.last.Ended).Seconds())
		}
		send(findingsDesc, prometheus.GaugeValue, float64(s.findings(care.DamagedBody)), string(care.DamagedBody))
	}
	send(scrubbedDesc, prometheus.CounterValue, float64(c.sums.scrubbed))
	send(auditRowsDesc, prometheus.CounterValue, float64(c.sums.comparedRows))
	send(auditBlobsDesc, prometheus.CounterValue, float64(c.sums.comparedBlobs))
	for step, n := range c.sums.steps {
		send(stepsDesc, prometheus.CounterValue, float64(n), step)
	}
	for reason, n := range c.sums.failures {
		send(failuresDesc, prometheus.CounterValue, float64(n), reason)
	}
}

// oldestRound returns the time up to which cleaning is complete in the shards led, which are groups of buckets that
// this process cleans. It is the earliest of the times of these shards, or zero if this process cleans none. The time
// of a shard is
//   - the end of the last whole round over its buckets, or the time when this process began to clean the shard;
//   - with hints, the time when all hints were last followed, if that is earlier or a round over all rows is under way.
//
// The caller holds Cleaning.mu.
func (c *Cleaning) oldestRound(led shard.Set) (oldest time.Time) {
	for _, s := range c.rounds {
		if s.of&led == 0 || s.since.IsZero() {
			continue
		}
		at := s.since
		if s.last != nil && s.last.Ended.After(at) {
			at = s.last.Ended
		}
		if c.o.Hints != nil {
			followed := s.since
			if s.followed.After(followed) {
				followed = s.followed
			}
			if followed.Before(at) || s.now != nil && s.mode.all && s.mode.byHints {
				at = followed
			}
		}
		if oldest.IsZero() || at.Before(oldest) {
			oldest = at
		}
	}
	return oldest
}
