package cassandrastore

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gocql/gocql"
)

// chosen is the policy by which a session selects the Cassandra node for a query:
//   - A query whose context names a node goes to that node (onHost).
//   - Any other query goes to one of the nodes that have the row. The driver's token-aware policy selects them, and
//     nodes that hang come last (order).
//   - While there is no token-aware policy (see renew), nodes are taken in turn.
type chosen struct {
	keyspace, dataCentre, rack string
	log                        *slog.Logger
	turns                      gocql.HostSelectionPolicy // takes the nodes of the data centre in turn, the rack first
	aware                      atomic.Pointer[gocql.HostSelectionPolicy]

	mu          sync.Mutex // held while aware is made; guards the fields up to alone
	session     *gocql.Session
	partitioner string
	unaware     bool // the log says that nodes are taken in turn
	alone       bool // the log says that no node is in the rack

	nodesMu sync.RWMutex
	nodes   map[string]*node // by id; changed under mu as well

	connections atomic.Int64 // the number of open connections

	firstNode
}

// newChosen returns the policy by which a session for a keyspace selects a node of the given data centre for each
// request. If rack is not empty, nodes of that rack are preferred.
func newChosen(keyspace, dataCentre, rack string, log *slog.Logger) *chosen {
	turns := gocql.DCAwareRoundRobinPolicy(dataCentre)
	if rack != "" {
		turns = gocql.RackAwareRoundRobinPolicy(dataCentre, rack)
	}
	return &chosen{
		keyspace: keyspace, dataCentre: dataCentre, rack: rack, log: log, turns: turns,
		nodes: map[string]*node{}, firstNode: newFirstNode(),
	}
}

// firstNode makes a session of the Cassandra driver usable as soon as one node is connected. Without firstNode the
// driver waits until each node is connected or has been given up. A single node that does not answer would then delay
// the start of a program by 18 s (four attempts).
type firstNode struct {
	once *sync.Once
	up   chan struct{} // closed when a node is connected
}

func newFirstNode() firstNode { return firstNode{&sync.Once{}, make(chan struct{})} }

// isUp records that a node is connected.
func (f firstNode) isUp() { f.once.Do(func() { close(f.up) }) }

// Ready reports whether a node is connected, so that the session may be used. If no node is connected yet, Ready waits
// for up to 100 ms. The driver calls it when the driver is done with a node. It implements gocql.ReadyPolicy.
func (f firstNode) Ready() bool {
	// The driver reports a connected node (HostUp) from another goroutine, perhaps a little later than it calls Ready.
	// gocql.SingleHostReadyPolicy does not wait: if the only node in reach is connected first, its session opens only
	// after the other nodes have been given up.
	const little = 100 * time.Millisecond
	select {
	case <-f.up:
		return true
	case <-time.After(little):
		return false
	}
}

// inTurn is a policy by which a session of the Cassandra driver sends its requests to the nodes in turn. A session with
// this policy is open as soon as one node is connected.
type inTurn struct {
	gocql.HostSelectionPolicy
	firstNode
}

// HostUp records that the node h is connected, so that the session may be used. It implements gocql.HostStateNotifier.
func (p *inTurn) HostUp(h *gocql.HostInfo) {
	p.HostSelectionPolicy.HostUp(h)
	p.isUp()
}

// renew computes anew which nodes have which rows, after a change of the nodes or of their copies. It replaces the
// token-aware policy, which is the driver's policy that sends a request to a node that has the row. If the policy can't
// be made, requests go to the nodes in turn. The caller holds c.mu.
func (c *chosen) renew() {
	// The driver computes which nodes have which rows. In version 1.7.0 this computation panics if a keyspace has
	// copies, but none in the data centre of the session. The driver tells its policy of changes from goroutines of its
	// own, so the panic would end the process. Two measures prevent that. First, chosen ignores changes of other
	// keyspaces, since the session reads nothing from them. Second, renew makes a new token-aware policy after each
	// change, and catches the panic. A policy in which the driver has panicked can't be used any more: it may still
	// hold its lock.
	if c.session == nil || c.partitioner == "" || len(c.nodes) == 0 {
		c.aware.Store(nil)
		return
	}
	hosts, inRack := make([]*gocql.HostInfo, 0, len(c.nodes)), false
	for _, n := range c.nodes {
		hosts = append(hosts, n.HostInfo)
		inRack = inRack || n.Rack() == c.rack
	}
	if c.rack != "" && !inRack && !c.alone {
		c.log.Warn("Cassandra: no node is in the rack of this process, so that no node is preferred (nodetool status shows "+
			"racks)", "rack", c.rack, "data centre", c.dataCentre)
	}
	c.alone = c.rack != "" && !inRack
	aware, err := tokenAware(c.session, c.partitioner, hosts, c.turns)
	if err != nil {
		c.aware.Store(nil)
		if !c.unaware {
			c.log.Warn("Cassandra: where rows lie is not known, so that nodes are asked in turn: does the keyspace have "+
				"copies in this data centre?", "keyspace", c.keyspace, "data centre", c.dataCentre, "err", err)
		}
		c.unaware = true
		return
	}
	c.aware.Store(&aware)
	if c.unaware {
		c.log.Info("Cassandra: where rows lie is known again", "keyspace", c.keyspace, "data centre", c.dataCentre)
	}
	c.unaware = false
}

