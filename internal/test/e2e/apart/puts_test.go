package apart

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
)

// puts measures what clients of both data centres wait for, without distance and with it, through
// servers that were started at that distance. The clocks agree, so a put waits for no distance; and
// it wins over one that was acknowledged in the other data centre, as soon as the news may have come.
func (b *bed) puts(t *testing.T) {
	const check, bucket, workers, warm, measured = "puts", "puts", 2, 15 * time.Second, 45 * time.Second
	first := b.serve(t, b.sites[0])
	b.bucket(t, first, bucket)
	fill(t, first, bucket)
	first.kill() // in creating a bucket it has come to know the other data centre

	var servers []*server
	loads := map[time.Duration][]load{}
	// Each distance has two turns, and both come at the same time on average: nodes that have just begun are slower than
	// those that have run for a while.
	for turn, distance := range []time.Duration{0, b.distance, b.distance, 0} {
		b.cluster.Link.SetDistance(distance)
		servers = nil
		for _, at := range b.sites {
			begun := time.Now()
			servers = append(servers, b.serve(t, at))
			if turn < 2 {
				b.report.add(check, fmt.Sprintf("%v: start of listd in %s", distance, at.name), time.Since(begun).Seconds(), "s")
			}
		}
		work(t, servers, bucket, workers, busy, warm)
		stop := b.measureLink(t)
		// One kind after the other: the nodes share processors, so what a put has the other data centre do would slow
		// down gets and pages, or with no distance the put itself.
		for _, kind := range kinds {
			loads[distance] = together(loads[distance], work(t, servers, bucket, workers, calm, measured, kind))
		}
		trips := stop()
		for i := range servers {
			require.Empty(t, loads[distance][i].failed())
		}
		if turn < 2 {
			b.report.took(check, fmt.Sprintf("%v: round trip over the link meanwhile", distance), trips)
			b.inOrder(t, check, bucket, servers, distance)
		}
		for _, s := range servers {
			s.kill()
		}
	}
	for _, distance := range []time.Duration{0, b.distance} {
		b.tell(check, distance.String(), servers, loads[distance])
	}
	for i, at := range b.sites {
		for _, kind := range kinds {
			for _, q := range []float64{0.5, 0.99} {
				near, far := quantile(loads[0][i][kind].took, q), quantile(loads[b.distance][i][kind].took, q)
				name := fmt.Sprintf("%v: p%.0f of a %s in %s, by that without distance", b.distance, 100*q, kind, at.name)
				b.report.add(check, name, far.Seconds()/near.Seconds(), "")
				// Half of what waiting for the way between the data centres would add: on a busy machine both figures vary.
				if q == 0.5 && far > near+b.distance/4 {
					t.Errorf("a %s in %s takes %v at a distance of %v and %v without: the distance alone is no reason",
						kind, at.name, far, b.distance, near)
				}
			}
		}
	}
}

// inOrder puts pairs through servers, none of which may be in the wrong order.
func (b *bed) inOrder(t *testing.T, check, bucket string, servers []*server, distance time.Duration) {
	for _, s := range servers {
		b.report.add(check, fmt.Sprintf("%v: width of the common time in %s", distance, s.name),
			1000*s.metric(t, "evenkeel_common_time_width_seconds"), "ms")
	}
	p := &pairs{name: distance.String(), bucket: bucket, many: b.pairs}
	if distance == 0 {
		p.many = min(p.many, 1000) // order is at risk where news takes a while
	}
	begun := time.Now()
	p.put(t, servers, distance)
	wrong := p.check(t, servers)
	b.report.add(check, fmt.Sprintf("%v: pairs of writes", distance), float64(p.many), "")
	b.report.add(check, fmt.Sprintf("%v: pairs of writes in the wrong order", distance), float64(wrong), "")
	t.Logf("%d pairs of writes at %v took %v", p.many, distance, time.Since(begun).Round(time.Second))
	require.Zero(t, wrong)
}

// pairs are keys that are written through one server, and then through that of the other data centre when news that is
// twice as fast as packets may have come. The second write of each has to win, everywhere.
type pairs struct {
	name, bucket string
	many         int
}

func (p *pairs) key(i int) string { return fmt.Sprintf("pair-%s-%d", p.name, i) }

// put writes the keys: puts after puts, deletes after puts and puts after deletes, half of them first in either data
// centre.
func (p *pairs) put(t *testing.T, servers []*server, distance time.Duration) {
	t.Helper()
	write := func(s *server, i int, value string) error {
		method := http.MethodPut
		if value == "" {
			method = http.MethodDelete
		}
		_, err := s.request(t.Context(), method, s.s3+"/"+p.bucket+"/"+p.key(i), value)
		return err
	}
	var g errgroup.Group
	g.SetLimit(16)
	for i := range p.many {
		g.Go(func() error {
			first, second := p.values(i)
			if err := write(servers[i%2], i, first); err != nil {
				return err
			}
			time.Sleep(distance / 4)
			return write(servers[1-i%2], i, second)
		})
	}
	require.NoError(t, g.Wait())
}

// values returns what the two writes of a key put; an empty value is a delete.
func (p *pairs) values(i int) (first, second string) {
	switch i / 2 % 3 {
	case 0:
		return "first", "second"
	case 1:
		return "first", ""
	}
	return "", "second"
}

// check returns how many keys do not come to show the second write, counted at each server.
func (p *pairs) check(t *testing.T, servers []*server) int {
	t.Helper()
	const later = 30 * time.Second // what is on its way to the other data centre has come by then
	end := time.Now().Add(later)
	var g errgroup.Group
	g.SetLimit(16)
	var found atomic.Int64
	for i := range p.many {
		_, second := p.values(i)
		for _, s := range servers {
			g.Go(func() error {
				for {
					value, _, err := s.find(t.Context(), p.bucket, p.key(i))
					switch {
					case err != nil:
						return err
					case value == second:
						return nil
					case time.Now().After(end):
						found.Add(1)
						return nil
					}
					time.Sleep(time.Second)
				}
			})
		}
	}
	require.NoError(t, g.Wait())
	return int(found.Load())
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
