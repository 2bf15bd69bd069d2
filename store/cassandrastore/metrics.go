package cassandrastore

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"
)

// operation is the kind of a request to Cassandra, such as a put. The metrics have a label with its name.
type operation uint8

const (
	opGet operation = iota
	opSlice
	opPut
	opBatch
	opDelete
	opRemove
	opReadRegister
	opSwap
	opReadNode
	opWriteNode
	opScan
	opSchema
	opTime
	opTable
	opReadSize
	opWriteSize
	operations // the number of operations
)

var operationNames = [operations]string{
	"get", "slice", "put", "batch", "delete", "remove", "read_register", "swap", "read_node", "write_node", "scan",
	"schema", "time", "table", "read_size", "write_size",
}

func (o operation) String() string { return operationNames[o] }

// levelNames are Cassandra's names of the consistency levels, for the labels of metrics. They include SERIAL, the level
// at which lightweight transactions are decided, for which the driver has no name.
var levelNames = [...]string{
	gocql.One: "ONE", gocql.Quorum: "QUORUM", gocql.LocalQuorum: "LOCAL_QUORUM", gocql.EachQuorum: "EACH_QUORUM",
	gocql.Serial: "SERIAL", gocql.LocalOne: "LOCAL_ONE",
}

// measures are the metrics of a store. The number of their labels is bounded: there are only the operations, levels and
// kinds of errors of the program, and the data centres of the cluster. Methods of a nil pointer do nothing.
type measures struct {
	seconds  *prometheus.HistogramVec
	failed   *prometheus.CounterVec
	attempts *prometheus.CounterVec

	// observers are the histograms of seconds for each pair of labels that has been used. Finding a histogram by its
	// labels takes several times as long.
	observers [operations][len(levelNames)]atomic.Pointer[prometheus.Observer]

	mu    sync.Mutex
	sites map[string]*chosen // the nodes of the open session in each data centre

	repairs atomic.Pointer[repairState] // nil: repairs are not watched, not needed or not known
}

func newMeasures() *measures {
	return &measures{
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "evenkeel_store_request_seconds",
			Help: "Time of requests to Cassandra with all their attempts, also of those that failed, by operation and " +
				"consistency level.",
			Buckets: prometheus.ExponentialBuckets(0.0002, 2.5, 12),
		}, []string{"operation", "level"}),
		failed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "evenkeel_store_errors_total",
			Help: "Requests to Cassandra that failed in all their attempts, by operation and kind of error. Not those that " +
				"their client gave up.",
		}, []string{"operation", "kind"}),
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "evenkeel_store_repeated_attempts_total",
			Help: "Attempts beyond the first one of requests to Cassandra, by operation and reason: the one before had " +
				"failed, or was slow and went on beside it.",
		}, []string{"operation", "reason"}),
		sites: map[string]*chosen{},
	}
}

var (
	nodesDesc = prometheus.NewDesc("evenkeel_store_nodes",
		"Cassandra nodes by data centre and state, as this process sees them: up, silent (connected, but nothing is "+
			"answered) or down.", []string{"data_centre", "state"}, nil)
	connectionsDesc = prometheus.NewDesc("evenkeel_store_connections",
		"Open connections to Cassandra nodes by data centre.", []string{"data_centre"}, nil)
)

var (
	repairAgeDesc = prometheus.NewDesc("evenkeel_store_repair_age_seconds",
		"Age of the last repair of the part of a table that was repaired longest ago, as Cassandra records repairs. Only "+
			"repairs that reached all copies in all data centres count. Absent where none is known.", []string{"table"}, nil)
	unrepairedDesc = prometheus.NewDesc("evenkeel_store_unrepaired_ratio",
		"Share of a table, 0 to 1, of which Cassandra knows no repair within 30 days.", []string{"table"}, nil)
	graceDesc = prometheus.NewDesc("evenkeel_store_tombstone_grace_seconds",
		"For how long Cassandra keeps the tombstones of a table (gc_grace_seconds).", []string{"table"}, nil)
)

// ended adds a request that has ended to the metrics. op is the kind of the request, level its consistency level, took
// its duration with all attempts, and err its error or nil. A request whose caller has given it up does not count as
// failed.
func (m *measures) ended(ctx context.Context, op operation, level gocql.Consistency, took time.Duration, err error) {
	if m == nil {
		return
	}
	observer := m.observers[op][level].Load()
	if observer == nil {
		found := m.seconds.WithLabelValues(op.String(), levelNames[level])
		observer = &found
		m.observers[op][level].Store(observer)
	}
	(*observer).Observe(took.Seconds())
	if err != nil && !errors.Is(ctx.Err(), context.Canceled) {
		m.failed.WithLabelValues(op.String(), kind(err).Error()).Inc()
	}
}

// again adds to the metrics that a request is sent once more. op is the kind of the request. reason says why: "slow" if
// the last attempt is still under way, or "failed" if it has failed.
func (m *measures) again(op operation, reason string) {
	if m != nil {
		m.attempts.WithLabelValues(op.String(), reason).Inc()
	}
}

// watch adds the nodes and connections of a session to the metrics. They replace those of an earlier session to the
// same data centre.
func (m *measures) watch(c *chosen) {
	if m != nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.sites[c.dataCentre] = c
	}
}

// Describe sends the descriptions of all metrics of the store to the channel. It implements prometheus.Collector.
func (m *measures) Describe(to chan<- *prometheus.Desc) {
	m.seconds.Describe(to)
	m.failed.Describe(to)
	m.attempts.Describe(to)
	to <- nodesDesc
	to <- connectionsDesc
	to <- repairAgeDesc
	to <- unrepairedDesc
	to <- graceDesc
}

// Collect sends the present values of all metrics of the store to the channel. It implements prometheus.Collector.
func (m *measures) Collect(to chan<- prometheus.Metric) {
	m.seconds.Collect(to)
	m.failed.Collect(to)
	m.attempts.Collect(to)
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	if r := m.repairs.Load(); r != nil {
		gauge(unrepairedDesc, r.unknown, rowsTable)
		gauge(graceDesc, r.grace.Seconds(), rowsTable)
		if !r.oldest.IsZero() {
			gauge(repairAgeDesc, time.Since(r.oldest).Seconds(), rowsTable)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for dataCentre, c := range m.sites {
		states := map[string]int{nodeUp: 0, nodeSilent: 0, nodeDown: 0}
		for _, state := range c.states() {
			states[state]++
		}
		for state, n := range states {
			gauge(nodesDesc, float64(n), dataCentre, state)
		}
		gauge(connectionsDesc, float64(c.connections.Load()), dataCentre)
	}
}

// Metrics returns the metrics of the store as a collector for Prometheus. It implements Store.
func (s *database) Metrics() prometheus.Collector { return s.measures }

// Metrics returns a collector with the names and descriptions of a store's metrics, but no values. Programs that
// document or check the metrics use it, since it needs no open store.
func Metrics() prometheus.Collector { return newMeasures() }

// counting is a dialer of network connections that counts how many of its connections are open, for the metrics.
type counting struct {
	gocql.Dialer
	open *atomic.Int64
}

// DialContext opens a network connection and counts it as open until it is closed. It implements gocql.Dialer.
func (d counting) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := d.Dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	d.open.Add(1)
	return &counted{Conn: c, closed: sync.OnceFunc(func() { d.open.Add(-1) })}, nil
}

// counted is a network connection that calls closed when it is closed.
type counted struct {
	net.Conn
	closed func()
}

func (c *counted) Close() error {
	c.closed()
	return c.Conn.Close()
}
