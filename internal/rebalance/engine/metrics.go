package engine

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/internal/rebalance/balancer"
	"github.com/evenkeel/evenkeel/internal/rebalance/scheduler"
)

// Metrics is a prometheus.Collector for the metrics of a Rebalancer and of a counter.Recorder. The field Rebalancer
// must be set before Collect is called; Describe works with the zero value, too.
type Metrics struct {
	Rebalancer *Rebalancer
	Recorder   *counter.Recorder // nil: this process records nothing
}

// descs has the descriptions of all metrics, which the method Describe sends to Prometheus. Each call of desc adds one.
var descs []*prometheus.Desc

func desc(name, help string, labels ...string) *prometheus.Desc {
	d := prometheus.NewDesc("evenkeel_"+name, help, labels, nil)
	descs = append(descs, d)
	return d
}

var (
	leadingDesc    = desc("balance_leading", "1 while this process leads moves, else 0.")
	shardsDesc     = desc("balance_shards", "Shards of the buckets, of 16, whose moves this process leads.")
	sizesDesc      = desc("partition_rows", "Rows of partitions, by the last hourly check of all.")
	largeDesc      = desc("partitions_too_large", "Partitions with more than 1.2 times the most rows, at that check.")
	unknownDesc    = desc("partitions_of_unknown_size", "Partitions without known size at that check.")
	oldDesc        = desc("partitions_of_old_size", "Partitions at that check whose size nothing has confirmed for long.")
	unattendedDesc = desc("sizes_unattended",
		"1 if the sizes of partitions are not looked after or the counters do not answer, else 0; rebalancer status says why.")
	decidedDesc = desc("balance_decisions_total",
		"Decisions about ranges, by kind (none: nothing is done) and reason.", "kind", "why")
	movedDesc    = desc("balance_moved_rows_total", "Rows copied by automatic moves, by kind.", "kind")
	recountsDesc = desc("recounts_total", "Partitions counted exactly.")
	readDesc     = desc("recount_rows_total", "Rows read by recounts.")
	driftDesc    = desc("recount_drift_rows_total",
		"Rows by which the counters' estimates were off, as recounts found.")
	waitingDesc = desc("recounts_waiting", "Recounts that wait or are under way.")
	plansDesc   = desc("plans_total", "Plans made for ranges that are split or merged.")
	gapDesc     = desc("plan_gap",
		"Rows that the last plan moves beyond the fewest possible, as a share of these; for evenness and growth.")
	failingDesc = desc("balance_failing",
		"1 if the last check of sizes failed, else 0: the counters or the store do not answer.")
	lateDesc = desc("balance_late_seconds",
		"For how long the bucket that waits longest has been due to be looked at; more than the interval: they do not keep up.")
	omittedDesc = desc("history_omitted_buckets",
		"Buckets that took requests, for which the last sample of the console's history had no room.")
	movesDesc    = desc("moves", "Moves of the jobs that are remembered, by state.", "state")
	bucketsDesc  = desc("moves_buckets", "Buckets with something to do, by state.", "state")
	failuresDesc = desc("moves_failures", "Steps of moves that failed and are retried.")
	rateDesc     = desc("moves_rate_rows_per_second",
		"Present limit of rows copied, compared and counted per second; 0: none.")
	batchesDesc   = desc("counter_batches_total", "Batches of counts sent to the counters.")
	unflushedDesc = desc("counter_failures_total", "Batches of counts whose sending failed; it is retried.")
	lostDesc      = desc("counter_lost_writes_total", "Requests that were not counted, for lack of memory. Partitions with such writes are recounted.")
	blindDesc     = desc("counter_blind_writes_total",
		"Writes that were counted without sampling their keys, for lack of memory.")
	retainingDesc = desc("retention_run_age_seconds",
		"Time since the last run of the rules of retention ended, or since this process began to apply them. Absent where "+
			"there are none, or another process leads.")
	runsDesc    = desc("retention_runs_total", "Runs of the rules of retention over all buckets.")
	droppedDesc = desc("retention_dropped_ranges_total", "Ranges that rules of retention have dropped as a whole.")
	oldRowsDesc = desc("retention_dropped_rows_total", "Rows of these ranges, as they were counted.")
	unkeptDesc  = desc("retention_failures_total",
		"Buckets to which a rule of retention could not be applied; it is tried again.")
	pendingDesc = desc("counter_waiting_partitions", "Partitions with counts that are not sent yet.")
)

// Describe sends the descriptions of all metrics to the channel `to`, as prometheus.Collector says.
func (m Metrics) Describe(to chan<- *prometheus.Desc) {
	for _, d := range descs {
		to <- d
	}
}

