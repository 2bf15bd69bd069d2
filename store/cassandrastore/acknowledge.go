package cassandrastore

import (
	"context"
	"net"
	"slices"
	"strconv"

	"github.com/gocql/gocql"

	"github.com/evenkeel/evenkeel/store"
)

// Acknowledge implements store.Acknowledger. The wait of a mover counts from its return.
//
// A read at SERIAL returns the newest decided record, and completes a swap that is only half
// committed. Then a read of the whole record at LOCAL_QUORUM through a coordinator of each
// data centre proves that the record is there: it either finds the record in a quorum or,
// with blocking read repair, writes it there before it answers. One EACH_QUORUM read would
// not do, since its repair writes are counted across data centres.
//
// While a data centre can't be reached it fails with Unavailable or Timeout: map changes
// pause, foreground operations go on.
func (s *Store) Acknowledge(ctx context.Context, t store.Table, key []byte) (store.Record, error) {
	err := store.CheckRegister(t, key)
	var r store.Record
	if err == nil {
		r, err = s.acknowledge(ctx, t, key)
	}
	return r, s.fail(ctx, err, "acknowledge", registerName{t, key})
}

func (s *Store) acknowledge(ctx context.Context, t store.Table, key []byte) (store.Record, error) {
	decided, err := s.readRegister(ctx, s.session, t, key, gocql.Consistency(gocql.Serial))
	if err != nil {
		return store.Record{}, err
	}
	replication, err := s.replication(ctx)
	if err != nil {
		return store.Record{}, err
	}
	for _, dataCentre := range sorted(copiesOf(replication)) {
		if err := s.seenIn(ctx, dataCentre, t, key, decided.Epoch); err != nil {
			return store.Record{}, store.Errorf(kind(err), "in the data centre %s: %w", dataCentre, err)
		}
	}
	return decided, nil
}

// replication reads the replication of the keyspace.
func (s *Store) replication(ctx context.Context) (map[string]string, error) {
	replication := map[string]string{}
	err := s.retry(ctx, s.o.ReadTimeout, func(ctx context.Context) error {
		return s.session.Query("SELECT replication FROM system_schema.keyspaces WHERE keyspace_name = ?", s.o.Keyspace).
			WithContext(ctx).Consistency(gocql.One).Scan(&replication)
	})
	return replication, err
}

// seenIn reads the register through a coordinator of one data centre.
func (s *Store) seenIn(ctx context.Context, dataCentre string, t store.Table, key []byte, epoch uint64) error {
	session, err := s.sessionIn(ctx, dataCentre)
	if err != nil {
		return err
	}
	r, err := s.readRegister(ctx, session, t, key, gocql.LocalQuorum)
	if err != nil && store.KindOf(err) != store.NotFound {
		return err
	}
	if r.Epoch < epoch {
		return store.Errorf(store.Unavailable, "epoch %d is not visible yet, only %d", epoch, r.Epoch)
	}
	return nil
}

// sessionIn returns a session whose coordinators are in a data centre, opened
// when first asked for.
func (s *Store) sessionIn(ctx context.Context, dataCentre string) (*gocql.Session, error) {
	if dataCentre == s.o.DataCentre {
		return s.session, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if session := s.remote[dataCentre]; session != nil {
		return session, nil
	}
	if s.closed.Load() {
		return nil, errClosed
	}
	hosts, err := s.hostsIn(ctx, dataCentre)
	if err != nil {
		return nil, err
	}
	o := s.o
	o.Hosts = hosts
	connecting, cancel := context.WithTimeout(ctx, 2*o.ConnectTimeout)
	defer cancel()
	c := local(o.cluster(s.auth), dataCentre, o.Keyspace)
	c.NumConns = 1
	session, err := connect(connecting, c)
	if err != nil {
		// Not being able to reach it is no fault of the caller's arguments.
		return nil, store.Errorf(store.Unavailable, "%w", err)
	}
	s.remote[dataCentre] = session
	return session, nil
}

// hostsIn asks a node of the local data centre for addresses in another one.
func (s *Store) hostsIn(ctx context.Context, dataCentre string) (hosts []string, err error) {
	err = s.retry(ctx, s.o.ReadTimeout, func(ctx context.Context) error {
		hosts = nil
		iter := s.session.Query("SELECT data_center, native_address, native_port FROM system.peers_v2").
			WithContext(ctx).
			Consistency(gocql.One).
			Iter()
		var name string
		var address net.IP
		var port int
		for iter.Scan(&name, &address, &port) {
			if name == dataCentre {
				hosts = append(hosts, net.JoinHostPort(address.String(), strconv.Itoa(port)))
			}
		}
		return iter.Close()
	})
	if err == nil && len(hosts) == 0 {
		err = store.Errorf(store.Unavailable, "no node of the data centre %s is known", dataCentre)
	}
	slices.Sort(hosts)
	return hosts, err
}
