package cassandrastore

import (
	"context"

	"github.com/gocql/gocql"

	"github.com/evenkeel/evenkeel/internal/storekit"
	"github.com/evenkeel/evenkeel/store"
)

// Acknowledge makes the newest record with the given key in table t known to a quorum of each data centre, and returns
// this record. After a change of a bucket's map, the next step begins only after such a call. It implements
// store.Acknowledger.
//
// While a data centre can't be reached, Acknowledge fails with Unavailable or Timeout. Changes of maps then pause, but
// reads and writes of rows go on.
func (s *database) Acknowledge(ctx context.Context, t store.Table, key []byte) (r store.Record, err error) {
	// First a read at SERIAL returns the newest decided record, after it has completed any swap that is only half
	// committed. Then the whole record is read at LOCAL_QUORUM through a coordinator of each data centre. The read
	// proves that the record is in that data centre: the read either finds the record in a quorum or, by blocking read
	// repair, writes the record to a quorum before it answers. One read at EACH_QUORUM would not do, since its repair
	// writes are counted across data centres.
	defer func() { err = s.fail(ctx, err, "acknowledge", storekit.RegisterName{Table: t, Key: key}) }()
	if err := storekit.CheckRegister(t, key); err != nil {
		return store.Record{}, err
	}
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

// replication returns the replication options of the keyspace, as Cassandra's schema tables contain them. They are the
// class and the number of copies in each data centre.
func (s *database) replication(ctx context.Context) (map[string]string, error) {
	const level = gocql.One
	r := request{op: opSchema, level: level, limit: s.o.ReadTimeout}
	return retry(ctx, s, r, func(ctx context.Context) (map[string]string, error) {
		replication := map[string]string{}
		err := s.session.Query("SELECT replication FROM system_schema.keyspaces WHERE keyspace_name = ?", s.o.Keyspace).
			WithContext(ctx).Consistency(level).Scan(&replication)
		return replication, err
	})
}

// mostLooks is the largest number of reads with which seenIn looks for a record in a data centre. The pauses between
// the reads grow from 15 to 240 ms.
const mostLooks = 6

// seenIn makes sure that a data centre knows the record with the given key in table t, at the given epoch or a later
// one. It returns nil once a read at LOCAL_QUORUM through a coordinator there has found the record. If the record is
// still not there after mostLooks reads, the error is Unavailable.
func (s *database) seenIn(ctx context.Context, dataCentre string, t store.Table, key []byte, epoch uint64) error {
	session, err := s.sessionIn(ctx, dataCentre)
	if err != nil {
		return err
	}
	// A swap is decided by a quorum of all replicas, which may be a quorum without any replica of this data centre: the
	// commit is then still on its way there, or was lost. A read at SERIAL brings the newest commit to each replica
	// that takes part in it. Through a coordinator of this data centre, its replicas are the first to take part.
	for n := 1; ; n++ {
		r, err := s.readRegister(ctx, session, t, key, gocql.LocalQuorum)
		switch {
		case err != nil && store.KindOf(err) != store.NotFound:
			return err
		case r.Epoch >= epoch:
			return nil
		case n == mostLooks:
			return store.Errorf(store.Unavailable, "epoch %d is not visible yet, only %d", epoch, r.Epoch)
		}
		if err := pauses.Sleep(ctx, n); err != nil {
			return err
		}
		if _, err := s.readRegister(ctx, session, t, key, gocql.Consistency(gocql.Serial)); err != nil {
			return err
		}
	}
}

// sessionIn returns a session (connections to Cassandra) whose requests are coordinated by nodes in the given data
// centre. For another data centre than the local one sessionIn may have to open the session first.
func (s *database) sessionIn(ctx context.Context, dataCentre string) (*gocql.Session, error) {
	if dataCentre == s.o.DataCentre {
		return s.session, nil
	}
	return s.far.in(ctx, dataCentre)
}
