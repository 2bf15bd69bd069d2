package cassandrastore

import (
	"fmt"
	"log/slog"
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
	c.NumConns = 2
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
	if o.TLS != nil {
		c.SslOpts = &gocql.SslOptions{Config: o.TLS, EnableHostVerification: !o.TLS.InsecureSkipVerify}
	}
	return c
}

// longest is the longest limit of an attempt. It has a pointer receiver as it is called in each
// attempt: a copy of all options would make the stack grow.
func (o *Options) longest() time.Duration { return max(o.ReadTimeout, o.WriteTimeout, o.SwapTimeout) }

// local is the driver's configuration for one data centre and a keyspace. The host filter excludes hosts of other data
// centres, so that LOCAL_QUORUM is always a quorum of this one.
func (o Options) local(auth gocql.Authenticator, dataCentre, keyspace string) *gocql.ClusterConfig {
	c := o.cluster(auth)
	c.Keyspace = keyspace
	c.HostFilter = gocql.DataCentreHostFilter(dataCentre)
	c.PoolConfig.HostSelectionPolicy = newChosen(keyspace, dataCentre, o.Log)
	return c
}

// driverLog logs the driver's messages, which are about connections.
type driverLog struct{ log *slog.Logger }

func (l driverLog) Print(v ...any) {
	l.log.Debug("driver", "says", strings.TrimSpace(fmt.Sprint(v...)))
}
func (l driverLog) Printf(format string, v ...any) { l.Print(fmt.Sprintf(format, v...)) }
func (l driverLog) Println(v ...any)               { l.Print(fmt.Sprintln(v...)) }
