package redistest

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/internal/test/child"
)

// Cluster is a Redis Cluster of three servers. Each server has a third of the slots and no replica.
type Cluster struct {
	Nodes []*Server
}

// StartCluster starts a Redis Cluster that ends with the test t. If redis-server is not installed, it skips or fails
// the test, as Start does.
func StartCluster(t testing.TB) *Cluster {
	t.Helper()
	const nodes, slots = 3, 16384
	c := &Cluster{}
	var bus []int
	for i := range nodes {
		bus = append(bus, 0)
		c.Nodes = append(c.Nodes, start(t, func(*Server) (args []string, err error) {
			bus[i], err = child.FreePort()
			return []string{
				"--cluster-enabled", "yes", "--cluster-port", strconv.Itoa(bus[i]), "--cluster-node-timeout", "2000",
			}, err
		}))
	}
	for i, s := range c.Nodes {
		s.must(fmt.Sprintf("cluster set-config-epoch %d", i+1))
		s.must(fmt.Sprintf("cluster addslotsrange %d %d", i*slots/nodes, (i+1)*slots/nodes-1))
		if i > 0 {
			c.Nodes[0].must(fmt.Sprintf("cluster meet 127.0.0.1 %d %d", s.port, bus[i]))
		}
	}
	c.await()
	return c
}

// Addr returns the addresses of all nodes, separated by commas.
func (c *Cluster) Addr() string {
	var all []string
	for _, s := range c.Nodes {
		all = append(all, s.Addr)
	}
	return strings.Join(all, ",")
}

// Crash kills all nodes, and starts them again over their data.
func (c *Cluster) Crash() {
	for _, s := range c.Nodes {
		s.Kill()
	}
	for _, s := range c.Nodes {
		s.Restart()
	}
	c.await()
}

// Lose deletes all data of all nodes.
func (c *Cluster) Lose() {
	for _, s := range c.Nodes {
		s.must("flushall")
	}
}

// await waits until all nodes know all slots.
func (c *Cluster) await() {
	for _, s := range c.Nodes {
		s.t.Helper()
		s.until("cluster info", func(info string) bool {
			return strings.Contains(info, "cluster_state:ok") &&
				strings.Contains(info, fmt.Sprintf("cluster_known_nodes:%d", len(c.Nodes)))
		})
	}
}

// Watched is a Redis master with a replica, and a sentinel. When the master is gone, the sentinel makes the replica the
// new master.
type Watched struct {
	Master, Replica, Sentinel *Server
	// Name is the name of the master in the sentinel.
	Name string
}

// StartWatched starts a master, a replica and a sentinel, which end with the test t. If redis-server is not installed,
// it skips or fails the test, as Start does.
func StartWatched(t testing.TB) *Watched {
	t.Helper()
	w := &Watched{Name: "counts", Master: Start(t)}
	w.Replica = start(t, func(*Server) ([]string, error) {
		return []string{"--replicaof", "127.0.0.1 " + strconv.Itoa(w.Master.port), "--repl-diskless-sync-delay", "0"}, nil
	})
	w.Replica.until("info replication", func(info string) bool { return strings.Contains(info, "master_link_status:up") })
	w.Sentinel = start(t, func(s *Server) ([]string, error) {
		file := filepath.Join(s.dir, "sentinel.conf")
		conf := fmt.Sprintf("port %d\nbind 127.0.0.1\ndir %s\nsentinel monitor %[3]s 127.0.0.1 %[4]d 1\n"+
			"sentinel down-after-milliseconds %[3]s 500\nsentinel failover-timeout %[3]s 2000\n",
			s.port, s.dir, w.Name, w.Master.port)
		return []string{file}, os.WriteFile(file, []byte(conf), 0o600)
	})
	w.Sentinel.until("sentinel replicas "+w.Name, func(replicas string) bool {
		return strings.Contains(replicas, strconv.Itoa(w.Replica.port)) && !strings.Contains(replicas, "s_down")
	})
	return w
}

// Replicate waits until the replica has everything that was written to the master.
func (w *Watched) Replicate() {
	w.Master.t.Helper()
	if out := w.Master.must("set replicated 1\nwait 1 10000"); !strings.HasSuffix(strings.TrimSpace(out), "1") {
		w.Master.t.Fatalf("the replica lags behind: %s", out)
	}
}

func (s *Server) must(commands string) string {
	s.t.Helper()
	out, err := s.ask(commands)
	if err != nil || strings.Contains(out, "ERR") {
		s.t.Fatalf("%s: %v: %s", commands, err, out)
	}
	return out
}

// until repeats a command until the function good accepts the answer. After 30 s, until fails the test.
func (s *Server) until(command string, good func(answer string) bool) {
	s.t.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		out, err := s.ask(command)
		if err == nil && good(out) {
			return
		}
		if time.Now().After(end) {
			s.t.Fatalf("%s: %v: %s", command, err, out)
		}
	}
}
