package apart

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/test/cassandratest"
	"github.com/evenkeel/evenkeel/internal/test/child"
	"github.com/evenkeel/evenkeel/internal/test/e2e/harness"
	"github.com/evenkeel/evenkeel/internal/test/redistest"
	"github.com/evenkeel/evenkeel/store/cassandrastore"
)

// Environment variables that make cluster sets from its arguments.
const (
	// wantedVariable is set where these tests are to run.
	wantedVariable = "EVENKEEL_APART"
	// distanceVariable is the round trip between the data centres, such as 80ms.
	distanceVariable = "EVENKEEL_APART_DISTANCE"
	// lossVariable is the share of packets between the data centres that are lost, such as 0.001.
	lossVariable = "EVENKEEL_APART_LOSS"
	// paxosVariable is the paxos_variant of the nodes, v1 or v2.
	paxosVariable = "EVENKEEL_APART_PAXOS"
	// manyVariable is the number of processes of each data centre where many are meant.
	manyVariable = "EVENKEEL_APART_MANY"
	// pairsVariable is the number of pairs of writes whose order is checked, 100 if it is not set.
	pairsVariable = "EVENKEEL_APART_PAIRS"
	// cutVariable is how long the link is cut where both data centres write, such as 2m; 30 s if it is not set.
	cutVariable = "EVENKEEL_APART_CUT"
	// longVariable is how long candidates are watched, such as 10m; a minute if it is not set.
	longVariable = "EVENKEEL_APART_LONG"
	// aheadVariable is how far the clocks of the nodes of dc2 are ahead of those of dc1, such as 200ms or -200ms.
	aheadVariable = "EVENKEEL_APART_AHEAD"
	// reportVariable is a file for the figures, as JSON.
	reportVariable = "EVENKEEL_APART_REPORT"
)

