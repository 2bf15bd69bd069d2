package cassandrastore

import (
	"context"

	"github.com/gocql/gocql"

	"github.com/evenkeel/evenkeel/store"
)

// Nodes never change, so their timestamps are fixed: a write is at 1, a deletion at 2. A write
// that arrives after the deletion stays hidden, whatever the clocks are. Ids are never reused.
const (
	nodeWritten = 1
	nodeDeleted = 2
	nodeShards  = 16
)

// shard is the upper half of the id's first byte, so that the order of the shards is that of
// the ids.
func shard(id store.NodeID) int8 { return int8(id[0] >> 4) }

// WriteNode writes at EACH_QUORUM, so that the node is readable in each data centre. While one
// can't be reached, maps with nodes can't change; swaps can't be acknowledged then either.
func (s *Store) WriteNode(ctx context.Context, b store.BucketID, id store.NodeID, blob []byte) error {
	err := store.CheckNode(blob)
	if err == nil {
		err = s.exec(ctx, opWriteNode, gocql.EachQuorum,
			"INSERT INTO nodes (bucket, shard, node, blob) VALUES (?, ?, ?, ?) USING TIMESTAMP ?",
			gocql.UUID(b), shard(id), gocql.UUID(id), blob, int64(nodeWritten))
	}
	return s.fail(ctx, err, "write node", store.NodeName{Bucket: b, ID: id})
}

// Node reads a node through a quorum of the local data centre.
func (s *Store) Node(ctx context.Context, b store.BucketID, id store.NodeID) ([]byte, error) {
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
	return blob, s.fail(ctx, err, "node", store.NodeName{Bucket: b, ID: id})
}

// DeleteNode deletes at the foreground's level: a node that a replica keeps is only garbage.
func (s *Store) DeleteNode(ctx context.Context, b store.BucketID, id store.NodeID) error {
	err := s.exec(ctx, opWriteNode, s.levels.writeRows,
		"DELETE FROM nodes USING TIMESTAMP ? WHERE bucket = ? AND shard = ? AND node = ?",
		int64(nodeDeleted), gocql.UUID(b), shard(id), gocql.UUID(id))
	return s.fail(ctx, err, "delete node", store.NodeName{Bucket: b, ID: id})
}

// ScanNodes reads shard after shard. The order within one is Cassandra's order of UUIDs.
func (s *Store) ScanNodes(
	ctx context.Context, b store.BucketID, after store.NodeID, limit int,
) (ids []store.NodeID, err error) {
	err = store.CheckLimit(limit)
	for at := shard(after); err == nil && at < nodeShards && len(ids) < limit; at++ {
		var some []store.NodeID
		some, err = s.scanShard(ctx, b, at, after, limit-len(ids))
		ids = append(ids, some...)
		after = store.NodeID{} // below every UUID: the next shard is read from its beginning
	}
	return ids, s.fail(ctx, err, "scan nodes", b)
}

func (s *Store) scanShard(
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
