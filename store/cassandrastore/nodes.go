package cassandrastore

import (
	"context"

	"github.com/gocql/gocql"

	"github.com/evenkeel/evenkeel/internal/storekit"
	"github.com/evenkeel/evenkeel/store"
)

// nodeWritten and nodeDeleted are the timestamps of the write (1) and the deletion (2) of a node of a bucket's map.
// With fixed timestamps, a write that arrives after the deletion stays hidden, whatever the clocks show. A node never
// changes, and its id is never reused. nodeShards is the number of Cassandra partitions over which the nodes of a
// bucket's map are spread.
const (
	nodeWritten = 1
	nodeDeleted = 2
	nodeShards  = 16
)

// shard returns the number of the Cassandra partition, 0 to 15, in which a node of a bucket's map is stored: the upper
// half of the first byte of the node's id. So the partitions have the order of the ids.
func shard(id store.NodeID) int8 { return int8(id[0] >> 4) }

// WriteNode writes one node of the map of bucket b: the bytes blob under the given id. It writes through a quorum of
// each data centre, so that each data centre can read the node. While a data centre can't be reached, it fails, and
// maps that have nodes can't change.
func (s *database) WriteNode(ctx context.Context, b store.BucketID, id store.NodeID, blob []byte) error {
	err := storekit.CheckNode(blob)
	if err == nil {
		err = s.exec(ctx, opWriteNode, gocql.EachQuorum,
			"INSERT INTO nodes (bucket, shard, node, blob) VALUES (?, ?, ?, ?) USING TIMESTAMP ?",
			gocql.UUID(b), shard(id), gocql.UUID(id), blob, int64(nodeWritten))
	}
	return s.fail(ctx, err, "write node", storekit.NodeName{Bucket: b, ID: id})
}

// Node returns the bytes of the node with the given id of the map of bucket b. It reads through a quorum of the local
// data centre, or at the level Consistency.ReadNodes if that is set. Node fails with NotFound if the store has no such
// node.
func (s *database) Node(ctx context.Context, b store.BucketID, id store.NodeID) ([]byte, error) {
	level := s.levels.readNodes
	r := request{op: opReadNode, level: level, limit: s.o.ReadTimeout}
	blob, err := retry(ctx, s, r, func(ctx context.Context) (blob view, err error) {
		iter := s.session.Query("SELECT blob FROM nodes WHERE bucket = ? AND shard = ? AND node = ?",
			gocql.UUID(b), shard(id), gocql.UUID(id)).
			WithContext(ctx).Consistency(level).Iter()
		iter.Scan(&blob)
		return blob, iter.Close()
	})
	if err == nil && blob == nil {
		err = store.NotFound
	}
	return blob, s.fail(ctx, err, "node", storekit.NodeName{Bucket: b, ID: id})
}

// DeleteNode deletes the node with the given id of the map of bucket b. It needs only the consistency level of ordinary
// writes: if a replica misses the deletion, the node that the replica keeps is only garbage.
func (s *database) DeleteNode(ctx context.Context, b store.BucketID, id store.NodeID) error {
	err := s.exec(ctx, opWriteNode, s.levels.writeRows,
		"DELETE FROM nodes USING TIMESTAMP ? WHERE bucket = ? AND shard = ? AND node = ?",
		int64(nodeDeleted), gocql.UUID(b), shard(id), gocql.UUID(id))
	return s.fail(ctx, err, "delete node", storekit.NodeName{Bucket: b, ID: id})
}

// ScanNodes returns a page of at most limit ids of the nodes of the map of bucket b, which follow the id after. It
// reads the Cassandra partitions with the nodes one after the other. Within a partition the ids come in Cassandra's
// order of UUIDs.
func (s *database) ScanNodes(
	ctx context.Context, b store.BucketID, after store.NodeID, limit int,
) (ids []store.NodeID, err error) {
	err = storekit.CheckLimit(limit)
	for at := shard(after); err == nil && at < nodeShards && len(ids) < limit; at++ {
		var some []store.NodeID
		some, err = s.scanShard(ctx, b, at, after, limit-len(ids))
		ids = append(ids, some...)
		after = store.NodeID{} // the zero id is below every UUID: the next shard is read from its beginning
	}
	return ids, s.fail(ctx, err, "scan nodes", b)
}

// scanShard returns at most limit ids of nodes in one Cassandra partition of a bucket's map: those above the id after.
func (s *database) scanShard(
	ctx context.Context, b store.BucketID, at int8, after store.NodeID, limit int,
) ([]store.NodeID, error) {
	level := s.levels.readNodes
	r := request{op: opScan, level: level, limit: s.o.ReadTimeout}
	return retry(ctx, s, r, func(ctx context.Context) (ids []store.NodeID, err error) {
		iter := s.session.Query("SELECT node FROM nodes WHERE bucket = ? AND shard = ? AND node > ? LIMIT ?",
			gocql.UUID(b), at, gocql.UUID(after), limit).
			WithContext(ctx).Consistency(level).Iter()
		var id gocql.UUID
		for iter.Scan(&id) {
			ids = append(ids, store.NodeID(id))
		}
		return ids, iter.Close()
	})
}
