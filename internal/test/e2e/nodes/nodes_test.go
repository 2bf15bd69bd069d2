package nodes

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/test/cassandratest"
	"github.com/evenkeel/evenkeel/internal/test/e2e/harness"
	"github.com/evenkeel/evenkeel/store/cassandrastore"
)

// wantedVariable is set by make nodes.
const wantedVariable = "EVENKEEL_NODES"

func TestMain(m *testing.M) { os.Exit(harness.Run(m, nil)) }

// bed is a cluster with a keyspace, servers in its data centres, and a client that writes all along.
type bed struct {
	cluster  *cassandratest.Cluster
	programs *harness.Programs
	keyspace string
	page     map[string]string // the commands of docs/nodes.md, by name
	servers  map[string]*harness.Server
	client   *client
}

const bucket = "kept"

func TestNodesComeAndGo(t *testing.T) {
	if os.Getenv(wantedVariable) == "" {
		t.Skip("starts nine Cassandra nodes, one after the other: only by make nodes")
	}
	b := &bed{programs: harness.Build(t), page: readPage(t), servers: map[string]*harness.Server{}}
	b.cluster = cassandratest.New(t, cassandratest.Options{DataCentres: []int{3}, Spare: 6, HeapMiB: 300})
	b.keyspace = harness.Keyspace(t, b.cluster.Nodes[0].Address, cassandrastore.Replication{"dc1": 3}).Keyspace
	b.serve("dc1")
	b.programs.Run("listd", "bucket", "create", bucket, "--plain", "--server", b.servers["dc1"].S3)
	b.client = &client{server: b.servers["dc1"].S3, there: map[string]bool{}}
	end := harness.Meanwhile(t, b.client.write)

	for _, part := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"nodes are restarted", b.restart},
		{"a node is added", b.add},
		{"a dead node is replaced", b.replace},
		{"a data centre is added and removed", b.addAndRemove},
		{"a data centre is added and lost", b.addAndLose},
	} {
		if !t.Run(part.name, part.run) {
			break // what comes next begins with what this one leaves
		}
		b.check(t, part.name)
	}
	end()
	b.check(t, "all of it")
}

func (b *bed) restart(t *testing.T) {
	for _, n := range b.cluster.Nodes {
		b.run(t, n, "drain")
		require.NoError(t, n.Kill())
		require.NoError(t, n.Start(t.Context()))
		require.NoError(t, b.cluster.AwaitUp(t.Context()))
	}
}

func (b *bed) add(t *testing.T) {
	n, err := b.cluster.Add(t.Context(), cassandratest.Newcomer{DataCentre: "dc1"})
	require.NoError(t, err)
	for _, other := range b.cluster.Nodes {
		if other != n {
			b.run(t, other, "cleanup")
		}
	}
}

func (b *bed) replace(t *testing.T) {
	dead := b.cluster.Nodes[1]
	require.NoError(t, dead.Kill())
	n, err := b.cluster.Add(t.Context(), cassandratest.Newcomer{DataCentre: "dc1", Replaces: dead})
	require.NoError(t, err)
	b.run(t, n, "repair")
}

// addAndRemove adds dc2, moves ranges with both, and removes it again. One replica of dc1 lacks the last map before.
func (b *bed) addAndRemove(t *testing.T) {
	late := b.miss(t)
	require.False(t, b.knows(t, late), "the node was down")
	nodes := b.addCentre(t, "dc2")
	for _, n := range append(nodes, late) {
		require.True(t, b.knows(t, n), "every replica knows every register")
	}
	b.check(t, "dc2 is there")
	b.move(t, 5)
	out, err := b.try(t, b.cluster.Nodes[0], "remove", "COPIES=dc1=3")
	require.Error(t, err)
	require.Contains(t, out, "these processes would have no copies in their data centre")
	require.Zero(t, b.servers["dc2"].End(syscall.SIGTERM))
	delete(b.servers, "dc2")
	b.run(t, b.cluster.Nodes[0], "remove", "COPIES=dc1=3")
	for _, n := range nodes {
		_, err := n.Nodetool(t.Context(), "decommission")
		require.NoError(t, err)
		require.NoError(t, n.Kill())
	}
	b.move(t, 6)
}

