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

// chosen is the policy by which a session selects the node of a query: the one that the query's context names (onHost),
// otherwise one of those that have the row, in the driver's token-aware way, but not one that hangs (order).
//
// The driver computes where rows lie, and in version 1.7.0 panics where a keyspace has copies, but none in the data
// centre of the session. It tells its policy of changes from goroutines of its own, so that such a panic ends the
// process. Two things prevent that: changes of other keyspaces are ignored, as nothing is read there, and a token-aware
// policy is made anew after each change, under a guard. (One in which the driver has panicked can't be used further: it
// may have kept its lock.) While there is none, nodes are taken in turn.
type chosen struct {
	keyspace, dataCentre string
	log                  *slog.Logger
	turns                gocql.HostSelectionPolicy // takes the data centre's nodes in turn
	aware                atomic.Pointer[gocql.HostSelectionPolicy]

	mu          sync.Mutex // held while aware is made; guards what follows
	session     *gocql.Session
	partitioner string
	unaware     bool // the log says that nodes are taken in turn

	nodesMu sync.RWMutex
	nodes   map[string]*node // by id; changed under mu as well

	connections atomic.Int64 // that are open

	firstNode
}

func newChosen(keyspace, dataCentre string, log *slog.Logger) *chosen {
	return &chosen{
		keyspace: keyspace, dataCentre: dataCentre, log: log, turns: gocql.DCAwareRoundRobinPolicy(dataCentre),
		nodes: map[string]*node{}, firstNode: newFirstNode(),
	}
}

// firstNode is the part of a policy that tells the driver that a session is open once one node is connected. Otherwise a
// session is open only when each node is connected or has been given up, and a single node that does not answer holds
// the start of a program up for 18 s: four attempts.
type firstNode struct {
	once *sync.Once
	up   chan struct{} // closed when a node is connected
}

func newFirstNode() firstNode { return firstNode{&sync.Once{}, make(chan struct{})} }

func (f firstNode) isUp() { f.once.Do(func() { close(f.up) }) }

// Ready implements gocql.ReadyPolicy. The driver asks when it is done with a node, and tells of one that is connected
// (HostUp) from another goroutine, which may come a little later. gocql.SingleHostReadyPolicy does not wait for that: if
// the only node in reach is connected first, the session is not open before the others are given up.
func (f firstNode) Ready() bool {
	const little = 100 * time.Millisecond
	select {
	case <-f.up:
		return true
	case <-time.After(little):
		return false
	}
}

// inTurn is a policy by which a session is open once one node is connected.
type inTurn struct {
	gocql.HostSelectionPolicy
	firstNode
}

// HostUp implements gocql.HostStateNotifier.
func (p *inTurn) HostUp(h *gocql.HostInfo) {
	p.HostSelectionPolicy.HostUp(h)
	p.isUp()
}

// renew makes the token-aware policy for the present nodes and copies. mu is held.
func (c *chosen) renew() {
	if c.session == nil || c.partitioner == "" || len(c.nodes) == 0 {
		c.aware.Store(nil)
		return
	}
	hosts := make([]*gocql.HostInfo, 0, len(c.nodes))
	for _, n := range c.nodes {
		hosts = append(hosts, n.HostInfo)
	}
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

// tokenAware makes the driver's policy, or returns its panic as an error.
func tokenAware(
	session *gocql.Session, partitioner string, hosts []*gocql.HostInfo, turns gocql.HostSelectionPolicy,
) (aware gocql.HostSelectionPolicy, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the driver: %v", p)
		}
	}()
	aware = gocql.TokenAwareHostPolicy(turns, gocql.ShuffleReplicas())
	aware.Init(session)
	aware.(interface{ AddHosts([]*gocql.HostInfo) }).AddHosts(hosts)
	aware.SetPartitioner(partitioner)
	return aware, nil
}

// Init implements gocql.HostSelectionPolicy.
func (c *chosen) Init(s *gocql.Session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.session = s
}

// IsLocal implements gocql.HostSelectionPolicy.
func (c *chosen) IsLocal(h *gocql.HostInfo) bool { return c.turns.IsLocal(h) }

// KeyspaceChanged implements gocql.HostSelectionPolicy.
func (c *chosen) KeyspaceChanged(e gocql.KeyspaceUpdateEvent) {
	if e.Keyspace == c.keyspace {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.renew()
	}
}

// SetPartitioner implements gocql.HostSelectionPolicy.
func (c *chosen) SetPartitioner(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.partitioner != name {
		c.partitioner = name
		c.renew()
	}
}

// AddHosts is what the driver calls instead of AddHost for the nodes that it knows first.
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

// AddHost implements gocql.HostStateNotifier.
func (c *chosen) AddHost(h *gocql.HostInfo) { c.AddHosts([]*gocql.HostInfo{h}) }

// RemoveHost implements gocql.HostStateNotifier.
func (c *chosen) RemoveHost(h *gocql.HostInfo) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nodesMu.Lock()
	c.turns.RemoveHost(h)
	delete(c.nodes, h.HostID())
	c.nodesMu.Unlock()
	c.renew()
}

// HostUp implements gocql.HostStateNotifier.
func (c *chosen) HostUp(h *gocql.HostInfo) {
	c.turns.HostUp(h)
	c.isUp()
	if n := c.node(h.HostID()); n != nil && n.lost.Swap(false) {
		n.log.Info("Cassandra: a node can be reached again", n.who()...)
	}
}

// HostDown implements gocql.HostStateNotifier.
func (c *chosen) HostDown(h *gocql.HostInfo) {
	c.turns.HostDown(h)
	if n := c.node(h.HostID()); n != nil && !n.lost.Swap(true) {
		n.log.Warn("Cassandra: a node can't be reached, or is down by what other nodes say", n.who()...)
	}
}

// The states of a node.
const nodeUp, nodeSilent, nodeDown = "up", "silent", "down"

// states returns the state of each node.
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

type hostKey struct{}

// onHost returns a context whose queries go to one host.
func onHost(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, hostKey{}, id)
}

// node returns the node with an id, nil if there is none.
func (c *chosen) node(id string) *node {
	c.nodesMu.RLock()
	defer c.nodesMu.RUnlock()
	return c.nodes[id]
}

// Pick implements gocql.HostSelectionPolicy.
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

// oneHost implements gocql.SelectedHost.
type oneHost struct{ *gocql.HostInfo }

// Info implements gocql.SelectedHost.
func (h oneHost) Info() *gocql.HostInfo { return h.HostInfo }

// Mark implements gocql.SelectedHost.
func (oneHost) Mark(error) {}
