package cassandrastore

import (
	"context"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/gocql/gocql"

	"github.com/evenkeel/evenkeel/store"
)

// Servers returns the Cassandra nodes of all data centres that hold copies of the keyspace, including nodes that are
// down. The name of a server is its host id. It implements store.WallClock.
func (s *database) Servers(ctx context.Context) ([]store.Server, error) {
	servers, err := s.servers(ctx)
	return servers, s.fail(ctx, err, "list", text("the cluster's nodes"))
}

// servers does the work of Servers. It also remembers the data centre of each server, for siteOf.
func (s *database) servers(ctx context.Context) (servers []store.Server, err error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	replication, err := s.replication(ctx)
	if err != nil {
		return nil, err
	}
	copies := copiesOf(replication)
	if servers, err = s.nodes(ctx); err != nil {
		return nil, err
	}
	servers = slices.DeleteFunc(servers, func(n store.Server) bool { return copies[n.DataCentre] == 0 })
	s.sitesMu.Lock()
	defer s.sitesMu.Unlock()
	clear(s.sites)
	for _, n := range servers {
		s.sites[n.Name] = n.DataCentre
	}
	return servers, nil
}

// nodes returns the Cassandra nodes of all data centres, as they are known to the node that answers.
func (s *database) nodes(ctx context.Context) ([]store.Server, error) {
	const level = gocql.One
	r := request{op: opSchema, level: level, limit: s.o.ReadTimeout}
	return retry(ctx, s, r, func(ctx context.Context) (nodes []store.Server, err error) {
		add := func(id, address, dataCentre string) {
			nodes = append(nodes, store.Server{
				Name: id, Address: address, DataCentre: dataCentre, Near: dataCentre == s.o.DataCentre,
			})
		}
		iter := s.session.Query("SELECT host_id, data_center, native_address, native_port FROM system.peers_v2").
			WithContext(ctx).Consistency(level).Iter()
		var id gocql.UUID
		var dataCentre string
		var address net.IP
		var port int
		for iter.Scan(&id, &dataCentre, &address, &port) {
			add(id.String(), net.JoinHostPort(address.String(), strconv.Itoa(port)), dataCentre)
		}
		// A node's peers are all nodes except itself.
		if host := iter.Host(); host != nil {
			add(host.HostID(), host.HostnameAndPort(), host.DataCenter())
		}
		return nodes, iter.Close()
	})
}

// timeStatement is the CQL statement that asks a node for its time of day. It reads the time together with a row that
// always exists, from a virtual table that every role may read.
//
// So the node answers without the disk and without changing threads. A read of system.local would take three times as
// long.
const timeStatement = "SELECT to_unix_timestamp(now()) FROM system_virtual_schema.keyspaces " +
	"WHERE keyspace_name = 'system_virtual_schema'"

// Time returns the time of day by the clock of one Cassandra node, in milliseconds. server is the host id of the node.
// It implements store.WallClock.
func (s *database) Time(ctx context.Context, server string) (t time.Time, err error) {
	defer func() { err = s.fail(ctx, err, "ask for", text("the time of node "+server)) }()
	if err := s.usable(ctx); err != nil {
		return time.Time{}, err
	}
	session, err := s.sessionOf(ctx, server)
	if err != nil {
		return time.Time{}, err
	}
	begun := time.Now()
	defer func() { s.measures.ended(ctx, opTime, gocql.One, time.Since(begun), err) }()
	iter := session.Query(timeStatement).
		WithContext(onHost(ctx, server)).Consistency(gocql.One).Iter()
	var millis int64
	found := iter.Scan(&millis)
	err = iter.Close()
	if err == nil && !found {
		err = gocql.ErrNotFound
	}
	return time.UnixMilli(millis), err
}

// sessionOf returns a session (connections to Cassandra) to the data centre of a node. server is the host id of the
// node. The data centre is usually known from the last list of servers; else sessionOf reads the list again.
func (s *database) sessionOf(ctx context.Context, server string) (*gocql.Session, error) {
	dataCentre, known := s.siteOf(server)
	if !known {
		if _, err := s.servers(ctx); err != nil {
			return nil, err
		}
		if dataCentre, known = s.siteOf(server); !known {
			return nil, store.Errorf(store.Unavailable, "the cluster has no such node")
		}
	}
	return s.sessionIn(ctx, dataCentre)
}

// siteOf returns the data centre of the node with the given host id. The result known is false if the last list of
// servers lacks the node.
func (s *database) siteOf(server string) (dataCentre string, known bool) {
	s.sitesMu.Lock()
	defer s.sitesMu.Unlock()
	dataCentre, known = s.sites[server]
	return dataCentre, known
}
