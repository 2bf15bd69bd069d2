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

// reconnectEvery is how often the driver tries a host again that was down.
const reconnectEvery = time.Second

// cluster is the driver's configuration, without a keyspace and for hosts of
// every data centre.
func (o Options) cluster(auth gocql.Authenticator) *gocql.ClusterConfig {
	c := gocql.NewCluster(o.Hosts...)
	c.ProtoVersion = 4 // the driver does not understand 5
	c.Timeout = o.longest()
	c.ConnectTimeout = o.ConnectTimeout
	c.WriteTimeout = c.Timeout
	// The default of 200 µs costs a millisecond per request and gains nothing.
	c.WriteCoalesceWaitTime = 0
	c.RetryPolicy = nil
	// Each statement has its timestamp; one without must not silently get the driver's.
	c.DefaultTimestamp = false
	// Paging is by key and LIMIT: a driver's page would end before the LIMIT.
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

// longest is the longest limit of an attempt. It has a pointer receiver as it is called in each
// attempt: a copy of all options would make the stack grow.
func (o *Options) longest() time.Duration { return max(o.ReadTimeout, o.WriteTimeout, o.SwapTimeout) }

// nearConnections and farConnections are the numbers of connections to each node of the own data centre, and to each
// node of another data centre.
const nearConnections, farConnections = 2, 1

// session opens a session in one data centre and a keyspace. The host filter excludes hosts of other data centres, so
// that LOCAL_QUORUM is always a quorum of this one.
func (o Options) session(
	ctx context.Context, m *measures, auth gocql.Authenticator, dataCentre, keyspace string, connections int,
) (*gocql.Session, error) {
	c, nodes := o.cluster(auth), newChosen(keyspace, dataCentre, o.Log)
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

// mapped is a dialer that translates addresses by Options.Addresses. The driver has its own translator of addresses,
// but with that translator it does not notice when a node is down whose address was translated.
type mapped struct {
	gocql.Dialer
	addresses map[string]string
}

// DialContext implements gocql.Dialer.
func (d mapped) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	return d.Dialer.DialContext(ctx, network, cmp.Or(d.addresses[address], address))
}

// driverLog logs the driver's messages, which are about connections.
type driverLog struct{ log *slog.Logger }

func (l driverLog) Print(v ...any) {
	l.log.Debug("driver", "says", strings.TrimSpace(fmt.Sprint(v...)))
}
func (l driverLog) Printf(format string, v ...any) { l.Print(fmt.Sprintf(format, v...)) }
func (l driverLog) Println(v ...any)               { l.Print(fmt.Sprintln(v...)) }
