package cassandratest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
)

// StartTimeout is the time limit for the start of a cluster. A node usually takes ten seconds, and more on a busy
// machine.
const StartTimeout = 3 * time.Minute

// Cluster is a running Cassandra cluster. Nodes has its nodes in the order of their data centres.
type Cluster struct {
	Nodes []*Node
	// Link is the network link between the data centres. Without Options.Apart, Link is nil.
	Link *Link

	dir      string
	claim    net.Listener
	options  Options
	block    string // of loopback addresses
	used     int    // addresses of it
	lib      string
	java     string
	networks []*network // by data centre, with Options.Apart
}

// Start starts a cluster on a free block of loopback addresses (127.x.y.1 and up), and waits until its nodes answer and
// see each other. The caller stops the cluster by Close.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	ctx, cancel := context.WithTimeout(ctx, StartTimeout)
	defer cancel()
	javaPath, err := java(ctx)
	if err != nil {
		return nil, err
	}
	lib, err := Jars(ctx)
	if err != nil {
		return nil, err
	}
	if len(o.DataCentres) == 0 {
		o.DataCentres = []int{1}
	}
	total := 0
	for _, nodes := range o.DataCentres {
		total += nodes
	}
	block, claim, err := claimBlock(total + o.Spare)
	if err != nil {
		return nil, err
	}
	c := &Cluster{claim: claim, options: o, block: block, lib: lib, java: javaPath}
	if c.dir, err = os.MkdirTemp("", "evenkeel-cassandra-"); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	if o.Apart {
		if c.networks, c.Link, err = newNetworks(ctx, o.DataCentres); err != nil {
			return nil, errors.Join(err, c.Close())
		}
	}
	for dc, nodes := range o.DataCentres {
		for i := range nodes {
			n := c.node(fmt.Sprint("dc", dc+1))
			if dc < len(o.Ahead) {
				n.ahead = o.Ahead[dc]
			}
			if o.Apart {
				n.network = c.networks[dc]
				n.Address = n.network.nodes[i]
			}
			c.Nodes = append(c.Nodes, n)
		}
	}
	if err := c.start(ctx, c.Nodes[0].Address); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// node returns a new node, not yet started, with the next free address of the cluster's block.
func (c *Cluster) node(dataCentre string) *Node {
	c.used++
	address, rack := fmt.Sprintf("%s.%d", c.block, c.used), 1
	for _, n := range c.Nodes {
		if c.options.Racks && n.DataCentre == dataCentre {
			rack++
		}
	}
	return &Node{
		Address: address, DataCentre: dataCentre, rack: fmt.Sprint("r", rack), options: c.options, dir: filepath.Join(c.dir, address), java: c.java,
		lib: c.lib,
	}
}

// Newcomer describes a node that the method Add adds to a cluster.
type Newcomer struct {
	DataCentre string
	// Empty is true if the node owns its part of the ring at once, without the rows, as the nodes of a new data centre
	// do before nodetool rebuild. If Empty is false, the node fetches the rows from other nodes before it joins the
	// ring.
	Empty bool
	// Replaces is a dead node whose part of the ring the new node takes, or nil.
	Replaces *Node
}

// Add starts a further node, of which Options.Spare allows some, and waits until the node has joined and the other
// nodes see it. Add does not support Options.Apart.
func (c *Cluster) Add(ctx context.Context, as Newcomer) (*Node, error) {
	ctx, cancel := context.WithTimeout(ctx, StartTimeout)
	defer cancel()
	n := c.node(as.DataCentre)
	n.joins = !as.Empty
	if as.Replaces != nil {
		n.replaces = as.Replaces.Address
	}
	seed := slices.IndexFunc(c.Nodes, (*Node).Running)
	if err := n.writeConfig(c.Nodes[seed].Address); err != nil {
		return nil, err
	}
	if err := n.Start(ctx); err != nil {
		return nil, err
	}
	c.Nodes = append(c.Nodes, n)
	return n, c.AwaitUp(ctx)
}

// start starts the first node, which is the seed, and then all other nodes at the same time.
func (c *Cluster) start(ctx context.Context, seed string) error {
	for _, n := range c.Nodes {
		if err := n.writeConfig(seed); err != nil {
			return err
		}
	}
	if err := c.Nodes[0].Start(ctx); err != nil {
		return err
	}
	var others errgroup.Group
	for _, n := range c.Nodes[1:] {
		others.Go(func() error { return n.Start(ctx) })
	}
	if err := others.Wait(); err != nil {
		return err
	}
	return c.AwaitUp(ctx)
}

