package cassandrastore

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
)

// values are the counters and gauges, and the counts of histograms, by name and labels.
func values(t *testing.T, c prometheus.Collector) map[string]float64 {
	t.Helper()
	r := prometheus.NewRegistry()
	require.NoError(t, r.Register(c))
	families, err := r.Gather()
	require.NoError(t, err)
	all := map[string]float64{}
	for _, f := range families {
		for _, m := range f.Metric {
			name := strings.TrimPrefix(f.GetName(), "evenkeel_store_")
			for _, l := range m.Label {
				name += " " + l.GetValue()
			}
			all[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return all
}

func TestRequestsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &database{o: Options{ReadTimeout: time.Hour}, measures: newMeasures()}
		near := request{op: opGet, level: gocql.LocalQuorum, limit: time.Hour}
		run := func(ctx context.Context, r request, a *answers) {
			_, _ = retry(ctx, s, r, a.attempt)
		}
		const quickly, slowly = time.Millisecond, time.Second
		away := errors.New("reset")
		run(t.Context(), near, &answers{takes: []time.Duration{quickly}})
		run(t.Context(), near, &answers{takes: []time.Duration{slowly, quickly}})
		run(t.Context(), near, &answers{takes: []time.Duration{quickly}, fails: []error{away}})
		run(t.Context(), near, &answers{takes: []time.Duration{quickly}, fails: []error{away, away, away}})
		mover := request{op: opBatch, level: gocql.EachQuorum, limit: time.Hour}
		run(t.Context(), mover, &answers{takes: []time.Duration{slowly}, fails: []error{gocql.ErrTimeoutNoResponse,
			gocql.ErrTimeoutNoResponse, gocql.ErrTimeoutNoResponse}})
		gone, goes := context.WithCancel(t.Context())
		time.AfterFunc(quickly, goes)
		run(gone, near, &answers{takes: []time.Duration{slowly}})
		late, end := context.WithTimeout(t.Context(), quickly)
		defer end()
		run(late, near, &answers{takes: []time.Duration{slowly}})
		require.Equal(t, map[string]float64{
			"request_seconds LOCAL_QUORUM get": 6, "request_seconds EACH_QUORUM batch": 1,
			"errors_total unavailable get": 1, "errors_total timeout get": 1, "errors_total timeout batch": 1,
			"repeated_attempts_total get failed": 3, "repeated_attempts_total batch failed": 2,
			"repeated_attempts_total get slow": 1,
		}, values(t, s.Metrics()))
	})
}

// TestCostOfMeasures: a request that is measured allocates nothing for that.
func TestCostOfMeasures(t *testing.T) {
	m := newMeasures()
	m.ended(t.Context(), opGet, gocql.LocalQuorum, time.Millisecond, nil)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		m.ended(t.Context(), opGet, gocql.LocalQuorum, time.Millisecond, nil)
	}))
}

// All operations and all levels that requests have are named.
func TestNamesOfRequests(t *testing.T) {
	names := map[string]bool{}
	for o := range operations {
		require.NotEmpty(t, o.String())
		names[o.String()] = true
	}
	require.Len(t, names, int(operations))
	for _, l := range []Level{LocalQuorum, Quorum, Each, LocalOne} {
		level, err := l.driver()
		require.NoError(t, err)
		require.Equal(t, string(l), levelNames[level])
	}
}

// Metrics and log tell of nodes that are down, and of those that only hang.
func TestStatesOfNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		c := newChosen("listings", "north", "", slog.New(slog.NewTextHandler(&log, nil)))
		for i, id := range []string{"a", "b", "c"} {
			h := (&gocql.HostInfo{}).SetConnectAddress(net.IPv4(127, 0, 0, byte(i+1)))
			h.SetHostID(id)
			c.AddHost(h)
			c.HostUp(h)
		}
		m := newMeasures()
		m.watch(c)
		requireNodes := func(up, silent, down float64) {
			t.Helper()
			require.Equal(t, map[string]float64{
				"connections north": 0, "nodes north up": up, "nodes north silent": silent, "nodes north down": down,
			}, values(t, m))
		}
		lines := func(text string) int { return strings.Count(log.String(), text) }
		requireNodes(3, 0, 0)
		require.Empty(t, log.String())

		a := c.node("a")
		for range 3 {
			c.HostDown(a.HostInfo)
		}
		require.Equal(t, 1, lines(`level=WARN msg="Cassandra: a node can't be reached`))
		c.HostUp(a.HostInfo)
		c.HostUp(a.HostInfo)
		require.Equal(t, 1, lines(`level=INFO msg="Cassandra: a node can be reached again"`))

		b := c.node("b")
		b.asks()
		time.Sleep(hedgeAfter)
		b.silent()
		requireNodes(2, 1, 0)
		require.Zero(t, lines("does not answer"), "a second of silence is no news")
		for range hangsAfter/avoidFor + 2 {
			time.Sleep(avoidFor)
			require.False(t, b.avoid(), "one request tries")
			requireNodes(2, 1, 0)
		}
		require.Equal(t, 1, lines(`level=WARN msg="Cassandra: a node is connected, but does not answer"`))
		b.answers()
		requireNodes(3, 0, 0)
		require.Equal(t, 1, lines(`level=INFO msg="Cassandra: a node answers again"`))

		b.asks()
		time.Sleep(hedgeAfter)
		b.silent()
		time.Sleep(time.Hour)
		requireNodes(3, 0, 0)
		require.False(t, b.avoid())
		require.Equal(t, 1, lines("does not answer"), "nobody has asked it for an hour")
	})
}