// TestMain makes this binary a crew of processes in a data centre, too.
func TestMain(m *testing.M) {
	if encoded := os.Getenv(crewVariable); encoded != "" {
		if err := serveCrew(context.Background(), encoded); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(harness.Run(m, nil))
}

// bed is a cluster of two data centres, with a keyspace that has three copies in each.
type bed struct {
	cluster  *cassandratest.Cluster
	keyspace string
	redis    string // the port
	sites    [2]*site
	distance time.Duration
	many     int
	pairs    int           // whose order is checked
	cutFor   time.Duration // how long the link is cut
	long     time.Duration // how long candidates are watched
	ahead    time.Duration // of the clocks of dc2
	report   *report
}

// site is a data centre.
type site struct {
	number int // 0 for dc1
	name   string
	hosts  []string
	http   *http.Client // in the network of the data centre
}

func TestTwoDataCentres(t *testing.T) {
	if os.Getenv(wantedVariable) == "" {
		t.Skip("starts six Cassandra nodes: only by make cluster")
	}
	duration := func(variable, usual string) time.Duration {
		d, err := time.ParseDuration(cmp.Or(os.Getenv(variable), usual))
		require.NoError(t, err, variable)
		return d
	}
	distance := duration(distanceVariable, "80ms")
	loss, err := strconv.ParseFloat(cmp.Or(os.Getenv(lossVariable), "0"), 64)
	require.NoError(t, err, lossVariable)
	paxos := cmp.Or(os.Getenv(paxosVariable), "v1")
	require.Contains(t, []string{"v1", "v2"}, paxos, paxosVariable)
	b := &bed{
		distance: distance, many: harness.Setting(t, manyVariable, 100), pairs: harness.Setting(t, pairsVariable, 100),
		cutFor: duration(cutVariable, "30s"), long: duration(longVariable, "1m"), ahead: duration(aheadVariable, "0"),
		report: &report{},
	}
	t.Cleanup(func() { b.report.write(t, os.Getenv(reportVariable)) })
	b.report.setting("paxos_variant", paxos)
	b.report.setting("distance", distance.String())
	b.report.setting("loss", fmt.Sprint(loss))
	b.report.setting("clocks of dc2 ahead", b.ahead.String())

	harness.Build(t)
	begun := time.Now()
	b.cluster = cassandratest.New(t, cassandratest.Options{
		DataCentres: []int{3, 3}, Apart: true, HeapMiB: 400, Settings: []string{"paxos_variant: " + paxos},
		Ahead: []time.Duration{0, b.ahead},
	})
	b.cluster.Link.SetLoss(loss)
	for dc := range b.sites {
		b.sites[dc] = newSite(b.cluster, dc)
	}
	b.keyspace = harness.Keyspace(t, b.sites[0].hosts[0], cassandrastore.Replication{"dc1": 3, "dc2": 3}).Keyspace
	t.Logf("six nodes and a keyspace are there after %v", time.Since(begun).Round(time.Second))
	_, b.redis, err = net.SplitHostPort(redistest.Start(t, b.cluster.Machine(0), b.cluster.Machine(1)).Addr)
	require.NoError(t, err)

	for _, part := range []struct {
		name string
		run  func(*bed, *testing.T)
	}{
		{"puts wait for no distance", (*bed).puts},
		{"changes of names and maps", (*bed).changes},
		{"keyspaces of others", (*bed).tenant},
		{"many candidates beside a leader", (*bed).candidates},
		{"many starts at once", (*bed).starts},
		{"starts while the link is cut", (*bed).startsCut},
		{"a node that hangs", (*bed).hangs},
		{"writes on both sides of a cut", (*bed).cut},
		{"a history of both data centres", (*bed).both},
	} {
		t.Run(part.name, func(t *testing.T) {
			t.Cleanup(func() { b.settle(t) })
			part.run(b, t)
		})
	}
}

// settle brings the cluster back to what it was, for the next test.
//
// After a cut a node may take one of the other data centre for down for good, although all others see it, and the two
// are connected. (It was observed with Cassandra 5.0.8, for many minutes. Each node asks the other for an echo before it
// takes it for up, and asks only once at a time.) That is not what these tests are about, so such a node is restarted.
func (b *bed) settle(t *testing.T) {
	b.cluster.Link.Heal()
	b.cluster.Link.SetDistance(0)
	for restarts := 0; ; restarts++ {
		// The test's context has ended by now.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		err := b.cluster.AwaitUp(ctx)
		cancel()
		unseen, ok := errors.AsType[*cassandratest.UnseenError](err)
		if !ok || restarts == len(b.cluster.Nodes) {
			require.NoError(t, err)
			return
		}
		t.Logf("the node %s is restarted, as it takes %s for down a minute after the link was healed",
			unseen.By.Address, unseen.Node.Address)
		require.NoError(t, unseen.By.Kill())
		ctx, cancel = context.WithTimeout(context.WithoutCancel(t.Context()), 3*time.Minute)
		err = unseen.By.Start(ctx)
		cancel()
		require.NoError(t, err)
	}
}

func newSite(c *cassandratest.Cluster, dc int) *site {
	s := &site{number: dc, name: fmt.Sprint("dc", dc+1)}
	for _, n := range c.Nodes {
		if n.DataCentre == s.name {
			s.hosts = append(s.hosts, n.Address)
		}
	}
	s.http = &http.Client{
		Timeout: 2 * time.Minute, Transport: &http.Transport{DialContext: c.Dial(dc), MaxIdleConnsPerHost: 64},
	}
	return s
}

// programs are run in the network of a data centre.
func (b *bed) programs(t *testing.T, at *site) *harness.Programs {
	p := harness.Build(t)
	p.Enter = b.cluster.Enter(at.number)
	return p
}

// server is a running listd.
type server struct {
	*site
	s3, admin string

	cmd   *exec.Cmd
	log   harness.Log
	ended <-chan struct{} // closed when it has ended
}

// serve starts a listd in a data centre, which ends with the test.
func (b *bed) serve(t *testing.T, at *site) *server {
	t.Helper()
	s, err := b.start(t, at)
	require.NoError(t, err)
	return s
}

// start is serve for any goroutine.
func (b *bed) start(t *testing.T, at *site) (*server, error) {
	s := &server{site: at}
	var out harness.Log
	s.cmd = b.programs(t, at).Command(context.Background(), "listd", "serve", "--listen", "127.0.0.1:0",
		"--admin", "127.0.0.1:0", "--cassandra", strings.Join(at.hosts, ","), "--local-dc", at.name,
		"--keyspace", b.keyspace, "--counter", "redis://"+net.JoinHostPort(b.cluster.Machine(at.number), b.redis)+"/0")
	s.cmd.Stdout, s.cmd.Stderr = &out, &s.log
	var err error
	if s.ended, err = child.Start(s.cmd); err != nil {
		return nil, err
	}
	t.Cleanup(func() {
		s.kill()
		if t.Failed() {
			log := s.log.String()
			const shown = 4 << 10
			t.Logf("the end of the log of a listd in %s:\n%s", at.name, log[max(0, len(log)-shown):])
		}
	})
	for {
		for line := range strings.Lines(out.String()) {
			what, address, _ := strings.Cut(strings.TrimSpace(line), " on ")
			switch what {
			case "S3":
				s.s3 = address
			case "admin":
				s.admin = address
			}
		}
		if s.s3 != "" && s.admin != "" {
			return s, nil
		}
		select {
		case <-s.ended:
			return nil, fmt.Errorf("a listd in %s ended with exit code %d: %s", at.name, s.cmd.ProcessState.ExitCode(), &s.log)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (s *server) kill() {
	_ = s.cmd.Process.Kill()
	<-s.ended
}

// lives fails the test if the server has ended.
func (s *server) lives(t *testing.T) {
	t.Helper()
	select {
	case <-s.ended:
		require.FailNow(t, "a listd in "+s.name+" has ended", "%s", &s.log)
	default:
	}
}

// bucket creates a plain bucket.
func (b *bed) bucket(t *testing.T, s *server, name string) {
	t.Helper()
	b.programs(t, s.site).Run("listd", "bucket", "create", name, "--plain", "--server", s.s3)
}