// tokenAware returns the driver's policy that sends a request to a node that has the row. hosts are the nodes to choose
// from, and turns is the policy for requests without a known row. The driver may panic while it computes which nodes
// have which rows; tokenAware returns the panic as an error.
func tokenAware(
	session *gocql.Session, partitioner string, hosts []*gocql.HostInfo, turns gocql.HostSelectionPolicy,
) (aware gocql.HostSelectionPolicy, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the driver: %v", p)
		}
	}()
	// The fallback goes to replicas in other racks: the policy knows no nodes of other data centres.
	aware = gocql.TokenAwareHostPolicy(turns, gocql.ShuffleReplicas(), gocql.NonLocalReplicasFallback())
	aware.Init(session)
	aware.(interface{ AddHosts([]*gocql.HostInfo) }).AddHosts(hosts)
	aware.SetPartitioner(partitioner)
	return aware, nil
}

// Init stores the session for which the policy selects nodes. It implements gocql.HostSelectionPolicy.
func (c *chosen) Init(s *gocql.Session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.session = s
}

// IsLocal reports whether the node h is in the data centre of the session. It implements gocql.HostSelectionPolicy.
func (c *chosen) IsLocal(h *gocql.HostInfo) bool { return c.turns.IsLocal(h) }

// KeyspaceChanged computes anew which nodes have which rows, if the changed keyspace is that of the session. It
// implements gocql.HostSelectionPolicy.
func (c *chosen) KeyspaceChanged(e gocql.KeyspaceUpdateEvent) {
	if e.Keyspace == c.keyspace {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.renew()
	}
}

// SetPartitioner stores the name of the cluster's hash function of partition keys, and computes anew which nodes have
// which rows if the name is new. It implements gocql.HostSelectionPolicy.
func (c *chosen) SetPartitioner(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.partitioner != name {
		c.partitioner = name
		c.renew()
	}
}

// AddHosts adds nodes to which requests may go. The driver calls AddHosts with the nodes that it knows at first, and
// AddHost with each later node.
func (c *chosen) AddHosts(hosts []*gocql.HostInfo) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nodesMu.Lock()
	for _, h := range hosts {
		c.turns.AddHost(h)
		c.nodes[h.HostID()] = &node{HostInfo: h, log: c.log}
	}
	c.nodesMu.Unlock()
	c.renew()
}

// AddHost adds a node to which requests may go. It implements gocql.HostStateNotifier.
func (c *chosen) AddHost(h *gocql.HostInfo) { c.AddHosts([]*gocql.HostInfo{h}) }

// RemoveHost removes a node, which has left the cluster, from the nodes to which requests may go. It implements
// gocql.HostStateNotifier.
func (c *chosen) RemoveHost(h *gocql.HostInfo) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nodesMu.Lock()
	c.turns.RemoveHost(h)
	delete(c.nodes, h.HostID())
	c.nodesMu.Unlock()
	c.renew()
}

// HostUp records that the node h is connected, and logs it if the node could not be reached before. It implements
// gocql.HostStateNotifier.
func (c *chosen) HostUp(h *gocql.HostInfo) {
	c.turns.HostUp(h)
	c.isUp()
	if n := c.node(h.HostID()); n != nil && n.lost.Swap(false) {
		n.log.Info("Cassandra: a node can be reached again", n.who()...)
	}
}

// HostDown records that the node h can't be reached, and logs it. It implements gocql.HostStateNotifier.
func (c *chosen) HostDown(h *gocql.HostInfo) {
	c.turns.HostDown(h)
	if n := c.node(h.HostID()); n != nil && !n.lost.Swap(true) {
		n.log.Warn("Cassandra: a node can't be reached, or is down by what other nodes say", n.who()...)
	}
}

// These are the states of a Cassandra node in the metrics: connected, connected but not answering, and not reachable.
const nodeUp, nodeSilent, nodeDown = "up", "silent", "down"

// states returns the state of each node of the session (up, silent or down) for the metrics, in no particular order.
func (c *chosen) states() (states []string) {
	c.nodesMu.RLock()
	defer c.nodesMu.RUnlock()
	now := time.Now()
	for _, n := range c.nodes {
		switch {
		case !n.IsUp():
			states = append(states, nodeDown)
		case n.isSilent(now):
			states = append(states, nodeSilent)
		default:
			states = append(states, nodeUp)
		}
	}
	return states
}

// hostKey is the key under which a context has the host id of the node to which its queries must go (see onHost).
type hostKey struct{}

// onHost returns a context for queries that must go to one Cassandra node. id is the host id of the node.
func onHost(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, hostKey{}, id)
}

// node returns the Cassandra node with the given host id, or nil if the session knows no such node.
func (c *chosen) node(id string) *node {
	c.nodesMu.RLock()
	defer c.nodesMu.RUnlock()
	return c.nodes[id]
}

// Pick returns an iterator over the nodes to which the query q may be sent, the best node first. It implements
// gocql.HostSelectionPolicy.
func (c *chosen) Pick(q gocql.ExecutableQuery) gocql.NextHost {
	ctx := q.Context()
	if id, named := ctx.Value(hostKey{}).(string); named {
		n := c.node(id)
		return func() (next gocql.SelectedHost) {
			if n != nil && n.IsUp() {
				next, n = oneHost{n.HostInfo}, nil
			}
			return next
		}
	}
	a, _ := ctx.Value(askingKey{}).(*asking)
	if aware := c.aware.Load(); aware != nil {
		return c.order(a, (*aware).Pick(q))
	}
	return c.order(a, c.turns.Pick(q))
}

// oneHost is a Cassandra node that was selected for a query. It implements gocql.SelectedHost.
type oneHost struct{ *gocql.HostInfo }

// Info returns the description of the selected node. It implements gocql.SelectedHost.
func (h oneHost) Info() *gocql.HostInfo { return h.HostInfo }

// Mark does nothing: the policy learns of answers and errors elsewhere (asking.ended). It implements
// gocql.SelectedHost.
func (oneHost) Mark(error) {}
