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

// operation is a kind of request to Cassandra, as the metrics have it.
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
	operations // the number of them
)

var operationNames = [operations]string{
	"get", "slice", "put", "batch", "delete", "remove", "read_register", "swap", "read_node", "write_node", "scan",
	"schema", "time", "table",
}

func (o operation) String() string { return operationNames[o] }

// levelNames are Cassandra's names of the levels. They include the name of the level at which registers are decided,
// which the driver does not name.
var levelNames = [...]string{
	gocql.One: "ONE", gocql.Quorum: "QUORUM", gocql.LocalQuorum: "LOCAL_QUORUM", gocql.EachQuorum: "EACH_QUORUM",
	gocql.Serial: "SERIAL", gocql.LocalOne: "LOCAL_ONE",
}

// measures are what a store counts. Their labels are bounded: the operations, levels and kinds of errors of the
// program, and the data centres of the cluster. A nil pointer counts nothing.
type measures struct {
	seconds  *prometheus.HistogramVec
	failed   *prometheus.CounterVec
	attempts *prometheus.CounterVec

	// observers are those of seconds that were used: to find one by its labels takes several times as long.
	observers [operations][len(levelNames)]atomic.Pointer[prometheus.Observer]

	mu    sync.Mutex
	sites map[string]*chosen // of the open session in each data centre
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

// ended counts a request that has ended.
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
		m.failed.WithLabelValues(op.String(), kind(err).String()).Inc()
	}
}

// again counts an attempt beyond the first one of a request.
func (m *measures) again(op operation, reason string) {
	if m != nil {
		m.attempts.WithLabelValues(op.String(), reason).Inc()
	}
}

// watch takes the nodes of a session into the metrics, in place of an earlier session of their data centre.
func (m *measures) watch(c *chosen) {
	if m != nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.sites[c.dataCentre] = c
	}
}

// Describe implements prometheus.Collector.
func (m *measures) Describe(to chan<- *prometheus.Desc) {
	m.seconds.Describe(to)
	m.failed.Describe(to)
	m.attempts.Describe(to)
	to <- nodesDesc
	to <- connectionsDesc
}

// Collect implements prometheus.Collector.
func (m *measures) Collect(to chan<- prometheus.Metric) {
	m.seconds.Collect(to)
	m.failed.Collect(to)
	m.attempts.Collect(to)
	m.mu.Lock()
	defer m.mu.Unlock()
	gauge := func(d *prometheus.Desc, value int, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(value), labels...)
	}
	for dataCentre, c := range m.sites {
		states := map[string]int{nodeUp: 0, nodeSilent: 0, nodeDown: 0}
		for _, state := range c.states() {
			states[state]++
		}
		for state, n := range states {
			gauge(nodesDesc, n, dataCentre, state)
		}
		gauge(connectionsDesc, int(c.connections.Load()), dataCentre)
	}
}

// Metrics returns the metrics of the store.
func (s *Store) Metrics() prometheus.Collector { return s.measures }

// Metrics returns a collector that describes the metrics of a store. The collector has no values.
func Metrics() prometheus.Collector { return newMeasures() }

// counting is a dialer that counts the connections of a session.
type counting struct {
	gocql.Dialer
	open *atomic.Int64
}

// DialContext implements gocql.Dialer.
func (d counting) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := d.Dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	d.open.Add(1)
	return &counted{Conn: c, closed: sync.OnceFunc(func() { d.open.Add(-1) })}, nil
}

type counted struct {
	net.Conn
	closed func()
}

func (c *counted) Close() error {
	c.closed()
	return c.Conn.Close()
}
