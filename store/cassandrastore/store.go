package cassandrastore

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/evenkeel/evenkeel/store"
)

// Store is a store that keeps its data in a Cassandra cluster. Open opens it. A Store is safe for concurrent use.
type Store interface {
	store.Store
	store.EachQuorum
	store.PartitionLister
	store.Acknowledger
	store.WallClock
	// KeepSize stores the measured size of a partition (the counts of its rows and bytes). Of several sizes the one
	// that was measured last counts.
	KeepSize(ctx context.Context, size store.PartitionSize) error
	// KeptSize returns the newest size that KeepSize has stored for the partition p. The field Encoded is nil if there
	// is none.
	KeptSize(ctx context.Context, p store.Partition) (store.PartitionSize, error)
	// ForgetSize deletes the stored size of the partition p, which no longer exists.
	ForgetSize(ctx context.Context, p store.Partition) error
	// Metrics returns the metrics of the store, such as the times and errors of its requests to Cassandra, as a
	// collector for Prometheus.
	Metrics() prometheus.Collector
	// WatchRepairs keeps the metrics about repairs of the rows up to date until ctx ends. It reads Cassandra's records
	// of repairs once an hour. Each read asks a quorum for the repairs of a month. So only programs that look after a
	// keyspace should call WatchRepairs.
	WatchRepairs(ctx context.Context)
}

// database is an open store. It implements Store.
type database struct {
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

// EachQuorum returns the rows of the store, as an object whose reads and writes go through a quorum of each data
// centre. Moves of rows between partitions use it. While a data centre can't be reached, its calls fail, so moves
// pause. It implements store.EachQuorum.
func (s *database) EachQuorum() store.Rows {
	return &rows{s: s, read: gocql.EachQuorum, write: gocql.EachQuorum, memory: s.memory}
}

// Close closes the store's connections to Cassandra. Later calls fail with store.ErrClosed, and calls under way may
// fail with Unavailable. Closing again does nothing.
func (s *database) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	s.session.Close()
	s.far.close()
	return nil
}
