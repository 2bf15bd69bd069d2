package cassandrastore

import (
	"sync"
	"sync/atomic"

	"github.com/gocql/gocql"

	"github.com/evenkeel/evenkeel/store"
)

// Store is a store that keeps its data in a Cassandra cluster. Its methods are safe for concurrent use.
//
// Besides store.Store it implements store.EachQuorum, store.PartitionLister, store.Acknowledger and store.WallClock.
type Store struct {
	rows // at the level of foreground operations

	o       Options
	levels  levels
	session *gocql.Session
	auth    gocql.Authenticator
	far     *far[*gocql.Session]
	closed  atomic.Bool
	spare   spare // the budget of second attempts
	late    [operations]late

	measures *measures

	// sitesMu guards sites, which maps the host id of each Cassandra node to the name of its data centre.
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

// EachQuorum returns the rows of the store, as an object whose reads and writes go through a quorum of each data
// centre. Moves of rows between partitions use it. While a data centre can't be reached, its calls fail, so moves
// pause. It implements store.EachQuorum.
func (s *Store) EachQuorum() store.Rows {
	return &rows{s: s, read: gocql.EachQuorum, write: gocql.EachQuorum, memory: s.memory}
}

// Close closes the store's connections to Cassandra. Later calls fail with store.ErrClosed, and calls under way may
// fail with Unavailable. Closing again does nothing.
func (s *Store) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	s.session.Close()
	s.far.close()
	return nil
}