// Collect sends the present values of all metrics to the channel `to`, as prometheus.Collector says.
func (m Metrics) Collect(to chan<- prometheus.Metric) {
	send := func(d *prometheus.Desc, kind prometheus.ValueType, v float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, kind, v, labels...)
	}
	yes := func(b bool) float64 {
		if b {
			return 1
		}
		return 0
	}
	const sum, now = prometheus.CounterValue, prometheus.GaugeValue
	send(leadingDesc, now, yes(m.Rebalancer.Leading()))
	send(shardsDesc, now, float64(len(m.Rebalancer.Led())))
	send(unattendedDesc, now, yes(m.Rebalancer.Unattended() != ""))
	m.moves(func(d *prometheus.Desc, n float64, labels ...string) { send(d, now, n, labels...) })
	if m.Rebalancer.balancer != nil {
		s := m.Rebalancer.balancer.Status()
		for d, n := range s.Decided {
			send(decidedDesc, sum, float64(n), string(d.Kind), string(d.Why))
		}
		for k, n := range s.Moved {
			send(movedDesc, sum, float64(n), string(k))
		}
		send(recountsDesc, sum, float64(s.Recounts))
		send(readDesc, sum, float64(s.Read))
		send(driftDesc, sum, float64(s.Drift))
		send(waitingDesc, now, float64(s.Waiting))
		send(plansDesc, sum, float64(s.Plans))
		send(gapDesc, now, s.Gap)
		send(failingDesc, now, yes(s.Round.Err != nil))
		send(lateDesc, now, s.Late.Seconds())
		send(largeDesc, now, float64(s.Sizes.TooLarge()))
		send(unknownDesc, now, float64(s.Sizes.Unknown))
		send(oldDesc, now, float64(s.Sizes.Old))
		send(omittedDesc, now, float64(m.Rebalancer.history.Omitted()))
		to <- histogram(&s.Sizes, m.Rebalancer.balancer.Limits().MaxRows)
	}
	if t := m.Rebalancer.retention; len(t.o.Retention) > 0 {
		t.mu.Lock()
		if since := t.since; !since.IsZero() {
			if t.state.Last != nil && t.state.Last.Ended.After(since) {
				since = t.state.Last.Ended
			}
			send(retainingDesc, now, time.Since(since).Seconds())
		}
		send(runsDesc, sum, float64(t.runs))
		send(droppedDesc, sum, float64(t.sums.Whole))
		send(oldRowsDesc, sum, float64(t.sums.Rows))
		send(unkeptDesc, sum, float64(t.sums.Failed))
		t.mu.Unlock()
	}
	if m.Recorder != nil {
		c := m.Recorder.Counts()
		send(batchesDesc, sum, float64(c.Batches))
		send(unflushedDesc, sum, float64(c.Failures))
		send(lostDesc, sum, float64(c.Lost))
		send(blindDesc, sum, float64(c.Blind))
		send(pendingDesc, now, float64(c.Waiting))
	}
}

// moves computes the metrics about moves from the status of the scheduler, such as the number of moves by state. It
// calls send for each metric, with the description d, the value n and the values of the labels.
func (m Metrics) moves(send func(d *prometheus.Desc, n float64, labels ...string)) {
	s := m.Rebalancer.scheduler.Status()
	stages := map[scheduler.Stage]int{scheduler.Waiting: 0, scheduler.Begun: 0, scheduler.Met: 0, scheduler.Refused: 0, scheduler.Dropped: 0}
	for i := range s.Jobs {
		for k := range s.Jobs[i].Goals {
			stages[s.Jobs[i].Goals[k].Stage]++
		}
	}
	for stage, n := range stages {
		send(movesDesc, float64(n), string(stage))
	}
	states := map[string]int{"moving": 0, "waiting": 0, "paused": 0}
	failures := 0
	for i := range s.Buckets {
		b := &s.Buckets[i]
		failures += len(b.Failures)
		switch {
		case b.Paused:
			states["paused"]++
		case b.Running:
			states["moving"]++
		default:
			states["waiting"]++
		}
	}
	for state, n := range states {
		send(bucketsDesc, float64(n), state)
	}
	send(failuresDesc, float64(failures))
	send(rateDesc, float64(s.Rate))
}

// histogram returns a Prometheus histogram of the numbers of rows of partitions. The upper bounds of the histogram are
// fixed multiples of maxRows, the maximum number of rows of a partition.
func histogram(s *balancer.Sizes, maxRows int64) prometheus.Metric {
	below := map[float64]uint64{}
	n := uint64(0)
	for i, step := range balancer.SizeSteps {
		n += uint64(s.Partitions[i])
		below[step*float64(maxRows)] = n
	}
	n += uint64(s.Partitions[len(balancer.SizeSteps)])
	return prometheus.MustNewConstHistogram(sizesDesc, n, float64(s.Rows), below)
}
