package s3api

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the Prometheus metrics of the S3 server, in which requests are counted by operation. All unknown
// operations count as one operation, so that clients can't make more metrics by inventing operations.
type metrics struct {
	requests *prometheus.CounterVec
	errors   *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	entries  prometheus.Counter
	inFlight prometheus.Gauge
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "evenkeel_s3_requests_total",
			Help: "Requests answered on the S3 address, by operation and HTTP status.",
		}, []string{"operation", "status"}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "evenkeel_s3_errors_total",
			Help: "Requests refused or failed on the S3 address, by operation and S3 error code.",
		}, []string{"operation", "code"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "evenkeel_s3_request_seconds",
			Help:    "Time from a request's header to the end of its answer, by operation.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 2.5, 13),
		}, []string{"operation"}),
		entries: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "evenkeel_s3_listed_entries_total",
			Help: "Keys and common prefixes sent in listings.",
		}),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "evenkeel_s3_requests_in_flight",
			Help: "Requests being served on the S3 address.",
		}),
	}
	if r == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.requests, m.errors, m.seconds, m.entries, m.inFlight} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *metrics) observe(op operation, status int, code string, took time.Duration) {
	name := op.name
	if op.serve == nil {
		name = "other"
	}
	m.requests.WithLabelValues(name, strconv.Itoa(status)).Inc()
	if code != "" {
		m.errors.WithLabelValues(name, code).Inc()
	}
	m.seconds.WithLabelValues(name).Observe(took.Seconds())
}
