package cassandrastore

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"

	"github.com/gocql/gocql"
)

// reconnectEvery is the pause between the driver's attempts to reach a host that is down.
const reconnectEvery = time.Second

// cluster returns the driver's configuration for the options o. auth is the login, or nil. The configuration names no
// keyspace, and allows hosts of every data centre.
func (o Options) cluster(auth gocql.Authenticator) *gocql.ClusterConfig {
	c := gocql.NewCluster(o.Hosts...)
	c.ProtoVersion = 4 // the driver does not understand 5
	c.Timeout = o.longest()
	c.ConnectTimeout = o.ConnectTimeout
	c.WriteTimeout = c.Timeout
	// The default of 200 µs costs a millisecond per request and gains nothing.
	c.WriteCoalesceWaitTime = 0
	c.RetryPolicy = nil
	// Each statement has its own timestamp. A statement without one must not silently get the driver's timestamp.
	c.DefaultTimestamp = false
	// Pages are read by key and LIMIT: a page of the driver would end before the LIMIT.
	c.PageSize = 0
	c.SerialConsistency = gocql.Serial
	c.Consistency = gocql.LocalQuorum
	c.ReconnectInterval = reconnectEvery
	c.Authenticator = auth
	c.Logger = driverLog{o.Log}
	c.Dialer = mapped{&net.Dialer{Timeout: c.ConnectTimeout, KeepAlive: c.SocketKeepalive}, o.Addresses}
	if o.TLS != nil {
		c.SslOpts = &gocql.SslOptions{Config: o.TLS, EnableHostVerification: !o.TLS.InsecureSkipVerify}
	}
	return c
}

// longest returns the longest time limit that an attempt of any request may have. It has a pointer receiver because
// each attempt calls it: a copy of all options would make the stack grow.
func (o *Options) longest() time.Duration { return max(o.ReadTimeout, o.WriteTimeout, o.SwapTimeout) }

// nearConnections is the number of connections to each node of the local data centre. farConnections is that to each
// node of another data centre.
const nearConnections, farConnections = 2, 1

// session connects to a keyspace through the nodes of one data centre. Hosts of other data centres are excluded, so
// that LOCAL_QUORUM is always a quorum of this data centre. connections is the number of connections to each node. The
// nodes and connections are added to the metrics m, which may be nil.
func (o Options) session(
	ctx context.Context, m *measures, auth gocql.Authenticator, dataCentre, keyspace string, connections int,
) (*gocql.Session, error) {
	rack := ""
	if dataCentre == o.DataCentre {
		rack = o.Rack
	}
	c, nodes := o.cluster(auth), newChosen(keyspace, dataCentre, rack, o.Log)
	c.Keyspace = keyspace
	c.NumConns = connections
	c.HostFilter = gocql.DataCentreHostFilter(dataCentre)
	c.PoolConfig.HostSelectionPolicy = nodes
	c.Dialer = counting{c.Dialer, &nodes.connections}
	session, err := connect(ctx, c)
	if err == nil {
		m.watch(nodes)
	}
	return session, err
}

// mapped is a dialer of network connections to Cassandra nodes. It replaces the address of a node by the address at
// which the node can be reached (Options.Addresses).
//
// The driver has its own translator of addresses. But with that translator the driver does not notice that a node is
// down whose address was translated.
type mapped struct {
	gocql.Dialer
	addresses map[string]string
}

// DialContext opens a network connection to a Cassandra node, at its replaced address if it has one. It implements
// gocql.Dialer.
func (d mapped) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	return d.Dialer.DialContext(ctx, network, cmp.Or(d.addresses[address], address))
}

// driverLog writes the driver's messages, which are about connections, to the log at the debug level.
type driverLog struct{ log *slog.Logger }

func (l driverLog) Print(v ...any) {
	l.log.Debug("driver", "says", strings.TrimSpace(fmt.Sprint(v...)))
}
func (l driverLog) Printf(format string, v ...any) { l.Print(fmt.Sprintf(format, v...)) }
func (l driverLog) Println(v ...any)               { l.Print(fmt.Sprintln(v...)) }
