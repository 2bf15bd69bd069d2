package apart

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
)

// puts measures what clients of both data centres wait for, without distance and with it, through
// servers that were started at that distance. The clocks agree, so a put waits for no distance; and
// it wins over one that was acknowledged in the other data centre, as soon as the news may have come.
func (b *bed) puts(t *testing.T) {
	const check, bucket, workers, warm, measured = "puts", "puts", 2, 15 * time.Second, 30 * time.Second
	first := b.serve(t, b.sites[0])
	b.bucket(t, first, bucket)
	fill(t, first, bucket)
	first.kill() // in creating a bucket it has come to know the other data centre

	middle := map[time.Duration]map[string]time.Duration{}
	for _, distance := range []time.Duration{0, b.distance} {
		b.cluster.Link.SetDistance(distance)
		var servers []*server
		for _, at := range b.sites {
			begun := time.Now()
			servers = append(servers, b.serve(t, at))
			b.report.add(check, fmt.Sprintf("%v: start of listd in %s", distance, at.name), time.Since(begun).Seconds(), "s")
		}
		work(t, servers, bucket, workers, warm)
		stop := b.measureLink(t)
		loads := work(t, servers, bucket, workers, measured)
		b.report.took(check, fmt.Sprintf("%v: round trip over the link meanwhile", distance), stop())
		b.tell(check, distance.String(), servers, loads)
		middle[distance] = map[string]time.Duration{}
		for i, s := range servers {
			require.Empty(t, loads[i].failed())
			middle[distance][s.name] = quantile(loads[i]["put"].took, 0.5)
			b.report.add(check, fmt.Sprintf("%v: width of the common time in %s", distance, s.name),
				1000*s.metric(t, "evenkeel_common_time_width_seconds"), "ms")
		}
		b.pairs(t, check, distance, servers, bucket)
		for _, s := range servers {
			s.kill()
		}
	}
	for _, at := range b.sites {
		near, far := middle[0][at.name], middle[b.distance][at.name]
		b.report.add(check, fmt.Sprintf("%v: p50 of a put in %s, by that without distance", b.distance, at.name),
			far.Seconds()/near.Seconds(), "")
		// Half of what waiting for the way between the data centres would add: on a busy machine both figures vary.
		if far > near+b.distance/4 {
			t.Errorf("puts in %s take %v at a distance of %v and %v without: the distance alone is no reason",
				at.name, far, b.distance, near)
		}
	}
}

// pairs puts keys through one server, and again through the other one when news that is twice as fast as
// packets may have come. The second put of each has to win, everywhere.
func (b *bed) pairs(t *testing.T, check string, distance time.Duration, servers []*server, bucket string) {
	t.Helper()
	const many = 100
	key := func(i int) string { return fmt.Sprintf("pair-%v-%d", distance, i) }
	put := func(s *server, i int, value string) error {
		_, err := s.request(t.Context(), http.MethodPut, s.s3+"/"+bucket+"/"+key(i), value)
		return err
	}
	var g errgroup.Group
	g.SetLimit(4)
	for i := range many {
		g.Go(func() error {
			if err := put(servers[i%2], i, "first"); err != nil {
				return err
			}
			time.Sleep(distance / 4)
			return put(servers[1-i%2], i, "second")
		})
	}
	require.NoError(t, g.Wait())
	wrong := func() (n int) {
		for i := range many {
			for _, s := range servers {
				value, err := s.request(t.Context(), http.MethodGet, s.s3+"/"+bucket+"/"+key(i), "")
				require.NoError(t, err)
				if value != "second" {
					n++
				}
			}
		}
		return n
	}
	n := wrong()
	for end := time.Now().Add(30 * time.Second); n > 0 && time.Now().Before(end); n = wrong() {
		time.Sleep(time.Second) // they are on their way to the other data centre
	}
	b.report.add(check, fmt.Sprintf("%v: pairs of puts in the wrong order", distance), float64(n), "")
	require.Zero(t, n)
}

// metric is the value of a metric without labels.
func (s *server) metric(t *testing.T, name string) float64 {
	t.Helper()
	text, err := s.request(t.Context(), http.MethodGet, s.admin+"/metrics", "")
	require.NoError(t, err)
	found := regexp.MustCompile(`(?m)^` + name + ` (.*)$`).FindStringSubmatch(text)
	require.NotNil(t, found, name)
	value, err := strconv.ParseFloat(found[1], 64)
	require.NoError(t, err)
	return value
}

// measureLink sends bytes over the link and back until stop, which returns how long that took: what
// the distance really is while nodes and clients have the processors.
func (b *bed) measureLink(t *testing.T) (stop func() []time.Duration) {
	t.Helper()
	var far net.Listener
	require.NoError(t, b.cluster.Within(1, func() (err error) {
		far, err = net.Listen("tcp", net.JoinHostPort(b.sites[1].hosts[0], "0"))
		return err
	}))
	go func() {
		if c, err := far.Accept(); err == nil {
			_, _ = io.Copy(c, c)
			_ = c.Close()
		}
	}()
	c, err := b.cluster.Dial(0)(t.Context(), "tcp", far.Addr().String())
	require.NoError(t, err)
	ends, took := make(chan struct{}), make(chan []time.Duration)
	go func() {
		var all []time.Duration
		defer func() { took <- all }()
		for b := make([]byte, 1); ; time.Sleep(50 * time.Millisecond) {
			select {
			case <-ends:
				return
			default:
			}
			begun := time.Now()
			if _, err := c.Write(b); err != nil {
				return
			}
			if _, err := io.ReadFull(c, b); err != nil {
				return
			}
			all = append(all, time.Since(begun))
		}
	}()
	return func() []time.Duration {
		close(ends)
		all := <-took
		_ = c.Close()
		_ = far.Close()
		return all
	}
}
