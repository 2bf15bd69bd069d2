package cassandrastore

import (
	"sync"
	"sync/atomic"

	"github.com/gocql/gocql"

	"github.com/evenkeel/evenkeel/store"
)

// Store is a store on Cassandra. Its methods are safe for concurrent use.
//
// It also implements store.EachQuorum, store.PartitionLister, store.Acknowledger and
// store.WallClock.
type Store struct {
	rows // at the foreground's level

	o       Options
	levels  levels
	session *gocql.Session
	auth    gocql.Authenticator
	far     *far[*gocql.Session]
	closed  atomic.Bool
	spare   spare // for second attempts
	late    [operations]late

	measures *measures

	// sites is the data centre of each node, by host id.
	sitesMu sync.Mutex
	sites   map[string]string
}

var (
	_ store.Store           = (*Store)(nil)
	_ store.EachQuorum      = (*Store)(nil)
	_ store.PartitionLister = (*Store)(nil)
	_ store.Acknowledger    = (*Store)(nil)
	_ store.WallClock       = (*Store)(nil)
)

// EachQuorum implements store.EachQuorum. It fails while a data centre can't be reached; movers
// pause then.
func (s *Store) EachQuorum() store.Rows {
	return &rows{s: s, read: gocql.EachQuorum, write: gocql.EachQuorum, memory: s.memory}
}

// Close closes the store's connections.
func (s *Store) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	s.session.Close()
	s.far.close()
	return nil
}