// addAndLose adds dc3, whose nodes are all killed then.
func (b *bed) addAndLose(t *testing.T) {
	nodes := b.addCentre(t, "dc3")
	b.move(t, 7)
	out, err := b.try(t, b.cluster.Nodes[0], "lost", "COPIES=dc1=3", "LOST=dc3")
	require.Error(t, err)
	require.Contains(t, out, "the data centre dc3 answers")
	b.servers["dc3"].Kill()
	delete(b.servers, "dc3")
	for _, n := range nodes {
		require.NoError(t, n.Kill())
	}
	code, _, _ := b.split(8)
	require.NotZero(t, code, "moves need all data centres")
	b.run(t, b.cluster.Nodes[0], "lost", "COPIES=dc1=3", "LOST=dc3")
	b.move(t, 9)
}

// missed is the key of a register that nobody reads, so that no read repairs it.
const missed = "missed"

// miss writes a register while a node is down that has a replica of it, and no other node keeps a hint for that node.
func (b *bed) miss(t *testing.T) (late *cassandratest.Node) {
	t.Helper()
	out, err := b.cluster.Nodes[0].Nodetool(t.Context(), "getendpoints", b.keyspace, "process", fmt.Sprintf("%x", missed))
	require.NoError(t, err)
	for _, n := range b.cluster.Nodes[1:] { // the first one has connections of the commands
		if slices.Contains(strings.Fields(out), n.Address) {
			late = n
		}
	}
	require.NotNil(t, late, out)
	handoff := func(command string) {
		for _, n := range b.cluster.Nodes {
			if n != late && n.Running() {
				_, err := n.Nodetool(t.Context(), command)
				require.NoError(t, err)
			}
		}
	}
	handoff("disablehandoff")
	_, err = late.Nodetool(t.Context(), "drain")
	require.NoError(t, err)
	require.NoError(t, late.Kill())
	require.NoError(t, b.session(t, b.cluster.Nodes[0]).Query(
		"INSERT INTO process (key, epoch, swap_token, record) VALUES (?, 1, uuid(), 0x01)", []byte(missed),
	).Consistency(gocql.Quorum).Exec())
	require.NoError(t, late.Start(t.Context()))
	require.NoError(t, b.cluster.AwaitUp(t.Context()))
	handoff("enablehandoff")
	return late
}

// knows reports whether the replica that a node has knows the register that was missed.
func (b *bed) knows(t *testing.T, n *cassandratest.Node) bool {
	t.Helper()
	var epoch int64
	err := b.session(t, n).Query("SELECT epoch FROM process WHERE key = ?", []byte(missed)).
		Consistency(cassandratest.NodeLocal).Scan(&epoch)
	if errors.Is(err, gocql.ErrNotFound) {
		return false
	}
	require.NoError(t, err)
	return true
}

