package cassandrastore

import (
	"context"

	"github.com/gocql/gocql"

	"github.com/evenkeel/evenkeel/store"
)

// Acknowledge implements store.Acknowledger. A mover waits from its return.
//
// A read at SERIAL returns the newest decided record, and completes a swap that is only half
// committed. Then a read of the whole record at LOCAL_QUORUM through a coordinator of each
// data centre proves that the record is there: it either finds the record in a quorum or,
// with blocking read repair, writes it there before it answers. One EACH_QUORUM read would
// not do, since its repair writes are counted across data centres.
//
// While a data centre can't be reached it fails with Unavailable or Timeout: map changes
// pause, foreground operations go on.
func (s *Store) Acknowledge(ctx context.Context, t store.Table, key []byte) (r store.Record, err error) {
	defer func() { err = s.fail(ctx, err, "acknowledge", store.RegisterName{Table: t, Key: key}) }()
	if err := store.CheckRegister(t, key); err != nil {
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

// replication reads the replication of the keyspace.
func (s *Store) replication(ctx context.Context) (map[string]string, error) {
	const level = gocql.One
	r := request{op: opSchema, level: level, limit: s.o.ReadTimeout}
	return retry(ctx, s, r, func(ctx context.Context) (map[string]string, error) {
		replication := map[string]string{}
		err := s.session.Query("SELECT replication FROM system_schema.keyspaces WHERE keyspace_name = ?", s.o.Keyspace).
			WithContext(ctx).Consistency(level).Scan(&replication)
		return replication, err
	})
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

// sessionIn returns a session whose coordinators are in a data centre.
func (s *Store) sessionIn(ctx context.Context, dataCentre string) (*gocql.Session, error) {
	if dataCentre == s.o.DataCentre {
		return s.session, nil
	}
	return s.far.in(ctx, dataCentre)
}