// UnseenError is the error of AwaitUp if the node By still regards the node Node as down.
type UnseenError struct {
	By, Node *Node
	Err      error
}

func (e *UnseenError) Error() string {
	return fmt.Sprintf("the node %s does not see %s: %v\n%s", e.By.Address, e.Node.Address, e.Err, e.By.Log(15))
}

func (e *UnseenError) Unwrap() error { return e.Err }

// AwaitUp waits until every running node sees all other running nodes as up. If ctx ends earlier, the error is an
// *UnseenError.
func (c *Cluster) AwaitUp(ctx context.Context) error {
	for _, n := range c.Nodes {
		for _, other := range c.Nodes {
			for n != other && n.Running() && other.Running() {
				sees, err := n.sees(ctx, other)
				if err != nil {
					return err
				}
				if sees {
					break
				}
				select {
				case <-ctx.Done():
					return &UnseenError{By: n, Node: other, Err: ctx.Err()}
				case <-time.After(50 * time.Millisecond):
				}
			}
		}
	}
	return nil
}

// Close kills all nodes, and removes their data.
func (c *Cluster) Close() error {
	var errs []error
	for _, n := range c.Nodes {
		errs = append(errs, n.Kill())
	}
	closeNetworks(c.networks, c.Link)
	if c.dir != "" {
		errs = append(errs, os.RemoveAll(c.dir))
	}
	return errors.Join(append(errs, c.claim.Close())...)
}

// Within calls f on a thread inside the network of a data centre (0 is dc1). Sockets that f opens stay in the network,
// even if other threads use them. Within needs Options.Apart.
func (c *Cluster) Within(dataCentre int, f func() error) error {
	return c.networks[dataCentre].within(f)
}

// Dial returns a dial function that connects from inside the network of a data centre (0 is dc1). Dial needs
// Options.Apart.
func (c *Cluster) Dial(dataCentre int) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (conn net.Conn, err error) {
		err = c.Within(dataCentre, func() (err error) {
			conn, err = new(net.Dialer).DialContext(ctx, network, address)
			return err
		})
		return conn, err
	}
}

// Enter returns the beginning of a command line that runs a command inside the network of a data centre (0 is dc1).
// Enter needs Options.Apart.
func (c *Cluster) Enter(dataCentre int) []string { return c.networks[dataCentre].enter() }

// Machine returns the address at which nodes in the network of a data centre (0 is dc1) reach this machine. Machine
// needs Options.Apart.
func (c *Cluster) Machine(dataCentre int) string { return c.networks[dataCentre].machine }

// New starts a cluster that ends with the test t. In -short mode, or if Options.Apart is not possible here, New skips
// the test.
func New(t testing.TB, o Options) *Cluster {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a Cassandra node: not in -short")
	}
	c, err := Start(t.Context(), o)
	if errors.Is(err, ErrNoNetworks) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			for _, n := range c.Nodes {
				t.Logf("the end of the log of %s:\n%s", n.Address, n.Log(15))
			}
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// claimBlock chooses a block of loopback addresses 127.x.y whose ports are free, and holds the block against other
// processes of this package while the listener claim is open. nodes is the number of addresses to check.
func claimBlock(nodes int) (block string, claim net.Listener, err error) {
	for range 100 {
		block = fmt.Sprintf("127.%d.%d", 1+rand.IntN(254), rand.IntN(256))
		if claim, err = net.Listen("tcp", block+".254:7000"); err != nil {
			continue
		}
		if err = portsFree(block, nodes); err == nil {
			return block, claim, nil
		}
		_ = claim.Close()
	}
	return "", nil, fmt.Errorf("no free block of loopback addresses (is 127.0.0.0/8 usable here?): %w", err)
}

func portsFree(block string, nodes int) error {
	for i := range nodes {
		for _, port := range []int{Port, 7000} {
			l, err := net.Listen("tcp", net.JoinHostPort(block+"."+strconv.Itoa(i+1), strconv.Itoa(port)))
			if err != nil {
				return err
			}
			_ = l.Close()
		}
	}
	return nil
}