// session is one whose coordinator is a node.
func (b *bed) session(t *testing.T, n *cassandratest.Node) *gocql.Session {
	t.Helper()
	c := gocql.NewCluster(n.Address)
	c.Keyspace, c.ProtoVersion, c.Timeout, c.DisableInitialHostLookup = b.keyspace, 4, time.Minute, true
	s, err := c.CreateSession()
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

// addCentre follows the page: two nodes, and two copies.
func (b *bed) addCentre(t *testing.T, name string) (nodes []*cassandratest.Node) {
	for range 2 {
		n, err := b.cluster.Add(t.Context(), cassandratest.Newcomer{DataCentre: name, Empty: true})
		require.NoError(t, err)
		nodes = append(nodes, n)
	}
	first := b.cluster.Nodes[0]
	out := b.run(t, first, "add", "COPIES=dc1=3,"+name+"=2")
	require.Contains(t, out, "nodetool rebuild -ks "+b.keyspace+" -- dc1")

	// A server that would list less than there is does not start.
	code, _, errs := b.programs.Try("listd", b.flags(name)...)
	require.Equal(t, 3, code, errs)
	require.Contains(t, errs, "has no complete copy")
	code, _, errs = b.split(11)
	require.NotZero(t, code, "moves are paused")
	require.Contains(t, errs, "is added")

	for _, n := range nodes {
		b.run(t, n, "rebuild")
	}
	b.run(t, first, "filled", "ADDED="+name)
	b.serve(name)
	return nodes
}

// move splits ranges of the bucket, as changes of maps need every data centre.
func (b *bed) move(t *testing.T, at int) {
	t.Helper()
	code, _, errs := b.split(at)
	require.Zero(t, code, errs)
}

// split cuts the bucket at a key, and gives up after two minutes.
func (b *bed) split(at int) (code int, out, errs string) {
	p := *b.programs
	p.Patience = 2 * time.Minute
	return p.Try("rebalancer", "split", bucket, "--at", fmt.Sprintf("key-%05d", at*10), "--admin", b.servers["dc1"].Admin,
		"--progress", "none")
}

// serve starts a server in a data centre.
func (b *bed) serve(name string) { b.servers[name] = b.programs.Serve(b.flags(name)[1:]...) }

// flags are the command line of a server.
func (b *bed) flags(name string) []string {
	var hosts []string
	for _, n := range b.cluster.Nodes {
		if n.DataCentre == name && n.Running() {
			hosts = append(hosts, n.Address)
		}
	}
	return []string{"serve", "--cassandra", strings.Join(hosts, ","), "--local-dc", name, "--keyspace", b.keyspace}
}

// readPage returns the commands of docs/nodes.md.
func readPage(t *testing.T) map[string]string {
	text, err := os.ReadFile("../../../../docs/nodes.md")
	require.NoError(t, err)
	blocks := map[string]string{}
	block := regexp.MustCompile("(?s)<!-- run: ([^>]*) -->\n```sh\n(.*?)```")
	for _, m := range block.FindAllStringSubmatch(string(text), -1) {
		blocks[m[1]] = m[2]
	}
	require.Equal(t, strings.Count(string(text), "```sh"), len(blocks), "each block of commands has a name, and is run")
	return blocks
}

// run runs commands of the page, as if on a node, and returns what they print.
func (b *bed) run(t *testing.T, on *cassandratest.Node, name string, settings ...string) string {
	t.Helper()
	out, err := b.try(t, on, name, settings...)
	require.NoError(t, err, "%s: %s", name, out)
	return out
}

// try is run, which may fail.
func (b *bed) try(t *testing.T, on *cassandratest.Node, name string, settings ...string) (string, error) {
	t.Helper()
	require.Contains(t, b.page, name)
	tools := t.TempDir()
	require.NoError(t, on.WriteNodetool(tools))
	cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", b.page[name])
	cmd.Env = append(os.Environ(), "PATH="+tools+":"+b.programs.Bin+":"+os.Getenv("PATH"), "KEYSPACE="+b.keyspace,
		"CLUSTER=--cassandra "+b.cluster.Nodes[0].Address+" --local-dc dc1")
	cmd.Env = append(cmd.Env, settings...)
	begun := time.Now()
	out, err := cmd.CombinedOutput()
	t.Logf("%s on %s: %v", name, on.Address, time.Since(begun).Round(time.Second))
	return string(out), err
}

// check compares what every server lists with what the client was told.
func (b *bed) check(t *testing.T, when string) {
	t.Helper()
	b.client.pause.Lock()
	defer b.client.pause.Unlock()
	for name, s := range b.servers {
		var wrong []string
		harness.Eventually(t, "what was acknowledged, and nothing else, is listed in "+name+": "+when, func() bool {
			listed := map[string]bool{}
			for _, key := range harness.OverHTTP(t, s.S3, bucket, 1000, false) {
				listed[string(key)] = true
			}
			wrong = nil
			for key, there := range b.client.there {
				if listed[key] != there {
					wrong = append(wrong, key)
				}
			}
			return len(wrong) == 0
		})
	}
	t.Logf("%s: %d keys, %d calls failed", when, len(b.client.there), b.client.failed)
}

// client puts keys, and deletes each third again.
type client struct {
	server string

	pause  sync.Mutex
	there  map[string]bool // what was acknowledged last; of other outcomes the key is left out
	failed int
}

func (c *client) write(ctx context.Context) {
	for i := 0; ctx.Err() == nil; i++ {
		c.pause.Lock()
		key := fmt.Sprintf("key-%05d", i)
		c.call(ctx, http.MethodPut, key, true)
		if i%3 == 2 {
			c.call(ctx, http.MethodDelete, fmt.Sprintf("key-%05d", i-1), false)
		}
		c.pause.Unlock()
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (c *client) call(ctx context.Context, method, key string, there bool) {
	a, err := harness.RequestOf(ctx, method, c.server+"/"+bucket+"/"+key, "v")
	if err != nil || a.Status >= http.StatusMultipleChoices {
		c.failed++
		delete(c.there, key)
		return
	}
	c.there[key] = there
}
